//! Payloads of the live stream: the `data` of each kind of stream event.

use std::fmt::Display;

use scoring::{Outcome, Side};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::ids::{LeagueId, MatchId, TournamentId};

use super::rules::TallyFact;
use crate::{
    catalogue::matches::{
        facts::{MatchFact, TeamName},
        rules::{PublicStatus, Status},
    },
    game::{
        predictions::Distribution,
        scores::rounds::{RoundFact, Winner},
        seals::rules::Seal,
    },
};

/// A stream event, as a client for server-sent events parses it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its documentation is used: the stream is text")]
pub(crate) struct StreamEvent {
    /// Position in the stream, from which a client can resume.
    #[schema(example = "1794774696627-40", pattern = "^[0-9]{1,18}-[0-9]{1,18}$")]
    id: String,
    /// Kind of event, which determines the schema of `data`: `StreamMatch`, `StreamResult`, `StreamTally`,
    /// `StreamPoints`, `StreamRank`, `StreamLeagueRank`, `StreamRound`, `Seal`, `StreamChat`, or an empty object for `reset`.
    event: StreamEventKind,
    /// JSON document with the payload.
    #[schema(content_media_type = "application/json", example = r#"{"event_id":5,"points_earned":48}"#)]
    data: String,
}

/// Kind of a stream event.
#[derive(Clone, Copy, ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum StreamEventKind {
    /// A match was created or changed.
    Event,
    /// A match has a new, corrected or withdrawn result.
    Result,
    /// The tally of a match changed.
    Tally,
    /// Points that the caller earned with a match.
    Points,
    /// The caller's overall rank.
    Rank,
    /// The caller's rank in a league changed.
    #[schema(rename = "league.rank")]
    LeagueRank,
    /// A round of a tournament is complete, or its winners may have changed.
    Round,
    /// The predictions of a match are sealed.
    Sealed,
    /// Events were missed that are no longer available.
    Reset,
    /// A chat item of a spectator. It has no `id`.
    #[expect(dead_code, reason = "the spectator view renders its items itself")]
    Chat,
}

impl StreamEventKind {
    fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Result => "result",
            Self::Tally => "tally",
            Self::Points => "points",
            Self::Rank => "rank",
            Self::LeagueRank => "league.rank",
            Self::Round => "round",
            Self::Sealed => "sealed",
            Self::Reset => "reset",
            Self::Chat => "chat",
        }
    }
}

/// Current state of a match.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamMatch {
    event_id: MatchId,
    tournament_id: TournamentId,
    home_team: TeamName,
    away_team: TeamName,
    status: PublicStatus,
    /// Detailed state behind `status`. For example, `postponed` is shown as `scheduled`.
    status_detail: Status,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    start_time: OffsetDateTime,
    #[schema(required)]
    home_score: Option<i32>,
    #[schema(required)]
    away_score: Option<i32>,
    /// Aspects of the match that changed.
    changed: Vec<Changed>,
}

/// An aspect of a match that changed.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = StreamChange)]
pub(crate) enum Changed {
    /// The match is new.
    Created,
    Status,
    StartTime,
    Score,
}

/// Result of a match.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamResult {
    event_id: MatchId,
    tournament_id: TournamentId,
    /// Number of results the match has had.
    result_revision: i64,
    #[schema(required)]
    home_score: Option<i32>,
    #[schema(required)]
    away_score: Option<i32>,
    /// Team that advanced in a knockout match; null until it is known.
    #[schema(required)]
    advanced: Option<Side>,
    /// Whether predictions of the match count. False if it was cancelled, abandoned or awarded.
    counts: bool,
    /// Whether this corrects an earlier result.
    corrected: bool,
}

/// Prediction tally of a match.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamTally {
    event_id: MatchId,
    tournament_id: TournamentId,
    #[schema(example = 1204)]
    total_predictions: i64,
    prediction_distribution: Distribution,
    /// Average confidence, in percent.
    #[schema(example = 62.5)]
    average_confidence: f64,
}

/// Seal over the predictions of a match.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct StreamSeal<'a>(pub(super) &'a Seal);

/// Points that the caller earned with a match.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamPoints {
    pub(super) event_id: MatchId,
    /// Null if the match does not count.
    #[schema(required, example = 48)]
    pub(super) points_earned: Option<i32>,
}

/// The caller's overall rank, after the scores of a match they predicted were applied.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamRank {
    pub(super) event_id: MatchId,
    #[schema(example = 9)]
    pub(super) rank: i64,
    /// Number of ranked users.
    #[schema(example = 24)]
    pub(super) of: i64,
    #[schema(example = 64)]
    pub(super) points: i32,
}

