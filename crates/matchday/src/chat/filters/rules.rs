//! Patterns, built-in checks and their results; no I/O.

use std::{
    cell::LazyCell,
    collections::HashMap,
    fmt,
    hash::{BuildHasher as _, RandomState},
    str::FromStr,
    sync::{LazyLock, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use aho_corasick::AhoCorasick;
use platform::settings::{HostPattern, Setting};
use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use regex_syntax::{
    ParserBuilder,
    hir::{Hir, HirKind},
};
use time::OffsetDateTime;

use super::{
    text::{beginning, compressed, skeleton},
    words::BUILT_IN,
};

/// Number of letters of a message that are checked, in all its texts and after normalisation. Longer messages are removed, so
/// that no text can hide behind another. A formatted edit has its letters four times: as the new text and as the text for
/// older clients, each plain and formatted. One of 8,000 letters is checked; an event of 64 KiB has room for about 16,000.
pub const MOST_LETTERS: usize = 32_000;

/// Number of characters of a pattern.
pub const PATTERN_LENGTH: usize = 500;
/// Number of patterns.
pub const MOST_PATTERNS: usize = 1_000;

/// Memory of one compiled pattern, in bytes.
const PATTERN_SIZE: usize = 512 * 1_024;
/// Memory of patterns that are compiled together.
const BATCH_SIZE: usize = 4 * 1_024 * 1_024;
/// Number of patterns that are compiled together.
const BATCH: usize = 100;
/// Number of groups of patterns that are compiled together, which limits their memory.
const MOST_BATCHES: usize = 16;
/// Number of fixed texts that a pattern may need, as in `one|two|three`.
const MOST_LITERALS: usize = 64;

/// Effect of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Remove,
    /// The message is removed, and its text is kept for a moderator.
    Hold,
    /// The message is removed, and its sender is muted.
    Mute,
}

impl Action {
    /// Name on the command line, in settings and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Remove => "remove",
            Self::Hold => "hold",
            Self::Mute => "mute",
        }
    }
}

impl FromStr for Action {
    type Err = UnknownAction;

    fn from_str(name: &str) -> Result<Self, UnknownAction> {
        [Self::Remove, Self::Hold, Self::Mute].into_iter().find(|action| action.name() == name).ok_or(UnknownAction)
    }
}

impl TryFrom<String> for Action {
    type Error = UnknownAction;

    fn try_from(name: String) -> Result<Self, UnknownAction> {
        name.parse()
    }
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("must be remove, hold or mute")]
pub struct UnknownAction;

/// A match of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    pub action: Action,
    /// Filter that matched: `filter 12`, the name of a built-in check, or `classifier`. Never contains text of the message.
    pub reason: String,
    /// The sender is muted for this time.
    pub mute_seconds: Option<i32>,
}

/// A valid regular expression of at most 500 characters.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern(String);

/// Reason why a text is not a pattern.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PatternFault {
    #[error("a pattern must have 1 to {PATTERN_LENGTH} characters")]
    Length,
    #[error("the pattern matches the empty text, and thus every message")]
    MatchesAll,
    /// Does not compile, or is too large.
    #[error("{0}")]
    Syntax(String),
}

impl Pattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Pattern {
    type Err = PatternFault;

