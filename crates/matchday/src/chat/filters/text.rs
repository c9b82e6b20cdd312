//! Forms of a text in which filters search; no I/O.

use unicode_normalization::{UnicodeNormalization as _, char::is_combining_mark};

/// Text in Unicode NFKC without invisible characters. Patterns of operators are applied to this form.
pub(super) fn normalised(text: &str) -> String {
    if text.bytes().all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~')) {
        return text.to_owned();
    }
    // Invisible characters are removed first: they would keep letters and marks from composing.
    text.chars().filter(|&letter| !is_invisible(letter)).nfkc().filter(|&letter| !is_invisible(letter)).collect()
}

/// Whether a character takes no space and changes no letter. Line feed and tab separate words.
fn is_invisible(letter: char) -> bool {
    (letter.is_control() && letter != '\n' && letter != '\t')
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Lower-case letters without accents, where letters that look alike are the same letter. Takes a normalised text.
pub(super) fn skeleton(normalised: &str) -> String {
    if normalised.is_ascii() {
        return normalised.to_ascii_lowercase();
    }
    let letters = normalised.nfkd().filter(|&letter| !is_combining_mark(letter) && letter != '\u{640}');
    let mut skeleton = String::with_capacity(normalised.len());
    for letter in letters.flat_map(char::to_lowercase) {
        match look_alike(letter) {
            Some(latin) => skeleton.push_str(latin),
            None if is_combining_mark(letter) => {}
            None => skeleton.push(letter),
        }
    }
    skeleton
}

/// Letters that a reader takes for Latin ones, and variants of Arabic letters that Persian readers do not distinguish.
/// NFKC has replaced fullwidth, mathematical and circled letters already.
fn look_alike(letter: char) -> Option<&'static str> {
    const LATIN: [&str; 26] = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u", "v",
        "w", "x", "y", "z",
    ];
    let nth = |first: u32| usize::try_from(u32::from(letter) - first).ok().and_then(|at| LATIN.get(at).copied());
    Some(match letter {
        // Cyrillic.
        'а' | 'α' | 'ɑ' | 'ᴀ' => "a",
        'в' | 'ь' | 'β' | 'ʙ' => "b",
        'с' | 'ϲ' | 'ᴄ' => "c",
        'ԁ' | 'đ' | 'ð' | 'ᴅ' => "d",
        'е' | 'є' | 'ε' | 'ə' | 'ᴇ' => "e",
        'ƒ' | 'ғ' => "f",
        'ɡ' | 'ɢ' => "g",
        'н' | 'һ' | 'ħ' | 'ʜ' => "h",
        'і' | 'ι' | 'ı' | 'ɩ' | 'ɪ' | 'ӏ' => "i",
        'ј' | 'ᴊ' => "j",
        'к' | 'κ' | 'ᴋ' => "k",
        'ł' | 'ʟ' => "l",
        'м' | 'ᴍ' => "m",
        'п' | 'η' | 'ɴ' => "n",
        'о' | 'ο' | 'σ' | 'ς' | 'ø' | 'ө' | 'ᴏ' => "o",
        'р' | 'ρ' | 'ᴘ' => "p",
        'ԛ' => "q",
        'г' | 'ʀ' => "r",
        'ѕ' => "s",
        'т' | 'τ' | 'ŧ' | 'ᴛ' => "t",
        'υ' | 'μ' | 'ᴜ' => "u",
        'ν' | 'ѵ' | 'ᴠ' => "v",
        'ԝ' | 'ω' | 'ᴡ' => "w",
        'х' | 'χ' => "x",
        'у' | 'γ' | 'ʏ' => "y",
        'ᴢ' => "z",
        'æ' => "ae",
        'œ' => "oe",
        'ß' => "ss",
        // Persian.
        'ي' | 'ى' => "ی",
        'ك' => "ک",
        'ة' | 'ە' | 'ہ' => "ه",
        // Negative circled and negative squared letters, which have no compatibility form.
        '\u{1f150}'..='\u{1f169}' => return nth(0x1f150),
        '\u{1f170}'..='\u{1f189}' => return nth(0x1f170),
        _ => return None,
    })
}

/// Form in which repeated messages are equal: without spaces, punctuation and lengthened letters. Digits stay, so that
/// two scores differ. A text without letters and digits keeps its characters.
pub(super) fn compressed(skeleton: &str) -> String {
    let mut letters = skeleton.chars().filter(|letter| letter.is_alphanumeric()).peekable();
    if letters.peek().is_none() {
        return skeleton.split_whitespace().collect();
    }
    let mut compressed = String::with_capacity(skeleton.len());
    let mut last = None;
    for letter in letters {
        if last != Some(letter) || letter.is_numeric() {
            compressed.push(letter);
        }
        last = Some(letter);
    }
    compressed
}

/// Visible text of an HTML message, followed by the addresses of its links. Tags within a word do not separate it.
pub(super) fn text_of_html(html: &str) -> String {
    const BLOCKS: [&str; 20] = [
        "p",
        "br",
        "div",
        "li",
        "ul",
        "ol",
        "tr",
        "td",
        "th",
        "table",
        "blockquote",
        "pre",
        "hr",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "mx-reply",
    ];
    let (mut text, mut links, mut rest) = (String::with_capacity(html.len()), String::new(), html);
    while let Some(open) = rest.find('<') {
        text.push_str(&rest[..open]);
        let after = &rest[open + 1..];
        // A single `<` is not a tag.
        let is_tag = after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '!');
        let Some(close) = after.find('>').filter(|_| is_tag) else {
            text.push('<');
            rest = after;
            continue;
        };
        let tag = &after[..close];
        let name = tag.trim_start_matches('/').split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next();
        if BLOCKS.contains(&name.unwrap_or_default().to_ascii_lowercase().as_str()) {
            text.push('\n');
        }
        for attribute in ["href=", "src=", "alt=", "title="] {
            if let Some(value) = attribute_of(tag, attribute) {
                links.push('\n');
                links.push_str(value);
            }
        }
        rest = &after[close + 1..];
    }
    text.push_str(rest);
    text.push_str(&links);
    decoded(&text).trim().to_owned()
}

