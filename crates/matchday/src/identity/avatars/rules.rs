//! Content types, sizes and names; no I/O.

use std::str::FromStr;

use http::HeaderValue;
use platform::random::{self, Random};
use utoipa::ToSchema;

use super::AvatarKey;

/// Maximum size of an upload in bytes.
pub(super) const MAX_BYTES: usize = 2 * 1024 * 1024;

/// Side of a picture in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
pub enum Size {
    Large,
    Small,
}

impl Size {
    pub const ALL: [Self; 2] = [Self::Large, Self::Small];

    pub fn pixels(self) -> u32 {
        match self {
            Self::Large => ::avatars::LARGE,
            Self::Small => ::avatars::SMALL,
        }
    }
}

impl FromStr for Size {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "512" => Ok(Self::Large),
            "128" => Ok(Self::Small),
            _ => Err(()),
        }
    }
}

impl AvatarKey {
    pub(super) fn make(random: &dyn Random) -> Self {
        Self(hex::encode(random::bytes::<16>(random)))
    }

    /// Reads the file name at the end of an avatar's URL.
    pub(super) fn from_file_name(name: &str) -> Option<Self> {
        let key = name.strip_suffix(".jpg")?;
        let is_key = key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        is_key.then(|| Self(key.to_owned()))
    }
}

/// Whether the service accepts uploads with this `Content-Type`.
pub(super) fn is_accepted(content_type: Option<&HeaderValue>) -> bool {
    let name = content_type.and_then(|value| value.to_str().ok()).and_then(|text| text.split(';').next());
    name.is_some_and(|name| {
        let name = name.trim();
        ["image/jpeg", "image/png", "image/webp"].iter().any(|accepted| name.eq_ignore_ascii_case(accepted))
    })
}

#[cfg(test)]
mod tests {
    use platform::testing::SeededRandom;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn content_types_are_compared_without_case_and_parameters() {
        let accepted = |text: &str| is_accepted(Some(&HeaderValue::try_from(text).expect("a header")));
        assert!(accepted("image/jpeg") && accepted("Image/PNG") && accepted("image/webp; q=1"));
        for other in ["image/gif", "image/jpg", "text/plain", "image/png2", "", ";image/png"] {
            assert!(!accepted(other), "{other}");
        }
        assert!(!is_accepted(None));
    }

    #[test]
    fn made_keys_differ_and_are_read_back() {
        let random = SeededRandom::new(1);
        let (first, second) = (AvatarKey::make(&random), AvatarKey::make(&random));
        assert_ne!(first, second);
        assert_eq!(AvatarKey::from_file_name(&format!("{}.jpg", first.0)), Some(first));
    }

    proptest! {
        #[test]
        fn only_keys_are_read_from_file_names(name in "[a-z0-9./%A-Z_-]{0,40}") {
            if let Some(AvatarKey(key)) = AvatarKey::from_file_name(&name) {
                prop_assert!(key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_alphanumeric()));
            }
        }
    }
}
