//! Checks messages, and manages the patterns of operators.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use platform::{
    Core,
    clock::Clock,
    encryption::SecretCipher,
    outbox::{self, Message},
    random::Random,
    settings::CodeKey,
    stream::{Streams, next_wake},
};
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;
use web::ids::UserId;

use super::{
    classifier::Classifier,
    held::HeldText,
    message::ChatMessage,
    rules::{self, Action, Check, Forms, Hit, MOST_LETTERS, MOST_PATTERNS, Pattern, PatternRule, PatternSet, Repeats},
    settings::Settings,
    store::{self, FilterRow, NewRow, Version},
};
use crate::{
    chat::{
        accounts::{service::Chat, settings::Matrix},
        messages::{MUTE, Mute},
        planned_removals::{self, PlanError, PlannedRemoval, Removal, SERVICE, Source},
    },
    identity::operators::{self, Operator, service::Action as OperatorAction},
};

/// Interval at which processes look for changed patterns. They apply a change within five seconds, also without NATS.
const REFRESH: Duration = Duration::from_secs(3);
/// Time in which the messages of a push are checked. Ordinary messages are checked first and take a small part of it; only
/// long ones with slow patterns of operators should take longer. The homeserver sends its pushes in order, so a push that
/// takes too long would stop all later ones.
const CHECKED_WITHIN: Duration = Duration::from_secs(3);
/// Subject of the message after a pattern was added or removed.
const CHANGED: &str = "wake.filters";
/// Shortest and longest mute by a pattern.
const MUTES: std::ops::RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(24 * 365);

/// Filters for chat messages. Cheap to clone.
#[derive(Clone)]
pub struct Filters {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) db: PgPool,
    pub(super) chat: Chat,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    pub(super) cipher: SecretCipher,
    outbox_written: Arc<Notify>,
    streams: Streams,
    settings: Settings,
    /// Length of a mute, in seconds.
    mute_seconds: i32,
    /// Matrix id of the bot, whose messages are not checked.
    bot: String,
    pub(super) server_name: String,
    repeats: Repeats,
    classifier: Option<Classifier>,
    /// `None` until the patterns were read for the first time.
    patterns: RwLock<Option<Loaded>>,
    /// Held while patterns are read, so that an older read does not replace a newer one.
    refreshing: Mutex<()>,
    /// Held while the messages of a push are checked. A push that the homeserver repeats waits for the earlier check.
    checking: Arc<Mutex<()>>,
}

#[derive(Clone)]
struct Loaded {
    version: Version,
    patterns: Arc<PatternSet>,
}

/// A pattern of an operator.
#[derive(Clone, Debug)]
pub struct Filter {
    pub id: i64,
    pub pattern: String,
    /// The only room with this pattern, by the homeserver's id.
    pub matrix_room: Option<String>,
    pub action: Action,
    /// The sender is muted for this time.
    pub mute_seconds: Option<i32>,
    pub reason: String,
    pub created_by: String,
    pub created_at: OffsetDateTime,
}

/// A pattern to add.
#[derive(Clone, Debug)]
pub struct NewFilter {
    pub pattern: Pattern,
    /// The homeserver's id of the only room; `None` for all rooms.
    pub matrix_room: Option<String>,
    pub action: Action,
    /// Length of a mute; the setting `filters.mute_for` if there is none.
    pub mute_for: Option<Duration>,
}

/// Reason why a filter was not changed, or a message not checked.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    #[error("there are {MOST_PATTERNS} patterns: remove one first")]
    TooMany,
    #[error("the pattern is too large together with the others")]
    TooLarge,
    #[error("filter {0} does not exist: `matchday filters list` lists all")]
    NoSuchFilter(i64),
    #[error("the room does not exist, or is private and thus encrypted")]
    NoSuchRoom,
    /// The length of the mute is out of range.
    #[error("a mute must last from one minute to a year")]
    InvalidLength,
    /// No key is configured to encrypt held messages.
    #[error("webhooks.keys is not set: texts of held messages cannot be encrypted")]
    NoKey,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An outbox message could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

/// A pushed message that is removed.
#[derive(Debug)]
pub(crate) struct Judged {
    message: ChatMessage,
    hit: Hit,
    source: Source,
}

