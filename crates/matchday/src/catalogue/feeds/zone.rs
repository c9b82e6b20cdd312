//! Time zones, for documents with local times. The rest of the service uses UTC.

use std::fmt;

use jiff::{civil, tz::TimeZone};
use platform::settings::Setting;
use time::{Date, OffsetDateTime, Time, UtcOffset};

/// A time zone: a name from the IANA database like `Europe/London`, or a fixed offset.
#[derive(Clone, Debug)]
pub struct Zone {
    name: String,
    rules: Rules,
}

#[derive(Clone, Debug)]
enum Rules {
    Fixed(UtcOffset),
    Named(TimeZone),
}

impl Zone {
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), rules: Rules::Fixed(UtcOffset::UTC) }
    }

    /// Parses `Europe/London`, `UTC`, `+02:00` or `UTC-6`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(offset) = offset(text) {
            return Some(Self { name: text.to_owned(), rules: Rules::Fixed(offset) });
        }
        // Names without a slash include abbreviations that are ambiguous, like `IST`.
        let zone = TimeZone::get(text).ok().filter(|_| text.contains('/'))?;
        Some(Self { name: zone.iana_name().unwrap_or(text).to_owned(), rules: Rules::Named(zone) })
    }

    /// Returns the IANA name, or the offset as configured.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Converts a local time to UTC. A time that occurs twice in autumn means the first occurrence; a time that is
    /// skipped in spring means one hour later.
    pub fn moment(&self, date: Date, time: Time) -> Option<OffsetDateTime> {
        match &self.rules {
            Rules::Fixed(offset) => Some(date.with_time(time).assume_offset(*offset).to_offset(UtcOffset::UTC)),
            Rules::Named(zone) => {
                let day = i8::try_from(date.day()).ok()?;
                let month = i8::try_from(u8::from(date.month())).ok()?;
                let (hour, minute) = (i8::try_from(time.hour()).ok()?, i8::try_from(time.minute()).ok()?);
                let date = civil::Date::new(i16::try_from(date.year()).ok()?, month, day).ok()?;
                let shown = civil::DateTime::from_parts(date, civil::Time::new(hour, minute, 0, 0).ok()?);
                let moment = zone.to_timestamp(shown).ok()?;
                OffsetDateTime::from_unix_timestamp(moment.as_second()).ok()
            }
        }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

/// Parses an offset: `UTC`, `UTC-6`, `UTC+5:30`, `UTC±0` or `+02:00`.
pub fn offset(text: &str) -> Option<UtcOffset> {
    let rest = text.strip_prefix("UTC").or_else(|| text.strip_prefix("GMT"));
    let rest = rest.or_else(|| text.starts_with(['+', '-', '−']).then_some(text))?;
    if rest.is_empty() {
        return Some(UtcOffset::UTC);
    }
    let (negative, digits) = match rest.chars().next()? {
        '+' | '±' => (false, &rest[rest.chars().next()?.len_utf8()..]),
        '-' | '−' => (true, &rest[rest.chars().next()?.len_utf8()..]),
        _ => return None,
    };
    let (hours, minutes) = digits.split_once(':').unwrap_or((digits, "0"));
    let number = |text: &str| {
        let fits = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        fits.then(|| text.parse::<i8>().ok()).flatten()
    };
    let (hours, minutes) = (number(hours).filter(|&hours| hours <= 14)?, number(minutes).filter(|&most| most < 60)?);
    let sign = if negative { -1 } else { 1 };
    UtcOffset::from_hms(sign * hours, sign * minutes, 0).ok()
}

/// A document in a file or at a URL, and the time zone for times in it that name none.
#[derive(Clone, Debug)]
pub struct ZonedPlace {
    /// A path, or an http or https URL.
    pub place: String,
    /// UTC unless configured otherwise.
    pub zone: Zone,
}

impl Setting for ZonedPlace {
    const EXPECTED: &'static str = "a file or URL, optionally followed by a time zone, as in en.1.json Europe/London";
    const LISTED: &'static str = "a list separated by commas, each a file or URL, optionally followed by a time zone, \
                                  as in en.1.json Europe/London";
    fn parse(text: &str) -> Option<Self> {
        let (place, zone) = match text.rsplit_once(char::is_whitespace) {
            // A misspelt time zone must not become part of the file name.
            Some((place, zone)) => (place.trim_end(), Zone::parse(zone)?),
            None => (text, Zone::utc()),
        };
        (!place.is_empty()).then(|| Self { place: place.to_owned(), zone })
    }
    fn show(&self) -> String {
        if self.zone.name == "UTC" { self.place.clone() } else { format!("{} {}", self.place, self.zone) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::{date, datetime, time};

    use super::*;

    #[test]
    fn local_times_follow_daylight_saving() {
        let london = Zone::parse("Europe/London").expect("a zone");
        let at = |date| london.moment(date, time!(15:00)).expect("a moment");
        assert_eq!(at(date!(2026 - 01 - 10)), datetime!(2026-01-10 15:00 UTC));
        assert_eq!(at(date!(2026 - 07 - 10)), datetime!(2026-07-10 14:00 UTC));
        let skipped = london.moment(date!(2026 - 03 - 29), time!(1:30)).expect("a moment");
        assert_eq!(skipped, datetime!(2026-03-29 1:30 UTC));
        let twice = london.moment(date!(2026 - 10 - 25), time!(1:30)).expect("a moment");
        assert_eq!(twice, datetime!(2026-10-25 0:30 UTC));
    }

    #[test]
    fn zones_parse_from_names_and_offsets() {
        for (text, hours) in
            [("UTC", 0), ("UTC-6", -6), ("UTC+14", 14), ("+02:00", 2), ("-3", -3), ("UTC±0", 0), ("GMT", 0)]
        {
            let moment = Zone::parse(text).and_then(|zone| zone.moment(date!(2026 - 06 - 11), time!(13:00)));
            assert_eq!(moment, Some(datetime!(2026-06-11 13:00 UTC) - time::Duration::hours(hours)), "{text}");
        }
        assert_eq!(offset("UTC+5:30"), UtcOffset::from_hms(5, 30, 0).ok());
        for text in ["", "Berlin", "Europe/Atlantis", "IST", "UTC+15", "UTC+1:60", "UTC 1", "+1:2:3", "UTC+-1", "+"] {
            assert!(Zone::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn place_with_zone_round_trips() {
        for text in ["https://example.org/en.1.json Europe/London", "/srv/a match.json UTC-3", "cup.json"] {
            assert_eq!(ZonedPlace::parse(text).expect("a place").show(), text);
        }
        assert_eq!(ZonedPlace::parse("/srv/a  Europe/Berlin").expect("a place").place, "/srv/a");
        assert!(ZonedPlace::parse("cup.json Europe/Brelin").is_none());
        assert!(ZonedPlace::parse("").is_none());
    }

    proptest! {
        #[test]
        fn zone_parser_never_panics(text in ".*", day in 0_i32..60_000) {
            if let Some(zone) = Zone::parse(&text) {
                let date = Date::from_julian_day(2_400_000 + day).expect("a day");
                let _ = zone.moment(date, time!(12:00));
            }
        }
    }
}
