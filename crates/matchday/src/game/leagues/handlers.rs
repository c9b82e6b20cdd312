//! HTTP handlers for leagues.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use web::{
    ApiError, ClientNetwork, ErrorBody, NO_STORE, Path, Query, SecondPath, ValidJson,
    fields::{
        Body, Change, Faulty, FromBody, FromJson, FromQuery, Moment, Search, from_body, from_parameters, whole_number,
    },
    ids::{LeagueId, TournamentId, UserId},
    paging::{PageMeta, Paging},
    permitted,
};

use super::{
    rules::{CountsFrom, LeagueName, Position, TableRow, Visibility},
    service::{Invitation, InviteCode, LeagueError, LeagueView, Leagues, OwnPlace, TablePage, TableView, Wish},
};
use crate::{
    catalogue::matches::rules::RoundNumber,
    identity::{
        accounts::{ListedPersonItem, Person},
        avatars::AvatarUrls,
        callers::CallerReader,
        idempotency::{self, KeyedRequest},
        sessions::CurrentUser,
    },
};

/// Number of members that a league allows by default.
const USUAL_MEMBERS: i32 = 100;
/// Greatest number of tournaments of a league.
const MOST_TOURNAMENTS: usize = 20;
/// Maximum page size of a table.
const MOST_ROWS: i64 = 100;

impl From<LeagueError> for ApiError {
    fn from(error: LeagueError) -> Self {
        let conflict = |code, message: &'static str| Self::new(StatusCode::CONFLICT, code, message);
        let forbidden = |code, message: &'static str| Self::new(StatusCode::FORBIDDEN, code, message);
        match error {
            LeagueError::NotFound => Self::not_found("The league"),
            LeagueError::NoSuchMember => Self::not_found("The member"),
            LeagueError::NoSuchTournament => Self::invalid_field("tournament_ids", "must name existing tournaments"),
            LeagueError::TooLarge(most) => Self::invalid_field("max_members", &format!("must be at most {most}")),
            LeagueError::TooLargeForChat(most) => {
                Self::invalid_field("max_members", &format!("must be at most {most} in a league with a chat room"))
            }
            LeagueError::TooLargeForTimes(most) => Self::invalid_field(
                "max_members",
                &format!("must be at most {most} in a league that counts matches from a time on"),
            ),
            LeagueError::BelowMembers => {
                Self::invalid_field("max_members", "must not be less than the number of members")
            }
            LeagueError::TooMany => conflict("too_many_leagues", "You belong to too many leagues. Leave one first."),
            LeagueError::AlreadyMember => conflict("already_a_member", "You are already a member of this league."),
            LeagueError::Removed => forbidden("removed_from_league", "You were removed from this league."),
            LeagueError::Blocked => forbidden("not_allowed", "You cannot join this league."),
            LeagueError::Full => conflict("league_full", "This league is full."),
            LeagueError::NotAMember => forbidden("not_a_member", "You are not a member of this league."),
            LeagueError::NotTheOwner => forbidden("not_the_owner", "Only the owner of the league can do this."),
            LeagueError::OwnerCannotLeave => {
                conflict("owner_cannot_leave", "Hand the league over before you leave it.")
            }
            LeagueError::IsOwner => Self::invalid_field("user", "must not be the owner"),
            LeagueError::NotAnHeir => Self::invalid_field("user_id", "must be another member of the league"),
            LeagueError::Limited(decision) => Self::rate_limited(decision),
            LeagueError::KeyUsed => idempotency::key_used(),
            LeagueError::AccountDeleted => Self::unauthenticated(),
            LeagueError::Database(error) => error.into(),
            LeagueError::Table(error) => error.into(),
            error @ (LeagueError::NoKey | LeagueError::Message(_)) => Self::internal(error),
        }
    }
}

