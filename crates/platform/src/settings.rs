//! Settings: typed keys with a meaning and a default, read from a TOML file and from `MATCHDAY_…` variables. All faults
//! are collected instead of stopping at the first, because an operator who has to restart a service once per typo stops
//! reading its messages.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    time::Duration,
};

use ipnet::IpNet;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

/// A type that can be the value of a key.
pub trait Setting: Sized {
    /// Completes the sentence "`x` is not …".
    const EXPECTED: &'static str;
    /// The same for a list of values.
    const LISTED: &'static str = "a list (in a variable, separated by commas)";
    /// Whether the value must be hidden.
    const SECRET: bool = false;
    /// Placeholder for a required value that is missing or invalid, so the remaining settings can still be
    /// checked.
    const PLACEHOLDER: &'static str = "";

    /// Parses the value as written in a variable, or in the file without its quotes.
    fn parse(text: &str) -> Option<Self>;

    /// Formats the value so that `parse` accepts it.
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
    const EXPECTED: &'static str = "a string";
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
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (1..=64).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        fits.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for Phrase {
    const EXPECTED: &'static str = "a string of 1 to 64 characters without control characters";
    const LISTED: &'static str =
        "a list separated by commas, each a string of 1 to 64 characters without control characters";
    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }
    fn show(&self) -> String {
        self.0.clone()
    }
}

/// A host, or any of its subdomains if written with a leading `*.`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    domain: String,
    is_wildcard: bool,
}

impl HostPattern {
    /// Whether the pattern matches a lower-case host of a URL.
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
        // A wildcard before a top-level domain would match nearly every host.
        let fits = domain.len() <= 253 && domain.contains('.') && domain.split('.').all(label);
        fits.then(|| Self { domain: domain.to_ascii_lowercase(), is_wildcard })
    }
    fn show(&self) -> String {
        format!("{}{}", if self.is_wildcard { "*." } else { "" }, self.domain)
    }
}

/// A URL that may contain a password and is therefore never printed.
#[derive(Clone, Debug)]
pub struct SecretUrl(SecretString);

impl SecretUrl {
    /// The whole URL, password included.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Host and port, which are safe to log.
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
        // Only the password is secret; operators need to see the host and the database.
        Url::parse(self.expose()).map_or_else(
            |_| "…".to_owned(),
            |mut url| {
                if url.password().is_some() {
                    let _ = url.set_password(Some("hidden"));
                }
                // Drivers also accept passwords as query parameters.
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

/// A versioned key for login codes or webhook secrets.
#[derive(Clone, Debug)]
pub struct CodeKey {
    version: u16,
    key: SecretString,
}

impl CodeKey {
    /// Version, stored next to each value to find its key.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The 32 bytes of the key in hexadecimal digits.
    pub fn expose(&self) -> &str {
        self.key.expose_secret()
    }
}

/// Whether all versions are distinct.
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
        // Versions are stored as `smallint`.
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
    const EXPECTED: &'static str = "a duration with a unit, like 500ms, 10s, 5m, 12h or 30d";
    const LISTED: &'static str = "a list of durations with units, like 5s,2m,1h";
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

/// Origin of a value, for `matchday config` and error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File,
    /// Name of the environment variable.
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

/// A key with its effective value, for printing.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Full name, as in `section.name`.
    pub key: &'static str,
    /// Doc comment of the key's declaration.
    pub meaning: &'static str,
    /// Effective value with secrets hidden; `None` if unset.
    pub value: Option<String>,
    pub origin: Origin,
}

/// All faults of a configuration, one line each.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Faults(pub Vec<String>);

/// Raw values while the configuration is read.
pub struct Source {
    variables: BTreeMap<String, String>,
    file: BTreeMap<String, String>,
    known: BTreeSet<&'static str>,
    /// Keys whose own value is invalid.
    faulty: BTreeSet<&'static str>,
    entries: Vec<Entry>,
    faults: Vec<String>,
}

impl Source {
    /// Collects the variables and parses the file.
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

    /// A variable that is not a setting, like `MATCHDAY_ENV`.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Reads one key. If it is missing or invalid, the fault is recorded and the default takes its place: the process
    /// will not start, but the other settings can be checked together.
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
                .push(format!("{key} is not set: add it to the file or set {variable}; it must be {}", T::EXPECTED));
            self.faulty.insert(key);
            return T::parse(T::PLACEHOLDER);
        };
        let parsed = T::parse(text.trim());
        if let Some(value) = &parsed {
            let shown = value.show();
            self.entries.push(Entry { key, meaning, value: (!shown.is_empty()).then_some(shown), origin });
        } else {
            // An invalid secret is still a secret.
            let shown = if T::SECRET { "its value".to_owned() } else { format!("`{text}`") };
            self.faults.push(format!("{key} (from {origin}): {shown} is not {}", T::EXPECTED));
            self.faulty.insert(key);
        }
        parsed.or_else(|| T::parse(default.unwrap_or(T::PLACEHOLDER)))
    }

