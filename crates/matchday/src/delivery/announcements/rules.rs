//! Selection and texts of announcements; no I/O.

use scoring::Outcome;
use serde_json::{Value, json};
use web::ids::MatchId;

use crate::{
    catalogue::matches::{
        facts::{MatchFact, Standing},
        rules::Status,
    },
    game::{scores::rounds::RoundFact, seals::rules::Seal},
};

/// A message that the bot posts to a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Lets apps render the announcement in their own way.
    pub kind: Kind,
    /// Body of the chat message.
    pub text: String,
}

/// Subject of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    KickOff,
    Goal,
    /// A goal was disallowed.
    GoalTakenBack,
    Suspended,
    Resumed,
    FullTime,
    /// The match was abandoned, cancelled or awarded.
    CalledOff,
    /// An earlier result was wrong.
    Corrected,
    BestPredictors,
    /// A round is complete.
    RoundCompleted,
    /// The predictions of the match are sealed.
    Sealed,
}

impl Kind {
    /// Name in the message content, which apps read.
    pub fn name(self) -> &'static str {
        match self {
            Self::KickOff => "kick_off",
            Self::Goal => "goal",
            Self::GoalTakenBack => "goal_taken_back",
            Self::Suspended => "suspended",
            Self::Resumed => "resumed",
            Self::FullTime => "full_time",
            Self::CalledOff => "called_off",
            Self::Corrected => "corrected",
            Self::BestPredictors => "best_predictors",
            Self::RoundCompleted => "round_completed",
            Self::Sealed => "sealed",
        }
    }
}

/// Returns the announcements for a change. A newly imported match has none, because its earlier course is unknown.
pub fn announcements(fact: &MatchFact) -> Vec<Announcement> {
    let Some(before) = fact.before else { return Vec::new() };
    let now = fact.now;
    let mut announcements = Vec::new();
    let (home, away) = (&fact.home_team.name, &fact.away_team.name);
    let mut announce = |kind, text: String| announcements.push(Announcement { kind, text });

    let was_decided = before.outcome() != Outcome::Open;
    if was_decided {
        if before.outcome() != now.outcome() {
            let was = score(home, away, before).unwrap_or_else(|| "no result".to_owned());
            let is = match now.outcome() {
                Outcome::Result { .. } => score(home, away, now).unwrap_or_default(),
                Outcome::Void => format!("{home} – {away} does not count"),
                Outcome::Open => format!("{home} – {away} is not finished"),
            };
            announce(Kind::Corrected, format!("Corrected result: {is} (previously {was})"));
        }
        return announcements;
    }
    match (before.status, now.status) {
        (Status::Scheduled | Status::Postponed, Status::Live) => {
            announce(Kind::KickOff, format!("Kick-off: {home} – {away}"));
        }
        (Status::Suspended, Status::Live) => announce(Kind::Resumed, format!("{home} – {away} has resumed")),
        _ => {}
    }
    if is_played(now.status) {
        let (before, goals) =
            (before.scores().unwrap_or_default(), now.scores().unwrap_or(before.scores().unwrap_or_default()));
        for (team, before, goals) in [(home, before.0, goals.0), (away, before.1, goals.1)] {
            let shown = score(home, away, now).unwrap_or_default();
            if goals > before {
                announce(Kind::Goal, format!("Goal for {team}! {shown}"));
            } else if goals < before {
                announce(Kind::GoalTakenBack, format!("Goal for {team} disallowed. {shown}"));
            }
        }
    }
    match (before.status, now.status) {
        (before, now) if before == now => {}
        (_, Status::Suspended) => announce(Kind::Suspended, format!("{home} – {away} is interrupted")),
        (_, Status::Finished) => {
            announce(Kind::FullTime, format!("Full time: {}", score(home, away, now).unwrap_or_default()));
        }
        (_, Status::Abandoned) => {
            announce(Kind::CalledOff, format!("{home} – {away} was abandoned; predictions do not count"));
        }
        (_, Status::Cancelled) => {
            announce(Kind::CalledOff, format!("{home} – {away} was cancelled; predictions do not count"));
        }
        (_, Status::Awarded) => {
            let shown = score(home, away, now).unwrap_or_default();
            announce(Kind::CalledOff, format!("{shown} was awarded; predictions do not count"));
        }
        _ => {}
    }
    announcements
}

