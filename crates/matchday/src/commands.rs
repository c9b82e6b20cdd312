//! Subcommands: parse the arguments, call a service, print the result. Results go to standard output, everything else
//! to standard error.

mod audit;
mod coins;
mod demo;
mod feeds;
mod filters;
mod health;
mod keys;
mod messages;
mod notifications;
mod reports;
mod rooms;
mod scores;
mod seals;
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
    catalogue::{
        fixtures::{
            document::{Document, Fault},
            service::{Counts, ImportError, Mode, Report},
        },
        matches::partitions::{self, TooFewLocks},
    },
    chat::moderation::service::ModerationError,
    config::{Config, Loaded, reference},
    identity::{accounts::restrictions::Restriction, codes::service::Closure, operators::Operator, phone::Phone},
    router, tasks,
};
use platform::{
    database::{self, ExcessPrivileges, MIGRATIONS, Schema},
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
    audit::AuditCommand, coins::CoinsCommand, demo::SimulateArguments, feeds::FeedsCommand, filters::FiltersCommand,
    keys::KeysCommand, messages::MessagesCommand, notifications::NotificationsCommand, reports::ReportsCommand,
    rooms::RoomsCommand, scores::ScoresCommand, seals::SealsCommand, users::ShowArguments, webhooks::WebhooksCommand,
};
use crate::{Arguments, Command};

#[derive(Subcommand)]
pub(crate) enum Direction {
    /// Apply missing migrations (default).
    Up,
    /// Revert the newest migration, or all of them.
    Down {
        /// Revert every migration. The database is empty afterwards.
        #[arg(long)]
        all: bool,
    },
    /// Check whether migrations are missing.
    Status,
}

#[derive(Subcommand)]
pub(crate) enum FixturesCommand {
    /// Import a document: create and update its tournament, teams and matches.
    Import {
        /// Path of a JSON file, or - for standard input.
        file: PathBuf,
        /// Print the changes without writing them.
        #[arg(long)]
        dry_run: bool,
        /// Do not wait until workers have created the chat rooms of the matches.
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        by: By,
    },
}

#[derive(Subcommand)]
pub(crate) enum SmsCommand {
    /// List the networks, number blocks and countries whose login codes are limited because too few were verified.
    Closed,
    /// Lift the limit of a network, number block or country.
    Open {
        /// Prefix as printed by `closed`: a network like 203.0.113.7, a block like +44207946, or a country like GB.
        prefix: String,
        #[command(flatten)]
        by: By,
    },
}

#[derive(Subcommand)]
pub(crate) enum UsersCommand {
    /// Show an account: state, restrictions, sessions, chat, coins and reports.
    Show(ShowArguments),
    /// Ban a user: requests are refused, and the user is removed from all rooms.
    Ban(TimedArguments),
    /// Lift the ban of a user.
    Unban(RestrictionArguments),
    /// Mute a user: the user cannot write in chat, but can do everything else.
    Mute(TimedArguments),
    /// Lift the mute of a user.
    Unmute(RestrictionArguments),
}

#[derive(Args)]
pub(crate) struct RestrictionArguments {
    /// User id or username.
    user: String,
    /// Reason, stored with the restriction.
    #[arg(long)]
    reason: String,
    /// Name of the operator, stored with the restriction.
    #[arg(long = "by", default_value = "the command line")]
    operator: String,
}

#[derive(Args)]
pub(crate) struct TimedArguments {
    #[command(flatten)]
    of: RestrictionArguments,
    /// End the restriction after this time, like 12h or 7d. Without it, the restriction has no end.
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    length: Option<Duration>,
}

fn length(text: &str) -> Result<Duration, &'static str> {
    Duration::parse(text).ok_or(Duration::EXPECTED)
}

/// Operator and reason of an action, for the operator log.
#[derive(Args)]
pub(crate) struct By {
    /// Name of the operator, stored in the operator log.
    #[arg(long = "by", default_value = "the command line")]
    operator: String,
    /// Reason, stored in the operator log.
    #[arg(long, default_value = "")]
    reason: String,
}

impl By {
    fn operator(&self) -> Operator {
        Operator::new(&self.operator, &self.reason)
    }
}

