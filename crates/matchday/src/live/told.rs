//! The words of the stream: what stands in the `data` of each kind of event.

use std::fmt::Display;

use scoring::Outcome;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::ids::{EventId, TournamentId};

use super::rules::TallyFact;
use crate::{
    events::{
        facts::{EventFact, TeamName},
        rules::{PublicStatus, Status},
    },
    predictions::Distribution,
};

/// An event of the stream, as a client that reads server-sent events takes it apart.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its documentation is used: the stream is text")]
pub(crate) struct StreamEvent {
    /// The place in the stream, to go on after.
    #[schema(example = "1794774696627-40", pattern = "^[0-9]{1,18}-[0-9]{1,18}$")]
    id: String,
    /// Which schema describes `data`: `StreamMatch`, `StreamResult`, `StreamTally`, `StreamPoints`, `StreamRank`, or an
    /// empty object for `reset`.
    event: StreamEventKind,
    /// JSON.
    #[schema(content_media_type = "application/json", example = r#"{"event_id":5,"points_earned":48}"#)]
    data: String,
}

/// What kind of event it is.
#[derive(Clone, Copy, ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum StreamEventKind {
    /// A match is new or different.
    Event,
    /// A match has a result, another one, or none any more.
    Result,
    /// A match is predicted otherwise.
    Tally,
    /// What the caller earned with a match.
    Points,
    /// Where the caller is among all.
    Rank,
    /// Something was missed that cannot be had any more.
    Reset,
}

impl StreamEventKind {
    fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Result => "result",
            Self::Tally => "tally",
            Self::Points => "points",
            Self::Rank => "rank",
            Self::Reset => "reset",
        }
    }
}

/// A match as it is now.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamMatch {
    event_id: EventId,
    tournament_id: TournamentId,
    home_team: TeamName,
    away_team: TeamName,
    status: PublicStatus,
    /// What lies behind the status, as in `postponed`, which is shown as `scheduled`.
    status_detail: Status,
    #[serde(with = "time::serde::rfc3339")]
    #[schema(example = "2026-11-20T15:00:00Z")]
    start_time: OffsetDateTime,
    #[schema(required)]
    home_score: Option<i32>,
    #[schema(required)]
    away_score: Option<i32>,
    /// What is not as before.
    changed: Vec<Changed>,
}

/// What is not as before in a match.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = StreamChange)]
pub(crate) enum Changed {
    /// All of it: the match is new.
    Created,
    /// Its status.
    Status,
    /// When it starts.
    StartTime,
    /// Its goals.
    Score,
}

/// The result of a match.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamResult {
    event_id: EventId,
    tournament_id: TournamentId,
    /// How many results the match has had.
    result_revision: i64,
    #[schema(required)]
    home_score: Option<i32>,
    #[schema(required)]
    away_score: Option<i32>,
    /// Whether predictions of it count: not where it was called off, abandoned or awarded.
    counts: bool,
    /// Whether an earlier result was wrong.
    corrected: bool,
}

/// How a match is predicted.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamTally {
    event_id: EventId,
    tournament_id: TournamentId,
    #[schema(example = 1204)]
    total_predictions: i64,
    prediction_distribution: Distribution,
    /// In percent.
    #[schema(example = 62.5)]
    average_confidence: f64,
}

/// What the caller earned with a match.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamPoints {
    pub(super) event_id: EventId,
    /// Null where the match does not count.
    #[schema(required, example = 48)]
    pub(super) points_earned: Option<i32>,
}

/// The caller's place among all, after a match they predicted was counted.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamRank {
    pub(super) event_id: EventId,
    #[schema(example = 9)]
    pub(super) rank: i64,
    /// Among how many.
    #[schema(example = 24)]
    pub(super) of: i64,
    #[schema(example = 64)]
    pub(super) points: i32,
}

/// What is told with nothing more to say.
#[derive(Serialize)]
pub(super) struct Nothing {}

/// What is put into an event, and of which kind that event is.
pub(super) trait Data: Serialize {
    const KIND: StreamEventKind;

    /// The event, without its id.
    fn frame(&self) -> String {
        // JSON has no line breaks, so one line is enough.
        let data = serde_json::to_string(self).unwrap_or_default();
        format!("event: {}\ndata: {data}\n\n", Self::KIND.name())
    }

    /// The event with its id, by which a client comes back to after it.
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

impl Data for Nothing {
    const KIND: StreamEventKind = StreamEventKind::Reset;
}

impl StreamMatch {
    pub(super) fn new(fact: &EventFact) -> Self {
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
    pub(super) fn new(fact: &EventFact) -> Self {
        Self {
            event_id: fact.event_id,
            tournament_id: fact.tournament_id,
            result_revision: fact.result_revision,
            home_score: fact.now.home_score,
            away_score: fact.now.away_score,
            counts: matches!(fact.now.outcome(), Outcome::Result { .. }),
            corrected: fact.corrects_a_result(),
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

/// Which of the shown fields are other than before.
fn changed(fact: &EventFact) -> Vec<Changed> {
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