    fn from_str(text: &str) -> Result<Self, PatternFault> {
        if !(1..=PATTERN_LENGTH).contains(&text.chars().count()) {
            return Err(PatternFault::Length);
        }
        let regex = compile(text).map_err(|error| PatternFault::Syntax(error.to_string()))?;
        if regex.is_match("") {
            return Err(PatternFault::MatchesAll);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).case_insensitive(true).size_limit(PATTERN_SIZE).build()
}

fn compile_set(patterns: &[&str]) -> Result<RegexSet, regex::Error> {
    RegexSetBuilder::new(patterns).case_insensitive(true).size_limit(BATCH_SIZE).build()
}

/// A pattern with its effect.
#[derive(Clone, Debug)]
pub(super) struct PatternRule {
    pub(super) id: i64,
    pub(super) pattern: String,
    /// The only room of the pattern, by the homeserver's id.
    pub(super) matrix_room: Option<String>,
    pub(super) action: Action,
    pub(super) mute_seconds: Option<i32>,
}

impl PatternRule {
    fn hit(&self) -> Hit {
        Hit { action: self.action, reason: format!("filter {}", self.id), mute_seconds: self.mute_seconds }
    }
}

/// All patterns, arranged so that a message costs little however many there are.
///
/// Most patterns need a fixed text, such as `word` in `\bword(s|ed)?\b`. One search finds all fixed texts of a message,
/// and only patterns whose text was found are applied. The others are applied together.
#[derive(Debug, Default)]
pub(super) struct PatternSet {
    rules: Vec<PatternRule>,
    /// Fixed texts, and the rule that needs each.
    literals: Option<(AhoCorasick, Vec<usize>)>,
    /// Compiled at the first use of each rule. `None` if that failed.
    compiled: Vec<OnceLock<Option<Regex>>>,
    /// Patterns without a fixed text, with their rules.
    batches: Vec<(RegexSet, Vec<usize>)>,
}

impl PatternSet {
    /// Compiles patterns. Returns the faults of rejected patterns.
    pub(super) fn new(rules: Vec<PatternRule>) -> (Self, Vec<(i64, String)>) {
        let (mut faults, mut literals, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (at, rule) in rules.iter().enumerate() {
            match required(&rule.pattern) {
                Err(fault) => faults.push((rule.id, fault)),
                Ok(Some(needed)) => literals.extend(needed.into_iter().map(|literal| (literal, at))),
                Ok(None) => others.push(at),
            }
        }
        let mut batches = Vec::new();
        for batch in others.chunks(BATCH) {
            add_batch(&rules, batch, &mut batches, &mut faults);
        }
        let (texts, owners): (Vec<String>, Vec<usize>) = literals.into_iter().unzip();
        let literals = match AhoCorasick::new(&texts) {
            _ if texts.is_empty() => None,
            Ok(search) => Some((search, owners)),
            Err(error) => {
                faults.extend(owners.iter().map(|&at| (rules[at].id, error.to_string())));
                None
            }
        };
        let compiled = rules.iter().map(|_| OnceLock::new()).collect();
        (Self { rules, literals, compiled, batches }, faults)
    }

    /// Returns the first match of a normalised text, in the order of the patterns.
    pub(super) fn find(&self, room: &str, normalised: &str) -> Option<Hit> {
        // Per rule: whether the pattern matches already. Otherwise its fixed text was found, and it is applied.
        let mut candidates: Vec<Option<bool>> = vec![None; self.rules.len()];
        for (set, rules) in &self.batches {
            for at in set.matches(normalised) {
                candidates[rules[at]] = Some(true);
            }
        }
        if let Some((search, owners)) = &self.literals {
            let lower: String = normalised.chars().map(lowered).collect();
            for found in search.find_overlapping_iter(&lower) {
                candidates[owners[found.pattern().as_usize()]].get_or_insert(false);
            }
        }
        let applies = |rule: &PatternRule| rule.matrix_room.as_deref().is_none_or(|only| only == room);
        let candidates = candidates.into_iter().enumerate().filter_map(|(at, is_match)| Some((at, is_match?)));
        let mut hits = candidates.filter(|&(at, is_match)| {
            applies(&self.rules[at]) && (is_match || self.regex(at).is_some_and(|regex| regex.is_match(normalised)))
        });
        hits.next().map(|(at, _)| self.rules[at].hit())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn regex(&self, at: usize) -> Option<&Regex> {
        let compile = || {
            let rule = &self.rules[at];
            // Adding a pattern compiles it, so this fails only for one that was written to the database directly.
            compile(&rule.pattern)
                .inspect_err(|error| tracing::error!(filter = rule.id, %error, "pattern of a filter cannot be applied"))
                .ok()
        };
        self.compiled[at].get_or_init(compile).as_ref()
    }
}

/// Compiles patterns together. If they are too large, each half is compiled alone.
fn add_batch(
    rules: &[PatternRule],
    batch: &[usize],
    batches: &mut Vec<(RegexSet, Vec<usize>)>,
    faults: &mut Vec<(i64, String)>,
) {
    if batches.len() >= MOST_BATCHES {
        faults.extend(batch.iter().map(|&at| (rules[at].id, "the patterns are too large together".to_owned())));
        return;
    }
    let patterns: Vec<&str> = batch.iter().map(|&at| rules[at].pattern.as_str()).collect();
    match (compile_set(&patterns), batch) {
        (Ok(set), _) => batches.push((set, batch.to_vec())),
        (Err(error), &[at]) => faults.push((rules[at].id, error.to_string())),
        (Err(_), _) => {
            let (one, other) = batch.split_at(batch.len() / 2);
            add_batch(rules, one, batches, faults);
            add_batch(rules, other, batches, faults);
        }
    }
}

/// Texts of which a match contains at least one, in lower case. `None` if there are no such texts.
fn required(pattern: &str) -> Result<Option<Vec<String>>, String> {
    // Parsed with regard to case, because otherwise each letter is a class of two.
    let hir = ParserBuilder::new().build().parse(pattern).map_err(|error| error.to_string())?;
    Ok(literals(&hir).filter(|found| found.iter().all(|text| text.chars().count() > 1)))
}

fn literals(hir: &Hir) -> Option<Vec<String>> {
    match hir.kind() {
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            text.chars().all(has_simple_case).then(|| vec![text.chars().map(lowered).collect()])
        }
        HirKind::Capture(capture) => literals(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => literals(&repetition.sub),
        // Of all parts that must occur, the one with the longest texts.
        HirKind::Concat(parts) => parts.iter().filter_map(literals).max_by_key(|texts| shortest(texts)),
        HirKind::Alternation(parts) => {
            let texts: Vec<String> = parts.iter().map(literals).collect::<Option<Vec<_>>>()?.concat();
            (texts.len() <= MOST_LITERALS).then_some(texts)
        }
        _ => None,
    }
}

fn shortest(texts: &[String]) -> usize {
    texts.iter().map(|text| text.chars().count()).min().unwrap_or_default()
}

fn lowered(letter: char) -> char {
    let mut lower = letter.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(lower), None) => lower,
        _ => letter,
    }
}

/// Whether all characters that a case-insensitive pattern takes for this one have the same lower-case form, in a normalised
/// text. Greek and Cyrillic have letters with more than two forms.
fn has_simple_case(letter: char) -> bool {
    let is_cased = letter.is_lowercase() || letter.is_uppercase();
    !is_cased || letter.is_ascii() || (matches!(letter, 'à'..='ÿ' | 'À'..='ß' | 'ā'..='ž' | 'Ā'..='Ž') && letter != 'ı')
}

/// Setting of a built-in check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check(pub Option<Action>);

impl Setting for Check {
    const EXPECTED: &'static str = "off, remove, hold or mute";
    const PLACEHOLDER: &'static str = "off";
    fn parse(text: &str) -> Option<Self> {
        if text == "off" { Some(Self(None)) } else { text.parse().ok().map(|action| Self(Some(action))) }
    }
    fn show(&self) -> String {
        self.0.map_or("off", Action::name).to_owned()
    }
}

/// Forms of a text in which the checks search.
pub(super) struct Forms {
    pub(super) normalised: String,
    pub(super) skeleton: String,
    /// Number of letters of the normalised form.
    pub(super) letters: usize,
    /// Whether the text has more letters than that.
    pub(super) is_cut: bool,
}

impl Forms {
    /// Forms of at most this number of letters.
    pub(super) fn of(text: &str, most: usize) -> Self {
        let (normalised, is_cut) = beginning(text, most);
        Self { skeleton: skeleton(&normalised), letters: normalised.chars().count(), normalised, is_cut }
    }
}

/// Whether a text contains a word of the built-in lists.
pub(super) fn has_listed_word(forms: &Forms) -> bool {
    BUILT_IN.matches(&forms.skeleton)
}

/// Compiles a pattern of this file.
fn fixed(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern).case_insensitive(true).build().ok()
}

