//! `matchday webhooks`: manage endpoints, replay dead letters, re-encrypt secrets.

use anyhow::bail;
use clap::{Args, Subcommand};
use matchday::{
    app::App,
    config::Config,
    delivery::webhooks::{
        rules::{Kind, Verdict},
        service::{Dead, DeadMessage, Endpoint},
    },
    identity::operators::service::Action,
};
use platform::outbound_http::Answer;
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use url::Url;
use web::ids::EndpointId;

use super::{By, check_schema, counted, plain, print};

#[derive(Subcommand)]
pub(crate) enum WebhooksCommand {
    /// Add an endpoint and print its secret. The secret is not shown again.
    Add {
        /// URL of the endpoint; must start with `https://`.
        url: Url,
        /// Type of message to send: `event.status_changed`, `event.result`, `scores.updated`, `user.registered` or
        /// `user.deleted`. Repeat the option for several types; without it, all types are sent.
        #[arg(long = "type")]
        types: Vec<Kind>,
        #[command(flatten)]
        by: By,
    },
    /// List all endpoints and their states.
    List,
    /// Remove an endpoint and its queued messages.
    Remove {
        /// Endpoint id as printed by `list`.
        id: i64,
        #[command(flatten)]
        by: By,
    },
    /// Enable an endpoint that was disabled because it responded 410.
    Enable {
        /// Endpoint id as printed by `list`.
        id: i64,
        #[command(flatten)]
        by: By,
    },
    /// Send a test message immediately and print the response.
    Test {
        /// Endpoint id as printed by `list`.
        id: i64,
    },
    /// List dead letters, with the reason for each.
    Dead {
        /// List only dead letters of this endpoint.
        #[arg(long)]
        endpoint: Option<i64>,
    },
    /// Send dead letters again, with their original message ids.
    Replay(ReplayArguments),
    /// Re-encrypt all secrets with the first of webhooks.keys.
    Reseal(By),
}

#[derive(Args)]
pub(crate) struct ReplayArguments {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    by: By,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// Numbers of dead letters as printed by `dead`.
    sequences: Vec<u64>,
    /// Replay all dead letters of this endpoint.
    #[arg(long)]
    endpoint: Option<i64>,
    /// Replay all dead letters.
    #[arg(long)]
    all: bool,
}

pub(super) async fn webhooks(config: Config, command: WebhooksCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let webhooks = &app.webhooks;
    match command {
        WebhooksCommand::Add { url, types, by } => {
            let action =
                Action::new("webhook.add", "webhooks").with(json!({"host": url.host_str(), "types": listed(&types)}));
            let details = |(id, _): &(EndpointId, _)| json!({"endpoint": id});
            let (id, secret) =
                app.operators.record_around(&by.operator(), action, webhooks.add(&url, &types), details).await?;
            print(&format!(
                "endpoint {id} receives {}; store its secret now, it is not shown again:\n{}",
                listed(&types),
                secret.expose()
            ))
        }
        WebhooksCommand::List => {
            let mut lines = Vec::new();
            for endpoint in webhooks.endpoints().await? {
                lines.push(endpoint.map_or_else(|error| error.to_string(), |endpoint| line(&endpoint)));
            }
            print(&if lines.is_empty() { "no endpoints".to_owned() } else { lines.join("\n") })
        }
        WebhooksCommand::Remove { id, by } => {
            let action = Action::new("webhook.remove", format!("endpoint:{id}"));
            app.operators
                .record_around(&by.operator(), action, webhooks.remove(EndpointId(id)), |()| json!({}))
                .await?;
            print(&format!("endpoint {id} removed"))
        }
        WebhooksCommand::Enable { id, by } => {
            let action = Action::new("webhook.enable", format!("endpoint:{id}"));
            app.operators
                .record_around(&by.operator(), action, webhooks.enable(EndpointId(id)), |()| json!({}))
                .await?;
            print(&format!("endpoint {id} enabled; use `replay` to send the messages it missed"))
        }
        WebhooksCommand::Test { id } => {
            let (answer, took) = webhooks.test(EndpointId(id)).await?;
            let answer = answer.map_err(|error| anyhow::anyhow!("endpoint {id}: {error}"))?;
            let result = format!("endpoint {id}: {}, after {} ms", response_line(&answer), took.as_millis());
            if Verdict::of(answer.status) != Verdict::Taken {
                bail!(result);
            }
            print(&result)
        }
        WebhooksCommand::Dead { endpoint } => {
            let which = endpoint.map_or(Dead::All, |id| Dead::Of(EndpointId(id)));
            let dead = webhooks.dead(&which).await?;
            if dead.is_empty() {
                return print("no dead letters");
            }
            print(&dead.iter().map(dead_line).collect::<Vec<_>>().join("\n"))
        }
        WebhooksCommand::Replay(ReplayArguments { which: Which { sequences, endpoint, all: _ }, by }) => {
            let which = match endpoint {
                Some(id) => Dead::Of(EndpointId(id)),
                None if sequences.is_empty() => Dead::All,
                None => Dead::These(sequences),
            };
            let replayed = webhooks.replay_by(&app.operators, &by.operator(), &which).await?;
            print(&format!("{} queued again", counted(replayed, "message")))
        }
        WebhooksCommand::Reseal(by) => {
            let (action, details) =
                (Action::new("webhook.reseal", "webhooks"), |resealed: &usize| json!({"secrets": resealed}));
            let resealed = app.operators.record_around(&by.operator(), action, webhooks.reseal(), details).await?;
            print(&format!(
                "{} re-encrypted with the first key; all others already use it",
                counted(resealed, "secret")
            ))
        }
    }
}

fn listed(types: &[Kind]) -> String {
    if types.is_empty() {
        return "everything".to_owned();
    }
    types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn line(endpoint: &Endpoint) -> String {
    let disabled =
        endpoint.disabled_at.map_or_else(String::new, |at| format!("; disabled {} after a 410 response", time(at)));
    let (id, url, types) = (endpoint.id, endpoint.url.as_str(), listed(&endpoint.types));
    format!("{id} {url} since {}: {types}{disabled}", time(endpoint.created_at))
}

fn time(at: OffsetDateTime) -> String {
    at.replace_nanosecond(0).ok().and_then(|at| at.format(&Rfc3339).ok()).unwrap_or_default()
}

/// Formats a response. The receiver controls its text, so it is shortened and stripped of control characters.
fn response_line(answer: &Answer) -> String {
    const SHOWN: usize = 200;
    let text: String = String::from_utf8_lossy(&answer.body).chars().take(SHOWN).collect();
    let text = plain(text.trim());
    if text.is_empty() { format!("{}", answer.status) } else { format!("{} \"{text}\"", answer.status) }
}

fn dead_line(dead: &DeadMessage) -> String {
    let (sequence, reason) = (dead.letter.sequence, plain(&dead.letter.reason));
    let what = dead.item.as_ref().map_or_else(
        || "unreadable".to_owned(),
        |item| format!("endpoint {}, {} {}", item.endpoint_id, item.kind, plain(&item.message_id)),
    );
    format!("{sequence} {} ago, {what}: {reason}", age(dead.age))
}

fn age(age: time::Duration) -> String {
    let (days, hours, minutes) = (age.whole_days(), age.whole_hours(), age.whole_minutes());
    match (days, hours, minutes) {
        (2.., ..) => format!("{days} days"),
        (_, 2.., _) => format!("{hours} hours"),
        (.., 2..) => format!("{minutes} minutes"),
        _ => format!("{} s", age.whole_seconds().max(0)),
    }
}
