//! Selection and texts of announcements; no I/O.

use scoring::Outcome;
use serde_json::{Value, json};
use texts::{Args, Catalogue};
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
pub fn announcements(texts: &Catalogue, fact: &MatchFact) -> Vec<Announcement> {
    let Some(before) = fact.before else { return Vec::new() };
    let now = fact.now;
    let mut announcements = Vec::new();
    let (home, away) = (&fact.home_team.name, &fact.away_team.name);
    let teams = || Args::new().text("home", home.as_str()).text("away", away.as_str());
    let scored = |standing: Standing| Args::new().text("score", score(home, away, standing).unwrap_or_default());
    let mut announce = |kind, id: &str, args: Args<'_>| {
        announcements.push(Announcement { kind, text: texts.default_text(id, &args) });
    };

    let was_decided = before.outcome() != Outcome::Open;
    if was_decided {
        if before.outcome() != now.outcome() {
            let previous =
                score(home, away, before).unwrap_or_else(|| texts.default_text("bot-no-result", &Args::new()));
            let current = match now.outcome() {
                Outcome::Result { .. } => score(home, away, now).unwrap_or_default(),
                Outcome::Void => texts.default_text("bot-not-counted", &teams()),
                Outcome::Open => texts.default_text("bot-not-finished", &teams()),
            };
            announce(Kind::Corrected, "bot-corrected", Args::new().text("now", current).text("previous", previous));
        }
        return announcements;
    }
    match (before.status, now.status) {
        (Status::Scheduled | Status::Postponed, Status::Live) => announce(Kind::KickOff, "bot-kick-off", teams()),
        (Status::Suspended, Status::Live) => announce(Kind::Resumed, "bot-resumed", teams()),
        _ => {}
    }
    if is_played(now.status) {
        let (before, goals) =
            (before.scores().unwrap_or_default(), now.scores().unwrap_or(before.scores().unwrap_or_default()));
        for (team, before, goals) in [(home, before.0, goals.0), (away, before.1, goals.1)] {
            if goals > before {
                announce(Kind::Goal, "bot-goal", scored(now).text("team", team.as_str()));
            } else if goals < before {
                announce(Kind::GoalTakenBack, "bot-goal-disallowed", scored(now).text("team", team.as_str()));
            }
        }
    }
    match (before.status, now.status) {
        (before, now) if before == now => {}
        (_, Status::Suspended) => announce(Kind::Suspended, "bot-interrupted", teams()),
        (_, Status::Finished) => announce(Kind::FullTime, "bot-full-time", scored(now)),
        (_, Status::Abandoned) => announce(Kind::CalledOff, "bot-abandoned", teams()),
        (_, Status::Cancelled) => announce(Kind::CalledOff, "bot-cancelled", teams()),
        (_, Status::Awarded) => announce(Kind::CalledOff, "bot-awarded", scored(now)),
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

/// Announces the best predictors, given as (name, points) with the best first. After a correction, members have seen an
/// earlier list.
pub fn best_predictors(
    texts: &Catalogue,
    home: &str,
    away: &str,
    best: &[(String, i32)],
    is_corrected: bool,
) -> Option<Announcement> {
    if best.is_empty() {
        return None;
    }
    let named: Vec<String> = best.iter().map(|(name, points)| format!("{name} ({points})")).collect();
    let args = Args::new().text("home", home).text("away", away).text("names", named.join(", "));
    let id = if is_corrected { "bot-best-predictors-corrected" } else { "bot-best-predictors" };
    Some(Announcement { kind: Kind::BestPredictors, text: texts.default_text(id, &args) })
}

/// Announces that a round is complete, with its winners.
pub fn round_completed(texts: &Catalogue, fact: &RoundFact) -> Announcement {
    let RoundFact { tournament, round, winners, points, .. } = fact;
    let names: Vec<&str> = winners.iter().map(|winner| winner.username.as_str()).collect();
    let number = points.map_or(0, |_| i64::try_from(names.len()).unwrap_or(i64::MAX));
    let args = Args::new()
        .text("round", round.to_string())
        .text("tournament", tournament.as_str())
        .number("winners", number)
        .text("names", names.join(", "))
        .text("points", points.unwrap_or_default().to_string());
    Announcement { kind: Kind::RoundCompleted, text: texts.default_text("bot-round-completed", &args) }
}

/// Publishes a seal in a room, where its members keep a copy that the operator of the service cannot change.
pub fn sealed(texts: &Catalogue, seal: &Seal) -> Announcement {
    let Seal { count, sequence, hash, .. } = seal;
    let args =
        Args::new().number("count", *count).text("sequence", sequence.to_string()).text("hash", hex::encode(hash.0));
    Announcement { kind: Kind::Sealed, text: texts.default_text("bot-sealed", &args) }
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
    use crate::game::{
        scores::rounds::Winner,
        seals::rules::{Content, root},
    };

    fn english() -> Catalogue {
        Catalogue::load(&texts::Locale::default(), None).expect("texts")
    }

    fn announcements(fact: &MatchFact) -> Vec<Announcement> {
        super::announcements(&english(), fact)
    }

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
        let text = |names: &[&str]| round_completed(&english(), &fact(names)).text;
        assert_eq!(text(&["ada"]), "Round 4 of Cup is complete: ada won it with 90 points");
        assert_eq!(text(&["ada", "bo"]), "Round 4 of Cup is complete: ada, bo won it with 90 points each");
        assert_eq!(text(&[]), "Round 4 of Cup is complete: no user predicted its matches");
    }

    #[test]
    fn best_predictors_say_that_they_were_corrected() {
        let text = |is_corrected| {
            let best = [("ada".to_owned(), 40), ("bo".to_owned(), 12)];
            best_predictors(&english(), "Rovers", "City", &best, is_corrected).expect("an announcement").text
        };
        assert_eq!(text(false), "Best predictors of Rovers – City in this room: ada (40), bo (12)");
        assert_eq!(text(true), "Best predictors of Rovers – City in this room after the correction: ada (40), bo (12)");
    }

    #[test]
    fn seal_is_announced_in_one_line_with_its_hash() {
        let at = datetime!(2026-11-20 15:00 UTC);
        for (count, predictions) in [(0, "0 predictions"), (1, "1 prediction"), (2_000, "2000 predictions")] {
            let content = Content { event: MatchId(7), event_sequence: 1, count, root: root(&[]), start_time: at };
            let seal = content.seal((4, root(&[])), at);
            // The web app recognises the separator and the hash.
            let expected = format!("{predictions} sealed · Seal 5: {}", hex::encode(seal.hash.0));
            assert_eq!(sealed(&english(), &seal).text, expected);
        }
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
