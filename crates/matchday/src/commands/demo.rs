//! `matchday demo` and `matchday simulate`.

use std::{
    io::{self, Write as _},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use matchday::{
    app::App,
    config::Config,
    demo::{
        play::{self, Played, Settings},
        service::{self, Filled},
    },
    tasks,
};
use platform::{
    database::{self, MIGRATIONS},
    shutdown,
};

use super::{check_schema, counted, print};

#[derive(Args)]
pub(crate) struct SimulateArguments {
    /// Speed factor: minutes of a match that pass in one minute.
    #[arg(long, default_value_t = 60)]
    speed: u32,
    /// Random seed; on fresh demo data, the same seed plays the same matches.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of matches to play.
    #[arg(long, default_value_t = 3)]
    matches: usize,
}

pub(crate) async fn demo(config: Config) -> anyhow::Result<()> {
    let began = Instant::now();
    let app = App::connect(config).await?;
    let migrated = database::migrate(&app.config.database, &MIGRATIONS).await;
    migrated.context("migrations failed")?;
    check_schema(&app).await?;
    // Workers create rooms and scores, and no other process may be running yet.
    tasks::queues(&app);
    let bar = ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{spinner} {msg}")?);
    bar.enable_steady_tick(Duration::from_millis(100));
    let filled = service::fill(&app.demo(), |what| {
        bar.set_message(what.to_owned());
        if bar.is_hidden() {
            let _ = writeln!(io::stderr(), "demo: {what}");
        }
    })
    .await;
    bar.finish_and_clear();
    app.shutdown.end(Duration::ZERO, Duration::from_secs(5)).await;
    let Filled { fans, matches, predictions, rooms, words, silence, phone, code } = filled?;
    let address = app.config.http.listen;
    if let Some(why) = silence {
        let _ = writeln!(
            io::stderr(),
            "matchday: the demo has no chat messages: {why}\n  If the homeserver has these accounts from another \
             database, run `dev/reset` to reset both."
        );
    }
    print(&format!(
        "created the Lantern Cup: {}, {}, {}, {}, {} ({:.1} s)\n\n\
         log in as {phone} with the code {code} (valid for five minutes):\n\n  \
         matchday serve &\n  \
         curl -s http://{address}/api/code/verify -H 'content-type: application/json' \\\n    \
         -d '{{\"phone\": \"{phone}\", \"code\": \"{code}\"}}'\n\n\
         for another code: POST /api/code/request, then GET /api/logs/sms\n\
         to play its matches: matchday simulate",
        counted(matches, "match"),
        counted(fans, "fan"),
        counted(predictions, "prediction"),
        counted(rooms, "chat room"),
        counted(words, "message"),
        began.elapsed().as_secs_f64(),
    ))
}

pub(crate) async fn simulate(config: Config, arguments: SimulateArguments) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let ending = app.clone();
    tokio::spawn(async move {
        if shutdown::signalled().await.is_ok() {
            ending.shutdown.closing().cancel();
        }
    });
    tasks::publish_tallies(&app);
    tasks::wake_relay(&app);
    let SimulateArguments { speed, seed, matches } = arguments;
    let print_line = |clock: &str, what: &str| {
        let _ = print(&format!("{clock:>5}  {what}"));
    };
    let Played { matches, goals, corrections, predictions, words } =
        play::play(&app.demo(), Settings { speed, seed, matches }, print_line).await?;
    print(&format!(
        "played {}: {}, {}, {}, {}",
        counted(matches, "match"),
        counted(goals, "goal"),
        counted(corrections, "corrected result"),
        counted(predictions, "prediction"),
        counted(words, "message"),
    ))
}
