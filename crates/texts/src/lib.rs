//! Texts in several languages: push notifications, text messages and messages of the chat bot.
//!
//! The catalogue of each language is a Fluent file (<https://projectfluent.org>) that is compiled into the binary. An
//! operator can replace single messages, or add languages, with files of the same form in a directory.
//!
//! A text is looked up message by message: in the requested locale, in its language without region, in the default
//! locale, and in English. English has every message, so a text always exists.

mod check;
mod tag;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use fluent_bundle::{FluentArgs, FluentResource, FluentValue, concurrent::FluentBundle};
use jiff::{Timestamp, tz::TimeZone};
use unic_langid::LanguageIdentifier;

use self::check::Messages;
pub use self::tag::Locale;

/// Locales that are compiled in, English first.
const BUILT_IN: [(&str, &str); 4] = [
    ("en", include_str!("../locales/en/messages.ftl")),
    ("de", include_str!("../locales/de/messages.ftl")),
    ("es", include_str!("../locales/es/messages.ftl")),
    ("fr", include_str!("../locales/fr/messages.ftl")),
];

/// Locale that has every message.
const ENGLISH: &str = "en";

/// Name of the file in the directory of a locale.
const FILE: &str = "messages.ftl";

/// Reason why the catalogue cannot be used. The text is one line that names the file and the message.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("{}: the name of the directory is not a language tag such as de or pt-BR", path.display())]
    Directory { path: PathBuf },
    #[error("{file}:{line}: syntax error: {fault}")]
    Syntax { file: String, line: usize, fault: String },
    #[error("{file}: the message `{id}` is unknown")]
    UnknownId { file: String, id: String },
    #[error("{file}: the message `{id}` has no text")]
    NoText { file: String, id: String },
    #[error("{file}: the message `{id}` is defined twice")]
    Repeated { file: String, id: String },
    #[error("{file}: the message `{id}` uses the argument `${argument}`, which it does not get")]
    UnknownArgument { file: String, id: String, argument: String },
    #[error("{file}: the message `{id}` refers to `{reference}`; only arguments and NUMBER can be used")]
    Reference { file: String, id: String, reference: String },
    #[error("the default locale `{0}` has no messages")]
    DefaultLocale(Locale),
}

/// Arguments of a text.
#[derive(Default)]
pub struct Args<'a>(FluentArgs<'a>);

impl fmt::Debug for Args<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl<'a> Args<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text, which is inserted as it is.
    #[must_use]
    pub fn text(mut self, name: &'a str, value: impl Into<Cow<'a, str>>) -> Self {
        self.0.set(name, FluentValue::String(value.into()));
        self
    }

    /// Adds a number, by which a message can select a plural form.
    #[must_use]
    pub fn number(mut self, name: &'a str, value: i64) -> Self {
        self.0.set(name, FluentValue::from(value));
        self
    }
}

/// All texts in all languages.
pub struct Catalogue {
    /// Messages by locale.
    bundles: BTreeMap<String, FluentBundle<FluentResource>>,
    default: Locale,
}

impl fmt::Debug for Catalogue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locales: Vec<&String> = self.bundles.keys().collect();
        formatter.debug_struct("Catalogue").field("locales", &locales).field("default", &self.default).finish()
    }
}

impl Catalogue {
    /// Builds the catalogue. `overrides` is a directory with a file `{locale}/messages.ftl` for each locale in which it
    /// replaces or adds messages.
    pub fn load(default: &Locale, overrides: Option<&Path>) -> Result<Self, CatalogueError> {
        let english = Messages::read("en/messages.ftl", BUILT_IN[0].1)?;
        let mut bundles = BTreeMap::new();
        for (locale, source) in BUILT_IN {
            add(&mut bundles, locale, format!("{locale}/{FILE}"), source, &english)?;
        }
        for (locale, path) in overrides.map(files).transpose()?.unwrap_or_default() {
            let source = std::fs::read_to_string(&path)
                .map_err(|error| CatalogueError::Unreadable { path: path.clone(), error })?;
            add(&mut bundles, locale.as_str(), path.display().to_string(), &source, &english)?;
        }
        let catalogue = Self { bundles, default: default.clone() };
        if !default.chain().any(|locale| catalogue.bundles.contains_key(locale)) {
            return Err(CatalogueError::DefaultLocale(default.clone()));
        }
        Ok(catalogue)
    }

