//! Quiet hours and push subscriptions; no I/O.

use std::{fmt, sync::LazyLock};

use aws_lc_rs::agreement::{ECDH_P256, ParsedPublicKey, UnparsedPublicKey};
use base64::{
    Engine as _,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::URL_SAFE_NO_PAD},
};
use jiff::{
    Timestamp,
    tz::{TimeZone, TimeZoneDatabase},
};
use platform::{Environment, settings::HostPattern};
use time::OffsetDateTime;
use url::Url;
use utoipa::ToSchema;

/// Maximum number of push subscriptions of a user; a further one replaces the oldest.
pub const MOST_SUBSCRIPTIONS: usize = 10;

/// Maximum length of a push service URL. Real ones have a few hundred characters.
pub const LONGEST_ENDPOINT: usize = 1_000;

const MINUTES_A_DAY: u16 = 24 * 60;

/// Time zone database bundled with this version of the service, independent of the machine.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Returns the time zone with this name, in any case.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    ZONES.get(name).ok().filter(|zone| !zone.is_unknown() && zone.iana_name().is_some())
}

/// A minute of the day, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(u16);

impl TimeOfDay {
    /// Parses a time like `22:00`.
    pub fn parse(text: &str) -> Option<Self> {
        let (hours, minutes) = text.split_once(':')?;
        let number = |text: &str| {
            let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<u16>().ok()).flatten()
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        (hours < 24 && minutes < 60).then_some(Self(hours * 60 + minutes))
    }

    /// Creates the time from minutes since midnight.
    pub fn from_minutes(minutes: i16) -> Option<Self> {
        u16::try_from(minutes).ok().filter(|&minutes| minutes < MINUTES_A_DAY).map(Self)
    }

    /// Returns the minutes since midnight.
    pub fn minutes(self) -> i16 {
        // The value is below 1,440.
        i16::try_from(self.0).unwrap_or_default()
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// The push services that messages may be sent to.
#[derive(Clone, Debug)]
pub enum PushServices {
    /// Any reachable push service.
    Any,
    /// Only push services on these hosts, on port 443.
    On(Vec<HostPattern>),
}

impl PushServices {
    /// Returns the configured push services. In development any is allowed, because browsers and push services of tests
    /// run on this machine.
    pub fn of(env: Environment, hosts: &[HostPattern]) -> Self {
        if env.is_development() || hosts.is_empty() { Self::Any } else { Self::On(hosts.to_vec()) }
    }

    /// Returns true if the endpoint belongs to an allowed push service.
    pub fn include(&self, endpoint: &Url) -> bool {
        match self {
            Self::Any => true,
            Self::On(hosts) => {
                let host = endpoint.host_str().unwrap_or_default();
                endpoint.port_or_known_default() == Some(443) && hosts.iter().any(|pattern| pattern.matches(host))
            }
        }
    }
}

/// Hours in which a user must not be notified, in their local time.
#[derive(Clone, Debug, PartialEq)]
pub struct QuietHours {
    /// First minute of the quiet hours.
    pub from: TimeOfDay,
    /// First minute after the quiet hours; before `from` if they span midnight.
    pub until: TimeOfDay,
    zone: TimeZone,
}

impl QuietHours {
    /// Returns `None` if the quiet hours are empty or the time zone is unknown.
    pub fn new(from: TimeOfDay, until: TimeOfDay, zone: &str) -> Option<Self> {
        let zone = time_zone(zone)?;
        (from != until).then_some(Self { from, until, zone })
    }

    /// Returns the name of the time zone, as in `Europe/Berlin`.
    pub fn time_zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Returns true if a moment is within the quiet hours. Each moment has exactly one local time. An hour that is
    /// repeated in autumn is therefore quiet both times or not at all, and a skipped hour does not occur.
    pub fn hold(&self, moment: OffsetDateTime) -> bool {
        let Ok(moment) = Timestamp::from_second(moment.unix_timestamp()) else { return false };
        let local = self.zone.to_datetime(moment);
        let minute = u16::from(local.hour().unsigned_abs()) * 60 + u16::from(local.minute().unsigned_abs());
        let (from, until) = (self.from.0, self.until.0);
        if from < until { (from..until).contains(&minute) } else { minute >= from || minute < until }
    }
}

/// Encryption keys of a browser's push subscription.
#[derive(Clone, PartialEq, Eq, ToSchema)]
#[schema(as = SubscriptionKeys)]
pub struct PushKeys {
    /// Public key of the browser: a P-256 point in base64.
    #[schema(
        value_type = String,
        pattern = "^[A-Za-z0-9_-]{86}[AEIMQUYcgkosw048]=?$",
        example = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    )]
    pub p256dh: [u8; 65],
    /// Authentication secret of 16 bytes in base64.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{21}[AQgw](==)?$", example = "BTBZMqHH6r4Tts7J_aSIgg")]
    pub auth: [u8; 16],
}

