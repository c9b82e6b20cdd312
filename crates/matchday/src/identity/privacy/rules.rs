//! Audiences of the parts of a profile. No I/O.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use web::fields::FromJson;

/// Users who see a part of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum Audience {
    Everyone,
    /// Users whom the owner of the profile follows. Any user can follow, so an audience of followers would not protect.
    Following,
    Nobody,
}

/// Users who see the name. It is part of many lists, so it is shown to all users or to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NameAudience {
    Everyone,
    Nobody,
}

/// Relation of a viewer to the owner of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    Owner,
    /// The owner follows the viewer.
    Followed,
    Other,
}

impl Audience {
    pub fn includes(self, viewer: Viewer) -> bool {
        match viewer {
            Viewer::Owner => true,
            Viewer::Followed => self != Self::Nobody,
            Viewer::Other => self == Self::Everyone,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        match name {
            "everyone" => Some(Self::Everyone),
            "following" => Some(Self::Following),
            "nobody" => Some(Self::Nobody),
            _ => None,
        }
    }
}

impl FromJson for Audience {
    const EXPECTED: &'static str = "must be everyone, following or nobody";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(Self::from_name)
    }
}

impl FromJson for NameAudience {
    const EXPECTED: &'static str = "must be everyone or nobody";

    fn from_json(value: &Value) -> Option<Self> {
        match value.as_str()? {
            "everyone" => Some(Self::Everyone),
            "nobody" => Some(Self::Nobody),
            _ => None,
        }
    }
}

impl From<bool> for NameAudience {
    fn from(is_shown: bool) -> Self {
        if is_shown { Self::Everyone } else { Self::Nobody }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const VIEWERS: [Viewer; 3] = [Viewer::Other, Viewer::Followed, Viewer::Owner];

    #[test]
    fn audiences() {
        for (audience, expected) in [
            (Audience::Everyone, [true, true, true]),
            (Audience::Following, [false, true, true]),
            (Audience::Nobody, [false, false, true]),
        ] {
            assert_eq!(VIEWERS.map(|viewer| audience.includes(viewer)), expected, "{audience:?}");
        }
    }

    proptest! {
        #[test]
        fn only_exact_names_are_audiences(text in "(everyone|following|nobody|[a-zA-Z ]{0,10})") {
            let parsed = Audience::from_json(&json!(text));
            prop_assert_eq!(parsed.is_some(), ["everyone", "following", "nobody"].contains(&text.as_str()));
            if let Some(audience) = parsed {
                prop_assert_eq!(json!(audience), json!(text));
            }
            let name = NameAudience::from_json(&json!(text));
            prop_assert_eq!(name.is_some(), ["everyone", "nobody"].contains(&text.as_str()));
        }

        /// Whatever a viewer sees, a closer one sees too.
        #[test]
        fn closer_viewers_see_more(audience in prop_oneof![
            Just(Audience::Everyone), Just(Audience::Following), Just(Audience::Nobody)
        ]) {
            for pair in VIEWERS.windows(2) {
                prop_assert!(!audience.includes(pair[0]) || audience.includes(pair[1]));
            }
        }
    }
}
