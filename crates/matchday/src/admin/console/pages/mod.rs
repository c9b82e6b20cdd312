//! HTML of the console. The templates escape all values.

pub(super) mod audit;
pub(super) mod feeds;
pub(super) mod held;
pub(super) mod matches;
pub(super) mod overview;
pub(super) mod questions;
pub(super) mod queues;
pub(super) mod reports;
pub(super) mod roles;
pub(super) mod rule_sets;
pub(super) mod server_keys;
pub(super) mod sms;
pub(super) mod users;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use maud::{DOCTYPE, Markup, html};
use time::{Duration, OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339, macros::format_description};

use super::{ROUTES, extract::Identity};

/// Allows no external content and no scripts.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// Sections of the console.
const SECTIONS: [(&str, &str); 12] = [
    ("/console", "Overview"),
    ("/console/matches", "Matches"),
    ("/console/questions", "Questions"),
    ("/console/rule-sets", "Rule sets"),
    ("/console/users", "Users"),
    ("/console/reports", "Reports"),
    ("/console/held", "Held messages"),
    ("/console/sms", "SMS"),
    ("/console/queues", "Queues"),
    ("/console/feeds", "Feeds"),
    ("/console/keys", "Server keys"),
    ("/console/audit", "Audit"),
];

/// Notices shown after an action. The URL contains only the key, so a crafted link cannot show another text.
const NOTICES: [(&str, &str); 22] = [
    ("corrected", "Match corrected. Workers are updating scores and coins; this page shows their progress."),
    ("corrected_and_scored", "Match corrected. Scores are up to date."),
    ("question_added", "Question added."),
    ("question_resolved", "Question resolved. Workers are updating scores; the overview shows their progress."),
    ("question_changed", "Question changed. Workers are updating scores; the overview shows their progress."),
    ("ban", "User banned. Workers remove them from chat rooms."),
    ("unban", "Ban lifted."),
    ("mute", "User muted. Workers apply the mute on the homeserver."),
    ("unmute", "Mute lifted."),
    ("avatar_removed", "Avatar removed. Workers delete its images and remove it from chat."),
    ("closed", "Report closed."),
    ("closed_all", "All open reports of the message closed, except those claimed by other operators."),
    ("removed", "Message removed."),
    ("removed_all", "Messages of the sender found. Workers remove them from the room."),
    ("held_released", "Message sent."),
    ("held_rejected", "Message rejected."),
    ("claimed", "Report claimed."),
    ("released", "Claim released."),
    ("open", "Limit removed. New phones get codes at the normal rate again."),
    ("replayed", "Messages queued for delivery again."),
    ("key_revoked", "Key revoked. Every process refuses it within a second."),
    ("compare", "Comparison requested. Workers are comparing all rooms with the homeserver."),
];

pub(super) fn response(status: StatusCode, page: Markup) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    ];
    (status, headers, Body::from(page.into_string())).into_response()
}

/// A page of the console. `section` is the path of the section it belongs to.
pub(super) struct Page<'a> {
    pub(super) viewer: &'a Identity,
    pub(super) section: &'a str,
    pub(super) title: &'a str,
    /// Key of the notice about the last action.
    pub(super) notice: Option<&'a str>,
    /// Interval of automatic reloads in seconds.
    pub(super) refresh: Option<u32>,
}

impl<'a> Page<'a> {
    pub(super) fn new(viewer: &'a Identity, section: &'a str, title: &'a str) -> Self {
        Self { viewer, section, title, notice: None, refresh: None }
    }

    #[must_use]
    pub(super) fn notice(mut self, key: Option<&'a str>) -> Self {
        self.notice = key;
        self
    }