#[derive(ToSchema)]
#[schema(as = LeagueRequest)]
pub(super) struct LeagueWish {
    #[schema(value_type = String, min_length = 1, max_length = 100, pattern = r"^[\t-\r ]*[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*[\t-\r ]*$", example = "Office league")]
    name: Result<LeagueName, Faulty>,
    /// Tournaments whose matches count.
    #[schema(value_type = Vec<TournamentId>, min_items = 1, max_items = 20)]
    tournament_ids: Result<TournamentIds, Faulty>,
    /// Only matches of this round or a later one count.
    #[schema(value_type = Option<i16>, minimum = 1, maximum = 999)]
    from_round: Result<Option<RoundNumber>, Faulty>,
    /// Only matches that start at this time or later count. Not together with `from_round`.
    #[schema(value_type = Option<String>, format = DateTime, example = "2026-11-20T15:00:00.000Z")]
    from: Result<Option<Moment>, Faulty>,
    /// Greatest number of members, including the owner. The setting `leagues.max_members` limits it.
    #[schema(value_type = Option<i32>, minimum = 2, default = 100)]
    max_members: Result<Option<MemberLimit>, Faulty>,
    #[schema(value_type = Option<Visibility>)]
    visibility: Result<Option<Visibility>, Faulty>,
    #[schema(value_type = Option<CountsFrom>)]
    counts_from: Result<Option<CountsFrom>, Faulty>,
    /// Whether to create a private chat room, which members join and leave with the league. Requires `max_members` of at
    /// most 1,000.
    #[schema(value_type = Option<bool>, default = false)]
    chat: Result<Option<bool>, Faulty>,
}

from_body!(LeagueWish { name, tournament_ids, from_round, from, max_members, visibility, counts_from, chat });

impl FromBody for Wish {
    fn from_body(body: &mut Body) -> Option<Self> {
        let wish = LeagueWish::from_body(body)?;
        if matches!((&wish.from_round, &wish.from), (Ok(Some(_)), Ok(Some(_)))) {
            return body.fault("from", "must not be given together with from_round");
        }
        Some(Self {
            name: wish.name.ok()?,
            tournaments: wish.tournament_ids.ok()?.0,
            from_round: wish.from_round.ok()?.map(|RoundNumber(round)| round),
            from: wish.from.ok()?.map(|Moment(moment)| moment),
            max_members: wish.max_members.ok()?.map_or(USUAL_MEMBERS, |MemberLimit(most)| most),
            visibility: wish.visibility.ok()?.unwrap_or_default(),
            counts_from: wish.counts_from.ok()?.unwrap_or_default(),
            chat: wish.chat.ok()?.unwrap_or_default(),
        })
    }
}

/// Ids of 1 to 20 different tournaments.
pub(super) struct TournamentIds(Vec<TournamentId>);

impl FromJson for TournamentIds {
    const EXPECTED: &'static str = "must be a list of 1 to 20 different ids of tournaments";

    fn from_json(value: &Value) -> Option<Self> {
        let ids: Vec<TournamentId> = value.as_array()?.iter().map(TournamentId::from_json).collect::<Option<_>>()?;
        let mut distinct = ids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        ((1..=MOST_TOURNAMENTS).contains(&ids.len()) && distinct.len() == ids.len()).then_some(Self(ids))
    }
}

pub(super) struct MemberLimit(i32);

impl FromJson for MemberLimit {
    const EXPECTED: &'static str = "must be a whole number of at least 2";

