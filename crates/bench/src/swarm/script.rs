//! Script of an evening: the number of arrivals of each action and their times. Pure functions of the number of fans and
//! the length of the evening, so that every agent computes its own share.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::action::Action;

/// Moments of an evening, as shares of its length.
pub(crate) const KICK_OFF: f64 = 0.5;
pub(crate) const GOAL: f64 = 0.62;
pub(crate) const WHISTLE: f64 = 0.75;

/// An action of the script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) action: Action,
    /// Number of arrivals per fan during the evening.
    pub(crate) per_fan: f64,
    /// Density of the arrivals: points of moment and weight, with straight lines between them.
    pub(crate) curve: &'static [(f64, f64)],
}

/// The evening of a final. Fans arrive before kick-off, predict more and more until it, listen during the match, and look
/// at their points and ranks after the whistle.
pub(crate) const FINAL_EVENING: [Line; 13] = [
    Line { action: Action::LogIn, per_fan: 0.05, curve: &[(0.0, 1.0), (0.4, 3.0), (KICK_OFF, 1.0), (1.0, 0.2)] },
    Line {
        action: Action::Matches,
        per_fan: 6.0,
        curve: &[(0.0, 1.0), (KICK_OFF, 3.0), (WHISTLE, 2.0), (0.8, 4.0), (1.0, 1.0)],
    },
    Line { action: Action::OneMatch, per_fan: 1.0, curve: &[(0.0, 1.0), (KICK_OFF, 2.0), (WHISTLE, 2.0), (1.0, 1.0)] },
    Line { action: Action::Profile, per_fan: 0.5, curve: &[(0.0, 2.0), (KICK_OFF, 1.0), (1.0, 1.0)] },
    Line { action: Action::Listen, per_fan: 0.2, curve: &[(0.0, 1.0), (0.45, 3.0), (KICK_OFF, 0.0)] },
    Line { action: Action::Predict, per_fan: 1.5, curve: &[(0.0, 0.2), (0.35, 1.0), (KICK_OFF, 6.0)] },
    Line { action: Action::MatchPredictions, per_fan: 0.3, curve: &[(0.1, 1.0), (KICK_OFF, 2.0), (1.0, 1.0)] },
    Line { action: Action::Join, per_fan: 0.01, curve: &[(0.2, 1.0), (KICK_OFF, 1.0)] },
    Line { action: Action::RoomStats, per_fan: 0.1, curve: &[(0.3, 1.0), (1.0, 1.0)] },
    Line { action: Action::Claim, per_fan: 0.3, curve: &[(0.0, 1.0), (KICK_OFF, 2.0), (1.0, 0.5)] },
    Line { action: Action::Deduct, per_fan: 0.3, curve: &[(0.0, 0.5), (KICK_OFF, 2.0), (1.0, 1.0)] },
    Line {
        action: Action::Rank,
        per_fan: 1.0,
        curve: &[(0.0, 0.1), (WHISTLE, 0.1), (0.77, 6.0), (0.85, 2.0), (1.0, 0.5)],
    },
    Line {
        action: Action::OwnPredictions,
        per_fan: 0.8,
        curve: &[(0.0, 0.2), (WHISTLE, 0.2), (0.78, 5.0), (1.0, 0.5)],
    },
];

/// Most joins a second: one homeserver manages about ten.
const JOINS_A_SECOND: f64 = 4.0;

/// All arrivals of one action, with the curve in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Course {
    pub(crate) action: Action,
    pub(crate) arrivals: u64,
    curve: Vec<(f64, f64)>,
}

/// Courses of a script for this number of fans.
pub(crate) fn courses(script: &[Line], fans: u64, length: Duration) -> Vec<Course> {
    let seconds = length.as_secs_f64();
    let course = |line: &Line| {
        let curve: Vec<_> = line.curve.iter().map(|(moment, weight)| (moment * seconds, *weight)).collect();
        let most = if line.action == Action::Join {
            JOINS_A_SECOND * (curve[curve.len() - 1].0 - curve[0].0)
        } else {
            f64::INFINITY
        };
        Course { action: line.action, arrivals: whole((float(fans) * line.per_fan).min(most)), curve }
    };
    script.iter().map(course).collect()
}

impl Course {
    /// Arrivals at a constant rate.
    pub(crate) fn steady(action: Action, arrivals: u64, length: Duration) -> Self {
        Self { action, arrivals, curve: vec![(0.0, 1.0), (length.as_secs_f64(), 1.0)] }
    }

    /// Time of an arrival after the start of the evening. Each arrival has its own slot of the curve's area and a random
    /// place in it, so that arrivals are neither in step nor out of order.
    pub(crate) fn due(&self, arrival: u64) -> Duration {
        let place = (float(arrival) + fraction(arrival ^ (self.action as u64) << 48)) / float(self.arrivals.max(1));
        Duration::from_secs_f64(self.moment(place.min(1.0) * self.area()))
    }

    /// Moment at which the area under the curve reaches this size.
    fn moment(&self, mut area: f64) -> f64 {
        for pair in self.curve.windows(2) {
            let [(from, low), (to, high)] = pair else { continue };
            let (width, whole) = (to - from, (to - from) * f64::midpoint(*low, *high));
            if area <= whole && whole > 0.0 {
                // Solves low·x + slope·x²/2 = area, in the form that is stable for small slopes.
                let slope = (high - low) / width;
                let root = (low * low + 2.0 * slope * area).max(0.0).sqrt();
                return (from + 2.0 * area / (low + root).max(f64::MIN_POSITIVE)).clamp(*from, *to);
            }
            area -= whole;
        }
        self.curve.last().map_or(0.0, |point| point.0)
    }

