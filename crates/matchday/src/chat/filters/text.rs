//! Forms of a text in which filters search; no I/O.

use html5gum::{
    Span, Tokenizer,
    emitters::callback::{CallbackEmitter, CallbackEvent},
};
use unicode_normalization::{UnicodeNormalization as _, char::is_combining_mark};

/// Text in Unicode NFKC without invisible characters. Patterns of operators are applied to this form.
pub(super) fn normalised(text: &str) -> String {
    beginning(text, usize::MAX).0
}

/// The first `most` letters of the normalised text, and whether it has more. NFKC makes up to 18 letters of one, so the
/// length of a message does not limit the length of this form.
pub(super) fn beginning(text: &str, most: usize) -> (String, bool) {
    if text.bytes().all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~')) {
        let end = most.min(text.len());
        return (text[..end].to_owned(), end < text.len());
    }
    // Invisible characters are removed first: they would keep letters and marks from composing.
    let mut letters =
        text.chars().filter(|&letter| !is_invisible(letter)).nfkc().filter(|&letter| !is_invisible(letter));
    let beginning = letters.by_ref().take(most).collect();
    (beginning, letters.next().is_some())
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

/// Elements that separate words.
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
    REPLY,
];
/// Quoted message before a reply. Clients leave it out, with elements in it.
const REPLY: &str = "mx-reply";
/// Elements whose text some clients leave out, and others show.
const UNSHOWN: [&str; 13] = [
    REPLY,
    "script",
    "style",
    "textarea",
    "option",
    "noscript",
    "title",
    "template",
    "iframe",
    "xmp",
    "noembed",
    "noframes",
    "plaintext",
];
/// Attributes whose values a client shows or opens.
const SHOWN_ATTRIBUTES: [&str; 5] = ["href", "src", "alt", "title", "data-mx-maths"];

/// Texts that clients may show of an HTML message, each followed by the addresses of its links. Tags within a word do not
/// separate it. Clients differ in elements that Matrix does not allow: some leave out their text, and some read tags in it.
/// Each way gives a text, and equal ones are returned once.
pub(super) fn texts_of_html(html: &str) -> Vec<String> {
    let as_browsers = HtmlText::read(html, true);
    let has_unshown = as_browsers.has_unshown;
    let mut texts = Vec::from(as_browsers.texts());
    if has_unshown {
        texts.extend(HtmlText::read(html, false).texts());
    }
    // At most four.
    let mut different: Vec<String> = Vec::new();
    for text in texts {
        if !different.contains(&text) {
            different.push(text);
        }
    }
    different
}

/// Text of an HTML message.
#[derive(Debug, Default)]
struct HtmlText {
    all: String,
    /// Without elements whose text some clients leave out.
    shown: String,
    links: String,
    /// Name of the element that is left out, and the number of open elements of this name.
    unshown: Option<(Vec<u8>, usize)>,
    has_unshown: bool,
    is_attribute_shown: bool,
}

impl HtmlText {
    /// Tokenizes as browsers do, in linear time. `switches` is false to read tags also in elements that contain text only.
    fn read(html: &str, switches: bool) -> Self {
        let mut text = Self::default();
        let mut emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, _: Span<()>| -> Option<()> {
            text.take(&event);
            None
        });
        emitter.naively_switch_states(switches);
        for Ok(()) in Tokenizer::new_with_emitter(html, emitter) {}
        text
    }

    fn texts(&self) -> [String; 2] {
        [&self.shown, &self.all].map(|text| format!("{text}{}", self.links).trim().to_owned())
    }

    fn take(&mut self, event: &CallbackEvent<'_>) {
        match event {
            CallbackEvent::String { value } => self.push(&String::from_utf8_lossy(value)),
            CallbackEvent::OpenStartTag { name } => {
                match &mut self.unshown {
                    // Clients end other elements at the first end tag.
                    Some((open, number)) if open.as_slice() == *name => {
                        *number += usize::from(*name == REPLY.as_bytes());
                    }
                    None if is_one_of(&UNSHOWN, name) => self.unshown = Some((name.to_vec(), 1)),
                    _ => {}
                }
                self.has_unshown |= self.unshown.is_some();
                self.separate(name);
            }
            CallbackEvent::AttributeName { name } => self.is_attribute_shown = is_one_of(&SHOWN_ATTRIBUTES, name),
            CallbackEvent::AttributeValue { value } if self.is_attribute_shown => {
                self.links.push('\n');
                self.links.push_str(&String::from_utf8_lossy(value));
            }
            CallbackEvent::EndTag { name } => {
                self.separate(name);
                if let Some((open, number)) = &mut self.unshown
                    && open.as_slice() == *name
                {
                    *number -= 1;
                    if *number == 0 {
                        self.unshown = None;
                    }
                }
            }
            _ => {}
        }
    }

    fn push(&mut self, part: &str) {
        self.all.push_str(part);
        if self.unshown.is_none() {
            self.shown.push_str(part);
        }
    }

    fn separate(&mut self, name: &[u8]) {
        if is_one_of(&BLOCKS, name) {
            self.push("\n");
        }
    }
}

fn is_one_of(names: &[&str], name: &[u8]) -> bool {
    names.iter().any(|one| one.as_bytes() == name)
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
            ("shown <unclosed", "shown"),
        ] {
            assert_eq!(texts_of_html(html), [expected], "{html}");
        }
    }

    #[test]
    fn hidden_spellings_in_html_are_read_as_browsers_show_them() {
        for html in [
            r#"b<b title=">q">a</b>d"#,
            "b<b title='>q'>a</b>d",
            "b<b title=a<b>a</b>d",
            "b<!-- >q-->ad",
            "b<!-->ad",
            "b<!q>ad",
            "b<?q>ad",
            "b</ q>ad",
            "b<![CDATA[q]]>ad",
            "b&shy;ad",
            "b&zwj;a&zwnj;d",
            "b&#8203;ad",
            "b&#97 d",
            "b&#97d",
            "b&#000000000097;d",
            "b&#x000000000061;d",
            "&#98;&#97;&#100;",
            "b\0ad",
            "b<style>q</style>ad",
            "b<script>'</b>'</script>ad",
            "b<svg><style></svg>ad",
            "b<mx-reply><mx-reply>q</mx-reply>q</mx-reply>ad",
            "b<textarea>ad",
        ] {
            let forms = texts_of_html(html).into_iter().map(|text| normalised(&text).replace(char::is_whitespace, ""));
            let forms: Vec<String> = forms.collect();
            assert!(forms.iter().any(|form| form.starts_with("bad")), "{html}: {forms:?}");
            assert!(forms.len() <= 4, "{html}: {forms:?}");
        }
    }

    #[test]
    fn beginning_counts_letters_after_normalisation() {
        for (text, most, expected) in [
            ("goal", 4, ("goal", false)),
            ("goal", 3, ("goa", true)),
            ("g\u{200b}ó\u{200b}l", 3, ("gól", false)),
            ("\u{fdfa}", 17, ("صلى الله عليه وسل", true)),
        ] {
            assert_eq!(beginning(text, most), (expected.0.to_owned(), expected.1), "{text}");
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
            texts_of_html(&text);
        }

        #[test]
        fn case_does_not_change_skeleton(text in "[a-zA-Zа-яА-Яà-öø-ÿ ]{0,40}") {
            prop_assert_eq!(skeleton(&normalised(&text.to_uppercase())), skeleton(&normalised(&text.to_lowercase())));
        }
    }
}