/// Returns true if a changed score in this status means a goal: the match is in play, interrupted or just finished.
fn is_played(status: Status) -> bool {
    matches!(status, Status::Live | Status::Suspended | Status::Finished)
}

fn score(home: &str, away: &str, standing: Standing) -> Option<String> {
    let (home_goals, away_goals) = standing.scores()?;
    Some(format!("{home} {home_goals} – {away_goals} {away}"))
}

/// Announces the best predictors, given as (name, points) with the best first.
pub fn best_predictors(home: &str, away: &str, best: &[(String, i32)]) -> Option<Announcement> {
    if best.is_empty() {
        return None;
    }
    let named: Vec<String> = best.iter().map(|(name, points)| format!("{name} ({points})")).collect();
    let text = format!("Best predictors of {home} – {away} in this room: {}", named.join(", "));
    Some(Announcement { kind: Kind::BestPredictors, text })
}

/// Announces that a round is complete, with its winners.
pub fn round_completed(fact: &RoundFact) -> Announcement {
    let RoundFact { tournament, round, winners, points, .. } = fact;
    let names: Vec<&str> = winners.iter().map(|winner| winner.username.as_str()).collect();
    let result = match (names.as_slice(), points) {
        ([only], Some(points)) => format!("{only} won it with {points} points"),
        ([_, _, ..], Some(points)) => format!("{} won it with {points} points each", names.join(", ")),
        _ => "no user predicted its matches".to_owned(),
    };
    let text = format!("Round {round} of {tournament} is complete: {result}");
    Announcement { kind: Kind::RoundCompleted, text }
}

/// Publishes a seal in a room, where its members keep a copy that the operator of the service cannot change.
pub fn sealed(seal: &Seal) -> Announcement {
    let Seal { count, sequence, hash, .. } = seal;
    let text = format!("Predictions sealed: {count}. Seal {sequence}: {}", hex::encode(hash.0));
    Announcement { kind: Kind::Sealed, text }
}

