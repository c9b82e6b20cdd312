//! The operator console, on a separate listener. A single sign-on proxy in front of it proves who the operator is. The
//! operator's role decides which pages and actions are allowed.
//!
//! The command line offers the same actions and uses the same services.

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
pub(crate) use self::service::CALLER;
pub use self::state::{ConsoleState, Services};

/// Method, path and minimum role of a route. Routes without a role need no operator. The handler's arguments enforce
/// the role. A test compares the table with the handlers.
pub(crate) type Route = (&'static str, &'static str, Option<Role>);

/// Declares the router and the route table together, so the table always contains every route.
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
    get "/console/rule-sets" => list_rule_sets: Some(Role::Viewer);
    get "/console/rule-sets/{id}" => show_rule_set: Some(Role::Viewer);
    get "/console/questions" => list_questions: Some(Role::Viewer);
    post "/console/questions" => add_question: Some(Role::Operator);
    get "/console/questions/new" => new_question: Some(Role::Operator);
    get "/console/questions/{id}" => show_question: Some(Role::Viewer);
    post "/console/questions/{id}/decision" => decide_question: Some(Role::Operator);
    get "/console/users" => list_users: Some(Role::Viewer);
    post "/console/users" => search_users: Some(Role::Viewer);
    get "/console/users/{id}" => show_user: Some(Role::Viewer);
    get "/console/users/{id}/avatar" => get_avatar: Some(Role::Viewer);
    post "/console/users/{id}/avatar" => remove_avatar: Some(Role::Moderator);
    post "/console/users/{id}/restriction" => restrict_user: Some(Role::Moderator);
    get "/console/reports" => list_reports: Some(Role::Viewer);
    get "/console/reports/{id}" => show_report: Some(Role::Viewer);
    post "/console/reports/{id}/claim" => claim_report: Some(Role::Moderator);
    post "/console/reports/{id}/release" => release_report: Some(Role::Moderator);
    post "/console/reports/{id}/close" => close_report: Some(Role::Moderator);
    post "/console/reports/{id}/remove" => remove_reported_message: Some(Role::Moderator);
    get "/console/held" => list_held_messages: Some(Role::Moderator);
    post "/console/held/{id}/release" => release_held_message: Some(Role::Moderator);
    post "/console/held/{id}/reject" => reject_held_message: Some(Role::Moderator);
    get "/console/sms" => show_sms: Some(Role::Viewer);
    post "/console/sms/open" => open_sms: Some(Role::Operator);
    get "/console/queues" => show_queues: Some(Role::Viewer);
    post "/console/queues/replay" => replay_letters: Some(Role::Operator);
    post "/console/queues/compare" => compare_rooms: Some(Role::Operator);
    get "/console/feeds" => show_feeds: Some(Role::Viewer);
    get "/console/keys" => list_server_keys: Some(Role::Viewer);
    post "/console/keys" => create_server_key: Some(Role::Operator);
    post "/console/keys/{id}/rotate" => rotate_server_key: Some(Role::Operator);
    post "/console/keys/{id}/revoke" => revoke_server_key: Some(Role::Operator);
    get "/console/audit" => show_audit: Some(Role::Viewer);
    get "/console/roles" => show_roles: Some(Role::Viewer);
}

/// Paths for route names in logs and metrics.
pub(crate) fn paths() -> BTreeSet<&'static str> {
    ROUTES.iter().map(|(_, path, _)| *path).collect()
}
