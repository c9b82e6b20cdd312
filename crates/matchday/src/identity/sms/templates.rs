//! Texts of messages in each language. The texts with codes are in the catalogue (crate `texts`), except those in languages
//! that have no other texts yet.
//!
//! Every text starts with the code, or nearly so, because a lock screen shows only the start. The texts in Latin script
//! stay within the seven-bit alphabet (see [`gsm7`](super::gsm7)), which affects the wording: Spanish uses `clave`,
//! because `código` would require a second message.

use serde::{Deserialize, Serialize};
use texts::{Args, Catalogue, Locale};

/// Maximum length of the app's name in bytes. Android's SMS Retriever ignores messages of more than 140 bytes. With a
/// name of this length, the longest text including the hash stays below that.
const LONGEST_NAME: usize = 30;
/// Maximum number of ranges that are read from a header.
const MOST_RANGES: usize = 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Language {
    #[default]
    #[serde(rename = "en")]
    English,
    #[serde(rename = "de")]
    German,
    #[serde(rename = "es")]
    Spanish,
    #[serde(rename = "fr")]
    French,
    #[serde(rename = "fa")]
    Persian,
    /// Portuguese, in words that are common in both Brazil and Portugal.
    #[serde(rename = "pt")]
    Portuguese,
}

impl Language {
    /// All languages, in order of preference.
    pub const ALL: [Self; 6] =
        [Self::English, Self::Spanish, Self::Persian, Self::Portuguese, Self::German, Self::French];

    /// Selects the language for an `Accept-Language` header (RFC 9110, section 12.5.4): the highest weight wins, and
    /// the first range among equal ones. Regions are ignored, and malformed ranges are skipped. If no supported
    /// language is acceptable, the result is English, because a message must have some language.
    pub fn negotiate(accept_language: Option<&str>) -> Self {
        let ranges: Vec<_> = accept_language
            .unwrap_or_default()
            .split(',')
            .take(MOST_RANGES)
            .enumerate()
            .filter_map(|(position, range)| Range::parse(position, range))
            .collect();
        let range_for = |language: Self| {
            let named = ranges.iter().filter(|range| range.names(language)).max_by_key(|range| range.rank());
            // The wildcard matches only languages that are not named, so an explicitly excluded language stays
            // excluded.
            named.or_else(|| ranges.iter().find(|range| range.is_wildcard()))
        };
        let mut best: Option<(&Range<'_>, Self)> = None;
        for language in Self::ALL {
            if let Some(range) = range_for(language).filter(|range| range.weight > 0)
                && best.is_none_or(|(other, _)| range.rank() > other.rank())
            {
                best = Some((range, language));
            }
        }
        best.map(|(_, language)| language).unwrap_or_default()
    }

    /// Language tag for storage.
    pub fn tag(self) -> &'static str {
        self.subtags()[0]
    }

    /// Inverse of [`Self::tag`]; English for an unknown tag.
    pub fn from_tag(tag: &str) -> Self {
        Self::ALL.into_iter().find(|language| language.tag() == tag).unwrap_or_default()
    }

    /// Primary subtags of this language. Persian also has subtags for its Iranian and Afghan varieties.
    fn subtags(self) -> &'static [&'static str] {
        match self {
            Self::English => &["en"],
            Self::German => &["de"],
            Self::Spanish => &["es"],
            Self::French => &["fr"],
            Self::Persian => &["fa", "pes", "prs"],
            Self::Portuguese => &["pt"],
        }
    }
}

/// One range of an `Accept-Language` header.
struct Range<'a> {
    primary: &'a str,
    /// Weight of the language in thousandths.
    weight: u16,
    position: usize,
}

impl<'a> Range<'a> {
    fn parse(position: usize, text: &'a str) -> Option<Self> {
        let (tag, weight) = match text.split_once(';') {
            None => (text, 1000),
            Some((tag, parameter)) => {
                let (name, value) = parameter.split_once('=')?;
                if !name.trim().eq_ignore_ascii_case("q") {
                    return None;
                }
                (tag, weight(value.trim())?)
            }
        };
        let primary = tag.trim().split('-').next().filter(|primary| !primary.is_empty())?;
        Some(Self { primary, weight, position })
    }

