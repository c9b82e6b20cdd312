//! Calibration: compares a user's stated confidence with their hit rate.

use crate::forecast::Confidence;

/// Each bin spans ten percent: 1 to 10, 11 to 20, and so on.
const BINS: usize = 10;

const WIDTH: i16 = 10;

/// Settled predictions of a user, grouped by confidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    pub settled: u32,
    /// Settled predictions with a confidence of 0. They state no confidence, so they belong to no bin.
    pub without_stake: u32,
    /// All settled predictions with a confidence of 1 or more.
    pub bins: [Bin; BINS],
}

/// Settled predictions of similar confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Lowest confidence of the bin, in percent.
    pub from: i16,
    /// Highest confidence of the bin, in percent.
    pub to: i16,
    pub count: u32,
    /// Number of predictions in the bin with the right pick.
    pub right: u32,
    /// Sum of the confidence of all predictions in the bin, in percent.
    confidence: u32,
}

impl Calibration {
    /// Groups settled predictions, each given as its confidence and whether its pick was right.
    pub fn of(settled: impl IntoIterator<Item = (Confidence, bool)>) -> Self {
        let mut from = 1 - WIDTH;
        let bins = [(); BINS].map(|()| {
            from += WIDTH;
            Bin { from, to: from + WIDTH - 1, ..Bin::default() }
        });
        let mut calibration = Self { settled: 0, without_stake: 0, bins };
        for (confidence, right) in settled {
            calibration.add(confidence, right);
        }
        calibration
    }

    /// Sum of all bins.
    pub fn overall(&self) -> Bin {
        let empty = Bin { from: 1, to: 100, ..Bin::default() };
        self.bins.iter().fold(empty, |sum, bin| Bin {
            count: sum.count + bin.count,
            right: sum.right + bin.right,
            confidence: sum.confidence + bin.confidence,
            ..sum
        })
    }

    fn add(&mut self, confidence: Confidence, right: bool) {
        let percent = confidence.percent();
        self.settled += 1;
        match self.bins.iter_mut().find(|bin| (bin.from..=bin.to).contains(&percent)) {
            Some(bin) => {
                bin.count += 1;
                bin.right += u32::from(right);
                bin.confidence += u32::from(percent.unsigned_abs());
            }
            None => self.without_stake += 1,
        }
    }
}

impl Bin {
    /// Average confidence in percent; `None` for an empty bin.
    pub fn average_confidence(&self) -> Option<f64> {
        (self.count > 0).then(|| f64::from(self.confidence) / f64::from(self.count))
    }

    /// Share of right picks, from 0 to 1; `None` for an empty bin.
    pub fn hit_rate(&self) -> Option<f64> {
        (self.count > 0).then(|| f64::from(self.right) / f64::from(self.count))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(settled: &[(i64, bool)]) -> Calibration {
        Calibration::of(
            settled.iter().map(|&(percent, right)| (Confidence::new(percent).expect("a confidence"), right)),
        )
    }

    #[test]
    fn bins_span_ten_percent_each() {
        let bounds: Vec<(i16, i16)> = of(&[]).bins.iter().map(|bin| (bin.from, bin.to)).collect();
        let expected = (1..=91).step_by(10).map(|from| (from, from + 9)).collect::<Vec<_>>();
        assert_eq!(bounds, expected);
        assert_eq!((bounds.first(), bounds.last()), (Some(&(1, 10)), Some(&(91, 100))));
    }

    #[test]
    fn empty_bin_has_no_averages() {
        for bin in of(&[]).bins {
            assert_eq!((bin.count, bin.average_confidence(), bin.hit_rate()), (0, None, None));
        }
        assert_eq!(of(&[(0, true)]).overall().hit_rate(), None);
    }

    #[test]
    fn counts_predictions_in_the_bin_of_their_confidence() {
        let calibration = of(&[(0, true), (1, false), (10, true), (11, true), (91, false), (100, true), (100, true)]);
        assert_eq!((calibration.settled, calibration.without_stake), (7, 1));
        let bins: Vec<_> = calibration.bins.iter().map(|bin| (bin.count, bin.right)).collect();
        assert_eq!((bins[0], bins[1], bins[9]), ((2, 1), (1, 1), (3, 2)));
        assert!(bins[2..9].iter().all(|&bin| bin == (0, 0)));
        assert_eq!((calibration.bins[0].average_confidence(), calibration.bins[0].hit_rate()), (Some(5.5), Some(0.5)));
        assert_eq!(calibration.bins[9].average_confidence(), Some(97.0));
        let all = calibration.overall();
        assert_eq!((all.from, all.to, all.count, all.right), (1, 100, 6, 4));
        assert_eq!(all.average_confidence(), Some((1.0 + 10.0 + 11.0 + 91.0 + 200.0) / 6.0));
    }

    proptest! {
        #[test]
        fn counts_every_prediction_once(settled in proptest::collection::vec((0_i64..=100, any::<bool>()), 0..200)) {
            let calibration = of(&settled);
            let counted: u32 = calibration.bins.iter().map(|bin| bin.count).sum();
            prop_assert_eq!(usize::try_from(calibration.settled).ok(), Some(settled.len()));
            prop_assert_eq!(counted + calibration.without_stake, calibration.settled);
            let right = settled.iter().filter(|&&(percent, right)| percent > 0 && right).count();
            prop_assert_eq!(calibration.bins.iter().map(|bin| bin.right).sum::<u32>(), u32::try_from(right).expect("few"));
            for bin in calibration.bins {
                prop_assert!(bin.right <= bin.count);
                if let Some(average) = bin.average_confidence() {
                    prop_assert!((f64::from(bin.from)..=f64::from(bin.to)).contains(&average));
                }
            }
        }
    }
}
