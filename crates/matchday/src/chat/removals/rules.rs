//! Consequences of removed messages.

use std::time::Duration;

use platform::settings::Setting;
use time::OffsetDateTime;

/// Messages removed within this time after the first one count as one offence.
pub const OFFENCE: time::Duration = time::Duration::minutes(10);

/// Consequence of an offence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The sender is only notified.
    Warn,
    /// The sender is muted in the whole service for this time.
    Mute(Duration),
    /// The sender is banned from the service for this time.
    Ban(Duration),
}

impl Setting for Step {
    const EXPECTED: &'static str = "warn, mute:TIME or ban:TIME, like mute:1h";
    const LISTED: &'static str = "a list separated by commas, each warn, mute:TIME or ban:TIME, like mute:1h";

    fn parse(text: &str) -> Option<Self> {
        if text == "warn" {
            return Some(Self::Warn);
        }
        let (name, length) = text.split_once(':')?;
        let length = Duration::parse(length).filter(|length| *length >= Duration::from_mins(1))?;
        match name {
            "mute" => Some(Self::Mute(length)),
            "ban" => Some(Self::Ban(length)),
            _ => None,
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Warn => "warn".to_owned(),
            Self::Mute(length) => format!("mute:{}", length.show()),
            Self::Ban(length) => format!("ban:{}", length.show()),
        }
    }
}

/// Number of the offence that begins with the last of these removals, in the order of time. `None` if the last one belongs
/// to an offence that began before. Messages that were found together have the same time, and all of them begin it.
pub fn offence(removed_at: &[OffsetDateTime]) -> Option<usize> {
    let mut began = None::<OffsetDateTime>;
    let mut number = 0;
    let (mut begins, mut last) = (false, None);
    for &at in removed_at {
        if last.replace(at) == Some(at) {
            continue;
        }
        begins = began.is_none_or(|began| at - began >= OFFENCE);
        if begins {
            began = Some(at);
            number += 1;
        }
    }
    begins.then_some(number)
}

/// Consequence of an offence with this number. The last step applies to all further offences.
pub fn consequence(steps: &[Step], offence: usize) -> Option<Step> {
    steps.get(offence.saturating_sub(1)).or(steps.last()).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    fn minutes(minutes: &[i64]) -> Vec<OffsetDateTime> {
        minutes.iter().map(|minute| datetime!(2026-11-20 15:00 UTC) + time::Duration::minutes(*minute)).collect()
    }

    #[test]
    fn removals_within_ten_minutes_are_one_offence() {
        for (removed, expected) in [
            (vec![], None),
            (vec![0], Some(1)),
            (vec![0, 0], Some(1)),
            (vec![0, 9], None),
            (vec![0, 9, 9], None),
            (vec![0, 10, 10], Some(2)),
            (vec![0, 10], Some(2)),
            (vec![0, 5, 12], Some(2)),
            (vec![0, 5, 12, 14], None),
        ] {
            assert_eq!(offence(&minutes(&removed)), expected, "{removed:?}");
        }
    }

    #[test]
    fn last_step_applies_to_further_offences() {
        let steps = [Step::Warn, Step::Mute(Duration::from_hours(1))];
        assert_eq!(consequence(&steps, 1), Some(Step::Warn));
        for offence in [2, 3, 50] {
            assert_eq!(consequence(&steps, offence), Some(steps[1]));
        }
        assert_eq!(consequence(&[], 1), None);
    }

    #[test]
    fn steps_are_parsed_as_shown() {
        for text in ["warn", "mute:1h", "ban:7d"] {
            assert_eq!(Step::parse(text).expect("valid").show(), text);
        }
        for wrong in ["", "mute", "mute:", "mute:5s", "kick:1h", "warn:1h", "ban:x"] {
            assert_eq!(Step::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        /// However the messages of a flood are spread, offences are at least ten minutes apart.
        #[test]
        fn offences_are_bounded_by_time(mut removed in proptest::collection::vec(0_i64..600, 1..60)) {
            removed.sort_unstable();
            let offences = (1..=removed.len()).filter_map(|count| offence(&minutes(&removed[..count]))).max();
            let span = removed.last().unwrap_or(&0) - removed[0];
            prop_assert!(offences.is_some_and(|offences| offences <= usize::try_from(span / 10 + 1).unwrap_or(0)));
        }
    }
}
