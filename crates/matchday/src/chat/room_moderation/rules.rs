//! Parsing of the arguments of room moderation.

use std::str::FromStr;

use serde_json::Value;
use web::{
    fields::{FromJson, whole_number},
    ids::UserId,
};

use crate::identity::usernames::Username;

/// Longest period of slow mode in seconds.
pub const LONGEST_SLOW_MODE: i32 = 3_600;

/// A user, by id or by username.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserName {
    Id(UserId),
    Name(Username),
}

impl FromStr for UserName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        Username::parse(text).map(Self::Name).ok_or(())
    }
}

/// Period of slow mode: 0 to 3,600 seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowMode(pub i32);

impl FromJson for SlowMode {
    const EXPECTED: &'static str = "must be a whole number from 0 to 3600";

    fn from_json(value: &Value) -> Option<Self> {
        let seconds = i32::try_from(whole_number(value)?).ok()?;
        (0..=LONGEST_SLOW_MODE).contains(&seconds).then_some(Self(seconds))
    }
}

/// Length of a mute in a room: a minute to a week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MuteSeconds(pub i64);

impl FromJson for MuteSeconds {
    const EXPECTED: &'static str = "must be a whole number from 60 to 604800";

    fn from_json(value: &Value) -> Option<Self> {
        let seconds = whole_number(value)?;
        (60..=604_800).contains(&seconds).then_some(Self(seconds))
    }
}

/// Reason that a moderator gives: up to 500 characters, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActReason(String);

impl ActReason {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromJson for ActReason {
    const EXPECTED: &'static str = "must be a string of at most 500 characters";

    fn from_json(value: &Value) -> Option<Self> {
        let reason = value.as_str()?.trim();
        let fits = reason.chars().count() <= 500 && !reason.contains(|c: char| c.is_control() && c != '\n');
        fits.then(|| Self(reason.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn users_are_named_by_id_or_username() {
        assert_eq!("12".parse(), Ok(UserName::Id(UserId(12))));
        assert_eq!("Swift_Winger".parse(), Ok(UserName::Name(Username::parse("swift_winger").expect("valid"))));
        for wrong in ["", "a", "@ada:example.org", "a b c", "0", "../x"] {
            assert!(wrong.parse::<UserName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn periods_and_reasons_are_limited() {
        for (value, valid) in [(json!(0), true), (json!(3_600), true), (json!(3_601), false), (json!(-1), false)] {
            assert_eq!(SlowMode::from_json(&value).is_some(), valid, "{value}");
        }
        for (value, valid) in [
            (json!(59), false),
            (json!(60), true),
            (json!(604_800), true),
            (json!(604_801), false),
            (json!("60"), false),
        ] {
            assert_eq!(MuteSeconds::from_json(&value).is_some(), valid, "{value}");
        }
        for (value, valid) in [
            (json!(""), true),
            (json!("x".repeat(500)), true),
            (json!("x".repeat(501)), false),
            (json!("a\u{0}"), false),
        ] {
            assert_eq!(ActReason::from_json(&value).is_some(), valid, "{value}");
        }
    }
}
