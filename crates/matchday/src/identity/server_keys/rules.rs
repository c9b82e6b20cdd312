//! Format of keys, names and networks; no I/O.
//!
//! A key has the form `mk_<live|test>_<key id in base 36>_<256 random bits in base 62>_<checksum>`, with the digits and
//! the checksum of session tokens.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use platform::Environment;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use web::ids::ServerKeyId;

use crate::identity::token_text::{SECRET_LENGTH, base36, base62, checksum};

/// Number of characters of the random part that the prefix shows.
const SHOWN: usize = 4;

/// The hash under which the text of a key is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyHash(pub(super) [u8; 32]);

impl KeyHash {
    pub(super) fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

/// The text of a new key, and what is stored of it.
pub(super) struct NewText {
    pub(super) text: SecretString,
    pub(super) prefix: String,
    pub(super) hash: KeyHash,
}

/// Makes the text of a key from 256 random bits.
pub(super) fn make_text(env: Environment, id: ServerKeyId, random: [u8; 32]) -> NewText {
    let kind = if env.is_development() { "test" } else { "live" };
    let (owner, secret) = (base36(id.0.unsigned_abs()), base62(&random, SECRET_LENGTH));
    let start = format!("mk_{kind}_{owner}_{secret}");
    let shown: String = secret.chars().take(SHOWN).collect();
    let text = format!("{start}_{}", checksum(&start));
    let hash = KeyHash::of(&text);
    NewText { text: SecretString::from(text), prefix: format!("mk_{kind}_{owner}_{shown}"), hash }
}

/// Returns the id in a well-formed text.
pub(crate) fn read_text(text: &str) -> Option<ServerKeyId> {
    let (start, sum) = text.rsplit_once('_')?;
    if text.len() > 100 || checksum(start) != sum {
        return None;
    }
    let rest = start.strip_prefix("mk_live_").or_else(|| start.strip_prefix("mk_test_"))?;
    let (id, secret) = rest.split_once('_')?;
    if secret.len() != SECRET_LENGTH {
        return None;
    }
    i64::from_str_radix(id, 36)
        .ok()
        .filter(|&number| number >= 1 && base36(number.unsigned_abs()) == id)
        .map(ServerKeyId)
}

/// Name of a key: 1 to 100 characters on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyName(String);

impl KeyName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let fits = (1..=100).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        fits.then(|| Self(text.to_owned())).ok_or("must have 1 to 100 characters on one line")
    }
}

/// A network from which a key may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl FromStr for Network {
    type Err = &'static str;

    /// Parses CIDR notation. A single address is a network of one address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network
            .map(|network| Self(network.trunc()))
            .map_err(|_| "must be a network like 203.0.113.0/24 or 2001:db8::/32")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secrecy::ExposeSecret as _;

    use super::*;

    fn make(id: i64, random: [u8; 32]) -> String {
        make_text(Environment::Testing, ServerKeyId(id), random).text.expose_secret().to_owned()
    }

    #[test]
    fn key_has_the_documented_format() {
        let made = make_text(Environment::Production, ServerKeyId(1_295), [0xff; 32]);
        let text = made.text.expose_secret();
        assert!(text.starts_with("mk_live_zz_"), "1,295 is zz in base 36");
        assert_eq!(text.len(), 8 + 2 + 1 + 43 + 1 + 6);
        assert_eq!(made.prefix, text[..15]);
        assert!(make(1, [0; 32]).starts_with("mk_test_1_0000"));
    }

    #[test]
    fn networks_are_in_cidr_notation() {
        let network = |text: &str| text.parse::<Network>().map(|network| network.to_string());
        assert_eq!(network("10.1.2.3/8").as_deref(), Ok("10.0.0.0/8"));
        assert_eq!(network("::/0").as_deref(), Ok("::/0"));
        assert_eq!(network("203.0.113.7").as_deref(), Ok("203.0.113.7/32"));
        assert!(network("everywhere").is_err() && network("10.0.0.0/33").is_err() && network("").is_err());
        let within = |text: &str, address: &str| {
            text.parse::<Network>().expect("a network").contains(address.parse().expect("an address"))
        };
        assert!(within("10.0.0.0/8", "10.200.0.1") && !within("10.0.0.0/8", "11.0.0.1"));
        assert!(within("10.0.0.0/8", "::ffff:10.0.0.1"), "a mapped address is an IPv4 address");
        assert!(within("2001:db8::/32", "2001:db8:1::1") && !within("0.0.0.0/0", "2001:db8::1"));
    }

    #[test]
    fn names_have_one_to_a_hundred_characters() {
        let is_name = |text: &str| text.parse::<KeyName>().is_ok();
        assert!(is_name("shop") && is_name(&"é".repeat(100)));
        assert!(!is_name("") && !is_name("  ") && !is_name(&"é".repeat(101)) && !is_name("two\nlines"));
    }

    proptest! {
        #[test]
        fn made_key_reads_back(id in 1_i64.., random: [u8; 32]) {
            prop_assert_eq!(read_text(&make(id, random)), Some(ServerKeyId(id)));
        }

        #[test]
        fn changed_key_is_refused(id in 1_i64.., random: [u8; 32], at in 0_usize..60, letter in "[0-9A-Za-z_]") {
            let text = make(id, random);
            let at = at % text.len();
            let mut changed = text.clone();
            changed.replace_range(at..=at, &letter);
            prop_assert!(changed == text || read_text(&changed).is_none());
        }

        #[test]
        fn arbitrary_text_is_not_a_key(text in ".*") {
            prop_assert_eq!(read_text(&text), None);
            prop_assert_eq!(read_text(&format!("mk_test_{text}")), None);
        }
    }
}
