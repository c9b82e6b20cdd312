//! Which table holds what of a person, and what becomes of it when they go; no I/O.
//!
//! Every table is named here: a test compares with the database, so that whoever adds one has to decide.

/// What becomes of a person's rows when they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// They are deleted.
    Deleted,
    /// They are deleted by the worker, because finding them takes longer than a person should wait.
    DeletedLater,
    /// They are changed by this statement, with the parameters of `Table::whose`.
    Changed(&'static str),
    /// They stay, for this reason.
    Stay(&'static str),
    /// Another part of this feature sees to it, as said here.
    SeenTo(&'static str),
}

/// A table with rows that are about a person.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name, which is also that in an export.
    pub name: &'static str,
    /// Which rows are about the person. `$1` is the user, `$2` their phone, `$3` what their codes are for, `$4` what the
    /// homeserver calls them, by all the names they have had.
    pub whose: &'static str,
    /// Columns that are not the person's to have: secrets, and what would say nothing to anybody.
    pub hidden: &'static [&'static str],
    /// What becomes of them.
    pub fate: Fate,
}

impl Table {
    const fn of_user(name: &'static str, fate: Fate) -> Self {
        Self { name, whose: "user_id = $1", hidden: &["user_id"], fate }
    }

    const fn hiding(self, hidden: &'static [&'static str]) -> Self {
        Self { hidden, ..self }
    }

    const fn whose(self, whose: &'static str) -> Self {
        Self { whose, ..self }
    }

    /// The statement that reads a person's rows as one JSON text; `$5` are the hidden columns.
    pub fn export(&self) -> String {
        let Self { name, whose, .. } = self;
        format!("select coalesce(jsonb_agg(to_jsonb(t) - $5::text[]), '[]')::text from {name} t where {whose}")
    }

    /// The statement that does to a person's rows what their fate is; `None` where there is nothing to be done here.
    pub fn forget(&self) -> Option<String> {
        match self.fate {
            Fate::Deleted | Fate::DeletedLater => Some(format!("delete from {} where {}", self.name, self.whose)),
            Fate::Changed(statement) => Some(statement.to_owned()),
            Fate::Stay(_) | Fate::SeenTo(_) => None,
        }
    }
}

const LEDGER: Fate =
    Fate::Stay("what was earned and spent must still add up; it names a number, and nobody is behind it");
const GAME: Fate =
    Fate::Stay("other people's tables and tallies were made with it; it names a number, and nobody is behind it");
const PHONE_OR_SUBJECT: &str = "phone = $2 or subject = any($3)";

/// The tables, children before their parents.
pub const TABLES: &[Table] = &[
    Table::of_user(
        "users",
        // The name cannot be anybody's: none has a dash.
        Fate::Changed(
            "update users set username = 'deleted-' || user_id, username_is_generated = false, phone = null,
                 phone_verified_at = null, has_chat_account = false, name = null, email = null, date_of_birth = null,
                 banned_at = null, banned_until = null, muted_at = null, muted_until = null
             where user_id = $1",
        ),
    )
    .hiding(&[]),
    Table::of_user("sessions", Fate::Deleted).hiding(&["user_id", "token_hash"]),
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
    Table::of_user("idempotency_keys", Fate::Deleted).hiding(&[
        "user_id",
        "key_digest",
        "request_digest",
        "claim",
        "body",
    ]),
    // Who the operator was is theirs, and not the person's to have.
    Table::of_user("restrictions", Fate::Deleted).hiding(&["user_id", "operator"]),
    Table::of_user("blocks", Fate::Changed("delete from blocks where user_id = $1 or blocked_id = $1")),
    // An open report about the person keeps its evidence until a moderator closes it, or until its retention ends: the
    // service sets `erase_at`. Otherwise a sender could destroy the evidence by deleting the account.
    Table::of_user(
        "reports",
        Fate::Changed(
            "update reports set reason = case when user_id = $1 then '' else reason end,
                 sender = case when sender = any($4) and closed_at is not null then null else sender end,
                 content = case when sender = any($4) and closed_at is not null then null else content end
             where user_id = $1 or sender = any($4)",
        ),
    )
    .hiding(&["sender", "content", "erase_at"]),
    // The restrictions stay with the keyed hash of the phone for their time; the link to the account goes.
    Table::of_user(
        "restricted_phones",
        Fate::Changed("update restricted_phones set user_id = null where user_id = $1"),
    )
    .hiding(&["user_id", "mac", "key_version"]),
    Table::of_user("seats", Fate::Deleted),
    Table::of_user("room_members", Fate::SeenTo("the mirror forgets them room by room, and counts")),
    Table::of_user("chat_inbox", Fate::DeletedLater).whose("sender = any($4) or state_key = any($4)"),
    Table::of_user("rooms", Fate::Stay("others are in them; it names a number, and nobody is behind it"))
        .whose("creator_id = $1")
        .hiding(&["creator_id", "made_until", "half_made_at", "discarded_at"]),
    Table::of_user("departures", Fate::SeenTo("it is taken off the queue when it is finished")),
    Table::of_user("predictions", GAME),
    Table::of_user("prediction_revisions", GAME),
    Table::of_user("user_scores", GAME),
    Table::of_user("wallets", LEDGER),
    Table::of_user("coin_transactions", LEDGER).hiding(&["user_id", "request_key", "operator"]),
    Table::of_user("daily_claims", LEDGER),
    Table::of_user("coin_payouts", LEDGER),
];

/// Tables that hold nothing about anybody, or only what stands in another one too.
pub const OTHERS: &[(&str, &str)] = &[
    ("coin_entries", "the two sides of what coin_transactions has"),
    ("outbox", "messages on their way, for a moment"),
    ("leases", "processes"),
    ("sports", "the catalogue"),
    ("tournaments", "the catalogue"),
    ("teams", "the catalogue"),
    ("events", "the catalogue"),
    ("event_results", "the catalogue"),
    ("event_tallies", "counts"),
    ("score_lanes", "ranges of numbers"),
    ("coin_rates", "matches"),
    ("sms_closures", "countries, blocks of ten thousand numbers, and networks for a day"),
    ("room_activity", "counts"),
    ("remote_members", "people without an account here"),
    ("mirror_marks", "times"),
    ("feeds", "providers"),
    ("feed_teams", "providers"),
    ("webhook_endpoints", "app companies"),
    ("reminder_plans", "matches"),
    ("operator_actions", "what operators did; whom to is a number"),
];
