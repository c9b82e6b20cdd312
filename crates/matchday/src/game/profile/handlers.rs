//! HTTP handlers for profiles: the caller's own and those of other users.

use axum::{Json, extract::State, response::IntoResponse};
use http::HeaderMap;
use serde::Serialize;
use time::Date;
use utoipa::ToSchema;
use web::{
    ApiError, ErrorBody, NO_STORE, Path, ValidJson,
    fields::{Change, from_body},
    ids::{LeagueId, TournamentId},
};

use super::service::{CalibrationSummary, Profile, Profiles};
use crate::{
    catalogue::teams::{
        FavouriteItem,
        service::{Favourite, Teams},
    },
    chat::accounts::service::Chat,
    game::{
        coins::service::Coins,
        scores::leaderboard::{Leaderboards, Record, RecordScore, TournamentRecord},
    },
    identity::{
        accounts::{
            Email, PersonItem, PersonName, UserItem, UserSegment,
            service::{Accounts, ProfileChange},
        },
        avatars::AvatarUrls,
        callers::CallerReader,
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

impl From<(Option<Favourite>, Vec<Favourite>)> for MyTeams {
    fn from((primary, others): (Option<Favourite>, Vec<Favourite>)) -> Self {
        Self { primary: primary.map(FavouriteItem::from), other: others.into_iter().map(FavouriteItem::from).collect() }
    }
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
    State(avatars): State<AvatarUrls>,
    user: CurrentUser,
) -> Result<Json<Me>, ApiError> {
    let account = accounts.find(user.id).await?.ok_or_else(ApiError::unauthenticated)?;
    let teams = teams.favourites(user.id).await?.into();
    let balance = coins.balance(user.id).await?;
    let points = leaderboards.points(user.id).await?;
    Ok(Json(Me { data: MeItem { user: UserItem::new(account, &avatars), balance, teams, points } }))
}

/// Change the caller's account.
#[utoipa::path(post, path = "/api/auth/update-user-info", tag = "Account", security(("token" = [])),
    request_body = UserInfo, responses((status = 200, body = InfoSaved)))]
pub(super) async fn update_user_info(
    State(accounts): State<Accounts>,
    State(chat): State<Chat>,
    State(avatars): State<AvatarUrls>,
    user: CurrentUser,
    ValidJson(change): ValidJson<UserInfo>,
) -> Result<impl IntoResponse, ApiError> {
    let (account, renamed) = accounts.change(user.id, change.into()).await?;
    let matrix_credentials =
        if renamed { Some(chat.renew(&account, user.session).await.ok().map(CredentialsItem::from)) } else { None };
    let secret = matrix_credentials.is_some().then(|| HeaderMap::from_iter([NO_STORE]));
    let data = InfoItem { user: UserItem::new(account, &avatars), matrix_credentials };
    Ok((secret.unwrap_or_default(), Json(InfoSaved { message: "Your information was saved.", data })))
}

#[derive(Serialize, ToSchema)]
pub(super) struct ProfileResponse {
    data: ProfileItem,
}

/// A user's profile. Parts that the user hides from the caller are null.
#[derive(Serialize, ToSchema)]
#[schema(as = Profile)]
struct ProfileItem {
    #[serde(flatten)]
    person: PersonItem,
    #[schema(required)]
    teams: Option<MyTeams>,
    #[schema(required)]
    record: Option<RecordItem>,
    #[schema(required)]
    calibration: Option<CalibrationItem>,
    /// Leagues with both users as members, highest id first, at most 20. On the caller's own profile, the caller's leagues.
    leagues: Vec<CommonLeague>,
    #[schema(minimum = 0, example = 120)]
    followers_count: i64,
    #[schema(minimum = 0, example = 34)]
    following_count: i64,
    /// Whether the caller follows this user.
    is_following: bool,
    /// Whether this user follows the caller.
    follows_me: bool,
}