// The boundaries of words in these expressions are those of ASCII, which the letters have in a skeleton. Those of Unicode
// would make the search a hundred times slower in texts with other letters.

/// A dot, also in a hidden spelling such as ` . ` or `(dot)`.
const DOT: &str =
    r"(?:\s*[\(\[\{<]\s*(?:\.|dot|punto|ponto|نقطه)\s*[\)\]\}>]\s*|\s+(?:dot|punto|ponto|نقطه)\s+|\s*\.\s*)";
/// A dot without spaces, or in brackets. Ordinary sentences have a dot with a space.
const STRICT_DOT: &str = r"(?:\s*[\(\[\{<]\s*(?:\.|dot|punto|ponto|نقطه)\s*[\)\]\}>]\s*|\.)";
const SLASH: &str = r"\s*(?:/|(?-u:\b)slash(?-u:\b))\s*";

/// Addresses that invite to another chat. A mention of a user is a link to matrix.to too, and is not one of them.
static INVITATIONS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    // `~` stands for a dot and `/` for a slash.
    let with_path = "t~me|telegram~(?:me|dog|org)|wa~me|chat~whatsapp~com|whatsapp~com/channel|discord~gg|dsc~gg\
        |discord(?:app)?~com/invite|signal~(?:group|me)|invite~viber~com|join~skype~com|line~me/(?:r|ti)|rubika~ir\
        |eitaa~com|(?:ble|splus)~ir|snapchat~com/add";
    let matrix = "matrix~to/#/(?:#|%23)|matrix~to/#/(?:!|%21)[^\\s\u{2044}?]+(?:\\?|\\s|$)";
    // Before an address there is no apostrophe: "I can't. Me neither" is none.
    let addresses = format!(
        r"(?:^|[^\w'’.-])(?:[\w-]+\.)?(?:(?:{with_path})/[\w+@#]|{matrix}|discord\.gg(?-u:\b)|dsc\.gg(?-u:\b))"
    );
    let addresses = addresses.replace('/', SLASH).replace('~', DOT).replace('\u{2044}', "/");
    let hidden = r"(?:^|\s)t(?:\s+\.\s*|\s*[\(\[\{]\s*(?:\.|dot)\s*[\)\]\}]\s*|\s+dot\s+)me(?-u:\b)";
    fixed(&format!(r"{addresses}|{hidden}|joinchat{SLASH}\w"))
});

