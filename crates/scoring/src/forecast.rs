//! Content of a prediction: a pick, an optional score, a confidence, an optional team that advances, and a joker.

use std::{cmp::Ordering, str::FromStr};

use serde::{Deserialize, Serialize};

/// The predicted winner, or a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// The home team wins.
    Home,
    /// The match ends in a draw.
    Draw,
    /// The away team wins.
    Away,
}

impl Pick {
    pub const ALL: [Self; 3] = [Self::Home, Self::Draw, Self::Away];

    /// Name in JSON and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Draw => "draw",
            Self::Away => "away",
        }
    }

    /// Returns the pick that is right for this result.
    pub fn of(home: i32, away: i32) -> Self {
        match home.cmp(&away) {
            Ordering::Greater => Self::Home,
            Ordering::Equal => Self::Draw,
            Ordering::Less => Self::Away,
        }
    }
}

/// Error for a name that is not one of the three picks.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is neither home, draw nor away")]
pub struct UnknownPick(String);

impl FromStr for Pick {
    type Err = UnknownPick;

    fn from_str(name: &str) -> Result<Self, UnknownPick> {
        Self::ALL.into_iter().find(|pick| pick.name() == name).ok_or_else(|| UnknownPick(name.to_owned()))
    }
}

/// One of the two teams of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Home,
    Away,
}

impl Side {
    pub const ALL: [Self; 2] = [Self::Home, Self::Away];

    /// Name in JSON and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Away => "away",
        }
    }

    /// The pick that this team wins.
    pub fn wins(self) -> Pick {
        match self {
            Self::Home => Pick::Home,
            Self::Away => Pick::Away,
        }
    }
}

/// Error for a name that is neither of the teams.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is neither home nor away")]
pub struct UnknownSide(String);

impl FromStr for Side {
    type Err = UnknownSide;

    fn from_str(name: &str) -> Result<Self, UnknownSide> {
        Self::ALL.into_iter().find(|side| side.name() == name).ok_or_else(|| UnknownSide(name.to_owned()))
    }
}

/// A predicted score, with 0 to 999 points or goals per team. A sport can have a lower limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ScorePrediction))]
pub struct Score {
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 999, example = 2))]
    home: i16,
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 999, example = 1))]
    away: i16,
}

impl Score {
    /// Greatest score of a team.
    pub const MOST: i16 = 999;

    /// Returns `None` if either number of goals is out of range.
    pub fn new(home: i64, away: i64) -> Option<Self> {
        let goals = |number| i16::try_from(number).ok().filter(|number| (0..=Self::MOST).contains(number));
        Some(Self { home: goals(home)?, away: goals(away)? })
    }

    pub fn home(self) -> i16 {
        self.home
    }

    pub fn away(self) -> i16 {
        self.away
    }

    /// Returns the pick that this score implies.
    pub fn pick(self) -> Pick {
        Pick::of(self.home.into(), self.away.into())
    }
}

/// A user's confidence in their pick, from 0 to 100 percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Confidence(i16);

impl Confidence {
    /// Returns `None` if the percentage is out of range.
    pub fn new(percent: i64) -> Option<Self> {
        i16::try_from(percent).ok().filter(|percent| (0..=100).contains(percent)).map(Self)
    }

    pub fn percent(self) -> i16 {
        self.0
    }
}

/// Content of a prediction. A score, if given, never contradicts the pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    pick: Pick,
    score: Option<Score>,
    confidence: Confidence,
    advances: Option<Side>,
    joker: bool,
}

impl Forecast {
    /// Creates a forecast without a team that advances and without a joker. Returns `None` if the score contradicts the
    /// pick.
    pub fn new(pick: Pick, score: Option<Score>, confidence: Confidence) -> Option<Self> {
        let agrees = score.is_none_or(|score| score.pick() == pick);
        agrees.then_some(Self { pick, score, confidence, advances: None, joker: false })
    }

    /// Sets the team that advances in a knockout match. It need not be the team that wins the match: a tie can have two
    /// matches, and a draw has no winner.
    #[must_use]
    pub fn with_advances(self, advances: Option<Side>) -> Self {
        Self { advances, ..self }
    }

    /// Sets whether the user plays a joker, which doubles all points of the match.
    #[must_use]
    pub fn with_joker(self, joker: bool) -> Self {
        Self { joker, ..self }
    }

    pub fn pick(self) -> Pick {
        self.pick
    }

    /// Returns the predicted score; `None` if the user predicted only the outcome.
    pub fn score(self) -> Option<Score> {
        self.score
    }

    /// Returns the confidence in the pick. It does not apply to the score.
    pub fn confidence(self) -> Confidence {
        self.confidence
    }

    /// Returns the team that advances; `None` if the user named none.
    pub fn advances(self) -> Option<Side> {
        self.advances
    }

    pub fn joker(self) -> bool {
        self.joker
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn forecast(pick: Pick, score: Option<(i64, i64)>, confidence: i64) -> Forecast {
        let score = score.map(|(home, away)| Score::new(home, away).expect("a score"));
        Forecast::new(pick, score, Confidence::new(confidence).expect("a confidence")).expect("no contradiction")
    }

    #[test]
    fn every_pick_parses_from_its_name() {
        for pick in Pick::ALL {
            assert_eq!(pick.name().parse::<Pick>().expect("a pick"), pick);
            assert_eq!(serde_json::to_value(pick).expect("JSON"), pick.name());
        }
        assert!("Home".parse::<Pick>().is_err());
        for side in Side::ALL {
            assert_eq!(side.name().parse::<Side>().expect("a side"), side);
            assert_eq!(serde_json::to_value(side).expect("JSON"), side.name());
            assert_eq!(side.wins().name(), side.name());
        }
        assert!("draw".parse::<Side>().is_err());
    }

    proptest! {
        #[test]
        fn rejects_scores_and_confidence_out_of_range(home: i64, away: i64, near in -5_i64..=1_020) {
            let possible = |goals: i64| (0..=999).contains(&goals);
            prop_assert_eq!(Score::new(home, near).is_some(), possible(home) && possible(near));
            prop_assert_eq!(Score::new(near, away).is_some(), possible(near) && possible(away));
            prop_assert_eq!(Confidence::new(near).is_some(), (0..=100).contains(&near));
            prop_assert_eq!(Confidence::new(home).is_some(), (0..=100).contains(&home));
        }

        #[test]
        fn rejects_score_that_contradicts_the_pick(home in 0_i64..=99, away in 0_i64..=99) {
            let score = Score::new(home, away).expect("a score");
            for pick in Pick::ALL {
                let forecast = Forecast::new(pick, Some(score), Confidence::default());
                prop_assert_eq!(forecast.is_some(), score.pick() == pick);
            }
        }
    }
}
