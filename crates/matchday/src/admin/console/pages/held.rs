//! Messages that a filter held for review.

use maud::{Markup, html};
use time::OffsetDateTime;

use super::{mark, moment_ago};
use crate::{admin::console::extract::Identity, chat::filters::held::HeldMessage};

pub(in crate::admin::console) fn list(viewer: &Identity, held: &[HeldMessage], now: OffsetDateTime) -> Markup {
    html! {
        h1 { "Held messages" }
        p.lead { "Filters took these messages out of their rooms. Release a message to send it, or reject it. Undecided messages are deleted after a week." }
        @if held.is_empty() { p.banner.good { "No messages wait for a decision." } }
        @for message in held { (one(viewer, message, now)) }
    }
}

fn one(viewer: &Identity, message: &HeldMessage, now: OffsetDateTime) -> Markup {
    let decide = |action: &str, label: &str| {
        html! {
            form.inline method="post" action={ "/console/held/" (message.id) "/" (action) } {
                (mark(viewer))
                button type="submit" { (label) }
            }
        }
    };
    html! {
        article.card.report aria-labelledby={ "held-" (message.id) } {
            h2 id={ "held-" (message.id) } { "Message " (message.id) }
            blockquote {
                @match &message.body {
                    Some(text) => p { (text) },
                    None => p.quiet { "The text cannot be decrypted: its key is missing in the settings." },
                }
                @for text in &message.others { p { (text) } }
                footer { (message.sender) " in " (message.matrix_room) ", " (moment_ago(message.created_at, now)) }
            }
            p { "Held by filter “" (message.filter) "”" }
            div.actions {
                @if message.body.is_some() { (decide("release", "Release")) }
                (decide("reject", "Reject"))
            }
        }
    }
}
