//! Looking, for operators. Every look is bounded in time and in rows, and sees one state of the database; only a few are
//! under way at once. What operators do is done by the services of the features.

use std::sync::Arc;

use platform::{Core, clock::Clock, database, settings::CodeKey};
use scoring::Outcome;
use sqlx::{PgPool, Postgres, Transaction};
use time::{Duration, OffsetDateTime};
use tokio::sync::Semaphore;
use web::ids::{MatchId, UserId};

pub use super::store::{
    Backlog, CoinsEffect, CountryRow, Effect, MatchFilter, MatchRow, Moved, ProviderRow, ReportRow, ResultRow, RoomRow,
    Tally, TournamentRow, TransactionRow, UserRow,
};
use super::{
    identity::Verifier,
    rules::FormKey,
    settings::Settings,
    store::{self, Frame},
};
use crate::{
    catalogue::fixtures::service::Correction,
    identity::{
        operators::{self, Operator, service::Deed},
        phone::Phone,
    },
};

/// How many pages are written at once in this process. Each takes one connection to the database.
const AT_ONCE: usize = 3;

/// How many rows a list has.
pub(super) const PAGE: i64 = 25;

/// The console.
#[derive(Clone)]
pub struct Console {
    db: PgPool,
    clock: Arc<dyn Clock>,
    per_point: i64,
    pub(super) places: Arc<Semaphore>,
    pub(super) key: FormKey,
    pub(super) verifier: Arc<Verifier>,
}

/// What waits in the database for somebody.
pub struct Waiting {
    /// Messages that the relay has not published.
    pub outbox: Backlog,
    /// Reports that nobody has looked at.
    pub reports: i64,
}

/// Rows of a list, and whether there are more.
pub struct Listed<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Whether there are more after them.
    pub has_more: bool,
}

impl<T> Listed<T> {
    /// One more than a page was asked for.
    fn cut(mut rows: Vec<T>) -> Self {
        let most = usize::try_from(PAGE).unwrap_or(usize::MAX);
        let has_more = rows.len() > most;
        rows.truncate(most);
        Self { rows, has_more }
    }
}

/// Selection of reports.
#[derive(Clone, Debug, Default)]
pub struct ReportFilter {
    /// Closed ones instead of open ones.
    pub is_closed: bool,
    /// `#` and an id, or a text in the message, the reason, the resolution, or the names of sender and reporter.
    pub text: Option<String>,
    /// Number of the page, from 0.
    pub page: i64,
}

/// All of a match that an operator wants to see.
pub struct MatchView {
    /// The match.
    pub row: MatchRow,
    /// Its results, the newest first.
    pub results: Vec<ResultRow>,
    /// What was predicted.
    pub tally: Tally,
    /// Its rooms.
    pub rooms: Vec<RoomRow>,
    /// The feeds that its tournament comes from.
    pub feeds: Vec<String>,
    /// How many of how many chunks have its latest result.
    pub chunks: (i64, i64),
}

/// What a correction would do.
pub struct Preview {
    /// Whether its result is another one, so that scores change.
    pub changes_result: bool,
    /// To points.
    pub effect: Effect,
    /// To coins, if points are worth any.
    pub coins: Option<CoinsPreview>,
    /// Who gains most, and who loses most.
    pub gainers: Vec<Moved>,
    /// Who loses most.
    pub losers: Vec<Moved>,
}

/// What a correction would do to coins.
pub struct CoinsPreview {
    /// What it would do if nobody had spent any.
    pub at_most: i64,
    /// What it would do to the wallets as they are; nothing where that took too long.
    pub exactly: Option<CoinsEffect>,
}

/// All of a user that an operator wants to see.
pub struct UserView {
    /// The account.
    pub row: UserRow,
    /// How many sessions they have, and when one was last used.
    pub sessions: (i64, Option<OffsetDateTime>),
    /// Chat rooms that the user has joined.
    pub rooms: i64,
    /// How many coins.
    pub balance: i64,
    /// What moved last.
    pub transactions: Vec<TransactionRow>,
    /// Points, exact scores, right outcomes and settled matches, of all time.
    pub score: Option<(i32, i32, i32, i32)>,
    /// What operators did: action, reason, operator, when.
    pub restrictions: Vec<(String, String, String, OffsetDateTime)>,
    /// What others reported of them.
    pub about: Vec<ReportRow>,
    /// What they reported.
    pub by: Vec<ReportRow>,
}

