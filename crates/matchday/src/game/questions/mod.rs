//! Bonus questions on tournaments, rounds and matches. Operators write them in fixture documents, users answer them until
//! they lock, and a resolution gives points through the same score jobs as a result.

pub mod decisions;
mod handlers;
mod import;
mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
mod writers;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Questions;
use crate::identity::{avatars::AvatarUrls, sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    AvatarUrls: FromRef<S>,
    Questions: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::list_questions))
        .routes(routes!(handlers::get_question))
        .routes(routes!(handlers::answer_question))
        .routes(routes!(handlers::list_answers))
}