/// Whether a text invites to another chat.
pub(super) fn has_invitation(forms: &Forms) -> bool {
    INVITATIONS.as_ref().is_some_and(|pattern| pattern.is_match(&forms.skeleton))
}

/// Links: with a scheme, with `www`, or a host with a common top-level domain. Other domains need a path, because the
/// space after a full stop is often forgotten.
static LINKS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let named = format!(r"(?:h(?:tt|xx)ps?://|(?-u:\b)www{STRICT_DOT})(?P<named>[^\s/?#<>]+)");
    let domains = "com|net|org|info|biz|io|gg|tv|xyz|app|dev|bet|casino";
    let label = "[a-z0-9-]+";
    let bare = format!(
        r"(?:{label}{STRICT_DOT})+(?:(?:{domains})(?-u:\b)|[a-z]{{2,10}}/[\w?#])|{label}\s+(?:dot|punto|ponto)\s+com(?-u:\b)"
    );
    fixed(&format!(r"{named}|(?:^|[^\w@.:/-])(?P<bare>{bare})"))
});

/// Whether a text contains a link to a domain that is not allowed.
pub(super) fn has_link(forms: &Forms, allowed: &[HostPattern]) -> bool {
    let Some(pattern) = LINKS.as_ref() else { return false };
    let text = forms.skeleton.as_str();
    // Searched once for all links, and spaces once for all words: a text may consist of links.
    let invites = LazyCell::new(|| has_invitation(forms));
    let (mut word, mut read) = (0, 0);
    pattern.captures_iter(text).any(|found| {
        let address = found.name("named").or_else(|| found.name("bare"));
        let (address, start) = address.map_or(("", read), |part| (part.as_str(), part.start()));
        if let Some((at, space)) = text[read..start].rmatch_indices(char::is_whitespace).next() {
            word = read + at + space.len();
        }
        read = start;
        // The address of a mention or a reply contains names of servers.
        let token = &text[word..];
        let is_mention = token.strip_prefix("https://").unwrap_or(token).starts_with("matrix.to/#/") && !*invites;
        let host = host_of(address);
        !is_mention && !allowed.iter().any(|pattern| pattern.matches(&host))
    })
}

/// Host of an address without a scheme, in lower case, without user, port and hidden spellings of dots.
fn host_of(address: &str) -> String {
    static HIDDEN: LazyLock<Option<Regex>> = LazyLock::new(|| fixed(DOT));
    let address = HIDDEN.as_ref().map_or_else(|| address.into(), |dot| dot.replace_all(address, "."));
    let address = address.split('/').next().unwrap_or_default();
    let host = address.rsplit('@').next().unwrap_or_default().split(':').next().unwrap_or_default();
    host.trim_end_matches(|letter: char| !letter.is_alphanumeric()).to_ascii_lowercase()
}

