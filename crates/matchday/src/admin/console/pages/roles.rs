//! Meaning of the roles.

use maud::{Markup, html};

use super::table;
use crate::admin::console::{extract::Identity, rules::Role};

const ROLES: [(Role, &str); 3] = [
    (Role::Viewer, "Read every page except held messages."),
    (Role::Moderator, "Also handle reports and held messages, remove messages and avatars, and mute and ban users."),
    (
        Role::Operator,
        "Everything: also correct matches, add and resolve questions, open SMS destinations, replay webhooks, compare \
         rooms, and create, rotate and revoke server keys.",
    ),
];

pub(in crate::admin::console) fn show(viewer: &Identity) -> Markup {
    let rows = html! { @for (role, may) in ROLES { tr {
        th scope="row" { (role.name()) @if role == viewer.role() { " (you)" } }
        td { (may) }
    } } };
    html! {
        h1 { "Roles" }
        p { "You are " strong { (viewer.name()) } " with the role " strong { (viewer.role().name()) } ". Pages leave out what your role does not allow." }
        (table("What each role may do", &["Role", "May"], &rows, false, ""))
        p.quiet {
            "Administrators assign roles to groups and operators with " code { "console.viewers" } ", " code { "console.moderators" }
            " and " code { "console.operators" } "."
        }
    }
}
