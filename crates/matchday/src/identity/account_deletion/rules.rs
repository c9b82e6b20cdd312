//! Lists the tables with personal data and the effect of an account deletion on each; no I/O.
//!
//! Every table must be listed here. A test compares the lists with the database, so a new table requires a decision.

use platform::timestamp;
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Effect of an account deletion on the user's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Deleted,
    /// The worker deletes the rows, because finding them takes too long for a request.
    DeletedLater,
    /// This statement changes the rows. It has the same parameters as `Table::whose`.
    Changed(&'static str),
    /// The rows stay, for this reason.
    Stay(&'static str),
    /// Other code handles the rows, as described here.
    HandledElsewhere(&'static str),
}

/// A table with rows about a user.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Name of the table, also used in exports.
    pub name: &'static str,
    /// Condition that selects the user's rows. `$1` is the user id, `$2` the phone, `$3` the subjects of the user's
    /// codes, and `$4` the Matrix ids of all usernames the user has had.
    pub whose: &'static str,
    /// Columns left out of exports: secrets, and values without meaning to the user.
    pub hidden: &'static [&'static str],
    /// Whether other code exports the rows, because a user can have too many for one statement.
    pub is_exported_elsewhere: bool,
    pub fate: Fate,
}

impl Table {
    const fn of_user(name: &'static str, fate: Fate) -> Self {
        Self { name, whose: "user_id = $1", hidden: &["user_id"], is_exported_elsewhere: false, fate }
    }

    const fn hiding(self, hidden: &'static [&'static str]) -> Self {
        Self { hidden, ..self }
    }

    const fn exported_elsewhere(self) -> Self {
        Self { is_exported_elsewhere: true, ..self }
    }

    const fn whose(self, whose: &'static str) -> Self {
        Self { whose, ..self }
    }

    /// Returns the statement that reads the user's rows as one JSON text, or `None` if there is none. `$5` is the list of
    /// hidden columns.
    pub fn export(&self) -> Option<String> {
        let Self { name, whose, is_exported_elsewhere, .. } = self;
        (!is_exported_elsewhere).then(|| {
            format!("select coalesce(jsonb_agg(to_jsonb(t) - $5::text[]), '[]')::text from {name} t where {whose}")
        })
    }

    /// Returns the statement that a deletion runs on this table, or `None` if there is none.
    ///
    /// The comment makes the text unique. A connection prepares a statement once for each text, with the parameters of its first
    /// use. A deletion passes four, so a feature that runs the same text with fewer would fail on the same connection.
    pub fn forget(&self) -> Option<String> {
        match self.fate {
            Fate::Deleted | Fate::DeletedLater => Some(format!("delete from {} where {}", self.name, self.whose)),
            Fate::Changed(statement) => Some(statement.to_owned()),
            Fate::Stay(_) | Fate::HandledElsewhere(_) => None,
        }
        .map(|statement| format!("{statement} /* account deletion */"))
    }
}

/// Writes the timestamps in these columns of exported rows as the API does. PostgreSQL writes the fewest digits.
pub fn with_standard_timestamps(rows: &str, columns: &[String]) -> serde_json::Result<String> {
    let mut rows: Vec<Value> = serde_json::from_str(rows)?;
    for row in &mut rows {
        for column in columns {
            let at = row[column].as_str().and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
            if let Some(text) = at.and_then(|at| timestamp::text(at).ok()) {
                row[column] = Value::from(text);
            }
        }
    }
    serde_json::to_string(&rows)
}

const LEDGER: Fate = Fate::Stay("the ledger must still balance; the user id no longer identifies a person");
const GAME: Fate =
    Fate::Stay("leaderboards and tallies were computed from it; the user id no longer identifies a person");
const FOLLOWS: Fate = Fate::HandledElsewhere("a worker deletes them page by page, together with the counts");
const PHONE_OR_SUBJECT: &str = "phone = $2 or subject = any($3)";

