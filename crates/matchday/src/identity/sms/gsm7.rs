//! The seven-bit alphabet of text messages (GSM 03.38). A message in this alphabet holds 160 characters. A single
//! character outside it switches the whole message to UCS-2, which holds 70. Longer texts are billed as several
//! messages.

/// Basic table; each character takes one septet. `á`, `í`, `ó`, `ú`, `ã`, `õ` and `ç` are not among its accented
/// letters.
const BASIC: &str = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?\
                     ¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";
/// Extension table; each character takes two septets.
const EXTENDED: &str = "\u{c}^{}\\[~]|€";

/// Number of septets of the text, or `None` if a character is outside the alphabet.
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

/// Whether the text fits into a single message.
pub fn is_one_message(text: &str) -> bool {
    septets(text).map_or_else(|| text.encode_utf16().count() <= 70, |septets| septets <= 160)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_has_128_and_10_characters() {
        // The 128th code is the escape to the extension table.
        assert_eq!(BASIC.chars().count(), 127);
        assert_eq!(EXTENDED.chars().count(), 10);
    }

    #[test]
    fn extended_characters_count_twice() {
        assert_eq!(septets("Código"), None);
        assert_eq!(septets("ninguém"), Some(7));
        assert_eq!(septets("[1] 5€"), Some(9));
        assert_eq!(septets("کد"), None);
        assert_eq!(septets(""), Some(0));
    }

    #[test]
    fn message_holds_160_septets_or_70_units() {
        assert!(is_one_message(&"a".repeat(160)));
        assert!(!is_one_message(&"a".repeat(161)));
        assert!(is_one_message(&"ی".repeat(70)));
        assert!(!is_one_message(&"ی".repeat(71)));
        assert!(!is_one_message(&"⚽\u{1f600}".repeat(24)));
    }
}
