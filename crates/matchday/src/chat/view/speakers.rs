//! Accounts of users who write in chat, cached for a minute. A changed restriction evicts its user.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use platform::{Core, clock::Clock};
use sqlx::PgPool;
use tokio::time::Instant;
use web::ids::UserId;

use super::payloads::ChatSender;
use crate::{
    chat::accounts::settings::Matrix,
    identity::{accounts, avatars::AvatarUrls},
};

/// Time for which an account is cached. Names may be shown in an older form for as long.
const CACHED_FOR: Duration = Duration::from_mins(1);

/// Number of cached accounts.
const MOST_CACHED: usize = 20_000;

/// Author of messages.
#[derive(Debug)]
pub(super) struct Speaker {
    pub(super) sender: ChatSender,
    /// Banned from the service, or deleted: no message is shown.
    pub(super) is_banned: bool,
    /// Muted in the service: no new message is shown.
    pub(super) is_muted: bool,
    pub(super) is_bot: bool,
}

pub(super) struct Speakers {
    db: PgPool,
    clock: Arc<dyn Clock>,
    server_name: String,
    /// Localpart of the bot.
    bot: String,
    avatars: AvatarUrls,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    found: HashMap<String, (Arc<Speaker>, Instant)>,
    /// Number of evictions. A look-up that began before an eviction may be outdated and is not cached.
    evictions: u64,
}

impl Speakers {
    pub(super) fn new(core: &Core, config: &Matrix, avatars: AvatarUrls) -> Self {
        Self {
            db: core.db.clone(),
            clock: core.clock.clone(),
            server_name: config.server_name.clone().unwrap_or_default(),
            bot: config.bot.clone(),
            avatars,
            cache: Mutex::default(),
        }
    }

    /// Returns the speakers with these Matrix ids.
    pub(super) async fn find(&self, ids: &[&str]) -> sqlx::Result<HashMap<String, Arc<Speaker>>> {
        let (mut found, mut missing) = (HashMap::new(), Vec::new());
        let evictions = {
            let (cache, now) = (self.cache(), Instant::now());
            for &id in ids {
                match cache.found.get(id).filter(|(_, at)| now.duration_since(*at) < CACHED_FOR) {
                    Some((speaker, _)) => {
                        found.insert(id.to_owned(), Arc::clone(speaker));
                    }
                    None => missing.push(id),
                }
            }
            cache.evictions
        };
        if missing.is_empty() {
            return Ok(found);
        }
        missing.sort_unstable();
        missing.dedup();
        let read = self.read(&missing).await?;
        let (mut cache, now) = (self.cache(), Instant::now());
        if cache.evictions == evictions {
            if cache.found.len() + read.len() > MOST_CACHED {
                cache.found.clear();
            }
            for (id, speaker) in &read {
                cache.found.insert(id.clone(), (Arc::clone(speaker), now));
            }
        }
        drop(cache);
        found.extend(read);
        Ok(found)
    }

    async fn read(&self, ids: &[&str]) -> sqlx::Result<HashMap<String, Arc<Speaker>>> {
        let usernames: Vec<&str> = ids.iter().filter_map(|id| self.username(id)).collect();
        let mut connection = self.db.acquire().await?;
        let profiles = accounts::chat_profiles(&mut connection, &usernames, self.clock.now()).await?;
        let speaker = |id: &str| {
            let profile = self.username(id).and_then(|username| profiles.get(username));
            Speaker {
                sender: ChatSender {
                    user_id: profile.and_then(|profile| profile.id),
                    username: localpart(id).to_owned(),
                    name: profile.and_then(|profile| profile.name.clone()),
                    avatar_url: profile.and_then(|profile| self.avatars.of(profile.avatar.as_ref())),
                },
                is_banned: profile.is_some_and(|profile| profile.is_banned),
                is_muted: profile.is_some_and(|profile| profile.is_muted),
                is_bot: self.username(id) == Some(self.bot.as_str()),
            }
        };
        Ok(ids.iter().map(|&id| (id.to_owned(), Arc::new(speaker(id)))).collect())
    }

    /// Username of a chat user of this homeserver. `None` for users of other servers.
    fn username<'a>(&self, id: &'a str) -> Option<&'a str> {
        let (localpart, server) = id.strip_prefix('@')?.split_once(':')?;
        (server == self.server_name).then_some(localpart)
    }

    /// Evicts a user whose restrictions changed.
    pub(super) fn forget(&self, user: UserId) {
        let mut cache = self.cache();
        cache.evictions += 1;
        cache.found.retain(|_, (speaker, _)| speaker.sender.user_id != Some(user));
    }

    pub(super) fn forget_all(&self) {
        let mut cache = self.cache();
        cache.evictions += 1;
        cache.found.clear();
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn localpart(id: &str) -> &str {
    let id = id.strip_prefix('@').unwrap_or(id);
    id.split_once(':').map_or(id, |(localpart, _)| localpart)
}
