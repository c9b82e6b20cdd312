//! The seven-bit alphabet of text messages (GSM 03.38). A message within it has room for 160 characters; a single
//! character outside of it makes the whole message UCS-2, with room for 70. Longer ones are paid as several.

/// The basic table, one septet each. Of accented letters it has these only: `á`, `í`, `ó`, `ú`, `ã`, `õ` and `ç` are
/// not among them.
const BASIC: &str = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?\
                     ¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";
/// The extension table, two septets each.
const EXTENDED: &str = "\u{c}^{}\\[~]|€";

/// How many septets the text takes, if it is within the alphabet.
pub fn septets(text: &str) -> Option<usize> {
    text.chars()
        .map(|character| {
            if BASIC.contains(character) {
                Some(1)
            } else if EXTENDED.contains(character) {
                Some(2)
            } else {
                None
            }
        })
        .sum()
}

/// Whether the text goes into a single message.
pub fn is_one_message(text: &str) -> bool {
    septets(text).map_or_else(|| text.encode_utf16().count() <= 70, |septets| septets <= 160)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_has_128_and_10_characters() {
        // One of the 128 is the escape to the extension table.
        assert_eq!(BASIC.chars().count(), 127);
        assert_eq!(EXTENDED.chars().count(), 10);
    }

    #[test]
    fn extended_characters_count_twice_and_others_not_at_all() {
        assert_eq!(septets("Código"), None);
        assert_eq!(septets("ninguém"), Some(7));
        assert_eq!(septets("[1] 5€"), Some(9));
        assert_eq!(septets("کد"), None);
        assert_eq!(septets(""), Some(0));
    }

    #[test]
    fn one_message_has_160_septets_or_70_units() {
        assert!(is_one_message(&"a".repeat(160)));
        assert!(!is_one_message(&"a".repeat(161)));
        assert!(is_one_message(&"ی".repeat(70)));
        assert!(!is_one_message(&"ی".repeat(71)));
        assert!(!is_one_message(&"⚽\u{1f600}".repeat(24)));
    }
}
