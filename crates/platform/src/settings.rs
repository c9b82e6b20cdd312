//! The machinery behind configuration: typed keys with a meaning and a default, read from a TOML file and
//! from `MATCHDAY_…` variables. It gathers every fault instead of stopping at the first, because an operator who has
//! to restart a service once per typo stops reading its messages.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    time::Duration,
};

use ipnet::IpNet;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

/// A type that can stand behind a configuration key.
pub trait Setting: Sized {
    /// Completes the sentence "`x` is not …".
    const EXPECTED: &'static str;
    /// The same of a list of them.
    const LISTED: &'static str = "a list, in a variable separated by commas";
    /// Whether the value may be shown.
    const SECRET: bool = false;
    /// Stands for a required value that is missing or faulty, so that everything else can still be checked.
    const PLACEHOLDER: &'static str = "";

    /// Reads the value as it is written in a variable, or in the file without its quotes.
    fn parse(text: &str) -> Option<Self>;

    /// Writes the value back so that `parse` reads it again.
    fn show(&self) -> String;
}

macro_rules! setting_by_from_str {
    ($($type:ty => $expected:literal),* $(,)?) => {$(
        impl Setting for $type {
            const EXPECTED: &'static str = $expected;
            const LISTED: &'static str = concat!("a list separated by commas, each ", $expected);
            fn parse(text: &str) -> Option<Self> { text.parse().ok() }
            fn show(&self) -> String { self.to_string() }
        }
    )*};
}
setting_by_from_str! {
    SocketAddr => "an address with a port, like 127.0.0.1:8080",
    bool => "true or false",
    u16 => "a whole number up to 65535",
    u32 => "a whole number, 0 or more",
    u64 => "a whole number, 0 or more",
    usize => "a whole number, 0 or more",
    f64 => "a number",
    Url => "a URL, like http://127.0.0.1:8008",
    IpNet => "a network, like 10.0.0.0/8",
}

impl Setting for String {
    const EXPECTED: &'static str = "a text";
    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
    fn show(&self) -> String {
        self.clone()
    }
}

/// A short text: 1 to 64 characters without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phrase(String);

impl Phrase {
    /// Reads one.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (1..=64).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        fits.then(|| Self(text.to_owned()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for Phrase {
    const EXPECTED: &'static str = "a text of 1 to 64 characters without control characters";
    const LISTED: &'static str =
        "a list separated by commas, each a text of 1 to 64 characters without control characters";
    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }
    fn show(&self) -> String {
        self.0.clone()
    }
}

/// A host, or with `*.` before it any of its subdomains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    domain: String,
    is_wildcard: bool,
}

impl HostPattern {
    /// Whether the pattern matches a host as URLs have it, in lower case.
    pub fn matches(&self, host: &str) -> bool {
        if !self.is_wildcard {
            return host == self.domain;
        }
        host.strip_suffix(&self.domain).and_then(|rest| rest.strip_suffix('.')).is_some_and(|name| !name.is_empty())
    }
}

impl Setting for HostPattern {
    const EXPECTED: &'static str = "a host, like push.example.org or *.push.example.org";
    const LISTED: &'static str = "a list separated by commas, each a host like push.example.org or *.push.example.org";
    fn parse(text: &str) -> Option<Self> {
        let (domain, is_wildcard) = text.strip_prefix("*.").map_or((text, false), |domain| (domain, true));
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        // A wildcard before a top-level domain would match nearly everything.
        let fits = domain.len() <= 253 && domain.contains('.') && domain.split('.').all(label);
        fits.then(|| Self { domain: domain.to_ascii_lowercase(), is_wildcard })
    }
    fn show(&self) -> String {
        format!("{}{}", if self.is_wildcard { "*." } else { "" }, self.domain)
    }
}

/// A URL that may carry a password, and is therefore never printed.
#[derive(Clone, Debug)]
pub struct SecretUrl(SecretString);