/// Time in which repeated messages are counted.
const REPEATED_WITHIN: Duration = Duration::from_mins(1);
/// Number of texts that are remembered.
const MOST_REMEMBERED: usize = 50_000;

/// Counts equal messages of a sender. Keeps keyed hashes only, and a bounded number of them.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    hasher: RandomState,
    seen: Mutex<HashMap<u64, Seen>>,
}

/// Messages of a sender with the same text.
#[derive(Debug)]
struct Seen {
    /// Time of each message, with the hash of its event id, so that a message that is pushed again is counted once.
    messages: Vec<(OffsetDateTime, u64)>,
}

impl Repeats {
    /// Whether the sender has sent this text `allowed` times within the last minute, not counting this message. Remembers
    /// the message if it has an id.
    pub(super) fn exceeds(
        &self,
        sender: &str,
        forms: &Forms,
        event_id: Option<&str>,
        allowed: usize,
        now: OffsetDateTime,
    ) -> bool {
        let text = self.hasher.hash_one((sender, compressed(&forms.skeleton)));
        let message = event_id.map(|id| self.hasher.hash_one(id));
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MOST_REMEMBERED && !seen.contains_key(&text) {
            seen.retain(|_, seen| seen.messages.iter().any(|(at, _)| now - *at < REPEATED_WITHIN));
            // Too many different texts in one minute. Forgetting all lets some repeats pass, and keeps the size bounded.
            if seen.len() >= MOST_REMEMBERED {
                seen.clear();
            }
        }
        let Some(message) = message else {
            return seen.get(&text).is_some_and(|seen| {
                seen.messages.iter().filter(|(at, _)| now - *at < REPEATED_WITHIN).count() >= allowed
            });
        };
        let Seen { messages } = seen.entry(text).or_insert_with(|| Seen { messages: Vec::new() });
        messages.retain(|(at, _)| now - *at < REPEATED_WITHIN);
        if let Some(position) = messages.iter().position(|(_, id)| *id == message) {
            return position >= allowed;
        }
        let exceeds = messages.len() >= allowed;
        // More are not needed to know that the next one exceeds too.
        if messages.len() <= allowed {
            messages.push((now, message));
        }
        exceeds
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;
    use time::macros::datetime;

    use super::{super::text::normalised, *};

    const ORDINARY: &str = include_str!("corpus/ordinary.txt");
    const BAD: &str = include_str!("corpus/bad.txt");

    /// Lines of a corpus, each with the heading before it.
    fn lines(corpus: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
        let mut heading = "";
        corpus.lines().filter_map(move |line| {
            if let Some(name) = line.strip_prefix("## ") {
                heading = name;
            }
            (!line.is_empty() && !line.starts_with('#')).then_some((heading, line))
        })
    }

    fn rule(id: i64, pattern: &str) -> PatternRule {
        PatternRule { id, pattern: pattern.to_owned(), matrix_room: None, action: Action::Remove, mute_seconds: None }
    }

    fn set(patterns: &[&str]) -> PatternSet {
        let (set, faults) = PatternSet::new((1..).zip(patterns).map(|(id, pattern)| rule(id, pattern)).collect());
        assert!(faults.is_empty(), "{faults:?}");
        set
    }

    fn find(set: &PatternSet, text: &str) -> Option<String> {
        set.find("!r:s", &normalised(text)).map(|hit| hit.reason)
    }

    /// Names of the built-in checks that match.
    fn matched(text: &str) -> Vec<&'static str> {
        let forms = Forms::of(text, MOST_LETTERS);
        let checks = [
            ("words", has_listed_word(&forms)),
            ("invitations", has_invitation(&forms)),
            ("links", has_link(&forms, &[])),
        ];
        checks.into_iter().filter(|(_, is_match)| *is_match).map(|(name, _)| name).collect()
    }

