//! Username validation, reserved names and suggestions. No I/O.
//!
//! A username is part of a Matrix user id and of links, so it is ASCII and has a single spelling: lower case.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use any_ascii::any_ascii_char;

use super::words::{ADJECTIVES, DRESSING, NICEST, NOUNS, NUMBERS_TO_AVOID, PREFIXES, RESERVED, STRONG, SUFFIXES};

const MIN_LENGTH: usize = 3;
const MAX_LENGTH: usize = 30;
/// Longer stems are shortened to this length if the complete stem yields too few names. It leaves room for a word and a
/// number.
const SHORT_STEM: usize = 20;
/// Characters of a base that are read. The rest could not fit into a name.
const MAX_BASE: usize = 200;

/// A valid username: 3 to 30 of `a`–`z`, `0`–`9`, `.` and `_`, with a letter or digit at both ends, not only digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, sqlx::Type, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
#[sqlx(transparent)]
pub struct Username(String);

impl Username {
    /// Parses a username in any case. Only ASCII letters are converted: the Kelvin sign does not become `k`.
    pub fn parse(text: &str) -> Option<Self> {
        if !(MIN_LENGTH..=MAX_LENGTH).contains(&text.len()) {
            return None;
        }
        let name = text.to_ascii_lowercase();
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = name.as_bytes();
        let is_valid = bytes.iter().all(|&byte| is_plain(byte) || matches!(byte, b'.' | b'_'))
            && bytes.first().copied().is_some_and(is_plain)
            && bytes.last().copied().is_some_and(is_plain)
            && !bytes.iter().all(u8::is_ascii_digit);
        is_valid.then_some(Self(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Username {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Whether a name is reserved, because it could be mistaken for the service, its staff or a technical term. Dots,
/// underscores and digits in place of letters do not circumvent the rule.
pub(super) fn is_reserved(name: &Username) -> bool {
    let bare = without_separators(&name.0);
    let is_whole = |word: &&str| word.len() == bare.len() && begins_like(&bare, word);
    RESERVED.iter().any(is_whole) || is_strong(&name.0)
}

fn without_separators(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| !matches!(byte, b'.' | b'_')).collect()
}

/// Whether the name consists only of at least one strong word and any number of reserved words, dressing and digits, in
/// any order.
fn is_strong(text: &str) -> bool {
    let bare = without_separators(text);
    // For each position, whether a sequence of these words and digits can end there: without a strong word, and with
    // one.
    let mut weak = vec![false; bare.len() + 1];
    let mut strong = vec![false; bare.len() + 1];
    weak[0] = true;
    for at in 0..bare.len() {
        let (is_weak, has_strong) = (weak[at], strong[at]);
        if !is_weak && !has_strong {
            continue;
        }
        let rest = &bare[at..];
        if rest[0].is_ascii_digit() {
            weak[at + 1] |= is_weak;
            strong[at + 1] |= has_strong;
        }
        for word in RESERVED.iter().chain(DRESSING).filter(|word| begins_like(rest, word)) {
            weak[at + word.len()] |= is_weak;
            strong[at + word.len()] |= has_strong;
        }
        for word in STRONG.iter().filter(|word| begins_like(rest, word)) {
            strong[at + word.len()] = true;
        }
    }
    strong[bare.len()]
}

/// Whether the text starts with the word, also if digits replace letters.
fn begins_like(text: &[u8], word: &str) -> bool {
    text.len() >= word.len() && text.iter().zip(word.bytes()).all(|(&seen, meant)| is_like(seen, meant))
}

fn is_like(seen: u8, meant: u8) -> bool {
    seen == meant
        || matches!(
            (seen, meant),
            (b'0', b'o') | (b'1', b'i' | b'l') | (b'3', b'e') | (b'4', b'a') | (b'5', b's') | (b'7', b't')
        )
}

/// Suggests `count` distinct names that are valid and not reserved, based on any text.
///
/// With `numbers`, every name ends in a digit; otherwise no name contains one. Every name contains all letters of the
/// base if they fit. A long base is shortened if the complete one yields too few names. Generated words replace a base
/// that has fewer than two letters or could be mistaken for the service or its staff. The base itself comes first if it
/// is a suitable name. Nicer patterns come before others. Within a pattern, the order is random, so concurrent callers
/// get different names.
///
/// Any base yields hundreds of names without numbers and millions with numbers; the result is shorter than `count` only
/// beyond that.
pub(super) fn suggest(base: &str, numbers: bool, random: &mut dyn FnMut() -> u64, count: usize) -> Vec<Username> {
    let base = Base::read(base, numbers);
    let mut names = Vec::new();
    let mut seen = HashSet::new();
    for stage in base.stages(numbers) {
        let mut pools: Vec<_> = stage.into_iter().map(Pool::new).collect();
        // The patterns of a stage take turns to vary even the first few names. Names that differ only in separators are
        // easily confused, so only one of them is kept.
        while !pools.is_empty() && names.len() < count {
            pools.retain_mut(|pool| {
                if names.len() == count {
                    return true;
                }
                let Some(text) = pool.draw(random) else {
                    return false;
                };
                let suitable = Username::parse(&text).filter(|name| !is_reserved(name));
                if let Some(name) = suitable
                    && seen.insert(without_separators(&name.0))
                {
                    names.push(name);
                }
                true
            });
        }
    }
    names
}

/// Generates a name for a user who chose none, such as `swift_winger`.
///
/// The first attempt has no digits. Later attempts, made when the previous name was taken, have two, three and then
/// four. Four digits give half a billion names, so a few attempts find a free one among a hundred million accounts.
pub(super) fn invent(attempt: u32, random: &mut dyn FnMut() -> u64) -> Username {
    let adjective = ADJECTIVES[below(random, ADJECTIVES.len())];
    let noun = NOUNS[below(random, NOUNS.len())];
    let separator = SEPARATORS[below(random, SEPARATORS.len())];
    let mut name = format!("{adjective}{separator}{noun}");
    let width = match attempt {
        0 => return Username(name),
        1 => 2,
        2 => 3,
        _ => 4,
    };
    let size = 10_usize.pow(width);
    let start = below(random, size);
    // If the number is one to avoid, step to another instead of drawing again: a repetitive source of randomness must
    // not cause an endless loop. The step reaches every number. It is large because the numbers to avoid are adjacent:
    // a step of one would make the number after them far too frequent.
    let mut number = (0..size).map(|turn| format!("{:0width$}", (start + turn * 7_919) % size, width = width as usize));
    name.extend(number.find(|number| !is_to_avoid(number)));
    Username(name)
}

/// The parts of the user's text that names can contain.
#[derive(Debug, PartialEq, Eq)]
struct Base {
    /// The base as a complete name without additions; empty if it is not suitable.
    whole: String,
    /// Stems to combine with words and numbers, preferred first. If empty, generated words are used.
    stems: Vec<String>,
}

impl Base {
    fn read(text: &str, numbers: bool) -> Self {
        let mut whole = transliterate(text, numbers);
        if whole.split(|letter: char| !letter.is_ascii_digit()).any(is_to_avoid) {
            whole = transliterate(text, false);
        }
        // An appended number replaces the base's own number: `striker9` and `striker_07`, not `striker9_07`.
        let stem = whole.trim_end_matches(|letter: char| !letter.is_ascii_lowercase()).to_owned();
        let letters = stem.bytes().filter(u8::is_ascii_lowercase).count();
        if letters < 2 || is_strong(&stem) || is_strong(&transliterate(text, true)) {
            return Self { whole: String::new(), stems: Vec::new() };
        }
        if whole.ends_with(|letter: char| letter.is_ascii_digit()) != numbers {
            whole.clear();
        }
        let short = shorten(&stem);
        let stems = if stem.len() <= SHORT_STEM {
            vec![stem]
        } else if stem.len() <= MAX_LENGTH {
            vec![stem, short]
        } else {
            vec![short]
        };
        Self { whole, stems }
    }

    /// Patterns to draw from, in stages. A stage starts when the previous one is exhausted.
    fn stages(&self, numbers: bool) -> Vec<Vec<Pattern<'_>>> {
        match (self.stems.is_empty(), numbers) {
            (true, false) => return vec![vec![Pattern::OURS]],
            (true, true) => return (2..=4).map(|width| vec![Pattern::OURS.with(Numbers::of_width(width))]).collect(),
            (false, _) => {}
        }
        let mut stages = vec![vec![Pattern { stem: &self.whole, separators: &["_"], ..Pattern::EMPTY }]];
        for stem in &self.stems {
            // Names with both separators are hard to remember, so use the base's separator.
            let separators = SEPARATORS.iter().position(|separator| stem.contains(separator));
            let separators = separators.map_or(SEPARATORS, |at| &SEPARATORS[at..=at]);
            let bare = Pattern { stem, separators, ..Pattern::EMPTY };
            let before = |prefixes| Pattern { prefixes, ..bare };
            let after = |suffixes| Pattern { suffixes, ..bare };
            if numbers {
                let shirt = Numbers { first: 1, last: 99, width: 2 };
                stages.push(vec![
                    bare.with(shirt),
                    before(&PREFIXES[..NICEST]).with(shirt),
                    bare.with(Numbers { first: 1, last: 9, width: 1 }),
                    after(&SUFFIXES[..NICEST]).with(shirt),
                    // Founding years, as in club names.
                    bare.with(Numbers { first: 1900, last: 1932, width: 4 }),
                ]);
                stages.push(vec![
                    before(PREFIXES).with(shirt),
                    after(SUFFIXES).with(shirt),
                    bare.with(Numbers { first: 1946, last: 2030, width: 4 }),
                ]);
                stages.extend((3..=6).map(|width| vec![bare.with(Numbers::of_width(width))]));
            } else {
                stages.push(vec![before(&PREFIXES[..NICEST]), after(&SUFFIXES[..NICEST])]);
                stages.push(vec![before(PREFIXES), after(SUFFIXES)]);
                stages.push(vec![Pattern { prefixes: PREFIXES, suffixes: SUFFIXES, ..bare }]);
            }
        }
        stages
    }
}

/// Converts text to `a`–`z` with a single `_` or `.` between words, and digits if requested.
fn transliterate(text: &str, digits: bool) -> String {
    let mut name = String::new();
    let mut gap = None;
    for letter in text.chars().take(MAX_BASE) {
        for ascii in if is_picture(letter) { " " } else { any_ascii_char(letter) }.bytes() {
            match ascii.to_ascii_lowercase() {
                plain if plain.is_ascii_lowercase() || (digits && plain.is_ascii_digit()) => {
                    let separator = gap.take().filter(|_| !name.is_empty());
                    name.extend(separator);
                    name.push(char::from(plain));
                }
                // Drop these characters without splitting the word: `o'neill` becomes `oneill`.
                b'\'' | b'`' | b'0'..=b'9' => {}
                b'.' => gap = gap.or(Some('.')),
                _ => gap = Some('_'),
            }
        }
    }
    name
}

/// Whether a character is a picture, not a letter: `any_ascii` writes emoji as `:soccer:` and flags as letters.
fn is_picture(letter: char) -> bool {
    let ascii = any_ascii_char(letter);
    let is_emoji = ascii.len() > 2 && ascii.starts_with(':') && ascii.ends_with(':');
    is_emoji || matches!(letter, '\u{1f1e6}'..='\u{1f1ff}' | '©' | '®' | '™' | '℠')
}

/// Cuts a stem to at most [`SHORT_STEM`] characters, at the end of a word if at least six characters remain.
fn shorten(stem: &str) -> String {
    let cut = stem.get(..SHORT_STEM).unwrap_or(stem);
    let is_separator = |letter: char| matches!(letter, '.' | '_');
    let ends_a_word = stem[cut.len()..].starts_with(is_separator);
    let words = if ends_a_word { cut } else { cut.rsplit_once(is_separator).map_or(cut, |(words, _)| words) };
    let kept = if words.len() < 6 || is_strong(words) { cut } else { words };
    kept.trim_end_matches(|letter: char| !letter.is_ascii_lowercase()).to_owned()
}

fn is_to_avoid(number: &str) -> bool {
    NUMBERS_TO_AVOID.iter().any(|avoided| number.contains(avoided))
}

/// A random number below `limit`. The bias of the remainder is negligible for names.
fn below(random: &mut dyn FnMut() -> u64, limit: usize) -> usize {
    usize::try_from(random() % (limit as u64)).unwrap_or(0)
}

const SEPARATORS: &[&str] = &["_", "."];

/// Range of numbers with the same width, both ends included.
#[derive(Clone, Copy)]
struct Numbers {
    first: usize,
    last: usize,
    width: usize,
}

impl Numbers {
    fn of_width(width: u32) -> Self {
        let size = 10_usize.pow(width);
        Self { first: size / 10, last: size - 1, width: width as usize }
    }
}

/// A set of names: any prefix, the stem and any suffix, joined by one of the separators, followed by any number.
#[derive(Clone, Copy)]
struct Pattern<'a> {
    /// An empty string means no prefix.
    prefixes: &'a [&'a str],
    stem: &'a str,
    suffixes: &'a [&'a str],
    separators: &'a [&'a str],
    numbers: Option<Numbers>,
}

