//! Read models for operators. Every query is limited in time and rows and reads one database snapshot, and only a few
//! run at the same time. The services of the features perform the operators' actions.

use std::{collections::HashMap, sync::Arc};

use platform::{
    Core,
    clock::Clock,
    database,
    reads::{Caller, Reader, Reads},
    settings::CodeKey,
};
use scoring::Outcome;
use sqlx::PgPool;
use time::{Duration, OffsetDateTime};
use tokio::sync::Semaphore;
use web::ids::{MatchId, RuleSetId, TournamentId, UserId};

pub use super::store::{
    Backlog, CoinsEffect, CountryRow, Effect, Leader, MatchFilter, MatchRow, Moved, ProviderRow, ResultRow, RoomRow,
    RuleSetEffect, Tally, TournamentRow, TransactionRow, UserRow,
    reports::{ReportRow, Sender},
};
use super::{
    identity::Verifier,
    rules::FormKey,
    settings::Settings,
    store::{
        self, Frame, WantedResult,
        reports::{self, ReportQuery},
    },
};
use crate::{
    catalogue::{
        fixtures::service::Correction,
        rule_sets::{self, rules::StoredRuleSet},
    },
    identity::{
        operators::{self, Operator, service::Action},
        phone::Phone,
    },
};

/// Maximum number of pages that this process renders at the same time. Each uses one database connection.
const MAX_CONCURRENT: usize = 3;

/// All operators. After an action of one, the others see it too.
pub(crate) const CALLER: Caller = Caller::new("console", 0);

/// Number of rows on a page of a list.
pub(super) const PAGE: i64 = 25;

/// Queries and form keys of the console.
#[derive(Clone)]
pub struct Console {
    db: PgPool,
    reads: Reads,
    clock: Arc<dyn Clock>,
    per_point: i64,
    pub(super) permits: Arc<Semaphore>,
    pub(super) key: FormKey,
    pub(super) verifier: Arc<Verifier>,
}

/// A rule set and the number of matches that have it.
pub struct RuleSetUse {
    pub rule_set: StoredRuleSet,
    pub matches: i64,
    /// Number of these matches that have not started.
    pub open: i64,
}

/// A rule set, and its effect on a tournament if one was chosen.
pub struct RuleSetView {
    pub rule_set: StoredRuleSet,
    pub effect: Option<RuleSetEffect>,
}

/// Counts for the overview.
pub struct Waiting {
    /// Messages that the relay has not published yet.
    pub outbox: Backlog,
    /// Number of open reports.
    pub reports: i64,
}

/// A page of a list.
pub struct Listed<T> {
    pub rows: Vec<T>,
    pub has_more: bool,
}

impl<T> Listed<T> {
    /// Cuts the rows to one page. Queries read one row more than a page to detect whether there are more.
    fn cut(mut rows: Vec<T>) -> Self {
        let most = usize::try_from(PAGE).unwrap_or(usize::MAX);
        let has_more = rows.len() > most;
        rows.truncate(most);
        Self { rows, has_more }
    }
}

/// Part of the queue that a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReportState {
    #[default]
    Open,
    /// Open reports that this operator has claimed.
    ClaimedBy(String),
    Closed,
}

#[derive(Clone, Debug, Default)]
pub struct ReportFilter {
    pub state: ReportState,
    /// `#` and an id, or a text in the message, the reason, the note, the answer, the room, or the name of the sender
    /// or reporter.
    pub text: Option<String>,
    /// Earliest time of the report, inclusive.
    pub from: Option<OffsetDateTime>,
    /// Latest time of the report, exclusive.
    pub until: Option<OffsetDateTime>,
    /// Page number, starting at 0.
    pub page: i64,
}

/// A page of reports.
pub struct ReportsView {
    pub listed: Listed<ReportRow>,
    /// Accounts of the senders who have one, by Matrix id.
    pub senders: HashMap<String, Sender>,
}

