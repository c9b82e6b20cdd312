//! A homeserver for this run, configured like the one of `dev/up`. It is not reused, because an older homeserver may
//! already have accounts with the usernames that a new database generates.

use std::{
    fs,
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};

use super::{Owned, Stage, cores::Group, free_port, until};

pub(crate) struct Synapse {
    process: Owned,
    directory: PathBuf,
    /// Base URL for clients.
    pub(crate) url: String,
}

impl Synapse {
    /// Starts Synapse on an empty database.
    pub(crate) async fn start(stage: &Stage) -> anyhow::Result<Self> {
        Self::start_pushing_to(stage, None).await
    }

    /// Like [`Self::start`]. Pushes events to the private listener of a service on this port of the loopback address.
    pub(crate) async fn start_pushing_to(stage: &Stage, service: Option<u16>) -> anyhow::Result<Self> {
        let (development, directory) = (stage.directory.join("../synapse"), stage.directory.join("synapse"));
        let _ = fs::remove_dir_all(&directory);
        // The settings contain secrets.
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        stage.postgres.create_plain("bench_synapse").await?;
        let port = free_port()?;
        let url = format!("http://127.0.0.1:{port}");
        let read =
            |name: &str| fs::read_to_string(development.join(name)).with_context(|| format!("{name}: run dev/up"));
        let path = |name: &str| format!("\"{}\"", directory.join(name).display());
        let registrations = match service {
            Some(_) => format!("[{}, {}]", path("appservice.yaml"), path("appservice-push.yaml")),
            None => format!("[{}]", path("appservice.yaml")),
        };
        let settings = [
            ("public_baseurl", format!("\"{url}/\"")),
            ("- port", port.to_string()),
            ("dbname", "bench_synapse".to_owned()),
            ("port", stage.postgres.port().to_string()),
            ("log_config", path("log.yaml")),
            ("app_service_config_files", registrations),
            ("media_store_path", path("media")),
        ];
        let mut text = read("homeserver.yaml")?;
        for (key, value) in settings {
            text = with(&text, key, &value)?;
        }
        fs::write(directory.join("homeserver.yaml"), text)?;
        for name in ["appservice.yaml", "log.yaml"] {
            fs::write(directory.join(name), read(name)?)?;
        }
        if let Some(port) = service {
            let push = with(&read("appservice-push.yaml")?, "url", &format!("\"http://127.0.0.1:{port}\""))?;
            fs::write(directory.join("appservice-push.yaml"), push)?;
        }
        let mut command = Command::new(stage.directory.join("../venv/bin/python"));
        command.args(["-m", "synapse.app.homeserver", "-c", "homeserver.yaml"]).current_dir(&directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(directory.join("log"))?);
        let mut process = Owned::start(&mut command, "-TERM")?;
        let versions = format!("{url}/_matrix/client/versions");
        until("Synapse responds", Duration::from_mins(1), async || {
            !process.runs() || reqwest::get(&versions).await.is_ok_and(|answer| answer.status() == 200)
        })
        .await?;
        ensure!(process.runs(), "Synapse did not start: {}", fs::read_to_string(directory.join("log"))?);
        Ok(Self { process, directory, url })
    }

    pub(crate) fn group(&self) -> Group {
        Group { name: "Synapse", leader: self.process.id(), with_children: false }
    }
}

impl Drop for Synapse {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Replaces the value of a key in the settings, which must occur exactly once.
fn with(settings: &str, key: &str, value: &str) -> anyhow::Result<String> {
    let is_it = |line: &str| line.trim_start().strip_prefix(key).is_some_and(|rest| rest.starts_with(':'));
    let times = settings.lines().filter(|line| is_it(line)).count();
    ensure!(times == 1, "{key} occurs {times} times in the settings of Synapse");
    let lines = settings.lines().map(|line| {
        let indent = &line[..line.len() - line.trim_start().len()];
        if is_it(line) { format!("{indent}{key}: {value}\n") } else { format!("{line}\n") }
    });
    Ok(lines.collect())
}