    fn area(&self) -> f64 {
        self.curve.windows(2).map(|pair| (pair[1].0 - pair[0].0) * f64::midpoint(pair[0].1, pair[1].1)).sum()
    }

    /// Rate at the time of the average arrival: higher than the average rate of an uneven curve.
    pub(crate) fn felt_rate(&self) -> f64 {
        let squares: f64 = self
            .curve
            .windows(2)
            .map(|pair| {
                let (low, high) = (pair[0].1, pair[1].1);
                (pair[1].0 - pair[0].0) * (low * low + low * high + high * high) / 3.0
            })
            .sum();
        let area = self.area();
        if area > 0.0 { float(self.arrivals) * squares / (area * area) } else { 0.0 }
    }

    /// Arrivals of one of several agents: every nth.
    pub(crate) fn share(&self, agent: u64, agents: u64) -> impl Iterator<Item = u64> + use<> {
        (agent..self.arrivals).step_by(usize::try_from(agents.max(1)).unwrap_or(usize::MAX))
    }
}

/// Step between the fans of consecutive arrivals: a walk with it visits every fan before it repeats one.
pub(crate) fn stride(fans: u64) -> u64 {
    let start = whole(float(fans) * 0.618).max(1);
    (start..=start + fans).find(|step| greatest_common_divisor(*step, fans) == 1).unwrap_or(1)
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

/// A number from 0 to 1 that looks random and is the same in each run (`SplitMix64`).
pub(crate) fn fraction(seed: u64) -> f64 {
    float(scatter(seed) >> 11) / float(1 << 53)
}

/// Mixes the bits of a number.
pub(crate) fn scatter(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(crate) fn float(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are positive and below 2^53")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn curves() -> impl Strategy<Value = Course> {
        let points = prop::collection::vec((0.1_f64..50.0, 0.0_f64..9.0), 2..7);
        (points, 1_u64..3_000).prop_filter_map("the curve has an area", |(points, arrivals)| {
            let mut at = 0.0;
            let curve = points.into_iter().map(|(width, weight)| {
                at += width;
                (at, weight)
            });
            let course = Course { action: Action::Matches, arrivals, curve: curve.collect() };
            (course.area() > 0.1).then_some(course)
        })
    }

    proptest! {
        #[test]
        fn arrivals_are_in_order_and_within_the_curve(course in curves()) {
            let times: Vec<f64> = (0..course.arrivals).map(|arrival| course.due(arrival).as_secs_f64()).collect();
            prop_assert!(times.is_sorted());
            prop_assert!(times[0] >= course.curve[0].0 - 1e-6);
            prop_assert!(times[times.len() - 1] <= course.curve[course.curve.len() - 1].0 + 1e-6);
        }

        #[test]
        fn arrivals_follow_the_area_under_the_curve(course in curves(), share in 0.0_f64..1.0) {
            let until = course.moment(share * course.area());
            let before = (0..course.arrivals).filter(|arrival| course.due(*arrival).as_secs_f64() < until).count();
            let expected = share * float(course.arrivals);
            prop_assert!((float(before as u64) - expected).abs() <= 1.5, "{before} instead of {expected}");
        }

        #[test]
        fn agents_share_all_arrivals(course in curves(), agents in 1_u64..9) {
            let mut all: Vec<u64> = (0..agents).flat_map(|agent| course.share(agent, agents)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..course.arrivals).collect::<Vec<_>>());
        }

        #[test]
        fn walk_visits_every_fan_once(fans in 1_u64..5_000) {
            let step = stride(fans);
            let visited: BTreeSet<u64> = (0..fans).map(|place| place * step % fans).collect();
            prop_assert_eq!(visited.len() as u64, fans);
        }

        #[test]
        fn script_has_its_arrivals_per_fan(fans in 0_u64..200_000, minutes in 1_u64..30) {
            let length = Duration::from_mins(minutes);
            for (line, course) in FINAL_EVENING.iter().zip(courses(&FINAL_EVENING, fans, length)) {
                let expected = float(fans) * line.per_fan;
                prop_assert!(float(course.arrivals) <= expected + 0.5);
                prop_assert!(line.action == Action::Join || float(course.arrivals) >= expected - 0.5);
                prop_assert!(course.due(course.arrivals.saturating_sub(1)) <= length);
            }
        }
    }

    #[test]
    fn predictions_rise_until_kick_off_and_ranks_follow_the_whistle() {
        let length = Duration::from_mins(10);
        let courses = courses(&FINAL_EVENING, 10_000, length);
        let between = |action: Action, from: f64, to: f64| {
            let course = courses.iter().find(|course| course.action == action).expect("in the script");
            let times = (0..course.arrivals).map(|arrival| course.due(arrival).as_secs_f64() / length.as_secs_f64());
            times.filter(|moment| (from..to).contains(moment)).count()
        };
        assert_eq!(between(Action::Predict, KICK_OFF, 1.1), 0);
        assert!(between(Action::Predict, 0.4, KICK_OFF) > 3 * between(Action::Predict, 0.3, 0.4) / 2);
        assert!(between(Action::Rank, WHISTLE, 0.85) > 5 * between(Action::Rank, 0.0, WHISTLE));
    }

    #[test]
    fn felt_rate_of_a_steady_course_is_its_rate() {
        let steady = Course::steady(Action::Rank, 500, Duration::from_secs(10));
        assert!((steady.felt_rate() - 50.0).abs() < 1e-9);
        let uneven = Course { curve: vec![(0.0, 0.0), (10.0, 1.0)], ..steady };
        assert!(uneven.felt_rate() > 60.0);
    }
}