/// Result of the filters for the messages of a push.
#[derive(Default)]
pub(super) struct Checked {
    judged: Vec<Judged>,
    /// Messages for the classifier.
    unmatched: Vec<ChatMessage>,
    /// Number of messages that were not checked.
    pub(super) unchecked: u64,
}

impl Filters {
    pub fn new(
        core: &Core,
        streams: Streams,
        chat: Chat,
        matrix: &Matrix,
        settings: &Settings,
        keys: &[CodeKey],
    ) -> reqwest::Result<Self> {
        let Core { db, clock, random, outbox_written, .. } = core.clone();
        let mute_seconds = i32::try_from(settings.mute_for.as_secs()).unwrap_or(i32::MAX);
        let server_name = matrix.server_name.clone().unwrap_or_default();
        Ok(Self {
            inner: Arc::new(Inner {
                db,
                chat,
                cipher: SecretCipher::new(keys),
                outbox_written,
                streams,
                mute_seconds,
                bot: format!("@{}:{server_name}", matrix.bot),
                server_name,
                repeats: Repeats::default(),
                classifier: Classifier::new(core, settings, mute_seconds)?,
                settings: settings.clone(),
                patterns: RwLock::new(None),
                refreshing: Mutex::default(),
                checking: Arc::default(),
                clock,
                random,
            }),
        })
    }

    /// Checks a text that a user is about to send, in memory. Takes up to milliseconds for the worst text. `room` and
    /// `sender` are Matrix ids.
    pub fn check(&self, room: &str, sender: &str, text: &str) -> Option<Hit> {
        self.check_text(room, sender, &Forms::of(text, MOST_LETTERS), None)
    }

    fn check_text(&self, room: &str, sender: &str, forms: &Forms, event_id: Option<&str>) -> Option<Hit> {
        let inner = &*self.inner;
        let patterns = self.loaded().map(|loaded| loaded.patterns);
        let Settings { words, links, repeats, invitations, allowed_domains, repeats_allowed, .. } = &inner.settings;
        let is_on = |check: &Check| check.0.is_some();
        // First, because such a message is removed in any case, and would take the longest to search.
        let has_patterns = patterns.as_ref().is_some_and(|patterns| !patterns.is_empty());
        if forms.is_cut && (has_patterns || [words, invitations, links].into_iter().any(is_on)) {
            return Some(Hit { action: Action::Remove, reason: "length".to_owned(), mute_seconds: None });
        }
        if let Some(hit) = patterns.as_ref().and_then(|patterns| patterns.find(room, &forms.normalised)) {
            return Some(hit);
        }
        if is_on(words) && rules::has_listed_word(forms) {
            return self.built_in(*words, "words");
        }
        if is_on(invitations) && rules::has_invitation(forms) {
            return self.built_in(*invitations, "invitations");
        }
        if is_on(links) && rules::has_link(forms, allowed_domains) {
            return self.built_in(*links, "links");
        }
        let now = inner.clock.now();
        if is_on(repeats) && inner.repeats.exceeds(sender, forms, event_id, *repeats_allowed, now) {
            return self.built_in(*repeats, "repeats");
        }
        None
    }

    fn built_in(&self, check: Check, name: &str) -> Option<Hit> {
        let action = check.0?;
        let mute_seconds = (action == Action::Mute).then_some(self.inner.mute_seconds);
        Some(Hit { action, reason: name.to_owned(), mute_seconds })
    }