impl SecretUrl {
    /// The whole URL, password included.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Host and port, which may be logged.
    pub fn address(&self, default_port: u16) -> String {
        let url = Url::parse(self.expose()).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        format!("{host}:{}", url.as_ref().and_then(Url::port).unwrap_or(default_port))
    }
}

impl Setting for SecretUrl {
    const EXPECTED: &'static str = "a URL with a host, like scheme://user:password@host:1234";
    const SECRET: bool = true;
    const PLACEHOLDER: &'static str = "scheme://host";
    fn parse(text: &str) -> Option<Self> {
        Url::parse(text).ok().filter(Url::has_host).map(|_| Self(text.into()))
    }
    fn show(&self) -> String {
        // The password is the secret; host and database are what an operator wants to check.
        Url::parse(self.expose()).map_or_else(
            |_| "…".to_owned(),
            |mut url| {
                if url.password().is_some() {
                    let _ = url.set_password(Some("hidden"));
                }
                // Drivers take passwords among the parameters too.
                let names: Vec<String> = url.query_pairs().map(|(name, _)| name.into_owned()).collect();
                url.set_query(None);
                for name in names {
                    url.query_pairs_mut().append_pair(&name, "hidden");
                }
                url.to_string()
            },
        )
    }
}

/// A text that is never printed.
#[derive(Clone, Debug)]
pub struct Secret(SecretString);

impl Secret {
    /// The text, still wrapped.
    pub fn inner(&self) -> &SecretString {
        &self.0
    }
}

impl Setting for Secret {
    const EXPECTED: &'static str = "a secret";
    const SECRET: bool = true;
    fn parse(text: &str) -> Option<Self> {
        Some(Self(text.into()))
    }
    fn show(&self) -> String {
        "hidden".to_owned()
    }
}

/// A key that codes, or secrets of webhooks, are stored under.
#[derive(Clone, Debug)]
pub struct CodeKey {
    version: u16,
    key: SecretString,
}

impl CodeKey {
    /// What is stored beside each of them, to find the key again.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Its 32 bytes, in hexadecimal digits.
    pub fn expose(&self) -> &str {
        self.key.expose_secret()
    }
}

/// Whether no two keys have the same version.
pub fn has_each_version_once(keys: &[CodeKey]) -> bool {
    let versions: Vec<u16> = keys.iter().map(CodeKey::version).collect();
    versions.iter().enumerate().all(|(at, version)| !versions[..at].contains(version))
}

impl Setting for CodeKey {
    const EXPECTED: &'static str = "`version:64 hexadecimal digits`";
    const LISTED: &'static str = "a list of `version:64 hexadecimal digits`, separated by commas";
    const SECRET: bool = true;
    fn parse(text: &str) -> Option<Self> {
        let (version, key) = text.split_once(':')?;
        // Stored as a smallint.
        let version = version.parse().ok().filter(|&version| (1..=32_767).contains(&version))?;
        (hex::decode(key).ok()?.len() == 32).then(|| Self { version, key: key.into() })
    }
    fn show(&self) -> String {
        format!("{}:hidden", self.version)
    }
}

impl<T: Setting> Setting for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    const SECRET: bool = T::SECRET;
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() { Some(None) } else { T::parse(text).map(Some) }
    }
    fn show(&self) -> String {
        self.as_ref().map(T::show).unwrap_or_default()
    }
}

impl<T: Setting> Setting for Vec<T> {
    const EXPECTED: &'static str = T::LISTED;
    const SECRET: bool = T::SECRET;
    fn parse(text: &str) -> Option<Self> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(T::parse).collect()
    }
    fn show(&self) -> String {
        self.iter().map(T::show).collect::<Vec<_>>().join(",")
    }
}

