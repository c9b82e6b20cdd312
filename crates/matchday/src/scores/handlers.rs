//! HTTP for leaderboards.

use std::time::Duration;

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use web::{
    ApiError, ErrorBody, Query,
    fields::{FromParameters, FromQuery, Parameters},
    ids::{TournamentId, UserId},
    paging::Top,
};

use super::{
    boards::BoardError,
    leaderboard::{Entry, Leaderboard, Leaderboards, Period, Table},
};
use crate::{
    rooms::{
        RoomAddress,
        service::{RoomError, Rooms},
    },
    sessions::CurrentUser,
};

/// Filling a large board takes some seconds.
const REBUILDING_TAKES: Duration = Duration::from_secs(3);

impl From<BoardError> for ApiError {
    fn from(error: BoardError) -> Self {
        match error {
            BoardError::Database(error) => error.into(),
            BoardError::Rebuilding => {
                Self::unavailable("leaderboard_rebuilding", "The leaderboard is being filled. Try again shortly.")
                    .after(REBUILDING_TAKES)
            }
            BoardError::Resting | BoardError::Redis(_) | BoardError::Late | BoardError::ClaimLost => {
                // What is not even asked says nothing new.
                if !matches!(error, BoardError::Resting) {
                    tracing::warn!(%error, "leaderboards are not available");
                }
                Self::unavailable("leaderboard_unavailable", "Leaderboards do not answer. Try again shortly.")
            }
        }
    }
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct BoardQuery {
    /// Which matches count, by when they start: all, or those of the present month or week by UTC.
    #[param(value_type = Option<PeriodName>, default = "all")]
    period: PeriodName,
    /// Only matches of this tournament, of all time.
    #[param(value_type = Option<i64>, minimum = 1)]
    tournament_id: Option<TournamentId>,
    /// Only members of this chat room: the homeserver's id of it. All stands of a match are one crowd.
    #[param(value_type = Option<String>, max_length = 255, pattern = r"^![^:\x00-\x1f\x7f-\x9f]+:[^\x00-\x1f\x7f-\x9f]+$", example = "!auQboWavgiRMaylzYl:example.org")]
    room_id: Option<RoomAddress>,
}

impl FromParameters for BoardQuery {
    fn from_parameters(parameters: &mut Parameters) -> Option<Self> {
        let period = parameters.optional::<PeriodName>("period");
        let tournament_id = parameters.optional("tournament_id");
        let room_id = parameters.optional("room_id");
        let tournament_given = tournament_id.is_some_and(|id| id.is_some());
        if tournament_given && matches!(period, Some(Some(PeriodName::Month | PeriodName::Week))) {
            return parameters.fault("period", "must be all with a tournament");
        }
        Some(Self { period: period?.unwrap_or_default(), tournament_id: tournament_id?, room_id: room_id? })
    }
}

/// The name of a time.
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

impl FromQuery for RoomAddress {
    const EXPECTED: &'static str = "must be the id of a room, like !a:example.org";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Leaderboard)]
pub(super) struct BoardAnswer {
    data: BoardItem,
    meta: BoardMeta,
}

/// The first, and where the caller is.
#[derive(Serialize, ToSchema)]
#[schema(as = LeaderboardData)]
struct BoardItem {
    top: Vec<EntryItem>,
    /// Null where no match that the caller predicted has a result.
    #[schema(required)]
    me: Option<EntryItem>,
    /// Up to five before the caller, the caller, and up to five after; empty where the caller has no place.
    neighbours: Vec<EntryItem>,
}

/// A place. By points; those with the same share a rank, and are listed by exact scores, then right outcomes.
#[derive(Serialize, ToSchema)]
#[schema(as = LeaderboardEntry)]
struct EntryItem {
    #[schema(minimum = 1, example = 3)]
    rank: i64,
    user: PlayerItem,
    #[schema(example = 412)]
    points: i32,
    /// Scores that were right to the goal.
    #[schema(example = 4)]
    exact: i32,
    /// Outcomes that were right.
    #[schema(example = 13)]
    correct: i32,
    /// Predicted matches that have a result.
    #[schema(example = 21)]
    settled: i32,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LeaderboardUser)]
struct PlayerItem {
    id: UserId,
    #[schema(example = "swift_winger")]
    username: String,
    #[schema(required, example = "Ada Obi")]
    name: Option<String>,
}

/// What the board is of.
#[derive(Serialize, ToSchema)]
#[schema(as = LeaderboardMeta)]
struct BoardMeta {
    /// How many have a place.
    #[schema(example = 1204)]
    total_players: i64,
    period: PeriodName,
    #[schema(required)]
    tournament_id: Option<TournamentId>,
    #[schema(required)]
    room_id: Option<String>,
}

impl From<Entry> for EntryItem {
    fn from(entry: Entry) -> Self {
        Self {
            rank: entry.rank,
            user: PlayerItem { id: entry.user_id, username: entry.username, name: entry.name },
            points: entry.points,
            exact: entry.exact,
            correct: entry.correct,
            settled: entry.settled,
        }
    }
}

/// Who has earned the most points, and where the caller is among them.
///
/// Follows a result within seconds. Users whom the caller has blocked are left out; the ranks of the others stay.
#[utoipa::path(get, path = "/api/auth/leaderboards", tag = "Predictions", security(("token" = [])),
    params(BoardQuery, Top),
    responses(
        (status = 200, body = BoardAnswer),
        (status = 403, description = "A private room, and the caller is no member (`not_allowed`)", body = ErrorBody),
        (status = 503, description = "The board is being filled (`leaderboard_rebuilding`) or out of reach (`leaderboard_unavailable`); `Retry-After` says when to try again", body = ErrorBody),
    ))]
pub(super) async fn get_leaderboard(
    State(leaderboards): State<Leaderboards>,
    State(rooms): State<Rooms>,
    user: CurrentUser,
    Query((wanted, top)): Query<(BoardQuery, Top)>,
) -> Result<Json<BoardAnswer>, ApiError> {
    let table = match (wanted.tournament_id, wanted.period) {
        (Some(id), _) => Table::OfTournament(id),
        (None, PeriodName::All) => Table::Of(Period::All),
        (None, PeriodName::Month) => Table::Of(Period::Month),
        (None, PeriodName::Week) => Table::Of(Period::Week),
    };
    let board = match &wanted.room_id {
        None => leaderboards.of_everybody(table, user.id, top.per_page).await?,
        Some(address) => match rooms.find_readable(user.id, address).await {
            Ok(room) => leaderboards.of_room(table, &room, user.id, top.per_page).await?,
            Err(RoomError::NotFound) => Leaderboard::default(),
            Err(error) => return Err(error.into()),
        },
    };
    let meta = BoardMeta {
        total_players: board.total,
        period: wanted.period,
        tournament_id: wanted.tournament_id,
        room_id: wanted.room_id.map(|address| address.to_string()),
    };
    let data = BoardItem {
        top: board.top.into_iter().map(EntryItem::from).collect(),
        me: board.own.map(EntryItem::from),
        neighbours: board.neighbours.into_iter().map(EntryItem::from).collect(),
    };
    Ok(Json(BoardAnswer { data, meta }))
}
