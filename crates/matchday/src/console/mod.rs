//! The console: pages for operators, on a listener of its own. A proxy with single sign-on in front of it proves who the
//! operator is; the operator's role decides what they see and may do.
//!
//! Nothing is done here that the command line does not do too, by the same services.

mod extract;
mod handlers;
mod identity;
mod keys;
mod pages;
mod rules;
pub mod service;
pub mod settings;
mod state;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use axum::{
    Router,
    routing::{get, post},
};

pub use self::rules::Role;
pub use self::state::{ConsoleState, Services};

/// A route: its method, its path, and the least role for it; none where no operator is needed. The handler's arguments
/// enforce the role. The table states it a second time, and a test compares the two.
pub(crate) type Route = (&'static str, &'static str, Option<Role>);

/// Declares the router and the table of its routes at once, so that no route can be missing in the table.
macro_rules! routes {
    ($($method:ident $path:literal => $handler:ident: $role:expr;)*) => {
        pub(crate) const ROUTES: &[Route] = &[$((stringify!($method), $path, $role)),*];

        pub(crate) fn routes(state: ConsoleState) -> Router {
            Router::new()
                $(.route($path, $method(handlers::$handler)))*
                .fallback(handlers::not_found)
                .method_not_allowed_fallback(handlers::wrong_method)
                .with_state(state)
        }
    };
}

routes! {
    get "/" => go_to_overview: None;
    get "/console/style.css" => get_style: None;
    get "/console" => show_overview: Some(Role::Viewer);
    get "/console/matches" => list_matches: Some(Role::Viewer);
    get "/console/matches/{id}" => show_match: Some(Role::Viewer);
    get "/console/matches/{id}/correction" => preview_correction: Some(Role::Operator);
    post "/console/matches/{id}/correction" => correct_match: Some(Role::Operator);
    get "/console/users" => list_users: Some(Role::Viewer);
    post "/console/users" => search_users: Some(Role::Viewer);
    get "/console/users/{id}" => show_user: Some(Role::Viewer);
    post "/console/users/{id}/restriction" => restrict_user: Some(Role::Moderator);
    get "/console/reports" => list_reports: Some(Role::Viewer);
    post "/console/reports/{id}" => deal_with_report: Some(Role::Moderator);
    get "/console/sms" => show_sms: Some(Role::Viewer);
    post "/console/sms/open" => open_sms: Some(Role::Operator);
    get "/console/queues" => show_queues: Some(Role::Viewer);
    post "/console/queues/replay" => replay_letters: Some(Role::Operator);
    post "/console/queues/compare" => compare_rooms: Some(Role::Operator);
    get "/console/feeds" => show_feeds: Some(Role::Viewer);
    get "/console/audit" => show_audit: Some(Role::Viewer);
}

/// Paths for the names of routes in logs and metrics.
pub(crate) fn paths() -> BTreeSet<&'static str> {
    ROUTES.iter().map(|(_, path, _)| *path).collect()
}
