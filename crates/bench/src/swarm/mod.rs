//! `bench swarm`: drives a deployment like the fans of a final.
//!
//! The load is **open loop**: a schedule decides when each request starts, and latency counts from that time, so a slow
//! deployment neither slows the arrivals nor hides its delays. Requests are like requests of the TypeScript client, with
//! idempotency keys and retries. Several agents on several machines share a schedule; the coordinator merges their
//! histograms. Deliberate refusals (429, and 503 with certain codes) are counted apart from failures, and only failures
//! make the command exit with an error.
//!
//! `swarm run` drives any deployment by its URL, `swarm agent` waits for a coordinator, and `swarm local` starts several
//! processes behind HAProxy on this machine and compares a capacity model with the measured processor time.

mod action;
mod agent;
mod calibration;
mod client;
mod coordinator;
mod listener;
mod local;
mod logins;
mod model;
mod plan;
mod remote;
mod script;
mod tally;
#[cfg(test)]
mod tests;

use std::{
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command as Process, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};

use self::{
    action::Action,
    coordinator::{Deployment, Import, Moment, SCHEDULED, State},
    plan::Phones,
    script::{Course, FINAL_EVENING, GOAL, KICK_OFF, Line, WHISTLE},
    tally::Tally,
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Drive a deployment; exits with an error if any request failed, other than by a deliberate refusal.
    Run(Run),
    /// Wait for coordinators and carry out their share of a run.
    Agent(Agent),
    /// Start processes behind HAProxy on this machine, drive them, and compare the capacity model with the measurement.
    Local(Local),
}

/// Scripts by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Script {
    FinalEvening,
}

impl Script {
    fn lines(self) -> &'static [Line] {
        match self {
            Self::FinalEvening => &FINAL_EVENING,
        }
    }
}

#[derive(Args)]
pub(crate) struct Evening {
    #[arg(long, value_enum, default_value = "final-evening")]
    script: Script,
    /// Length of the evening.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Number of fans with a session. The script has a number of requests per fan.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..))]
    fans: u64,
    /// File for the results.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Evening {
    fn length(&self) -> Duration {
        Duration::from_mins(self.minutes)
    }

    /// Courses of the script, without the actions that this deployment cannot do.
    fn courses(&self, phones: Option<&Phones>, rooms: &[String]) -> Vec<Course> {
        let mut courses = script::courses(self.script.lines(), self.fans, self.length());
        for (is_missing, actions, reason) in [
            (phones.is_none(), &[Action::LogIn][..], "no phones: see --first-phone"),
            (rooms.is_empty(), &[Action::Join, Action::RoomStats], "the match has no chat room"),
        ] {
            if is_missing {
                let names: Vec<_> = actions.iter().map(|action| action.name()).collect();
                say(&format!("leaving out {}: {reason}", names.join(" and ")));
                courses.retain(|course| !actions.contains(&course.action));
            }
        }
        courses
    }
}

#[derive(Args)]
pub(crate) struct Run {
    /// Base URL of the deployment.
    #[arg(long)]
    url: String,
    #[command(flatten)]
    evening: Evening,
    /// Addresses of agents, like 10.0.0.5:7700,10.0.0.6:7700. Default: this process sends the load.
    #[arg(long, value_delimiter = ',')]
    agents: Vec<String>,
    /// File with a session token per line, one for each fan.
    #[arg(long, value_name = "FILE", required_unless_present = "first_phone")]
    tokens: Option<PathBuf>,
    /// First of the consecutive phone numbers for log-ins, like +14152000000. The deployment must have the message log
    /// `/api/logs/sms` (not in production) and should use the SMS provider `console`. Without --tokens, all fans log in
    /// before the evening.
    #[arg(long)]
    first_phone: Option<String>,
    /// File for the tokens of fans that logged in, for --tokens of the next run.
    #[arg(long, value_name = "FILE")]
    save_tokens: Option<PathBuf>,
    /// Shell command that imports a fixture document from standard input. It creates the matches, and enters kick-off, a
    /// goal and the result. Without it, use --event.
    #[arg(long, value_name = "COMMAND", required_unless_present = "event")]
    import: Option<String>,
    /// Id of an existing match that is open for predictions for half of the evening. It gets no result.
    #[arg(long, conflicts_with = "import")]
    event: Option<u64>,
    /// Send a different X-Forwarded-For for each fan, for a deployment that trusts the agents as proxies.
    #[arg(long)]
    spread_addresses: bool,
}

#[derive(Args)]
pub(crate) struct Agent {
    /// Address for coordinators. Plans contain session tokens and are not encrypted: use a private network.
    #[arg(long, default_value = "127.0.0.1:7700")]
    listen: SocketAddr,
    /// URLs of deployments that this agent may drive. Required unless it listens on loopback.
    #[arg(long, value_delimiter = ',')]
    allow: Vec<String>,
}

#[derive(Args)]
pub(crate) struct Local {
    #[command(flatten)]
    evening: Evening,
    /// Number of `matchday serve` processes.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..))]
    processes: u8,
    /// Start a homeserver too: logins get chat credentials, and fans join rooms.
    #[arg(long)]
    chat: bool,
    /// Seconds per calibration run; 0 skips the model.
    #[arg(long, default_value_t = 15)]
    calibrate: u64,
    /// Write constants and comparison to docs/capacity.md.
    #[arg(long)]
    report: bool,
}