    fn from_json(value: &Value) -> Option<Self> {
        i32::try_from(whole_number(value)?).ok().filter(|most| *most >= 2).map(Self)
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct LeagueSaved {
    #[schema(example = "League created.")]
    message: &'static str,
    data: LeagueItem,
}

#[derive(Serialize, ToSchema)]
pub(super) struct LeagueResponse {
    data: LeagueItem,
}

#[derive(Serialize, ToSchema)]
pub(super) struct LeagueList {
    data: Vec<LeagueItem>,
    meta: PageMeta,
}

/// A league of users.
#[derive(Serialize, ToSchema)]
#[schema(as = League)]
struct LeagueItem {
    id: LeagueId,
    #[schema(example = "Office league")]
    name: String,
    visibility: Visibility,
    counts_from: CountsFrom,
    /// Tournaments whose matches count, in ascending order.
    tournament_ids: Vec<TournamentId>,
    /// Only matches of this round or a later one count.
    #[schema(required, minimum = 1, maximum = 999)]
    from_round: Option<i16>,
    /// Only matches that start at this time or later count.
    #[serde(with = "platform::timestamp::option")]
    #[schema(required, example = "2026-11-20T15:00:00.000Z")]
    from: Option<OffsetDateTime>,
    /// Greatest number of members, including the owner.
    #[schema(minimum = 2, example = 100)]
    max_members: i32,
    #[schema(minimum = 1, example = 12)]
    member_count: i32,
    owner: LeagueUser,
    /// Matrix id of the chat room; null without chat, for non-members, and until the room exists.
    #[schema(required)]
    chat_room_id: Option<String>,
    /// Code by which others join; null for non-members.
    #[schema(required, pattern = "^[A-HJKMNP-Z2-9]{8}$", example = "K7MPQ2RS")]
    code: Option<String>,
    /// Place of the caller; null for non-members.
    #[schema(required)]
    me: Option<OwnItem>,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    created_at: OffsetDateTime,
}

#[derive(Clone, Serialize, ToSchema)]
struct LeagueUser {
    id: UserId,
    #[schema(example = "swift_winger")]
    username: String,
    #[schema(required, example = "Ada Obi")]
    name: Option<String>,
}

impl From<Person> for LeagueUser {
    fn from(Person { id, username, name, .. }: Person) -> Self {
        Self { id, username, name }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum LeagueRole {
    Owner,
    Member,
}

/// Place of the caller in a league.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnLeaguePlace)]
struct OwnItem {
    role: LeagueRole,
    /// Estimated in a large league whose table cannot be read.
    #[schema(minimum = 1, example = 3)]
    rank: i64,
    #[schema(example = 412)]
    points: i32,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    joined_at: OffsetDateTime,
}

impl From<OwnPlace> for OwnItem {
    fn from(OwnPlace { is_owner, rank, points, joined_at }: OwnPlace) -> Self {
        Self { role: if is_owner { LeagueRole::Owner } else { LeagueRole::Member }, rank, points, joined_at }
    }
}

impl From<LeagueView> for LeagueItem {
    fn from(LeagueView { league, owner, code, room, own }: LeagueView) -> Self {
        Self {
            id: league.id,
            name: league.name,
            visibility: league.visibility,
            counts_from: league.counts_from,
            tournament_ids: league.tournaments,
            from_round: league.from_round,
            from: league.from,
            max_members: league.max_members,
            member_count: league.member_count,
            owner: owner.into(),
            chat_room_id: room,
            code: code.map(|code| code.as_str().to_owned()),
            me: own.map(OwnItem::from),
            created_at: league.created_at,
        }
    }
}

/// Create a league.
///
/// The caller is its owner and first member. Others join with the invite code, or find the league if it is public.
#[utoipa::path(post, path = "/api/auth/leagues", tag = "Leagues", security(("token" = [])),
    request_body = LeagueWish,
    responses(
        (status = 201, body = LeagueSaved),
        (status = 409, description = "The caller belongs to too many leagues (`too_many_leagues`)", body = ErrorBody),
    ))]
pub(super) async fn create_league(
    State(leagues): State<Leagues>,
    user: CurrentUser,
    request: Option<KeyedRequest>,
    ValidJson(wish): ValidJson<Wish>,
) -> Result<(StatusCode, [(http::HeaderName, http::HeaderValue); 1], Json<LeagueSaved>), ApiError> {
    permitted(leagues.take_creation(user.id).await)?;
    let league = leagues.create(user.id, &wish, request).await?;
    Ok((StatusCode::CREATED, [NO_STORE], Json(LeagueSaved { message: "League created.", data: league.into() })))
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LeagueFilter {
    /// Public leagues that the caller can see, newest first, instead of the caller's own, last joined first.
    #[param(value_type = Option<bool>, default = false)]
    public: Option<bool>,
    /// Only leagues whose name contains this text, in any case.
    #[param(value_type = Option<String>, max_length = 100)]
    search: Option<Search>,
}

from_parameters!(LeagueFilter { public, search });

/// List leagues: the caller's own, or public ones.
#[utoipa::path(get, path = "/api/auth/leagues", tag = "Leagues", security(("token" = [])),
    params(LeagueFilter, Paging), responses((status = 200, body = LeagueList)))]
pub(super) async fn list_leagues(
    State(leagues): State<Leagues>,
    user: CurrentUser,
    CallerReader(reader): CallerReader,
    Query((filter, paging)): Query<(LeagueFilter, Paging)>,
) -> Result<Json<LeagueList>, ApiError> {
    let public = filter.public.unwrap_or_default();
    let (views, total) = leagues.list(&reader, user.id, public, filter.search.as_ref(), paging).await?;
    Ok(Json(LeagueList { data: views.into_iter().map(LeagueItem::from).collect(), meta: paging.meta(total) }))
}

/// Show a league.
#[utoipa::path(get, path = "/api/auth/leagues/{league}", tag = "Leagues", security(("token" = [])),
    params(("league" = LeagueId, Path, description = "Id of the league")),
    responses(
        (status = 200, body = LeagueResponse),
        (status = 404, description = "The league does not exist, or is private and the caller is not a member", body = ErrorBody),
    ))]
