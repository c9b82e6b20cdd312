//! What an operator does about webhooks.

use anyhow::bail;
use clap::{Args, Subcommand};
use matchday::{
    app::App,
    config::Config,
    operators::service::Deed,
    webhooks::{
        rules::{Kind, Verdict},
        service::{Dead, DeadMessage, Endpoint},
    },
};
use platform::outward::Answer;
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use url::Url;
use web::ids::EndpointId;

use super::{By, check_schema, counted, plain, print};

#[derive(Subcommand)]
pub(crate) enum WebhooksCommand {
    /// Add an endpoint, and show its secret this once.
    Add {
        /// Its address, which begins with `https://`.
        url: Url,
        /// What it is told of: `event.status_changed`, `event.result`, `scores.updated`, `user.registered` or `user.deleted`. Can be given several
        /// times; not at all is everything.
        #[arg(long = "type")]
        types: Vec<Kind>,
        #[command(flatten)]
        by: By,
    },
    /// List the endpoints.
    List,
    /// Remove an endpoint, with all that waits for it.
    Remove {
        /// As listed.
        id: i64,
        #[command(flatten)]
        by: By,
    },
    /// Send to an endpoint again that answered 410.
    Enable {
        /// As listed.
        id: i64,
        #[command(flatten)]
        by: By,
    },
    /// Send a message that says nothing, at once, and say what came back.
    Test {
        /// As listed.
        id: i64,
    },
    /// List the messages that were given up, with the reason.
    Dead {
        /// Only those of this endpoint.
        #[arg(long)]
        endpoint: Option<i64>,
    },
    /// Send messages again that were given up, with the ids that they had.
    Replay(ReplayArguments),
    /// Store all secrets under the first of webhooks.keys.
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
    /// Those with these numbers, as listed by `dead`.
    sequences: Vec<u64>,
    /// Those of this endpoint.
    #[arg(long)]
    endpoint: Option<i64>,
    /// All of them.
    #[arg(long)]
    all: bool,
}

pub(super) async fn webhooks(config: Config, command: WebhooksCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let webhooks = &app.webhooks;
    match command {
        WebhooksCommand::Add { url, types, by } => {
            let deed =
                Deed::new("webhook.add", "webhooks").with(json!({"host": url.host_str(), "types": listed(&types)}));
            let tell = |(id, _): &(EndpointId, _)| json!({"endpoint": id});
            let (id, secret) = app.operators.witness(&by.operator(), deed, webhooks.add(&url, &types), tell).await?;
            print(&format!(
                "endpoint {id} is told of {}; this is its secret, shown this once:\n{}",
                listed(&types),
                secret.expose()
            ))
        }
        WebhooksCommand::List => {
            let mut lines = Vec::new();
            for endpoint in webhooks.endpoints().await? {
                lines.push(endpoint.map_or_else(|error| error.to_string(), |endpoint| line(&endpoint)));
            }
            print(&if lines.is_empty() { "there are no endpoints".to_owned() } else { lines.join("\n") })
        }
        WebhooksCommand::Remove { id, by } => {
            let deed = Deed::new("webhook.remove", format!("endpoint:{id}"));
            app.operators.witness(&by.operator(), deed, webhooks.remove(EndpointId(id)), |()| json!({})).await?;
            print(&format!("endpoint {id} is removed"))
        }
        WebhooksCommand::Enable { id, by } => {
            let deed = Deed::new("webhook.enable", format!("endpoint:{id}"));
            app.operators.witness(&by.operator(), deed, webhooks.enable(EndpointId(id)), |()| json!({})).await?;
            print(&format!("endpoint {id} is told what happens from now on; `replay` sends what it missed"))
        }
        WebhooksCommand::Test { id } => {
            let (answer, took) = webhooks.test(EndpointId(id)).await?;
            let answer = answer.map_err(|error| anyhow::anyhow!("endpoint {id}: {error}"))?;
            let told = format!("endpoint {id}: {}, after {} ms", answered(&answer), took.as_millis());
            if Verdict::of(answer.status) != Verdict::Taken {
                bail!(told);
            }
            print(&told)
        }
        WebhooksCommand::Dead { endpoint } => {
            let which = endpoint.map_or(Dead::All, |id| Dead::Of(EndpointId(id)));
            let dead = webhooks.dead(&which).await?;
            if dead.is_empty() {
                return print("there are no dead letters");
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
            print(&format!("{} on the way again", counted(replayed, "message")))
        }
        WebhooksCommand::Reseal(by) => {
            let (deed, tell) =
                (Deed::new("webhook.reseal", "webhooks"), |resealed: &usize| json!({"secrets": resealed}));
            let resealed = app.operators.witness(&by.operator(), deed, webhooks.reseal(), tell).await?;
            print(&format!("{} stored under the first key now; all others were", counted(resealed, "secret")))
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
    let disabled = endpoint.disabled_at.map_or_else(String::new, |at| format!("; answered 410, disabled {}", time(at)));
    let (id, url, types) = (endpoint.id, endpoint.url.as_str(), listed(&endpoint.types));
    format!("{id} {url} since {}: {types}{disabled}", time(endpoint.created_at))
}

fn time(at: OffsetDateTime) -> String {
    at.replace_nanosecond(0).ok().and_then(|at| at.format(&Rfc3339).ok()).unwrap_or_default()
}

/// What a receiver wrote may be anything.
fn answered(answer: &Answer) -> String {
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
