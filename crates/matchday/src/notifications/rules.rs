//! When somebody must not be disturbed, and what a browser's subscription looks like.

use std::{fmt, sync::LazyLock};

use aws_lc_rs::agreement::{ECDH_P256, ParsedPublicKey, UnparsedPublicKey};
use base64::{
    Engine as _,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use jiff::{
    Timestamp,
    tz::{TimeZone, TimeZoneDatabase},
};
use platform::{Environment, settings::HostPattern};
use time::OffsetDateTime;
use url::Url;
use utoipa::ToSchema;

/// How many browsers of a user are notified; a further one takes the place of the oldest.
pub const MOST_SUBSCRIPTIONS: usize = 10;

/// The longest address of a push service that is taken. Theirs have some hundred characters.
pub const LONGEST_ENDPOINT: usize = 1_000;

const MINUTES_A_DAY: u16 = 24 * 60;

/// The time zones of the world, as this version of the service knows them, whatever the machine does.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A minute of the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(u16);

impl TimeOfDay {
    /// Reads `22:00`.
    pub fn parse(text: &str) -> Option<Self> {
        let (hours, minutes) = text.split_once(':')?;
        let number = |text: &str| {
            let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<u16>().ok()).flatten()
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        (hours < 24 && minutes < 60).then_some(Self(hours * 60 + minutes))
    }

    /// The so-and-so-manieth minute.
    pub fn from_minutes(minutes: i16) -> Option<Self> {
        u16::try_from(minutes).ok().filter(|&minutes| minutes < MINUTES_A_DAY).map(Self)
    }

    /// Which minute it is, from 0.
    pub fn minutes(self) -> i16 {
        // It is below 1,440.
        i16::try_from(self.0).unwrap_or_default()
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// The push services that are posted to.
#[derive(Clone, Debug)]
pub enum PushServices {
    /// Any that can be reached at all.
    Any,
    /// Those on these hosts, at the port of https.
    On(Vec<HostPattern>),
}

impl PushServices {
    /// Those that the operator named. In development any: browsers and push services of tests are on this machine.
    pub fn of(env: Environment, hosts: &[HostPattern]) -> Self {
        if env.is_development() || hosts.is_empty() { Self::Any } else { Self::On(hosts.to_vec()) }
    }

    /// Whether an endpoint belongs to one of them.
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

/// When somebody must not be disturbed, by the clocks where they live.
#[derive(Clone, Debug, PartialEq)]
pub struct QuietHours {
    /// The first minute of them.
    pub from: TimeOfDay,
    /// The first minute after them; before `from` if midnight lies between.
    pub until: TimeOfDay,
    zone: TimeZone,
}

impl QuietHours {
    /// Quiet hours, unless they are none, or the time zone is none.
    pub fn new(from: TimeOfDay, until: TimeOfDay, zone: &str) -> Option<Self> {
        let zone = ZONES.get(zone).ok().filter(|zone| !zone.is_unknown() && zone.iana_name().is_some())?;
        (from != until).then_some(Self { from, until, zone })
    }

    /// The name of their time zone, as in `Europe/Berlin`.
    pub fn time_zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// Whether a moment lies in them. Each moment has one time on a wall clock, so there is never any doubt: an hour that
    /// the clocks repeat is quiet both times or not at all, and one that they leave out does not happen.
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
    /// The browser's public key, a point of P-256 in base64.
    #[schema(
        value_type = String,
        pattern = "^[A-Za-z0-9_-]{86}[AEIMQUYcgkosw048]=?$",
        example = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    )]
    pub p256dh: [u8; 65],
    /// A secret of 16 bytes in base64.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{21}[AQgw](==)?$", example = "BTBZMqHH6r4Tts7J_aSIgg")]
    pub auth: [u8; 16],
}

/// Without the secret.
impl fmt::Debug for PushKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PushKeys").finish_non_exhaustive()
    }
}

impl PushKeys {
    /// Reads both, as browsers give them: base64 for addresses, with or without padding. What is no point of the curve is
    /// none of a browser's.
    pub fn parse(p256dh: &str, auth: &str) -> Option<Self> {
        let keys = Self { p256dh: decode(p256dh)?.try_into().ok()?, auth: decode(auth)?.try_into().ok()? };
        ParsedPublicKey::try_from(UnparsedPublicKey::new(&ECDH_P256, keys.p256dh)).ok().map(|_| keys)
    }
}

/// Reads base64 of either alphabet, padded or not.
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

    #[test]
    fn times_and_zones_are_read_or_refused() {
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
    fn quiet_hours_follow_the_clocks_when_they_change() {
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
        // On 25 October 2026 the hour from 2 to 3 comes twice: both times, and the time between is what it always is.
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
        // On 29 March 2026 it does not come at all.
        for minute in 0..240 {
            let moment = datetime!(2026-03-28 23:00 UTC) + time::Duration::minutes(minute);
            assert!(!repeated.hold(moment), "{moment}");
        }
    }

    #[test]
    fn keys_are_a_browsers_or_refused() {
        // Those of the example in RFC 8291.
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
        /// Beside a count of minutes with the offset that the zone has at that moment.
        #[test]
        fn a_moment_is_quiet_if_the_wall_clock_is_between(
            zone in proptest::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu",
                                                  "Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns", "Africa/Casablanca"]),
            from in 0_i16..1_440, until in 0_i16..1_440, seconds in 1_700_000_000_i64..2_000_000_000,
        ) {
            prop_assume!(from != until);
            let time = |minutes| TimeOfDay::from_minutes(minutes).expect("a time");
            let quiet = QuietHours::new(time(from), time(until), zone).expect("quiet hours");
            let moment = OffsetDateTime::from_unix_timestamp(seconds).expect("a moment");
            let offset = ZONES.get(zone).expect("a zone").to_offset(Timestamp::from_second(seconds).expect("a moment")).seconds();
            let minute = i16::try_from((seconds + i64::from(offset)).rem_euclid(86_400) / 60).expect("small");
            let since_from = (minute - from).rem_euclid(1_440);
            let length = (until - from).rem_euclid(1_440);
            prop_assert_eq!(quiet.hold(moment), since_from < length);
            let other_way = QuietHours::new(time(until), time(from), zone).expect("quiet hours");
            prop_assert_ne!(quiet.hold(moment), other_way.hold(moment), "what is not between is outside");
        }

        #[test]
        fn no_text_makes_the_readers_panic(a in ".*", b in ".*") {
            let _ = (TimeOfDay::parse(&a), PushKeys::parse(&a, &b), decode(&a));
            let _ = QuietHours::new(TimeOfDay(0), TimeOfDay(1), &a);
        }
    }
}