pub(super) async fn get_league(
    State(leagues): State<Leagues>,
    user: CurrentUser,
    Path(id): Path<LeagueId>,
) -> Result<Json<LeagueResponse>, ApiError> {
    Ok(Json(LeagueResponse { data: leagues.get(user.id, id).await?.into() }))
}

#[derive(ToSchema)]
#[schema(as = LeagueInvitation)]
pub(super) struct JoinBody {
    /// Invite code. Case, spaces and hyphens have no meaning.
    #[schema(value_type = Option<String>, pattern = "^[ -]*([A-HJKMNP-Za-hjkmnp-z2-9][ -]*){8}$", example = "K7MP-Q2RS")]
    code: Result<Option<InviteCode>, Faulty>,
    /// Id of a public league, instead of a code.
    #[schema(value_type = Option<LeagueId>)]
    league_id: Result<Option<LeagueId>, Faulty>,
}

from_body!(JoinBody { code, league_id });

impl FromBody for Invitation {
    fn from_body(body: &mut Body) -> Option<Self> {
        let JoinBody { code, league_id } = JoinBody::from_body(body)?;
        match (code.ok()?, league_id.ok()?) {
            (Some(code), None) => Some(Self::Code(code)),
            (None, Some(id)) => Some(Self::League(id)),
            _ => body.fault("code", "or league_id is required, and not both"),
        }
    }
}

/// Join a league by its code, or a public league by its id.
#[utoipa::path(post, path = "/api/auth/leagues/join", tag = "Leagues", security(("token" = [])),
    request_body = JoinBody,
    responses(
        (status = 200, body = LeagueSaved),
        (status = 403, description = "The caller was removed from this league (`removed_from_league`), or the owner has blocked the caller (`not_allowed`)", body = ErrorBody),
        (status = 404, description = "No league has this code or id", body = ErrorBody),
        (status = 409, description = "The caller is a member (`already_a_member`), belongs to too many leagues (`too_many_leagues`), or the league is full (`league_full`)", body = ErrorBody),
    ))]
pub(super) async fn join_league(
    State(leagues): State<Leagues>,
    user: CurrentUser,
    network: ClientNetwork,
    request: Option<KeyedRequest>,
    ValidJson(invitation): ValidJson<Invitation>,
) -> Result<([(http::HeaderName, http::HeaderValue); 1], Json<LeagueSaved>), ApiError> {
    let league = leagues.join(user.id, network, &invitation, request).await?;
    Ok(([NO_STORE], Json(LeagueSaved { message: "Joined the league.", data: league.into() })))
}

