//! Phone numbers as a type: only valid numbers can be represented, and logs never contain a complete number.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use phonenumber::{Mode, Type, country};
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};
use web::fields::{FromJson, FromQuery};

/// Phone number in international format (E.164): `+` and 7 to 15 digits without a leading zero.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, sqlx::Type)]
#[sqlx(transparent)]
pub struct Phone(String);

impl Phone {
    /// Parses a number as users write it: spaces, dashes, dots and parentheses are removed. Only ASCII digits are
    /// accepted, and a national trunk zero is dropped (`+44 (0)7911 …`). If one number had two forms, it could have two
    /// accounts and twice the limits.
    pub fn parse(text: &str) -> Option<Self> {
        // Enough for any notation of fifteen digits; bounds the work.
        if text.len() > 40 {
            return None;
        }
        let number: String = text.chars().filter(|letter| !" -.()".contains(*letter)).collect();
        let digits = number.strip_prefix('+')?;
        let valid = (7..=15).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && !digits.starts_with('0');
        valid.then(|| Self(known_form(&number).unwrap_or(number)))
    }

    /// The complete number. Do not log it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Prefix of the block of numbers that are probably sold together: all that differ only in the last four digits.
    pub fn block(&self) -> &str {
        &self.0[..self.0.len() - 4]
    }

    /// Whether the numbering plans list this number as a mobile number. Landlines cannot display texts. `VoIP` numbers
    /// are rented by the thousand to create many accounts. Premium-rate, shared-cost and personal numbers earn their
    /// owner money from messages. Some plans, like the one of the United States, do not distinguish mobile numbers from
    /// landlines; their numbers are accepted.
    pub fn is_worth_texting(&self) -> bool {
        phonenumber::parse(None, &self.0).is_ok_and(|number| {
            let kind = number.number_type(&phonenumber::metadata::DATABASE);
            phonenumber::is_valid(&number) && matches!(kind, Type::Mobile | Type::FixedLineOrMobile)
        })
    }

    /// Loads the numbering plans, which takes a moment the first time.
    pub fn prepare() {
        let phone = Self("+14155550100".to_owned());
        with_plans(|| phone.is_worth_texting());
        phone.country();
    }

    /// Country of the number as an ISO 3166 code, or the calling code if the number belongs to no country, as in
    /// `+883`.
    pub fn country(&self) -> Country {
        let parsed = with_plans(|| phonenumber::parse(None, &self.0).ok());
        match parsed.as_ref().and_then(|number| number.country().id()) {
            Some(id) => Country(format!("{id:?}")),
            None => {
                Country(parsed.map_or_else(|| self.0[..3].to_owned(), |number| format!("+{}", number.code().value())))
            }
        }
    }
}

/// Runs work that needs the numbering plans. The first calls wait until the plans are loaded. `block_in_place` keeps
/// them from blocking the runtime's other tasks; otherwise a process that just started could not respond to any request
/// until then.
fn with_plans<T>(work: impl FnOnce() -> T) -> T {
    static ARE_READ: AtomicBool = AtomicBool::new(false);
    if ARE_READ.load(Relaxed) {
        return work();
    }
    let has_others = Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    let done = if has_others { tokio::task::block_in_place(work) } else { work() };
    ARE_READ.store(true, Relaxed);
    done
}

/// Canonical form of a number that is valid by the numbering plans; `None` for other numbers, such as fictional ones.
fn known_form(number: &str) -> Option<String> {
    let known = with_plans(|| phonenumber::parse(None, number).ok().filter(phonenumber::is_valid))?;
    Some(known.format().mode(Mode::E164).to_string())
}

/// Masks the number: enough digits to recognise it in a log, too few to call it.
impl fmt::Display for Phone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end) = (&self.0[..3], &self.0[self.0.len() - 2..]);
        write!(f, "{start}…{end}")
    }
}

impl fmt::Debug for Phone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromJson for Phone {
    const EXPECTED: &'static str = "must be a phone number in international format, like +14155550100";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(Self::parse)
    }
}

impl FromQuery for Phone {
    const EXPECTED: &'static str = <Self as FromJson>::EXPECTED;

    fn from_query(text: &str) -> Option<Self> {
        // An unencoded plus sign in a query arrives as a space.
        match text.strip_prefix(' ') {
            Some(rest) => Self::parse(&format!("+{rest}")),
            None => Self::parse(text),
        }
    }
}

/// Country of a phone number: an ISO 3166 code, or a calling code like `+883`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Country(String);

