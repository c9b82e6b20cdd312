//! Posts announcements to the rooms of a match.
//!
//! Facts arrive in one order for all matches. A first consumer passes each to one of several lanes, chosen by the match. A
//! lane handles its facts strictly in order, so the goals of a match are announced in order, while lanes work in parallel.
//! Within a fact, the rooms of the match are handled in parallel. Rooms that have the announcement are not asked again if
//! another room fails.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_nats::jetstream::message::PublishMessage;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use matrix_appservice::{Error as MatrixError, Homeserver, OwnedRoomId};
use platform::{
    clock::Clock,
    stream::{Begin, Delivery, Failure, Stream, Streams, WorkSpec},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use sqlx::PgPool;
use texts::Catalogue;
use tokio::sync::Semaphore;
use web::ids::{MatchId, RoomId, UserId};

use super::{
    rules::{self, announcements, best_predictors},
    store::{self, AnnouncementRoom},
};
use crate::{
    catalogue::matches::{facts::MatchFact, service as events},
    chat::{
        accounts::service::Chat,
        rooms::{
            RoomAddress,
            service::{Room, RoomError},
        },
    },
    game::{
        predictions::service::Predictions,
        scores::{
            rounds::{self, RoundFact},
            service::{self as scores, ScoresFact},
        },
        seals::{rules::SealFact, service::SEALED},
    },
    identity::{
        idempotency::RequestKey,
        operators::{self, Operator, service::Action},
    },
};

/// Number of predictors named in a room.
const NAMED: usize = 3;

/// Number of lanes. Each costs every process a request to NATS every five seconds.
const LANES: i64 = 4;

/// Prefix of the subjects of lanes.
const LANE: &str = "work.announcement.";

/// Number of rooms of a match in which this process posts at the same time. Synapse handles messages of different rooms
/// in parallel, up to the number of its event persisters.
const ROOMS_AT_ONCE: usize = 8;

/// Number of rooms whose best predictors this process reads at the same time.
const LOOKUPS_AT_ONCE: usize = 2;

/// Number of facts whose progress is remembered. There is at most one for each lane; more come from lanes that other
/// processes took over.
const REMEMBERED: usize = 64;

#[derive(Clone)]
pub struct Announcements {
    pub db: PgPool,
    pub streams: Streams,
    pub chat: Chat,
    pub predictions: Predictions,
    pub clock: Arc<dyn Clock>,
    pub texts: Arc<Catalogue>,
    /// Whether announcements are enabled in the settings.
    pub are_enabled: bool,
    pub progress: Progress,
}

/// Progress of facts, by their ids. Kept while other rooms of the match are retried. It may be lost: a repeated post
/// has the same Matrix transaction id and changes nothing.
#[derive(Clone)]
pub struct Progress {
    facts: Arc<Mutex<HashMap<String, FactProgress>>>,
    /// Limits the rooms whose best predictors are read at the same time. The rooms of many matches need them at once.
    lookups: Arc<Semaphore>,
}

impl Default for Progress {
    fn default() -> Self {
        Self { facts: Arc::default(), lookups: Arc::new(Semaphore::new(LOOKUPS_AT_ONCE)) }
    }
}

#[derive(Clone, Default)]
struct FactProgress {
    /// Rooms that have the announcements, or never will.
    done: HashSet<RoomId>,
    /// Whether there is a room that never will.
    is_given_up: bool,
}

/// Announcements of a fact in each room of its match.
enum Post {
    /// The same messages in all rooms.
    Messages(Vec<Value>),
    /// The best predictors among the members of the room.
    BestPredictors { home: String, away: String, is_corrected: bool },
}

/// A fact on its way to the rooms of its match.
#[derive(Deserialize, Serialize)]
struct Passed<'a> {
    /// Subject of the fact.
    subject: &'a str,
    /// Id of the fact.
    id: &'a str,
    #[serde(borrow)]
    payload: &'a RawValue,
}

