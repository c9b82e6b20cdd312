//! Imports the questions of fixture documents, and records their resolutions.
//!
//! A resolution, a correction and an annulment each add a row to `question_results`, with the answers stored at that moment.
//! The gate of the question is closed meanwhile, so an answer is either stored before and counts, or is refused.

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use platform::{database, outbox};
use sqlx::PgConnection;
use time::{Duration, OffsetDateTime, UtcOffset};
use web::ids::{MatchId, QuestionId, TeamId, TournamentId};

use super::{
    rules::{Choice, NumberScoring, Shape},
    service::Questions,
    store::definitions::{self, Definition, NewResult, QuestionMatch, StoredQuestion},
};
use crate::{
    catalogue::{
        fixtures::{
            document::{Fault, QuestionEntry, ResolutionEntry},
            hooks::{Imported, QuestionError, QuestionImport, QuestionReport},
        },
        matches::gates,
    },
    game::scores::service::planned_question,
};

/// Time after which a result that has not reached all scores is planned again.
const LOOK_AGAIN: Duration = Duration::minutes(2);

impl QuestionImport for Questions {
    fn import_in<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        imported: Imported<'a>,
    ) -> BoxFuture<'a, Result<QuestionReport, QuestionError>> {
        Box::pin(import(connection, imported))
    }
}

impl From<sqlx::Error> for QuestionError {
    fn from(error: sqlx::Error) -> Self {
        Self::Other(error.into())
    }
}

impl From<serde_json::Error> for QuestionError {
    fn from(error: serde_json::Error) -> Self {
        Self::Other(error.into())
    }
}

/// A question to be written.
struct Write<'a> {
    key: &'a str,
    stored: Option<&'a StoredQuestion>,
    wanted: Definition,
    /// Time of the lock, and the round that counts.
    counts: (OffsetDateTime, Option<i16>),
    new_result: bool,
}

async fn import(connection: &mut PgConnection, imported: Imported<'_>) -> Result<QuestionReport, QuestionError> {
    let Imported { document, tournament, teams, changed, closes_gates } = imported;
    let mut report = QuestionReport::default();
    let entries = &document.questions;
    if entries.is_empty() && changed.is_empty() {
        return Ok(report);
    }
    let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    let match_keys: Vec<&str> = entries.iter().filter_map(|entry| entry.match_key.as_deref()).collect();
    let changed: Vec<i64> = changed.iter().map(|event| event.0).collect();
    let stored = definitions::stored(connection, tournament, &keys, &changed).await?;
    let ids: Vec<i64> = stored.values().filter_map(|stored| stored.definition.event).map(|event| event.0).collect();
    let matches = definitions::matches(connection, tournament, &match_keys, &ids).await?;
    let mut writes = compare(entries, teams, &stored, &matches, &mut report)?;
    // A question that the document leaves out counts for another week or round if its match moved.
    let by_id: HashMap<MatchId, QuestionMatch> = matches.values().map(|found| (found.id, *found)).collect();
    for (key, stored) in &stored {
        if keys.contains(&key.as_str()) || stored.counted.is_none() {
            continue;
        }
        let counts = counts(&stored.definition, stored.definition.event.and_then(|event| by_id.get(&event)));
        if let Some(counts) = counts
            && stored.counted != Some(counts)
        {
            let wanted = stored.definition.clone();
            writes.push(Write { key, stored: Some(stored), wanted, counts, new_result: true });
        }
    }
    if closes_gates {
        gates::close_questions(connection, writes.iter().filter_map(|write| Some(write.stored?.id.0))).await?;
    }
    for write in &writes {
        report.results += usize::from(write.new_result);
        save(connection, tournament, write).await?;
    }
    Ok(report)
}

/// Stores a new question of a tournament. Fails if its key is taken.
pub(super) async fn add(
    connection: &mut PgConnection,
    tournament: TournamentId,
    entry: &QuestionEntry,
) -> Result<QuestionId, QuestionError> {
    let match_keys: Vec<&str> = entry.match_key.as_deref().into_iter().collect();
    let stored = definitions::stored(connection, tournament, &[&entry.key], &[]).await?;
    if !stored.is_empty() {
        let problem = format!("`{}` is the key of another question of this tournament", entry.key);
        return Err(QuestionError::Conflict(vec![Fault { place: "key".to_owned(), problem }]));
    }
    let matches = definitions::matches(connection, tournament, &match_keys, &[]).await?;
    let entries = std::slice::from_ref(entry);
    let writes = compare(entries, &[], &stored, &matches, &mut QuestionReport::default())?;
    let write = writes.first().ok_or(sqlx::Error::RowNotFound)?;
    save(connection, tournament, write).await
}