fn attribute_of<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let at = tag.to_ascii_lowercase().find(name)? + name.len();
    let value = tag.get(at..)?;
    let quote = value.chars().next().filter(|quote| ['"', '\''].contains(quote));
    match quote {
        Some(quote) => value[1..].split(quote).next(),
        None => value.split_whitespace().next(),
    }
}

/// Replaces the character references that HTML messages use.
fn decoded(text: &str) -> String {
    let (mut decoded, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('&') {
        decoded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let reference = after.split_once(';').filter(|(name, _)| name.len() <= 10);
        let referenced = reference.and_then(|(name, left)| Some((character(name)?, left)));
        let (letter, left) = referenced.unwrap_or(('&', after));
        decoded.push(letter);
        rest = left;
    }
    decoded.push_str(rest);
    decoded
}

fn character(name: &str) -> Option<char> {
    let number = match name.strip_prefix('#') {
        Some(number) => match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        },
        None => {
            return match name {
                "amp" => Some('&'),
                "lt" => Some('<'),
                "gt" => Some('>'),
                "quot" => Some('"'),
                "apos" => Some('\''),
                "nbsp" => Some(' '),
                _ => None,
            };
        }
    };
    number.ok().and_then(char::from_u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invisible_characters_and_variants_are_normalised() {
        for (text, expected) in [
            ("goal", "goal"),
            ("g\u{200b}o\u{200d}a\u{2060}l", "goal"),
            ("\u{feff}go\u{ad}al\u{e0041}", "goal"),
            ("ｇｏａｌ", "goal"),
            ("𝓰𝓸𝓪𝓵 𝗴𝗼𝗮𝗹", "goal goal"),
            ("ⓖⓞⓐⓛ", "goal"),
            ("go\u{7}al\nkick\toff", "goal\nkick\toff"),
            ("e\u{200b}\u{301}", "é"),
            ("می\u{200c}روم", "میروم"),
        ] {
            assert_eq!(normalised(text), expected, "{text:?}");
        }
    }

    #[test]
    fn similar_letters_have_one_skeleton() {
        for text in ["goal", "GOAL", "gоаl", "ɢᴏᴀʟ", "gøàl", "🅖🅞🅐🅛", "G\u{301}OAL"] {
            assert_eq!(skeleton(&normalised(text)), "goal", "{text}");
        }
        assert_eq!(skeleton(&normalised("كي")), skeleton(&normalised("کی")));
        assert_eq!(skeleton(&normalised("مـــادر")), "مادر");
    }

    #[test]
    fn repeated_texts_are_equal_and_scores_differ() {
        let form = |text: &str| compressed(&skeleton(&normalised(text)));
        assert_eq!(form("Goooool!!!"), form("gol"));
        assert_eq!(form("Buy now"), form("b.u.y - NOW"));
        assert_ne!(form("Message 1"), form("Message 11"));
        assert_ne!(form("2-1"), form("2-2"));
        assert_eq!(form("⚽ ⚽"), "⚽⚽");
    }

    #[test]
    fn html_gives_text_and_addresses() {
        for (html, expected) in [
            ("b<b>a</b>d", "bad"),
            ("one<br>two<p>three</p>", "one\ntwo\nthree"),
            ("1 < 2 &amp; 3 &gt; 2", "1 < 2 & 3 > 2"),
            ("b&#97;d &#x62;ad &unknown; &", "bad bad &unknown; &"),
            (r#"<a href="https://example.org/x">here</a>"#, "here\nhttps://example.org/x"),
            ("<a HREF='https://example.org'>", "https://example.org"),
            ("<unclosed", "<unclosed"),
        ] {
            assert_eq!(text_of_html(html), expected, "{html}");
        }
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(text in any::<String>()) {
            let once = normalised(&text);
            prop_assert_eq!(normalised(&once), once);
        }

        #[test]
        fn inserted_invisible_characters_have_no_effect(text in "[ -~àéñçãکسیمف]{0,40}", at in 0_usize..40, which in 0_usize..5) {
            let invisible = ['\u{200b}', '\u{200c}', '\u{2060}', '\u{feff}', '\u{ad}'][which];
            let (before, after): (String, String) = (text.chars().take(at).collect(), text.chars().skip(at).collect());
            prop_assert_eq!(normalised(&format!("{before}{invisible}{after}")), normalised(&text));
        }

        #[test]
        fn no_text_causes_panic(text in any::<String>()) {
            let skeleton = skeleton(&normalised(&text));
            prop_assert!(!compressed(&skeleton).contains(char::is_whitespace));
            text_of_html(&text);
        }

        #[test]
        fn case_does_not_change_skeleton(text in "[a-zA-Zа-яА-Яà-öø-ÿ ]{0,40}") {
            prop_assert_eq!(skeleton(&normalised(&text.to_uppercase())), skeleton(&normalised(&text.to_lowercase())));
        }
    }
}