/// Data for the page of a report.
pub struct ReportView {
    pub row: ReportRow,
    pub sender: Option<Sender>,
    /// Other reports about the sender, newest first.
    pub about: Vec<ReportRow>,
    /// Restrictions of the sender: action, reason, operator, time.
    pub restrictions: Vec<(String, String, String, OffsetDateTime)>,
    /// Number of other open reports of the same message.
    pub same_message: i64,
    /// Whether the message was removed.
    pub is_removed: bool,
}

/// Data for the page of a match.
pub struct MatchView {
    pub row: MatchRow,
    /// Results of the match, newest first.
    pub results: Vec<ResultRow>,
    pub tally: Tally,
    pub rooms: Vec<RoomRow>,
    /// Feeds that provide the tournament.
    pub feeds: Vec<String>,
    /// Chunks with the latest result applied, and all chunks.
    pub chunks: (i64, i64),
}

/// Effect of a correction.
pub struct Preview {
    /// Whether the correction changes the result and therefore the scores.
    pub changes_result: bool,
    pub effect: Effect,
    /// Effect on coins, if points are worth any.
    pub coins: Option<CoinsPreview>,
    /// Users who lead the tournament before or after the correction; `None` if the query took too long.
    pub leaders: Option<Vec<Leader>>,
    /// Users who gain most.
    pub gainers: Vec<Moved>,
    /// Users who lose most.
    pub losers: Vec<Moved>,
}

/// Effect of a correction on coins.
pub struct CoinsPreview {
    /// Change in coins if no user had spent any.
    pub at_most: i64,
    /// Effect on the current wallets; `None` if the query took too long.
    pub exactly: Option<CoinsEffect>,
}

/// Data for the page of a user.
pub struct UserView {
    pub row: UserRow,
    /// Number of sessions and the time of the last use.
    pub sessions: (i64, Option<OffsetDateTime>),
    /// Number of joined chat rooms.
    pub rooms: i64,
    pub balance: i64,
    pub transactions: Vec<TransactionRow>,
    /// Points, exact scores, right outcomes and settled matches of all time.
    pub score: Option<(i32, i32, i32, i32)>,
    /// Restrictions by operators: action, reason, operator, time.
    pub restrictions: Vec<(String, String, String, OffsetDateTime)>,
    /// Reports about the user.
    pub about: Vec<ReportRow>,
    /// Reports by the user.
    pub by: Vec<ReportRow>,
}

/// Data for the SMS page.
pub struct SmsView {
    pub countries: Vec<CountryRow>,
    pub providers: Vec<ProviderRow>,
}

