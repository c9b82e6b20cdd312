//! Rules of a sport and a match for predictions; no I/O.

use std::{collections::HashSet, fmt};

use scoring::{Forecast, Pick, Score};
use web::ids::{MatchId, TournamentId};

/// Maximum number of revisions of a prediction. All of them are kept, so it bounds the storage that an account can use.
pub const MOST_REVISIONS: i32 = 50;

/// What a match and its sport allow in a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Tournament in which jokers are counted.
    pub tournament: TournamentId,
    pub draws_allowed: bool,
    /// Highest score of a team that can be predicted.
    pub max_score: i16,
    pub is_knockout: bool,
    /// Number of jokers of a user in the tournament.
    pub jokers: i32,
}

/// Rule that a forecast breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A match of this sport cannot end in a draw.
    Draw,
    /// The score of a team is higher than this.
    Score(i16),
    /// The match is not a knockout match, so no team advances.
    NotKnockout,
    /// In a sport without draws, the winner advances.
    WinnerAdvances,
    /// The rule set of the match has no jokers.
    NoJokers,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Draw => f.write_str("must be home or away, because this sport has no draws"),
            Self::Score(most) => write!(f, "must be at most {most} for each team"),
            Self::NotKnockout => f.write_str("can be given only for a knockout match"),
            Self::WinnerAdvances => f.write_str("must be the predicted winner, because this sport has no draws"),
            Self::NoJokers => f.write_str("cannot be played in this match"),
        }
    }
}

/// Returns the first rule that a forecast breaks. The SQL function `allows_prediction` decides the same for forecasts
/// without a joker.
pub fn check_forecast(forecast: Forecast, conditions: &Conditions) -> Option<Broken> {
    let too_high = |score: Score| score.home().max(score.away()) > conditions.max_score;
    let contradicts = |side: scoring::Side| side.wins() != forecast.pick();
    if forecast.pick() == Pick::Draw && !conditions.draws_allowed {
        Some(Broken::Draw)
    } else if forecast.score().is_some_and(too_high) {
        Some(Broken::Score(conditions.max_score))
    } else if forecast.advances().is_some() && !conditions.is_knockout {
        Some(Broken::NotKnockout)
    } else if forecast.advances().is_some_and(contradicts) && !conditions.draws_allowed {
        Some(Broken::WinnerAdvances)
    } else if forecast.joker() && conditions.jokers == 0 {
        Some(Broken::NoJokers)
    } else {
        None
    }
}

/// Applies a new prediction to the matches of a tournament in which a user plays a joker. Returns false, and changes
/// nothing, if no joker is left for it.
pub(super) fn play_joker(played: &mut HashSet<MatchId>, event: MatchId, forecast: Forecast, jokers: i32) -> bool {
    if !forecast.joker() {
        played.remove(&event);
        return true;
    }
    let others = played.iter().filter(|&&other| other != event).count();
    let is_left = i32::try_from(others).is_ok_and(|others| others < jokers);
    if is_left {
        played.insert(event);
    }
    is_left
}

#[cfg(test)]
mod tests {
    use scoring::{Confidence, Side};

    use super::*;

    fn forecast(pick: Pick, score: Option<(i64, i64)>) -> Forecast {
        let score = score.and_then(|(home, away)| Score::new(home, away));
        Forecast::new(pick, score, Confidence::default()).expect("no contradiction")
    }

    #[test]
    fn sport_and_match_limit_forecasts() {
        let football = Conditions {
            tournament: TournamentId(1),
            draws_allowed: true,
            max_score: 99,
            is_knockout: false,
            jokers: 0,
        };
        let knockout = Conditions { is_knockout: true, jokers: 1, ..football };
        let basketball = Conditions { draws_allowed: false, max_score: 299, ..knockout };
        let (home, draw) = (forecast(Pick::Home, None), forecast(Pick::Draw, None));
        for (forecast, conditions, expected) in [
            (home, football, None),
            (draw, football, None),
            (draw, basketball, Some(Broken::Draw)),
            (forecast(Pick::Home, Some((99, 98))), football, None),
            (forecast(Pick::Home, Some((100, 0))), football, Some(Broken::Score(99))),
            (forecast(Pick::Away, Some((0, 300))), basketball, Some(Broken::Score(299))),
            (home.with_advances(Some(Side::Home)), football, Some(Broken::NotKnockout)),
            (home.with_advances(Some(Side::Away)), knockout, None),
            (draw.with_advances(Some(Side::Away)), knockout, None),
            (home.with_advances(Some(Side::Away)), basketball, Some(Broken::WinnerAdvances)),
            (home.with_advances(Some(Side::Home)), basketball, None),
            (home.with_joker(true), football, Some(Broken::NoJokers)),
            (home.with_joker(true), knockout, None),
        ] {
            assert_eq!(check_forecast(forecast, &conditions), expected, "{forecast:?} {conditions:?}");
        }
    }

    #[test]
    fn jokers_run_out_and_can_be_taken_back() {
        let (with, without) = (forecast(Pick::Home, None).with_joker(true), forecast(Pick::Home, None));
        let mut played = HashSet::new();
        assert!(play_joker(&mut played, MatchId(1), with, 1));
        assert!(play_joker(&mut played, MatchId(1), with, 1), "the same match keeps its joker");
        assert!(!play_joker(&mut played, MatchId(2), with, 1));
        assert_eq!(played, HashSet::from([MatchId(1)]));
        assert!(play_joker(&mut played, MatchId(1), without, 1));
        assert!(play_joker(&mut played, MatchId(2), with, 1));
    }
}