/// Runs a command of the swarm.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(arguments) => drive(arguments).await,
        Command::Agent(Agent { listen, allow }) => {
            remote::check_exposure(listen, &allow)?;
            let listener =
                tokio::net::TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
            say(&format!("agent listens on {}", listener.local_addr()?));
            remote::listen(listener, allow).await
        }
        Command::Local(arguments) => local::run(arguments).await,
    }
}

/// Prints a line of progress.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "swarm: {text}");
}

/// A number for this run that no other run has.
fn run_number() -> anyhow::Result<u64> {
    Ok(crate::environment::output(Process::new("date").arg("+%s"))?.trim().parse()?)
}

async fn drive(arguments: Run) -> anyhow::Result<()> {
    let run = run_number()?;
    let Run { url, evening, .. } = &arguments;
    let phones = match &arguments.first_phone {
        Some(phone) => Some(Phones::from_first(phone).context("--first-phone: like +14152000000")?),
        None => None,
    };
    let mut tokens = match (&arguments.tokens, &phones) {
        (Some(file), _) => read_tokens(file)?,
        (None, Some(phones)) => {
            say(&format!("logging in {} fans", evening.fans));
            logins::all(url, phones, evening.fans, arguments.spread_addresses).await?
        }
        (None, None) => bail!("--tokens or --first-phone is required"),
    };
    let fans = usize::try_from(evening.fans)?;
    ensure!(tokens.len() >= fans, "{} tokens for {fans} fans: lower --fans", tokens.len());
    tokens.truncate(fans);
    if let Some(file) = &arguments.save_tokens {
        std::fs::write(file, tokens.join("\n"))?;
    }
    // Fans that log in during the evening have phones that did not log in before it.
    let phones = phones.map(|phones| Phones { first: phones.first + evening.fans, ..phones });
    let import: Option<Import> =
        arguments.import.clone().map(|command| -> Import { Arc::new(move |document| pipe(&command, document)) });
    let mut moments = Vec::new();
    let (tournament, event) = match (&import, arguments.event) {
        (Some(import), _) => {
            let start = schedule(import, run, SCHEDULED, evening.length())?;
            moments = changes(run, &start, SCHEDULED, evening.length());
            let (tournament, event, _) = coordinator::find_matches(url, &tokens[0], run).await?;
            (tournament, event)
        }
        (None, Some(event)) => {
            let found = coordinator::get(url, &tokens[0], &format!("/api/auth/events/{event}")).await?;
            (found["data"]["tournament_id"].as_u64().context("tournament_id")?, event)
        }
        (None, None) => bail!("--import or --event is required"),
    };
    let rooms = coordinator::find_rooms(url, &tokens[0], event).await?;
    let courses = evening.courses(phones.as_ref(), &rooms);
    let spread_addresses = arguments.spread_addresses;
    let deployment = Deployment { url: url.clone(), run, tokens, phones, event, tournament, rooms, spread_addresses };
    let driven =
        coordinator::drive(&arguments.agents, &deployment, &courses, evening.length(), &moments, import.as_ref());
    let (tally, took) = driven.await?;
    conclude(&tally, took, evening.json.as_deref(), serde_json::Value::Null)
}

/// Time between the creation of the final and the start of the evening.
const PREPARATION: Duration = Duration::from_secs(3);

/// Creates the matches of a run; returns the final's time of kick-off. The second import sets it, because the first takes
/// longer: it creates everything.
fn schedule(import: &Import, run: u64, rehearsal: State, length: Duration) -> anyhow::Result<String> {
    import(&coordinator::document(run, "2090-05-01T15:00:00Z", SCHEDULED, rehearsal))?;
    let start = coordinator::time_in((length.mul_f64(KICK_OFF) + PREPARATION).as_secs())?;
    import(&coordinator::document(run, &start, SCHEDULED, rehearsal))?;
    Ok(start)
}

/// Kick-off, a goal and the result.
fn changes(run: u64, start: &str, rehearsal: State, length: Duration) -> Vec<Moment> {
    let states = [
        (KICK_OFF, "event", State { status: "live", score: Some((0, 0)) }),
        (GOAL, "event", State { status: "live", score: Some((1, 0)) }),
        (WHISTLE, "result", State { status: "finished", score: Some((1, 0)) }),
    ];
    let moment = |(share, kind, state)| {
        let at = length.mul_f64(share) + PREPARATION;
        Moment { at, kind, document: coordinator::document(run, start, state, rehearsal) }
    };
    states.into_iter().map(moment).collect()
}

fn read_tokens(file: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(ToOwned::to_owned).collect())
}

/// Runs a shell command with this text as its standard input.
fn pipe(command: &str, text: &str) -> anyhow::Result<()> {
    let mut child = Process::new("sh").args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    child.stdin.take().context("standard input")?.write_all(text.as_bytes())?;
    let status = child.wait()?;
    ensure!(status.success(), "{command}: {status}");
    Ok(())
}

/// Prints and stores the results; fails if any request failed.
fn conclude(tally: &Tally, took: Duration, file: Option<&Path>, more: serde_json::Value) -> anyhow::Result<()> {
    let seconds = took.as_secs_f64();
    let _ = write!(std::io::stdout(), "{}", tally.table(seconds));
    if let Some(file) = file {
        let mut summary = tally.summary(seconds);
        if !more.is_null() {
            summary["model"] = more;
        }
        std::fs::write(file, serde_json::to_vec_pretty(&summary)?).with_context(|| file.display().to_string())?;
    }
    ensure!(tally.failures() == 0, "{} requests failed", tally.failures());
    Ok(())
}
