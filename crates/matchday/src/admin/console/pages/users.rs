//! Users and their restrictions.

use maud::{Markup, html};
use time::OffsetDateTime;
use web::ids::UserId;

use super::{Tone, badge, change, mark, moment, moment_ago, number, pager, reason, table};
use crate::{
    admin::console::{
        extract::Identity,
        rules::{Role, message_text},
        service::{Listed, ReportRow, UserRow, UserView},
    },
    identity::{accounts::restrictions::Restriction, operators::service::Recorded},
};

pub(in crate::admin::console) fn list(
    viewer: &Identity,
    users: &Listed<UserRow>,
    search: Option<&str>,
    now: OffsetDateTime,
) -> Markup {
    let rows = html! { @for row in &users.rows { tr {
        td.n { (row.id) }
        th scope="row" { a href={ "/console/users/" (row.id) } { (row.username) } }
        td { @if let Some(name) = &row.name { (name) } }
        td { (phone(row)) }
        td { (moment_ago(row.created_at, now)) }
        td { (state(row)) }
    } } };
    let next = users.rows.last().filter(|_| users.has_more && search.is_none());
    html! {
        h1 { "Users" }
        form.filter method="post" action="/console/users" {
            (mark(viewer))
            div.grow {
                label for="q" { "Username, id or full phone number" }
                input type="search" id="q" name="q" value=[search] placeholder="swift_winger, 42 or +4917012345678" autocomplete="off";
            }
            button type="submit" { "Search" }
        }
        (table(if search.is_some() { "Search results" } else { "Newest users" }, &["#Id", "Username", "Name", "Phone", "Registered", "State"], &rows,
               users.rows.is_empty(), "No users found."))
        @if search.is_some() && users.has_more { p.quiet { "There are more results. Enter more of the name." } }
        (pager(None, next.map(|row| format!("/console/users?below={}", row.id))))
    }
}

/// Shows a shortened phone number, enough to recognise it.
fn phone(row: &UserRow) -> Markup {
    html! { @match &row.phone { Some(phone) => span.phone { (phone.to_string()) }, None => span.quiet { "none" } } }
}

fn state(row: &UserRow) -> Markup {
    html! {
        @if row.banned_at.is_some() { (badge(Tone::Bad, "banned")) " " }
        @if row.muted_at.is_some() { (badge(Tone::Busy, "muted")) }
        @if row.banned_at.is_none() && row.muted_at.is_none() { span.quiet { "active" } }
    }
}

pub(in crate::admin::console) fn show(
    viewer: &Identity,
    found: &UserView,
    recorded: &[Recorded],
    now: OffsetDateTime,
) -> Markup {
    let row = &found.row;
    let restrictions = html! { @for (action, reason, operator, at) in &found.restrictions { tr {
        td { (moment_ago(*at, now)) }
        th scope="row" { (action) }
        td { (reason) }
        td { (operator) }
    } } };
    let transactions = html! { @for entry in &found.transactions { tr {
        td { (moment_ago(entry.created_at, now)) }
        th scope="row" { (entry.kind) @if let Some(reason) = entry.reason.as_ref().filter(|reason| **reason != entry.kind) { " " span.quiet { (reason) } } }
        td { @if let Some(remark) = &entry.remark { (remark) } @if let Some(operator) = &entry.operator { " " span.quiet { "by " (operator) } } }
        td.n { (change(entry.amount)) }
        td.n { (number(entry.balance)) }
    } } };
    html! {
        p.trail { a href="/console/users" { "Users" } }
        h1 { (row.username) }
        p.lead { (state(row)) }
        div.columns {
            section.card {
                h2 { "Account" }
                dl {
                    dt { "Id" } dd { (row.id) }
                    dt { "Username" } dd { (row.username) @if row.username_is_generated { " " span.quiet { "generated" } } }
                    dt { "Name" } dd { @match &row.name { Some(name) => (name), None => span.quiet { "not given" } } }
                    dt { "Phone" } dd { (phone(row)) }
                    dt { "Registered" } dd { (moment_ago(row.created_at, now)) }
                    @if let Some(at) = row.banned_at { dt { "Banned" } dd { (moment_ago(at, now)) (until(row.banned_until)) } }
                    @if let Some(at) = row.muted_at { dt { "Muted" } dd { (moment_ago(at, now)) (until(row.muted_until)) } }
                    dt { "Sessions" } dd {
                        @match found.sessions {
                            (count, Some(last)) => { (number(count)) ", last used " (moment_ago(last, now)) },
                            (_, None) => span.quiet { "none" },
                        }
                    }
                    dt { "Chat account" } dd { @if row.has_chat_account { "yes, in " (number(found.rooms)) " rooms" } @else { "no" } }
                    @if let Some((points, exact, correct, settled)) = found.score {
                        dt { "Score" } dd { (number(points.into())) " points, " (exact) " exact, " (correct) " right of " (settled) " matches" }
                    }
                    dt { "Coins" } dd { (number(found.balance)) }
                }
            }
            @if row.has_avatar { (avatar(viewer, row)) }
            @if viewer.may(Role::Moderator) { (restrict(viewer, row.id, row.banned_at.is_some(), row.muted_at.is_some(), None)) }
        }
        (table("Restrictions", &["Time", "Action", "Reason", "Operator"], &restrictions, found.restrictions.is_empty(), "No restrictions."))
        (reports("Reports about this user", &found.about, true, now))
        (reports("Reports by this user", &found.by, false, now))
        (table("Latest coin transactions", &["Time", "Transaction", "Remark", "#Amount", "#Balance"], &transactions, found.transactions.is_empty(), "No transactions."))
        (super::audit::of_one("Operator actions", recorded, now))
    }
}

