//! The console: what operators see of the service in a browser, and what they can do about it. Pages are written here, on
//! the private listener only; a proxy with single sign-on stands before it and says who the operator is.
//!
//! Nothing is done here that the command line does not do too, by the same services.

mod extract;
mod handlers;
mod pages;
mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use axum::{
    Router,
    routing::{get, post},
};

use crate::app::App;

/// Where its pages are, for those who name routes in logs and metrics.
pub(crate) const PRIVATE_PATHS: [&str; 17] = [
    "/console",
    "/console/style.css",
    "/console/matches",
    "/console/matches/{id}",
    "/console/matches/{id}/correction",
    "/console/users",
    "/console/users/{id}",
    "/console/users/{id}/restriction",
    "/console/reports",
    "/console/reports/{id}",
    "/console/sms",
    "/console/sms/open",
    "/console/queues",
    "/console/queues/replay",
    "/console/queues/compare",
    "/console/feeds",
    "/console/audit",
];

pub(crate) fn private_routes() -> Router<App> {
    Router::new()
        .route("/console", get(handlers::show_overview))
        .route("/console/style.css", get(handlers::get_style))
        .route("/console/matches", get(handlers::list_matches))
        .route("/console/matches/{id}", get(handlers::show_match))
        .route("/console/matches/{id}/correction", get(handlers::preview_correction).post(handlers::correct_match))
        .route("/console/users", get(handlers::list_users).post(handlers::search_users))
        .route("/console/users/{id}", get(handlers::show_user))
        .route("/console/users/{id}/restriction", post(handlers::restrict_user))
        .route("/console/reports", get(handlers::list_reports))
        .route("/console/reports/{id}", post(handlers::deal_with_report))
        .route("/console/sms", get(handlers::show_sms))
        .route("/console/sms/open", post(handlers::open_sms))
        .route("/console/queues", get(handlers::show_queues))
        .route("/console/queues/replay", post(handlers::replay_letters))
        .route("/console/queues/compare", post(handlers::compare_rooms))
        .route("/console/feeds", get(handlers::show_feeds))
        .route("/console/audit", get(handlers::show_audit))
}
