//! What each subcommand does: parse, call a service, print. Results go to standard output, everything else to
//! standard error.

mod coins;
mod demo;
mod feeds;
mod health;
mod notifications;
mod rooms;
mod scores;
mod users;
mod webhooks;

use std::{
    io::{self, IsTerminal as _, Read as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use matchday::{
    app::App,
    codes::service::Closure,
    config::{Config, Loaded, reference},
    fixtures::{
        document::{Document, Fault},
        service::{Counts, ImportError, Mode, Report},
    },
    operators::Operator,
    phone::Phone,
    router,
    safety::service::{Report as MessageReport, Restriction, SafetyError},
    tasks,
};
use platform::{
    database::{self, Excess, MIGRATIONS, Schema},
    settings::{Faults, Setting as _},
    shutdown, telemetry,
};
use secrecy::ExposeSecret as _;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::net::{TcpListener, TcpSocket};
use web::{
    ids::{TournamentId, UserId},
    settings::Http,
};

pub(crate) use self::{
    coins::CoinsCommand, demo::SimulateArguments, feeds::FeedsCommand, notifications::NotificationsCommand,
    rooms::RoomsCommand, scores::ScoresCommand, users::ShowArguments, webhooks::WebhooksCommand,
};
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
        /// Do not wait for the matches' chat rooms; workers make them.
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        by: By,
    },
}

#[derive(Subcommand)]
pub(crate) enum SmsCommand {
    /// List the networks, blocks and countries that get few codes because too few came back.
    Closed,
    /// Send codes to one of them again.
    Open {
        /// As listed: a block like +44207946, or a country like GB.
        prefix: String,
        #[command(flatten)]
        by: By,
    },
}

#[derive(Subcommand)]
pub(crate) enum UsersCommand {
    /// Show an account: state, restrictions, sessions, chat, coins and reports.
    Show(ShowArguments),
    /// Ban a user: every request is refused, and the user is removed from all rooms.
    Ban(TimedArguments),
    /// Let somebody in again.
    Unban(RestrictionArguments),
    /// Mute a user: the user may not write in chat, and may do everything else.
    Mute(TimedArguments),
    /// Let somebody speak again.
    Unmute(RestrictionArguments),
}

#[derive(Args)]
pub(crate) struct RestrictionArguments {
    /// An id or a username.
    user: String,
    /// Why; it is kept.
    #[arg(long)]
    reason: String,
    /// Who does it; it is kept too.
    #[arg(long = "by", default_value = "the command line")]
    operator: String,
}

#[derive(Args)]
pub(crate) struct TimedArguments {
    #[command(flatten)]
    of: RestrictionArguments,
    /// End it by itself after this time, like 12h or 7d; without it, it has no end.
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    length: Option<Duration>,
}

fn length(text: &str) -> Result<Duration, &'static str> {
    Duration::parse(text).ok_or(Duration::EXPECTED)
}

/// Who does something, and why.
#[derive(Args)]
pub(crate) struct By {
    /// Who does it; it is kept.
    #[arg(long = "by", default_value = "the command line")]
    operator: String,
    /// Why; it is kept too.
    #[arg(long, default_value = "")]
    reason: String,
}

impl By {
    fn operator(&self) -> Operator {
        Operator::new(&self.operator, &self.reason)
    }
}