fn avatar(viewer: &Identity, row: &UserRow) -> Markup {
    html! {
        section.card {
            h2 { "Avatar" }
            img.avatar src={ "/console/users/" (row.id) "/avatar" } width="128" height="128" alt={ "Avatar of " (row.username) };
            @if viewer.may(Role::Moderator) {
                form method="post" action={ "/console/users/" (row.id) "/avatar" } {
                    (mark(viewer))
                    (reason("avatar_reason", "Reason (recorded with your name)"))
                    div.actions { button type="submit" { "Remove avatar" } }
                }
            }
        }
    }
}

/// Durations to choose from, in the format of `matchday users ban --for`.
const DURATIONS: [(&str, &str); 6] =
    [("", "Permanent"), ("1h", "1 hour"), ("1d", "1 day"), ("7d", "7 days"), ("30d", "30 days"), ("365d", "365 days")];

fn until(end: Option<OffsetDateTime>) -> Markup {
    html! { @if let Some(end) = end { ", until " (moment(end)) } @else { ", permanent" } }
}

/// Form for bans and mutes. After an action on the page of a report, the operator returns to that page.
pub(super) fn restrict(
    viewer: &Identity,
    user: UserId,
    is_banned: bool,
    is_muted: bool,
    report: Option<i64>,
) -> Markup {
    let ban = if is_banned { (Restriction::Unban, "Lift ban") } else { (Restriction::Ban, "Ban") };
    let mute = if is_muted { (Restriction::Unmute, "Lift mute") } else { (Restriction::Mute, "Mute") };
    html! {
        section.card {
            h2 { @if report.is_some() { "Restrict sender" } @else { "Restrict user" } }
            p.quiet { "A ban blocks all access and removes the user from all rooms. A mute only blocks messages in chat." }
            form method="post" action={ "/console/users/" (user) "/restriction" } {
                (mark(viewer))
                @if let Some(report) = report { input type="hidden" name="report" value=(report); }
                (reason("reason", "Reason (recorded with your name)"))
                div {
                    label for="for" { "Duration of a ban or mute" }
                    select id="for" name="for" {
                        @for (value, label) in DURATIONS { option value=(value) { (label) } }
                    }
                }
                div.actions {
                    @for (action, label) in [mute, ban] {
                        button.strong[action == Restriction::Ban] type="submit" name="action" value=(action.name()) { (label) }
                    }
                }
            }
        }
    }
}

pub(super) fn reports(caption: &str, reports: &[ReportRow], by_others: bool, now: OffsetDateTime) -> Markup {
    let rows = html! { @for report in reports { tr {
        td { (moment_ago(report.created_at, now)) }
        td { @match &report.content { Some(content) => q { (message_text(content)) }, None => span.quiet { "not available" } } }
        td {
            (report.reason)
            @if by_others { " " span.quiet { "by " a href={ "/console/users/" (report.reporter_id) } { (report.reporter) } } }
        }
        td { (report.room) }
        td {
            a href={ "/console/reports/" (report.id) } { "Report " (report.id) } " "
            @match (&report.closed_at, &report.note) {
                (None, _) => (badge(Tone::Busy, "open")),
                (Some(_), Some(note)) => (note),
                (Some(_), None) => {},
            }
        }
    } } };
    table(caption, &["Time", "Message", "Reason", "Room", "Resolution"], &rows, reports.is_empty(), "No reports.")
}