#[derive(Serialize, ToSchema)]
pub(super) struct LeagueDone {
    #[schema(example = "You left the league.")]
    message: &'static str,
}

/// Leave a league.
///
/// The owner can leave only as the last member. The league is then deleted.
#[utoipa::path(post, path = "/api/auth/leagues/{league}/leave", tag = "Leagues", security(("token" = [])),
    params(("league" = LeagueId, Path, description = "Id of the league")),
    responses(
        (status = 200, body = LeagueDone),
        (status = 403, description = "The caller is not a member (`not_a_member`)", body = ErrorBody),
        (status = 404, description = "The league does not exist, or is private and the caller is not a member", body = ErrorBody),
        (status = 409, description = "The caller is the owner, and there are other members (`owner_cannot_leave`)", body = ErrorBody),
    ))]
pub(super) async fn leave_league(
    State(leagues): State<Leagues>,
    user: CurrentUser,
    Path(id): Path<LeagueId>,
) -> Result<Json<LeagueDone>, ApiError> {
    leagues.leave(user.id, id).await?;
    Ok(Json(LeagueDone { message: "You left the league." }))
}

/// Remove a member, as the owner. They cannot join again.
#[utoipa::path(delete, path = "/api/auth/leagues/{league}/members/{user}", tag = "Leagues", security(("token" = [])),
    params(("league" = LeagueId, Path, description = "Id of the league"), ("user" = UserId, Path, description = "Id of the member")),
    responses(
        (status = 200, body = LeagueDone),
        (status = 403, description = "The caller is not the owner (`not_the_owner`)", body = ErrorBody),
        (status = 404, description = "The league does not exist, or has no such member", body = ErrorBody),
        (status = 422, description = "The member is the owner", body = ErrorBody),
    ))]
pub(super) async fn remove_member(
    State(leagues): State<Leagues>,
    user: CurrentUser,
    Path(id): Path<LeagueId>,
    SecondPath(member): SecondPath<UserId>,
) -> Result<Json<LeagueDone>, ApiError> {
    leagues.remove(user.id, id, member).await?;
    Ok(Json(LeagueDone { message: "Member removed." }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct LeagueCodeResponse {
    #[schema(example = "New code created.")]
    message: &'static str,
    data: CodeItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LeagueCode)]
struct CodeItem {
    #[schema(pattern = "^[A-HJKMNP-Z2-9]{8}$", example = "K7MPQ2RS")]
    code: String,
}

/// Replace the code of a league, as the owner. The old code stops working at once.
#[utoipa::path(post, path = "/api/auth/leagues/{league}/code", tag = "Leagues", security(("token" = [])),
    params(("league" = LeagueId, Path, description = "Id of the league")),
    responses(
        (status = 200, body = LeagueCodeResponse),
        (status = 403, description = "The caller is not the owner (`not_the_owner`)", body = ErrorBody),
        (status = 404, description = "The league does not exist, or is private and the caller is not a member", body = ErrorBody),
    ))]
pub(super) async fn rotate_code(
    State(leagues): State<Leagues>,
    user: CurrentUser,
    Path(id): Path<LeagueId>,
) -> Result<([(http::HeaderName, http::HeaderValue); 1], Json<LeagueCodeResponse>), ApiError> {
    let code = leagues.rotate(user.id, id).await?.as_str().to_owned();
    Ok(([NO_STORE], Json(LeagueCodeResponse { message: "New code created.", data: CodeItem { code } })))
}

#[derive(ToSchema)]
#[schema(as = LeagueChange)]
pub(super) struct ChangeBody {
    #[schema(value_type = String, required = false, min_length = 1, max_length = 100, pattern = r"^[\t-\r ]*[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*[\t-\r ]*$")]
    name: Change<LeagueName>,
    /// Not less than the number of members.
    #[schema(value_type = i32, required = false, minimum = 2)]
    max_members: Change<MemberLimit>,
}