impl Pattern<'_> {
    const EMPTY: Self = Self { prefixes: &[""], stem: "", suffixes: &[""], separators: SEPARATORS, numbers: None };
    const OURS: Self = Self { prefixes: ADJECTIVES, suffixes: NOUNS, ..Self::EMPTY };

    fn with(self, numbers: Numbers) -> Self {
        Self { numbers: Some(numbers), ..self }
    }
}

/// Draws the names of a pattern in random order, each once. It is a Fisher–Yates shuffle that stores only moved items.
struct Pool<'a> {
    pattern: Pattern<'a>,
    prefixes: Vec<&'a str>,
    suffixes: Vec<&'a str>,
    left: usize,
    moved: HashMap<usize, usize>,
}

impl<'a> Pool<'a> {
    fn new(pattern: Pattern<'a>) -> Self {
        // Exclude words that are too long for the stem now: rejecting them one by one would take thousands of draws.
        let number = pattern.numbers.map_or(0, |numbers| numbers.width);
        let room = MAX_LENGTH.checked_sub(pattern.stem.len() + number);
        let fits = |word: &&&str| room.is_some_and(|room| word.is_empty() || word.len() < room);
        let prefixes: Vec<_> = pattern.prefixes.iter().filter(fits).copied().collect();
        let suffixes: Vec<_> = pattern.suffixes.iter().filter(fits).copied().collect();
        // Each number is tried with and without a separator.
        let numbers = pattern.numbers.map_or(1, |numbers| 2 * (numbers.last - numbers.first + 1));
        let left = prefixes.len() * suffixes.len() * pattern.separators.len() * numbers;
        Self { pattern, prefixes, suffixes, left, moved: HashMap::new() }
    }

