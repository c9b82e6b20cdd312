//! What a report may hold, and how long restrictions last; no I/O.

use serde_json::Value;
use time::OffsetDateTime;
use web::fields::FromJson;

/// Why something is reported: 1 to 500 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(String);

impl Reason {
    /// In the reporter's words.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromJson for Reason {
    const EXPECTED: &'static str = "must be a text of 1 to 500 characters";

    fn from_json(value: &Value) -> Option<Self> {
        let reason = value.as_str()?.trim();
        let fits = (1..=500).contains(&reason.chars().count()) && !reason.contains('\0');
        fits.then(|| Self(reason.to_owned()))
    }
}

/// The homeserver's id of a message, like `$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageId(String);

impl MessageId {
    /// As the homeserver says it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromJson for MessageId {
    const EXPECTED: &'static str = "must be the id of a message, which begins with $";

    fn from_json(value: &Value) -> Option<Self> {
        let id = value.as_str()?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'/' | b'+');
        let fits = id.strip_prefix('$').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(plain));
        (fits && id.len() <= 255).then(|| Self(id.to_owned()))
    }
}

/// The longest time that a ban or mute with an end may last.
pub const LONGEST: time::Duration = time::Duration::days(3_650);
/// The shortest one.
pub const SHORTEST: time::Duration = time::Duration::minutes(1);

/// When a restriction of this length ends, in whole seconds. `None` if it may not be that long or short.
pub(super) fn end(now: OffsetDateTime, length: std::time::Duration) -> Option<OffsetDateTime> {
    let length = time::Duration::try_from(length).ok().filter(|length| (SHORTEST..=LONGEST).contains(length))?;
    (now + length).replace_nanosecond(0).ok()
}

/// A ban or a mute: since when, and until when if it has an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) since: OffsetDateTime,
    pub(crate) until: Option<OffsetDateTime>,
}

impl Term {
    fn longer(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => {
                let is_longer = match (one.until, other.until) {
                    (None, _) => true,
                    (Some(_), None) => false,
                    (Some(one), Some(other)) => one >= other,
                };
                Some(if is_longer { one } else { other })
            }
            (one, other) => one.or(other),
        }
    }
}

/// The ban and the mute of an account or a phone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) ban: Option<Term>,
    pub(crate) mute: Option<Term>,
}

impl Terms {
    /// Of two bans, or two mutes, the one that ends later.
    pub(super) fn longer(self, other: Self) -> Self {
        Self { ban: Term::longer(self.ban, other.ban), mute: Term::longer(self.mute, other.mute) }
    }

    /// Without what is over at this time.
    pub(super) fn at(self, now: OffsetDateTime) -> Self {
        let lasts = |term: &Term| term.until.is_none_or(|until| until > now);
        Self { ban: self.ban.filter(lasts), mute: self.mute.filter(lasts) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    fn moment(seconds: i64) -> OffsetDateTime {
        datetime!(2026-11-20 15:00 UTC) + time::Duration::seconds(seconds)
    }

    fn term() -> impl Strategy<Value = Option<Term>> {
        let until = proptest::option::of(-100_i64..100);
        proptest::option::of(
            (-200_i64..-100, until).prop_map(|(since, until)| Term { since: moment(since), until: until.map(moment) }),
        )
    }

    fn terms() -> impl Strategy<Value = Terms> {
        (term(), term()).prop_map(|(ban, mute)| Terms { ban, mute })
    }

    /// Whether a term restricts at this time.
    fn holds(term: Option<Term>, at: OffsetDateTime) -> bool {
        term.is_some_and(|term| term.until.is_none_or(|until| until > at))
    }

    proptest! {
        /// At no time is somebody free whom either of the two restricts, nor restricted whom neither does.
        #[test]
        fn longer_terms_restrict_whenever_one_does(one in terms(), other in terms(), at in -150_i64..150) {
            let (both, at) = (one.longer(other), moment(at));
            prop_assert_eq!(holds(both.ban, at), holds(one.ban, at) || holds(other.ban, at));
            prop_assert_eq!(holds(both.mute, at), holds(one.mute, at) || holds(other.mute, at));
            prop_assert_eq!(both.at(at).ban.is_some(), holds(both.ban, at));
            prop_assert_eq!(one.longer(Terms::default()), one);
        }
    }

    #[test]
    fn restrictions_last_a_minute_to_ten_years() {
        let (now, seconds) = (datetime!(2026-11-20 15:00:00.25 UTC), std::time::Duration::from_secs);
        assert_eq!(end(now, seconds(7 * 86_400)), Some(datetime!(2026-11-27 15:00 UTC)));
        assert_eq!(end(now, seconds(60)), Some(datetime!(2026-11-20 15:01 UTC)));
        for length in [seconds(59), seconds(3_650 * 86_400 + 1), std::time::Duration::MAX] {
            assert_eq!(end(now, length), None, "{length:?}");
        }
    }

    #[test]
    fn reasons_and_message_ids() {
        for (reason, valid) in
            [(json!("spam"), true), (json!(" "), false), (json!("x".repeat(501)), false), (json!(1), false)]
        {
            assert_eq!(Reason::from_json(&reason).is_some(), valid, "{reason}");
        }
        for (id, valid) in [
            (json!("$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92"), true),
            (json!("$15:example.org"), true),
            (json!("$"), false),
            (json!("Rqnc"), false),
            (json!("$a b"), false),
            (json!("$a\u{0}"), false),
            (json!("$../../x?"), false),
            (json!(format!("${}", "a".repeat(255))), false),
        ] {
            assert_eq!(MessageId::from_json(&id).is_some(), valid, "{id}");
        }
    }
}
