//! URLs of avatars.

use std::sync::Arc;

use url::Url;

use super::settings::Settings;

/// Random name of an avatar's images: 32 lower-case letters and digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, sqlx::Type)]
#[sqlx(transparent)]
pub struct AvatarKey(pub String);

/// Makes the URLs of avatars. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AvatarUrls {
    /// Without a slash at the end. Empty without a configured base; the URLs are then paths.
    base: Arc<str>,
}

impl AvatarUrls {
    pub fn new(settings: &Settings, service: Option<&Url>) -> Self {
        let base = settings.public_url.as_ref().or(service).map_or("", Url::as_str);
        Self { base: base.trim_end_matches('/').into() }
    }

    /// Returns the `avatar_url` of a user with this avatar.
    pub fn of(&self, avatar: Option<&AvatarKey>) -> Option<String> {
        avatar.map(|AvatarKey(key)| format!("{}/api/avatars/{key}.jpg", self.base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_is_cdn_else_service_else_empty() {
        let url = |text: &str| Some(Url::parse(text).expect("a URL"));
        let settings = |public_url| Settings { store: None, public_url, at_once: 1 };
        let key = AvatarKey("0".repeat(32));
        let made =
            |cdn: Option<Url>, service: Option<Url>| AvatarUrls::new(&settings(cdn), service.as_ref()).of(Some(&key));
        let path = format!("/api/avatars/{}.jpg", key.0);
        assert_eq!(made(None, None), Some(path.clone()));
        assert_eq!(made(None, url("https://md.example.org")), Some(format!("https://md.example.org{path}")));
        let both = made(url("https://cdn.example.org/md/"), url("https://md.example.org"));
        assert_eq!(both, Some(format!("https://cdn.example.org/md{path}")));
        assert_eq!(AvatarUrls::new(&settings(None), None).of(None), None);
    }
}
