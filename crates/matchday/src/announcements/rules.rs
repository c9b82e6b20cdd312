//! Which changes of a match are worth telling, and in which words; no I/O.

use scoring::Outcome;
use serde_json::{Value, json};
use web::ids::EventId;

use crate::events::{
    facts::{EventFact, Standing},
    rules::Status,
};

/// Something that a room is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// What it is about, for apps that show it in their own way.
    pub kind: Kind,
    /// For people.
    pub text: String,
}

/// What an announcement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A match began.
    KickOff,
    /// A team scored.
    Goal,
    /// A goal was taken back.
    GoalTakenBack,
    /// A match was interrupted.
    Suspended,
    /// It goes on.
    Resumed,
    /// A match is over.
    FullTime,
    /// A match came to nothing, or was decided otherwise.
    CalledOff,
    /// A result was not what it seemed to be.
    Corrected,
    /// Who predicted best.
    BestPredictors,
}

impl Kind {
    /// As apps read it.
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
        }
    }
}

/// What is told of a change. Of a match that comes in as it is nothing is told: nobody saw it happen.
pub fn announcements(fact: &EventFact) -> Vec<Announcement> {
    let Some(before) = fact.before else { return Vec::new() };
    let now = fact.now;
    let mut told = Vec::new();
    let (home, away) = (&fact.home_team.name, &fact.away_team.name);
    let mut tell = |kind, text: String| told.push(Announcement { kind, text });

    let was_decided = before.outcome() != Outcome::Open;
    if was_decided {
        if before.outcome() != now.outcome() {
            let was = score(home, away, before).unwrap_or_else(|| "no result".to_owned());
            let is = match now.outcome() {
                Outcome::Result { .. } => score(home, away, now).unwrap_or_default(),
                Outcome::Void => format!("{home} – {away} does not count"),
                Outcome::Open => format!("{home} – {away} is not over"),
            };
            tell(Kind::Corrected, format!("Corrected result: {is} (it was {was})"));
        }
        return told;
    }
    match (before.status, now.status) {
        (Status::Scheduled | Status::Postponed, Status::Live) => {
            tell(Kind::KickOff, format!("Kick-off: {home} – {away}"));
        }
        (Status::Suspended, Status::Live) => tell(Kind::Resumed, format!("{home} – {away} goes on")),
        _ => {}
    }
    if is_played(now.status) {
        let (before, goals) =
            (before.scores().unwrap_or_default(), now.scores().unwrap_or(before.scores().unwrap_or_default()));
        for (team, before, goals) in [(home, before.0, goals.0), (away, before.1, goals.1)] {
            let shown = score(home, away, now).unwrap_or_default();
            if goals > before {
                tell(Kind::Goal, format!("Goal for {team}! {shown}"));
            } else if goals < before {
                tell(Kind::GoalTakenBack, format!("The goal for {team} does not count. {shown}"));
            }
        }
    }
    match (before.status, now.status) {
        (before, now) if before == now => {}
        (_, Status::Suspended) => tell(Kind::Suspended, format!("{home} – {away} is interrupted")),
        (_, Status::Finished) => {
            tell(Kind::FullTime, format!("Full time: {}", score(home, away, now).unwrap_or_default()));
        }
        (_, Status::Abandoned) => {
            tell(Kind::CalledOff, format!("{home} – {away} was abandoned; predictions do not count"));
        }
        (_, Status::Cancelled) => {
            tell(Kind::CalledOff, format!("{home} – {away} was cancelled; predictions do not count"));
        }
        (_, Status::Awarded) => {
            let shown = score(home, away, now).unwrap_or_default();
            tell(Kind::CalledOff, format!("{shown} was awarded; predictions do not count"));
        }
        _ => {}
    }
    told
}

/// Whether goals are scored, or were until just now.
fn is_played(status: Status) -> bool {
    matches!(status, Status::Live | Status::Suspended | Status::Finished)
}

fn score(home: &str, away: &str, standing: Standing) -> Option<String> {
    let (home_goals, away_goals) = standing.scores()?;
    Some(format!("{home} {home_goals} – {away_goals} {away}"))
}

/// Who did well, best first: name and points.
pub fn best_predictors(home: &str, away: &str, best: &[(String, i32)]) -> Option<Announcement> {
    if best.is_empty() {
        return None;
    }
    let named: Vec<String> = best.iter().map(|(name, points)| format!("{name} ({points})")).collect();
    let text = format!("Best predictors of {home} – {away} in this room: {}", named.join(", "));
    Some(Announcement { kind: Kind::BestPredictors, text })
}

