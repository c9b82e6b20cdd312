//! A phone number as a type: what is not one cannot be written down as one, and none is ever written to a log whole.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use phonenumber::{Mode, Type, country};
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};
use web::fields::{FromJson, FromQuery};

/// A phone number in the international form (E.164): `+`, no leading zero, 7 to 15 digits.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, sqlx::Type)]
#[sqlx(transparent)]
pub struct Phone(String);

impl Phone {
    /// Reads a number as people write it: spaces, dashes, dots and parentheses are taken out. Only ASCII digits count,
    /// and a zero that belongs to calls within a country goes (`+44 (0)7911 …`): two ways to write one number would be
    /// two accounts, and twice the limits.
    pub fn parse(text: &str) -> Option<Self> {
        // Long enough for any way to write fifteen digits, and a bound on the work.
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

    /// The number itself. Not for logs.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The numbers that are likely sold together: all that differ in the last four digits only.
    pub fn block(&self) -> &str {
        &self.0[..self.0.len() - 4]
    }

    /// Whether numbering plans know such a number as one of a mobile phone. A landline cannot show a text. `VoIP` numbers are
    /// rented by the thousand, to have many accounts. Premium, shared-cost and personal numbers turn messages into money.
    /// Plans like that of the United States do not tell mobile phones from landlines: such numbers are texted.
    pub fn is_worth_texting(&self) -> bool {
        phonenumber::parse(None, &self.0).is_ok_and(|number| {
            let kind = number.number_type(&phonenumber::metadata::DATABASE);
            phonenumber::is_valid(&number) && matches!(kind, Type::Mobile | Type::FixedLineOrMobile)
        })
    }

    /// Reads the numbering plans, which takes a moment the first time.
    pub fn prepare() {
        let phone = Self("+14155550100".to_owned());
        with_plans(|| phone.is_worth_texting());
        phone.country();
    }

    /// Whose number it is, as an ISO 3166 code, or the calling code where no country can be told, as in `+883`.
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

/// Works with the numbering plans. Whoever comes before they are read waits for them; but not on a thread that the requests
/// of others need: a process that just began would answer nobody until then.
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

/// The one form of a number that numbering plans know; none of a fictional one.
fn known_form(number: &str) -> Option<String> {
    let known = with_plans(|| phonenumber::parse(None, number).ok().filter(phonenumber::is_valid))?;
    Some(known.format().mode(Mode::E164).to_string())
}

/// Enough to recognise a number in a log by, too little to call it.
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
    const EXPECTED: &'static str = "must be a phone number in the international form, like +14155550100";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(Self::parse)
    }
}

impl FromQuery for Phone {
    const EXPECTED: &'static str = <Self as FromJson>::EXPECTED;

    fn from_query(text: &str) -> Option<Self> {
        // In a query a plus that was not encoded arrives as a space.
        match text.strip_prefix(' ') {
            Some(rest) => Self::parse(&format!("+{rest}")),
            None => Self::parse(text),
        }
    }
}

/// A country, as far as numbers tell it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Country(String);

impl Country {
    /// Reads an ISO 3166 code of two letters.
    pub fn parse(text: &str) -> Option<Self> {
        let upper = text.to_ascii_uppercase();
        upper.parse::<country::Id>().ok().map(|id| Self(format!("{id:?}")))
    }

    /// The code.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
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
            // In Italy the zero is part of the number.
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
    fn a_plus_that_a_query_swallowed_is_understood() {
        let wanted = Phone::parse("+14155550100");
        assert_eq!(Phone::from_query(" 14155550100"), wanted);
        assert_eq!(Phone::from_query("+14155550100"), wanted);
    }

    #[test]
    fn countries_and_blocks() {
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
    fn a_log_line_shows_too_little_to_call() {
        let phone = Phone::parse("+14155550123").expect("a phone");
        assert_eq!((format!("{phone}"), format!("{phone:?}")), ("+14…23".to_owned(), "+14…23".to_owned()));
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_a_number(text in ".{0,45}") {
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
            prop_assert_eq!(Phone::parse(phone.as_str()), Some(phone.clone()), "one form, however often it is read");
            prop_assert!(!phone.country().as_str().is_empty());
            let _ = phone.is_worth_texting();
            prop_assert!(!phone.to_string().contains(&digits));
        }
    }
}