impl Announcements {
    /// Returns the consumers of the facts to announce.
    pub fn specs() -> [WorkSpec; 4] {
        let spec = |name: &'static str, subject: &'static str| WorkSpec {
            begin: Begin::Now,
            ..in_order(WorkSpec::new(name, Stream::Facts, subject))
        };
        [
            spec("announcements", events::CHANGED),
            spec("announcements_scores", scores::UPDATED),
            spec("announcements_rounds", rounds::COMPLETED),
            spec("announcements_seals", SEALED),
        ]
    }

    /// Returns the consumers of the lanes. While a goal is being retried, later goals of the same lane wait.
    pub fn lanes() -> Vec<WorkSpec> {
        let spec = |lane| WorkSpec::new(format!("announcements_{lane}"), Stream::Work, format!("{LANE}{lane}"));
        (0..LANES).map(|lane| in_order(spec(lane))).collect()
    }

    /// Passes a fact to the lane of its match.
    pub async fn pass_on(&self, delivery: Delivery) -> Result<(), Failure> {
        if self.chat.homeserver().is_none() || !self.are_enabled {
            return Ok(());
        }
        let Some(id) = delivery.id.as_deref() else {
            return Err(Failure::GiveUp(anyhow::anyhow!("the fact has no id, so a retry would announce it twice")));
        };
        let event = match delivery.subject.as_str() {
            events::CHANGED => {
                let fact: MatchFact = read(&delivery)?;
                if announcements(&self.texts, &fact).is_empty() {
                    return Ok(());
                }
                fact.event_id
            }
            scores::UPDATED => read::<ScoresFact>(&delivery)?.event_id,
            rounds::COMPLETED => read::<RoundFact>(&delivery)?.event_id,
            SEALED => read::<SealFact>(&delivery)?.seal.event_id,
            other => return Err(Failure::GiveUp(anyhow::anyhow!("unexpected subject {other}"))),
        };
        let payload = serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        let passed = serde_json::to_vec(&Passed { subject: &delivery.subject, id, payload });
        let passed = passed.map_err(|error| Failure::GiveUp(error.into()))?;
        let message = PublishMessage::build().message_id(format!("announcement-{id}")).payload(passed.into());
        let lane = format!("{LANE}{}", event.0.rem_euclid(LANES));
        let stored = self.streams.send(&lane, message).await.map_err(Failure::retry)?;
        stored.await.map_err(Failure::retry)?;
        Ok(())
    }

