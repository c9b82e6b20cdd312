//! Validation of names, e-mail addresses and dates of birth. No I/O.

use serde_json::Value;
use time::{Date, Month};
use web::fields::FromJson;

/// Name of 1 to 100 characters without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonName(pub(super) String);

impl FromJson for PersonName {
    const EXPECTED: &'static str = "must be a string of 1 to 100 characters";

    fn from_json(value: &Value) -> Option<Self> {
        let name = value.as_str()?.trim();
        let valid = (1..=100).contains(&name.chars().count()) && !name.chars().any(char::is_control);
        valid.then(|| Self(name.to_owned()))
    }
}

/// Syntactically valid e-mail address, as browsers validate it in forms, whose domain has at least two labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Email(pub(super) String);

impl FromJson for Email {
    const EXPECTED: &'static str = "must be an e-mail address of at most 254 characters";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().filter(|text| text.len() <= 254 && is_email(text)).map(|text| Self(text.to_owned()))
    }
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".!#$%&'*+/=?^_`{|}~-".contains(&byte);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    (1..=64).contains(&local.len())
        && local.bytes().all(allowed)
        && !local.starts_with('.')
        && !local.ends_with('.')
        && !local.contains("..")
        && domain.split('.').count() >= 2
        && domain.split('.').all(label)
}

/// Whether a user born on this date has reached the minimum age. In common years, a birthday on 29 February counts as 1
/// March.
pub(super) fn is_old_enough(born: Date, minimum_age: u16, today: Date) -> bool {
    let year = born.year() + i32::from(minimum_age);
    let birthday = Date::from_calendar_date(year, born.month(), born.day())
        .or_else(|_| Date::from_calendar_date(year, Month::March, 1));
    // Treat a year before 1900 as a typing error.
    born.year() >= 1900 && birthday.is_ok_and(|birthday| birthday <= today)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use time::macros::date;

    use super::*;

    #[test]
    fn addresses() {
        for good in ["ada@example.org", "a.b+c@mail.example.co.uk", "x@a-b.io", "o'neill@example.com"] {
            assert!(Email::from_json(&json!(good)).is_some(), "{good}");
        }
        for bad in [
            "",
            "not-an-email",
            "@example.org",
            "ada@",
            "ada@localhost",
            "ada@.org",
            "ada@example..org",
            "a b@example.org",
            "ada@exa_mple.org",
            ".ada@example.org",
            "a..b@example.org",
            "ada@-x.org",
            "adá@example.org",
            "a@b@c.org ",
        ] {
            assert!(Email::from_json(&json!(bad)).is_none(), "{bad}");
        }
        assert!(Email::from_json(&json!(5)).is_none());
        assert!(Email::from_json(&json!(format!("{}@{}.org", "a".repeat(60), "b".repeat(250)))).is_none());
    }

    #[test]
    fn names() {
        for (name, valid) in [
            (json!("Ada Obi"), true),
            (json!("李"), true),
            (json!("x".repeat(100)), true),
            (json!("x".repeat(101)), false),
            (json!(""), false),
            (json!("   "), false),
            (json!("a\u{0}b"), false),
            (json!("a\nb"), false),
            (json!(5), false),
        ] {
            assert_eq!(PersonName::from_json(&name).is_some(), valid, "{name}");
        }
    }

    #[test]
    fn minimum_age_is_reached_on_the_birthday() {
        let today = date!(2026 - 11 - 20);
        assert!(is_old_enough(date!(2013 - 11 - 20), 13, today));
        assert!(!is_old_enough(date!(2013 - 11 - 21), 13, today));
        assert!(is_old_enough(date!(2008 - 11 - 20), 18, today));
        assert!(!is_old_enough(date!(2008 - 11 - 21), 18, today));
        assert!(is_old_enough(date!(2026 - 11 - 20), 0, today));
        assert!(!is_old_enough(date!(2026 - 11 - 21), 0, today));
        assert!(!is_old_enough(date!(2999 - 01 - 01), 13, today));
        assert!(!is_old_enough(date!(1850 - 01 - 01), 13, today));
        assert!(!is_old_enough(date!(2012 - 02 - 29), 13, date!(2025 - 02 - 28)));
        assert!(is_old_enough(date!(2012 - 02 - 29), 13, date!(2025 - 03 - 01)));
    }

    proptest! {
        #[test]
        fn valid_address_has_one_at_sign_and_no_spaces(text in "[ -~]{0,40}") {
            if Email::from_json(&json!(text)).is_some() {
                prop_assert!(!text.contains(' ') && text.matches('@').count() == 1);
            }
        }

        #[test]
        fn minimum_age_once_reached_stays_reached(born in 0..45_000_i64, days in 0..5_000_i64, age in 0_u16..=150) {
            let (born, today) = (date!(1900-01-01) + time::Duration::days(born), date!(2026-11-20));
            if is_old_enough(born, age, today) {
                prop_assert!(is_old_enough(born, age, today + time::Duration::days(days)));
                prop_assert!(age == 0 || is_old_enough(born, age - 1, today));
            }
        }
    }
}
