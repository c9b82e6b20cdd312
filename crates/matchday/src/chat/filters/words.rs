//! Word lists: slurs and severe insults, also in hidden spellings; no I/O.
//!
//! A list names whole words, so that place names and ordinary words which contain one do not match. A letter of an entry
//! may be repeated in a message, but not left out: `niger` is a country.

use std::{collections::HashMap, sync::LazyLock};

use aho_corasick::AhoCorasick;

/// Shortest word that is searched in letters which are written separately.
const SHORTEST_SPELLED: usize = 4;

/// Built-in lists.
pub(super) static BUILT_IN: LazyLock<WordList> = LazyLock::new(|| {
    WordList::parse(&[
        include_str!("words/english.txt"),
        include_str!("words/spanish.txt"),
        include_str!("words/persian.txt"),
        include_str!("words/portuguese.txt"),
    ])
});

/// A word with runs of the same letter counted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Runs {
    /// Each run as one letter.
    letters: String,
    counts: Vec<usize>,
}

impl Runs {
    fn of(word: &str) -> Self {
        let (mut letters, mut counts) = (String::new(), Vec::new());
        for letter in word.chars() {
            if letters.ends_with(letter) {
                if let Some(count) = counts.last_mut() {
                    *count += 1;
                }
            } else {
                letters.push(letter);
                counts.push(1);
            }
        }
        Self { letters, counts }
    }

    /// Whether each of these runs, or of the first ones, is at least as long as the run of this entry. The letters are equal
    /// already.
    fn fits(&self, counts: &[usize]) -> bool {
        self.counts.iter().zip(counts).all(|(least, count)| count >= least)
    }
}

/// A word of an entry; `*` at its end allows any ending.
#[derive(Clone, Debug)]
struct Entry {
    runs: Runs,
    is_prefix: bool,
}

impl Entry {
    fn parse(word: &str) -> Self {
        let (word, is_prefix) = word.strip_suffix('*').map_or((word, false), |stem| (stem, true));
        Self { runs: Runs::of(&super::text::skeleton(&super::text::normalised(word))), is_prefix }
    }

    fn matches(&self, word: &Runs) -> bool {
        let has_letters = if self.is_prefix {
            word.letters.starts_with(&self.runs.letters)
        } else {
            word.letters == self.runs.letters
        };
        has_letters && self.runs.fits(&word.counts)
    }
}

/// A word of a message, in the spellings that it may stand for.
struct Word {
    spellings: Vec<Runs>,
}

/// Phrases by the letters of their first word. A phrase of one word is a word.
#[derive(Default)]
struct Index {
    phrases: HashMap<String, Vec<Vec<Entry>>>,
    /// Length of the longest key in bytes. Longer ones are not looked up, because a lookup reads the whole key.
    longest: usize,
}

impl Index {
    fn add(&mut self, phrase: Vec<Entry>) {
        let Some(first) = phrase.first() else { return };
        self.longest = self.longest.max(first.runs.letters.len());
        self.phrases.entry(first.runs.letters.clone()).or_default().push(phrase);
    }

    fn get(&self, letters: &str) -> Option<&Vec<Vec<Entry>>> {
        if letters.len() > self.longest {
            return None;
        }
        self.phrases.get(letters)
    }
}

/// Words and phrases that match.
#[derive(Default)]
pub(super) struct WordList {
    exact: Index,
    /// Phrases whose first word allows any ending.
    prefixes: Index,
    /// Words for the search in letters that are written separately.
    spelled: Option<(AhoCorasick, Vec<Entry>)>,
}

impl WordList {
    /// Parses lists with one word or phrase per line. `#` starts a comment.
    fn parse(lists: &[&str]) -> Self {
        let (mut list, mut words) = (Self::default(), Vec::new());
        for line in lists.iter().flat_map(|list| list.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let phrase: Vec<Entry> = line.split_whitespace().map(Entry::parse).collect();
            let Some(first) = phrase.first().filter(|first| !first.runs.letters.is_empty()) else { continue };
            if phrase.len() == 1 {
                words.push(first.clone());
            }
            let index = if first.is_prefix { &mut list.prefixes } else { &mut list.exact };
            index.add(phrase);
        }
        let search = AhoCorasick::new(words.iter().map(|word| &word.runs.letters));
        list.spelled = search.ok().map(|search| (search, words));
        list
    }

