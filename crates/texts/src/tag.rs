//! Language tags.

use std::fmt;

/// A language tag such as `de`, `de-AT` or `zh-Hant-TW`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Locale(String);

impl Default for Locale {
    fn default() -> Self {
        Self("en".to_owned())
    }
}

impl Locale {
    /// Accepts `^[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?$`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-').peekable();
        let all = |part: &str, test: fn(&u8) -> bool| part.bytes().all(|byte| test(&byte));
        let language = parts.next()?;
        let mut is_valid = (2..=3).contains(&language.len()) && all(language, u8::is_ascii_lowercase);
        let is_script = |part: &str| {
            part.len() == 4 && all(&part[..1], u8::is_ascii_uppercase) && all(&part[1..], u8::is_ascii_lowercase)
        };
        parts.next_if(|part| part.is_ascii() && is_script(part));
        if let Some(region) = parts.next() {
            is_valid &= region.len() == 2 && all(region, u8::is_ascii_uppercase)
                || region.len() == 3 && all(region, u8::is_ascii_digit);
        }
        (is_valid && parts.next().is_none()).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the locale itself, and then without its last part, down to the language.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(self.as_str()), |tag| tag.rsplit_once('-').map(|(shorter, _)| shorter))
    }
}

impl fmt::Display for Locale {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
