//! What waits, and what was given up.

use maud::{Markup, html};
use platform::stream::{DeadLetter, Queue, Stream};
use time::OffsetDateTime;

use super::{Tone, badge, count, mark, moment_ago, number, pager, reason, table};
use crate::{
    console::{extract::Identity, rules::Role},
    mirror::service::{SetAside, Status},
    webhooks::service::{Item, endpoint_of},
};

/// What the page shows.
pub(in crate::console) struct Queues {
    pub(in crate::console) now: OffsetDateTime,
    pub(in crate::console) outbox: Vec<(String, i64, Option<OffsetDateTime>)>,
    /// None where NATS does not answer.
    pub(in crate::console) consumers: Option<Vec<Queue>>,
    pub(in crate::console) letters: Vec<DeadLetter>,
    /// Where further ones begin.
    pub(in crate::console) more_from: Option<u64>,
    /// None without chat.
    pub(in crate::console) mirror: Option<(Status, Vec<SetAside>)>,
}

impl Queues {
    pub(in crate::console) fn show(&self, viewer: &Identity) -> Markup {
        let outbox = html! { @for (subject, number_of, oldest) in &self.outbox { tr {
            th scope="row" { code { (subject) } }
            td.n { (number(*number_of)) }
            td { @if let Some(oldest) = oldest { (moment_ago(*oldest, self.now)) } }
        } } };
        html! {
            h1 { "Queues" }
            (table("Outbox", &["Subject", "#Messages", "The oldest"], &outbox, self.outbox.is_empty(),
                   "Every message is published."))
            @match &self.consumers {
                Some(queues) => { (consumers(queues)) (self.dead(viewer)) }
                None => section.card.empty { h2 { "Consumers and dead letters" } p { "NATS does not answer, so nobody knows what waits there." } }
            }
            @if let Some((status, events)) = &self.mirror { (self.aside(viewer, status, events)) }
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
                            (reason(&format!("why-{}", letter.sequence), "Why"))
                            button type="submit" { "Send it again" }
                        }
                    }
                } }
            }
        } };
        let endpoints: std::collections::BTreeSet<_> =
            self.letters.iter().filter_map(|letter| endpoint_of(&letter.subject)).collect();
        html! {
            (table("Dead letters", &["#Letter", "What", "Why it was given up", "When", "Do"], &rows,
                   self.letters.is_empty(), "No work was given up."))
            (pager(None, self.more_from.map(|from| format!("/console/queues?from={from}"))))
            @for endpoint in endpoints.into_iter().filter(|_| viewer.may(Role::Operator)) {
                section.card {
                    h2 { "Endpoint " (endpoint) }
                    form method="post" action="/console/queues/replay" {
                        (mark(viewer))
                        input type="hidden" name="endpoint" value=(endpoint);
                        (reason(&format!("why-endpoint-{endpoint}"), "Why"))
                        button type="submit" { "Send all of its dead letters again" }
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
                h2 { "Chat" }
                dl {
                    dt { "Last push" } dd { (super::or_never(status.last_received, self.now)) }
                    dt { "Waiting" } dd {
                        (number(status.waiting))
                        @if let Some(since) = status.waiting_since { ", the oldest since " (moment_ago(since, self.now)) }
                    }
                    dt { "All rooms compared since" } dd { (super::or_never(status.compared_since, self.now)) }
                    dt { "Set aside" } dd { (number(status.set_aside)) }
                }
                @if viewer.may(Role::Operator) {
                    form method="post" action="/console/queues/compare" {
                        (mark(viewer))
                        (reason("why-compare", "Why"))
                        button type="submit" { "Compare all rooms with the homeserver" }
                    }
                }
            }
            (table("Chat events that were set aside", &["Received", "Event", "From", "What is wrong"], &rows, events.is_empty(),
                   "Everything that the homeserver pushed was understood."))
        }
    }
}

/// Who works on what, and how much waits for them.
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
        &["Consumer", "Stream", "#Waiting", "#Under way", "#Of them again"],
        &rows,
        queues.is_empty(),
        "No worker has ever asked for work here.",
    )
}
