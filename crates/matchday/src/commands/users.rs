//! `matchday users show`: one account as operators see it.

use anyhow::{Context as _, bail};
use clap::Args;
use matchday::{
    app::App,
    config::Config,
    console::service::{ReportRow, UserView},
    operators::Operator,
    phone::Phone,
};
use time::{OffsetDateTime, UtcOffset, macros::format_description};

use super::{check_schema, plain, print};

#[derive(Args)]
pub(crate) struct ShowArguments {
    /// An id or a username.
    user: String,
    /// Print the whole phone number. This is recorded, with the reason and the operator.
    #[arg(long, requires = "reason")]
    phone: bool,
    /// Reason for printing the phone number.
    #[arg(long, requires = "phone")]
    reason: Option<String>,
    /// Operator who asks for the phone number.
    #[arg(long = "by", default_value = "the command line")]
    operator: String,
}

pub(super) async fn show(config: Config, arguments: ShowArguments) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    let named = &arguments.user;
    let user = app.safety.user(named).await.with_context(|| named.clone())?;
    let server = app.config.matrix.server_name.as_deref();
    let chat_name = |username: &str| server.map(|server| format!("@{username}:{server}"));
    let Some(found) = app.console.find_user(user, chat_name).await? else { bail!("{named}: there is no such user") };
    let phone = match &arguments.reason {
        Some(reason) => app.console.reveal_phone(user, &Operator::new(&arguments.operator, reason)).await?,
        None => None,
    };
    print(&told(&found, phone.as_ref(), chat_name(&found.row.username).as_deref()))
}

fn moment(at: OffsetDateTime) -> String {
    let shown = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    at.to_offset(UtcOffset::UTC).format(shown).unwrap_or_default()
}

/// Lines for a person. Texts that users wrote lose their control characters, which could move the cursor.
fn told(found: &UserView, phone: Option<&Phone>, chat_name: Option<&str>) -> String {
    let row = &found.row;
    let mut lines = vec![format!("{} (user {})", row.username, row.id)];
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<10}{text}"));
    line("state", state(found));
    line(
        "username",
        if row.username_is_generated { "made up by the service" } else { "chosen by the user" }.to_owned(),
    );
    line("name", row.name.as_deref().map_or_else(|| "not given".to_owned(), plain));
    line(
        "phone",
        match (phone, &row.phone) {
            (Some(phone), _) => phone.as_str().to_owned(),
            (None, Some(phone)) => phone.to_string(),
            (None, None) => "none".to_owned(),
        },
    );
    line("since", moment(row.created_at));
    line(
        "sessions",
        match found.sessions {
            (count, Some(last)) => format!("{count}, last used {}", moment(last)),
            (_, None) => "none".to_owned(),
        },
    );
    line(
        "chat",
        match (row.has_chat_account, chat_name) {
            (true, Some(name)) => format!("{name}, in {} rooms", found.rooms),
            (true, None) => format!("has an account, in {} rooms", found.rooms),
            (false, _) => "no account".to_owned(),
        },
    );
    line("coins", found.balance.to_string());
    if let Some((points, exact, correct, settled)) = found.score {
        line(
            "score",
            format!("{points} points from {settled} matches: {exact} exact scores, {correct} right outcomes"),
        );
    }
    let restrictions = found.restrictions.iter().map(|(action, reason, operator, at)| {
        format!("{} {action} by {}: {}", moment(*at), plain(operator), plain(reason))
    });
    section(&mut lines, "restrictions, latest first", restrictions);
    section(&mut lines, "reports about the user, latest first", found.about.iter().map(report));
    section(&mut lines, "reports by the user, latest first", found.by.iter().map(report));
    let transactions = found.transactions.iter().map(|entry| {
        let why = entry.remark.as_ref().or(entry.reason.as_ref()).map(|why| format!(" ({})", plain(why)));
        let by = entry.operator.as_ref().map(|operator| format!(" by {}", plain(operator)));
        format!(
            "{} {:+} {}{}{}, balance {}",
            moment(entry.created_at),
            entry.amount,
            entry.kind,
            why.unwrap_or_default(),
            by.unwrap_or_default(),
            entry.balance
        )
    });
    section(&mut lines, "coin transactions, latest first", transactions);
    lines.join("\n")
}

fn section(lines: &mut Vec<String>, title: &str, entries: impl Iterator<Item = String>) {
    lines.push(format!("  {title}:"));
    let before = lines.len();
    lines.extend(entries.map(|entry| format!("    {entry}")));
    if lines.len() == before {
        lines.push("    none".to_owned());
    }
}

/// Restrictions in force, each with the reason for it.
fn state(found: &UserView) -> String {
    let row = &found.row;
    let reason = |action: &str| {
        let latest = found.restrictions.iter().find(|(name, ..)| name == action);
        latest.map(|(_, reason, ..)| format!(" ({})", plain(reason))).unwrap_or_default()
    };
    let in_force =
        [("ban", "banned", row.banned_at, row.banned_until), ("mute", "muted", row.muted_at, row.muted_until)];
    let told: Vec<String> = in_force
        .into_iter()
        .filter_map(|(action, word, since, until)| {
            let until = until.map_or_else(|| "lifted".to_owned(), moment);
            Some(format!("{word} since {} until {until}{}", moment(since?), reason(action)))
        })
        .collect();
    if told.is_empty() { "active".to_owned() } else { told.join("; ") }
}

fn report(report: &ReportRow) -> String {
    let state = match (report.closed_at, &report.resolution) {
        (None, _) => "open".to_owned(),
        (Some(at), resolution) => {
            format!("closed {}: {}", moment(at), plain(resolution.as_deref().unwrap_or("no resolution")))
        }
    };
    format!(
        "{} report {} by {} in \"{}\": {} [{state}]",
        moment(report.created_at),
        report.id,
        report.reporter,
        plain(&report.room),
        plain(&report.reason)
    )
}
