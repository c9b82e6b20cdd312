//! Audit log of the actions of operators and backends.

use maud::{Markup, html};
use serde_json::Value;
use time::OffsetDateTime;
use url::form_urlencoded::byte_serialize;

use super::{Tone, badge, moment_ago, pager, table};
use crate::identity::operators::service::{ActionFilter, Recorded};

pub(in crate::admin::console) fn show(
    recorded: &[Recorded],
    filter: &ActionFilter,
    has_more: bool,
    now: OffsetDateTime,
) -> Markup {
    let next = recorded.last().filter(|_| has_more).map(|last| {
        let mut href = format!("/console/audit?before={}", last.id);
        for (name, value) in [("operator", &filter.operator), ("target", &filter.target)] {
            if let Some(value) = value {
                href.extend(["&", name, "="]);
                href.extend(byte_serialize(value.as_bytes()));
            }
        }
        href
    });
    html! {
        h1 { "Audit" }
        form.filter method="get" action="/console/audit" {
            div { label for="operator" { "Operator, or key:7 for a server key" } input type="search" id="operator" name="operator" value=[filter.operator.as_deref()]; }
            div { label for="target" { "Target, for example user:42 or event:7" } input type="search" id="target" name="target" value=[filter.target.as_deref()]; }
            button type="submit" { "Show" }
            a.button href="/console/audit" { "Clear filter" }
        }
        (table("Actions of operators and backends, newest first", &HEADS, &rows(recorded, true, now), recorded.is_empty(), "No actions found."))
        (pager(None, next))
    }
}

const HEADS: [&str; 7] = ["Time", "Operator", "Action", "Target", "Reason", "Details", "Request"];
const HEADS_OF_ONE: [&str; 6] = ["Time", "Operator", "Action", "Reason", "Details", "Request"];

/// Table of the actions on one user or match, for its page.
pub(super) fn of_one(caption: &str, recorded: &[Recorded], now: OffsetDateTime) -> Markup {
    table(caption, &HEADS_OF_ONE, &rows(recorded, false, now), recorded.is_empty(), "No actions recorded.")
}

fn rows(recorded: &[Recorded], with_target: bool, now: OffsetDateTime) -> Markup {
    html! { @for row in recorded { tr {
        td { (moment_ago(row.created_at, now)) }
        td { (row.operator) @if let Some(scope) = &row.scope { " " span.quiet { (scope) } } }
        th scope="row" {
            (row.action)
            @match row.outcome.as_str() {
                "failed" => { " " (badge(Tone::Bad, "failed")) },
                "begun" => { " " (badge(Tone::Busy, "outcome unknown")) },
                _ => {},
            }
        }
        @if with_target { td { (target(&row.target)) } }
        td { @if row.reason.is_empty() { span.quiet { "none" } } @else { (row.reason) } }
        td.details { (details(&row.details)) }
        td { @match &row.request_id { Some(id) => code.id { (id) }, None => span.quiet { "command line" } } }
    } } }
}

fn target(target: &str) -> Markup {
    // Only numeric ids become links.
    let linked = |prefix: &str| target.strip_prefix(prefix).filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()));
    match (linked("user:"), linked("event:"), linked("report:")) {
        (Some(id), ..) => html! { a href={ "/console/users/" (id) } { (target) } },
        (_, Some(id), _) => html! { a href={ "/console/matches/" (id) } { (target) } },
        (.., Some(id)) => html! { a href={ "/console/reports/" (id) } { (target) } },
        _ => html! { (target) },
    }
}

fn details(value: &Value) -> Markup {
    let Value::Object(fields) = value else { return html! { (value) } };
    html! { @for (name, value) in fields {
        @let text = text_of(value);
        @if !text.is_empty() { span.detail { span.quiet { (name) } " " (text) } " " }
    } }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join("; "),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{} {name}", text_of(value))).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}