/// What is known of codes.
pub struct SmsView {
    /// By country.
    pub countries: Vec<CountryRow>,
    /// By provider.
    pub providers: Vec<ProviderRow>,
}

impl Console {
    /// The console of this database.
    pub fn new(core: &Core, settings: &Settings, form_keys: &[CodeKey], per_point: u32) -> reqwest::Result<Self> {
        let Core { db, clock, .. } = core.clone();
        let verifier = Arc::new(Verifier::new(core.env, settings)?);
        // There is a key: settings without one were refused.
        let key = FormKey::new(form_keys.first().map_or("", |key| key.expose()));
        Ok(Self { db, clock, per_point: per_point.into(), places: Arc::new(Semaphore::new(AT_ONCE)), key, verifier })
    }

    /// Fails if the settings name a file of signing keys that cannot be read.
    pub async fn check(&self) -> anyhow::Result<()> {
        self.verifier.check().await
    }

    async fn look(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        store::begin_to_look(&self.db).await
    }

    /// What waits for somebody.
    pub async fn waiting(&self) -> sqlx::Result<Waiting> {
        let mut tx = self.look().await?;
        Ok(Waiting { outbox: store::outbox(&mut tx).await?, reports: store::count_open_reports(&mut tx).await? })
    }

    /// What waits in the outbox, by subject: how many and since when.
    pub async fn outbox(&self) -> sqlx::Result<Vec<(String, i64, Option<OffsetDateTime>)>> {
        store::outbox_by_subject(&mut *self.look().await?).await
    }

    /// Matches, by when they start.
    pub async fn matches(&self, filter: &MatchFilter) -> sqlx::Result<(Listed<MatchRow>, Vec<TournamentRow>)> {
        let mut tx = self.look().await?;
        let rows = store::matches(&mut tx, filter, PAGE + 1).await?;
        Ok((Listed::cut(rows), store::tournaments(&mut tx).await?))
    }

    /// A match.
    pub async fn find_match(&self, event: MatchId) -> sqlx::Result<Option<MatchView>> {
        let mut tx = self.look().await?;
        let Some(row) = store::find_match(&mut tx, event).await? else { return Ok(None) };
        Ok(Some(MatchView {
            results: store::results(&mut tx, event).await?,
            tally: store::tally(&mut tx, event).await?,
            rooms: store::rooms(&mut tx, event).await?,
            feeds: store::feeds_of(&mut tx, row.tournament_id).await?,
            chunks: store::chunks(&mut tx, event, row.result_revision).await?,
            row,
        }))
    }

    /// Works out what a correction would do, by the rules that scores and coins follow, and does nothing.
    pub async fn preview(&self, event: MatchId, wanted: Correction) -> sqlx::Result<Option<Preview>> {
        let mut tx = store::begin_to_count(&self.db).await?;
        let Some(frame) = store::frame(&mut tx, event).await? else { return Ok(None) };
        let after = wanted.status().outcome(wanted.scores());
        // As imports decide it: another outcome is another result.
        let changes_result = frame.outcome() != after;
        let mut preview =
            Preview { changes_result, effect: Effect::default(), coins: None, gainers: Vec::new(), losers: Vec::new() };
        if !changes_result {
            return Ok(Some(preview));
        }
        let after = match after {
            Outcome::Result { home, away } => Some((home, away)),
            Outcome::Open | Outcome::Void => None,
        };
        (preview.effect, preview.gainers, preview.losers) = store::effect(&mut tx, event, &frame, after).await?;
        drop(tx);
        preview.coins = self.coins_effect(event, &frame, after, preview.effect.worth).await?;
        Ok(Some(preview))
    }