    /// Records a fault that involves several keys, unless it mentions a key whose own value is already invalid.
    pub fn fault(&mut self, fault: String) {
        if !self.faulty.iter().any(|key| names(&fault, key)) {
            self.faults.push(fault);
        }
    }

    /// Finishes reading. Unknown names are faults too, since a misspelt key would silently have no effect.
    pub fn finish(mut self) -> Result<Vec<Entry>, Faults> {
        let known_variables: BTreeSet<String> = self.known.iter().map(|key| variable_name(key)).collect();
        let known_keys: BTreeSet<String> = self.known.iter().map(|&key| key.to_owned()).collect();
        let unknown_variables =
            self.variables.keys().filter(|name| name.contains("__") && !known_variables.contains(*name));
        let unknown_keys = self.file.keys().filter(|key| !known_keys.contains(*key));
        let unknown = unknown_variables
            .map(|name| unknown_name(name, "variable", &known_variables))
            .chain(unknown_keys.map(|key| unknown_name(key, "key", &known_keys)))
            .collect::<Vec<_>>();
        self.faults.extend(unknown);
        if self.faults.is_empty() { Ok(self.entries) } else { Err(Faults(self.faults)) }
    }
}

/// Whether a text mentions exactly this key, and not a longer key with the same prefix.
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
        Some((steps, other)) if steps <= 4 => format!("{name} is not a known {what}: did you mean {other}?"),
        _ => format!("{name} is not a known {what}: `matchday config` lists them all"),
    }
}

/// `http.listen` becomes `MATCHDAY_HTTP__LISTEN`. Two underscores separate the section, because names contain single
/// ones.
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

/// Levenshtein distance between two names, for "did you mean".
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

/// Checks that types cannot express, like relations between keys: whether each holds, and the fault to report if not.
pub type Conditions = Vec<(bool, String)>;

/// Declares one section of the configuration: its keys, each with its meaning, type and default.
///
/// A key without a default is required. `..name: Type` at the end of a section adds keys declared by
/// [`setting_group`](crate::setting_group).
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
            /// Name and meaning of the section.
            pub const SECTION: (&'static str, &'static str) = (stringify!($section), concat!($($section_doc, "\n"),*));

            pub fn read(source: &mut $crate::settings::Source) -> Option<Self> {
                // Read every key before the first missing one ends the construction, so all faults are recorded.
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

/// Declares some keys of a section in a separate struct. Their names start with `$prefix`.
///
/// All of them have defaults, because a group configures an optional component.
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
            /// Reads every key, so all faults are reported.
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

/// Implements [`Setting`] for an enum, with a name for each variant.
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
                let names = [$(($name, $value)),+];
                names.into_iter().find(|(_, value)| value == self).map(|(name, _)| name.to_owned()).unwrap_or_default()
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
    fn distance_counts_edits() {
        assert_eq!(distance("listen", "listen"), 0);
        assert_eq!(distance("lisen", "listen"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    proptest! {
        #[test]
        fn shown_duration_parses_back(milliseconds in 0_u64..100_000_000_000) {
            let time = Duration::from_millis(milliseconds);
            prop_assert_eq!(Duration::parse(&time.show()), Some(time));
        }

        #[test]
        fn parsing_a_duration_never_panics(text in ".*") {
            let _ = Duration::parse(&text);
        }
    }
}
