//! Reported messages: the queue, and the page of a report with the moderator's actions.

use maud::{Markup, html};
use time::{Duration, OffsetDateTime, macros::format_description};
use url::form_urlencoded::byte_serialize;

use super::{
    Tone, audit, badge, length, mark, minute, moment_ago, number, overview::tile, pager, reason, table, users,
};
use crate::{
    admin::console::{
        extract::Identity,
        rules::{Role, context_text, message_text},
        service::{ReportFilter, ReportRow, ReportState, ReportView, ReportsView, Sender},
    },
    chat::reports::{
        rules::{IN_TIME, Resolution},
        service::{ContextMessage, Figures},
    },
    identity::operators::service::Recorded,
};

/// Age of a report from which the list marks it as urgent.
const URGENT: Duration = Duration::hours(20);

fn state_name(state: &ReportState) -> &'static str {
    match state {
        ReportState::Open => "open",
        ReportState::ClaimedBy(_) => "mine",
        ReportState::Closed => "closed",
    }
}

/// Value of a date field.
fn day(at: OffsetDateTime) -> String {
    at.format(format_description!("[year]-[month]-[day]")).unwrap_or_default()
}

/// Last day of a filter, whose end is exclusive.
fn last_day(filter: &ReportFilter) -> Option<String> {
    filter.until.map(|until| day(until - Duration::DAY))
}

fn address(filter: &ReportFilter, page: i64) -> String {
    let mut address = format!("/console/reports?state={}&page={page}", state_name(&filter.state));
    let text = filter.text.clone();
    for (name, value) in [("q", text), ("from", filter.from.map(day)), ("until", last_day(filter))] {
        if let Some(value) = value {
            address.extend(["&", name, "="]);
            address.extend(byte_serialize(value.as_bytes()));
        }
    }
    address
}

pub(in crate::admin::console) fn list(
    viewer: &Identity,
    reports: &ReportsView,
    figures: Option<&Figures>,
    filter: &ReportFilter,
    now: OffsetDateTime,
) -> Markup {
    let (page, rows) = (filter.page, &reports.listed.rows);
    let more = reports.listed.has_more.then(|| address(filter, page + 1));
    html! {
        h1 { "Reports" }
        @if let Some(figures) = figures { (tiles(figures, now)) }
        (search(filter))
        @if rows.is_empty() { (nothing(filter)) }
        @for report in rows {
            @let sender = report.sender.as_ref().and_then(|sender| reports.senders.get(sender));
            (one(viewer, report, sender, now))
        }
        (pager((page > 0).then(|| address(filter, page - 1)), more))
    }
}

fn tiles(figures: &Figures, now: OffsetDateTime) -> Markup {
    let unknown = || html! { span.quiet { "–" } };
    let took = |took: Option<Duration>| took.map_or_else(unknown, |took| html! { (length(took)) });
    let week = html! { span.quiet { "last 7 days" } };
    let (oldest, oldest_state) = match figures.oldest.map(|oldest| now - oldest) {
        None => (unknown(), html! { span.quiet { "no open reports" } }),
        Some(age) if age >= URGENT => (html! { (length(age)) }, badge(Tone::Bad, "urgent")),
        Some(age) => (html! { (length(age)) }, html! { span.quiet { "waiting" } }),
    };
    #[expect(clippy::cast_possible_truncation, reason = "a share of at most 100")]
    let in_time = figures.in_time.map_or_else(unknown, |share| html! { ((share * 100.0).floor() as i64) "%" });
    html! {
        div.tiles {
            (tile("Open reports", &html! { (number(figures.open)) }, &html! { span.quiet { (number(figures.closed)) " closed in 7 days" } }))
            (tile("Oldest open report", &oldest, &oldest_state))
            (tile("Median time to resolution", &took(figures.median), &week))
            (tile("95% resolved within", &took(figures.p95), &week))
            (tile(&format!("Resolved within {} h", IN_TIME.whole_hours()), &in_time, &week))
        }
    }
}