    /// Returns a text in the given locale, or in the next locale that has the message.
    pub fn text(&self, locale: &Locale, id: &str, args: &Args<'_>) -> String {
        let mut chain = locale.chain().chain(self.default.chain()).chain([ENGLISH]);
        chain.find_map(|locale| self.format(locale, id, args)).unwrap_or_else(|| id.to_owned())
    }

    /// Returns a text, if the locale itself or its language has the message.
    pub fn find(&self, locale: &Locale, id: &str, args: &Args<'_>) -> Option<String> {
        locale.chain().find_map(|locale| self.format(locale, id, args))
    }

    fn format(&self, locale: &str, id: &str, args: &Args<'_>) -> Option<String> {
        let bundle = self.bundles.get(locale)?;
        let pattern = bundle.get_message(id)?.value()?;
        // A missing argument appears by its name. Checks at the start and tests exclude it.
        Some(bundle.format_pattern(pattern, Some(&args.0), &mut Vec::new()).into_owned())
    }

    /// Returns a text in the default locale.
    pub fn default_text(&self, id: &str, args: &Args<'_>) -> String {
        self.text(&self.default, id, args)
    }

    /// Returns a time, given in seconds since 1970, as users read it. Without a time zone it is in UTC, and says so.
    pub fn time(&self, locale: &Locale, seconds: i64, zone: Option<&TimeZone>) -> String {
        let timestamp = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        let local = zone.unwrap_or(&TimeZone::UTC).to_datetime(timestamp);
        let args = Args::new()
            .number("weekday", local.weekday().to_monday_one_offset().into())
            .number("day", local.day().into())
            .number("month", local.month().into())
            .text("hour", format!("{:02}", local.hour()))
            .text("minute", format!("{:02}", local.minute()));
        let text = self.text(locale, "date-time", &args);
        if zone.is_some() { text } else { text + " UTC" }
    }
}

/// Adds the messages of a locale, which replace earlier ones with the same ids.
fn add(
    bundles: &mut BTreeMap<String, FluentBundle<FluentResource>>,
    locale: &str,
    file: String,
    source: &str,
    english: &Messages,
) -> Result<(), CatalogueError> {
    Messages::read(&file, source)?.check(english)?;
    let resource = FluentResource::try_new(source.to_owned()).map_err(|_| CatalogueError::Syntax {
        file,
        line: 1,
        fault: "not a Fluent file".to_owned(),
    })?;
    let bundle = bundles.entry(locale.to_owned()).or_insert_with(|| {
        let language: LanguageIdentifier = locale.parse().unwrap_or_default();
        let mut bundle = FluentBundle::new_concurrent(vec![language]);
        // Direction marks would be visible in text messages on old phones.
        bundle.set_use_isolating(false);
        // This fails only if the function exists already.
        let _ = bundle.add_builtins();
        bundle
    });
    bundle.add_resource_overriding(resource);
    Ok(())
}

/// Lists the files of a directory with their locales, in the order of their names.
fn files(directory: &Path) -> Result<Vec<(Locale, PathBuf)>, CatalogueError> {
    let unreadable = |error| CatalogueError::Unreadable { path: directory.to_owned(), error };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        // Other files, such as a README, have no meaning here. Neither have hidden directories, such as those that
        // Kubernetes puts into a mounted ConfigMap.
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if !path.is_dir() || name.starts_with('.') {
            continue;
        }
        let locale = Locale::parse(&name).ok_or_else(|| CatalogueError::Directory { path: path.clone() })?;
        found.push((locale, path.join(FILE)));
    }
    found.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
    Ok(found)
}

#[cfg(test)]
mod tests;