/// Tables with personal data, children before their parents.
pub const TABLES: &[Table] = &[
    Table::of_user(
        "users",
        // Usernames have no dashes, so the new name cannot collide with one.
        Fate::Changed(
            "update users set username = 'deleted-' || user_id, username_is_generated = false, phone = null,
                 phone_verified_at = null, has_chat_account = false, name = null, email = null, date_of_birth = null,
                 banned_at = null, banned_until = null, muted_at = null, muted_until = null, avatar_key = null,
                 shows_name = true, teams_audience = 'everyone', record_audience = 'everyone',
                 calibration_audience = 'nobody'
             where user_id = $1",
        ),
    )
    // Exports have the URL instead.
    .hiding(&["avatar_key"]),
    // A worker deletes the images and then the row. An upload that is in progress keeps its deadline, because it may still
    // store images.
    Table::of_user(
        "avatars",
        Fate::Changed("update avatars set delete_at = now() where user_id = $1 and delete_at is null"),
    )
    .hiding(&["user_id", "delete_at"]),
    // Before sessions, with which devices end: registrations lock claims before devices too.
    Table::of_user("device_tokens", Fate::Deleted).hiding(&["user_id", "token_hash"]),
    Table::of_user("sessions", Fate::Deleted).hiding(&["user_id", "token_hash", "check_at"]),
    Table::of_user("username_claims", Fate::Changed("update username_claims set user_id = 0 where user_id = $1")),
    Table::of_user("phone_claims", Fate::Deleted),
    Table::of_user("codes", Fate::Deleted).whose(PHONE_OR_SUBJECT).hiding(&[
        "mac",
        "nonce",
        "key_version",
        "block",
        "network",
        "origin",
        "place",
    ]),
    Table::of_user("phone_verifications", Fate::Deleted).whose("phone = $2").hiding(&["place"]),
    Table::of_user("code_failures", Fate::Deleted).whose("subject = any($3)"),
    Table::of_user("sms_log", Fate::Deleted).whose("phone = $2").hiding(&["code", "notice"]),
    Table::of_user("phone_moves", Fate::Deleted).hiding(&["user_id", "undo_hash"]),
    Table::of_user("user_teams", Fate::Deleted),
    Table::of_user("notification_settings", Fate::Deleted),
    Table::of_user("push_subscriptions", Fate::Deleted).hiding(&["user_id", "p256dh", "auth"]),
    Table::of_user("reminders", Fate::Deleted),
    Table::of_user("devices", Fate::Deleted).hiding(&["user_id", "token_hash", "ciphertext", "key_version"]),
    Table::of_user("mention_pushers", Fate::Deleted).hiding(&["user_id", "secret", "gateway"]),
    Table::of_user("notification_claims", Fate::Deleted),
    Table::of_user("notification_retries", Fate::Deleted),
    Table::of_user("idempotency_keys", Fate::Deleted).hiding(&[
        "user_id",
        "key_digest",
        "request_digest",
        "claim",
        "body",
    ]),
    // The operator's name is the operator's personal data, so exports leave it out.
    Table::of_user("restrictions", Fate::Deleted).hiding(&["user_id", "operator"]),
    Table::of_user("blocks", Fate::Changed("delete from blocks where user_id = $1 or blocked_id = $1")),
    Table::of_user("follows", FOLLOWS),
    // Exports have the ids of the followers.
    Table::of_user("followers", FOLLOWS).exported_elsewhere(),
    Table::of_user("follow_counts", FOLLOWS),
    // An open report about the user keeps its evidence until a moderator closes it or its retention ends: the service
    // sets `erase_at`. Otherwise a sender could destroy the evidence by deleting the account.
    Table::of_user(
        "reports",
        Fate::Changed(
            "update reports set reason = case when user_id = $1 then '' else reason end,
                 answer = case when user_id = $1 then null else answer end,
                 sender = case when sender = any($4) and closed_at is not null then null else sender end,
                 content = case when sender = any($4) and closed_at is not null then null else content end
             where user_id = $1 or sender = any($4)",
        ),
    )
    // Resolution and note are about the sender and written for operators. The answer is written for the user.
    .hiding(&[
        "user_id",
        "sender",
        "content",
        "erase_at",
        "claimed_by",
        "claimed_until",
        "closed_by",
        "resolution",
        "note",
    ]),
    // The restrictions stay with the keyed hash of the phone until they expire. Only the link to the account is
    // removed.
    Table::of_user(
        "restricted_phones",
        Fate::Changed("update restricted_phones set user_id = null where user_id = $1"),
    )
    .hiding(&["user_id", "mac", "key_version"]),
    // First the facts without a position: while this statement waits for their lock, they may get one. Usernames have no
    // dashes.
    Table::of_user(
        "new_facts",
        Fate::Changed(
            "update new_facts
             set payload = jsonb_set(payload, '{username}', to_jsonb('deleted-' || $1::bigint), false)
             where payload ->> 'user_id' = $1::bigint::text",
        ),
    )
    .whose("payload ->> 'user_id' = $1::bigint::text")
    .hiding(&["id", "subject"]),
    // The facts stay, because their readers have counted them. They no longer contain the name.
    Table::of_user(
        "facts",
        Fate::Changed(
            "update facts
             set item = jsonb_set(item::jsonb, '{data,username}', to_jsonb('deleted-' || $1::bigint), false)::json
             where user_id = $1",
        ),
    )
    .hiding(&["user_id", "position", "recorded_at"]),
    Table::of_user("seats", Fate::Deleted),
    Table::of_user(
        "room_members",
        Fate::HandledElsewhere("the membership sync removes them room by room and updates the counts"),
    ),
    Table::of_user("room_moderators", Fate::Deleted),
    Table::of_user("room_mutes", Fate::Deleted).hiding(&["user_id", "muted_by"]),
    Table::of_user("slow_mode_turns", Fate::Deleted).hiding(&["user_id", "request"]),
    Table::of_user("removals", Fate::DeletedLater).whose("sender = any($4)").hiding(&["removed_by"]),
    Table::of_user("held_messages", Fate::DeletedLater).whose("sender = any($4)").hiding(&[
        "ciphertext",
        "key_version",
        "decided_by",
    ]),
    Table::of_user("chat_inbox", Fate::DeletedLater).whose("sender = any($4) or state_key = any($4)"),
    Table::of_user("rooms", Fate::Stay("other users are members; the user id no longer identifies a person"))
        .whose("creator_id = $1")
        .hiding(&["creator_id", "made_until", "half_made_at", "discarded_at"]),
    Table::of_user("departures", Fate::HandledElsewhere("the worker removes the row when the deletion is finished")),
    // Without salt and pseudonym, no hash of a seal can be traced to the user. The rest stays for the scores.
    Table::of_user("predictions", Fate::Changed("update predictions set salt = null where user_id = $1")),
    Table::of_user(
        "prediction_revisions",
        Fate::Changed("update prediction_revisions set salt = null where user_id = $1"),
    ),
    Table::of_user("pseudonyms", Fate::Deleted),
    Table::of_user("answers", GAME),
    Table::of_user("answer_revisions", GAME),
    Table::of_user("user_scores", GAME),
    Table::of_user(
        "league_members",
        Fate::HandledElsewhere("a worker ends the memberships, and passes leagues on to another member"),
    )
    .hiding(&["user_id", "request_key", "request_digest"]),
    Table::of_user("league_removals", Fate::Deleted),
    Table::of_user("league_notifications", Fate::Deleted),
    Table::of_user("leagues", Fate::HandledElsewhere("a worker passes them on to another member, or deletes them"))
        .whose("owner_id = $1")
        .hiding(&["owner_id", "members_version", "code_digest", "code_ciphertext", "code_key"]),
    Table::of_user("wallets", LEDGER),
    Table::of_user("coin_transactions", LEDGER).hiding(&["user_id", "request_key", "operator"]),
    Table::of_user("daily_claims", LEDGER),
    Table::of_user("coin_payouts", LEDGER),
];

