//! State of the console's router.

use std::{ops::Deref, sync::Arc};

use platform::{clock::Clock, stream::Streams};
use web::health::Checks;

use super::service::Console;
use crate::{
    catalogue::{feeds::service::Feeds, fixtures::service::Fixtures},
    chat::{
        filters::service::Filters, membership_sync::service::MembershipSync, moderation::service::Moderation,
        removals::service::Removals, reports::service::Reports,
    },
    delivery::{live::service::Live, webhooks::service::Webhooks},
    game::{questions::service::Questions, scores::service::Scores},
    identity::{
        avatars::service::Avatars, codes::service::Codes, operators::service::Operators,
        server_keys::service::ServerKeys,
    },
};

/// Shared state of the routes. Cheap to clone.
#[derive(Clone)]
pub struct ConsoleState(Arc<Services>);

/// Services that the console reads and acts on.
pub struct Services {
    pub console: Console,
    pub avatars: Avatars,
    pub clock: Arc<dyn Clock>,
    pub streams: Streams,
    pub checks: Checks,
    pub codes: Codes,
    pub feeds: Feeds,
    pub fixtures: Fixtures,
    pub live: Live,
    pub membership_sync: MembershipSync,
    pub operators: Operators,
    pub moderation: Moderation,
    pub filters: Filters,
    pub questions: Questions,
    pub removals: Removals,
    pub reports: Reports,
    pub scores: Scores,
    pub server_keys: ServerKeys,
    pub webhooks: Webhooks,
    pub has_chat: bool,
    /// Server name in Matrix ids, the part after the colon.
    pub server_name: Option<String>,
}

impl ConsoleState {
    pub fn new(services: Services) -> Self {
        Self(Arc::new(services))
    }
}

impl Deref for ConsoleState {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.0
    }
}