/// Returns `None` if an optional part of a preview took too long.
fn in_time<T>(computed: sqlx::Result<T>, part: &str) -> sqlx::Result<Option<T>> {
    match computed {
        Ok(computed) => Ok(Some(computed)),
        Err(error) if database::is_transient(&error) => {
            tracing::warn!(%error, part, "part of the effect of a correction could not be computed");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl Console {
    pub fn new(core: &Core, settings: &Settings, form_keys: &[CodeKey], per_point: u32) -> reqwest::Result<Self> {
        let Core { db, reads, clock, .. } = core.clone();
        let verifier = Arc::new(Verifier::new(core.env, settings)?);
        // Loading the settings refused an empty list, so there is a key.
        let key = FormKey::new(form_keys.first().map_or("", |key| key.expose()));
        Ok(Self {
            db,
            reads,
            clock,
            per_point: per_point.into(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            key,
            verifier,
        })
    }

    /// Fails if the settings name a key file that cannot be read.
    pub async fn check(&self) -> anyhow::Result<()> {
        self.verifier.check().await
    }

    /// Databases for pages. Reads that decide about an action use the primary.
    async fn reader(&self) -> Reader {
        self.reads.reader(CALLER).await
    }

    /// Counts unpublished messages and open reports.
    pub async fn waiting(&self) -> sqlx::Result<Waiting> {
        let read = async |db: PgPool| {
            let mut tx = store::begin_read(&db).await?;
            Ok(Waiting { outbox: store::outbox(&mut tx).await?, reports: reports::count_open(&mut tx).await? })
        };
        self.reader().await.read(read).await
    }

    /// Unpublished messages by subject: count and time of the oldest.
    pub async fn outbox(&self) -> sqlx::Result<Vec<(String, i64, Option<OffsetDateTime>)>> {
        let read = async |db: PgPool| store::outbox_by_subject(&mut *store::begin_read(&db).await?).await;
        self.reader().await.read(read).await
    }

    /// Returns all tournaments.
    pub async fn tournaments(&self) -> sqlx::Result<Vec<TournamentRow>> {
        store::tournaments(&mut *self.db.acquire().await?).await
    }

    /// Lists matches by start time, with the tournaments to filter by.
    pub async fn matches(&self, filter: &MatchFilter) -> sqlx::Result<(Listed<MatchRow>, Vec<TournamentRow>)> {
        let read = async |db: PgPool| {
            let mut tx = store::begin_read(&db).await?;
            let rows = store::matches(&mut tx, filter, PAGE + 1).await?;
            Ok((Listed::cut(rows), store::tournaments(&mut tx).await?))
        };
        self.reader().await.read(read).await
    }

    pub async fn find_match(&self, event: MatchId) -> sqlx::Result<Option<MatchView>> {
        let read = async |db: PgPool| {
            let mut tx = store::begin_read(&db).await?;
            let Some(row) = store::find_match(&mut tx, event).await? else { return Ok(None) };
            Ok(Some(MatchView {
                results: store::results(&mut tx, event).await?,
                tally: store::tally(&mut tx, event).await?,
                rooms: store::rooms(&mut tx, event).await?,
                feeds: store::feeds_of(&mut tx, row.tournament_id).await?,
                chunks: store::chunks(&mut tx, event, row.result_revision).await?,
                row,
            }))
        };
        self.reader().await.read(read).await
    }

    pub async fn rule_sets(&self) -> sqlx::Result<Vec<RuleSetUse>> {
        let read = async |db: PgPool| {
            let mut tx = store::begin_read(&db).await?;
            let uses = store::rule_set_uses(&mut tx).await?;
            let rule_sets = rule_sets::service::all(&mut *tx).await?;
            let count =
                |id| uses.iter().find(|(used, ..)| *used == id).map_or((0, 0), |&(_, matches, open)| (matches, open));
            let with_count = |rule_set: StoredRuleSet| {
                let (matches, open) = count(rule_set.id);
                RuleSetUse { rule_set, matches, open }
            };
            Ok(rule_sets.into_iter().map(with_count).collect())
        };
        self.reader().await.read(read).await
    }

    /// Returns a rule set with all tournaments, and its effect on one of them. The effect is missing if it takes too long
    /// to compute.
    pub async fn find_rule_set(
        &self,
        id: RuleSetId,
        tournament: Option<TournamentId>,
    ) -> sqlx::Result<Option<(RuleSetView, Vec<TournamentRow>)>> {
        let read = async |db: PgPool| {
            let mut tx = store::begin_read(&db).await?;
            let rule_set = rule_sets::service::all(&mut *tx).await?.into_iter().find(|rule_set| rule_set.id == id);
            Ok((rule_set, store::tournaments(&mut tx).await?))
        };
        let (rule_set, tournaments) = self.reader().await.read(read).await?;
        let Some(rule_set) = rule_set else { return Ok(None) };
        let effect = match tournament {
            Some(tournament) => self.rule_set_effect(id, tournament).await?,
            None => None,
        };
        Ok(Some((RuleSetView { rule_set, effect }, tournaments)))
    }

    async fn rule_set_effect(&self, id: RuleSetId, tournament: TournamentId) -> sqlx::Result<Option<RuleSetEffect>> {
        let mut tx = store::begin_rule_set_effect(&self.db).await?;
        match store::rule_set_effect(&mut tx, id, tournament).await {
            Ok(effect) => Ok(Some(effect)),
            Err(error) if database::is_transient(&error) => {
                tracing::warn!(%error, "effect of a rule set could not be computed");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Computes the effect of a correction with the rules of scores and coins. Changes nothing.
    pub async fn preview(&self, event: MatchId, wanted: Correction) -> sqlx::Result<Option<Preview>> {
        let mut tx = store::begin_effect(&self.db).await?;
        let Some(frame) = store::frame(&mut tx, event).await? else { return Ok(None) };
        let after = wanted.status().outcome(wanted.scores(), wanted.advanced());
        // Imports decide the same way: a different outcome is a new result.
        let changes_result = frame.outcome() != after;
        let mut preview = Preview {
            changes_result,
            effect: Effect::default(),
            coins: None,
            leaders: None,
            gainers: Vec::new(),
            losers: Vec::new(),
        };
        if !changes_result {
            return Ok(Some(preview));
        }
        let after = match after {
            Outcome::Result { home, away, advanced } => Some(WantedResult { score: (home, away), advanced }),
            Outcome::Open | Outcome::Void => None,
        };
        (preview.effect, preview.gainers, preview.losers) = store::effect(&mut tx, event, &frame, after).await?;
        drop(tx);
        let mut tx = store::begin_optional(&self.db).await?;
        preview.leaders = in_time(store::leaders(&mut tx, event, &frame, after).await, "leaders")?;
        drop(tx);
        preview.coins = self.coins_effect(event, &frame, after, preview.effect.worth).await?;
        Ok(Some(preview))
    }

    /// Runs in a separate transaction: it reads every user's wallet, and if that takes too long, the rest of the
    /// preview is still shown.
    async fn coins_effect(
        &self,
        event: MatchId,
        frame: &Frame,
        after: Option<WantedResult>,
        worth: i64,
    ) -> sqlx::Result<Option<CoinsPreview>> {
        // The first result with points fixes the rate.
        let rate = frame.rate.unwrap_or(if after.is_some() { self.per_point } else { 0 });
        if rate == 0 {
            return Ok(None);
        }
        let mut tx = store::begin_optional(&self.db).await?;
        let exactly = in_time(store::coins_effect(&mut tx, event, frame, after, rate).await, "wallets")?;
        Ok(Some(CoinsPreview { at_most: worth.saturating_mul(rate), exactly }))
    }

    /// Lists the users with the greatest ids below `below`.
    pub async fn newest_users(&self, below: Option<i64>) -> sqlx::Result<Listed<UserRow>> {
        let read = async |db: PgPool| store::newest_users(&mut *store::begin_read(&db).await?, below, PAGE + 1).await;
        Ok(Listed::cut(self.reader().await.read(read).await?))
    }

    pub async fn user_of_phone(&self, phone: &Phone) -> sqlx::Result<Option<UserId>> {
        let read = async |db: PgPool| store::user_of_phone(&mut *store::begin_read(&db).await?, phone).await;
        self.reader().await.read(read).await
    }

    /// Finds users by id or by the start of a username.
    pub async fn search_users(&self, text: &str) -> sqlx::Result<Listed<UserRow>> {
        let read = async |db: PgPool| {
            let mut tx = store::begin_read(&db).await?;
            let name = text.to_lowercase();
            let mut rows = store::users_named_from(&mut tx, &name, PAGE + 1).await?;
            if let Ok(id) = text.parse::<UserId>() {
                rows.extend(store::users_by_id(&mut tx, id).await?);
            }
            Ok(Listed::cut(rows))
        };
        self.reader().await.read(read).await
    }

    /// Returns the data for the page of a user. `chat_name` maps a username to its Matrix id.
    pub async fn find_user(
        &self,
        user: UserId,
        chat_name: impl Fn(&str) -> Option<String> + Sync,
    ) -> sqlx::Result<Option<UserView>> {
        let read = async |db: PgPool| {
            let mut tx = store::begin_read(&db).await?;
            let Some(row) = store::users_by_id(&mut tx, user).await?.pop() else { return Ok(None) };
            let sender = chat_name(&row.username);
            Ok(Some(UserView {
                sessions: store::sessions(&mut tx, user, self.clock.now()).await?,
                rooms: store::joined_rooms(&mut tx, user).await?,
                balance: store::balance(&mut tx, user).await?,
                transactions: store::transactions(&mut tx, user).await?,
                score: store::score(&mut tx, user).await?,
                restrictions: store::restrictions(&mut tx, user).await?,
                about: match sender {
                    Some(sender) => reports::about(&mut tx, &sender).await?,
                    None => Vec::new(),
                },
                by: reports::by(&mut tx, user).await?,
                row,
            }))
        };
        self.reader().await.read(read).await
    }

    /// Returns a user's full phone number and records the operator and the reason.
    pub async fn reveal_phone(&self, user: UserId, operator: &Operator) -> sqlx::Result<Option<Phone>> {
        let mut tx = platform::database::begin(&self.db).await?;
        let phone = store::users_by_id(&mut tx, user).await?.pop().and_then(|row| row.phone);
        let action = Action::new("user.phone", format!("user:{user}"));
        operators::service::record(&mut tx, operator, &action, self.clock.now()).await?;
        tx.commit().await?;
        Ok(phone)
    }

    /// Lists open reports, oldest first, or closed reports, last closed first. `server` is the server name in the
    /// Matrix ids of the service's users.
    pub async fn reports(&self, server: &str, filter: &ReportFilter) -> sqlx::Result<ReportsView> {
        let text = filter.text.as_ref().map(|text| text.to_lowercase());
        let query = ReportQuery {
            text: text.as_deref(),
            claimed_by: match &filter.state {
                ReportState::ClaimedBy(operator) => Some(operator),
                ReportState::Open | ReportState::Closed => None,
            },
            from: filter.from,
            until: filter.until,
            now: self.clock.now(),
            most: PAGE + 1,
            offset: filter.page.saturating_mul(PAGE),
        };
        let read = async |db: PgPool| {
            let mut tx = store::begin_read(&db).await?;
            let rows = match filter.state {
                ReportState::Closed => reports::closed(&mut tx, &query).await?,
                ReportState::Open | ReportState::ClaimedBy(_) => reports::open(&mut tx, &query).await?,
            };
            let listed = Listed::cut(rows);
            let senders = reports::senders(&mut tx, server, &listed.rows).await?;
            Ok(ReportsView { listed, senders })
        };
        self.reader().await.read(read).await
    }

    pub async fn find_report(&self, server: &str, id: i64) -> sqlx::Result<Option<ReportView>> {
        report(&self.reader().await, server, id).await
    }

    /// Like [`Self::find_report`], for an action on the report.
    pub async fn find_report_to_act(&self, server: &str, id: i64) -> sqlx::Result<Option<ReportView>> {
        report(&self.reads.primary_reader(), server, id).await
    }

    /// Counts codes and messages of the last hour and day.
    pub async fn sms(&self) -> sqlx::Result<SmsView> {
        let now = self.clock.now();
        let (hour, day) = (now - Duration::HOUR, now - Duration::DAY);
        let read = async |db: PgPool| {
            let mut tx = store::begin_read(&db).await?;
            Ok(SmsView {
                countries: store::countries(&mut tx, hour, day).await?,
                providers: store::providers(&mut tx, hour, day).await?,
            })
        };
        self.reader().await.read(read).await
    }
}

async fn report(reader: &Reader, server: &str, id: i64) -> sqlx::Result<Option<ReportView>> {
    let read = async |db: PgPool| {
        let mut tx = store::begin_read(&db).await?;
        let Some(row) = reports::find(&mut tx, id).await? else { return Ok(None) };
        let sender = reports::senders(&mut tx, server, std::slice::from_ref(&row)).await?.into_values().next();
        let about = match &row.sender {
            Some(sender) => reports::about(&mut tx, sender).await?,
            None => Vec::new(),
        };
        let restrictions = match sender {
            Some(sender) => store::restrictions(&mut tx, sender.id).await?,
            None => Vec::new(),
        };
        let open = reports::count_open_of_message(&mut tx, &row.event_id).await?;
        Ok(Some(ReportView {
            sender,
            about: about.into_iter().filter(|report| report.id != id).collect(),
            restrictions,
            same_message: open - i64::from(row.closed_at.is_none()),
            is_removed: reports::is_removed(&mut tx, row.room_id.as_deref(), &row.event_id).await?,
            row,
        }))
    };
    reader.read(read).await
}