/// Leaves out the secret.
impl fmt::Debug for PushKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PushKeys").finish_non_exhaustive()
    }
}

impl PushKeys {
    /// Form in which browsers provide the keys; [`Self::parse`] reads both.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({"p256dh": URL_SAFE_NO_PAD.encode(self.p256dh), "auth": URL_SAFE_NO_PAD.encode(self.auth)})
    }

    /// Parses both keys as browsers provide them: URL-safe base64, with or without padding. A key that is not a point
    /// of the curve is refused.
    pub fn parse(p256dh: &str, auth: &str) -> Option<Self> {
        let keys = Self { p256dh: decode(p256dh)?.try_into().ok()?, auth: decode(auth)?.try_into().ok()? };
        ParsedPublicKey::try_from(UnparsedPublicKey::new(&ECDH_P256, keys.p256dh)).ok().map(|_| keys)
    }
}

/// Decodes base64 of either alphabet, padded or not.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    const CONFIG: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = if text.contains(['+', '/']) { &base64::alphabet::STANDARD } else { &base64::alphabet::URL_SAFE };
    GeneralPurpose::new(alphabet, CONFIG).decode(text).ok()
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    fn hours(from: &str, until: &str, zone: &str) -> QuietHours {
        let time = |text| TimeOfDay::parse(text).expect("a time");
        QuietHours::new(time(from), time(until), zone).expect("quiet hours")
    }

    /// Names of all time zones of the database.
    fn zone_names() -> Vec<String> {
        let names = ZONES.available().map(|name| name.to_string());
        names.filter(|name| time_zone(name).is_some()).collect()
    }

    #[test]
    fn every_time_zone_has_quiet_hours() {
        let names = zone_names();
        assert!(names.len() > 400, "{}", names.len());
        for zone in names {
            let night = hours("22:00", "08:00", &zone);
            let day = hours("08:00", "22:00", &zone);
            for hour in 0..24 {
                let moment = datetime!(2026-11-20 0:30 UTC) + time::Duration::hours(hour);
                assert_ne!(night.hold(moment), day.hold(moment), "{zone} {moment}");
            }
        }
    }

    #[test]
    fn times_and_zones_are_validated() {
        for (text, valid) in [
            ("00:00", true),
            ("23:59", true),
            ("24:00", false),
            ("12:60", false),
            ("7:00", false),
            ("07:0", false),
            ("07:000", false),
            ("+7:00", false),
            ("0700", false),
            ("", false),
        ] {
            assert_eq!(TimeOfDay::parse(text).map(|time| time.to_string()), valid.then(|| text.to_owned()), "{text}");
        }
        let (ten, eight) = (TimeOfDay(22 * 60), TimeOfDay(8 * 60));
        for (zone, name) in [
            ("Europe/Berlin", Some("Europe/Berlin")),
            ("europe/berlin", Some("Europe/Berlin")),
            ("America/Argentina/Buenos_Aires", Some("America/Argentina/Buenos_Aires")),
            ("UTC", Some("UTC")),
            ("Europe/Atlantis", None),
            ("Etc/Unknown", None),
            ("+02:00", None),
            ("", None),
        ] {
            let quiet = QuietHours::new(ten, eight, zone);
            assert_eq!(quiet.as_ref().map(QuietHours::time_zone), name, "{zone}");
        }
        assert_eq!(QuietHours::new(ten, ten, "UTC"), None, "a whole day of silence is `reminders: false`");
    }

    #[test]
    fn quiet_hours_follow_daylight_saving() {
        let night = hours("22:00", "08:00", "Europe/Berlin");
        for (moment, quiet) in [
            // Winter: UTC+1.
            (datetime!(2026-11-20 20:59 UTC), false),
            (datetime!(2026-11-20 21:00 UTC), true),
            (datetime!(2026-11-21 06:59 UTC), true),
            (datetime!(2026-11-21 07:00 UTC), false),
            // Summer: UTC+2.
            (datetime!(2026-07-20 19:59 UTC), false),
            (datetime!(2026-07-20 20:00 UTC), true),
            (datetime!(2026-07-21 06:00 UTC), false),
        ] {
            assert_eq!(night.hold(moment), quiet, "{moment}");
        }
        // On 25 October 2026 the hour from 2 to 3 occurs twice, and is quiet both times.
        let repeated = hours("02:00", "03:00", "Europe/Berlin");
        for (moment, quiet) in [
            (datetime!(2026-10-24 23:59 UTC), false),
            (datetime!(2026-10-25 00:00 UTC), true),
            (datetime!(2026-10-25 00:59 UTC), true),
            (datetime!(2026-10-25 01:00 UTC), true),
            (datetime!(2026-10-25 01:59 UTC), true),
            (datetime!(2026-10-25 02:00 UTC), false),
        ] {
            assert_eq!(repeated.hold(moment), quiet, "{moment}");
        }
        // On 29 March 2026 the hour from 2 to 3 is skipped.
        for minute in 0..240 {
            let moment = datetime!(2026-03-28 23:00 UTC) + time::Duration::minutes(minute);
            assert!(!repeated.hold(moment), "{moment}");
        }
    }

    #[test]
    fn push_keys_are_validated() {
        // The keys of the example in RFC 8291.
        let (p256dh, auth) = (
            "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
            "BTBZMqHH6r4Tts7J_aSIgg",
        );
        let keys = PushKeys::parse(p256dh, auth).expect("keys");
        assert!(!format!("{keys:?}").contains("auth"), "{keys:?}");
        assert_eq!(PushKeys::parse(&STANDARD.encode(keys.p256dh), &URL_SAFE.encode(keys.auth)), Some(keys));
        let off_the_curve = p256dh.replace("aOzi", "aOzj");
        for (p256dh, auth) in [
            (&*off_the_curve, auth),
            ("AAAA", auth),
            ("", ""),
            (p256dh, "AAAA"),
            (p256dh, "not base64!"),
            (auth, p256dh),
        ] {
            assert!(PushKeys::parse(p256dh, auth).is_none(), "{p256dh} {auth}");
        }
    }

    proptest! {
        /// Compares with a calculation from the offset of the zone at that moment.
        #[test]
        fn moment_is_quiet_if_local_time_is_in_range(
            zone in proptest::sample::select(zone_names()),
            from in 0_i16..1_440, until in 0_i16..1_440, seconds in 1_700_000_000_i64..2_000_000_000,
        ) {
            prop_assume!(from != until);
            let time = |minutes| TimeOfDay::from_minutes(minutes).expect("a time");
            let quiet = QuietHours::new(time(from), time(until), &zone).expect("quiet hours");
            let moment = OffsetDateTime::from_unix_timestamp(seconds).expect("a moment");
            let offset = ZONES.get(&zone).expect("a zone").to_offset(Timestamp::from_second(seconds).expect("a moment")).seconds();
            let minute = i16::try_from((seconds + i64::from(offset)).rem_euclid(86_400) / 60).expect("small");
            let since_from = (minute - from).rem_euclid(1_440);
            let length = (until - from).rem_euclid(1_440);
            prop_assert_eq!(quiet.hold(moment), since_from < length);
            let other_way = QuietHours::new(time(until), time(from), &zone).expect("quiet hours");
            prop_assert_ne!(quiet.hold(moment), other_way.hold(moment), "the two ranges are complementary");
        }

        #[test]
        fn notification_parsers_never_panic(a in ".*", b in ".*") {
            let _ = (TimeOfDay::parse(&a), PushKeys::parse(&a, &b), decode(&a));
            let _ = QuietHours::new(TimeOfDay(0), TimeOfDay(1), &a);
        }
    }
}