/// Tables without personal data, or with data that another table also contains.
pub const OTHERS: &[(&str, &str)] = &[
    ("coin_entries", "debit and credit of each row of coin_transactions"),
    ("outbox", "messages that are about to be published"),
    ("fact_log", "positions"),
    ("leases", "processes"),
    ("rule_sets", "catalogue"),
    ("sports", "catalogue"),
    ("tournaments", "catalogue"),
    ("teams", "catalogue"),
    ("events", "catalogue"),
    ("event_results", "catalogue"),
    ("event_tallies", "counts"),
    ("questions", "catalogue"),
    ("question_results", "catalogue"),
    ("question_tallies", "counts"),
    ("seals", "matches and hashes"),
    ("seal_chain", "a hash"),
    ("seal_tiles", "hashes, which nothing links to users without salts and pseudonyms"),
    ("seal_timestamps", "hashes"),
    ("score_lanes", "ranges of user ids"),
    ("score_retention", "weeks"),
    ("coin_rates", "matches"),
    ("sms_closures", "countries, blocks of ten thousand numbers, and networks (for a day)"),
    ("room_activity", "counts"),
    (
        "room_statistics",
        "counts, and for an hour the ids and scores of the best predictors, which user_scores contains",
    ),
    ("remote_members", "Matrix users without an account in this service"),
    ("mirror_marks", "times"),
    ("feeds", "providers"),
    ("feed_teams", "providers"),
    ("webhook_endpoints", "app backends"),
    ("server_keys", "app backends"),
    ("filters", "patterns of operators"),
    ("reminder_plans", "matches"),
    ("result_notices", "matches"),
    ("notification_batches", "ranges of user ids"),
    ("operator_actions", "actions of operators; the affected user is only an id"),
];