/// Requested changes of a league.
pub(super) struct LeagueChange {
    name: Option<LeagueName>,
    max_members: Option<i32>,
}

from_body!(ChangeBody { name, max_members });

impl FromBody for LeagueChange {
    fn from_body(body: &mut Body) -> Option<Self> {
        #[expect(clippy::option_option, reason = "the outer level is a fault, the inner an absent field")]
        fn given<T>(body: &mut Body, name: &str, change: Change<T>) -> Option<Option<T>> {
            match change {
                Change::Keep => Some(None),
                Change::Set(value) => Some(Some(value)),
                Change::Clear => body.fault(name, "must not be null"),
            }
        }
        let ChangeBody { name, max_members } = ChangeBody::from_body(body)?;
        let (name, most) = (given(body, "name", name), given(body, "max_members", max_members));
        Some(Self { name: name?, max_members: most?.map(|MemberLimit(most)| most) })
    }
}

/// Rename a league or change its greatest number of members, as the owner.
#[utoipa::path(patch, path = "/api/auth/leagues/{league}", tag = "Leagues", security(("token" = [])),
    params(("league" = LeagueId, Path, description = "Id of the league")),
    request_body = ChangeBody,
    responses(
        (status = 200, body = LeagueSaved),
        (status = 403, description = "The caller is not the owner (`not_the_owner`)", body = ErrorBody),
        (status = 404, description = "The league does not exist, or is private and the caller is not a member", body = ErrorBody),
    ))]
pub(super) async fn change_league(
    State(leagues): State<Leagues>,
    user: CurrentUser,
    Path(id): Path<LeagueId>,
    ValidJson(change): ValidJson<LeagueChange>,
) -> Result<Json<LeagueSaved>, ApiError> {
    let league = leagues.change(user.id, id, change.name.as_ref(), change.max_members).await?;
    Ok(Json(LeagueSaved { message: "League changed.", data: league.into() }))
}

#[derive(ToSchema)]
#[schema(as = LeagueOwnerRequest)]
pub(super) struct OwnerBody {
    /// Another member.
    user_id: UserId,
}

from_body!(OwnerBody { user_id });

/// Hand a league over to another member, as the owner. The caller stays as a member.
#[utoipa::path(post, path = "/api/auth/leagues/{league}/owner", tag = "Leagues", security(("token" = [])),
    params(("league" = LeagueId, Path, description = "Id of the league")),
    request_body = OwnerBody,
    responses(
        (status = 200, body = LeagueSaved),
        (status = 403, description = "The caller is not the owner (`not_the_owner`)", body = ErrorBody),
        (status = 404, description = "The league does not exist, or is private and the caller is not a member", body = ErrorBody),
    ))]
pub(super) async fn hand_over(
    State(leagues): State<Leagues>,
    user: CurrentUser,
    Path(id): Path<LeagueId>,
    ValidJson(OwnerBody { user_id }): ValidJson<OwnerBody>,
) -> Result<([(http::HeaderName, http::HeaderValue); 1], Json<LeagueSaved>), ApiError> {
    let league = leagues.hand_over(user.id, id, user_id).await?;
    Ok(([NO_STORE], Json(LeagueSaved { message: "The league has a new owner.", data: league.into() })))
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct TableParameters {
    /// Only matches of this round.
    #[param(value_type = Option<i16>, minimum = 1, maximum = 999)]
    round: Option<RoundNumber>,
    /// Number of members to return. Values above 100 are treated as 100.
    #[param(value_type = Option<i64>, minimum = 1, default = 100, example = 100)]
    per_page: Option<RowLimit>,
    /// Value of `next_cursor` in the previous response.
    #[param(value_type = Option<String>)]
    cursor: Option<Position>,
}

from_parameters!(TableParameters { round, per_page, cursor });

#[derive(Clone, Copy)]
pub(super) struct RowLimit(i64);

impl FromQuery for RowLimit {
    const EXPECTED: &'static str = "must be a positive integer";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok().filter(|number| *number >= 1).map(Self)
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = LeagueTable)]
pub(super) struct TableResponse {
    data: TableData,
    meta: TableMeta,
}

