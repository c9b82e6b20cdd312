//! Users as other users see them, and how a path names a user. No I/O.

use std::{convert::Infallible, str::FromStr};

use web::ids::UserId;

use crate::identity::{avatars::AvatarKey, usernames::Username};

/// A user as other users see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    pub id: UserId,
    pub username: String,
    pub name: Option<String>,
    /// Whether other users see the name.
    pub shows_name: bool,
    pub avatar: Option<AvatarKey>,
}

impl Person {
    /// Removes the name if the viewer must not see it.
    #[must_use]
    pub fn shown_to(self, viewer: UserId) -> Self {
        let name = self.name.filter(|_| self.shows_name || self.id == viewer);
        Self { name, ..self }
    }

    /// Returns the name in texts for other users: the username, if the user hides the name or has none.
    pub fn called(&self) -> &str {
        self.name.as_deref().filter(|_| self.shows_name).unwrap_or(&self.username)
    }
}

/// A user as a path names them. Parsing never fails: a text that can name no user is treated like an unknown user, so the
/// responses are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserSegment {
    Id(UserId),
    Name(Username),
    Unknown,
}

impl FromStr for UserSegment {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        // An id has one form, so a profile has one URL by id.
        let id = text.parse().ok().filter(|_| !text.starts_with('0')).map(Self::Id);
        Ok(id.or_else(|| Username::parse(text).map(Self::Name)).unwrap_or(Self::Unknown))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> UserSegment {
        text.parse().unwrap_or_else(|never| match never {})
    }

    #[test]
    fn segment_is_an_id_or_a_username_in_any_case() {
        let name = |text: &str| Username::parse(text).map(UserSegment::Name).expect("a username");
        for (text, expected) in [
            ("12", UserSegment::Id(UserId(12))),
            ("9223372036854775807", UserSegment::Id(UserId(i64::MAX))),
            ("9223372036854775808", UserSegment::Unknown),
            ("012", UserSegment::Unknown),
            ("0", UserSegment::Unknown),
            ("-1", UserSegment::Unknown),
            ("+12", UserSegment::Unknown),
            ("", UserSegment::Unknown),
            ("a", UserSegment::Unknown),
            ("a b", UserSegment::Unknown),
            ("ada\0", UserSegment::Unknown),
            ("deleted-12", UserSegment::Unknown),
            ("ada_obi", name("ada_obi")),
            ("Ada_OBI", name("ada_obi")),
            ("12a", name("12a")),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn hidden_name_is_shown_only_to_its_owner() {
        let person = |shows_name| Person {
            id: UserId(1),
            username: "ada".to_owned(),
            name: Some("Ada".to_owned()),
            shows_name,
            avatar: None,
        };
        for (shows_name, viewer, is_shown) in [(true, 1, true), (true, 2, true), (false, 1, true), (false, 2, false)] {
            let shown = person(shows_name).shown_to(UserId(viewer));
            assert_eq!(shown.name.is_some(), is_shown, "{shows_name} {viewer}");
            assert_eq!(shown.username, "ada");
        }
    }

    proptest! {
        #[test]
        fn segments_of_digits_are_never_usernames(text in "[0-9]{1,25}") {
            prop_assert!(!matches!(parse(&text), UserSegment::Name(_)));
        }

        #[test]
        fn id_has_one_form(text in "[0-9a-z+ -]{0,8}") {
            if let UserSegment::Id(id) = parse(&text) {
                prop_assert_eq!(id.to_string(), text);
            }
        }

        #[test]
        fn case_does_not_matter(text in "[a-zA-Z0-9._]{1,31}") {
            prop_assert_eq!(parse(&text), parse(&text.to_ascii_uppercase()));
        }
    }
}
