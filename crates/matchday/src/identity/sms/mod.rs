//! Text messages: templates, providers and delivery reports. Callers decide when to send a message; this module passes
//! it to the first provider that accepts it and records the result.

mod client;
pub mod console;
pub mod gsm7;
mod handlers;
pub mod provider;
pub mod registry;
pub mod service;
pub mod settings;
mod store;
pub mod templates;
#[cfg(test)]
mod tests;
pub mod twilio;
pub mod vonage;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};
use web::WebState;

use self::service::Sms;
pub(crate) use self::store::keep_attempts;

// To add a provider, add its file, the `mod` of that file, and its name here.
registry::providers! {
    twilio,
    vonage,
    console,
}

pub(crate) fn routes<S: WebState>() -> OpenApiRouter<S>
where
    Sms: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::list_sms_log))
        .routes(routes!(handlers::take_sms_report, handlers::take_sms_report_by_query))
}
