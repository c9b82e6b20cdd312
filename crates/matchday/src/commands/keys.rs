//! `matchday keys`: keys of backends for the server API.

use std::time::Duration;

use clap::Subcommand;
use matchday::{
    app::App,
    config::Config,
    identity::server_keys::{
        rules::{KeyName, Network},
        scopes::Scope,
        service::{IssuedKey, KeyRequest, LONGEST_GRACE, ServerKey},
    },
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use time::OffsetDateTime;
use web::ids::ServerKeyId;

use super::{By, check_schema, length, plain, print};

#[derive(Subcommand)]
pub(crate) enum KeysCommand {
    /// Create a key and print it. The key is not shown again.
    Create {
        /// Name of the backend that uses the key.
        name: KeyName,
        /// Scope, like coins:write. Repeat the option for several scopes.
        #[arg(long = "scope", required = true, num_args = 1..)]
        scopes: Vec<Scope>,
        /// End the validity of the key after this time, like 90d. Without it, the key has no end.
        #[arg(long, value_name = "TIME", value_parser = length)]
        expires_in: Option<Duration>,
        /// Network from which the key may be used, like 203.0.113.0/24. Without it, any network is allowed.
        #[arg(long, value_name = "CIDR", num_args = 1..)]
        allow: Vec<Network>,
        #[command(flatten)]
        by: By,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List all keys, oldest first, also revoked ones.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Replace the text of a key and print the new one.
    Rotate {
        /// Id as printed by `list`.
        id: i64,
        /// Time for which the previous text stays valid, like 1h; at most 7d.
        #[arg(long, value_name = "TIME", default_value = "0s", value_parser = grace)]
        grace: Duration,
        #[command(flatten)]
        by: By,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key. Every process refuses it within a second.
    Revoke {
        /// Id as printed by `list`.
        id: i64,
        #[command(flatten)]
        by: By,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

fn grace(text: &str) -> Result<Duration, &'static str> {
    length(text).and_then(|time| if time <= LONGEST_GRACE { Ok(time) } else { Err("must be at most 7d") })
}

pub(super) async fn keys(config: Config, command: KeysCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let keys = &app.server_keys;
    match command {
        KeysCommand::Create { name, scopes, expires_in, allow, by, json } => {
            let request = KeyRequest { name, scopes, networks: allow, expires_in };
            print_issued(&keys.create(&request, &by.operator()).await?, json)
        }
        KeysCommand::List { json } => {
            let listed = keys.list().await?;
            if json {
                return print(&Value::from(listed.iter().map(described).collect::<Vec<_>>()).to_string());
            }
            let lines: Vec<String> = listed.iter().map(line).collect();
            print(&if lines.is_empty() { "no keys".to_owned() } else { lines.join("\n") })
        }
        KeysCommand::Rotate { id, grace, by, json } => {
            print_issued(&keys.rotate(ServerKeyId(id), grace, &by.operator()).await?, json)
        }
        KeysCommand::Revoke { id, by, json } => {
            let revoked = keys.revoke(ServerKeyId(id), &by.operator()).await?;
            print(&if json { described(&revoked).to_string() } else { format!("key {id} is revoked") })
        }
    }
}

fn print_issued(issued: &IssuedKey, json: bool) -> anyhow::Result<()> {
    let text = issued.text.expose_secret();
    if json {
        let mut document = described(&issued.key);
        document["key"] = text.into();
        return print(&document.to_string());
    }
    print(&format!("{}\nstore the key now, it is not shown again:\n{text}", line(&issued.key)))
}

fn described(key: &ServerKey) -> Value {
    json!({
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "scopes": scopes(key),
        "allow": key.networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "created_at": exact(key.created_at),
        "expires_at": key.expires_at.map(exact),
        "last_used_at": key.last_used_at.map(exact),
        "revoked_at": key.revoked_at.map(exact),
        "previous_valid_until": key.previous_valid_until.map(exact),
    })
}

fn scopes(key: &ServerKey) -> Vec<&'static str> {
    key.scopes.iter().map(|scope| scope.name()).collect()
}

/// The form of the API.
fn exact(at: OffsetDateTime) -> String {
    platform::timestamp::text(at).unwrap_or_default()
}

fn line(key: &ServerKey) -> String {
    let mut parts = vec![format!("{} {} {}: {}", key.id, key.prefix, plain(&key.name), scopes(key).join(", "))];
    if !key.networks.is_empty() {
        let networks: Vec<String> = key.networks.iter().map(ToString::to_string).collect();
        parts.push(format!("from {}", networks.join(", ")));
    }
    let times = [
        ("expires", key.expires_at),
        ("previous text valid until", key.previous_valid_until),
        ("last used", key.last_used_at),
        ("revoked", key.revoked_at),
    ];
    parts.extend(times.into_iter().filter_map(|(what, time)| Some(format!("{what} {}", exact(time?)))));
    parts.join("; ")
}