    /// Whether a text contains a listed word. Takes the text's skeleton.
    pub(super) fn matches(&self, skeleton: &str) -> bool {
        let mut words = Vec::new();
        let mut joined = Vec::new();
        for chunk in skeleton.split_whitespace() {
            let parts: Vec<&str> =
                chunk.split(|c| !is_part_of_word(c)).map(trimmed).filter(|p| !p.is_empty()).collect();
            if parts.len() > 1 && parts.iter().any(|part| part.chars().count() > 1) {
                // Separators within a word. Numbers are no parts of it.
                let letters: String = parts.iter().filter(|part| part.contains(char::is_alphabetic)).copied().collect();
                joined.push(Word { spellings: spellings(&letters) });
            }
            words.extend(parts);
        }
        let mut runs = words.chunk_by(|one, other| is_single(one) && is_single(other));
        // A run of one is a whole word, which must not match in parts.
        let spelled = runs.any(|run| run.len() > 1 && self.matches_spelled(run));
        let words: Vec<Word> = words.into_iter().map(|word| Word { spellings: spellings(word) }).collect();
        spelled
            || (0..words.len()).any(|at| self.matches_at(&words[at..]))
            || joined.iter().any(|word| self.matches_at(std::slice::from_ref(word)))
    }

    /// Whether letters that are written separately contain a word, as in `w o r d` or `w.o.r.d`.
    fn matches_spelled(&self, letters: &[&str]) -> bool {
        let Some((search, words)) = &self.spelled else { return false };
        spellings(&letters.concat()).iter().any(|text| {
            let mut runs = vec![0; text.letters.len()];
            for (run, (at, _)) in text.letters.char_indices().enumerate() {
                runs[at] = run;
            }
            search.find_overlapping_iter(&text.letters).any(|found| {
                let word = &words[found.pattern().as_usize()];
                let counts = &text.counts[runs[found.start()]..];
                let read = if word.is_prefix { SHORTEST_SPELLED } else { word.runs.counts.len() };
                let is_long = counts.iter().take(read).sum::<usize>() >= SHORTEST_SPELLED;
                is_long && word.runs.fits(counts)
            })
        })
    }

    /// Whether a word or phrase begins with the first of these words.
    fn matches_at(&self, words: &[Word]) -> bool {
        let Some(first) = words.first() else { return false };
        let fits = |phrase: &Vec<Entry>| {
            phrase.len() <= words.len()
                && phrase
                    .iter()
                    .zip(words)
                    .all(|(entry, word)| word.spellings.iter().any(|spelling| entry.matches(spelling)))
        };
        first.spellings.iter().any(|spelling| {
            let letters = spelling.letters.as_str();
            let prefixes = self.beginnings(letters).filter_map(|beginning| self.prefixes.get(beginning));
            self.exact.get(letters).into_iter().chain(prefixes).flatten().any(fits)
        })
    }

    /// Beginnings of a word that may be entries. Their number does not grow with the word.
    fn beginnings<'a>(&self, letters: &'a str) -> impl Iterator<Item = &'a str> {
        let ends = letters.char_indices().map(|(at, letter)| at + letter.len_utf8());
        ends.take_while(|&end| end <= self.prefixes.longest).map(|end| &letters[..end])
    }
}

fn is_part_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '@' | '$' | '!' | '|' | '€')
}

/// Without signs that are punctuation at this place. A leading `@` or `$` may stand for a letter.
fn trimmed(part: &str) -> &str {
    part.trim_start_matches(['!', '|', '€']).trim_end_matches(['!', '|', '€', '@', '$'])
}

fn is_single(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(char::is_alphabetic) && letters.next().is_none()
}

