//! Messages that were reported.

use maud::{Markup, html};
use time::OffsetDateTime;

use super::{Tone, badge, mark, moment_ago, pager, reason};
use crate::console::{
    extract::Viewer,
    rules::said,
    service::{Listed, ReportRow},
};

pub(in crate::console) fn list(viewer: &Viewer, reports: &Listed<ReportRow>, page: i64, now: OffsetDateTime) -> Markup {
    let to = |page: i64| format!("/console/reports?page={page}");
    html! {
        h1 { "Reports" }
        @if reports.rows.is_empty() { p.banner.good { "Nobody waits for you: there are no open reports." } }
        @for report in &reports.rows { (one(viewer, report, now)) }
        (pager((page > 0).then(|| to(page - 1)), reports.has_more.then(|| to(page + 1))))
    }
}

fn one(viewer: &Viewer, report: &ReportRow, now: OffsetDateTime) -> Markup {
    let id = format!("reason-{}", report.id);
    html! {
        article.card.report aria-labelledby={ "report-" (report.id) } {
            h2 id={ "report-" (report.id) } { "Report " (report.id) }
            blockquote {
                @match &report.content {
                    Some(content) => p { (said(content)) },
                    None => p.quiet { "What was said is not known: the homeserver was away when it was reported, or it is encrypted." },
                }
                footer {
                    @match (&report.sender, report.sender_id) {
                        (Some(sender), Some(user)) => a href={ "/console/users/" (user) } { (sender) },
                        (Some(sender), None) => { (sender) " " span.quiet { "(not one of ours)" } },
                        (None, _) => span.quiet { "sender unknown" },
                    }
                    " in " strong { (report.room) }
                    @if let Some(at) = report.sent_at { ", " (moment_ago(at, now)) }
                    @if report.sender_banned_at.is_some() { " " (badge(Tone::Bad, "banned")) }
                    @if report.sender_muted_at.is_some() { " " (badge(Tone::Busy, "muted")) }
                }
            }
            p { "“" (report.reason) "”, says " a href={ "/console/users/" (report.reporter_id) } { (report.reporter) } ", " (moment_ago(report.created_at, now)) }
            form method="post" action={ "/console/reports/" (report.id) } {
                (mark(viewer))
                (reason(&id, "What you do about it, and why; it is kept with your name"))
                div.actions {
                    button type="submit" name="action" value="close" { @if report.sender_id.is_some() { "Only close it" } @else { "Close it" } }
                    @if report.sender_id.is_some() {
                        @if report.sender_muted_at.is_none() { button type="submit" name="action" value="mute" { "Mute the sender, and close it" } }
                        @if report.sender_banned_at.is_none() { button.strong type="submit" name="action" value="ban" { "Ban the sender, and close it" } }
                    }
                }
            }
        }
    }
}