/// Predictions and points of a user. The points are as in the leaderboards.
#[derive(Serialize, ToSchema)]
#[schema(as = ProfileRecord)]
struct RecordItem {
    /// Number of predictions, including open matches.
    #[schema(minimum = 0, example = 42)]
    predictions: i64,
    #[serde(flatten)]
    score: ScoreItem,
    /// Tournaments in whose leaderboard the user is, highest id first, at most 20.
    tournaments: Vec<TournamentItem>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ProfileScore)]
struct ScoreItem {
    /// Number of predicted matches that have a result.
    #[schema(minimum = 0, example = 21)]
    settled: i32,
    /// Number of correctly predicted outcomes.
    #[schema(minimum = 0, example = 13)]
    correct: i32,
    /// Number of exactly predicted scores.
    #[schema(minimum = 0, example = 4)]
    exact: i32,
    #[schema(example = 412)]
    points: i32,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ProfileTournament)]
struct TournamentItem {
    tournament_id: TournamentId,
    #[schema(example = "World Cup")]
    name: String,
    #[serde(flatten)]
    score: ScoreItem,
}

/// The user's confidence compared with their hit rate, over all settled predictions with a confidence above 0.
#[derive(Serialize, ToSchema)]
#[schema(as = ProfileCalibration)]
struct CalibrationItem {
    #[schema(minimum = 0, example = 37)]
    count: u32,
    /// Average confidence in percent; null if `count` is 0.
    #[schema(required, minimum = 0, maximum = 100, example = 61.5)]
    average_confidence: Option<f64>,
    /// Share of predictions with the right outcome; null if `count` is 0.
    #[schema(required, minimum = 0, maximum = 1, example = 0.58)]
    hit_rate: Option<f64>,
}

#[derive(Serialize, ToSchema)]
struct CommonLeague {
    id: LeagueId,
    #[schema(example = "Friends")]
    name: String,
}

impl From<RecordScore> for ScoreItem {
    fn from(RecordScore { points, exact, correct, settled }: RecordScore) -> Self {
        Self { settled, correct, exact, points }
    }
}

impl From<(i64, Record)> for RecordItem {
    fn from((predictions, Record { all, tournaments }): (i64, Record)) -> Self {
        let tournament =
            |TournamentRecord { id, name, score }| TournamentItem { tournament_id: id, name, score: score.into() };
        Self { predictions, score: all.into(), tournaments: tournaments.into_iter().map(tournament).collect() }
    }
}

impl From<CalibrationSummary> for CalibrationItem {
    fn from(CalibrationSummary { count, average_confidence, hit_rate }: CalibrationSummary) -> Self {
        Self { count, average_confidence, hit_rate }
    }
}

impl ProfileItem {
    fn new(profile: Profile, avatars: &AvatarUrls) -> Self {
        Self {
            person: PersonItem::new(profile.person, avatars),
            teams: profile.teams.map(MyTeams::from),
            record: profile.record.map(RecordItem::from),
            calibration: profile.calibration.map(CalibrationItem::from),
            leagues: profile.leagues.into_iter().map(|(id, name)| CommonLeague { id, name }).collect(),
            followers_count: profile.counts.followers,
            following_count: profile.counts.following,
            is_following: profile.is_following,
            follows_me: profile.follows_me,
        }
    }
}

/// Get a user's profile.
///
/// The user decides which parts other users see: `PUT /api/auth/me/privacy`.
#[utoipa::path(get, path = "/api/auth/users/{user}", tag = "People", security(("token" = [])),
    params(("user" = String, Path, description = "User id or username", example = "12")),
    responses(
        (status = 200, body = ProfileResponse),
        (status = 404, description = "The user does not exist, is suspended, or one of the two has blocked the other", body = ErrorBody),
    ))]
pub(super) async fn get_profile(
    State(profiles): State<Profiles>,
    State(avatars): State<AvatarUrls>,
    user: CurrentUser,
    CallerReader(reader): CallerReader,
    Path(other): Path<UserSegment>,
) -> Result<Json<ProfileResponse>, ApiError> {
    let profile = profiles.get(&reader, user.id, &other).await?.ok_or_else(|| ApiError::not_found("The user"))?;
    Ok(Json(ProfileResponse { data: ProfileItem::new(profile, &avatars) }))
}
