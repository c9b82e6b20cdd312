//! HTTP handlers for leaderboards.

use std::time::Duration;

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use web::{
    ApiError, ErrorBody, Query,
    fields::{FromParameters, FromQuery, Parameters},
    ids::TournamentId,
    paging::Top,
};

use super::{
    leaderboard::{Entry, Leaderboard, Leaderboards, Period, Table},
    leaderboard_cache::LeaderboardError,
    rounds::{self, MOST_WINNERS, Winner},
};
use crate::{
    catalogue::matches::rules::RoundNumber,
    chat::rooms::{
        RoomAddress,
        service::{RoomError, Rooms},
    },
    game::follows::service::Follows,
    identity::{
        accounts::{ListedPersonItem, Person},
        avatars::AvatarUrls,
        callers::CallerReader,
        sessions::CurrentUser,
    },
};

/// `Retry-After` of a rebuild: building a large leaderboard takes a few seconds.
const REBUILD_RETRY_AFTER: Duration = Duration::from_secs(3);

impl From<LeaderboardError> for ApiError {
    fn from(error: LeaderboardError) -> Self {
        match error {
            LeaderboardError::Database(error) => error.into(),
            LeaderboardError::Players(error) => error.into(),
            LeaderboardError::Rebuilding => Self::unavailable(
                "leaderboard_rebuilding",
                "The leaderboard is being rebuilt. Try again in a few seconds.",
            )
            .after(REBUILD_RETRY_AFTER),
            LeaderboardError::TooManyPast(after) => Self::unavailable(
                "leaderboard_rebuilding",
                "Too many leaderboards of past rounds were requested. Try again later.",
            )
            .after(after),
            LeaderboardError::BreakerOpen
            | LeaderboardError::Redis(_)
            | LeaderboardError::Late
            | LeaderboardError::ClaimLost => {
                // The failures that opened the circuit breaker were already logged.
                if !matches!(error, LeaderboardError::BreakerOpen) {
                    tracing::warn!(%error, "leaderboard request failed");
                }
                Self::unavailable("leaderboard_unavailable", "Leaderboards are unavailable. Try again shortly.")
            }
        }
    }
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct BoardQuery {
    /// Matches that count, by start time: all matches, or only the current month or week (UTC).
    #[param(value_type = Option<PeriodName>, default = "all")]
    period: PeriodName,
    /// Only matches of this tournament. Requires the period `all`.
    #[param(value_type = Option<i64>, minimum = 1)]
    tournament_id: Option<TournamentId>,
    /// Only matches of this round. Requires `tournament_id`.
    #[param(value_type = Option<i16>, minimum = 1, maximum = 999)]
    round: Option<RoundNumber>,
    /// Only members of this chat room, given by its Matrix room id. All stands of a match share one leaderboard.
    #[param(value_type = Option<String>, max_length = 255, pattern = r"^![^:\x00-\x1f\x7f-\x9f]+:[^\x00-\x1f\x7f-\x9f]+$", example = "!auQboWavgiRMaylzYl:example.org")]
    room_id: Option<RoomAddress>,
    /// `following` is the leaderboard of the caller and the users whom the caller follows. It cannot be combined with
    /// `room_id`.
    #[param(value_type = Option<Among>, default = "all")]
    among: Among,
}

impl FromParameters for BoardQuery {
    fn from_parameters(parameters: &mut Parameters<'_>) -> Option<Self> {
        let period = parameters.optional::<PeriodName>("period");
        let tournament_id = parameters.optional("tournament_id");
        let round = parameters.optional("round");
        let room_id = parameters.optional("room_id");
        let among = parameters.optional::<Among>("among");
        let room_given = matches!(&room_id, Some(Some(_)));
        if room_given && among == Some(Some(Among::Following)) {
            return parameters.fault("among", "must be all if room_id is given");
        }
        let tournament_given = tournament_id.is_some_and(|id| id.is_some());
        if tournament_given && matches!(period, Some(Some(PeriodName::Month | PeriodName::Week))) {
            return parameters.fault("period", "must be all if tournament_id is given");
        }
        if matches!((&tournament_id, &round), (Some(None), Some(Some(_)))) {
            return parameters.fault("tournament_id", "is required with round");
        }
        Some(Self {
            period: period?.unwrap_or_default(),
            tournament_id: tournament_id?,
            round: round?,
            room_id: room_id?,
            among: among?.unwrap_or_default(),
        })
    }
}

/// Period of a leaderboard.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = LeaderboardPeriod)]
enum PeriodName {
    #[default]
    All,
    Month,
    Week,
}

impl FromQuery for PeriodName {
    const EXPECTED: &'static str = "must be all, month or week";

    fn from_query(text: &str) -> Option<Self> {
        match text {
            "all" => Some(Self::All),
            "month" => Some(Self::Month),
            "week" => Some(Self::Week),
            _ => None,
        }
    }
}

/// Users whom a leaderboard compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = LeaderboardAmong)]
enum Among {
    #[default]
    All,
    /// The caller and the users whom the caller follows.
    Following,
}

impl FromQuery for Among {
    const EXPECTED: &'static str = "must be all or following";

