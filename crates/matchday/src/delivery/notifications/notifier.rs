//! Common interface of all notification channels.

use futures_util::future::BoxFuture;
use serde::Serialize;
use time::OffsetDateTime;
use web::ids::{MatchId, TournamentId, UserId};

use super::service::Subscription;
use crate::catalogue::matches::facts::TeamName;

/// The match that fans are reminded of.
#[derive(Clone, Debug, Serialize)]
pub struct Reminder {
    pub event_id: MatchId,
    pub tournament_id: TournamentId,
    #[serde(with = "time::serde::rfc3339")]
    pub start_time: OffsetDateTime,
    pub home_team: TeamName,
    pub away_team: TeamName,
}

/// A user to notify.
#[derive(Clone, Debug)]
pub struct Recipient {
    pub user: UserId,
    /// Push subscriptions of the user's browsers.
    pub subscriptions: Vec<Subscription>,
}

/// Outcome of notifying one user. The order matters: the best outcome of several channels counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The channel does not reach the user.
    NotReached,
    /// Not delivered, and a retry cannot succeed.
    Refused,
    /// Not delivered, but a retry may succeed.
    Later,
    /// Delivery is uncertain, for example after a timeout.
    Unknown,
    /// The receiver accepted the notification.
    Taken,
}

impl Outcome {
    /// Value of the `outcome` label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotReached => "no_way",
            Self::Refused => "refused",
            Self::Later => "later",
            Self::Unknown => "unknown",
            Self::Taken => "taken",
        }
    }
}

/// Outcomes of notifying several users.
#[derive(Debug, Default)]
pub struct Notified {
    /// One outcome for each recipient, in the given order.
    pub outcomes: Vec<Outcome>,
    /// Subscriptions that no longer exist.
    pub gone: Vec<Subscription>,
}

/// A channel that delivers reminders: web push or the app's push hook.
pub trait Notifier: Send + Sync {
    /// Name in logs and metrics.
    fn name(&self) -> &'static str;

    /// Returns true if the channel can reach the recipient.
    fn reaches(&self, recipient: &Recipient) -> bool;

    /// Notifies each recipient once. A notification that may have been delivered is not sent again.
    fn notify<'a>(&'a self, reminder: &'a Reminder, to: &'a [Recipient]) -> BoxFuture<'a, Notified>;
}