/// A page of the table, and the caller's place.
#[derive(Serialize, ToSchema)]
#[schema(as = LeagueTableData)]
struct TableData {
    rows: Vec<RowItem>,
    /// Null for non-members.
    #[schema(required)]
    me: Option<RowItem>,
    /// Up to five members before the caller, the caller, and up to five after. Empty for non-members.
    neighbours: Vec<RowItem>,
}

/// A member in the table. Members with equal points share a rank, and are sorted by exact scores, then by correct outcomes.
#[derive(Serialize, ToSchema)]
#[schema(as = LeagueTableRow)]
struct RowItem {
    #[schema(minimum = 1, example = 3)]
    rank: i64,
    user: ListedPersonItem,
    #[schema(example = 412)]
    points: i32,
    /// Number of exactly predicted scores.
    #[schema(example = 4)]
    exact: i32,
    /// Number of correctly predicted outcomes.
    #[schema(example = 13)]
    correct: i32,
    /// Number of predicted matches that have a result.
    #[schema(example = 21)]
    settled: i32,
    /// Places gained by the latest round, negative if lost; null without an earlier result, and with `round`.
    #[schema(required, example = 2)]
    movement: Option<i64>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LeagueTableMeta)]
struct TableMeta {
    #[schema(example = 12)]
    total_members: i32,
    #[schema(required, minimum = 1, maximum = 999)]
    round: Option<i16>,
    /// Whether all matches of the round have a result or are void, and the table includes all results; null without
    /// `round`.
    #[schema(required)]
    round_complete: Option<bool>,
    /// Members with rank 1 once the round is complete, at most ten; else empty.
    winners: Vec<LeagueUser>,
    /// Cursor of the next page; null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

impl RowItem {
    fn new((row, player): (TableRow, Person), avatars: &AvatarUrls) -> Self {
        Self {
            rank: row.rank,
            user: ListedPersonItem::new(player, avatars),
            points: row.score.points,
            exact: row.score.exact,
            correct: row.score.correct,
            settled: row.score.settled,
            movement: row.movement,
        }
    }
}

/// Get the table of a league.
///
/// Results appear within seconds. Users whom the caller has blocked are omitted; the ranks of other users do not change.
#[utoipa::path(get, path = "/api/auth/leagues/{league}/table", tag = "Leagues", security(("token" = [])),
    params(("league" = LeagueId, Path, description = "Id of the league"), TableParameters),
    responses(
        (status = 200, body = TableResponse),
        (status = 404, description = "The league does not exist, or is private and the caller is not a member", body = ErrorBody),
    ))]
pub(super) async fn get_league_table(
    State(leagues): State<Leagues>,
    State(avatars): State<AvatarUrls>,
    user: CurrentUser,
    CallerReader(reader): CallerReader,
    Path(id): Path<LeagueId>,
    Query(wanted): Query<TableParameters>,
) -> Result<Json<TableResponse>, ApiError> {
    let round = wanted.round.map(|RoundNumber(round)| round);
    let limit = wanted.per_page.map_or(MOST_ROWS, |RowLimit(rows)| rows.min(MOST_ROWS));
    let page = TablePage { round, after: wanted.cursor, limit };
    let TableView { rows, own, neighbours, total_members, round_complete, winners, next } =
        leagues.table(&reader, user.id, id, page).await?;
    let item = |row| RowItem::new(row, &avatars);
    let data = TableData {
        rows: rows.into_iter().map(item).collect(),
        me: own.map(item),
        neighbours: neighbours.into_iter().map(item).collect(),
    };
    let meta = TableMeta {
        total_members,
        round,
        round_complete,
        winners: winners.into_iter().map(LeagueUser::from).collect(),
        next_cursor: next.map(|next| next.to_string()),
    };
    Ok(Json(TableResponse { data, meta }))
}
