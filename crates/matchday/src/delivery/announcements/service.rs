//! Posts announcements to the rooms of a match.

use std::{collections::HashMap, time::Duration};

use matrix_appservice::{Error as MatrixError, Homeserver, OwnedRoomId};
use platform::stream::{Begin, Delivery, Failure, Stream, WorkSpec};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::PgPool;
use web::ids::{MatchId, UserId};

use super::{
    rules::{self, announcements, best_predictors},
    store::{self, AnnouncementRoom},
};
use crate::{
    catalogue::matches::{facts::MatchFact, service as events},
    chat::{accounts::service::Chat, rooms::RoomAddress},
    game::{
        predictions::service::Predictions,
        scores::service::{self as scores, ScoresFact},
    },
};

/// Number of predictors named in a room.
const NAMED: usize = 3;

#[derive(Clone)]
pub struct Announcements {
    pub db: PgPool,
    pub chat: Chat,
    pub predictions: Predictions,
    /// Whether announcements are enabled in the settings.
    pub are_enabled: bool,
}

impl Announcements {
    /// Returns the consumers of the facts to announce. Each processes its facts strictly in order: while a goal is
    /// being retried, later goals wait.
    pub fn specs() -> [WorkSpec; 2] {
        let spec = |name, subject| WorkSpec {
            // The homeserver may be down for a day. All announcements must still be posted afterwards.
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

    /// Announces one fact in the rooms of its match. This is idempotent: each message has a Matrix transaction id
    /// derived from the fact.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let Some(homeserver) = self.chat.homeserver().filter(|_| self.are_enabled) else { return Ok(()) };
        let Some(id) = delivery.id.as_deref() else {
            return Err(Failure::GiveUp(anyhow::anyhow!("the fact has no id, so a retry would announce it twice")));
        };
        match delivery.subject.as_str() {
            events::CHANGED => {
                let fact: MatchFact = read(&delivery)?;
                let posts = announcements(&fact);
                if posts.is_empty() {
                    return Ok(());
                }
                for room in store::rooms(&self.db, fact.event_id).await.map_err(Failure::retry)? {
                    for (number, announcement) in posts.iter().enumerate() {
                        let message = rules::message(fact.event_id, announcement, Some(fact.now));
                        post(homeserver, &room, &format!("{id}-{number}"), &message).await?;
                    }
                }
                Ok(())
            }
            scores::UPDATED => {
                let ScoresFact { event_id, .. } = read(&delivery)?;
                self.name_best_predictors(homeserver, event_id, id).await
            }
            other => Err(Failure::GiveUp(anyhow::anyhow!("unexpected subject {other}"))),
        }
    }

    async fn name_best_predictors(&self, homeserver: &Homeserver, event: MatchId, id: &str) -> Result<(), Failure> {
        let Some((home, away)) = store::teams(&self.db, event).await.map_err(Failure::retry)? else { return Ok(()) };
        for room in store::rooms(&self.db, event).await.map_err(Failure::retry)? {
            let best = self.best_of(event, &room).await.map_err(Failure::retry)?;
            if let Some(announcement) = best_predictors(&home, &away, &best) {
                let message = rules::message(event, &announcement, None);
                post(homeserver, &room, &format!("{id}-best"), &message).await?;
            }
        }
        Ok(())
    }

    /// Returns the members of a room who earned the most points with a match, as (username, points). Members without
    /// points are left out.
    async fn best_of(&self, event: MatchId, room: &AnnouncementRoom) -> sqlx::Result<Vec<(String, i32)>> {
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

    /// Enables or disables announcements in a room. Returns whether the room exists.
    pub async fn switch(&self, room: &RoomAddress, on: bool) -> sqlx::Result<bool> {
        store::set_announces(&self.db, room.as_str(), on).await
    }
}

/// Posts a message to a room. A room that refuses the bot is skipped and does not block the others.
async fn post(homeserver: &Homeserver, room: &AnnouncementRoom, id: &str, message: &Value) -> Result<(), Failure> {
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
