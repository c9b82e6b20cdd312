//! Reported messages: open ones with the moderator's actions, closed ones with their resolution.

use maud::{Markup, html};
use time::OffsetDateTime;
use url::form_urlencoded::byte_serialize;

use super::{Tone, badge, mark, moment_ago, pager, reason};
use crate::admin::console::{
    extract::Identity,
    rules::{Role, message_text},
    service::{Listed, ReportFilter, ReportRow},
};

fn address(filter: &ReportFilter, page: i64) -> String {
    let state = if filter.is_closed { "closed" } else { "open" };
    let mut address = format!("/console/reports?state={state}&page={page}");
    if let Some(text) = &filter.text {
        address.push_str("&q=");
        address.extend(byte_serialize(text.as_bytes()));
    }
    address
}

pub(in crate::admin::console) fn list(
    viewer: &Identity,
    reports: &Listed<ReportRow>,
    filter: &ReportFilter,
    now: OffsetDateTime,
) -> Markup {
    let page = filter.page;
    html! {
        h1 { "Reports" }
        form.filter method="get" action="/console/reports" {
            div {
                label for="state" { "State" }
                select id="state" name="state" {
                    option value="open" selected[!filter.is_closed] { "Open" }
                    option value="closed" selected[filter.is_closed] { "Closed" }
                }
            }
            div.grow {
                label for="q" { "#id, username, or text of the message, reason or resolution" }
                input type="search" id="q" name="q" value=[filter.text.as_deref()] maxlength="100" autocomplete="off";
            }
            button type="submit" { "Show" }
            @if filter.is_closed || filter.text.is_some() { a.button href="/console/reports" { "All open reports" } }
        }
        @if reports.rows.is_empty() { (nothing(filter)) }
        @for report in &reports.rows { (one(viewer, report, now)) }
        (pager((page > 0).then(|| address(filter, page - 1)), reports.has_more.then(|| address(filter, page + 1))))
    }
}

fn nothing(filter: &ReportFilter) -> Markup {
    match (filter.page > 0, &filter.text, filter.is_closed) {
        (true, ..) => html! { p.banner.busy { "No reports on this page." } },
        (_, Some(_), true) => html! { p.banner.busy { "No closed reports match." } },
        (_, Some(_), false) => {
            html! { p.banner.busy { "No open reports match. Try the closed reports." } }
        }
        (_, None, true) => html! { p.banner.busy { "No closed reports yet." } },
        (_, None, false) => html! { p.banner.good { "No open reports." } },
    }
}

fn one(viewer: &Identity, report: &ReportRow, now: OffsetDateTime) -> Markup {
    html! {
        article.card.report aria-labelledby={ "report-" (report.id) } {
            h2 id={ "report-" (report.id) } {
                "Report " (report.id)
                @if report.closed_at.is_some() { " " (badge(Tone::Quiet, "closed")) }
            }
            blockquote {
                @match &report.content {
                    Some(content) => p { (message_text(content)) },
                    None => p.quiet { "The message is not available: the homeserver was down when it was reported, it is encrypted, or it was erased." },
                }
                footer {
                    @match (&report.sender, report.sender_id) {
                        (Some(sender), Some(user)) => a href={ "/console/users/" (user) } { (sender) },
                        (Some(sender), None) => { (sender) " " span.quiet { "(no local account)" } },
                        (None, _) => span.quiet { "unknown sender" },
                    }
                    " in " strong { (report.room) }
                    @if let Some(at) = report.sent_at { ", " (moment_ago(at, now)) }
                    @if report.sender_banned_at.is_some() { " " (badge(Tone::Bad, "banned")) }
                    @if report.sender_muted_at.is_some() { " " (badge(Tone::Busy, "muted")) }
                }
            }
            p { "Reported by " a href={ "/console/users/" (report.reporter_id) } { (report.reporter) } " for “" (report.reason) "”, " (moment_ago(report.created_at, now)) }
            @match report.closed_at {
                Some(at) => (closed(report, at, now)),
                None => { @if viewer.may(Role::Moderator) { (actions(viewer, report)) } }
            }
        }
    }
}

fn closed(report: &ReportRow, at: OffsetDateTime, now: OffsetDateTime) -> Markup {
    html! {
        p {
            "Closed by " @match &report.closed_by { Some(operator) => strong { (operator) }, None => span.quiet { "unknown operator" } }
            ", " (moment_ago(at, now)) ": "
            @match &report.resolution { Some(resolution) => { "“" (resolution) "”" }, None => span.quiet { "no resolution given" } }
        }
    }
}

fn actions(viewer: &Identity, report: &ReportRow) -> Markup {
    let id = format!("reason-{}", report.id);
    html! {
        form method="post" action={ "/console/reports/" (report.id) } {
            (mark(viewer))
            (reason(&id, "Resolution (recorded with your name)"))
            div.actions {
                button type="submit" name="action" value="close" { @if report.sender_id.is_some() { "Close without action" } @else { "Close" } }
                @if report.sender_id.is_some() {
                    @if report.sender_muted_at.is_none() { button type="submit" name="action" value="mute" { "Mute sender and close" } }
                    @if report.sender_banned_at.is_none() { button.strong type="submit" name="action" value="ban" { "Ban sender and close" } }
                }
            }
        }
    }
}
