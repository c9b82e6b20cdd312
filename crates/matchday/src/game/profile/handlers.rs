//! HTTP handlers for the caller's profile.

use axum::{Json, extract::State, response::IntoResponse};
use http::HeaderMap;
use serde::Serialize;
use time::Date;
use utoipa::ToSchema;
use web::{
    ApiError, NO_STORE, ValidJson,
    fields::{Change, from_body},
};

use crate::{
    catalogue::teams::{FavouriteItem, service::Teams},
    chat::accounts::service::Chat,
    game::{coins::service::Coins, scores::leaderboard::Leaderboards},
    identity::{
        accounts::{
            Email, PersonName, UserItem,
            service::{Accounts, ProfileChange},
        },
        login::CredentialsItem,
        sessions::CurrentUser,
        usernames::Username,
    },
};

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
    /// The caller's coin balance.
    #[schema(minimum = 0, example = 150)]
    balance: i64,
    teams: MyTeams,
    /// Total points of the caller's predictions. Updated within seconds of a result.
    #[schema(example = 412)]
    points: i32,
}

#[derive(Serialize, ToSchema)]
struct MyTeams {
    #[schema(required)]
    primary: Option<FavouriteItem>,
    other: Vec<FavouriteItem>,
}

/// Fields to change. A missing field keeps its value; null clears it.
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
    /// The user must have reached the minimum age: 13 years, unless the operator changed the setting
    /// `accounts.minimum_age`.
    #[schema(value_type = Option<String>, format = Date, example = "1990-02-28")]
    date_of_birth: Change<Date>,
    /// Replaces the generated username. Can be set once. The user also gets a new chat account with this name.
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

/// The account after the change.
#[derive(Serialize, ToSchema)]
#[schema(as = SavedInfo)]
struct InfoItem {
    #[serde(flatten)]
    user: UserItem,
    /// Present only if the username was replaced: credentials of the new chat account, or null while chat is
    /// unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<CredentialsItem>)]
    #[expect(clippy::option_option, reason = "absent, null and present are three different responses")]
    matrix_credentials: Option<Option<CredentialsItem>>,
}

/// Get the caller's account.
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