/// The caller's new rank in a league, after the scores of a match or question were applied.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamLeagueRank {
    pub(super) league_id: LeagueId,
    #[schema(minimum = 1, example = 2)]
    pub(super) rank: i64,
    #[schema(minimum = 1, example = 5)]
    pub(super) previous_rank: i64,
    /// Points of the caller in the league.
    #[schema(example = 412)]
    pub(super) points: i32,
}

/// A round of a tournament that is complete.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamRound {
    tournament_id: TournamentId,
    #[schema(minimum = 1, maximum = 999, example = 7)]
    round: i16,
    /// Users with the most points, at most ten.
    winners: Vec<Winner>,
    /// Points of the winners in this round; null if no user predicted a match of it.
    #[schema(required, example = 118)]
    points: Option<i32>,
}

impl StreamRound {
    pub(super) fn new(fact: &RoundFact) -> Self {
        let RoundFact { tournament_id, round, winners, points, .. } = fact.clone();
        Self { tournament_id, round, winners, points }
    }
}

/// Payload of a `reset` event.
#[derive(Serialize)]
pub(super) struct ResetPayload {}

/// Payload of one kind of stream event.
pub(super) trait Data: Serialize {
    const KIND: StreamEventKind;

    /// Renders the event without its id.
    fn frame(&self) -> String {
        // JSON has no line breaks, so one line is enough.
        let data = serde_json::to_string(self).unwrap_or_default();
        format!("event: {}\ndata: {data}\n\n", Self::KIND.name())
    }

    /// Renders the event with its id, after which a client can resume.
    fn frame_at(&self, position: impl Display) -> String {
        format!("id: {position}\n{}", self.frame())
    }
}

impl Data for StreamMatch {
    const KIND: StreamEventKind = StreamEventKind::Event;
}

impl Data for StreamResult {
    const KIND: StreamEventKind = StreamEventKind::Result;
}

impl Data for StreamTally {
    const KIND: StreamEventKind = StreamEventKind::Tally;
}

impl Data for StreamPoints {
    const KIND: StreamEventKind = StreamEventKind::Points;
}

impl Data for StreamRank {
    const KIND: StreamEventKind = StreamEventKind::Rank;
}

impl Data for StreamLeagueRank {
    const KIND: StreamEventKind = StreamEventKind::LeagueRank;
}

impl Data for StreamRound {
    const KIND: StreamEventKind = StreamEventKind::Round;
}

impl Data for StreamSeal<'_> {
    const KIND: StreamEventKind = StreamEventKind::Sealed;
}

impl Data for ResetPayload {
    const KIND: StreamEventKind = StreamEventKind::Reset;
}

impl StreamMatch {
    pub(super) fn new(fact: &MatchFact) -> Self {
        Self {
            event_id: fact.event_id,
            tournament_id: fact.tournament_id,
            home_team: fact.home_team.clone(),
            away_team: fact.away_team.clone(),
            status: fact.now.status.public(),
            status_detail: fact.now.status,
            start_time: fact.now.start_time,
            home_score: fact.now.home_score,
            away_score: fact.now.away_score,
            changed: changed(fact),
        }
    }
}

impl StreamResult {
    pub(super) fn new(fact: &MatchFact) -> Self {
        Self {
            event_id: fact.event_id,
            tournament_id: fact.tournament_id,
            result_revision: fact.result_revision,
            home_score: fact.now.home_score,
            away_score: fact.now.away_score,
            advanced: fact.now.advanced,
            counts: matches!(fact.now.outcome(), Outcome::Result { .. }),
            corrected: fact.is_correction(),
        }
    }
}

impl StreamTally {
    pub(super) fn new(fact: &TallyFact) -> Self {
        let TallyFact { event_id, tournament_id, home, draw, away, average_confidence } = *fact;
        Self {
            event_id,
            tournament_id,
            total_predictions: home + draw + away,
            prediction_distribution: Distribution { home, draw, away },
            average_confidence,
        }
    }
}

/// Returns the aspects that differ from the previous state.
fn changed(fact: &MatchFact) -> Vec<Changed> {
    let Some(before) = fact.before else { return vec![Changed::Created] };
    let now = fact.now;
    [
        (Changed::Status, before.status != now.status),
        (Changed::StartTime, before.start_time != now.start_time),
        (Changed::Score, before.scores() != now.scores()),
    ]
    .into_iter()
    .filter_map(|(name, differs)| differs.then_some(name))
    .collect()
}
