//! Duration of restrictions.

use time::OffsetDateTime;

/// Longest ban or mute that has an end.
pub const LONGEST: time::Duration = time::Duration::days(3_650);
/// Shortest ban or mute that has an end.
pub const SHORTEST: time::Duration = time::Duration::minutes(1);

/// End of a restriction of this length, in whole seconds. Returns `None` if the length is out of range.
pub(super) fn end(now: OffsetDateTime, length: std::time::Duration) -> Option<OffsetDateTime> {
    let length = time::Duration::try_from(length).ok().filter(|length| (SHORTEST..=LONGEST).contains(length))?;
    (now + length).replace_nanosecond(0).ok()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn restrictions_last_a_minute_to_ten_years() {
        let (now, seconds) = (datetime!(2026-11-20 15:00:00.25 UTC), std::time::Duration::from_secs);
        assert_eq!(end(now, seconds(7 * 86_400)), Some(datetime!(2026-11-27 15:00 UTC)));
        assert_eq!(end(now, seconds(60)), Some(datetime!(2026-11-20 15:01 UTC)));
        for length in [seconds(59), seconds(3_650 * 86_400 + 1), std::time::Duration::MAX] {
            assert_eq!(end(now, length), None, "{length:?}");
        }
    }
}
