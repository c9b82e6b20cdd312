//! `matchday audit`: actions of operators and backends.

use clap::Subcommand;
use matchday::{
    app::App,
    config::Config,
    identity::operators::service::{ActionFilter, Recorded},
};
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use web::ids::ServerKeyId;

use super::{check_schema, plain, print};

#[derive(Subcommand)]
pub(crate) enum AuditCommand {
    /// List recorded actions, newest first.
    List {
        /// Only actions of this server key.
        #[arg(long, value_name = "ID")]
        key: Option<i64>,
        /// Maximum number of actions, from 1 to 1000.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=1_000))]
        limit: i64,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(super) async fn audit(config: Config, command: AuditCommand) -> anyhow::Result<()> {
    let AuditCommand::List { key, limit, json } = command;
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let filter = ActionFilter { key: key.map(ServerKeyId), ..ActionFilter::default() };
    let recorded = app.operators.recorded(&filter, limit).await?;
    if json {
        return print(&Value::from(recorded.iter().map(described).collect::<Vec<_>>()).to_string());
    }
    let lines: Vec<String> = recorded.iter().map(line).collect();
    print(&if lines.is_empty() { "no actions".to_owned() } else { lines.join("\n") })
}

fn described(action: &Recorded) -> Value {
    json!({
        "id": action.id,
        "operator": action.operator,
        "key_id": action.key_id,
        "scope": action.scope,
        "action": action.action,
        "target": action.target,
        "reason": action.reason,
        "details": action.details,
        "outcome": action.outcome,
        "request_id": action.request_id,
        "created_at": action.created_at.format(&Rfc3339).unwrap_or_default(),
    })
}

fn line(action: &Recorded) -> String {
    let at = action.created_at.replace_nanosecond(0).unwrap_or(action.created_at).format(&Rfc3339).unwrap_or_default();
    let outcome = if action.outcome == "done" { String::new() } else { format!(" ({})", action.outcome) };
    let reason = if action.reason.is_empty() { String::new() } else { format!(": {}", plain(&action.reason)) };
    let (id, operator) = (action.id, plain(&action.operator));
    format!("{id} {at} {operator} {} {}{outcome}{reason}", action.action, plain(&action.target))
}