    fn is_wildcard(&self) -> bool {
        self.primary == "*"
    }

    fn names(&self, language: Language) -> bool {
        language.subtags().iter().any(|subtag| subtag.eq_ignore_ascii_case(self.primary))
    }

    /// A greater rank is preferred.
    fn rank(&self) -> (u16, std::cmp::Reverse<usize>) {
        (self.weight, std::cmp::Reverse(self.position))
    }
}

/// Parses a weight with up to three decimals, in thousandths.
fn weight(text: &str) -> Option<u16> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{decimals:0<3}").parse().ok()?;
    match (whole, thousandths) {
        ("0", thousandths) => Some(thousandths),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

/// Name of the app in messages: short, and on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppName(String);

/// Hash that identifies an Android app to the SMS Retriever.
///
/// It is configured and appears in a message that users trust, so exactly eleven base64 characters are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppHash(String);

/// Host of a website whose pages may fill in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebDomain(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The name is empty, longer than 30 bytes, or contains line breaks or other control characters.
    #[error("the name of the app must have 1 to {LONGEST_NAME} bytes on one line")]
    AppName,
    #[error("the Android app hash must have 11 base64 characters")]
    AppHash,
    #[error("the web domain must be an ASCII host name without scheme, port or path")]
    WebDomain,
}

impl AppName {
    /// Accepts a name of 1 to 30 bytes.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let text = text.trim();
        let fits = (1..=LONGEST_NAME).contains(&text.len()) && !text.chars().any(char::is_control);
        if fits { Ok(Self(text.to_owned())) } else { Err(TemplateError::AppName) }
    }
}

impl AppHash {
    /// Accepts a hash of eleven characters.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let fits = text.len() == 11 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte));
        if fits { Ok(Self(text.to_owned())) } else { Err(TemplateError::AppHash) }
    }
}

impl WebDomain {
    /// Accepts a host name; an internationalised one must be in its `xn--` form.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let fits = text.len() <= 253 && text.split('.').all(is_label);
        if fits { Ok(Self(text.to_ascii_lowercase())) } else { Err(TemplateError::WebDomain) }
    }
}

/// Machine-readable line at the end of a message. Only one is possible, because each kind must be the last line.
#[derive(Clone, Copy, Debug, Default)]
pub enum LastLine<'a> {
    #[default]
    None,
    /// Lets the Android app with this hash read the message (SMS Retriever).
    App(&'a AppHash),
    /// Lets only pages of this host fill in the code (`WebOTP`, and Safari's `AutoFill`).
    Web(&'a WebDomain),
}

/// What a code is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Login,
    /// Confirms a change of an account.
    Verification,
}

impl Purpose {
    /// Id of the text in the catalogue.
    fn text(self) -> &'static str {
        match self {
            Self::Login => "sms-login-code",
            Self::Verification => "sms-verification-code",
        }
    }
}

/// Renders the message with a code. `minutes` is its validity.
pub fn render(
    catalogue: &Catalogue,
    purpose: Purpose,
    language: Language,
    app: &AppName,
    code: &str,
    minutes: u64,
    last_line: LastLine<'_>,
) -> String {
    let app = &app.0;
    let args = Args::new().text("code", code).text("app", app.as_str()).text("minutes", minutes.to_string());
    let locale = Locale::parse(language.tag()).unwrap_or_default();
    let found = catalogue.find(&locale, purpose.text(), &args);
    let mut text = found.unwrap_or_else(|| match language {
        // The code keeps its ASCII digits, which apps and phones detect. Digits have no strong direction, so the
        // paragraph takes the direction of its first letter, and six consecutive digits cannot be reordered. Direction
        // marks or isolates would not help: old phones show them as boxes, and users would copy them with the code.
        // However, a Persian word must remain between the name and the minutes: a number directly after a Latin name
        // would be displayed as part of it.
        Language::Persian => {
            format!("{code} کد ورود {app} است؛ {minutes} دقیقه معتبر. به کسی ندهید.")
        }
        Language::Portuguese => {
            format!("Use {code} para entrar em {app}. Vale por {minutes} min. Nunca o revele a ninguém.")
        }
        Language::English | Language::German | Language::Spanish | Language::French => {
            catalogue.text(&locale, purpose.text(), &args)
        }
    });
    match last_line {
        LastLine::None => {}
        LastLine::App(AppHash(hash)) => {
            text.push('\n');
            text.push_str(hash);
        }
        LastLine::Web(WebDomain(host)) => {
            text.push_str("\n@");
            text.push_str(host);
            text.push_str(" #");
            text.push_str(code);
        }
    }
    text
}

