//! Common interface of all notification channels.

use futures_util::future::BoxFuture;
use serde::Serialize;
use time::OffsetDateTime;
use web::ids::{LeagueId, MatchId, QuestionId, TournamentId, UserId};

use super::service::Subscription;
use crate::catalogue::matches::facts::TeamName;

/// The match that fans are reminded of.
#[derive(Clone, Debug, Serialize)]
pub struct Reminder {
    pub event_id: MatchId,
    pub tournament_id: TournamentId,
    #[serde(with = "platform::timestamp")]
    pub start_time: OffsetDateTime,
    pub home_team: TeamName,
    pub away_team: TeamName,
    /// Open questions that lock before the match starts, or with it. Some users may have answered some of them.
    pub question_ids: Vec<QuestionId>,
}

/// A league in which members lost places.
#[derive(Clone, Debug, Serialize)]
pub struct PlacesLost {
    pub league_id: LeagueId,
    /// Name of the league.
    pub league: String,
    pub tournament_id: TournamentId,
    /// Round that is complete.
    pub round: i16,
}

/// Subject of a notification.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Notice {
    Reminder(Reminder),
    PlacesLost {
        #[serde(flatten)]
        lost: PlacesLost,
        /// Time after which a browser that was offline is not notified.
        #[serde(skip)]
        expires_at: OffsetDateTime,
    },
}

impl Notice {
    /// Value of `type` in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Reminder(_) => "reminder.due",
            Self::PlacesLost { .. } => "league.passed",
        }
    }

    /// A browser that was offline gets only the latest notification with the same topic.
    pub fn topic(&self) -> String {
        match self {
            Self::Reminder(reminder) => format!("reminder-{}", reminder.event_id),
            Self::PlacesLost { lost, .. } => format!("league-{}", lost.league_id),
        }
    }

    /// Time after which the notification is of no use.
    pub fn expires_at(&self) -> OffsetDateTime {
        match self {
            Self::Reminder(reminder) => reminder.start_time,
            Self::PlacesLost { expires_at, .. } => *expires_at,
        }
    }
}

/// Place of a user who lost places.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Place {
    pub rank: i64,
    pub previous_rank: i64,
    pub points: i32,
}

/// A user to notify.
#[derive(Clone, Debug)]
pub struct Recipient {
    pub user: UserId,
    /// Place in the league, for [`Notice::PlacesLost`].
    pub place: Option<Place>,
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

/// A channel that delivers notifications: web push or the app's push hook.
pub trait Notifier: Send + Sync {
    /// Name in logs and metrics.
    fn name(&self) -> &'static str;

    /// Returns true if the channel can reach the recipient.
    fn reaches(&self, recipient: &Recipient) -> bool;

    /// Notifies each recipient once. A notification that may have been delivered is not sent again.
    fn notify<'a>(&'a self, notice: &'a Notice, to: &'a [Recipient]) -> BoxFuture<'a, Notified>;
}
