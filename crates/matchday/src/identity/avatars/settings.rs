//! The `avatars` section of the settings.

use std::path::PathBuf;

use platform::{
    Environment, section,
    settings::{Conditions, Setting},
};
use url::Url;

section! {
    /// Pictures of users.
    avatars: Settings {
        /// Object store of the images: `file:///directory`, `s3://bucket/prefix`, or `none` to turn uploads off. For `s3`,
        /// the usual variables (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT`, …) have
        /// the credentials. All processes need the same store. Empty: a temporary directory in development, else none.
        store: Option<StoreUrl> = "",
        /// Base of avatar URLs, if a CDN serves them. Without it, `http.public_url` is the base.
        public_url: Option<Url> = "",
        /// Number of images that one process decodes at the same time. Each takes up to 128 MiB of memory.
        at_once: usize = "2",
    }
}

/// Location of an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    None,
    Directory(PathBuf),
    S3(Url),
}

impl Setting for StoreUrl {
    const EXPECTED: &'static str = "file:///directory, s3://bucket/prefix or none";

    fn parse(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self::None);
        }
        let url = Url::parse(text).ok().filter(|url| url.query().is_none() && url.fragment().is_none())?;
        match url.scheme() {
            "file" => url.to_file_path().ok().filter(|path| path.parent().is_some()).map(Self::Directory),
            "s3" => url.has_host().then_some(Self::S3(url)),
            _ => None,
        }
    }

    fn show(&self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::Directory(path) => Url::from_file_path(path).map_or_else(|()| String::new(), String::from),
            Self::S3(url) => url.to_string(),
        }
    }
}

impl Settings {
    /// Conditions that the types cannot express.
    pub fn conditions(&self) -> Conditions {
        vec![
            (self.at_once > 0, "avatars.at_once is 0: no upload could be processed".to_owned()),
            (
                self.public_url.as_ref().is_none_or(|url| matches!(url.scheme(), "http" | "https")),
                "avatars.public_url is not an http or https URL".to_owned(),
            ),
        ]
    }

    /// The object store of this environment.
    pub fn store(&self, env: Environment) -> StoreUrl {
        match &self.store {
            Some(store) => store.clone(),
            None if env.is_development() => StoreUrl::Directory(std::env::temp_dir().join("matchday-avatars")),
            None => StoreUrl::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_is_directory_bucket_or_none() {
        for text in ["none", "file:///var/lib/matchday/avatars", "s3://bucket", "s3://bucket/prefix/of/images"] {
            let store = StoreUrl::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(StoreUrl::parse(&store.show()), Some(store), "{text}");
        }
        for text in ["/var/lib", "file:///", "http://bucket", "s3://", "gs://bucket", "s3://bucket?region=x", "off"] {
            assert_eq!(StoreUrl::parse(text), None, "{text}");
        }
    }

    #[test]
    fn default_store_exists_in_development_only() {
        let settings = Settings { store: None, public_url: None, at_once: 2 };
        assert!(matches!(settings.store(Environment::Testing), StoreUrl::Directory(_)));
        assert!(matches!(settings.store(Environment::Local), StoreUrl::Directory(_)));
        assert_eq!(settings.store(Environment::Staging), StoreUrl::None);
        assert_eq!(settings.store(Environment::Production), StoreUrl::None);
    }
}