impl Setting for Duration {
    const EXPECTED: &'static str = "a time with its unit, like 500ms, 10s, 5m, 12h or 30d";
    const LISTED: &'static str = "a list of times with their units, like 5s,2m,1h";
    fn parse(text: &str) -> Option<Self> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().ok()?;
        let milliseconds: u64 = match unit.trim() {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        number.checked_mul(milliseconds).map(Self::from_millis)
    }
    fn show(&self) -> String {
        let milliseconds = self.as_millis();
        for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
            if milliseconds >= size && milliseconds.is_multiple_of(size) {
                return format!("{}{unit}", milliseconds / size);
            }
        }
        format!("{milliseconds}ms")
    }
}

/// Where a value came from, for `matchday config` and for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// The configuration file.
    File,
    /// An environment variable, by name.
    Variable(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File => f.write_str("file"),
            Self::Variable(name) => f.write_str(name),
        }
    }
}

/// One key as it ended up, for printing.
#[derive(Clone, Debug)]
pub struct Entry {
    /// `section.name`.
    pub key: &'static str,
    /// What the key means, from where it is declared.
    pub meaning: &'static str,
    /// The effective value, with secrets hidden; `None` where it is unset.
    pub value: Option<String>,
    /// Who set it.
    pub origin: Origin,
}

/// Everything that is wrong with a configuration, one plain line each.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Faults(pub Vec<String>);

/// The raw values while they are being read.
pub struct Source {
    variables: BTreeMap<String, String>,
    file: BTreeMap<String, String>,
    known: BTreeSet<&'static str>,
    /// Keys with a fault of their own.
    faulty: BTreeSet<&'static str>,
    entries: Vec<Entry>,
    faults: Vec<String>,
}

impl Source {
    /// Gathers the variables and the file's text.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>, file: Option<&str>) -> Self {
        let mut source = Self {
            variables: variables.into_iter().filter(|(name, _)| name.starts_with("MATCHDAY_")).collect(),
            file: BTreeMap::new(),
            known: BTreeSet::new(),
            faulty: BTreeSet::new(),
            entries: Vec::new(),
            faults: Vec::new(),
        };
        match file.map(str::parse::<toml::Table>).transpose() {
            Ok(table) => flatten("", &table.unwrap_or_default(), &mut source.file),
            Err(error) => source.faults.push(format!("the file is not TOML: {error}")),
        }
        source
    }

    /// A variable outside the tree of keys.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Reads one key. Where it is missing or faulty that is noted, and its default takes its place: the process will not
    /// start, but the other settings can be checked together.
    pub fn read<T: Setting>(&mut self, key: &'static str, meaning: &'static str, default: Option<&str>) -> Option<T> {
        self.known.insert(key);
        let variable = variable_name(key);
        let (text, origin) = if let Some(text) = self.variables.get(&variable) {
            (Some(text.clone()), Origin::Variable(variable.clone()))
        } else if let Some(text) = self.file.get(key) {
            (Some(text.clone()), Origin::File)
        } else {
            (default.map(str::to_owned), Origin::Default)
        };
        let Some(text) = text else {
            self.faults
                .push(format!("{key} is not set: put it in the file or in {variable}; it must be {}", T::EXPECTED));
            self.faulty.insert(key);
            return T::parse(T::PLACEHOLDER);
        };
        let parsed = T::parse(text.trim());
        if let Some(value) = &parsed {
            let shown = value.show();
            self.entries.push(Entry { key, meaning, value: (!shown.is_empty()).then_some(shown), origin });
        } else {
            // A secret with a typo in it is still a secret.
            let shown = if T::SECRET { "its value".to_owned() } else { format!("`{text}`") };
            self.faults.push(format!("{key} (from {origin}): {shown} is not {}", T::EXPECTED));
            self.faulty.insert(key);
        }
        parsed.or_else(|| T::parse(default.unwrap_or(T::PLACEHOLDER)))
    }

    /// Notes a fault that concerns several keys, unless it speaks of a key whose own value is a fault already.
    pub fn fault(&mut self, fault: String) {
        if !self.faulty.iter().any(|key| names(&fault, key)) {
            self.faults.push(fault);
        }
    }

    /// Ends the reading: unknown names are faults too, since a misspelt key is a setting that silently does nothing.
    pub fn finish(mut self) -> Result<Vec<Entry>, Faults> {
        let known_variables: BTreeSet<String> = self.known.iter().map(|key| variable_name(key)).collect();
        let known_keys: BTreeSet<String> = self.known.iter().map(|&key| key.to_owned()).collect();
        let unknown_variables =
            self.variables.keys().filter(|name| name.contains("__") && !known_variables.contains(*name));
        let unknown_keys = self.file.keys().filter(|key| !known_keys.contains(*key));
        let unknown = unknown_variables
            .map(|name| unknown_name(name, "variable", &known_variables))
            .chain(unknown_keys.map(|key| unknown_name(key, "key of the file", &known_keys)))
            .collect::<Vec<_>>();
        self.faults.extend(unknown);
        if self.faults.is_empty() { Ok(self.entries) } else { Err(Faults(self.faults)) }
    }
}

