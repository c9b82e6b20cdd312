//! State of the routes of the server API.

use std::sync::Arc;

use axum::extract::FromRef;
use ipnet::IpNet;
use platform::{clock::Clock, reads::Reads, shutdown::Shutdown};
use web::WebState;

use crate::{
    catalogue::fixtures::service::Fixtures,
    chat::{moderation::service::Moderation, removals::service::Removals, rooms::service::Rooms},
    delivery::{announcements::service::Announcements, facts::service::Facts, webhooks::service::Webhooks},
    game::{coins::service::Coins, leagues::service::Leagues},
    identity::{
        accounts::service::Accounts,
        callers::HasReads,
        idempotency::service::Idempotency,
        server_keys::{AuthorizesKeys, service::ServerKeys},
        sessions::service::Sessions,
    },
};

/// Services and settings of the server API. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ServerState(Arc<Services>);

pub(crate) struct Services {
    pub(crate) keys: ServerKeys,
    pub(crate) accounts: Accounts,
    pub(crate) announcements: Announcements,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) coins: Coins,
    pub(crate) facts: Facts,
    pub(crate) fixtures: Fixtures,
    pub(crate) idempotency: Idempotency,
    pub(crate) leagues: Leagues,
    pub(crate) moderation: Moderation,
    pub(crate) reads: Reads,
    pub(crate) removals: Removals,
    pub(crate) rooms: Rooms,
    pub(crate) sessions: Sessions,
    pub(crate) shutdown: Shutdown,
    pub(crate) webhooks: Webhooks,
    pub(crate) body_limit: usize,
    pub(crate) trusted_proxies: Vec<IpNet>,
}

impl ServerState {
    pub(crate) fn new(services: Services) -> Self {
        Self(Arc::new(services))
    }
}

impl HasReads for ServerState {
    fn reads(&self) -> &Reads {
        &self.0.reads
    }
}

impl WebState for ServerState {
    fn body_limit(&self) -> usize {
        self.0.body_limit
    }

    fn trusted_proxies(&self) -> &[IpNet] {
        &self.0.trusted_proxies
    }
}

impl AuthorizesKeys for ServerState {
    fn server_keys(&self) -> &ServerKeys {
        &self.0.keys
    }
}

/// Lets a handler extract a single service as its state.
macro_rules! services {
    ($($field:ident: $type:ty),* $(,)?) => {$(
        impl FromRef<ServerState> for $type {
            fn from_ref(state: &ServerState) -> Self {
                state.0.$field.clone()
            }
        }
    )*};
}

services! {
    accounts: Accounts,
    announcements: Announcements,
    clock: Arc<dyn Clock>,
    coins: Coins,
    facts: Facts,
    fixtures: Fixtures,
    idempotency: Idempotency,
    leagues: Leagues,
    moderation: Moderation,
    removals: Removals,
    rooms: Rooms,
    sessions: Sessions,
    shutdown: Shutdown,
    webhooks: Webhooks,
}