    /// Announces a fact that was passed to a lane.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let Passed { subject, id, payload } =
            serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        let fact = Delivery {
            subject: subject.to_owned(),
            id: Some(id.to_owned()),
            payload: payload.get().to_owned().into(),
            attempt: delivery.attempt,
        };
        self.announce(&fact).await
    }

    /// Announces one fact in the rooms of its match. This is idempotent: each message has a Matrix transaction id
    /// derived from the fact.
    pub async fn announce(&self, delivery: &Delivery) -> Result<(), Failure> {
        let Some(homeserver) = self.chat.homeserver().filter(|_| self.are_enabled) else { return Ok(()) };
        let Some(id) = delivery.id.as_deref() else {
            return Err(Failure::GiveUp(anyhow::anyhow!("the fact has no id, so a retry would announce it twice")));
        };
        match delivery.subject.as_str() {
            events::CHANGED => {
                let fact: MatchFact = read(delivery)?;
                let message = |announcement| rules::message(fact.event_id, announcement, Some(fact.now));
                let messages: Vec<Value> = announcements(&self.texts, &fact).iter().map(message).collect();
                if messages.is_empty() {
                    return Ok(());
                }
                self.in_all_rooms(homeserver, fact.event_id, id, &Post::Messages(messages)).await
            }
            scores::UPDATED => {
                let ScoresFact { event_id, result_revision } = read(delivery)?;
                let teams = store::teams(&self.db, event_id).await.map_err(Failure::retry)?;
                let Some((home, away)) = teams else { return Ok(()) };
                let is_corrected =
                    store::had_scores(&self.db, event_id, result_revision).await.map_err(Failure::retry)?;
                let post = Post::BestPredictors { home, away, is_corrected };
                self.in_all_rooms(homeserver, event_id, id, &post).await
            }
            rounds::COMPLETED => {
                let fact: RoundFact = read(delivery)?;
                let message = rules::message(fact.event_id, &rules::round_completed(&self.texts, &fact), None);
                self.in_all_rooms(homeserver, fact.event_id, id, &Post::Messages(vec![message])).await
            }
            SEALED => {
                let SealFact { seal, .. } = read(delivery)?;
                let message = rules::message(seal.event_id, &rules::sealed(&self.texts, &seal), None);
                self.in_all_rooms(homeserver, seal.event_id, id, &Post::Messages(vec![message])).await
            }
            other => Err(Failure::GiveUp(anyhow::anyhow!("unexpected subject {other}"))),
        }
    }

    /// Handles the rooms of a match in parallel, except finished ones. Returns a failure after all rooms have been
    /// tried, preferably a failure that is worth a retry.
    async fn in_all_rooms(
        &self,
        homeserver: &Homeserver,
        event: MatchId,
        fact: &str,
        post: &Post,
    ) -> Result<(), Failure> {
        let rooms = store::rooms(&self.db, event).await.map_err(Failure::retry)?;
        let done = self.progress.of(fact);
        let mut waiting = rooms.iter().filter(|room| !done.contains(&room.id));
        let (mut running, mut failure) = (FuturesUnordered::new(), None);
        loop {
            while running.len() < ROOMS_AT_ONCE
                && let Some(room) = waiting.next()
            {
                running.push(self.in_room(homeserver, event, fact, post, room));
            }
            match running.next().await {
                Some((room, Ok(()))) => self.progress.note(fact, room, false),
                Some((room, Err(Failure::GiveUp(error)))) => {
                    tracing::error!(%error, room = room.0, "announcement was given up in a room");
                    // The room is not tried again while others are.
                    self.progress.note(fact, room, true);
                }
                Some((_, Err(error))) => failure = failure.or(Some(error)),
                None => break,
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        if self.progress.forget(fact) {
            return Err(Failure::GiveUp(anyhow::anyhow!("the announcement was given up in some rooms")));
        }
        Ok(())
    }

    /// Posts to one room. Returns the room with the outcome.
    async fn in_room(
        &self,
        homeserver: &Homeserver,
        event: MatchId,
        fact: &str,
        post: &Post,
        room: &AnnouncementRoom,
    ) -> (RoomId, Result<(), Failure>) {
        let outcome = match post {
            Post::Messages(messages) => post_all(homeserver, room, fact, messages).await,
            Post::BestPredictors { home, away, is_corrected } => match self.best_of(event, room).await {
                Ok(best) => match best_predictors(&self.texts, home, away, &best, *is_corrected) {
                    Some(announcement) => {
                        let message = rules::message(event, &announcement, None);
                        say(homeserver, room, &format!("{fact}-best"), &message).await
                    }
                    None => Ok(()),
                },
                Err(error) => Err(Failure::retry(error)),
            },
        };
        (room.id, outcome)
    }

    /// Returns the members of a room who earned the most points with a match, as (username, points). Members without
    /// points are left out.
    async fn best_of(&self, event: MatchId, room: &AnnouncementRoom) -> sqlx::Result<Vec<(String, i32)>> {
        let _turn = self.progress.lookups.acquire().await;
        let members = store::members(&self.db, room.id).await?;
        let predictions = self.predictions.of_users(event, &members).await?;
        let mut best: Vec<(UserId, i32)> = predictions
            .iter()
            .filter_map(|prediction| Some((prediction.user_id, prediction.points().filter(|&points| points > 0)?)))
            .collect();
        best.sort_by_key(|&(user, points)| (-points, user));
        best.truncate(NAMED);
        let users: Vec<i64> = best.iter().map(|(user, _)| user.0).collect();
        let names: HashMap<UserId, String> = store::usernames(&self.db, &users).await?.into_iter().collect();
        Ok(best.into_iter().filter_map(|(user, points)| Some((names.get(&user)?.clone(), points))).collect())
    }

    /// Posts a notice of a backend to a room as the bot, and returns its Matrix event id. A repeated request posts nothing.
    pub async fn post_notice(
        &self,
        room: &Room,
        text: &str,
        request: RequestKey,
        operator: &Operator,
    ) -> Result<String, RoomError> {
        if room.is_private {
            return Err(RoomError::Encrypted);
        }
        let none = || RoomError::Chat("no homeserver is configured".to_owned());
        let homeserver = self.chat.homeserver_for_rooms().ok_or_else(none)?;
        let matrix_id = room.matrix_id.as_deref().unwrap_or_default();
        let address = OwnedRoomId::try_from(matrix_id).map_err(|_| RoomError::NotFound)?;
        let transaction = format!("matchday-notice-{}", hex::encode(request.0));
        let event_id = homeserver.say(&address, &transaction, &json!({"msgtype": "m.notice", "body": text})).await?;
        // The message comes first: if the entry cannot be written, the request fails, and its repetition writes it.
        let action =
            Action::new("room.announce", format!("room:{matrix_id}")).with(json!({"event_id": event_id.as_str()}));
        let mut connection = self.db.acquire().await?;
        operators::service::record(&mut connection, operator, &action, self.clock.now()).await?;
        Ok(event_id.to_string())
    }

    /// Enables or disables announcements in a room. Returns whether the room exists.
    pub async fn switch(&self, room: &RoomAddress, on: bool) -> sqlx::Result<bool> {
        store::set_announces(&self.db, room.as_str(), on).await
    }
}

/// Facts of a consumer are handled strictly in order.
fn in_order(spec: WorkSpec) -> WorkSpec {
    WorkSpec {
        first_pause: Duration::from_millis(200),
        longest_pause: Duration::from_secs(5),
        at_once: 1,
        in_order: true,
        ..spec
    }
}

impl Progress {
    fn of(&self, fact: &str) -> HashSet<RoomId> {
        self.lock().get(fact).map(|progress| progress.done.clone()).unwrap_or_default()
    }

    fn note(&self, fact: &str, room: RoomId, is_given_up: bool) {
        let mut facts = self.lock();
        if facts.len() >= REMEMBERED && !facts.contains_key(fact) {
            facts.clear();
        }
        let progress = facts.entry(fact.to_owned()).or_default();
        progress.done.insert(room);
        progress.is_given_up |= is_given_up;
    }

    /// Forgets a fact whose rooms are all done. Returns whether one of them was given up.
    fn forget(&self, fact: &str) -> bool {
        self.lock().remove(fact).is_some_and(|progress| progress.is_given_up)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, FactProgress>> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Posts the messages of a fact to a room, in their order.
async fn post_all(
    homeserver: &Homeserver,
    room: &AnnouncementRoom,
    fact: &str,
    messages: &[Value],
) -> Result<(), Failure> {
    for (number, message) in messages.iter().enumerate() {
        say(homeserver, room, &format!("{fact}-{number}"), message).await?;
    }
    Ok(())
}

/// Posts a message to a room. A room that refuses the bot is skipped and does not block the others.
async fn say(homeserver: &Homeserver, room: &AnnouncementRoom, id: &str, message: &Value) -> Result<(), Failure> {
    let address = OwnedRoomId::try_from(room.matrix_id.as_str()).map_err(|error| Failure::GiveUp(error.into()))?;
    match homeserver.say(&address, id, message).await {
        Ok(_) => Ok(()),
        Err(error @ (MatrixError::NoSuchRoom(_) | MatrixError::ForbiddenInRoom { .. })) => {
            tracing::error!(%error, room = room.id.0, "room refused an announcement");
            Ok(())
        }
        Err(error) if error.is_worth_retrying() => {
            let after = error.retry_after();
            Err(Failure::Retry { error: error.into(), after })
        }
        Err(error) => Err(Failure::GiveUp(error.into())),
    }
}

fn read<T: DeserializeOwned>(delivery: &Delivery) -> Result<T, Failure> {
    serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))
}
