//! The console's view of the service.

use std::{ops::Deref, sync::Arc};

use platform::{clock::Clock, stream::Streams};
use web::health::Checks;

use super::service::Console;
use crate::{
    codes::service::Codes, feeds::service::Feeds, fixtures::service::Fixtures, live::service::Live,
    mirror::service::Mirror, operators::service::Operators, safety::service::Safety, scores::service::Scores,
    webhooks::service::Webhooks,
};

/// State of the console's routes. Cheap to clone.
#[derive(Clone)]
pub struct ConsoleState(Arc<Services>);

/// The services that operators look at and act on.
pub struct Services {
    pub console: Console,
    pub clock: Arc<dyn Clock>,
    pub streams: Streams,
    pub checks: Checks,
    pub codes: Codes,
    pub feeds: Feeds,
    pub fixtures: Fixtures,
    pub live: Live,
    pub mirror: Mirror,
    pub operators: Operators,
    pub safety: Safety,
    pub scores: Scores,
    pub webhooks: Webhooks,
    pub has_chat: bool,
    /// The part of Matrix ids behind the colon.
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