    pub(super) fn show(self, body: &Markup) -> Response {
        let notice = NOTICES.iter().find(|(key, _)| Some(*key) == self.notice).map(|(_, text)| text);
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                (head(self.title, self.refresh))
                body {
                    a.skip href="#main" { "Skip to content" }
                    header.bar {
                        a.brand href="/console" { span.ball aria-hidden="true" {} "Matchday" }
                        nav aria-label="Console" {
                            @for (href, name) in SECTIONS.into_iter().filter(|(href, _)| may_open(self.viewer, href)) {
                                a href=(href) aria-current=[(href == self.section).then_some("page")] { (name) }
                            }
                        }
                        a.who href="/console/roles" { (self.viewer.name()) " · " (self.viewer.role().name()) }
                    }
                    main id="main" {
                        @if let Some(text) = notice { p.notice role="status" { (text) } }
                        (body)
                    }
                }
            }
        };
        response(StatusCode::OK, page)
    }
}

/// Whether the operator's role allows to open a section.
fn may_open(viewer: &Identity, section: &str) -> bool {
    let route = ROUTES.iter().find(|(method, path, _)| (*method, *path) == ("get", section));
    route.and_then(|(.., role)| *role).is_none_or(|role| viewer.may(role))
}

fn head(title: &str, refresh: Option<u32>) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            @if let Some(seconds) = refresh { meta http-equiv="refresh" content=(seconds); }
            title { (title) " · Matchday console" }
            link rel="stylesheet" href="/console/style.css";
        }
    }
}

/// A page with one message and without navigation.
pub(super) fn message_page(title: &str, text: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, None))
            body {
                header.bar { a.brand href="/console" { span.ball aria-hidden="true" {} "Matchday" } }
                main id="main" { section.card.alone { h1 { (title) } (text) } }
            }
        }
    }
}

pub(super) fn paragraph(text: &str) -> Markup {
    html! { p { (text) } }
}

/// Message for a path or an id that does not exist.
pub(super) fn not_found(what: &str) -> Markup {
    html! { p { "This " (what) " was not found." } p { a href="/console" { "Go to the overview" } } }
}

/// Message for requests without a valid proof of the operator's identity.
pub(super) fn unproven(request: &str) -> Markup {
    html! {
        p { "The console could not verify your identity. Open it through your single sign-on, or sign in again: your session may have expired." }
        p.quiet {
            "Administrators: the log contains the reason for request " code { (request) }
            ". See docs/console.md for the setup of the proxy."
        }
    }
}

/// Message for verified operators without a role.
pub(super) fn no_role(name: &str) -> Markup {
    html! {
        p { "You are signed in as " strong { (name) } ", but you have no role in this console." }
        p {
            "Ask an administrator to add you to a group listed in " code { "console.viewers" } ", " code { "console.moderators" } " or "
            code { "console.operators" } "."
        }
    }
}

/// Hidden field with the CSRF token.
fn mark(viewer: &Identity) -> Markup {
    html! { input type="hidden" name="mark" value=(viewer.mark()); }
}

/// Field for the operator's reason.
fn reason(id: &str, label: &str) -> Markup {
    html! {
        label for=(id) { (label) }
        input type="text" id=(id) name="reason" required maxlength="500" autocomplete="off";
    }
}

/// A time, to the second.
fn moment(at: OffsetDateTime) -> Markup {
    let at = at.to_offset(UtcOffset::UTC);
    let shown = at.format(format_description!("[year]-[month]-[day] [hour]:[minute]:[second]")).unwrap_or_default();
    let exact = at.format(&Rfc3339).unwrap_or_default();
    html! { time datetime=(exact) { (shown) } }
}

/// A time to the minute, for planned events.
fn minute(at: OffsetDateTime) -> Markup {
    let at = at.to_offset(UtcOffset::UTC);
    let shown = at.format(format_description!("[year]-[month]-[day] [hour]:[minute]")).unwrap_or_default();
    let exact = at.format(&Rfc3339).unwrap_or_default();
    html! { time datetime=(exact) { (shown) } }
}

/// A time and the distance from now.
fn moment_ago(at: OffsetDateTime, now: OffsetDateTime) -> Markup {
    html! { (moment(at)) " " span.quiet { (ago(at, now)) } }
}