/// Builds the chat message, including the data that apps need to render it in their own way.
pub fn message(event: MatchId, announcement: &Announcement, now: Option<Standing>) -> Value {
    let scores = now.and_then(|now| now.scores());
    json!({
        "msgtype": "m.notice",
        "body": announcement.text,
        "app.matchday.announcement": {
            "kind": announcement.kind.name(),
            "event_id": event,
            "home_score": scores.map(|scores| scores.0),
            "away_score": scores.map(|scores| scores.1),
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;
    use web::ids::{TeamId, TournamentId, UserId};

    use super::*;
    use crate::catalogue::matches::facts::TeamName;
    use crate::game::scores::rounds::Winner;

    fn standing(status: Status, scores: Option<(i32, i32)>) -> Standing {
        let (home_score, away_score) = scores.unzip();
        let start_time = datetime!(2026-11-20 15:00 UTC);
        Standing { status, start_time, home_score, away_score, advanced: None }
    }

    fn fact(before: Option<Standing>, now: Standing) -> MatchFact {
        MatchFact {
            round: None,
            event_id: MatchId(7),
            tournament_id: TournamentId(1),
            home_team: TeamName { id: TeamId(1), name: "Rovers".to_owned() },
            away_team: TeamName { id: TeamId(2), name: "City".to_owned() },
            result_revision: 0,
            now,
            before,
        }
    }

    fn texts(before: (Status, Option<(i32, i32)>), now: (Status, Option<(i32, i32)>)) -> Vec<String> {
        let fact = fact(Some(standing(before.0, before.1)), standing(now.0, now.1));
        announcements(&fact).into_iter().map(|announcement| announcement.text).collect()
    }

    #[test]
    fn match_is_announced_from_kick_off_to_correction() {
        use Status::{Abandoned, Finished, Live, Scheduled, Suspended};
        assert_eq!(texts((Scheduled, None), (Live, Some((0, 0)))), ["Kick-off: Rovers – City"]);
        assert_eq!(texts((Live, Some((0, 0))), (Live, Some((1, 0)))), ["Goal for Rovers! Rovers 1 – 0 City"]);
        assert_eq!(
            texts((Live, Some((1, 0))), (Live, Some((0, 0)))),
            ["Goal for Rovers disallowed. Rovers 0 – 0 City"]
        );
        assert_eq!(texts((Live, Some((1, 0))), (Suspended, Some((1, 0)))), ["Rovers – City is interrupted"]);
        assert_eq!(texts((Suspended, Some((1, 0))), (Live, Some((1, 0)))), ["Rovers – City has resumed"]);
        assert_eq!(
            texts((Live, Some((1, 0))), (Finished, Some((1, 1)))),
            ["Goal for City! Rovers 1 – 1 City", "Full time: Rovers 1 – 1 City"]
        );
        assert_eq!(
            texts((Finished, Some((1, 1))), (Finished, Some((2, 1)))),
            ["Corrected result: Rovers 2 – 1 City (previously Rovers 1 – 1 City)"]
        );
        assert_eq!(
            texts((Finished, Some((2, 1))), (Abandoned, Some((2, 1)))),
            ["Corrected result: Rovers – City does not count (previously Rovers 2 – 1 City)"]
        );
        // A feed that was down reports everything in one change.
        assert_eq!(
            texts((Scheduled, None), (Live, Some((1, 2)))),
            ["Kick-off: Rovers – City", "Goal for Rovers! Rovers 1 – 2 City", "Goal for City! Rovers 1 – 2 City"]
        );
    }

    #[test]
    fn new_match_and_moved_kick_off_are_not_announced() {
        assert!(announcements(&fact(None, standing(Status::Finished, Some((3, 0))))).is_empty());
        let before = standing(Status::Scheduled, None);
        let after = Standing { start_time: before.start_time + time::Duration::HOUR, ..before };
        assert!(announcements(&fact(Some(before), after)).is_empty());
    }

    fn any_standing() -> impl Strategy<Value = Standing> {
        (0..Status::ALL.len(), proptest::option::of((0..5, 0..5)))
            .prop_map(|(status, scores)| standing(Status::ALL[status], scores))
    }

    #[test]
    fn round_names_its_winners() {
        let fact = |names: &[&str]| RoundFact {
            event_id: MatchId(7),
            tournament_id: TournamentId(1),
            tournament: "Cup".to_owned(),
            round: 4,
            winners: names
                .iter()
                .map(|name| Winner { id: UserId(1), username: (*name).to_owned(), name: None })
                .collect(),
            points: (!names.is_empty()).then_some(90),
        };
        let text = |names: &[&str]| round_completed(&fact(names)).text;
        assert_eq!(text(&["ada"]), "Round 4 of Cup is complete: ada won it with 90 points");
        assert_eq!(text(&["ada", "bo"]), "Round 4 of Cup is complete: ada, bo won it with 90 points each");
        assert_eq!(text(&[]), "Round 4 of Cup is complete: no user predicted its matches");
    }

    proptest! {
        #[test]
        fn unchanged_state_is_not_announced(standing in any_standing()) {
            prop_assert!(announcements(&fact(Some(standing), standing)).is_empty());
        }

        #[test]
        fn goals_are_announced_only_during_the_match(before in any_standing(), now in any_standing()) {
            let announced = announcements(&fact(Some(before), now));
            let kinds: Vec<Kind> = announced.iter().map(|announcement| announcement.kind).collect();
            let scored = now.home_score.unwrap_or_default() > before.home_score.unwrap_or_default();
            if before.outcome() == Outcome::Open && is_played(now.status) && now.scores().is_some() && scored {
                prop_assert!(kinds.contains(&Kind::Goal));
            }
            if before.outcome() != Outcome::Open {
                prop_assert!(!kinds.contains(&Kind::Goal));
            }
        }
    }
}