/// Renders the notice to the old phone of an account that has moved. `undo` is a code or a link.
pub fn render_move_notice(language: Language, app: &AppName, undo: &str, hours: u64) -> String {
    let app = &app.0;
    match language {
        Language::English => {
            format!("Your {app} account was moved to another phone number. Not you? Undo it within {hours} h: {undo}")
        }
        Language::German => {
            format!(
                "Dein {app}-Konto ist auf eine andere Nummer umgezogen. Das warst nicht du? Mach es innerhalb von {hours} Std. rückgängig: {undo}"
            )
        }
        Language::French => {
            format!("Votre compte {app} a changé de numéro. Ce n'est pas vous ? Annulez dans les {hours} h : {undo}")
        }
        Language::Spanish => {
            format!("Tu cuenta de {app} se ha pasado a otro número. ¿No has sido tú? Anúlalo en {hours} h: {undo}")
        }
        Language::Persian => {
            format!("حساب {app} شما به شماره دیگری منتقل شد. کار شما نبود؟ تا {hours} ساعت لغو کنید: {undo}")
        }
        Language::Portuguese => {
            format!("A sua conta {app} passou para outro número. Não foi você? Anule em {hours} h: {undo}")
        }
    }
}

/// Renders the notice that the chat keys of an account were replaced.
pub fn render_keys_notice(language: Language, app: &AppName) -> String {
    let app = &app.0;
    match language {
        Language::English => {
            format!("Your {app} chat keys were replaced. Not you? Log in and end all other sessions.")
        }
        Language::German => {
            format!(
                "Deine Chat-Schlüssel für {app} wurden ersetzt. Das warst nicht du? Melde dich an und beende alle anderen Sitzungen."
            )
        }
        Language::French => {
            format!(
                "Vos clés de chat {app} ont été remplacées. Ce n'est pas vous ? Connectez-vous et fermez les autres sessions."
            )
        }
        Language::Spanish => {
            format!(
                "Se han cambiado las claves de tu chat de {app}. ¿No has sido tú? Entra y cierra las otras sesiones."
            )
        }
        // A space replaces the zero-width non-joiner in the plural, because old phones show it as a box.
        Language::Persian => {
            format!("کلیدهای گفتگوی {app} شما عوض شد. کار شما نبود؟ وارد شوید و نشست های دیگر را ببندید.")
        }
        Language::Portuguese => {
            format!("As chaves do seu chat {app} foram trocadas. Não foi você? Entre e termine as outras sessões.")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::gsm7::{is_one_message, septets},
        *,
    };

    const CODE: &str = "123456";
    const LONGEST_FOR_RETRIEVER: usize = 140;

    fn name(text: &str) -> AppName {
        AppName::parse(text).expect("a name")
    }

    fn render(language: Language, app: &AppName, code: &str, minutes: u64, last_line: LastLine<'_>) -> String {
        let catalogue = Catalogue::load(&Locale::default(), None).expect("texts");
        let texts = [Purpose::Login, Purpose::Verification]
            .map(|purpose| super::render(&catalogue, purpose, language, app, code, minutes, last_line));
        assert_eq!(texts[0], texts[1]);
        texts[0].clone()
    }

    fn hash() -> AppHash {
        AppHash::parse("FA+9qCX9VSu").expect("a hash")
    }

    fn host() -> WebDomain {
        WebDomain::parse("app.matchday.example").expect("a host")
    }

    #[test]
    fn texts_match_each_language() {
        let english = render(Language::English, &name("Matchday"), CODE, 5, LastLine::None);
        assert_eq!(english, "123456 is your Matchday code. It is valid for 5 min. Do not share it with anyone.");
        let spanish = render(Language::Spanish, &name("Matchday"), CODE, 5, LastLine::App(&hash()));
        assert_eq!(spanish, "123456 es tu clave de Matchday. Caduca en 5 min. No la compartas con nadie.\nFA+9qCX9VSu");
        let portuguese = render(Language::Portuguese, &name("Matchday"), CODE, 5, LastLine::Web(&host()));
        assert_eq!(
            portuguese,
            "Use 123456 para entrar em Matchday. Vale por 5 min. Nunca o revele a ninguém.\n@app.matchday.example #123456"
        );
        let persian = render(Language::Persian, &name("Matchday"), CODE, 5, LastLine::None);
        assert_eq!(persian, "123456 کد ورود Matchday است؛ 5 دقیقه معتبر. به کسی ندهید.");
    }

    #[test]
    fn keys_notice_names_app_without_digits() {
        let mut texts = std::collections::BTreeSet::new();
        for language in Language::ALL {
            let text = render_keys_notice(language, &name("Matchday"));
            // Digits would look like a code.
            assert!(text.contains("Matchday") && !text.contains(|character: char| character.is_numeric()), "{text}");
            assert!(!text.contains(|character: char| ('\u{2000}'..='\u{206f}').contains(&character)), "{text}");
            texts.insert(text);
        }
        assert_eq!(texts.len(), Language::ALL.len());
        assert!(is_one_message(&render_keys_notice(Language::English, &name("Matchday"))));
    }

    #[test]
    fn code_comes_early_in_ascii_without_invisible_characters() {
        for language in Language::ALL {
            let text = render(language, &name("Matchday"), CODE, 5, LastLine::None);
            assert!(text.find(CODE).is_some_and(|at| at <= 4), "{text}");
            assert!(!text.contains(|character: char| ('\u{2000}'..='\u{206f}').contains(&character)), "{text}");
        }
    }

    #[test]
    fn latin_texts_fit_one_seven_bit_message() {
        for language in Language::ALL.into_iter().filter(|language| *language != Language::Persian) {
            for last_line in [LastLine::None, LastLine::App(&hash()), LastLine::Web(&host())] {
                let text = render(language, &name("Matchday"), CODE, 15, last_line);
                assert!(septets(&text).is_some_and(|septets| septets <= 160), "{text}");
            }
        }
    }

    #[test]
    fn persian_text_fits_one_message() {
        for (app, last_line) in [
            ("Matchday", LastLine::None),
            ("Matchday", LastLine::App(&hash())),
            ("روز مسابقه", LastLine::None),
            ("Twenty Letters Named", LastLine::None),
        ] {
            let text = render(Language::Persian, &name(app), CODE, 5, last_line);
            assert!(is_one_message(&text), "{} units: {text}", text.encode_utf16().count());
        }
    }

    #[test]
    fn invalid_names_hashes_and_hosts_are_rejected() {
        for bad in ["", "  ", "two\nlines", "a name that is much longer than thirty bytes", "شانزده حرف است این"]
        {
            assert_eq!(AppName::parse(bad), Err(TemplateError::AppName), "{bad}");
        }
        for bad in ["", "FA+9qCX9VS", "FA+9qCX9VSuu", "FA+9qCX9VS\n", "visit x.com", "FA+9qCX9Vé"] {
            assert_eq!(AppHash::parse(bad), Err(TemplateError::AppHash), "{bad}");
        }
        for bad in ["", "https://x.example", "x.example:8080", "x..example", "-x.example", "x.example/a", "é.example"]
        {
            assert_eq!(WebDomain::parse(bad), Err(TemplateError::WebDomain), "{bad}");
        }
    }

    #[test]
    fn language_is_negotiated_from_header() {
        use Language::{English, French, German, Persian, Portuguese, Spanish};
        for (header, expected) in [
            ("", English),
            ("es", Spanish),
            ("ES-mx", Spanish),
            ("pt-BR,pt;q=0.9,en;q=0.8", Portuguese),
            ("en;q=0.5, fa;q=0.8", Persian),
            ("de-CH, de;q=0.9, fa-IR;q=0.2", German),
            ("nl, fa-IR;q=0.2", Persian),
            ("prs-AF", Persian),
            ("fr, de;q=0.9", French),
            ("nl, it;q=0.9", English),
            ("es;q=0", English),
            // The first of equal ranges wins, also with unusual spaces and case.
            ("fa, es", Persian),
            ("es ; Q=1.000 , fa;q=1", Spanish),
            // The wildcard matches languages that are not named.
            ("*", English),
            ("en;q=0, *", Spanish),
            ("en;q=0.3, *;q=0.5", Spanish),
            ("es;q=0.5, *;q=0.1", Spanish),
            ("en;q=0, es;q=0, *;q=0.1, pt;q=0", Persian),
            ("*;q=0", English),
            // Excluding one variety does not exclude another.
            ("pt-PT;q=0, pt-BR;q=0.4", Portuguese),
            // Malformed ranges are skipped.
            (";;;,,=,q=1,es;q=,es;q=2,es;q=0.1234,es;q=-1,es;q=+0.5,es;level=1,pt;q=0.001", Portuguese),
        ] {
            assert_eq!(Language::negotiate(Some(header)), expected, "{header}");
        }
        assert_eq!(Language::negotiate(None), English);
        assert_eq!(Language::negotiate(Some(&format!("{}es", "nl,".repeat(1_000_000)))), English);
    }

    #[test]
    fn move_notice_has_the_undo_code() {
        for language in Language::ALL {
            let text = render_move_notice(language, &name("Matchday"), "1A-0123-4567-89AB-CDYZ", 72);
            assert!(
                text.contains("Matchday") && text.contains("72") && text.ends_with("1A-0123-4567-89AB-CDYZ"),
                "{text}"
            );
        }
        let english = render_move_notice(Language::English, &name("Matchday"), "1A-0123-4567-89AB-CDYZ", 72);
        assert!(septets(&english).is_some_and(|septets| septets <= 160), "{english}");
    }

    #[test]
    fn language_tags_round_trip() {
        assert!(Language::ALL.into_iter().all(|language| Language::from_tag(language.tag()) == language));
        let tags = serde_json::to_string(&Language::ALL).expect("JSON");
        assert_eq!(tags, r#"["en","es","fa","pt","de","fr"]"#);
    }

    proptest! {
        #[test]
        fn any_header_yields_a_language(header in "\\PC*", pieces in "([a-z*;=q0-9., -]){0,200}") {
            Language::negotiate(Some(&header));
            Language::negotiate(Some(&pieces));
        }

        #[test]
        fn retriever_message_has_at_most_140_bytes(
            text in "\\PC{1,30}",
            code in "[0-9]{4,8}",
            minutes in 1_u64..=60,
        ) {
            if let Ok(app) = AppName::parse(&text) {
                for language in Language::ALL {
                    let text = render(language, &app, &code, minutes, LastLine::App(&hash()));
                    prop_assert!(text.len() <= LONGEST_FOR_RETRIEVER, "{}: {text}", text.len());
                }
            }
        }
    }

    #[test]
    fn longest_name_fits_the_retriever() {
        for app in ["n".repeat(30), "ن".repeat(15)] {
            for language in Language::ALL {
                let text = render(language, &name(&app), "12345678", 60, LastLine::App(&hash()));
                assert!(text.len() <= LONGEST_FOR_RETRIEVER, "{}: {text}", text.len());
            }
        }
    }
}
