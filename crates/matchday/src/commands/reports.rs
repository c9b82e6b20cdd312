//! `matchday reports`: the queue of reported messages.

use anyhow::bail;
use clap::{Args, Subcommand};
use matchday::{
    admin::console::service::{ReportFilter, ReportRow, ReportState, ReportView},
    app::App,
    chat::reports::{
        rules::{ReporterAnswer, Resolution},
        service::{Ending, OthersClaim, ReportError, Scope},
    },
    config::Config,
    identity::operators::Operator,
};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{check_schema, counted, plain, print};

#[derive(Subcommand)]
pub(crate) enum ReportsCommand {
    /// List open reports, oldest first, or closed reports, last closed first.
    List {
        /// List closed reports.
        #[arg(long)]
        closed: bool,
        /// List only reports with this text in the message, reason, note, answer, room, or name of sender or reporter,
        /// or the report with this id, like #17.
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        /// Page of the list; each has 25 reports.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        page: i64,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show a report: message, claim, resolution, other reports about the sender, and the sender's restrictions.
    Show {
        /// Report id as printed by `list`.
        id: i64,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Claim a report, or extend your claim, so that no other operator handles it.
    Claim {
        #[command(flatten)]
        of: ReportArguments,
        /// Take the report over from the operator who has claimed it.
        #[arg(long)]
        take_over: bool,
    },
    /// End your claim on a report.
    Release(ReportArguments),
    /// Close a report with a resolution. This only records the resolution: remove the message and restrict the sender
    /// with the other commands.
    Close(CloseArguments),
}

#[derive(Args)]
pub(crate) struct ReportArguments {
    /// Report id as printed by `list`.
    id: i64,
    /// Name of the operator, recorded with the action.
    #[arg(long = "by", default_value = "the command line")]
    operator: String,
}

#[derive(Args)]
pub(crate) struct CloseArguments {
    #[command(flatten)]
    of: ReportArguments,
    /// One of `no_violation`, `message_removed`, `sender_muted`, `sender_banned` and `duplicate`.
    #[arg(long, value_name = "KIND")]
    resolution: Resolution,
    /// Reason, stored with the report for operators.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Text to the reporter, who can read it in the app.
    #[arg(long, value_name = "TEXT")]
    answer: Option<ReporterAnswer>,
    /// Close all open reports of the same message, except reports claimed by other operators.
    #[arg(long)]
    all: bool,
    /// Close reports that other operators have claimed too.
    #[arg(long)]
    take_over: bool,
}

pub(crate) async fn reports(config: Config, command: ReportsCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    match command {
        ReportsCommand::List { closed, search, page, json } => list(&app, closed, search, page, json).await,
        ReportsCommand::Show { id, json } => show(&app, id, json).await,
        ReportsCommand::Claim { of: ReportArguments { id, operator }, take_over } => {
            let operator = Operator::new(operator, "");
            let until = app.reports.claim(id, &operator, others_claim(take_over)).await.map_err(|e| refused(id, e))?;
            print(&format!("report {id} is claimed until {}", moment(until)))
        }
        ReportsCommand::Release(ReportArguments { id, operator }) => {
            app.reports.release(id, &Operator::new(operator, "")).await.map_err(|error| refused(id, error))?;
            print(&format!("report {id} is released"))
        }
        ReportsCommand::Close(arguments) => close(&app, arguments).await,
    }
}

fn others_claim(take_over: bool) -> OthersClaim {
    if take_over { OthersClaim::TakeOver } else { OthersClaim::Respect }
}

/// Error message with the command that helps.
fn refused(id: i64, error: ReportError) -> anyhow::Error {
    match error {
        ReportError::NoSuchReport | ReportError::Closed => {
            anyhow::anyhow!("report {id} is not open: `matchday reports list` lists the open ones")
        }
        ReportError::Claimed(claim) => anyhow::anyhow!(
            "report {id} is claimed by {} until {}: use --take-over to handle it instead",
            plain(&claim.by),
            moment(claim.until)
        ),
        other => anyhow::Error::new(other).context(format!("report {id}")),
    }
}

async fn list(app: &App, closed: bool, search: Option<String>, page: i64, json: bool) -> anyhow::Result<()> {
    let state = if closed { ReportState::Closed } else { ReportState::Open };
    let filter = ReportFilter { state, text: search, page: page - 1, ..ReportFilter::default() };
    let found = app.console.reports(server(app), &filter).await?;
    let rows = &found.listed.rows;
    if json {
        return print(&json!(rows.iter().map(object).collect::<Vec<_>>()).to_string());
    }
    if rows.is_empty() {
        return print(match (closed, filter.text.is_some()) {
            (false, false) => "no open reports",
            (true, false) => "no closed reports",
            (false, true) => "no open reports match",
            (true, true) => "no closed reports match",
        });
    }
    let mut lines: Vec<String> = rows.iter().map(describe).collect();
    if found.listed.has_more {
        lines.push(format!("there are more reports: --page {}", page + 1));
    }
    print(&lines.join("\n"))
}

async fn show(app: &App, id: i64, json: bool) -> anyhow::Result<()> {
    let Some(found) = app.console.find_report(server(app), id).await? else { bail!("report {id} does not exist") };
    if json {
        let mut shown = object(&found.row);
        shown["other_open_reports"] = json!(found.same_message);
        shown["reports_about_sender"] = json!(found.about.iter().map(object).collect::<Vec<_>>());
        let restrictions = found.restrictions.iter().map(|(action, reason, operator, at)| {
            json!({"action": action, "reason": reason, "operator": operator, "created_at": moment(*at)})
        });
        shown["restrictions_of_sender"] = json!(restrictions.collect::<Vec<_>>());
        return print(&shown.to_string());
    }
    print(&view(&found))
}

async fn close(app: &App, arguments: CloseArguments) -> anyhow::Result<()> {
    let CloseArguments { of: ReportArguments { id, operator }, resolution, reason, answer, all, take_over } = arguments;
    let scope = if all { Scope::SameMessage } else { Scope::One };
    let ending = Ending { resolution, answer, scope, others_claim: others_claim(take_over) };
    let operator = Operator::new(operator, reason);
    let closed = app.reports.close(id, &operator, &ending).await.map_err(|error| refused(id, error))?;
    print(&match closed.len() {
        0 | 1 => format!("report {id} is closed"),
        more => format!("report {id} and {} of the same message are closed", counted(more - 1, "other report")),
    })
}

/// Server name in the Matrix ids of the service's users.
fn server(app: &App) -> &str {
    app.config.matrix.server_name.as_deref().unwrap_or_default()
}

fn moment(at: OffsetDateTime) -> String {
    at.replace_nanosecond(0).unwrap_or(at).format(&Rfc3339).unwrap_or_default()
}

fn object(report: &ReportRow) -> Value {
    let content: Option<Value> = report.content.as_deref().and_then(|content| serde_json::from_str(content).ok());
    json!({
        "id": report.id,
        "status": if report.closed_at.is_some() { "closed" } else { "open" },
        "reporter": {"id": report.reporter_id, "username": report.reporter},
        "room": report.room,
        "room_id": report.room_id,
        "event_id": report.event_id,
        "reason": report.reason,
        "sender": report.sender,
        "sent_at": report.sent_at.map(moment),
        "content": content,
        "created_at": moment(report.created_at),
        "claimed_by": report.claimed_by,
        "claimed_until": report.claimed_until.map(moment),
        "closed_at": report.closed_at.map(moment),
        "closed_by": report.closed_by,
        "resolution": report.resolution,
        "note": report.note,
        "answer": report.answer,
    })
}

/// Formats a report for a terminal, without the control characters of texts that users wrote.
fn describe(report: &ReportRow) -> String {
    let mut lines = vec![format!(
        "{} {} by {} in \"{}\": {}\n    {} {} {}",
        report.id,
        moment(report.created_at),
        report.reporter,
        plain(&report.room),
        plain(&report.reason),
        report.event_id,
        report.sender.as_deref().map_or_else(|| "(sender unknown)".to_owned(), plain),
        report.content.as_deref().map_or_else(|| "(content unknown: the homeserver was unavailable)".to_owned(), plain),
    )];
    if let (Some(by), Some(until)) = (&report.claimed_by, report.claimed_until) {
        lines.push(format!("    claimed by {} until {}", plain(by), moment(until)));
    }
    if let (Some(at), Some(resolution)) = (report.closed_at, &report.resolution) {
        let by = report.closed_by.as_deref().map_or_else(String::new, plain);
        let note = report.note.as_deref().map_or_else(String::new, plain);
        lines.push(format!("    closed {} by {by}: {resolution}, {note}", moment(at)));
    }
    if let Some(answer) = &report.answer {
        lines.push(format!("    answer: {}", plain(answer)));
    }
    lines.join("\n")
}

fn view(found: &ReportView) -> String {
    let mut lines = vec![describe(&found.row)];
    if found.same_message > 0 {
        let others = usize::try_from(found.same_message).unwrap_or(usize::MAX);
        lines.push(format!("  {} of the same message", counted(others, "other open report")));
    }
    lines.push("  other reports about the sender, latest first:".to_owned());
    lines.extend(found.about.iter().map(|report| format!("    {}", describe(report).replace('\n', "\n    "))));
    lines.push("  restrictions of the sender, latest first:".to_owned());
    lines.extend(found.restrictions.iter().map(|(action, reason, operator, at)| {
        format!("    {} {action} by {}: {}", moment(*at), plain(operator), plain(reason))
    }));
    lines.join("\n")
}
