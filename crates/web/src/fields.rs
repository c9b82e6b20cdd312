//! Parses the fields of a body or query into types, and collects all faults for the 422 response.

use std::{borrow::Cow, collections::BTreeMap};

use platform::settings::Phrase;
use serde_json::{Map, Value};
use time::{Date, OffsetDateTime, format_description::well_known::Rfc3339, macros::format_description};

use super::error::ApiError;

/// Messages of a request's faults, by field.
pub type Faults = BTreeMap<String, Vec<String>>;

/// A type that a field of a body can have.
pub trait FromJson: Sized {
    /// Completes "The field …".
    const EXPECTED: &'static str;
    /// Parses the value; `None` if its type or value is invalid.
    fn from_json(value: &Value) -> Option<Self>;
}

/// A type that a query parameter can have.
pub trait FromQuery: Sized {
    /// Completes "The field …".
    const EXPECTED: &'static str;
    /// Parses the text; `None` if it is invalid.
    fn from_query(text: &str) -> Option<Self>;
}

/// Parses a whole number in any notation: in JSON, 7 and 7.0 are equal.
pub fn whole_number(value: &Value) -> Option<i64> {
    /// Up to this value, every whole number has a distinct float.
    const EXACT: f64 = 9_007_199_254_740_991.0;
    let is_whole = |number: &f64| number.abs() <= EXACT && number.trunc().to_bits() == number.to_bits();
    #[expect(clippy::cast_possible_truncation, reason = "the value is whole and in range")]
    value.as_i64().or_else(|| value.as_f64().filter(is_whole).map(|number| number as i64))
}

/// A body that is parsed field by field.
pub trait FromBody: Sized {
    /// Reads every field, also after a fault; returns `None` if one is missing or invalid. Faults are collected in
    /// `body`.
    fn from_body(body: &mut Body) -> Option<Self>;
}

/// The field is missing or invalid. Its fault is recorded, and the request fails after all checks have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faulty;

/// A field of a body: `T` is required, `Option<T>` may be absent or null, `Change<T>` distinguishes absent from null.
/// `Result<_, Faulty>` continues after a fault, for checks that compare fields.
pub trait BodyField: Sized {
    /// Reads the field, or records its fault in `body` and returns `None`.
    fn read(body: &mut Body, name: &str) -> Option<Self>;
}

impl<T: FromJson> BodyField for T {
    fn read(body: &mut Body, name: &str) -> Option<Self> {
        body.required(name)
    }
}

impl<T: FromJson> BodyField for Option<T> {
    fn read(body: &mut Body, name: &str) -> Option<Self> {
        body.optional(name)
    }
}

impl<T: FromJson> BodyField for Change<T> {
    fn read(body: &mut Body, name: &str) -> Option<Self> {
        body.change(name)
    }
}

impl<T: BodyField> BodyField for Result<T, Faulty> {
    fn read(body: &mut Body, name: &str) -> Option<Self> {
        Some(T::read(body, name).ok_or(Faulty))
    }
}

/// Implements [`FromBody`] for a struct by reading every field as its type says ([`BodyField`]). The struct can then
/// derive `ToSchema`, so one type parses a body and describes it.
#[macro_export]
macro_rules! from_body {
    ($body:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::fields::FromBody for $body {
            fn from_body(body: &mut $crate::fields::Body) -> Option<Self> {
                // All fields are read before the first `?`, so the response reports every fault.
                $(let $field = $crate::fields::BodyField::read(body, stringify!($field));)+
                Some(Self { $($field: $field?),+ })
            }
        }
    };
}
pub use from_body;

/// A requested change of an optional value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// The field is absent.
    Keep,
    /// The field is null.
    Clear,
    /// The field has a value.
    Set(T),
}

