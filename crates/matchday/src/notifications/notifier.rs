//! What every way to notify people has in common.

use futures_util::future::BoxFuture;
use serde::Serialize;
use time::OffsetDateTime;
use web::ids::{EventId, TournamentId, UserId};

use super::service::Subscription;
use crate::events::facts::TeamName;

/// What people are reminded of.
#[derive(Clone, Debug, Serialize)]
pub struct Reminder {
    /// The match.
    pub event_id: EventId,
    /// Its tournament.
    pub tournament_id: TournamentId,
    /// When it begins.
    #[serde(with = "time::serde::rfc3339")]
    pub start_time: OffsetDateTime,
    /// Who plays at home.
    pub home_team: TeamName,
    /// Who plays away.
    pub away_team: TeamName,
}

/// Who is notified.
#[derive(Clone, Debug)]
pub struct Recipient {
    /// Who.
    pub user: UserId,
    /// Their browsers.
    pub subscriptions: Vec<Subscription>,
}

/// What became of a notification of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// There was nothing to do: this way does not lead to them.
    NoWay,
    /// It surely did not arrive, and never will.
    Refused,
    /// It surely did not arrive, and may if it is tried again.
    Later,
    /// Nobody knows.
    Unknown,
    /// It was taken.
    Taken,
}

impl Outcome {
    /// In one word, for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::NoWay => "no_way",
            Self::Refused => "refused",
            Self::Later => "later",
            Self::Unknown => "unknown",
            Self::Taken => "taken",
        }
    }
}

/// What became of some.
#[derive(Debug, Default)]
pub struct Notified {
    /// Of each user, in the order in which they were given.
    pub outcomes: Vec<Outcome>,
    /// Subscriptions that are no more.
    pub gone: Vec<Subscription>,
}

/// A way to notify people.
pub trait Notifier: Send + Sync {
    /// Its name in logs and metrics.
    fn name(&self) -> &'static str;

    /// Whether it leads to somebody.
    fn reaches(&self, recipient: &Recipient) -> bool;

    /// Notifies some, each once: what may have arrived is not sent again.
    fn notify<'a>(&'a self, reminder: &'a Reminder, to: &'a [Recipient]) -> BoxFuture<'a, Notified>;
}