/// Changes the resolution of a question, while its gate is closed.
pub(super) async fn settle(
    connection: &mut PgConnection,
    found: &definitions::QuestionForOperator,
    resolution: Option<Vec<i64>>,
    is_void: bool,
) -> Result<(), QuestionError> {
    gates::close_questions(connection, [found.stored.id.0].into_iter()).await?;
    let wanted = Definition { resolution, is_void, ..found.stored.definition.clone() };
    let counts = (found.locks_at, found.round);
    let new_result = changes_points(Some(&found.stored), &wanted, counts);
    let write = Write { key: "", stored: Some(&found.stored), wanted, counts, new_result };
    save(connection, found.tournament, &write).await?;
    Ok(())
}

/// Writes a question, and its result if that changed.
async fn save(
    connection: &mut PgConnection,
    tournament: TournamentId,
    write: &Write<'_>,
) -> Result<QuestionId, QuestionError> {
    let now = database::now(&mut *connection).await?;
    let wanted = &write.wanted;
    let id = if let Some(stored) = write.stored {
        definitions::update_question(connection, stored.id, wanted).await?;
        stored.id
    } else {
        definitions::insert_question(connection, tournament, write.key, wanted, now).await?
    };
    if !write.new_result {
        return Ok(id);
    }
    let nearest = wanted.resolution.as_ref().filter(|_| wanted.scoring == Some(NumberScoring::Nearest));
    let distance = match nearest.and_then(|numbers| numbers.first()) {
        Some(&number) => definitions::smallest_distance(connection, id, number).await?,
        None => None,
    };
    let (locks_at, round) = write.counts;
    let result = NewResult {
        question: id,
        resolution: wanted.resolution.as_deref(),
        points: wanted.points,
        distance,
        locks_at,
        round,
    };
    definitions::record_result(connection, &result, now, now + LOOK_AGAIN).await?;
    outbox::enqueue(connection, &[planned_question(id)?]).await?;
    Ok(id)
}

/// Returns the time and round that a question counts for; `None` if its match is missing.
fn counts(definition: &Definition, found: Option<&QuestionMatch>) -> Option<(OffsetDateTime, Option<i16>)> {
    match (definition.event, found) {
        (None, _) => Some((definition.locks_at?, definition.round)),
        (Some(_), Some(found)) => Some((definition.locks_at.unwrap_or(found.start_time), found.round)),
        (Some(_), None) => None,
    }
}

/// Returns the questions that are new or changed.
fn compare<'a>(
    entries: &'a [QuestionEntry],
    teams: &[TeamId],
    stored: &'a HashMap<String, StoredQuestion>,
    matches: &HashMap<String, QuestionMatch>,
    report: &mut QuestionReport,
) -> Result<Vec<Write<'a>>, QuestionError> {
    let (mut writes, mut faults) = (Vec::new(), Vec::new());
    for (at, entry) in entries.iter().enumerate() {
        let mut fault = |field: &str, problem: String| {
            faults.push(Fault { place: format!("questions[{at}].{field}"), problem });
        };
        let found = match &entry.match_key {
            None => None,
            Some(key) => {
                let found = matches.get(key);
                if found.is_none() {
                    fault("match", format!("no match of this tournament has the key `{key}`"));
                    continue;
                }
                found
            }
        };
        let before = stored.get(&entry.key);
        let wanted = define(entry, teams, before, found);
        for (field, problem) in before.into_iter().flat_map(|before| fixed_fields(&before.definition, &wanted)) {
            fault(field, problem);
        }
        let Some(counts) = counts(&wanted, found) else { continue };
        if wanted.opens_at.is_some_and(|opens_at| opens_at >= counts.0) {
            fault("opens_at", "must be before the question locks".to_owned());
            continue;
        }
        let new_result = changes_points(before, &wanted, counts);
        match before {
            Some(before) if before.definition == wanted && !new_result => {
                report.unchanged += 1;
                continue;
            }
            Some(before) => {
                report.changed += 1;
                report.changes.push(format!("{}: {}", entry.key, changes(&before.definition, &wanted).join(", ")));
            }
            None => report.new += 1,
        }
        writes.push(Write { key: &entry.key, stored: before, wanted, counts, new_result });
    }
    if faults.is_empty() { Ok(writes) } else { Err(QuestionError::Conflict(faults)) }
}

