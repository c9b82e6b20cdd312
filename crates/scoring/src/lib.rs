//! Points rules for predictions: the content of a prediction, its points for an outcome under a rule set, the
//! explanation of these points, and the calibration of a user's confidence.
//!
//! Every function is pure: no I/O, no clock, no database. The service stores forecasts and rule sets as plain columns
//! and implements [`Forecast::points`] a second time in SQL (`prediction_points`), so that it can sum the points of a
//! whole match. The service's tests compare the two implementations.

mod calibration;
mod explanation;
mod forecast;
mod outcome;
mod points;
mod rule_set;

pub use calibration::{Bin, Calibration};
pub use explanation::{PointsPart, PointsReason, PredictionState, explain};
pub use forecast::{Confidence, Forecast, Pick, Score, Side, UnknownPick, UnknownSide};
pub use outcome::Outcome;
pub use points::{Earnings, Hit, Preview};
pub use rule_set::{FORMULA_VERSION, MOST_POINTS, Margin, Multiplier, RuleSet, Terms, UnknownMultiplier};
