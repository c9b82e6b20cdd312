//! Actions of fans, and the judgement of responses to them.

use serde::{Deserialize, Serialize};

/// A row of the report. Scripts schedule all but the last three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Action {
    /// Log in with phone and code.
    LogIn,
    /// List matches, with the `ETag` of the fan's last page.
    Matches,
    OneMatch,
    Profile,
    /// Open the live stream and stay until the end.
    Listen,
    /// Predict the match of the evening, with an idempotency key.
    Predict,
    /// List the predictions of the match, with its statistics.
    MatchPredictions,
    Join,
    RoomStats,
    /// Claim the daily bonus, with an idempotency key.
    Claim,
    /// Spend a coin, with an idempotency key and a reference.
    Deduct,
    /// Look up the own rank on the leaderboard of the tournament.
    Rank,
    OwnPredictions,
    /// First half of a log-in.
    RequestCode,
    /// Open the live stream again after the server ended it.
    Resume,
    /// From an operator's change of a match until a listener receives it.
    Deliver,
}

impl Action {
    /// Name in tables and JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LogIn => "log-in",
            Self::Matches => "matches",
            Self::OneMatch => "one-match",
            Self::Profile => "profile",
            Self::Listen => "listen",
            Self::Predict => "predict",
            Self::MatchPredictions => "match-predictions",
            Self::Join => "join",
            Self::RoomStats => "room-stats",
            Self::Claim => "claim",
            Self::Deduct => "deduct",
            Self::Rank => "rank",
            Self::OwnPredictions => "own-predictions",
            Self::RequestCode => "request-code",
            Self::Resume => "resume",
            Self::Deliver => "deliver",
        }
    }

    /// Refusals that follow from the evening itself and not from the load.
    fn expected_refusals(self) -> &'static [&'static str] {
        match self {
            // A prediction that arrives after kick-off, because it waited.
            Self::Predict => &["event_started"],
            Self::Claim => &["already_claimed"],
            Self::Deduct => &["insufficient_balance"],
            Self::Join => &["already_a_member"],
            _ => &[],
        }
    }
}

/// 503 codes with which the service refuses work on purpose, to stay available. All others (`database_unavailable`,
/// `deadline_exceeded`, …) mean that something failed.
const DELIBERATE: [&str; 5] =
    ["overloaded", "room_busy", "chat_unavailable", "leaderboard_rebuilding", "shutting_down"];

/// Judgement of one response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    /// A deliberate refusal, with its code.
    Refused(String),
    Failed(String),
}

/// Judges a response by its status and the code in its body. A 503 without a code comes from a proxy, and is a failure.
pub(crate) fn judge(action: Action, status: u16, code: Option<&str>) -> Verdict {
    let named = || code.map_or_else(|| format!("http_{status}"), ToOwned::to_owned);
    let is_deliberate = match (status, code) {
        (200 | 201 | 204 | 304, _) => return Verdict::Fine,
        (429, _) | (409, Some("idempotency_in_progress")) => true,
        (503, Some(code)) => DELIBERATE.contains(&code),
        (400 | 409, Some(code)) => action.expected_refusals().contains(&code),
        _ => false,
    };
    if is_deliberate { Verdict::Refused(named()) } else { Verdict::Failed(format!("{status} {}", named())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliberate_refusals_are_not_failures() {
        let refused = |code: &str| Verdict::Refused(code.to_owned());
        let failed = |text: &str| Verdict::Failed(text.to_owned());
        for (action, status, code, verdict) in [
            (Action::Predict, 201, None, Verdict::Fine),
            (Action::Matches, 304, None, Verdict::Fine),
            (Action::Predict, 429, Some("rate_limited"), refused("rate_limited")),
            (Action::Predict, 503, Some("overloaded"), refused("overloaded")),
            (Action::Join, 503, Some("room_busy"), refused("room_busy")),
            (Action::Claim, 409, Some("idempotency_in_progress"), refused("idempotency_in_progress")),
            (Action::Predict, 400, Some("event_started"), refused("event_started")),
            (Action::Deduct, 400, Some("event_started"), failed("400 event_started")),
            (Action::Rank, 503, Some("database_unavailable"), failed("503 database_unavailable")),
            (Action::Rank, 503, None, failed("503 http_503")),
            (Action::Rank, 500, Some("internal"), failed("500 internal")),
            (Action::Profile, 401, Some("unauthenticated"), failed("401 unauthenticated")),
            (Action::Profile, 429, None, refused("http_429")),
        ] {
            assert_eq!(judge(action, status, code), verdict, "{action:?} {status} {code:?}");
        }
    }
}