impl<T> Change<T> {
    /// Returns the value after the change.
    pub fn apply(self, before: Option<T>) -> Option<T> {
        match self {
            Self::Keep => before,
            Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }
}

/// Query parameters that are parsed one by one.
pub trait FromParameters: Sized {
    /// Reads every parameter. Faults are collected in `parameters`.
    fn from_parameters(parameters: &mut Parameters<'_>) -> Option<Self>;
}

/// A query parameter: `T` is required, `Option<T>` may be absent. `Result<_, Faulty>` continues after a fault, for
/// checks that compare parameters.
pub trait Parameter: Sized {
    /// Reads the parameter, or records its fault in `parameters` and returns `None`.
    fn read(parameters: &mut Parameters<'_>, name: &str) -> Option<Self>;
}

impl<T: FromQuery> Parameter for T {
    fn read(parameters: &mut Parameters<'_>, name: &str) -> Option<Self> {
        parameters.required(name)
    }
}

impl<T: FromQuery> Parameter for Option<T> {
    fn read(parameters: &mut Parameters<'_>, name: &str) -> Option<Self> {
        parameters.optional(name)
    }
}

impl<T: Parameter> Parameter for Result<T, Faulty> {
    fn read(parameters: &mut Parameters<'_>, name: &str) -> Option<Self> {
        Some(T::read(parameters, name).ok_or(Faulty))
    }
}

/// Implements [`FromParameters`] for a struct by reading every field as its type says ([`Parameter`]). The struct can
/// then derive `IntoParams`, so one type parses the parameters and describes them.
#[macro_export]
macro_rules! from_parameters {
    ($parameters:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::fields::FromParameters for $parameters {
            fn from_parameters(parameters: &mut $crate::fields::Parameters<'_>) -> Option<Self> {
                // All parameters are read before the first `?`, so the response reports every fault.
                $(let $field = $crate::fields::Parameter::read(parameters, stringify!($field));)+
                Some(Self { $($field: $field?),+ })
            }
        }
    };
}
pub use from_parameters;

/// Combines two groups of parameters, as in a filter and a page.
impl<A: FromParameters, B: FromParameters> FromParameters for (A, B) {
    fn from_parameters(parameters: &mut Parameters<'_>) -> Option<Self> {
        let (first, second) = (A::from_parameters(parameters), B::from_parameters(parameters));
        Some((first?, second?))
    }
}

/// The fields of a JSON object.
#[derive(Debug)]
pub struct Body {
    fields: Map<String, Value>,
    faults: Faults,
}

impl Body {
    /// Parses a body into `T`, or returns all of its faults.
    pub fn parse<T: FromBody>(bytes: &[u8]) -> Result<T, ApiError> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| ApiError::malformed_json(&error))?;
        let Value::Object(fields) = value else {
            return Err(ApiError::invalid(one("body", "must be a JSON object")));
        };
        let mut body = Self { fields, faults: Faults::new() };
        let parsed = T::from_body(&mut body);
        match parsed {
            Some(parsed) if body.faults.is_empty() => Ok(parsed),
            _ => Err(ApiError::invalid(body.faults)),
        }
    }

    /// Reads a required field.
    pub fn required<T: FromJson>(&mut self, name: &str) -> Option<T> {
        match self.fields.get(name) {
            None | Some(Value::Null) => self.fault(name, "is required"),
            Some(value) => {
                let parsed = T::from_json(value);
                if parsed.is_some() { parsed } else { self.fault(name, T::EXPECTED) }
            }
        }
    }

    /// Reads a field that may be absent or null. Returns `None` only for a fault.
    pub fn optional<T: FromJson>(&mut self, name: &str) -> Option<Option<T>> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Some(None),
            Some(_) => self.required(name).map(Some),
        }
    }

    /// Reads a field that requests a change: absent keeps the value, null clears it. Returns `None` only for a fault.
    pub fn change<T: FromJson>(&mut self, name: &str) -> Option<Change<T>> {
        match self.fields.get(name) {
            None => Some(Change::Keep),
            Some(Value::Null) => Some(Change::Clear),
            Some(_) => self.required(name).map(Change::Set),
        }
    }

    /// Records a fault that the type alone cannot detect.
    pub fn fault<T>(&mut self, name: &str, message: &str) -> Option<T> {
        self.faults.entry(name.to_owned()).or_default().push(sentence(name, message));
        None
    }
}

/// The parameters of a query string.
#[derive(Debug)]
pub struct Parameters<'a> {
    given: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    faults: Faults,
}

impl<'a> Parameters<'a> {
    /// Parses a query string into `T`, or returns all of its faults.
    pub fn parse<T: FromParameters>(query: &'a str) -> Result<T, ApiError> {
        let given = url::form_urlencoded::parse(query.as_bytes()).collect();
        let mut parameters = Self { given, faults: Faults::new() };
        let parsed = T::from_parameters(&mut parameters);
        match parsed {
            Some(parsed) if parameters.faults.is_empty() => Ok(parsed),
            _ => Err(ApiError::invalid(parameters.faults)),
        }
    }

    /// Reads an optional parameter. Returns `None` only for a fault.
    pub fn optional<T: FromQuery>(&mut self, name: &str) -> Option<Option<T>> {
        // Of a repeated parameter, the last counts.
        let Some((_, text)) = self.given.iter().rfind(|(given, _)| given == name) else { return Some(None) };
        let parsed = T::from_query(text);
        if parsed.is_some() { parsed.map(Some) } else { self.fault(name, T::EXPECTED) }
    }

    /// Reads a required parameter.
    pub fn required<T: FromQuery>(&mut self, name: &str) -> Option<T> {
        match self.optional(name)? {
            None => self.fault(name, "is required"),
            given => given,
        }
    }

    /// Records a fault that the type alone cannot detect.
    pub fn fault<T>(&mut self, name: &str, message: &str) -> Option<T> {
        self.faults.entry(name.to_owned()).or_default().push(sentence(name, message));
        None
    }
}

/// A single fault of one field.
pub fn one(name: &str, message: &str) -> Faults {
    Faults::from([(name.to_owned(), vec![sentence(name, message)])])
}

fn sentence(name: &str, message: &str) -> String {
    format!("The {} {message}.", name.replace('_', " "))
}

/// A search text. NUL is refused, because `PostgreSQL` cannot store it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Search(String);