fn search(filter: &ReportFilter) -> Markup {
    let is_default =
        filter.state == ReportState::Open && filter.text.is_none() && filter.from.is_none() && filter.until.is_none();
    html! {
        form.filter method="get" action="/console/reports" {
            div {
                label for="state" { "State" }
                select id="state" name="state" {
                    @for (value, label) in [("open", "Open"), ("mine", "Claimed by me"), ("closed", "Closed")] {
                        option value=(value) selected[state_name(&filter.state) == value] { (label) }
                    }
                }
            }
            div.grow {
                label for="q" { "#id, username, room or words" }
                input type="search" id="q" name="q" value=[filter.text.as_deref()] maxlength="100" autocomplete="off";
            }
            div { label for="from" { "Reported from" } input type="date" id="from" name="from" value=[filter.from.map(day)]; }
            div { label for="until" { "Reported until" } input type="date" id="until" name="until" value=[last_day(filter)]; }
            button type="submit" { "Show" }
            @if !is_default { a.button href="/console/reports" { "All open reports" } }
        }
    }
}

fn nothing(filter: &ReportFilter) -> Markup {
    let is_filtered = filter.text.is_some() || filter.from.is_some() || filter.until.is_some();
    match (filter.page > 0, is_filtered, &filter.state) {
        (true, ..) => html! { p.banner.busy { "No reports on this page." } },
        (_, true, ReportState::Closed) => html! { p.banner.busy { "No closed reports match." } },
        (_, true, _) => html! { p.banner.busy { "No open reports match. Try the closed reports." } },
        (_, _, ReportState::Closed) => html! { p.banner.busy { "No closed reports yet." } },
        (_, _, ReportState::ClaimedBy(_)) => html! { p.banner.busy { "You have not claimed any report." } },
        (_, _, ReportState::Open) => html! { p.banner.good { "No open reports." } },
    }
}

/// State of a report as labels.
fn labels(viewer: &Identity, report: &ReportRow, now: OffsetDateTime) -> Markup {
    html! {
        @match (report.closed_at, report.claim(now)) {
            (Some(_), _) => (badge(Tone::Quiet, "closed")),
            (None, Some((by, _))) if by == viewer.name() => (badge(Tone::Good, "claimed by you")),
            (None, Some((by, _))) => (badge(Tone::Busy, &format!("claimed by {by}"))),
            (None, None) => (badge(Tone::Busy, "open")),
        }
        @if report.closed_at.is_none() && now - report.created_at >= URGENT { " " (badge(Tone::Bad, "urgent")) }
    }
}

/// The reported message with its sender, room and time.
fn message(report: &ReportRow, sender: Option<&Sender>, now: OffsetDateTime) -> Markup {
    html! {
        blockquote {
            @match &report.content {
                Some(content) => p { (message_text(content)) },
                None => p.quiet { "The message is not available: the homeserver was down when it was reported, it is encrypted, or it was erased." },
            }
            footer {
                @match (&report.sender, sender) {
                    (Some(name), Some(sender)) => a href={ "/console/users/" (sender.id) } { (name) },
                    (Some(name), None) => { (name) " " span.quiet { "(no local account)" } },
                    (None, _) => span.quiet { "unknown sender" },
                }
                " in " strong { (report.room) }
                @if let Some(at) = report.sent_at { ", " (moment_ago(at, now)) }
                @if sender.is_some_and(|sender| sender.banned_at.is_some()) { " " (badge(Tone::Bad, "banned")) }
                @if sender.is_some_and(|sender| sender.muted_at.is_some()) { " " (badge(Tone::Busy, "muted")) }
            }
        }
        p { "Reported by " a href={ "/console/users/" (report.reporter_id) } { (report.reporter) } " for “" (report.reason) "”, " (moment_ago(report.created_at, now)) }
        @if let Some(at) = report.closed_at { (closed(report, at, now)) }
    }
}

