//! Accounts in API responses.

use iso_day::option as day;
use serde::Serialize;
use time::{Date, OffsetDateTime};
use utoipa::ToSchema;
use web::{ApiError, ids::UserId};

use super::{
    people::Person,
    service::{Account, ChangeError},
};
use crate::identity::avatars::AvatarUrls;

/// An account as shown to its owner.
#[derive(Serialize, ToSchema)]
#[schema(as = User)]
pub(crate) struct UserItem {
    id: UserId,
    #[schema(required, example = "+14155550100")]
    phone: Option<String>,
    #[schema(example = "swift_winger")]
    username: String,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    created_at: OffsetDateTime,
    #[schema(required, example = "Ada Obi")]
    name: Option<String>,
    #[schema(required, example = "ada@example.org")]
    email: Option<String>,
    #[serde(with = "day")]
    #[schema(required, value_type = Option<String>, format = Date, example = "1990-02-28")]
    date_of_birth: Option<Date>,
    /// Whether the service generated the username. A generated username can be replaced once.
    username_is_generated: bool,
    #[schema(required, example = "https://md.example.org/api/avatars/0123456789abcdef0123456789abcdef.jpg")]
    avatar_url: Option<String>,
}

time::serde::format_description!(iso_day, Date, "[year]-[month]-[day]");

impl UserItem {
    pub(crate) fn new(account: Account, avatars: &AvatarUrls) -> Self {
        Self {
            avatar_url: avatars.of(account.avatar.as_ref()),
            id: account.id,
            phone: account.phone.map(|phone| phone.as_str().to_owned()),
            username: account.username.to_string(),
            created_at: account.created_at,
            name: account.name,
            email: account.email,
            date_of_birth: account.date_of_birth,
            username_is_generated: account.username_is_generated,
        }
    }
}

/// A user as other users see them.
#[derive(Serialize, ToSchema)]
#[schema(as = PublicUser)]
pub(crate) struct PersonItem {
    id: UserId,
    #[schema(example = "swift_winger")]
    username: String,
    /// Null without a name, and if the user hides it.
    #[schema(required, example = "Ada Obi")]
    name: Option<String>,
    #[schema(required, example = "https://md.example.org/api/avatars/0123456789abcdef0123456789abcdef.jpg")]
    avatar_url: Option<String>,
}

impl PersonItem {
    pub(crate) fn new(person: Person, avatars: &AvatarUrls) -> Self {
        let Person { id, username, name, avatar, .. } = person;
        Self { id, username, name, avatar_url: avatars.of(avatar.as_ref()) }
    }
}

/// A user in a leaderboard, a table or a list of predictions or answers.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedUser)]
pub(crate) struct ListedPersonItem {
    id: UserId,
    #[schema(example = "swift_winger")]
    username: String,
    /// Null without a name, and if the user hides it.
    #[schema(required, example = "Ada Obi")]
    name: Option<String>,
    /// Absent without a picture: clients that know three fields see them unchanged, and a page of 100 rows stays small.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "https://md.example.org/api/avatars/0123456789abcdef0123456789abcdef.jpg")]
    avatar_url: Option<String>,
}

impl ListedPersonItem {
    pub(crate) fn new(person: Person, avatars: &AvatarUrls) -> Self {
        let PersonItem { id, username, name, avatar_url } = PersonItem::new(person, avatars);
        Self { id, username, name, avatar_url }
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::NoSuchAccount => Self::unauthenticated(),
            ChangeError::UsernameTaken => Self::invalid_field("username", "is taken"),
            ChangeError::UsernameChosen => Self::invalid_field("username", "is already chosen and cannot be changed"),
            ChangeError::TooYoung { minimum_age: 0 } => {
                Self::invalid_field("date_of_birth", "must be a date in the past")
            }
            ChangeError::TooYoung { minimum_age } => {
                let message = format!("must be a date in the past, at least {minimum_age} years ago");
                Self::invalid_field("date_of_birth", &message)
            }
            ChangeError::Database(error) => error.into(),
            ChangeError::Message(_) => Self::internal(error),
        }
    }
}