/// Builds the question that an entry describes. Stored options keep their numbers.
fn define(
    entry: &QuestionEntry,
    teams: &[TeamId],
    before: Option<&StoredQuestion>,
    found: Option<&QuestionMatch>,
) -> Definition {
    let known: &[Choice] = before.map_or(&[], |before| &before.definition.shape.options);
    let mut next = known.iter().map(|option| option.number + 1).max().unwrap_or_default();
    let options: Vec<Choice> = entry
        .options
        .iter()
        .map(|option| {
            let number = known.iter().find(|known| known.key == option.key).map(|known| known.number);
            let number = number.unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            Choice { number, key: option.key.clone(), label: option.label.clone() }
        })
        .collect();
    let resolution = entry.resolution.as_ref().map(|resolution| match resolution {
        ResolutionEntry::Options(keys) => {
            let right = options.iter().filter(|option| keys.contains(&option.key));
            vec![right.map(Choice::bit).sum()]
        }
        ResolutionEntry::Teams(indices) => {
            let mut ids: Vec<i64> = indices.iter().filter_map(|&index| teams.get(index)).map(|team| team.0).collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        }
        ResolutionEntry::Number(number) => vec![*number],
    });
    let utc = |moment: OffsetDateTime| moment.to_offset(UtcOffset::UTC);
    Definition {
        event: found.map(|found| found.id),
        round: entry.round,
        text: entry.text.clone(),
        shape: Shape { kind: entry.kind, options, pick: entry.pick },
        scoring: entry.scoring,
        points: entry.points,
        opens_at: entry.opens_at.map(utc),
        locks_at: entry.locks_at.map(utc),
        resolution,
        is_void: entry.is_void,
    }
}

/// Returns a fault for each field that a stored question keeps and the document changes.
fn fixed_fields(before: &Definition, wanted: &Definition) -> Vec<(&'static str, String)> {
    let keeps = "an existing question keeps its";
    let lacks = |option: &&Choice| !wanted.shape.options.iter().any(|kept| kept.key == option.key);
    let removed = before.shape.options.iter().find(lacks);
    [
        (before.shape.kind != wanted.shape.kind, "kind", format!("{keeps} kind, {}", before.shape.kind.name())),
        (before.event != wanted.event, "match", format!("{keeps} match")),
        (before.round != wanted.round, "round", format!("{keeps} round")),
        (before.shape.pick != wanted.shape.pick, "pick", format!("{keeps} number of options in an answer")),
        (before.scoring != wanted.scoring, "scoring", format!("{keeps} scoring")),
        (
            removed.is_some(),
            "options",
            format!("{keeps} options; `{}` is missing", removed.map_or("", |option| option.key.as_str())),
        ),
    ]
    .into_iter()
    .filter_map(|(is_fault, field, problem)| is_fault.then_some((field, problem)))
    .collect()
}

/// Whether the points of answers change, or the leaderboards that they count for.
fn changes_points(before: Option<&StoredQuestion>, wanted: &Definition, counts: (OffsetDateTime, Option<i16>)) -> bool {
    let Some(before) = before else { return wanted.resolution.is_some() };
    let earlier = &before.definition;
    earlier.resolution != wanted.resolution
        || (wanted.resolution.is_some() && (earlier.points != wanted.points || before.counted != Some(counts)))
}

/// Describes the changes of an existing question.
fn changes(before: &Definition, wanted: &Definition) -> Vec<&'static str> {
    let resolution = match (&before.resolution, &wanted.resolution) {
        (None, Some(_)) => "resolved",
        (Some(_), None) => "resolution taken back",
        _ => "resolution corrected",
    };
    let changes = [
        (before.text != wanted.text, "text changed"),
        (before.shape.options != wanted.shape.options, "options changed"),
        (before.points != wanted.points, "points changed"),
        (before.opens_at != wanted.opens_at, "opening moved"),
        (before.locks_at != wanted.locks_at, "lock moved"),
        (before.resolution != wanted.resolution, resolution),
        (!before.is_void && wanted.is_void, "made void"),
        (before.is_void && !wanted.is_void, "no longer void"),
    ];
    let changes: Vec<&str> = changes.into_iter().filter_map(|(changed, line)| changed.then_some(line)).collect();
    // Only the match changed.
    if changes.is_empty() { vec!["moved with its match"] } else { changes }
}