    /// In a look of its own: it asks for every user's wallet, and if that takes too long all else is still told.
    async fn coins_effect(
        &self,
        event: MatchId,
        frame: &Frame,
        after: Option<(i32, i32)>,
        worth: i64,
    ) -> sqlx::Result<Option<CoinsPreview>> {
        // The first result with points fixes the rate.
        let rate = frame.rate.unwrap_or(if after.is_some() { self.per_point } else { 0 });
        if rate == 0 {
            return Ok(None);
        }
        let mut tx = store::begin_to_pay(&self.db).await?;
        let exactly = match store::coins_effect(&mut tx, event, frame, after, rate).await {
            Ok(effect) => Some(effect),
            Err(error) if database::is_passing(&error) => {
                tracing::warn!(%error, "what a correction does to wallets was not worked out");
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Some(CoinsPreview { at_most: worth.saturating_mul(rate), exactly }))
    }

    /// The users with the greatest ids below one.
    pub async fn newest_users(&self, below: Option<i64>) -> sqlx::Result<Listed<UserRow>> {
        Ok(Listed::cut(store::newest_users(&mut *self.look().await?, below, PAGE + 1).await?))
    }

    /// Whose phone that is.
    pub async fn user_of_phone(&self, phone: &Phone) -> sqlx::Result<Option<UserId>> {
        store::user_of_phone(&mut *self.look().await?, phone).await
    }

    /// Who is meant: by id, or by what a name begins with.
    pub async fn search_users(&self, text: &str) -> sqlx::Result<Listed<UserRow>> {
        let mut tx = self.look().await?;
        let name = text.to_lowercase();
        let mut rows = store::users_named_from(&mut tx, &name, PAGE + 1).await?;
        if let Ok(id) = text.parse::<UserId>() {
            rows.extend(store::users_by_id(&mut tx, id).await?);
        }
        Ok(Listed::cut(rows))
    }

    /// A user. `chat_name` is what the homeserver calls somebody of a name.
    pub async fn find_user(
        &self,
        user: UserId,
        chat_name: impl Fn(&str) -> Option<String>,
    ) -> sqlx::Result<Option<UserView>> {
        let mut tx = self.look().await?;
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
                Some(sender) => store::reports_about(&mut tx, &sender).await?,
                None => Vec::new(),
            },
            by: store::reports_by(&mut tx, user).await?,
            row,
        }))
    }

    /// Returns a user's whole phone number, and records which operator read it and why.
    pub async fn reveal_phone(&self, user: UserId, operator: &Operator) -> sqlx::Result<Option<Phone>> {
        let mut tx = self.db.begin().await?;
        let phone = store::users_by_id(&mut tx, user).await?.pop().and_then(|row| row.phone);
        let deed = Deed::new("user.phone", format!("user:{user}"));
        operators::service::record(&mut tx, operator, &deed, self.clock.now()).await?;
        tx.commit().await?;
        Ok(phone)
    }

    /// Open reports, the oldest first; or closed ones, the last closed first. `server` is what stands behind the colon of our
    /// users' chat names.
    pub async fn reports(&self, server: &str, filter: &ReportFilter) -> sqlx::Result<Listed<ReportRow>> {
        let offset = filter.page.saturating_mul(PAGE);
        let text = filter.text.as_ref().map(|text| text.to_lowercase());
        let mut tx = self.look().await?;
        let rows = if filter.is_closed {
            store::closed_reports(&mut tx, server, text.as_deref(), PAGE + 1, offset).await?
        } else {
            store::open_reports(&mut tx, server, text.as_deref(), PAGE + 1, offset).await?
        };
        Ok(Listed::cut(rows))
    }

    /// A report that is open, with who sent what it is about.
    pub async fn open_report(&self, server: &str, id: i64) -> sqlx::Result<Option<ReportRow>> {
        store::open_report(&mut *self.look().await?, server, id).await
    }

    /// What became of codes in the last hour and day.
    pub async fn sms(&self) -> sqlx::Result<SmsView> {
        let now = self.clock.now();
        let (hour, day) = (now - Duration::HOUR, now - Duration::DAY);
        let mut tx = self.look().await?;
        Ok(SmsView {
            countries: store::countries(&mut tx, hour, day).await?,
            providers: store::providers(&mut tx, hour, day).await?,
        })
    }
}