fn closed(report: &ReportRow, at: OffsetDateTime, now: OffsetDateTime) -> Markup {
    let resolution = report.resolution.as_deref().and_then(|name| name.parse().ok()).map(title);
    html! {
        p {
            "Closed by " @match &report.closed_by { Some(operator) => strong { (operator) }, None => span.quiet { "unknown operator" } }
            ", " (moment_ago(at, now)) ": " strong { (resolution.unwrap_or("no resolution")) }
            @if let Some(note) = &report.note { ", “" (note) "”" }
        }
        @if let Some(answer) = &report.answer { p.answer { span.quiet { "Answer to the reporter: " } (answer) } }
    }
}

fn title(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::NoViolation => "No violation",
        Resolution::MessageRemoved => "Message removed",
        Resolution::SenderMuted => "Sender muted",
        Resolution::SenderBanned => "Sender banned",
        Resolution::Duplicate => "Duplicate",
    }
}

fn one(viewer: &Identity, report: &ReportRow, sender: Option<&Sender>, now: OffsetDateTime) -> Markup {
    let is_free = report.closed_at.is_none() && report.claim(now).is_none();
    html! {
        article.card.report aria-labelledby={ "report-" (report.id) } {
            h2 id={ "report-" (report.id) } {
                a href={ "/console/reports/" (report.id) } { "Report " (report.id) } " " (labels(viewer, report, now))
            }
            (message(report, sender, now))
            @if is_free && viewer.may(Role::Moderator) { (button(viewer, report.id, "claim", "Claim")) }
        }
    }
}

/// A form with one button.
fn button(viewer: &Identity, report: i64, action: &str, label: &str) -> Markup {
    html! {
        form.inline method="post" action={ "/console/reports/" (report) "/" (action) } {
            (mark(viewer))
            @if label == TAKE_OVER { input type="hidden" name="take_over" value="yes"; }
            button type="submit" { (label) }
        }
    }
}

const TAKE_OVER: &str = "Take over";

/// Messages around the reported one, if they were requested and could be loaded.
pub(in crate::admin::console) enum Context {
    /// The operator's role does not include reading them.
    NotAllowed,
    Unavailable,
    Loaded(Vec<ContextMessage>),
}

pub(in crate::admin::console) fn show(
    viewer: &Identity,
    found: &ReportView,
    context: &Context,
    recorded: &[Recorded],
    now: OffsetDateTime,
) -> Markup {
    let report = &found.row;
    let may_act = viewer.may(Role::Moderator) && report.closed_at.is_none();
    let others = |count: i64| {
        if count == 1 { "1 other open report".to_owned() } else { format!("{} other open reports", number(count)) }
    };
    html! {
        p.trail { a href="/console/reports" { "Reports" } }
        h1 { "Report " (report.id) }
        p.lead { (labels(viewer, report, now)) }
        div.columns {
            div {
                section.card {
                    h2 { "Message" }
                    (message(report, found.sender.as_ref(), now))
                    @if found.same_message > 0 { p { (others(found.same_message)) " of this message" } }
                    p.quiet {
                        "Message " code { (report.event_id) }
                        @if let Some(room) = &report.room_id { " in room " code { (room) } }
                    }
                    @if may_act { (claim(viewer, report, now)) }
                }
                (surroundings(report, context, now))
            }
            @if may_act { div { (actions(viewer, found, now)) } }
        }
        (restrictions(found, now))
        (users::reports("Other reports about the sender", &found.about, true, now))
        (audit::of_one("Operator actions", recorded, now))
    }
}

fn surroundings(report: &ReportRow, context: &Context, now: OffsetDateTime) -> Markup {
    html! {
        section.card {
            h2 { "Context" }
            @match context {
                Context::NotAllowed => p.quiet { "Only moderators can read the messages around the reported one." },
                Context::Unavailable => p.quiet { "The homeserver is unavailable, so the messages around the reported one cannot be shown. Reload the page to try again." },
                Context::Loaded(messages) if messages.is_empty() => p.quiet { "The homeserver no longer has the message." },
                Context::Loaded(messages) => ol.context { @for message in messages {
                    li aria-current=[(message.event_id == report.event_id).then_some("true")] {
                        span.quiet { (message.sender) @if let Some(at) = message.sent_at { ", " (moment_ago(at, now)) } }
                        @match context_text(&message.content) {
                            Ok(text) => p { (text) },
                            Err(state) => p.quiet { (state) },
                        }
                    }
                } },
            }
        }
    }
}