    fn from_query(text: &str) -> Option<Self> {
        match text {
            "all" => Some(Self::All),
            "following" => Some(Self::Following),
            _ => None,
        }
    }
}

impl FromQuery for RoomAddress {
    const EXPECTED: &'static str = "must be a room id, such as !a:example.org";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Leaderboard)]
pub(super) struct LeaderboardResponse {
    data: BoardItem,
    meta: BoardMeta,
}

/// Top of the leaderboard, and the caller's position.
#[derive(Serialize, ToSchema)]
#[schema(as = LeaderboardData)]
struct BoardItem {
    top: Vec<EntryItem>,
    /// Null if none of the matches that the caller predicted has a result.
    #[schema(required)]
    me: Option<EntryItem>,
    /// Up to five users before the caller, the caller, and up to five users after. Empty if `me` is null.
    neighbours: Vec<EntryItem>,
}

/// A user on the leaderboard. Users with equal points share a rank and are sorted by exact scores, then by correct
/// outcomes.
#[derive(Serialize, ToSchema)]
#[schema(as = LeaderboardEntry)]
struct EntryItem {
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
}

/// Selection that the leaderboard shows.
#[derive(Serialize, ToSchema)]
#[schema(as = LeaderboardMeta)]
struct BoardMeta {
    /// Number of users on the leaderboard, including users that the response omits.
    #[schema(example = 1204)]
    total_players: i64,
    period: PeriodName,
    #[schema(required)]
    tournament_id: Option<TournamentId>,
    #[schema(required)]
    room_id: Option<String>,
    #[schema(required, minimum = 1, maximum = 999)]
    round: Option<i16>,
    /// Whether all matches of the round have a result or are void, and the leaderboard includes all results; null
    /// without `round`.
    #[schema(required)]
    round_complete: Option<bool>,
    /// Users with rank 1 once the round is complete, at most ten; else empty.
    winners: Vec<Winner>,
    among: Among,
}

impl EntryItem {
    fn new(entry: Entry, avatars: &AvatarUrls) -> Self {
        let person = Person {
            id: entry.user_id,
            username: entry.username,
            name: entry.name,
            shows_name: true,
            avatar: entry.avatar,
        };
        Self {
            rank: entry.rank,
            user: ListedPersonItem::new(person, avatars),
            points: entry.points,
            exact: entry.exact,
            correct: entry.correct,
            settled: entry.settled,
        }
    }
}

/// Get a leaderboard and the caller's position on it.
///
/// Results appear within seconds. Users whom the caller has blocked are omitted; the ranks of other users do not
/// change.
#[utoipa::path(get, path = "/api/auth/leaderboards", tag = "Predictions", security(("token" = [])),
    params(BoardQuery, Top),
    responses(
        (status = 200, body = LeaderboardResponse),
        (status = 403, description = "The room is private and the caller is not a member (`not_allowed`)", body = ErrorBody),
        (status = 503, description = "The leaderboard is being rebuilt (`leaderboard_rebuilding`) or leaderboards are unavailable (`leaderboard_unavailable`); retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn get_leaderboard(
    State(leaderboards): State<Leaderboards>,
    State(rooms): State<Rooms>,
    State(follows): State<Follows>,
    State(avatars): State<AvatarUrls>,
    user: CurrentUser,
    CallerReader(reader): CallerReader,
    Query((selection, top)): Query<(BoardQuery, Top)>,
) -> Result<Json<LeaderboardResponse>, ApiError> {
    let round = selection.tournament_id.zip(selection.round).map(|(id, RoundNumber(round))| (id, round));
    let table = match (selection.tournament_id, round, selection.period) {
        (_, Some((id, round)), _) => Table::OfRound(id, round),
        (Some(id), None, _) => Table::OfTournament(id),
        (None, None, PeriodName::All) => Table::Of(Period::All),
        (None, None, PeriodName::Month) => Table::Of(Period::Month),
        (None, None, PeriodName::Week) => Table::Of(Period::Week),
    };
    // Read first: a leaderboard that is read later includes all results of a complete round.
    let round_complete = match round {
        Some((tournament, round)) => Some(leaderboards.is_complete(tournament, round).await?),
        None => None,
    };
    // Winners are read from the top.
    let least = if round_complete == Some(true) { i64::try_from(MOST_WINNERS).unwrap_or(i64::MAX) } else { 0 };
    let shown = top.per_page.max(least);
    let mut board = match &selection.room_id {
        None if selection.among == Among::Following => {
            leaderboards.among_followed((&follows, &reader), table, user.id, shown).await?
        }
        None => leaderboards.global(table, user.id, shown).await?,
        Some(address) => match rooms.find_readable(user.id, address).await {
            Ok(room) => match rooms.large_room(&room).await? {
                None => leaderboards.of_room(&reader, table, &room, user.id, shown).await?,
                Some(id) => leaderboards.of_large_room(table, (id, &room), user.id, shown).await?,
            },
            Err(RoomError::NotFound) => Leaderboard::default(),
            Err(error) => return Err(error.into()),
        },
    };
    let winners = match round_complete {
        Some(true) => rounds::winners(&board.top).map(Winner::from).collect(),
        _ => Vec::new(),
    };
    board.top.truncate(usize::try_from(top.per_page).unwrap_or(usize::MAX));
    let meta = BoardMeta {
        total_players: board.total,
        period: selection.period,
        tournament_id: selection.tournament_id,
        room_id: selection.room_id.map(|address| address.to_string()),
        round: round.map(|(_, round)| round),
        round_complete,
        winners,
        among: selection.among,
    };
    let item = |entry| EntryItem::new(entry, &avatars);
    let data = BoardItem {
        top: board.top.into_iter().map(item).collect(),
        me: board.own.map(item),
        neighbours: board.neighbours.into_iter().map(item).collect(),
    };
    Ok(Json(LeaderboardResponse { data, meta }))
}