#[derive(Subcommand)]
pub(crate) enum ReportsCommand {
    /// List reports of messages that nobody has looked at, oldest first.
    List,
    /// Close a report.
    Close {
        /// As listed.
        id: i64,
        /// What was done about it; it is kept.
        #[arg(long)]
        resolution: String,
        /// Who does it; it is kept too.
        #[arg(long = "by", default_value = "the command line")]
        operator: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum MirrorCommand {
    /// Say how far the mirror of the homeserver's rooms is behind, and what was set aside.
    Status,
    /// Ask the workers to compare all rooms with the homeserver.
    Compare(By),
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
    // These need no configuration, or must speak of a faulty one.
    match arguments.command {
        Command::Openapi => return print(&router::description().to_pretty_json()?),
        Command::Config { reference: true } => return print(&reference()?),
        Command::Config { reference: false } => return print(&Config::load(arguments.config.as_deref())?.explain()),
        Command::Notifications(command) => return notifications::notifications(&command),
        _ => {}
    }
    let Loaded { config, .. } = Config::load(arguments.config.as_deref())?;
    let telemetry = telemetry::start(&config.log, &config.traces)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        match arguments.command {
            Command::Serve { no_workers, migrate } => serve(config, !no_workers, migrate).await,
            Command::Worker => worker(config).await,
            Command::Migrate { direction } => migrate(&config, &direction.unwrap_or(Direction::Up)).await,
            Command::Fixtures(FixturesCommand::Import { file, dry_run, no_wait, by }) => {
                import(config, &file, dry_run, !no_wait, &by.operator()).await
            }
            Command::Feeds(command) => feeds::feeds(config, command).await,
            Command::Users(command) => restrict(config, command).await,
            Command::Reports(command) => reports(config, command).await,
            Command::Mirror(command) => mirror(config, command).await,
            Command::Scores(command) => scores::scores(config, command).await,
            Command::Coins(command) => coins::coins(config, command).await,
            Command::Rooms(command) => rooms::rooms(config, command).await,
            Command::Demo => demo::demo(config).await,
            Command::Simulate(arguments) => demo::simulate(config, arguments).await,
            Command::Webhooks(command) => webhooks::webhooks(config, command).await,
            Command::Sessions(SessionsCommand::Issue { user }) => issue_session(config, user.map(UserId)).await,
            Command::Sms(SmsCommand::Closed) => list_closures(config).await,
            Command::Sms(SmsCommand::Open { prefix, by }) => open_closure(config, &prefix, &by.operator()).await,
            Command::Health { ready } => health::health(&config, ready).await,
            Command::Openapi | Command::Config { .. } | Command::Notifications(_) => Ok(()),
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
        let migrated = database::migrate(&app.config.database, &MIGRATIONS).await;
        migrated.context("the database could not be brought up to date")?;
    }
    let looked = check_database(&app).await?;
    let settings = &app.config.http;
    let public = listen(settings.listen, "http.listen")?;
    let private = listen(settings.private_listen, "http.private_listen")?;
    let console = open_console(&app).await?;
    tracing::info!(
        public = %public.local_addr()?,
        private = %private.local_addr()?,
        console = address(console.as_ref()),
        env = app.config.env.name(),
        "serving"
    );
    let shutdown = app.shutdown.clone();
    serve_console(&app, console);
    app.shutdown.spawn(web::server::serve(public, router::public(&app), settings.clone(), shutdown.clone()));
    app.shutdown.spawn(web::server::serve(private, router::private(&app), settings.clone(), shutdown));
    tokio::task::spawn_blocking(Phone::prepare);
    tasks::listen(&app);
    tasks::stream(&app);
    if with_workers {
        tasks::work(&app);
    }
    until_told(&app, looked).await
}

async fn worker(config: Config) -> anyhow::Result<()> {
    telemetry::metrics();
    let app = App::connect(config).await?;
    let looked = check_database(&app).await?;
    let private = listen(app.config.http.private_listen, "http.private_listen")?;
    let console = open_console(&app).await?;
    tracing::info!(
        private = %private.local_addr()?,
        console = address(console.as_ref()),
        env = app.config.env.name(),
        "working"
    );
    let shutdown = app.shutdown.clone();
    serve_console(&app, console);
    app.shutdown.spawn(web::server::serve(private, router::private(&app), app.config.http.clone(), shutdown));
    tasks::listen(&app);
    tasks::work(&app);
    until_told(&app, looked).await
}

/// Connections that the console's listener holds. A few operators behind a proxy need no more; the others stay for apps.
const CONSOLE_CONNECTIONS: usize = 256;

/// Opens the console's listener, if the console is enabled.
async fn open_console(app: &App) -> anyhow::Result<Option<TcpListener>> {
    if !app.config.has_console() {
        return Ok(None);
    }
    app.console.check().await.context("console.token_keys_file")?;
    listen(app.config.console.listen, "console.listen").map(Some)
}

fn address(listener: Option<&TcpListener>) -> Option<String> {
    listener?.local_addr().ok().map(|address| address.to_string())
}

fn serve_console(app: &App, listener: Option<TcpListener>) {
    if let Some((listener, console)) = listener.zip(router::console(app)) {
        let http = &app.config.http;
        let bounds = Http { max_connections: http.max_connections.min(CONSOLE_CONNECTIONS), ..http.clone() };
        app.shutdown.spawn(web::server::serve(listener, console, bounds, app.shutdown.clone()));
    }
}

async fn until_told(app: &App, looked: Looked) -> anyhow::Result<()> {
    tokio::select! {
        told = shutdown::signalled() => told?,
        found = check_when_back(app), if looked == Looked::Away => found?,
    }
    tracing::info!("told to end");
    let ending = async {
        app.shutdown.end(app.config.shutdown.notice, app.config.shutdown.drain).await;
        // A connection that hangs must not keep the process.
        let _ = tokio::time::timeout(Duration::from_secs(2), app.core.db.close()).await;
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

/// How many connections the kernel holds until they are accepted, if it may (`net.core.somaxconn`). The usual 128 are gone
/// in a blink when a balancer opens its connections or everybody comes back after a restart; who finds no room there
/// believes to be connected, and waits for nothing.
const BACKLOG: u32 = 4_096;

fn listen(address: std::net::SocketAddr, setting: &str) -> anyhow::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let listening = socket.and_then(|socket| {
        // A process that was started again need not wait for the last connections of the one before.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    });
    listening.with_context(|| format!("{setting}: cannot listen on {address}"))
}

/// Whether a process could look at its database.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looked {
    Yes,
    Away,
}

/// What a process that stays looks at before it begins. At all of it at once, so that a database that is away is waited for
/// only once.
async fn check_database(app: &App) -> anyhow::Result<Looked> {
    let (schema, rights, ()) = tokio::join!(check_schema(app), check_rights(app), check_durability(app));
    Ok(if schema? == Looked::Yes && rights? == Looked::Yes { Looked::Yes } else { Looked::Away })
}

/// Looks once the database is there, for a process that began without it. What would have kept it from beginning ends it;
/// if all is well, nothing ever comes of this.
async fn check_when_back(app: &App) -> anyhow::Result<()> {
    while check_database(app).await? == Looked::Away {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    std::future::pending().await
}

/// A process that could change what only grows says so, and outside development does not start: one mistake in it, or
/// one intruder, and nobody could trust what is kept there. Commands may be run by anybody.
async fn check_rights(app: &App) -> anyhow::Result<Looked> {
    let Excess { role, tables } = match database::excess(&app.core.db).await {
        Ok(None) => return Ok(Looked::Yes),
        Ok(Some(excess)) => excess,
        Err(error) => {
            tracing::debug!(%error, "what database.url may do is looked at later");
            return Ok(Looked::Away);
        }
    };
    let told = format!(
        "database.url: the role \"{role}\" may change what \"{}\" keeps; connect as a member of matchday_app that owns \
         nothing, and migrate with database.owner_url",
        tables.join("\", \"")
    );
    if app.config.env.is_development() {
        tracing::warn!("{told}");
        return Ok(Looked::Yes);
    }
    bail!(told)
}

/// Warns of a role or database whose sessions would lose acknowledged commits in a crash. The process overrides it for its
/// own connections; tools that connect as the same role do not.
async fn check_durability(app: &App) {
    match database::is_durable_by_default(&app.core.db).await {
        Ok(true) => {}
        Ok(false) => tracing::warn!(
            "synchronous_commit is off for database.url; it is turned on for this process. Turn it on for the role and the database"
        ),
        Err(error) => tracing::debug!(%error, "synchronous_commit was not checked"),
    }
}

/// A process whose queries cannot work says so at once; one whose database is away starts, and says that it is not
/// ready.
async fn check_schema(app: &App) -> anyhow::Result<Looked> {
    match database::schema(&app.core.db).await {
        Ok(Schema::Current) => Ok(Looked::Yes),
        Ok(Schema::Behind(missing)) => {
            bail!("the database lacks {}: run `matchday migrate` first", counted(missing, "migration"))
        }
        Ok(Schema::Closed(role)) => bail!(
            "database.url: the role \"{role}\" may not read the tables: run `matchday migrate` first; if that was done, \
             let an operator run `grant matchday_app to \"{role}\"`"
        ),
        Err(error) => {
            // A command fails at its first statement; the checks of dependencies log it for a process that stays.
            tracing::debug!(%error, "database schema was not checked");
            Ok(Looked::Away)
        }
    }
}

async fn migrate(config: &Config, direction: &Direction) -> anyhow::Result<()> {
    let pool = database::migration_pool(&config.database)?;
    let missing = |schema| if let Schema::Behind(missing) = schema { missing } else { 0 };
    match direction {
        Direction::Up => {
            let applied = database::migrate(&config.database, &MIGRATIONS).await?;
            print(&format!("applied {}", counted(applied, "migration")))
        }
        Direction::Down { all } => {
            let mut versions: Vec<i64> = MIGRATIONS.iter().map(|migration| migration.version).collect();
            versions.dedup();
            // The migration before the newest one that is applied.
            let newest = versions.len().saturating_sub(missing(database::schema(&pool).await?));
            let target = if *all { 0 } else { newest.checked_sub(2).map_or(0, |before| versions[before]) };
            database::undo(&config.database, &MIGRATIONS, target).await?;
            print(&format!("the database is at migration {target}"))
        }
        Direction::Status => match database::schema(&pool).await? {
            Schema::Current => print("the database is up to date"),
            Schema::Behind(missing) => bail!("the database lacks {}", counted(missing, "migration")),
            Schema::Closed(role) => bail!("the role \"{role}\" may not read the tables: is it their owner?"),
        },
    }
}

async fn import(config: Config, file: &Path, dry_run: bool, wait: bool, operator: &Operator) -> anyhow::Result<()> {
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
    let report = app.fixtures.import_by(operator, &document, mode, |done| bar.set_position(done as u64)).await;
    bar.finish_and_clear();
    let report = report.map_err(|error| match error {
        ImportError::Conflict(faults) => refusal(&faults),
        other => other.into(),
    })?;
    print(&told(&report, dry_run))?;
    match report.tournament_id {
        Some(tournament) if !dry_run => rooms_of(&app, tournament, wait).await,
        _ => Ok(()),
    }
}

/// Waits until workers have made the rooms of a tournament's matches, as long as there is progress.
async fn rooms_of(app: &App, tournament: TournamentId, wait: bool) -> anyhow::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(15);
    let (planned, before) = app.rooms.progress(tournament).await?;
    if planned == before {
        return Ok(());
    }
    let bar = progress_bar(usize::try_from(planned - before)?, "rooms");
    let (mut open, mut moved) = (before, std::time::Instant::now());
    while wait && open < planned && moved.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (_, now) = app.rooms.progress(tournament).await?;
        if now > open {
            (open, moved) = (now, std::time::Instant::now());
            bar.set_position(u64::try_from(open - before)?);
        }
    }
    bar.finish_and_clear();
    let (made, queued) = (usize::try_from(open - before)?, usize::try_from(planned - open)?);
    if queued == 0 {
        return print(&format!("  chat: {} made", counted(made, "room")));
    }
    let why = if wait { ", when the homeserver answers" } else { "" };
    print(&format!(
        "  chat: {} made, {} queued; `matchday serve` or `matchday worker` makes them{why}",
        counted(made, "room"),
        counted(queued, "room"),
    ))
}

async fn restrict(config: Config, command: UsersCommand) -> anyhow::Result<()> {
    let (restriction, arguments, length, done, so) = match command {
        UsersCommand::Show(arguments) => return users::show(config, arguments).await,
        UsersCommand::Ban(TimedArguments { of, length }) => (Restriction::Ban, of, length, "banned", "banned already"),
        UsersCommand::Unban(of) => (Restriction::Unban, of, None, "not banned any more", "not banned"),
        UsersCommand::Mute(TimedArguments { of, length }) => (Restriction::Mute, of, length, "muted", "muted already"),
        UsersCommand::Unmute(of) => (Restriction::Unmute, of, None, "not muted any more", "not muted"),
    };
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let named = &arguments.user;
    let user = app.safety.user(named).await.with_context(|| named.clone())?;
    let operator = Operator::new(&arguments.operator, &arguments.reason);
    match app.safety.restrict_for(user, restriction, length, &operator).await {
        Err(SafetyError::AlreadySo) => bail!("{named} (user {user}) is {so}"),
        outcome => outcome?,
    }
    let time = length.map(|length| format!(" for {}", length.show())).unwrap_or_default();
    print(&format!("{named} (user {user}) is {done}{time}; workers carry it to the homeserver"))
}

async fn reports(config: Config, command: ReportsCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    match command {
        ReportsCommand::List => {
            let reports = app.safety.open_reports(100).await?;
            if reports.is_empty() {
                return print("there are no open reports");
            }
            print(&reports.iter().map(report_lines).collect::<Vec<_>>().join("\n"))
        }
        ReportsCommand::Close { id, resolution, operator } => {
            if !app.safety.close_report(id, &Operator::new(operator, resolution)).await? {
                bail!("there is no open report {id}: `matchday reports list` lists them");
            }
            print(&format!("report {id} is closed"))
        }
    }
}

/// What a user wrote may be anything; on a terminal it must not move the cursor.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn report_lines(report: &MessageReport) -> String {
    let when = report.created_at.replace_nanosecond(0).unwrap_or(report.created_at);
    format!(
        "{} {} by {} in \"{}\": {}\n    {} {} {}",
        report.id,
        when.format(&Rfc3339).unwrap_or_default(),
        report.reporter,
        plain(&report.room),
        plain(&report.reason),
        report.event_id,
        report.sender.as_deref().map_or_else(|| "(sender unknown)".to_owned(), plain),
        report.content.as_deref().map_or_else(|| "(not seen: the homeserver was away)".to_owned(), plain),
    )
}

async fn mirror(config: Config, command: MirrorCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    if app.config.matrix.homeserver_url.is_none() {
        bail!("there is no chat here: matrix.homeserver_url is not set");
    }
    match command {
        MirrorCommand::Compare(by) => {
            app.mirror.ask_for_comparison_by(&by.operator()).await?;
            print("workers compare all rooms with the homeserver now; `matchday mirror status` says how far they are")
        }
        MirrorCommand::Status => {
            let status = app.mirror.status().await?;
            let time = |at: Option<OffsetDateTime>| {
                at.and_then(|at| at.replace_nanosecond(0).ok()?.format(&Rfc3339).ok())
                    .unwrap_or_else(|| "never".to_owned())
            };
            let mut lines = vec![
                format!("last push: {}", time(status.last_received)),
                match status.waiting_since {
                    None => "waiting: nothing".to_owned(),
                    since => format!("waiting: {}, the oldest since {}", counted_events(status.waiting), time(since)),
                },
                format!("all rooms compared since: {}", time(status.compared_since)),
                format!("set aside: {}", counted_events(status.set_aside)),
            ];
            for event in app.mirror.set_aside(20).await? {
                lines.push(format!(
                    "  {} {} {} from {}: {}",
                    time(Some(event.received_at)),
                    plain(&event.event_id),
                    plain(&event.kind),
                    plain(&event.sender),
                    plain(&event.fault)
                ));
            }
            print(&lines.join("\n"))
        }
    }
}

fn counted_events(number: i64) -> String {
    counted(usize::try_from(number).unwrap_or_default(), "event")
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
    if dry_run && report.rooms > 0 {
        lines.push(format!("  chat: {} to be made", counted(report.rooms, "room")));
    }
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
        return print("no network, block or country is limited");
    }
    let line = |closure: &Closure| {
        let until = closure.closed_until.replace_nanosecond(0).unwrap_or(closure.closed_until);
        let until = until.format(&Rfc3339).unwrap_or_default();
        format!(
            "{}: {} of {} phones verified; new phones get {} codes an hour until {until}",
            closure.prefix, closure.verified, closure.phones, closure.hourly
        )
    };
    print(&closures.iter().map(line).collect::<Vec<_>>().join("\n"))
}

async fn open_closure(config: Config, prefix: &str, operator: &Operator) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    if !app.codes.open(prefix, operator).await? {
        bail!("{prefix} is not limited: `matchday sms closed` lists what is");
    }
    print(&format!("codes are sent to {prefix} again"))
}

fn counted(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