fn restrictions(found: &ReportView, now: OffsetDateTime) -> Markup {
    let rows = html! { @for (action, reason, operator, at) in &found.restrictions { tr {
        td { (moment_ago(*at, now)) }
        th scope="row" { (action) }
        td { (reason) }
        td { (operator) }
    } } };
    let heads = ["Time", "Action", "Reason", "Operator"];
    table("Restrictions of the sender", &heads, &rows, found.restrictions.is_empty(), "No restrictions.")
}

/// State of the claim, with its buttons. It is part of the message's card, so that it comes first on narrow screens.
fn claim(viewer: &Identity, report: &ReportRow, now: OffsetDateTime) -> Markup {
    match report.claim(now) {
        None => html! {
            p.quiet { "Claim the report so that no other operator handles it at the same time." }
            (button(viewer, report.id, "claim", "Claim"))
        },
        Some((by, until)) if by != viewer.name() => html! {
            p { strong { (by) } " handles this report until " (minute(until)) "." }
            (button(viewer, report.id, "claim", TAKE_OVER))
        },
        Some((_, until)) => html! {
            p { "You handle this report until " (minute(until)) "." }
            div.actions {
                (button(viewer, report.id, "claim", "Extend"))
                (button(viewer, report.id, "release", "Release"))
            }
        },
    }
}

fn actions(viewer: &Identity, found: &ReportView, now: OffsetDateTime) -> Markup {
    let report = &found.row;
    let is_others = report.claim(now).is_some_and(|(by, _)| by != viewer.name());
    html! {
        (remove(viewer, found))
        @if let Some(sender) = found.sender {
            (users::restrict(viewer, sender.id, sender.banned_at.is_some(), sender.muted_at.is_some(), Some(report.id)))
        }
        @if !is_others { (resolve(viewer, found)) }
    }
}

/// The form that removes the message, or all messages that the sender wrote in the room on one day.
fn remove(viewer: &Identity, found: &ReportView) -> Markup {
    html! {
        section.card {
            h2 { "Remove message" }
            form method="post" action={ "/console/reports/" (found.row.id) "/remove" } {
                (mark(viewer))
                (reason("removal", "Reason (shown in the room and to the sender)"))
                @if found.sender.is_some() {
                    label.check {
                        input type="checkbox" name="all" value="yes";
                        " Also remove all other messages that the sender wrote in this room in the last 24 hours"
                    }
                }
                div.actions { button.danger type="submit" { "Remove" } }
            }
        }
    }
}

fn resolve(viewer: &Identity, found: &ReportView) -> Markup {
    let (report, sender) = (&found.row, found.sender.as_ref());
    let likely = match sender {
        Some(sender) if sender.banned_at.is_some() => Resolution::SenderBanned,
        Some(sender) if sender.muted_at.is_some() => Resolution::SenderMuted,
        _ if found.is_removed => Resolution::MessageRemoved,
        _ => Resolution::NoViolation,
    };
    let same = found.same_message;
    html! {
        section.card {
            h2 { "Close report" }
            form method="post" action={ "/console/reports/" (report.id) "/close" } {
                (mark(viewer))
                label for="resolution" { "Resolution" }
                select id="resolution" name="resolution" {
                    @for kind in Resolution::ALL { option value=(kind.name()) selected[kind == likely] { (title(kind)) } }
                }
                (reason("note", "Note for operators (recorded with your name)"))
                label for="answer" { "Answer to the reporter (optional)" }
                textarea id="answer" name="answer" maxlength="1000" rows="3" {}
                @if same > 0 {
                    label.check {
                        input type="checkbox" name="all" value="yes" checked;
                        " Also close " (number(same)) " other open " @if same == 1 { "report" } @else { "reports" } " of this message"
                    }
                }
                div.actions { button type="submit" { "Close report" } }
            }
        }
    }
}