    fn draw(&mut self, random: &mut dyn FnMut() -> u64) -> Option<String> {
        while self.left > 0 {
            let at = below(random, self.left);
            self.left -= 1;
            let drawn = self.moved.get(&at).copied().unwrap_or(at);
            // The last item takes the place of the drawn one.
            let last = self.moved.remove(&self.left).unwrap_or(self.left);
            if at != self.left {
                self.moved.insert(at, last);
            }
            if let Some(name) = self.name(drawn).filter(|name| name.len() <= MAX_LENGTH) {
                return Some(name);
            }
        }
        None
    }

    /// The name with this index, or `None` if it repeats a word, has a number to avoid or is empty.
    fn name(&self, mut index: usize) -> Option<String> {
        let mut digit = |size: usize| {
            let digit = index % size;
            index /= size;
            digit
        };
        let prefix = self.prefixes[digit(self.prefixes.len())];
        let suffix = self.suffixes[digit(self.suffixes.len())];
        let separator = self.pattern.separators[digit(self.pattern.separators.len())];
        // Excludes `striker_striker` and `captain_jo_captain`.
        let repeats = |word: &str| !word.is_empty() && self.pattern.stem.contains(word);
        if repeats(prefix) || repeats(suffix) || (!prefix.is_empty() && prefix == suffix) {
            return None;
        }
        let pieces: Vec<_> =
            [prefix, self.pattern.stem, suffix].into_iter().filter(|piece| !piece.is_empty()).collect();
        let mut name = pieces.join(separator);
        if let Some(numbers) = self.pattern.numbers {
            let is_apart = digit(2) == 1;
            let number = format!("{:0width$}", numbers.first + index, width = numbers.width);
            if is_to_avoid(&number) {
                return None;
            }
            name.push_str(if is_apart { separator } else { "" });
            name.push_str(&number);
        }
        (!name.is_empty()).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The `SplitMix64` generator, which is random enough to vary names.
    fn seeded(mut state: u64) -> impl FnMut() -> u64 {
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }
    }

