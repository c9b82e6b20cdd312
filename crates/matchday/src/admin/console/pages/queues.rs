//! Outbox, consumers, dead letters and the membership sync.

use maud::{Markup, html};
use platform::stream::{DeadLetter, Queue, Stream};
use time::OffsetDateTime;

use super::{Tone, badge, count, mark, moment_ago, number, pager, reason, table};
use crate::{
    admin::console::{extract::Identity, rules::Role},
    chat::membership_sync::service::{SetAside, Status},
    delivery::webhooks::service::{Item, endpoint_of},
};

pub(in crate::admin::console) struct Queues {
    pub(in crate::admin::console) now: OffsetDateTime,
    pub(in crate::admin::console) outbox: Vec<(String, i64, Option<OffsetDateTime>)>,
    /// `None` if NATS is unavailable.
    pub(in crate::admin::console) consumers: Option<Vec<Queue>>,
    pub(in crate::admin::console) letters: Vec<DeadLetter>,
    /// Sequence number of the first letter on the next page.
    pub(in crate::admin::console) more_from: Option<u64>,
    /// `None` if chat is disabled.
    pub(in crate::admin::console) sync: Option<(Status, Vec<SetAside>)>,
}

impl Queues {
    pub(in crate::admin::console) fn show(&self, viewer: &Identity) -> Markup {
        let outbox = html! { @for (subject, number_of, oldest) in &self.outbox { tr {
            th scope="row" { code { (subject) } }
            td.n { (number(*number_of)) }
            td { @if let Some(oldest) = oldest { (moment_ago(*oldest, self.now)) } }
        } } };
        html! {
            h1 { "Queues" }
            (table("Outbox", &["Subject", "#Messages", "Oldest"], &outbox, self.outbox.is_empty(),
                   "All messages are published."))
            @match &self.consumers {
                Some(queues) => { (consumers(queues)) (self.dead(viewer)) }
                None => section.card.empty { h2 { "Consumers and dead letters" } p { "NATS is unavailable, so consumers and dead letters cannot be shown." } }
            }
            @if let Some((status, events)) = &self.sync { (self.aside(viewer, status, events)) }
        }
    }

    fn dead(&self, viewer: &Identity) -> Markup {
        let rows = html! { @for letter in &self.letters {
            @let endpoint = endpoint_of(&letter.subject);
            @let item = endpoint.and_then(|_| serde_json::from_slice::<Item>(&letter.payload).ok());
            tr {
                th.n scope="row" { (letter.sequence) }
                td { code { (letter.subject) } @if let Some(item) = &item { br; span.quiet { (item.kind) " " (item.message_id) } } }
                td { (letter.reason) }
                td { (moment_ago(letter.given_up_at, self.now)) }
                td { @if endpoint.is_some() && viewer.may(Role::Operator) {
                    details {
                        summary { "Send again" }
                        form.small method="post" action="/console/queues/replay" {
                            (mark(viewer))
                            input type="hidden" name="letter" value=(letter.sequence);
                            (reason(&format!("reason-{}", letter.sequence), "Reason"))
                            button type="submit" { "Send again" }
                        }
                    }
                } }
            }
        } };
        let endpoints: std::collections::BTreeSet<_> =
            self.letters.iter().filter_map(|letter| endpoint_of(&letter.subject)).collect();
        html! {
            (table("Dead letters", &["#Number", "Message", "Reason", "Given up", "Action"], &rows,
                   self.letters.is_empty(), "No dead letters."))
            (pager(None, self.more_from.map(|from| format!("/console/queues?from={from}"))))
            @for endpoint in endpoints.into_iter().filter(|_| viewer.may(Role::Operator)) {
                section.card {
                    h2 { "Endpoint " (endpoint) }
                    form method="post" action="/console/queues/replay" {
                        (mark(viewer))
                        input type="hidden" name="endpoint" value=(endpoint);
                        (reason(&format!("reason-endpoint-{endpoint}"), "Reason"))
                        button type="submit" { "Send all dead letters again" }
                    }
                }
            }
        }
    }

    fn aside(&self, viewer: &Identity, status: &Status, events: &[SetAside]) -> Markup {
        let rows = html! { @for event in events { tr {
            td { (moment_ago(event.received_at, self.now)) }
            td { code { (event.kind) } br; span.quiet { (event.event_id) } }
            td { (event.sender) }
            td { (event.fault) }
        } } };
        html! {
            section.card {
                h2 { "Membership sync" }
                dl {
                    dt { "Last event received" } dd { (super::or_never(status.last_received, self.now)) }
                    dt { "Waiting" } dd {
                        (number(status.waiting))
                        @if let Some(since) = status.waiting_since { ", oldest since " (moment_ago(since, self.now)) }
                    }
                    dt { "All rooms compared since" } dd { (super::or_never(status.compared_since, self.now)) }
                    dt { "Events set aside" } dd { (number(status.set_aside)) }
                }
                @if viewer.may(Role::Operator) {
                    form method="post" action="/console/queues/compare" {
                        (mark(viewer))
                        (reason("reason-compare", "Reason"))
                        button type="submit" { "Compare all rooms with the homeserver" }
                    }
                }
            }
            (table("Chat events set aside", &["Received", "Event", "Sender", "Error"], &rows, events.is_empty(),
                   "No events were set aside."))
        }
    }
}

/// Table of the consumers and their backlogs.
pub(super) fn consumers(queues: &[Queue]) -> Markup {
    let rows = html! { @for queue in queues { tr {
        th scope="row" { (queue.consumer) }
        td { @match queue.stream { Stream::Work => "work", Stream::Facts => "facts", Stream::Dead => "dead" } }
        td.n { (count(queue.pending)) }
        td.n { (count(queue.under_way)) }
        td.n { @if queue.again > 0 { (badge(Tone::Busy, &count(queue.again))) } @else { "0" } }
    } } };
    table(
        "Consumers",
        &["Consumer", "Stream", "#Waiting", "#In progress", "#Redelivered"],
        &rows,
        queues.is_empty(),
        "No worker has created a consumer yet.",
    )
}