    #[test]
    fn ordinary_sentences_pass_built_in_checks() {
        let mut counts = HashMap::<&str, usize>::new();
        let mut faults = Vec::new();
        for (language, line) in lines(ORDINARY) {
            *counts.entry(language).or_default() += 1;
            let matched = matched(line);
            if !matched.is_empty() {
                faults.push(format!("{line}: {matched:?}"));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        for language in ["English", "Spanish", "Persian", "Portuguese"] {
            assert!(counts[language] >= 250, "{language}: {}", counts[language]);
        }
        assert!(counts.values().sum::<usize>() >= 1_000);
    }

    #[test]
    fn bad_messages_match_in_hidden_spellings() {
        let faults: Vec<_> =
            lines(BAD).filter(|(check, line)| !matched(line).contains(check)).map(|(_, line)| line).collect();
        assert!(faults.is_empty(), "not matched:\n{}", faults.join("\n"));
        assert!(lines(BAD).count() > 100);
    }

    #[test]
    fn mentions_and_replies_are_no_invitations() {
        for text in [
            "Ada: hello\nhttps://matrix.to/#/@ada:example.org",
            "In reply to\nhttps://matrix.to/#/!room:example.org/$event?via=example.org",
        ] {
            assert!(matched(text).is_empty(), "{text}: {:?}", matched(text));
        }
        assert_eq!(matched("https://matrix.to/#/#room:example.org"), ["invitations", "links"]);
    }

    #[test]
    fn links_to_allowed_domains_pass() {
        let allowed = ["example.org", "*.example.org"].map(|host| HostPattern::parse(host).expect("a host"));
        let has = |text: &str| has_link(&Forms::of(text, MOST_LETTERS), &allowed);
        for text in
            ["https://example.org/x", "http://news.example.org:8080", "example.org", "www.example.org", "EXAMPLE.org."]
        {
            assert!(!has(text), "{text}");
        }
        for text in [
            "https://example.org.evil.com",
            "https://example.org@evil.com/",
            "https://example.org:x@evil.com",
            "https://evil.com/example.org",
            "evilexample.org",
            "https://example.org and evil.com",
            "http://203.0.113.7/x",
            "https://matrix.to/#/@ada:example.org evil.com",
            "\u{2028}https://evil.com",
            "\u{2028}x https://example.org/x\u{1680}https://evil.com",
        ] {
            assert!(has(text), "{text}");
        }
    }

    #[test]
    fn patterns_ignore_case_and_hidden_characters() {
        let set =
            set(&[r"\bspoiler(s|ed)?\b", "^buy", r"\d{6,}", "купи", "خرید", "MARICÓN|other", "(?i)INLINE", "x[aA]y"]);
        for (text, expected) in [
            ("A SPOILER!", Some("filter 1")),
            ("spo\u{200b}ilers", Some("filter 1")),
            ("ｓｐｏｉｌｅｒ", Some("filter 1")),
            ("spoilering", None),
            ("Buy it", Some("filter 2")),
            ("I buy it", None),
            ("call 1234567", Some("filter 3")),
            ("КУПИ", Some("filter 4")),
            ("خرید", Some("filter 5")),
            ("maricón", Some("filter 6")),
            ("OTHER", Some("filter 6")),
            ("inline", Some("filter 7")),
            ("XaY", Some("filter 8")),
            ("goal", None),
        ] {
            assert_eq!(find(&set, text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn earliest_pattern_of_the_room_matches_first() {
        let elsewhere = PatternRule { matrix_room: Some("!other:s".to_owned()), ..rule(1, "word") };
        let muting = PatternRule { action: Action::Mute, mute_seconds: Some(60), ..rule(2, r"w\w+d") };
        let (set, _) = PatternSet::new(vec![elsewhere, muting, rule(3, "word")]);
        let hit = |room| set.find(room, "a word").expect("a match");
        assert_eq!(hit("!other:s").reason, "filter 1");
        let here = hit("!r:s");
        assert_eq!((here.reason.as_str(), here.action, here.mute_seconds), ("filter 2", Action::Mute, Some(60)));
    }

    #[test]
    fn invalid_pattern_leaves_others_in_effect() {
        let huge = "(?:\\w{50}){50}";
        let (set, faults) = PatternSet::new(vec![rule(1, "("), rule(2, "good"), rule(3, huge), rule(4, r"\d\d")]);
        assert_eq!(faults.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(find(&set, "good").as_deref(), Some("filter 2"));
        assert_eq!(find(&set, "12").as_deref(), Some("filter 4"));
    }

    #[test]
    fn patterns_are_parsed_within_limits() {
        for valid in ["a", r"\bword\b", &"x".repeat(500)] {
            assert!(valid.parse::<Pattern>().is_ok(), "{valid}");
        }
        for invalid in ["", "(", "a{2,1}", "(?=look)", &"x".repeat(501), ".*", "a?", "(?:\\w{50}){50}"] {
            assert!(invalid.parse::<Pattern>().is_err(), "{invalid}");
        }
    }

    /// Relative, because machines differ: a thousand patterns must not cost a thousand times as much as one.
    #[test]
    fn thousand_patterns_cost_little_more_than_one() {
        let patterns: Vec<String> = (0..MOST_PATTERNS).map(|number| format!(r"\bword{number}(s|ed)?\b")).collect();
        let many = set(&patterns.iter().map(String::as_str).collect::<Vec<_>>());
        let one = set(&[&patterns[0]]);
        let texts: Vec<&str> = lines(ORDINARY).map(|(_, line)| line).collect();
        let time = |set: &PatternSet| {
            let measure = || {
                let began = Instant::now();
                for text in &texts {
                    assert_eq!(find(set, text), None);
                }
                began.elapsed()
            };
            (0..5).map(|_| measure()).min().expect("a measurement")
        };
        let (many, one) = (time(&many), time(&one));
        assert!(many < one * 20, "1,000 patterns: {many:?}, one: {one:?}");
    }

    #[test]
    fn repeats_are_counted_per_sender_text_and_minute() {
        let (repeats, start) = (Repeats::default(), datetime!(2026-11-20 15:00 UTC));
        let send = |sender: &str, text: &str, id: &str, second: i64| {
            repeats.exceeds(
                sender,
                &Forms::of(text, MOST_LETTERS),
                Some(id),
                2,
                start + time::Duration::seconds(second),
            )
        };
        assert!(!send("@a:s", "Buy now", "$1", 0));
        assert!(!send("@a:s", "Buy now", "$1", 0), "pushed again");
        assert!(!send("@a:s", "BUY NOW!!!", "$2", 1));
        assert!(send("@a:s", "b u y   n o w", "$3", 2));
        assert!(send("@a:s", "b u y   n o w", "$3", 2), "pushed again");
        assert!(!send("@a:s", "Buy later", "$4", 2));
        assert!(!send("@b:s", "Buy now", "$5", 2));
        let is_refused = |second| {
            repeats.exceeds(
                "@a:s",
                &Forms::of("buy now", MOST_LETTERS),
                None,
                2,
                start + time::Duration::seconds(second),
            )
        };
        assert!(is_refused(3) && is_refused(4), "checking before sending does not count");
        assert!(!is_refused(63));
        assert!(!send("@a:s", "Buy now", "$6", 63));
    }

    #[test]
    fn remembered_texts_are_bounded() {
        let (repeats, now) = (Repeats::default(), datetime!(2026-11-20 15:00 UTC));
        for number in 0..MOST_REMEMBERED + 10 {
            repeats.exceeds("@a:s", &Forms::of(&format!("text {number}"), MOST_LETTERS), Some("$1"), 2, now);
        }
        assert!(repeats.seen.lock().expect("not poisoned").len() <= MOST_REMEMBERED);
    }

    proptest! {
        #[test]
        fn no_text_causes_panic(text in any::<String>()) {
            let forms = Forms::of(&text, MOST_LETTERS);
            has_listed_word(&forms);
            has_invitation(&forms);
            has_link(&forms, &[]);
        }

        /// The search for fixed texts must not hide a match.
        #[test]
        fn set_finds_what_each_pattern_finds(
            text in "[a-cA-C ñÑéÉкКσςΣ]{0,12}",
            patterns in proptest::collection::vec(r"\(?[a-c]{1,3}\)?(\|[a-cñéкσ]{2})?[+?]?(\.|\[ab\])?[a-cA-CñÑкς]{0,2}", 1..6),
        ) {
            let patterns: Vec<&str> =
                patterns.iter().map(String::as_str).filter(|pattern| pattern.parse::<Pattern>().is_ok()).collect();
            let text = normalised(&text);
            let expected = patterns.iter().any(|pattern| compile(pattern).expect("valid").is_match(&text));
            prop_assert_eq!(set(&patterns).find("!r:s", &text).is_some(), expected);
        }
    }
}
