//! What each subcommand does: parse, call a service, print. Results go to standard output, everything else to
//! standard error.

use std::{
    io::{self, IsTerminal as _, Read as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use matchday::{
    app::App,
    codes::service::Closure,
    fixtures::{
        document::{Document, Fault},
        service::{Counts, ImportError, Mode, Report},
    },
    http,
    ids::UserId,
    phone::Phone,
    platform::{
        config::{Config, Loaded},
        database::{self, MIGRATIONS, Schema},
        settings::Faults,
        shutdown, telemetry,
    },
    workers,
};
use secrecy::ExposeSecret as _;
use time::format_description::well_known::Rfc3339;
use tokio::net::TcpListener;

use crate::{Arguments, Command};

#[derive(Subcommand)]
pub(crate) enum Direction {
    /// Apply what is missing (the default).
    Up,
    /// Take back the newest migration, or all of them.
    Down {
        /// All of them: the database is empty afterwards.
        #[arg(long)]
        all: bool,
    },
    /// Say whether anything is missing.
    Status,
}

#[derive(Subcommand)]
pub(crate) enum FixturesCommand {
    /// Bring the catalogue in line with a document.
    Import {
        /// A JSON file, or - for standard input.
        file: PathBuf,
        /// Only say what would change.
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum SmsCommand {
    /// List the blocks and countries that no codes are sent to, because too few came back.
    Closed,
    /// Send codes to one of them again.
    Open {
        /// As listed: a block like +44207946, or a country like GB.
        prefix: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum SessionsCommand {
    /// Issue a token and print it.
    Issue {
        /// For this user instead of a new one.
        #[arg(long)]
        user: Option<i64>,
    },
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    // These two need no configuration, or must speak of a faulty one.
    match arguments.command {
        Command::Openapi => return print(&http::description().to_pretty_json()?),
        Command::Config => return print(&Config::load(arguments.config.as_deref())?.explain()),
        _ => {}
    }
    let Loaded { config, .. } = Config::load(arguments.config.as_deref())?;
    let telemetry = telemetry::start(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        match arguments.command {
            Command::Serve { no_workers, migrate } => serve(config, !no_workers, migrate).await,
            Command::Worker => worker(config).await,
            Command::Migrate { direction } => migrate(&config, &direction.unwrap_or(Direction::Up)).await,
            Command::Fixtures(FixturesCommand::Import { file, dry_run }) => import(config, &file, dry_run).await,
            Command::Sessions(SessionsCommand::Issue { user }) => issue_session(config, user.map(UserId)).await,
            Command::Sms(SmsCommand::Closed) => list_closures(config).await,
            Command::Sms(SmsCommand::Open { prefix }) => open_closure(config, &prefix).await,
            Command::Openapi | Command::Config => Ok(()),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    telemetry.end();
    outcome
}

/// Says what went wrong in as few lines as it takes.
pub(crate) fn complain(error: &anyhow::Error) {
    let text = match error.downcast_ref::<Faults>() {
        Some(Faults(faults)) => {
            format!("matchday: the settings have {}:\n  {}", counted(faults.len(), "fault"), faults.join("\n  "))
        }
        None => format!("matchday: {error:#}"),
    };
    let _ = writeln!(io::stderr(), "{text}");
}

fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout(), "{}", text.trim_end()) {
        // Whoever reads may stop when they have seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

async fn serve(config: Config, with_workers: bool, migrate_first: bool) -> anyhow::Result<()> {
    telemetry::metrics();
    let app = App::connect(config).await?;
    if migrate_first {
        let pool = database::migration_pool(&app.config.database)?;
        MIGRATIONS.run(&pool).await.context("the database could not be brought up to date")?;
    }
    check_schema(&app).await?;
    let settings = &app.config.http;
    let public = listen(settings.listen, "http.listen").await?;
    let private = listen(settings.private_listen, "http.private_listen").await?;
    tracing::info!(public = %public.local_addr()?, private = %private.local_addr()?, env = app.config.env.name(), "serving");
    let closing = app.shutdown.closing().clone();
    app.shutdown.spawn(http::server::serve(public, http::public(&app), settings.clone(), closing.clone()));
    app.shutdown.spawn(http::server::serve(private, http::private(&app), settings.clone(), closing));
    tokio::task::spawn_blocking(Phone::prepare);
    workers::listen(&app);
    if with_workers {
        workers::work(&app);
    }
    until_told(&app).await
}

async fn worker(config: Config) -> anyhow::Result<()> {
    telemetry::metrics();
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let private = listen(app.config.http.private_listen, "http.private_listen").await?;
    tracing::info!(private = %private.local_addr()?, env = app.config.env.name(), "working");
    let closing = app.shutdown.closing().clone();
    app.shutdown.spawn(http::server::serve(private, http::private(&app), app.config.http.clone(), closing));
    workers::listen(&app);
    workers::work(&app);
    until_told(&app).await
}

async fn until_told(app: &App) -> anyhow::Result<()> {
    shutdown::signalled().await?;
    tracing::info!("told to end");
    let ending = async {
        app.shutdown.end(app.config.shutdown.notice, app.config.shutdown.drain).await;
        // A connection that hangs must not keep the process.
        let _ = tokio::time::timeout(Duration::from_secs(2), app.db.close()).await;
    };
    tokio::select! {
        () = ending => tracing::info!("ended"),
        told = shutdown::signalled() => {
            told?;
            tracing::warn!("told to end again; ended without waiting");
        }
    }
    Ok(())
}

async fn listen(address: std::net::SocketAddr, setting: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{setting}: cannot listen on {address}"))
}

/// A process whose queries cannot work says so at once; one whose database is away starts, and says that it is not
/// ready.
async fn check_schema(app: &App) -> anyhow::Result<()> {
    match database::schema(&app.db).await {
        Ok(Schema::Current) => Ok(()),
        Ok(Schema::Behind(missing)) => {
            bail!("the database lacks {}: run `matchday migrate` first", counted(missing, "migration"))
        }
        Err(error) => {
            tracing::warn!(%error, "the database does not answer; not ready until it does");
            Ok(())
        }
    }
}

async fn migrate(config: &Config, direction: &Direction) -> anyhow::Result<()> {
    let pool = database::migration_pool(&config.database)?;
    let missing = |schema| if let Schema::Behind(missing) = schema { missing } else { 0 };
    match direction {
        Direction::Up => {
            let before = missing(database::schema(&pool).await?);
            MIGRATIONS.run(&pool).await?;
            print(&format!("applied {}", counted(before, "migration")))
        }
        Direction::Down { all } => {
            let mut versions: Vec<i64> = MIGRATIONS.iter().map(|migration| migration.version).collect();
            versions.dedup();
            // The migration before the newest one that is applied.
            let newest = versions.len().saturating_sub(missing(database::schema(&pool).await?));
            let target = if *all { 0 } else { newest.checked_sub(2).map_or(0, |before| versions[before]) };
            MIGRATIONS.undo(&pool, target).await?;
            print(&format!("the database is at migration {target}"))
        }
        Direction::Status => match database::schema(&pool).await? {
            Schema::Current => print("the database is up to date"),
            Schema::Behind(missing) => bail!("the database lacks {}", counted(missing, "migration")),
        },
    }
}

async fn import(config: Config, file: &Path, dry_run: bool) -> anyhow::Result<()> {
    let mut text = String::new();
    if file == Path::new("-") {
        io::stdin().read_to_string(&mut text).context("standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    }
    let document = Document::parse(&text).map_err(|faults| refusal(&faults))?;
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let bar = progress_bar(document.matches.len(), "matches");
    let mode = if dry_run { Mode::DryRun } else { Mode::Write };
    let report = app.fixtures.import(&document, mode, |done| bar.set_position(done as u64)).await;
    bar.finish_and_clear();
    let report = report.map_err(|error| match error {
        ImportError::Conflict(faults) => refusal(&faults),
        other => other.into(),
    })?;
    print(&told(&report, dry_run))
}

fn refusal(faults: &[Fault]) -> anyhow::Error {
    const SHOWN: usize = 50;
    let mut lines: Vec<String> = faults.iter().take(SHOWN).map(|fault| format!("  {fault}")).collect();
    if faults.len() > SHOWN {
        lines.push(format!("  and {} more", faults.len() - SHOWN));
    }
    anyhow::anyhow!("nothing was imported: the document has {}:\n{}", counted(faults.len(), "fault"), lines.join("\n"))
}

fn told(report: &Report, dry_run: bool) -> String {
    const SHOWN: usize = 20;
    let line = |kind: &str, Counts { new, changed, unchanged }: Counts| {
        format!("  {kind}: {new} new, {changed} changed, {unchanged} as they were")
    };
    let heading = if dry_run { "would be imported; nothing was written" } else { "imported" };
    let mut lines = vec![
        format!("{}: {heading}", report.tournament),
        line("teams", report.teams),
        line("matches", report.matches),
        format!("  results: {} new or corrected", report.results),
    ];
    lines.extend(report.changes.iter().take(SHOWN).map(|change| format!("    {change}")));
    if report.changes.len() > SHOWN {
        lines.push(format!("    and {} more", report.changes.len() - SHOWN));
    }
    lines.join("\n")
}

/// A bar on a terminal; nothing where nobody watches.
fn progress_bar(length: usize, unit: &str) -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template(&format!("{{bar:40}} {{pos}}/{{len}} {unit} ({{elapsed}}, {{eta}} left)"));
    let bar = ProgressBar::with_draw_target(Some(length as u64), target);
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

async fn issue_session(config: Config, user: Option<UserId>) -> anyhow::Result<()> {
    if !config.env.is_development() {
        bail!("tokens are issued by logging in; this command works with MATCHDAY_ENV local or testing only");
    }
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let user = match user {
        Some(user) => user,
        None => app.accounts.make_without_phone().await?,
    };
    let issued = app.sessions.issue(user, "matchday sessions issue").await?;
    print(issued.token.expose_secret())
}

async fn list_closures(config: Config) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let closures = app.codes.closures().await?;
    if closures.is_empty() {
        return print("codes are sent everywhere");
    }
    let line = |closure: &Closure| {
        let until = closure.closed_until.replace_nanosecond(0).unwrap_or(closure.closed_until);
        let until = until.format(&Rfc3339).unwrap_or_default();
        format!(
            "{}: {} of {} phones sent their code back; closed until {until}",
            closure.prefix, closure.verified, closure.phones
        )
    };
    print(&closures.iter().map(line).collect::<Vec<_>>().join("\n"))
}

async fn open_closure(config: Config, prefix: &str) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    if !app.codes.open(prefix).await? {
        bail!("{prefix} is not closed: `matchday sms closed` lists what is");
    }
    print(&format!("codes are sent to {prefix} again"))
}

fn counted(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