/// Whether a text speaks of this key, and not of one that begins alike.
fn names(text: &str, key: &str) -> bool {
    let belongs = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '.';
    text.match_indices(key).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + key.len()..]);
        // A full stop may also end a sentence.
        !before.ends_with(belongs) && !after.trim_start_matches('.').starts_with(belongs)
    })
}

fn unknown_name(name: &str, what: &str, known: &BTreeSet<String>) -> String {
    let nearest = known.iter().map(|other| (distance(name, other), other)).min();
    match nearest {
        Some((steps, other)) if steps <= 4 => format!("{name} is no {what} of Matchday: did you mean {other}?"),
        _ => format!("{name} is no {what} of Matchday: `matchday config` lists them all"),
    }
}

/// `http.listen` is `MATCHDAY_HTTP__LISTEN`: two underscores, because names have single ones.
fn variable_name(key: &str) -> String {
    format!("MATCHDAY_{}", key.replace('.', "__").to_uppercase())
}

fn flatten(prefix: &str, table: &toml::Table, into: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            toml::Value::Table(inner) => flatten(&key, inner, into),
            toml::Value::Array(items) => {
                let items = items.iter().map(plain).collect::<Vec<_>>().join(",");
                into.insert(key, items);
            }
            other => {
                into.insert(key, plain(other));
            }
        }
    }
}

fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// How many single-letter edits lie between two names (Levenshtein); for "did you mean".
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Conditions across keys, each with the fault to report where it does not hold.
pub type Conditions = Vec<(bool, String)>;