    fn suggested(base: &str, numbers: bool, count: usize) -> Vec<String> {
        suggest(base, numbers, &mut seeded(7), count).iter().map(ToString::to_string).collect()
    }

    fn reserved(name: &str) -> bool {
        is_reserved(&Username::parse(name).unwrap())
    }

    fn assert_fit(names: &[Username], numbers: bool) {
        let distinct: HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "duplicate in {names:?}");
        for name in names {
            assert_eq!(Username::parse(name.as_str()).as_ref(), Some(name), "{name} is invalid");
            assert!(!is_reserved(name), "{name} is reserved");
            if numbers {
                assert!(
                    name.as_str().ends_with(|letter: char| letter.is_ascii_digit()),
                    "{name} does not end in a digit"
                );
            } else {
                assert!(!name.as_str().contains(|letter: char| letter.is_ascii_digit()), "{name} has a digit");
            }
        }
    }

    #[test]
    fn username_is_converted_to_lower_case() {
        let name = Username::parse("Leo.Messi_10").unwrap();
        assert_eq!(name.as_str(), "leo.messi_10");
        assert_eq!(name.to_string(), "leo.messi_10");
    }

    #[test]
    fn length_character_and_edge_rules_are_enforced() {
        for valid in ["abc", "a1b", "1ab", "7up", "a..b", "a__b", "a._.b", "1_1", &"x".repeat(30)] {
            assert!(Username::parse(valid).is_some(), "{valid}");
        }
        let invalid = ["", "ab", "123", ".ab", "ab.", "_ab", "ab_", "a b", "a-b", "a@b", "abc\n", " abc", "José"];
        for invalid in invalid.into_iter().chain([&*"x".repeat(31)]) {
            assert_eq!(Username::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn non_ascii_letters_with_ascii_lower_case_are_refused() {
        assert_eq!("\u{212a}".to_lowercase(), "k", "the Kelvin sign");
        for invalid in ["\u{212a}ane", "mar\u{212a}o", "İbra", "al\u{130}", "ＡＢＣ", "ſam"] {
            assert_eq!(Username::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn words_of_authority_are_reserved() {
        let names = "admin Administrator root system support help helpdesk staff team moderator mod official security \
            abuse info contact billing press legal privacy owner operator service bot null undefined \
            anonymous everyone here all you matchday match.day match_day matchdayapp matchdaybot \
            matchday_bot matrix synapse notices server";
        for name in names.split_whitespace() {
            assert!(reserved(name), "{name}");
        }
    }

    #[test]
    fn disguised_reserved_words_stay_reserved() {
        let names = "a.d.m.i.n adm1n 4dm1n supp0rt 5upp0r7 m_o_d m.e he1p 1egal off1c1a1 n.u.1.1 m4tchd4y match__day \
            0wner";
        for name in names.split_whitespace() {
            assert!(reserved(name), "{name}");
        }
    }

    #[test]
    fn strong_words_stay_reserved_in_combinations() {
        let names = "admin1 admin_1 support24 24support moderator.007 adm1n99 matchday2026 the_admin therealadmin \
            admin_team matchday.support matchdayhelp official_matchday_app mod_bot";
        for name in names.split_whitespace() {
            assert!(reserved(name), "{name}");
        }
    }

    #[test]
    fn ordinary_names_are_not_reserved() {
        let names = "modric teammate helper allan robot mewtwo modern model10 team7 bot9 root66 the_owner youssef \
            heremias infante allison melina mailson supporter systema matchday_mike legalas rooms pressing \
            serverus messi_official admina staffan striker boto moda modesto nullmeier trueman";
        for name in names.split_whitespace() {
            assert!(!reserved(name), "{name}");
        }
    }

    #[test]
    fn suggestions_are_valid_and_contain_the_base() {
        for numbers in [false, true] {
            let names = suggest("Striker", numbers, &mut seeded(1), 250);
            assert_eq!(names.len(), 250);
            assert_fit(&names, numbers);
            assert!(names.iter().all(|name| name.as_str().matches("striker").count() == 1));
        }
    }

    #[test]
    fn any_script_is_transliterated() {
        assert_eq!(transliterate("José Ñandú", false), "jose_nandu");
        assert_eq!(transliterate("  Ødegård -- Müller! ", false), "odegard_muller");
        assert_eq!(transliterate("O’Neill", false), "oneill");
        assert_eq!(transliterate("J. R. Smith", false), "j_r_smith");
        assert_eq!(transliterate("leo.messi", false), "leo.messi");
        assert_eq!(transliterate("⚽Striker🇪🇸™", false), "striker");
        assert_eq!(transliterate("손흥민", false), "sonheungmin");
        assert_eq!(transliterate("جول٩", true), "jwl9");
        assert_eq!(transliterate("Kane 9", false), "kane");
        assert_eq!(transliterate("Kane 9", true), "kane_9");
        assert_eq!(suggested("José Ñandú", false, 1), ["jose_nandu"]);
        assert!(suggested("José Ñandú", true, 50).iter().all(|name| name.contains("jose_nandu")));
    }

    #[test]
    fn unusable_base_is_replaced_by_generated_words() {
        for base in ["", "a", "!!!", "⚽🇪🇸🎉", "7", "__", "admin", "M4tchday", "the real admin"] {
            for numbers in [false, true] {
                let names = suggest(base, numbers, &mut seeded(2), 250);
                assert_eq!(names.len(), 250, "{base}");
                assert_fit(&names, numbers);
                assert!(NOUNS.iter().any(|noun| names[0].as_str().contains(noun)), "{base}: {}", names[0]);
            }
        }
    }

    #[test]
    fn number_of_the_base_is_not_doubled() {
        let names = suggested("Striker9", true, 100);
        assert_eq!(names[0], "striker9");
        assert!(names[1..].iter().all(|name| !name.contains("striker9_") && name.contains("striker")), "{names:?}");
        assert!(suggested("2pac", true, 10).iter().all(|name| name.contains("2pac")));
        assert!(suggested("Striker88", true, 100).iter().all(|name| !name.contains("88")));
        assert!(suggested("88striker", true, 100).iter().all(|name| !name.contains("88")));
    }

    #[test]
    fn long_base_is_shortened_only_when_needed() {
        let names = suggested("Maximiliano Rodríguez Díaz", false, 300);
        assert_eq!(names.len(), 300);
        assert_eq!(names[0], "maximiliano_rodriguez_diaz");
        assert!(names[1..3].iter().all(|name| name.contains("maximiliano_rodriguez_diaz")), "{names:?}");
        let names = suggested("Cristiano Ronaldo dos Santos Aveiro", true, 300);
        assert!(names.iter().all(|name| name.contains("cristiano_ronaldo")), "{names:?}");
    }

    #[test]
    fn every_base_length_yields_enough_names() {
        for length in 2..=60 {
            for numbers in [false, true] {
                let names = suggest(&"x".repeat(length), numbers, &mut seeded(3), 200);
                assert_eq!(names.len(), 200, "{length}");
                assert_fit(&names, numbers);
            }
        }
    }

    #[test]
    fn numbers_to_avoid_are_never_suggested() {
        for name in suggested("Striker", true, 10_000) {
            let number = name.rsplit(|letter: char| !letter.is_ascii_digit()).next().unwrap();
            assert!(!is_to_avoid(number), "{name}");
        }
        assert!(["13", "1488", "2014", "690", "1312", "420"].into_iter().all(is_to_avoid));
        assert!(["07", "10", "90", "1907", "1999"].into_iter().all(|number| !is_to_avoid(number)));
    }

    #[test]
    fn suggestions_differ_between_callers() {
        for numbers in [false, true] {
            let one = suggest("Striker", numbers, &mut seeded(4), 5);
            let other = suggest("Striker", numbers, &mut seeded(5), 5);
            assert!(one.iter().filter(|name| other.contains(name)).count() <= 3, "{one:?} {other:?}");
        }
    }

    #[test]
    fn repetitive_randomness_does_not_loop_forever() {
        for value in [0, 1, 13, u64::MAX] {
            for numbers in [false, true] {
                let names = suggest("Striker", numbers, &mut || value, 500);
                assert_eq!(names.len(), 500);
                assert_fit(&names, numbers);
            }
            for attempt in 0..5 {
                let name = invent(attempt, &mut || value);
                assert_eq!(Username::parse(name.as_str()), Some(name));
            }
        }
    }

    #[test]
    fn word_lists_are_distinct_and_within_length() {
        let of_length = |words: &[&str], from: usize, to: usize| {
            let distinct: HashSet<_> = words.iter().collect();
            assert_eq!(distinct.len(), words.len());
            for word in words {
                assert!((from..=to).contains(&word.len()), "{word}");
                assert!(word.bytes().all(|letter| letter.is_ascii_lowercase()), "{word}");
            }
        };
        of_length(ADJECTIVES, 3, 8);
        of_length(NOUNS, 3, 8);
        of_length(PREFIXES, 2, 8);
        of_length(SUFFIXES, 2, 8);
        of_length(&[STRONG, RESERVED, DRESSING].concat(), 2, 30);
        assert!(ADJECTIVES.len() >= 120 && NOUNS.len() >= 120);
    }

    #[test]
    fn generated_words_never_combine_to_reserved_name() {
        for adjective in ADJECTIVES {
            for noun in NOUNS {
                assert!(!reserved(&format!("{adjective}_{noun}")), "{adjective}_{noun}");
            }
        }
    }

    #[test]
    fn generated_names_vary() {
        let mut random = seeded(6);
        let names: HashSet<_> = (0..10_000).map(|_| invent(0, &mut random)).collect();
        assert!(names.len() > 5_000, "{}", names.len());
    }

    #[test]
    fn further_attempts_have_more_digits() {
        for (attempt, digits) in [(0, 0), (1, 2), (2, 3), (3, 4), (4, 4), (u32::MAX, 4)] {
            let name = invent(attempt, &mut seeded(8));
            assert_eq!(name.as_str().bytes().filter(u8::is_ascii_digit).count(), digits, "{name}");
        }
    }

    /// Independent implementation of the rule, character by character.
    fn is_valid(text: &str) -> bool {
        let letters: Vec<char> = text.chars().collect();
        let is_end = |letter: char| matches!(letter, 'a'..='z' | 'A'..='Z' | '0'..='9');
        letters.len() >= 3
            && letters.len() <= 30
            && letters.iter().all(|&letter| is_end(letter) || letter == '.' || letter == '_')
            && is_end(letters[0])
            && is_end(letters[letters.len() - 1])
            && letters.iter().any(|letter| !letter.is_ascii_digit())
    }

    proptest! {
        #[test]
        fn parsing_follows_the_rule(text in prop_oneof![any::<String>(), "[A-Za-z0-9._]{0,33}", "[0-9._]{2,5}"]) {
            let name = Username::parse(&text);
            prop_assert_eq!(name.is_some(), is_valid(&text));
            if let Some(name) = name {
                prop_assert_eq!(name.as_str(), text.to_ascii_lowercase());
                is_reserved(&name);
            }
        }

        #[test]
        fn any_base_gets_valid_suggestions(
            base in prop_oneof![any::<String>(), "\\PC{0,60}", "[A-Za-z0-9 ._]{0,40}", "[a-z]{0,40}"],
            numbers: bool,
            seed: u64,
            count in 0_usize..=200,
        ) {
            let names = suggest(&base, numbers, &mut seeded(seed), count);
            prop_assert_eq!(names.len(), count);
            assert_fit(&names, numbers);
        }

        #[test]
        fn usable_base_appears_in_every_suggestion(base in "[a-zA-Z]{2,20}", numbers: bool, seed: u64) {
            let base = base.to_ascii_lowercase();
            prop_assume!(!is_strong(&base));
            for name in suggest(&base, numbers, &mut seeded(seed), 200) {
                prop_assert!(name.as_str().contains(&base), "{} without {}", name, base);
            }
        }

        #[test]
        fn generated_names_are_valid(attempt: u32, small in 0_u32..5, seed: u64) {
            for attempt in [attempt, small] {
                let name = invent(attempt, &mut seeded(seed));
                prop_assert!(!is_reserved(&name));
                prop_assert_eq!(Username::parse(name.as_str()), Some(name));
            }
        }
    }
}
