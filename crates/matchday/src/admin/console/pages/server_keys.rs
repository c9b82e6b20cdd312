//! Keys of backends for the server API.

use maud::{Markup, html};
use secrecy::ExposeSecret as _;
use time::OffsetDateTime;

use super::{Tone, badge, mark, moment_ago, or_never, reason, table};
use crate::{
    admin::console::{extract::Identity, rules::Role},
    identity::server_keys::{
        scopes::Scope,
        service::{IssuedKey, ServerKey},
    },
};

pub(in crate::admin::console) fn show(viewer: &Identity, keys: &[ServerKey], now: OffsetDateTime) -> Markup {
    let is_operator = viewer.may(Role::Operator);
    let rows = html! { @for key in keys { tr {
        th scope="row" { (key.name) " " (state(key, now)) }
        td { code.id { (key.prefix) } }
        td { @for scope in &key.scopes { span.detail { (scope) } " " } }
        td { @if key.networks.is_empty() { span.quiet { "any" } } @else { @for network in &key.networks { span.detail { (network) } " " } } }
        td { @match key.expires_at { Some(at) => (moment_ago(at, now)), None => span.quiet { "never" } } }
        td { (or_never(key.last_used_at, now)) }
        td {
            a href={ "/console/audit?operator=key%3A" (key.id) } { "Actions" }
            @if is_operator && key.revoked_at.is_none() { (actions(viewer, key)) }
        }
    } } };
    html! {
        h1 { "Server keys" }
        p { "Backends call the server API with these keys. A key is shown once, when it is created or rotated." }
        (table("Keys, oldest first", &["Name", "Prefix", "Scopes", "Networks", "Expires", "Last used", "Actions"], &rows, keys.is_empty(), "No keys yet."))
        @if is_operator { (form(viewer)) }
    }
}

fn state(key: &ServerKey, now: OffsetDateTime) -> Markup {
    if key.revoked_at.is_some() {
        badge(Tone::Bad, "revoked")
    } else if key.expires_at.is_some_and(|at| at <= now) {
        badge(Tone::Bad, "expired")
    } else if key.previous_valid_until.is_some_and(|until| until > now) {
        badge(Tone::Busy, "previous text valid")
    } else {
        html! {}
    }
}

fn actions(viewer: &Identity, key: &ServerKey) -> Markup {
    html! {
        details {
            summary { "Rotate or revoke" }
            form method="post" action={ "/console/keys/" (key.id) "/rotate" } {
                (mark(viewer))
                label for={ "grace-" (key.id) } { "Previous text stays valid for (like 1h; at most 7d)" }
                input type="text" id={ "grace-" (key.id) } name="grace" value="0s" autocomplete="off";
                (reason(&format!("rotate-{}", key.id), "Reason"))
                button type="submit" { "Rotate" }
            }
            form method="post" action={ "/console/keys/" (key.id) "/revoke" } {
                (mark(viewer))
                (reason(&format!("revoke-{}", key.id), "Reason"))
                button type="submit" { "Revoke" }
            }
        }
    }
}

fn form(viewer: &Identity) -> Markup {
    html! {
        section.card {
            h2 { "Create a key" }
            form method="post" action="/console/keys" {
                (mark(viewer))
                label for="name" { "Name of the backend" }
                input type="text" id="name" name="name" required maxlength="100" autocomplete="off";
                fieldset {
                    legend { "Scopes" }
                    @for scope in Scope::ALL {
                        @let id = format!("scope-{}", scope.name().replace(':', "-"));
                        div.check {
                            input type="checkbox" id=(id) name={ "scope:" (scope) } value="yes";
                            label for=(id) { (scope) }
                        }
                    }
                }
                label for="expires_in" { "Valid for (like 90d; empty: no end)" }
                input type="text" id="expires_in" name="expires_in" autocomplete="off";
                label for="allow" { "Networks (like 203.0.113.0/24, separated by spaces; empty: any)" }
                input type="text" id="allow" name="allow" autocomplete="off";
                (reason("create-reason", "Reason"))
                button type="submit" { "Create key" }
            }
        }
    }
}

/// Message with the text of a key, which is not shown again.
pub(in crate::admin::console) fn issued(issued: &IssuedKey) -> Markup {
    html! {
        p { "Store the key of " strong { (issued.key.name) } " now. It is not shown again." }
        p { code.id { (issued.text.expose_secret()) } }
        p { a href="/console/keys" { "Go to the list of keys" } }
    }
}