impl Search {
    /// Pattern for `like` that matches `%`, `_` and `\` literally. The database folds the case, because it must do so
    /// in the same way for the pattern and the searched text.
    pub fn pattern(&self) -> String {
        let mut pattern = String::with_capacity(self.0.len() + 2);
        pattern.push('%');
        for letter in self.0.chars() {
            if matches!(letter, '%' | '_' | '\\') {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern.push('%');
        pattern
    }
}

impl FromQuery for Search {
    const EXPECTED: &'static str = "must be a string of at most 100 characters";

    fn from_query(text: &str) -> Option<Self> {
        (text.chars().count() <= 100 && !text.contains('\0')).then(|| Self(text.to_owned()))
    }
}

/// A point in time, in microseconds as the database stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(pub OffsetDateTime);

impl FromJson for Moment {
    const EXPECTED: &'static str = "must be a timestamp like 2026-11-20T15:00:00Z";

    fn from_json(value: &Value) -> Option<Self> {
        let moment = OffsetDateTime::parse(value.as_str()?, &Rfc3339).ok()?.to_offset(time::UtcOffset::UTC);
        let moment = moment.replace_nanosecond(moment.nanosecond() / 1_000 * 1_000).ok()?;
        (1900..=2999).contains(&moment.year()).then_some(Self(moment))
    }
}

impl FromJson for bool {
    const EXPECTED: &'static str = "must be true or false";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl FromQuery for bool {
    const EXPECTED: &'static str = "must be true or false";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl FromJson for Date {
    const EXPECTED: &'static str = <Self as FromQuery>::EXPECTED;

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(Self::from_query)
    }
}

impl FromQuery for Date {
    const EXPECTED: &'static str = "must be a date like 2026-11-20";

    fn from_query(text: &str) -> Option<Self> {
        // The format alone would also accept signs and years before 1.
        let plain = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        Self::parse(text, format_description!("[year]-[month]-[day]")).ok().filter(|date| plain && date.year() >= 1)
    }
}

impl FromJson for Phrase {
    const EXPECTED: &'static str = "must be a string of 1 to 64 characters without control characters";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(Self::parse)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_numbers_are_accepted_in_any_notation() {
        let read = |text: &str| whole_number(&serde_json::from_str(text).expect("JSON"));
        for (text, number) in [("7", 7), ("7.0", 7), ("-0.0", 0), ("1e3", 1_000), ("9223372036854775807", i64::MAX)] {
            assert_eq!(read(text), Some(number), "{text}");
        }
        for text in ["7.5", "1e300", "9007199254740993.0", "\"7\"", "null", "18446744073709551615"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn search_pattern_escapes_wildcards() {
        assert_eq!(Search("50%_A\\b".to_owned()).pattern(), "%50\\%\\_A\\\\b%");
    }

    #[test]
    fn dates_must_exist_in_the_calendar() {
        for (text, valid) in [
            ("2026-02-28", true),
            ("2026-02-29", false),
            ("2026-13-01", false),
            ("tomorrow", false),
            ("", false),
            ("2026-1-1", false),
            ("-999-01-01", false),
            ("-9999-01-01", false),
            ("+2026-01-01", false),
            ("0000-01-01", false),
        ] {
            assert_eq!(Date::from_query(text).is_some(), valid, "{text}");
        }
    }

    #[derive(Debug, PartialEq)]
    struct Anything {
        team_id: crate::ids::TeamId,
        public: Option<bool>,
        born: Change<Date>,
        checked: Result<bool, Faulty>,
    }

    from_body!(Anything { team_id, public, born, checked });

    #[test]
    fn field_types_decide_what_may_be_absent() {
        let read = |text: &str| {
            let Value::Object(fields) = serde_json::from_str(text).expect("JSON") else { panic!("an object") };
            let mut body = Body { fields, faults: Faults::new() };
            (Anything::from_body(&mut body), body.faults.into_keys().collect::<Vec<_>>())
        };
        let anything = |born| Anything { team_id: crate::ids::TeamId(7), public: None, born, checked: Ok(true) };
        let absent = read(r#"{"team_id": 7, "checked": true}"#);
        assert_eq!(absent, (Some(anything(Change::Keep)), vec![]));
        let null = read(r#"{"team_id": 7, "public": null, "born": null, "checked": true}"#);
        assert_eq!(null, (Some(anything(Change::Clear)), vec![]));
        let faulty = read(r#"{"team_id": 7}"#);
        let checked = Err(Faulty);
        assert_eq!(faulty, (Some(Anything { checked, ..anything(Change::Keep) }), vec!["checked".to_owned()]));
        let all = ["born", "checked", "public", "team_id"].map(str::to_owned).to_vec();
        assert_eq!(read(r#"{"public": 1, "born": 1, "checked": 1}"#), (None, all));
    }

    proptest! {
        #[test]
        fn arbitrary_bodies_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Body::parse::<Anything>(&bytes);
        }

        #[test]
        fn arbitrary_queries_do_not_panic(query in ".*") {
            let _ = Parameters::parse::<crate::paging::Paging>(&query);
        }
    }
}