fn or_never(at: Option<OffsetDateTime>, now: OffsetDateTime) -> Markup {
    html! { @match at { Some(at) => (moment_ago(at, now)), None => span.quiet { "never" } } }
}

/// Formats as "3 min ago" or "in 2 h".
fn ago(at: OffsetDateTime, now: OffsetDateTime) -> String {
    let (long, is_past) = if at <= now { (now - at, true) } else { (at - now, false) };
    let text = length(long);
    if is_past { format!("{text} ago") } else { format!("in {text}") }
}

/// Formats a duration in its largest unit.
fn length(long: Duration) -> String {
    match (long.whole_days(), long.whole_hours(), long.whole_minutes()) {
        (2.., ..) => format!("{} d", long.whole_days()),
        (_, 2.., _) => format!("{} h", long.whole_hours()),
        (.., 2..) => format!("{} min", long.whole_minutes()),
        _ => format!("{} s", long.whole_seconds().max(0)),
    }
}

/// Formats a number in groups of three digits.
fn number(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if number < 0 { format!("−{text}") } else { text }
}

fn count(of: u64) -> String {
    number(i64::try_from(of).unwrap_or(i64::MAX))
}

/// A difference with its sign.
fn change(by: i64) -> Markup {
    match by {
        0 => html! { span.quiet { "±0" } },
        1.. => html! { span.up { "+" (number(by)) } },
        _ => html! { span.down { (number(by)) } },
    }
}

fn percent(part: i64, of: i64) -> String {
    if of == 0 { "–".to_owned() } else { format!("{}%", (part * 100 + of / 2) / of) }
}

fn score(scores: Option<(i32, i32)>) -> String {
    scores.map_or_else(|| "–".to_owned(), |(home, away)| format!("{home}:{away}"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tone {
    Good,
    Busy,
    Bad,
    Quiet,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Bad => "bad",
            Self::Quiet => "none",
        }
    }
}

/// A coloured label. The text alone is sufficient for operators who cannot distinguish colours.
fn badge(tone: Tone, text: &str) -> Markup {
    html! { span class={ "badge " (tone.class()) } { (text) } }
}

/// A table in a frame that scrolls on narrow screens. A `#` in front of a heading marks a column of numbers.
fn table(caption: &str, heads: &[&str], rows: &Markup, is_empty: bool, nothing: &str) -> Markup {
    html! {
        @if is_empty {
            section.card.empty { h2 { (caption) } p.quiet { (nothing) } }
        } @else {
            section.card.wide tabindex="0" aria-label=(caption) {
                table {
                    caption { (caption) }
                    thead { tr { @for head in heads {
                        @let (head, is_number) = head.strip_prefix('#').map_or((*head, false), |head| (head, true));
                        th scope="col" class=[is_number.then_some("n")] { (head) }
                    } } }
                    tbody { (rows) }
                }
            }
        }
    }
}

/// Links to the previous and the next page of a list.
fn pager(before: Option<String>, after: Option<String>) -> Markup {
    html! {
        @if before.is_some() || after.is_some() {
            nav.pager aria-label="Pages" {
                @if let Some(before) = before { a.button href=(before) rel="prev" { "← Previous" } }
                @if let Some(after) = after { a.button href=(after) rel="next" { "Next →" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn numbers_and_times_are_formatted() {
        assert_eq!(
            [number(0), number(999), number(1_000), number(-1_234_567)],
            ["0", "999", "1\u{202f}000", "−1\u{202f}234\u{202f}567"]
        );
        assert_eq!([percent(1, 3), percent(2, 3), percent(0, 0)], ["33%", "67%", "–"]);
        let now = datetime!(2026-11-20 15:00 UTC);
        for (at, expected) in [
            (datetime!(2026-11-20 14:59:30 UTC), "30 s ago"),
            (datetime!(2026-11-20 14:50 UTC), "10 min ago"),
            (datetime!(2026-11-20 18:00 UTC), "in 3 h"),
            (datetime!(2026-11-10 15:00 UTC), "10 d ago"),
        ] {
            assert_eq!(ago(at, now), expected);
        }
    }
}