/// Declares one section of the configuration: its keys, each with its meaning, type and default.
///
/// A key without a default must be set. `..name: Type` at the end of a section adds keys that [`setting_group`](crate::setting_group) declares.
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $section_doc:literal])*
        $section:ident : $Section:ident {
            $( $(#[doc = $doc:literal])* $key:ident : $type:ty $(= $default:literal)? ),*
            $(, $(.. $group:ident : $Group:ty)?)?
        }
    ) => {
        $(#[doc = $section_doc])*
        #[derive(Clone, Debug)]
        pub struct $Section {
            $( $(#[doc = $doc])* pub $key: $type, )*
            $($( /// Keys that are declared elsewhere.
            pub $group: $Group, )?)?
        }

        impl $Section {
            /// The section's name and meaning.
            pub const SECTION: (&'static str, &'static str) = (stringify!($section), concat!($($section_doc, "\n"),*));

            pub fn read(source: &mut $crate::settings::Source) -> Option<Self> {
                // Every key is read before the first missing one ends the construction, so that all faults are noted.
                $(
                    let $key = source.read::<$type>(
                        concat!(stringify!($section), ".", stringify!($key)),
                        concat!($($doc, "\n"),*),
                        $crate::section!(@default $($default)?),
                    );
                )*
                $($( let $group = <$Group>::read(source); )?)?
                Some(Self { $( $key: $key?, )* $($( $group: $group?, )?)? })
            }
        }
    };
    (@default) => { None };
    (@default $default:literal) => { Some($default) };
}

/// Declares some keys of a section apart from the others, in a struct of their own. Their names begin with `$prefix`.
///
/// All have defaults, because a group belongs to something that need not be used.
#[macro_export]
macro_rules! setting_group {
    (
        $(#[doc = $group_doc:literal])*
        $Group:ident : $prefix:literal {
            $( $(#[doc = $doc:literal])* $key:ident : $type:ty = $default:literal ),* $(,)?
        }
    ) => {
        $(#[doc = $group_doc])*
        #[derive(Clone, Debug)]
        struct $Group {
            $( $(#[doc = $doc])* $key: $type, )*
        }

        impl $Group {
            /// Reads every key, so that all faults are reported.
            fn read(source: &mut $crate::settings::Source) -> Option<Self> {
                $(
                    let $key = source.read::<$type>(
                        concat!($prefix, stringify!($key)),
                        concat!($($doc, "\n"),*),
                        Some($default),
                    );
                )*
                Some(Self { $( $key: $key?, )* })
            }
        }
    };
}

/// Implements [`Setting`] for an enum by the names of its variants.
#[macro_export]
macro_rules! setting_by_name {
    ($type:ty, $expected:literal, $($name:literal => $value:expr),+) => {
        impl $crate::settings::Setting for $type {
            const EXPECTED: &'static str = $expected;
            const LISTED: &'static str = concat!("a list of ", $expected, ", separated by commas");
            fn parse(text: &str) -> Option<Self> {
                match text { $($name => Some($value),)+ _ => None }
            }
            fn show(&self) -> String {
                [$(($name, $value)),+].into_iter().find(|(_, value)| value == self).map(|(name, _)| name.to_owned()).unwrap_or_default()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn key_is_found_in_text_as_a_whole() {
        assert!(names("feeds.lease is not longer than feeds.timeout: no", "feeds.timeout"));
        assert!(names("see http.listen.", "http.listen"));
        assert!(!names("http.listen_backlog is 0", "http.listen"));
        assert!(!names("xhttp.listen is 0", "http.listen"));
    }

    #[test]
    fn host_patterns_match_whole_hosts_only() {
        let pattern = |text: &str| HostPattern::parse(text).unwrap_or_else(|| panic!("{text}"));
        let exact = pattern("Push.example.org");
        assert!(exact.matches("push.example.org"));
        for other in ["example.org", "a.push.example.org", "evilpush.example.org", "push.example.org.evil.net", ""] {
            assert!(!exact.matches(other), "{other}");
        }
        let wildcard = pattern("*.push.example.org");
        assert!(wildcard.matches("a.push.example.org") && wildcard.matches("a.b.push.example.org"));
        for other in ["push.example.org", ".push.example.org", "evilpush.example.org", "a.push.example.org.evil.net"] {
            assert!(!wildcard.matches(other), "{other}");
        }
        assert_eq!(wildcard.show(), "*.push.example.org");
        for bad in ["", "*", "*.", "*.org", "org", "a b.org", "https://a.org", "a.org/", "a..org", "a.*.org", "-a.org"]
        {
            assert_eq!(HostPattern::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_are_compared_by_edits() {
        assert_eq!(distance("listen", "listen"), 0);
        assert_eq!(distance("lisen", "listen"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    proptest! {
        #[test]
        fn a_time_reads_as_it_was_shown(milliseconds in 0_u64..100_000_000_000) {
            let time = Duration::from_millis(milliseconds);
            prop_assert_eq!(Duration::parse(&time.show()), Some(time));
        }

        #[test]
        fn no_text_makes_a_time_panic(text in ".*") {
            let _ = Duration::parse(&text);
        }
    }
}