/// Words that a word may stand for, if digits and signs are read as letters. A number is no word.
fn spellings(word: &str) -> Vec<Runs> {
    if !word.contains(char::is_alphabetic) {
        return Vec::new();
    }
    let mut spellings = vec![Runs::of(&with_letters(word, 'i'))];
    if word.contains(['1', '!', '|']) {
        spellings.push(Runs::of(&with_letters(word, 'l')));
    }
    if word.contains('l') {
        spellings.push(Runs::of(&with_letters(word, 'i').replace('l', "i")));
    }
    spellings
}

fn with_letters(word: &str, one: char) -> String {
    let letter = |sign| match sign {
        '0' => 'o',
        '1' | '!' | '|' => one,
        '3' | '€' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '7' => 't',
        '8' => 'b',
        '9' => 'g',
        other => other,
    };
    word.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chat::filters::text::{normalised, skeleton};

    fn matches(list: &WordList, text: &str) -> bool {
        list.matches(&skeleton(&normalised(text)))
    }

    #[test]
    fn hidden_spellings_match_and_longer_words_do_not() {
        let list = WordList::parse(&["badd # comment\n# nothing\nuglies*\ndimwit\nvery mean man\n"]);
        for text in [
            "badd",
            "You BADD!",
            "b4dd",
            "b@dd",
            "8add",
            "baaaddd",
            "b.a.d.d",
            "b a d d",
            "so b-a-d-d",
            "b_add",
            "bа\u{200b}dd",
            "𝐛𝐚𝐝𝐝",
            "¡bádd!",
            "bad-d",
            "uglies",
            "ugliest",
            "ugl1es",
            "ug|ies",
            "dlmwlt",
            "very mean man",
            "a VERY\nmean m4n here",
            "w h y b a d d y",
            "u g l i e s t",
            "d l m w l t",
            "b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b a d d",
        ] {
            assert!(matches(&list, text), "{text}");
        }
        for text in [
            "bad",
            "baddie",
            "abadd",
            "not bad, d'you see",
            "ugly",
            "very mean woman",
            "very, very mean",
            "4-3",
            "b 4 d d",
            "b a d",
            "badd1",
            "",
        ] {
            assert!(!matches(&list, text), "{text}");
        }
    }

    #[test]
    fn number_of_lookups_does_not_grow_with_the_word() {
        let list = &*BUILT_IN;
        for word in ["ab".repeat(30_000), "キロメートル".repeat(3_500)] {
            let beginnings: Vec<&str> = list.beginnings(&word).collect();
            assert!(beginnings.len() <= list.prefixes.longest, "{}", beginnings.len());
            assert!(beginnings.iter().all(|beginning| beginning.len() <= list.prefixes.longest));
            assert!(list.exact.get(&word).is_none());
        }
        assert!((8..64).contains(&list.prefixes.longest) && (8..64).contains(&list.exact.longest));
    }

    #[test]
    fn built_in_lists_have_entries_of_each_language() {
        let list = &*BUILT_IN;
        let phrases = || list.exact.phrases.values().chain(list.prefixes.phrases.values()).flatten();
        assert!(phrases().count() > 80, "{}", phrases().count());
        let letters = |phrase: &Vec<Entry>| phrase.iter().flat_map(|word| &word.runs.counts).sum::<usize>();
        assert!(
            phrases().all(|phrase| letters(phrase) > 2),
            "entries of one or two letters would match ordinary words"
        );
    }

    proptest! {
        #[test]
        fn no_text_causes_panic(text in any::<String>()) {
            matches(&BUILT_IN, &text);
        }

        #[test]
        fn word_matches_in_any_context_and_case(before in "[b-z]{0,8}", after in "[b-z]{0,8}", upper in any::<bool>()) {
            let list = WordList::parse(&["zzyzx"]);
            let word = if upper { "ZZYZX" } else { "zzyzx" };
            let text = format!("{before} {word} {after}");
            prop_assert!(matches(&list, &text));
        }

        #[test]
        fn repeated_letters_still_match(counts in proptest::collection::vec(1_usize..5, 4)) {
            let list = WordList::parse(&["word"]);
            let text: String = "word".chars().zip(&counts).map(|(letter, &count)| letter.to_string().repeat(count)).collect();
            prop_assert!(matches(&list, &text));
        }
    }
}
