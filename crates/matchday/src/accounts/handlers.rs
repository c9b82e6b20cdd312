//! HTTP for accounts.

use axum::{Json, extract::State, response::IntoResponse};
use http::HeaderMap;
use iso_day::option as day;
use serde::Serialize;
use time::{Date, OffsetDateTime};
use utoipa::ToSchema;
use web::{
    ApiError, NO_STORE, ValidJson,
    fields::{Change, from_body},
    ids::UserId,
};

use super::{
    rules::{Email, PersonName},
    service::{Account, Accounts, ChangeError, ProfileChange},
};
use crate::{
    chat::{CredentialsItem, service::Chat},
    coins::service::Coins,
    scores::leaderboard::Leaderboards,
    sessions::CurrentUser,
    teams::{FavouriteItem, service::Teams},
    usernames::Username,
};

/// An account, as its owner sees it.
#[derive(Serialize, ToSchema)]
#[schema(as = User)]
pub(crate) struct UserItem {
    id: UserId,
    #[schema(required, example = "+14155550100")]
    phone: Option<String>,
    #[schema(example = "swift_winger")]
    username: String,
    #[serde(with = "time::serde::rfc3339")]
    #[schema(example = "2026-11-20T15:00:00Z")]
    created_at: OffsetDateTime,
    #[schema(required, example = "Ada Obi")]
    name: Option<String>,
    #[schema(required, example = "ada@example.org")]
    email: Option<String>,
    #[serde(with = "day")]
    #[schema(required, value_type = Option<String>, format = Date, example = "1990-02-28")]
    date_of_birth: Option<Date>,
    /// Whether the username was made up by the service. Then it can be replaced, once.
    username_is_generated: bool,
}

time::serde::format_description!(iso_day, Date, "[year]-[month]-[day]");

impl From<Account> for UserItem {
    fn from(account: Account) -> Self {
        Self {
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

#[derive(Serialize, ToSchema)]
pub(super) struct Me {
    data: MeItem,
}

/// The caller: account, coins, favourite teams and points.
#[derive(Serialize, ToSchema)]
#[schema(as = MeData)]
struct MeItem {
    #[serde(flatten)]
    user: UserItem,
    /// How many coins the caller has.
    #[schema(minimum = 0, example = 150)]
    balance: i64,
    teams: MyTeams,
    /// What the caller's predictions have earned in all. Follows a result within seconds.
    #[schema(example = 412)]
    points: i32,
}

#[derive(Serialize, ToSchema)]
struct MyTeams {
    #[schema(required)]
    primary: Option<FavouriteItem>,
    other: Vec<FavouriteItem>,
}

/// What to change. What is not named stays, null clears it.
#[derive(ToSchema)]
pub(super) struct UserInfo {
    #[schema(
        value_type = Option<String>,
        min_length = 1,
        max_length = 100,
        pattern = r"^[\t-\r ]*[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*[\t-\r ]*$",
        example = "Ada Obi"
    )]
    name: Change<PersonName>,
    #[schema(value_type = Option<String>, format = "email", max_length = 254, example = "ada@example.org")]
    email: Change<Email>,
    /// As many years ago as the operator demands (`accounts.minimum_age`, 13 by default), or more.
    #[schema(value_type = Option<String>, format = Date, example = "1990-02-28")]
    date_of_birth: Change<Date>,
    /// Instead of the username that the service made up; works once. The chat account moves along.
    #[schema(
        value_type = Option<String>,
        min_length = 3,
        max_length = 30,
        pattern = "^(?=.*[A-Za-z._])[A-Za-z0-9][A-Za-z0-9._]{1,28}[A-Za-z0-9]$",
        example = "ada_obi"
    )]
    username: Option<Username>,
}

from_body!(UserInfo { name, email, date_of_birth, username });

impl From<UserInfo> for ProfileChange {
    fn from(UserInfo { name, email, date_of_birth, username }: UserInfo) -> Self {
        Self { name, email, date_of_birth, username }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct InfoSaved {
    #[schema(example = "Your information was saved.")]
    message: &'static str,
    data: InfoItem,
}

/// The account as it is now.
#[derive(Serialize, ToSchema)]
#[schema(as = SavedInfo)]
struct InfoItem {
    #[serde(flatten)]
    user: UserItem,
    /// Only after the username was replaced: those of the new chat account, or null while chat is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<CredentialsItem>)]
    #[expect(clippy::option_option, reason = "left out, null and given are three answers")]
    matrix_credentials: Option<Option<CredentialsItem>>,
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::NoSuchAccount => Self::unauthenticated(),
            ChangeError::UsernameTaken => Self::invalid_field("username", "is taken"),
            ChangeError::UsernameChosen => Self::invalid_field("username", "was chosen already and stays"),
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

/// The caller's account.
#[utoipa::path(get, path = "/api/auth/me", tag = "Account", security(("token" = [])),
    responses((status = 200, body = Me)))]
pub(super) async fn get_me(
    State(accounts): State<Accounts>,
    State(teams): State<Teams>,
    State(coins): State<Coins>,
    State(leaderboards): State<Leaderboards>,
    user: CurrentUser,
) -> Result<Json<Me>, ApiError> {
    let account = accounts.find(user.id).await?.ok_or_else(ApiError::unauthenticated)?;
    let (primary, others) = teams.favourites(user.id).await?;
    let teams = MyTeams {
        primary: primary.map(FavouriteItem::from),
        other: others.into_iter().map(FavouriteItem::from).collect(),
    };
    let balance = coins.balance(user.id).await?;
    let points = leaderboards.points(user.id).await?;
    Ok(Json(Me { data: MeItem { user: account.into(), balance, teams, points } }))
}

/// Change the caller's account.
#[utoipa::path(post, path = "/api/auth/update-user-info", tag = "Account", security(("token" = [])),
    request_body = UserInfo, responses((status = 200, body = InfoSaved)))]
pub(super) async fn update_user_info(
    State(accounts): State<Accounts>,
    State(chat): State<Chat>,
    user: CurrentUser,
    ValidJson(change): ValidJson<UserInfo>,
) -> Result<impl IntoResponse, ApiError> {
    let (account, renamed) = accounts.change(user.id, change.into()).await?;
    let matrix_credentials =
        if renamed { Some(chat.renew(&account, user.session).await.ok().map(CredentialsItem::from)) } else { None };
    let secret = matrix_credentials.is_some().then(|| HeaderMap::from_iter([NO_STORE]));
    let data = InfoItem { user: account.into(), matrix_credentials };
    Ok((secret.unwrap_or_default(), Json(InfoSaved { message: "Your information was saved.", data })))
}