    /// Checks pushed messages, and asks the classifier about messages without a match. Returns the messages to remove.
    /// Counts no message twice that is pushed twice.
    pub(crate) async fn judge(&self, messages: Vec<ChatMessage>) -> sqlx::Result<Vec<Judged>> {
        let inner = &*self.inner;
        let messages: Vec<ChatMessage> = messages.into_iter().filter(|message| message.sender != inner.bot).collect();
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        self.load_first().await?;
        let total = messages.len() as u64;
        let turn = Arc::clone(&inner.checking).lock_owned().await;
        let filters = self.clone();
        let checking = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            filters.check_all(messages, CHECKED_WITHIN)
        });
        let checked = checking.await.map_err(|_| sqlx::Error::WorkerCrashed)?;
        let Checked { mut judged, mut unmatched, unchecked } = checked;
        if unchecked > 0 {
            tracing::error!(unchecked, "messages of a push were not checked by the filters within their time");
            metrics::counter!("matchday_filter_messages_total", "outcome" => "unchecked").increment(unchecked);
        }
        self.keep_unencrypted(&mut judged, &mut unmatched).await?;
        if let Some(classifier) = inner.classifier.as_ref().filter(|_| !unmatched.is_empty()) {
            let hits = classifier.judge(&unmatched.iter().collect::<Vec<_>>()).await;
            let found = unmatched.into_iter().zip(hits).filter_map(|(message, hit)| Some((message, hit?)));
            judged.extend(found.map(|(message, hit)| Judged { message, hit, source: Source::Classifier }));
        }
        for Judged { hit, .. } in &judged {
            metrics::counter!("matchday_filter_messages_total", "outcome" => outcome(hit.action)).increment(1);
        }
        let passed = total.saturating_sub(judged.len() as u64 + unchecked);
        metrics::counter!("matchday_filter_messages_total", "outcome" => "passed").increment(passed);
        Ok(judged)
    }

    /// Checks pushed messages on the caller's thread, the shortest first, so that long ones do not use up the time of ordinary
    /// ones. Messages that are left after `limit` are not checked, and a panic concerns one message: the homeserver repeats
    /// a push that fails, so one message could stop all others.
    pub(super) fn check_all(&self, mut messages: Vec<ChatMessage>, limit: Duration) -> Checked {
        let began = Instant::now();
        // A stable sort, so that equal messages are counted in the order in which they were sent.
        messages.sort_by_key(|message| message.texts().map(str::len).sum::<usize>());
        let mut all = Checked::default();
        for message in messages {
            if self.is_released(&message) {
                continue;
            }
            let check = || catch_unwind(AssertUnwindSafe(|| self.check_pushed(&message))).ok();
            let checked = if began.elapsed() < limit { check() } else { None };
            all.unchecked += u64::from(checked.is_none());
            match checked.flatten() {
                Some(hit) => all.judged.push(Judged { message, hit, source: Source::Filter }),
                None if self.inner.classifier.is_some() => all.unmatched.push(message),
                None => {}
            }
        }
        all
    }

    fn check_pushed(&self, message: &ChatMessage) -> Option<Hit> {
        let ChatMessage { matrix_room, sender, event_id, .. } = message;
        let mut left = MOST_LETTERS;
        message.texts().find_map(|text| {
            let forms = Forms::of(text, left);
            left -= forms.letters;
            self.check_text(matrix_room, sender, &forms, Some(event_id))
        })
    }

    /// Drops messages of encrypted and unknown rooms: the service, and the classifier, must not decide on them. A client
    /// may send an unencrypted message to an encrypted room.
    async fn keep_unencrypted(&self, judged: &mut Vec<Judged>, unmatched: &mut Vec<ChatMessage>) -> sqlx::Result<()> {
        if judged.is_empty() && unmatched.is_empty() {
            return Ok(());
        }
        let messages = judged.iter().map(|judged| &judged.message).chain(unmatched.iter());
        let mut rooms: Vec<&str> = messages.map(|message| message.matrix_room.as_str()).collect();
        rooms.sort_unstable();
        rooms.dedup();
        let unencrypted = store::unencrypted(&self.inner.db, &rooms).await?;
        judged.retain(|judged| unencrypted.contains(&judged.message.matrix_room));
        unmatched.retain(|message| unencrypted.contains(&message.matrix_room));
        Ok(())
    }

    /// Plans the removal of messages in the caller's transaction, which also stores their pushes. Keeps the texts of held
    /// ones. Returns the new removals.
    pub(crate) async fn plan_in(
        &self,
        connection: &mut PgConnection,
        judged: &[Judged],
    ) -> Result<Vec<PlannedRemoval>, PlanError> {
        let now = self.inner.clock.now();
        let removals: Vec<Removal> = judged
            .iter()
            .map(|Judged { message, hit, source }| Removal {
                matrix_room: message.matrix_room.clone(),
                event_id: message.event_id.clone(),
                sender: message.sender.clone(),
                source: *source,
                removed_by: SERVICE.to_owned(),
                reason: hit.reason.clone(),
                mute_seconds: hit.mute_seconds,
            })
            .collect();
        let planned = planned_removals::plan_in(connection, &removals, now).await?;
        for Judged { message, hit, .. } in judged.iter().filter(|judged| judged.hit.action == Action::Hold) {
            let ChatMessage { matrix_room, sender, event_id, body, others, .. } = message;
            let text = HeldText { body: body.clone(), others: others.clone() };
            self.hold_in(connection, matrix_room, sender, Some(event_id), &hit.reason, &text).await?;
        }
        Ok(planned)
    }

    /// Checks a message before it is sent. A match is refused, whatever its action; the sender is muted, or the text held,
    /// as the filter says.
    pub(crate) async fn check_before_sending(
        &self,
        room: &str,
        user: UserId,
        username: &str,
        text: &str,
    ) -> Result<Option<Hit>, FilterError> {
        let inner = &*self.inner;
        self.load_first().await?;
        let sender = format!("@{username}:{}", inner.server_name);
        let (filters, to, from, body) = (self.clone(), room.to_owned(), sender.clone(), text.to_owned());
        let checking = tokio::task::spawn_blocking(move || filters.check(&to, &from, &body));
        let Some(hit) = checking.await.map_err(|_| sqlx::Error::WorkerCrashed)? else { return Ok(None) };
        metrics::counter!("matchday_filter_messages_total", "outcome" => "refused").increment(1);
        let now = inner.clock.now();
        match hit.action {
            Action::Remove => {}
            Action::Hold => {
                let mut connection = inner.db.acquire().await?;
                let text = HeldText { body: text.to_owned(), others: Vec::new() };
                self.hold_in(&mut connection, room, &sender, None, &hit.reason, &text).await?;
            }
            Action::Mute => {
                let until = now + time::Duration::seconds(hit.mute_seconds.unwrap_or(inner.mute_seconds).into());
                let mute = Mute { user_id: user, until, reason: hit.reason.clone() };
                let message = Message::new(MUTE, format!("user:{user}"), &mute)?;
                outbox::enqueue(&mut *inner.db.acquire().await?, &[message]).await?;
                inner.outbox_written.notify_one();
            }
        }
        Ok(Some(hit))
    }

    fn loaded(&self) -> Option<Loaded> {
        self.inner.patterns.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the patterns if this process has not done so yet: without them, messages would pass unchecked.
    async fn load_first(&self) -> sqlx::Result<()> {
        if self.loaded().is_none() { self.refresh().await } else { Ok(()) }
    }

    /// Reads the patterns if they have changed.
    pub async fn refresh(&self) -> sqlx::Result<()> {
        let _turn = self.inner.refreshing.lock().await;
        let version = store::version(&self.inner.db).await?;
        if self.loaded().is_some_and(|loaded| loaded.version == version) {
            return Ok(());
        }
        let rows = store::list(&self.inner.db).await?;
        let read =
            Version { filters: rows.len().try_into().unwrap_or(i64::MAX), latest: rows.last().map_or(0, |row| row.id) };
        let rules = rules_of(rows);
        // Compiling a thousand patterns takes a while.
        let compiled = tokio::task::spawn_blocking(move || PatternSet::new(rules)).await;
        let Ok((patterns, faults)) = compiled else { return Err(sqlx::Error::WorkerCrashed) };
        for (filter, fault) in faults {
            tracing::error!(filter, fault, "pattern of a filter cannot be applied; the other filters are");
        }
        let loaded = Loaded { version: read, patterns: Arc::new(patterns) };
        *self.inner.patterns.write().unwrap_or_else(PoisonError::into_inner) = Some(loaded);
        Ok(())
    }

    /// Keeps the patterns of this process up to date until shutdown.
    pub async fn watch(&self, closing: CancellationToken) {
        let mut changes = None;
        while !closing.is_cancelled() {
            if changes.is_none() {
                changes = self.inner.streams.hear(CHANGED).await.ok();
            }
            if let Err(error) = self.refresh().await {
                // The dependency checks log an unavailable database. Until it returns, the known patterns apply.
                tracing::debug!(%error, "patterns of filters not read");
            }
            tokio::select! {
                () = closing.cancelled() => {}
                () = next_wake(&mut changes) => {}
                () = tokio::time::sleep(REFRESH) => {}
            }
        }
    }

    /// Adds a pattern. The operator and the reason are recorded.
    pub async fn add(&self, new: &NewFilter, operator: &Operator) -> Result<Filter, FilterError> {
        let (inner, now) = (&*self.inner, self.inner.clock.now());
        let mute_seconds = self.mute_of(new)?;
        if new.action == Action::Hold && inner.cipher.current().is_none() {
            return Err(FilterError::NoKey);
        }
        if let Some(room) = &new.matrix_room
            && !store::unencrypted(&inner.db, &[room]).await?.contains(room)
        {
            return Err(FilterError::NoSuchRoom);
        }
        let mut tx = platform::database::begin(&inner.db).await?;
        store::lock(&mut tx).await?;
        let rows = store::list(&mut *tx).await?;
        if rows.len() >= MOST_PATTERNS {
            return Err(FilterError::TooMany);
        }
        let row = NewRow {
            pattern: new.pattern.as_str(),
            matrix_room: new.matrix_room.as_deref(),
            action: new.action,
            mute_seconds,
            reason: &operator.reason,
            created_by: &operator.name,
        };
        let id = store::insert(&mut tx, row, now).await?;
        let filter = Filter {
            id,
            pattern: new.pattern.as_str().to_owned(),
            matrix_room: new.matrix_room.clone(),
            action: new.action,
            mute_seconds,
            reason: operator.reason.clone(),
            created_by: operator.name.clone(),
            created_at: now,
        };
        let mut rules = rules_of(rows);
        rules.push(rule_of(&filter));
        if PatternSet::new(rules).1.iter().any(|(faulty, _)| *faulty == id) {
            return Err(FilterError::TooLarge);
        }
        let details = json!({"pattern": filter.pattern, "room": filter.matrix_room, "action": filter.action.name()});
        let action = OperatorAction::new("filter.add", format!("filter:{id}")).with(details);
        operators::service::record(&mut tx, operator, &action, now).await?;
        tx.commit().await?;
        self.changed().await;
        Ok(filter)
    }

    fn mute_of(&self, new: &NewFilter) -> Result<Option<i32>, FilterError> {
        match (new.action, new.mute_for) {
            (Action::Mute, None) => Ok(Some(self.inner.mute_seconds)),
            (Action::Mute, Some(length)) if MUTES.contains(&length) => {
                Ok(Some(i32::try_from(length.as_secs()).map_err(|_| FilterError::InvalidLength)?))
            }
            (Action::Mute, Some(_)) => Err(FilterError::InvalidLength),
            _ => Ok(None),
        }
    }

    /// All patterns, oldest first.
    pub async fn list(&self) -> sqlx::Result<Vec<Filter>> {
        Ok(store::list(&self.inner.db).await?.into_iter().filter_map(filter_of).collect())
    }

    /// Removes a pattern. The operator and the reason are recorded.
    pub async fn remove(&self, id: i64, operator: &Operator) -> Result<(), FilterError> {
        let mut tx = platform::database::begin(&self.inner.db).await?;
        if !store::delete(&mut tx, id).await? {
            return Err(FilterError::NoSuchFilter(id));
        }
        let action = OperatorAction::new("filter.remove", format!("filter:{id}"));
        operators::service::record(&mut tx, operator, &action, self.inner.clock.now()).await?;
        tx.commit().await?;
        self.changed().await;
        Ok(())
    }

    /// Applies a change in this process, and tells the others.
    async fn changed(&self) {
        if let Err(error) = self.refresh().await {
            tracing::debug!(%error, "patterns of filters not read");
        }
        self.inner.streams.wake_before_exit(CHANGED).await;
    }
}

fn outcome(action: Action) -> &'static str {
    match action {
        Action::Remove => "removed",
        Action::Hold => "held",
        Action::Mute => "muted",
    }
}

fn filter_of(row: FilterRow) -> Option<Filter> {
    let FilterRow { id, pattern, matrix_room, action, mute_seconds, reason, created_by, created_at } = row;
    let action = action.parse().ok()?;
    Some(Filter { id, pattern, matrix_room, action, mute_seconds, reason, created_by, created_at })
}

fn rule_of(filter: &Filter) -> PatternRule {
    let Filter { id, pattern, matrix_room, action, mute_seconds, .. } = filter.clone();
    PatternRule { id, pattern, matrix_room, action, mute_seconds }
}

fn rules_of(rows: Vec<FilterRow>) -> Vec<PatternRule> {
    rows.into_iter().filter_map(filter_of).map(|filter| rule_of(&filter)).collect()
}