impl Country {
    /// Parses a two-letter ISO 3166 code.
    pub fn parse(text: &str) -> Option<Self> {
        let upper = text.to_ascii_uppercase();
        upper.parse::<country::Id>().ok().map(|id| Self(format!("{id:?}")))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn common_notations_are_parsed() {
        for spelling in ["+14155550100", "+1 415 555 0100", "+1 (415) 555-0100", "+1.415.555.0100"] {
            assert_eq!(Phone::parse(spelling).as_ref().map(Phone::as_str), Some("+14155550100"), "{spelling}");
        }
        for (spelling, number) in [
            ("+44 (0)7911 123456", "+447911123456"),
            ("+4407911123456", "+447911123456"),
            ("+49 0171 1234567", "+491711234567"),
            ("+33 06 12 34 56 78", "+33612345678"),
            ("+98 0912 345 6789", "+989123456789"),
            ("+55 011 91234-5678", "+5511912345678"),
            // In Italy, the zero is part of the number.
            ("+39 06 1234 5678", "+390612345678"),
        ] {
            assert_eq!(Phone::parse(spelling).as_ref().map(Phone::as_str), Some(number), "{spelling}");
        }
        for nonsense in [
            "",
            "+",
            "12345",
            "4155550100",
            "+0123456789",
            "+1415abc0000",
            "+12222222222222222",
            "+123456",
            "++14155550100",
            "+1415555+0100",
            "+١٤١٥٥٥٥٠١٠٠",
            "+1415555010\u{200b}0",
            "+1415555\n0100",
        ] {
            assert_eq!(Phone::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn unencoded_plus_in_query_is_accepted() {
        let wanted = Phone::parse("+14155550100");
        assert_eq!(Phone::from_query(" 14155550100"), wanted);
        assert_eq!(Phone::from_query("+14155550100"), wanted);
    }

    #[test]
    fn country_and_block_are_derived_from_number() {
        let phone = |text: &str| Phone::parse(text).expect("a phone");
        assert_eq!(phone("+442079460958").country().as_str(), "GB");
        assert_eq!(phone("+442079460958").block(), "+44207946");
        assert_eq!(phone("+12024561111").country().as_str(), "US");
        assert_eq!(phone("+14165550100").country().as_str(), "CA", "countries that share a calling code");
        assert_eq!(phone("+491711234567").country().as_str(), "DE");
        assert_eq!(Country::parse("gb"), Some(phone("+442079460958").country()));
        assert_eq!(Country::parse("XX"), None);
        assert!(phone("+12024561111").is_worth_texting() && phone("+491711234567").is_worth_texting());
        assert!(phone("+447911123456").is_worth_texting() && phone("+33612345678").is_worth_texting());
    }

    #[test]
    fn only_mobile_numbers_are_texted() {
        for (kind, number) in [
            ("unknown", "+10000000000"),
            ("premium rate", "+19005550123"),
            ("premium rate", "+449098790000"),
            ("personal", "+447012345678"),
            ("toll-free", "+498001234567"),
            ("shared cost", "+448431234567"),
            ("landline", "+442079460958"),
            ("landline", "+493012345678"),
            ("landline", "+33140205050"),
            ("VoIP", "+445612345678"),
            ("VoIP", "+33912345678"),
            ("pager", "+447640123456"),
        ] {
            let phone = Phone::parse(number).expect("a phone");
            assert!(!phone.is_worth_texting(), "{kind}: {number}");
        }
    }

    #[test]
    fn display_and_debug_mask_the_number() {
        let phone = Phone::parse("+14155550123").expect("a phone");
        assert_eq!((format!("{phone}"), format!("{phone:?}")), ("+14…23".to_owned(), "+14…23".to_owned()));
    }

    proptest! {
        #[test]
        fn parsed_numbers_are_valid_and_stable(text in ".{0,45}") {
            if let Some(phone) = Phone::parse(&text) {
                let digits = phone.as_str().strip_prefix('+').expect("a plus");
                prop_assert!((7..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()));
                prop_assert_eq!(Phone::parse(phone.as_str()), Some(phone.clone()));
            }
        }

        #[test]
        fn every_number_has_a_block_a_country_and_a_mask(digits in "[1-9][0-9]{6,14}") {
            let phone = Phone::parse(&format!("+{digits}")).expect("a phone");
            prop_assert_eq!(phone.block().len() + 4, phone.as_str().len());
            prop_assert_eq!(Phone::parse(phone.as_str()), Some(phone.clone()), "parsing is idempotent");
            prop_assert!(!phone.country().as_str().is_empty());
            let _ = phone.is_worth_texting();
            prop_assert!(!phone.to_string().contains(&digits));
        }
    }
}