/// An announcement as a chat message, with what apps need to show it in their own way.
pub fn message(event: EventId, announcement: &Announcement, now: Option<Standing>) -> Value {
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
    use web::ids::{TeamId, TournamentId};

    use super::*;
    use crate::events::facts::TeamName;

    fn standing(status: Status, scores: Option<(i32, i32)>) -> Standing {
        let (home_score, away_score) = scores.unzip();
        Standing { status, start_time: datetime!(2026-11-20 15:00 UTC), home_score, away_score }
    }

    fn fact(before: Option<Standing>, now: Standing) -> EventFact {
        EventFact {
            event_id: EventId(7),
            tournament_id: TournamentId(1),
            home_team: TeamName { id: TeamId(1), name: "Rovers".to_owned() },
            away_team: TeamName { id: TeamId(2), name: "City".to_owned() },
            result_revision: 0,
            now,
            before,
        }
    }

    fn told(before: (Status, Option<(i32, i32)>), now: (Status, Option<(i32, i32)>)) -> Vec<String> {
        let fact = fact(Some(standing(before.0, before.1)), standing(now.0, now.1));
        announcements(&fact).into_iter().map(|announcement| announcement.text).collect()
    }

    #[test]
    fn a_match_is_told_from_kick_off_to_correction() {
        use Status::{Abandoned, Finished, Live, Scheduled, Suspended};
        assert_eq!(told((Scheduled, None), (Live, Some((0, 0)))), ["Kick-off: Rovers – City"]);
        assert_eq!(told((Live, Some((0, 0))), (Live, Some((1, 0)))), ["Goal for Rovers! Rovers 1 – 0 City"]);
        assert_eq!(
            told((Live, Some((1, 0))), (Live, Some((0, 0)))),
            ["The goal for Rovers does not count. Rovers 0 – 0 City"]
        );
        assert_eq!(told((Live, Some((1, 0))), (Suspended, Some((1, 0)))), ["Rovers – City is interrupted"]);
        assert_eq!(told((Suspended, Some((1, 0))), (Live, Some((1, 0)))), ["Rovers – City goes on"]);
        assert_eq!(
            told((Live, Some((1, 0))), (Finished, Some((1, 1)))),
            ["Goal for City! Rovers 1 – 1 City", "Full time: Rovers 1 – 1 City"]
        );
        assert_eq!(
            told((Finished, Some((1, 1))), (Finished, Some((2, 1)))),
            ["Corrected result: Rovers 2 – 1 City (it was Rovers 1 – 1 City)"]
        );
        assert_eq!(
            told((Finished, Some((2, 1))), (Abandoned, Some((2, 1)))),
            ["Corrected result: Rovers – City does not count (it was Rovers 2 – 1 City)"]
        );
        // Nobody watched; a feed that was away tells all at once.
        assert_eq!(
            told((Scheduled, None), (Live, Some((1, 2)))),
            ["Kick-off: Rovers – City", "Goal for Rovers! Rovers 1 – 2 City", "Goal for City! Rovers 1 – 2 City"]
        );
    }

    #[test]
    fn what_comes_in_as_it_is_and_a_moved_kick_off_are_no_news() {
        assert!(announcements(&fact(None, standing(Status::Finished, Some((3, 0))))).is_empty());
        let before = standing(Status::Scheduled, None);
        let after = Standing { start_time: before.start_time + time::Duration::HOUR, ..before };
        assert!(announcements(&fact(Some(before), after)).is_empty());
    }

    fn any_standing() -> impl Strategy<Value = Standing> {
        (0..Status::ALL.len(), proptest::option::of((0..5, 0..5)))
            .prop_map(|(status, scores)| standing(Status::ALL[status], scores))
    }

    proptest! {
        #[test]
        fn nothing_new_is_nothing_told(standing in any_standing()) {
            prop_assert!(announcements(&fact(Some(standing), standing)).is_empty());
        }

        #[test]
        fn a_goal_is_told_while_it_is_played_and_never_afterwards(before in any_standing(), now in any_standing()) {
            let kinds: Vec<Kind> = announcements(&fact(Some(before), now)).iter().map(|told| told.kind).collect();
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
