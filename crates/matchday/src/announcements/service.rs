//! Telling rooms what happens in their match.

use std::{collections::HashMap, time::Duration};

use matrix_appservice::{Error as MatrixError, Homeserver, OwnedRoomId};
use platform::stream::{Begin, Delivery, Failure, Stream, WorkSpec};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::PgPool;
use web::ids::{EventId, UserId};

use super::{
    rules::{self, announcements, best_predictors},
    store::{self, TellableRoom},
};
use crate::{
    chat::service::Chat,
    events::{facts::EventFact, service as events},
    predictions::service::Predictions,
    rooms::RoomAddress,
    scores::service::{self as scores, ScoresFact},
};

/// How many of a room's best predictors are named.
const NAMED: usize = 3;

/// The bot's announcements.
#[derive(Clone)]
pub struct Announcements {
    /// Where it stands which rooms there are.
    pub db: PgPool,
    /// The way to them.
    pub chat: Chat,
    /// What was predicted.
    pub predictions: Predictions,
    /// Whether anything is announced at all.
    pub are_wanted: bool,
}

impl Announcements {
    /// What is listened to, and how patiently. Of matches in their order, so that no goal is told before the one it
    /// follows, however often the first is tried.
    pub fn specs() -> [WorkSpec; 2] {
        let spec = |name, subject| WorkSpec {
            // A homeserver may be away for a day, and all of this must be told when it is back.
            attempts: 100_000,
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(5),
            at_once: 1,
            in_order: true,
            begin: Begin::Now,
            ..WorkSpec::new(name, Stream::Facts, subject)
        };
        [spec("announcements", events::CHANGED), spec("announcements_scores", scores::UPDATED)]
    }

    /// Tells the rooms of a match of one fact. Doing it twice tells nobody twice: each message has its own transaction, named
    /// after the fact.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let Some(homeserver) = self.chat.homeserver().filter(|_| self.are_wanted) else { return Ok(()) };
        let Some(id) = delivery.id.as_deref() else {
            return Err(Failure::GiveUp(anyhow::anyhow!("a fact without an id cannot be told once")));
        };
        match delivery.subject.as_str() {
            events::CHANGED => {
                let fact: EventFact = read(&delivery)?;
                let told = announcements(&fact);
                if told.is_empty() {
                    return Ok(());
                }
                for room in store::rooms(&self.db, fact.event_id).await.map_err(Failure::retry)? {
                    for (number, announcement) in told.iter().enumerate() {
                        let message = rules::message(fact.event_id, announcement, Some(fact.now));
                        say(homeserver, &room, &format!("{id}-{number}"), &message).await?;
                    }
                }
                Ok(())
            }
            scores::UPDATED => {
                let ScoresFact { event_id, .. } = read(&delivery)?;
                self.name_best_predictors(homeserver, event_id, id).await
            }
            other => Err(Failure::GiveUp(anyhow::anyhow!("nobody knows how to announce {other}"))),
        }
    }

    async fn name_best_predictors(&self, homeserver: &Homeserver, event: EventId, id: &str) -> Result<(), Failure> {
        let Some((home, away)) = store::teams(&self.db, event).await.map_err(Failure::retry)? else { return Ok(()) };
        for room in store::rooms(&self.db, event).await.map_err(Failure::retry)? {
            let best = self.best_of(event, &room).await.map_err(Failure::retry)?;
            if let Some(announcement) = best_predictors(&home, &away, &best) {
                let message = rules::message(event, &announcement, None);
                say(homeserver, &room, &format!("{id}-best"), &message).await?;
            }
        }
        Ok(())
    }

    /// Who of a room's members earned the most with a match, if they earned anything: username and points.
    async fn best_of(&self, event: EventId, room: &TellableRoom) -> sqlx::Result<Vec<(String, i32)>> {
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

    /// Lets a room be told what happens in its match, or not; returns whether there is such a room.
    pub async fn switch(&self, room: &RoomAddress, on: bool) -> sqlx::Result<bool> {
        store::set_announces(&self.db, room.as_str(), on).await
    }
}

/// Says something in a room. One that refuses the bot keeps the others from nothing.
async fn say(homeserver: &Homeserver, room: &TellableRoom, id: &str, message: &Value) -> Result<(), Failure> {
    let address = OwnedRoomId::try_from(room.matrix_id.as_str()).map_err(|error| Failure::GiveUp(error.into()))?;
    match homeserver.say(&address, id, message).await {
        Ok(_) => Ok(()),
        Err(error @ (MatrixError::NoSuchRoom(_) | MatrixError::ForbiddenInRoom { .. })) => {
            tracing::error!(%error, room = room.id.0, "a room was not told what happens");
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