#[derive(Subcommand)]
pub(crate) enum MembershipsCommand {
    /// Show how far the membership sync is behind, and the events that it could not apply.
    Status,
    /// Schedule a comparison of all rooms with the homeserver.
    Compare(By),
}

#[derive(Subcommand)]
pub(crate) enum SessionsCommand {
    /// Issue a session token and print it.
    Issue {
        /// User id; without it, a new user is created.
        #[arg(long)]
        user: Option<i64>,
    },
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    // These commands need no configuration, or must be able to report an invalid one.
    match arguments.command {
        Command::Openapi { server: false } => return print(&router::description().to_pretty_json()?),
        Command::Openapi { server: true } => return print(&matchday::server::description().to_pretty_json()?),
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
            Command::Feeds(command) => Box::pin(feeds::feeds(config, command)).await,
            Command::Users(command) => Box::pin(restrict(config, command)).await,
            Command::Reports(command) => reports::reports(config, command).await,
            Command::Memberships(command) => memberships(config, command).await,
            Command::Scores(command) => scores::scores(config, command).await,
            Command::Seals(command) => seals::seals(config, command).await,
            Command::Coins(command) => coins::coins(config, command).await,
            Command::Keys(command) => keys::keys(config, command).await,
            Command::Audit(command) => audit::audit(config, command).await,
            Command::Filters(command) => filters::filters(config, command).await,
            Command::Rooms(command) => rooms::rooms(config, command).await,
            Command::Messages(command) => messages::messages(config, command).await,
            Command::Demo => demo::demo(config).await,
            Command::Simulate(arguments) => demo::simulate(config, arguments).await,
            Command::Webhooks(command) => webhooks::webhooks(config, command).await,
            Command::Sessions(SessionsCommand::Issue { user }) => issue_session(config, user.map(UserId)).await,
            Command::Sms(SmsCommand::Closed) => list_closures(config).await,
            Command::Sms(SmsCommand::Open { prefix, by }) => open_closure(config, &prefix, &by.operator()).await,
            Command::Health { ready } => health::health(&config, ready).await,
            Command::Openapi { .. } | Command::Config { .. } | Command::Notifications(_) => Ok(()),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    telemetry.end();
    outcome
}

/// Prints an error to standard error, with one line for each invalid setting.
pub(crate) fn print_error(error: &anyhow::Error) {
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
        // A closed pipe is not a failure: `matchday … | head` stops reading early.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

async fn serve(config: Config, with_workers: bool, migrate_first: bool) -> anyhow::Result<()> {
    telemetry::metrics();
    let app = App::connect(config).await?;
    if migrate_first {
        let migrated = database::migrate(&app.config.database, &MIGRATIONS).await;
        migrated.context("migrations failed")?;
    }
    let check = check_database(&app).await?;
    let settings = &app.config.http;
    let public = listen(settings.listen, "http.listen")?;
    let private = listen(settings.private_listen, "http.private_listen")?;
    let console = open_console(&app).await?;
    let server = settings.server_listen.map(|address| listen(address, "http.server_listen")).transpose()?;
    web::server::open_files::warn_of_low_limit(settings);
    tracing::info!(
        public = %public.local_addr()?,
        private = %private.local_addr()?,
        server = address(server.as_ref()),
        console = address(console.as_ref()),
        env = app.config.env.name(),
        "serving"
    );
    let shutdown = app.shutdown.clone();
    serve_console(&app, console);
    app.shutdown.spawn(web::server::serve(public, router::public(&app), settings.clone(), shutdown.clone()));
    app.shutdown.spawn(web::server::serve(private, router::private(&app), settings.clone(), shutdown.clone()));
    if let Some((listener, api)) = server.zip(router::server(&app)) {
        app.shutdown.spawn(web::server::serve(listener, api, settings.clone(), shutdown));
    }
    tokio::task::spawn_blocking(Phone::prepare);
    tasks::listen(&app);
    tasks::stream(&app);
    if with_workers {
        tasks::work(&app);
    } else {
        tasks::wake_relay(&app);
    }
    run_until_shutdown(&app, check).await
}

async fn worker(config: Config) -> anyhow::Result<()> {
    telemetry::metrics();
    let app = App::connect(config).await?;
    let check = check_database(&app).await?;
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
    run_until_shutdown(&app, check).await
}

/// Maximum number of connections to the console's listener. A few operators behind a proxy need no more; the
/// rest stays available to apps.
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

async fn run_until_shutdown(app: &App, check: DatabaseCheck) -> anyhow::Result<()> {
    tokio::select! {
        signalled = shutdown::signalled() => signalled?,
        found = check_when_back(app), if check == DatabaseCheck::Unavailable => found?,
    }
    tracing::info!("shutdown requested");
    let ending = async {
        app.shutdown.end(app.config.shutdown.notice, app.config.shutdown.drain).await;
        app.wake_relay().await;
        // A hanging connection must not keep the process alive.
        let _ = tokio::time::timeout(Duration::from_secs(2), app.core.db.close()).await;
    };
    tokio::select! {
        () = ending => tracing::info!("shutdown completed"),
        signalled = shutdown::signalled() => {
            signalled?;
            tracing::warn!("second signal received; stopped without draining");
        }
    }
    Ok(())
}

/// Listen backlog: connections that the kernel holds until they are accepted, up to `net.core.somaxconn`. The usual 128
/// overflows when a load balancer opens its connections or when clients reconnect after a restart. A client whose
/// connection does not fit believes that it is connected, and waits for a response that never comes.
const BACKLOG: u32 = 4_096;

fn listen(address: std::net::SocketAddr, setting: &str) -> anyhow::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let listening = socket.and_then(|socket| {
        // A restarted process can bind without waiting for the previous process's connections to leave TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    });
    listening.with_context(|| format!("{setting}: cannot listen on {address}"))
}

/// Whether a process could check its database.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DatabaseCheck {
    Passed,
    Unavailable,
}

/// Checks schema, privileges, pooler, durability and lock table before a long-running process starts. The checks run
/// concurrently, so an unavailable database costs one timeout, not five.
async fn check_database(app: &App) -> anyhow::Result<DatabaseCheck> {
    let (schema, rights, pooler, (), ()) = tokio::join!(
        check_schema(app),
        check_rights(app),
        check_pooler(app),
        check_durability(app),
        check_lock_table(app)
    );
    let passed = [schema?, rights?, pooler?].iter().all(|check| *check == DatabaseCheck::Passed);
    Ok(if passed { DatabaseCheck::Passed } else { DatabaseCheck::Unavailable })
}

/// Repeats the checks until the database is available, for a process that started without it. Returns an error if a
/// check would have prevented the start, and never resolves otherwise.
async fn check_when_back(app: &App) -> anyhow::Result<()> {
    while check_database(app).await? == DatabaseCheck::Unavailable {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    std::future::pending().await
}

/// Warns if the database role can modify append-only tables; outside development, refuses to start. With these
/// privileges, a bug or an intruder could rewrite the ledger. One-shot commands are not checked.
async fn check_rights(app: &App) -> anyhow::Result<DatabaseCheck> {
    let ExcessPrivileges { role, tables } = match database::excess(&app.core.db).await {
        Ok(None) => return Ok(DatabaseCheck::Passed),
        Ok(Some(excess)) => excess,
        Err(error) => {
            tracing::debug!(%error, "database privilege check failed; retried later");
            return Ok(DatabaseCheck::Unavailable);
        }
    };
    let tables = tables.join(", ");
    if app.config.env.is_development() {
        tracing::warn!(
            role,
            tables,
            "database.url has a role that can modify append-only tables; \
             connect as a member of matchday_app that owns no tables"
        );
        return Ok(DatabaseCheck::Passed);
    }
    bail!(
        "database.url: the role \"{role}\" can modify the append-only tables {tables}; connect as a member of \
         matchday_app that owns no tables, and migrate with database.owner_url"
    )
}

/// Refuses to start if a pooler shares connections, but does not set what the process cannot set on them.
async fn check_pooler(app: &App) -> anyhow::Result<DatabaseCheck> {
    match database::missing_pooler_settings(&app.core.db, app.core.writer_settings).await {
        Ok(missing) if missing.is_empty() => Ok(DatabaseCheck::Passed),
        Ok(missing) => bail!(
            "database.transaction_pooling: the connections of the pooler lack {}; set connect_query as in \
             deploy/pgbouncer/pgbouncer.ini",
            missing.join(", ")
        ),
        Err(error) => {
            tracing::debug!(%error, "check of the pooler's settings failed; retried later");
            Ok(DatabaseCheck::Unavailable)
        }
    }
}

/// Warns about a role or database whose sessions would lose acknowledged commits in a crash. The process overrides the
/// setting for its connections; other tools that connect as the same role do not.
async fn check_durability(app: &App) {
    match database::is_durable_by_default(&app.core.db).await {
        Ok(true) => {}
        Ok(false) => tracing::warn!(
            "synchronous_commit is off for the role or the database of database.url; this process overrides it, but \
             other clients can lose commits in a crash: turn it on for the role and the database"
        ),
        Err(error) => tracing::debug!(%error, "synchronous_commit check failed"),
    }
}

/// Warns about a lock table that many concurrent sessions could exhaust. PostgreSQL then refuses statements of all sessions.
async fn check_lock_table(app: &App) {
    match partitions::too_few_locks(&app.core.db).await {
        Ok(None) => {}
        Ok(Some(TooFewLocks { setting, needed })) => tracing::warn!(
            setting,
            needed,
            "max_locks_per_transaction of PostgreSQL is too low for the partitions of predictions; raise it and restart \
             PostgreSQL"
        ),
        Err(error) => tracing::debug!(%error, "lock table check failed"),
    }
}

/// Refuses to start with a schema or role on which queries cannot work. A process whose database is unavailable starts
/// and reports that it is not ready.
async fn check_schema(app: &App) -> anyhow::Result<DatabaseCheck> {
    match database::schema(&app.core.db).await {
        Ok(Schema::Current) => Ok(DatabaseCheck::Passed),
        Ok(Schema::Behind(missing)) => {
            bail!("the database lacks {}: run `matchday migrate` first", counted(missing, "migration"))
        }
        Ok(Schema::Closed(role)) => bail!(
            "database.url: the role \"{role}\" cannot read the tables: run `matchday migrate`; if that was done, run \
             `grant matchday_app to \"{role}\"` as the owner of the database"
        ),
        Err(error) => {
            // A one-shot command fails at its first statement; in a long-running process the dependency checks log the
            // outage.
            tracing::debug!(%error, "database schema check failed");
            Ok(DatabaseCheck::Unavailable)
        }
    }
}

async fn migrate(config: &Config, direction: &Direction) -> anyhow::Result<()> {
    let pool = database::migration_pool(&config.database)?;
    let missing = |schema| if let Schema::Behind(missing) = schema { missing } else { 0 };
    match direction {
        Direction::Up => {
            let applied = database::migrate(&config.database, &MIGRATIONS).await?;
            // A database that was restored from a backup, or at rest for long, may lack the next ones.
            partitions::add(&pool).await?;
            print(&format!("applied {}", counted(applied, "migration")))
        }
        Direction::Down { all } => {
            let mut versions: Vec<i64> = MIGRATIONS.iter().map(|migration| migration.version).collect();
            versions.dedup();
            // Target: the migration before the newest applied one.
            let newest = versions.len().saturating_sub(missing(database::schema(&pool).await?));
            let target = if *all { 0 } else { newest.checked_sub(2).map_or(0, |before| versions[before]) };
            database::undo(&config.database, &MIGRATIONS, target).await?;
            print(&format!("the database is at migration {target}"))
        }
        Direction::Status => match database::schema(&pool).await? {
            Schema::Current => print("the database is up to date"),
            Schema::Behind(missing) => bail!("the database lacks {}", counted(missing, "migration")),
            Schema::Closed(role) => bail!("the role \"{role}\" cannot read the tables: is it their owner?"),
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
    app.wake_relay().await;
    bar.finish_and_clear();
    let report = report.map_err(|error| match error {
        ImportError::Conflict(faults) => refusal(&faults),
        other => other.into(),
    })?;
    print(&summary(&report, dry_run))?;
    match report.tournament_id {
        Some(tournament) if !dry_run => rooms_of(&app, tournament, wait).await,
        _ => Ok(()),
    }
}

/// Waits until workers have created the rooms of a tournament's matches. Gives up after 15 seconds without progress.
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
        return print(&format!("  chat: {} created", counted(made, "room")));
    }
    let condition = if wait { " once the homeserver responds" } else { "" };
    print(&format!(
        "  chat: {} created, {} queued; `matchday serve` or `matchday worker` creates them{condition}",
        counted(made, "room"),
        counted(queued, "room"),
    ))
}

async fn restrict(config: Config, command: UsersCommand) -> anyhow::Result<()> {
    let (restriction, arguments, length, done, already) = match command {
        UsersCommand::Show(arguments) => return users::show(config, arguments).await,
        UsersCommand::Ban(TimedArguments { of, length }) => (Restriction::Ban, of, length, "banned", "already banned"),
        UsersCommand::Unban(of) => (Restriction::Unban, of, None, "no longer banned", "not banned"),
        UsersCommand::Mute(TimedArguments { of, length }) => (Restriction::Mute, of, length, "muted", "already muted"),
        UsersCommand::Unmute(of) => (Restriction::Unmute, of, None, "no longer muted", "not muted"),
    };
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let named = &arguments.user;
    let user = app.moderation.user(named).await.with_context(|| named.clone())?;
    let operator = Operator::new(&arguments.operator, &arguments.reason);
    match app.moderation.restrict_for(user, restriction, length, &operator).await {
        Err(ModerationError::Unchanged) => bail!("{named} (user {user}) is {already}"),
        outcome => outcome?,
    }
    app.wake_relay().await;
    let time = length.map(|length| format!(" for {}", length.show())).unwrap_or_default();
    print(&format!("{named} (user {user}) is {done}{time}; workers apply it on the homeserver"))
}

/// Replaces control characters. User-written text must not move the cursor of an operator's terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

async fn memberships(config: Config, command: MembershipsCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    if app.config.matrix.homeserver_url.is_none() {
        bail!("chat is not configured: matrix.homeserver_url is not set");
    }
    match command {
        MembershipsCommand::Compare(by) => {
            app.membership_sync.request_comparison_by(&by.operator()).await?;
            print("comparison of all rooms scheduled; `matchday memberships status` shows its progress")
        }
        MembershipsCommand::Status => {
            let status = app.membership_sync.status().await?;
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
            for event in app.membership_sync.set_aside(20).await? {
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

fn summary(report: &Report, dry_run: bool) -> String {
    const SHOWN: usize = 20;
    let line = |kind: &str, Counts { new, changed, unchanged }: Counts| {
        format!("  {kind}: {new} new, {changed} changed, {unchanged} unchanged")
    };
    let heading = if dry_run { "would be imported; nothing was written" } else { "imported" };
    let mut lines = vec![
        format!("{}: {heading}", report.tournament),
        line("teams", report.teams),
        line("matches", report.matches),
        format!("  results: {} new or corrected", report.results),
    ];
    if report.rule_sets > 0 {
        lines.push(format!("  rule sets: {} new", report.rule_sets));
    }
    if report.questions != Counts::default() || report.resolutions > 0 {
        lines.push(line("questions", report.questions));
        lines.push(format!("  resolutions: {} new or corrected", report.resolutions));
    }
    if dry_run && report.rooms > 0 {
        lines.push(format!("  chat: {} to create", counted(report.rooms, "room")));
    }
    lines.extend(report.changes.iter().take(SHOWN).map(|change| format!("    {change}")));
    if report.changes.len() > SHOWN {
        lines.push(format!("    and {} more", report.changes.len() - SHOWN));
    }
    lines.join("\n")
}

/// Shows a progress bar if standard error is a terminal.
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
        bail!("this command requires MATCHDAY_ENV local or testing; elsewhere, users get a token by logging in");
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
        bail!("{prefix} is not limited: `matchday sms closed` lists the limited prefixes");
    }
    print(&format!("limit of {prefix} lifted"))
}

fn counted(number: usize, thing: &str) -> String {
    let plural = if thing.ends_with("ch") { "es" } else { "s" };
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}{plural}") }
}
