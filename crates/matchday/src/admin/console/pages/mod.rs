//! What pages look like. Everything that is not written here is escaped.

pub(super) mod audit;
pub(super) mod feeds;
pub(super) mod matches;
pub(super) mod overview;
pub(super) mod queues;
pub(super) mod reports;
pub(super) mod sms;
pub(super) mod users;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use maud::{DOCTYPE, Markup, html};
use time::{Duration, OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339, macros::format_description};

use super::extract::Identity;

/// Nothing from elsewhere, and no script at all.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// The places of the console.
const PLACES: [(&str, &str); 8] = [
    ("/console", "Overview"),
    ("/console/matches", "Matches"),
    ("/console/users", "Users"),
    ("/console/reports", "Reports"),
    ("/console/sms", "SMS"),
    ("/console/queues", "Queues"),
    ("/console/feeds", "Feeds"),
    ("/console/audit", "Audit"),
];

/// What was done, for the page that follows. The page is told by a word, so that nobody can have it say something else.
const TOLD: [(&str, &str); 10] = [
    ("corrected", "The match is corrected. Workers bring scores and coins in step; this page shows how far they are."),
    ("ban", "Banned. Workers take them out of chat."),
    ("unban", "Not banned any more."),
    ("mute", "Muted. Workers carry it to the homeserver."),
    ("unmute", "Not muted any more."),
    ("closed", "The report is closed."),
    ("dealt", "Done, and the report is closed."),
    ("open", "Codes are sent there again."),
    ("replayed", "The messages are on the way again."),
    ("compare", "Workers compare all rooms with the homeserver now."),
];

/// An answer that holds a page.
pub(super) fn answer(status: StatusCode, page: Markup) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    ];
    (status, headers, Body::from(page.into_string())).into_response()
}

/// A page of the console. `place` is which of its places it belongs to.
pub(super) struct Page<'a> {
    pub(super) viewer: &'a Identity,
    pub(super) place: &'a str,
    pub(super) title: &'a str,
    /// The word for what was just done.
    pub(super) told: Option<&'a str>,
    /// How often the browser asks again, in seconds.
    pub(super) again: Option<u32>,
}

impl<'a> Page<'a> {
    pub(super) fn new(viewer: &'a Identity, place: &'a str, title: &'a str) -> Self {
        Self { viewer, place, title, told: None, again: None }
    }

    #[must_use]
    pub(super) fn told(mut self, word: Option<&'a str>) -> Self {
        self.told = word;
        self
    }

    pub(super) fn show(self, body: &Markup) -> Response {
        let told = TOLD.iter().find(|(word, _)| Some(*word) == self.told).map(|(_, text)| text);
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                (head(self.title, self.again))
                body {
                    a.skip href="#main" { "Skip to the page" }
                    header.bar {
                        a.brand href="/console" { span.ball aria-hidden="true" {} "Matchday" }
                        nav aria-label="Console" {
                            @for (href, name) in PLACES {
                                a href=(href) aria-current=[(href == self.place).then_some("page")] { (name) }
                            }
                        }
                        span.who { (self.viewer.name()) " · " (self.viewer.role().name()) }
                    }
                    main id="main" {
                        @if let Some(text) = told { p.told role="status" { (text) } }
                        (body)
                    }
                }
            }
        };
        answer(StatusCode::OK, page)
    }
}

fn head(title: &str, again: Option<u32>) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            @if let Some(seconds) = again { meta http-equiv="refresh" content=(seconds); }
            title { (title) " · Matchday console" }
            link rel="stylesheet" href="/console/style.css";
        }
    }
}

/// A page that says one thing, for nobody in particular.
pub(super) fn bare(title: &str, text: &Markup) -> Markup {
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

/// One paragraph.
pub(super) fn words(text: &str) -> Markup {
    html! { p { (text) } }
}

/// Page for a path, or for an id in one, that does not exist.
pub(super) fn not_found(what: &str) -> Markup {
    html! { p { "There is no such " (what) "." } p { a href="/console" { "Go to the overview" } } }
}

/// Page for requests without a valid proof of the operator.
pub(super) fn unproven(request: &str) -> Markup {
    html! {
        p { "The console could not verify who you are. Open it through your single sign-on, or sign in again: your session may have expired." }
        p.quiet {
            "If you operate this service: the log has the reason under request " code { (request) }
            ", and docs/console.md describes how the proxy proves who the operator is."
        }
    }
}

/// Page for operators who are verified and have no role.
pub(super) fn no_role(name: &str) -> Markup {
    html! {
        p { "You are signed in as " strong { (name) } ", but you have no role in this console." }
        p {
            "Ask an administrator to add you to a group that " code { "console.viewers" } ", " code { "console.moderators" } " or "
            code { "console.operators" } " names."
        }
    }
}

/// The hidden mark of a form.
fn mark(viewer: &Identity) -> Markup {
    html! { input type="hidden" name="mark" value=(viewer.mark()); }
}

/// Where an operator says why.
fn reason(id: &str, label: &str) -> Markup {
    html! {
        label for=(id) { (label) }
        input type="text" id=(id) name="reason" required maxlength="500" autocomplete="off";
    }
}

/// A moment, to the second.
fn moment(at: OffsetDateTime) -> Markup {
    let at = at.to_offset(UtcOffset::UTC);
    let shown = at.format(format_description!("[year]-[month]-[day] [hour]:[minute]:[second]")).unwrap_or_default();
    let exact = at.format(&Rfc3339).unwrap_or_default();
    html! { time datetime=(exact) { (shown) } }
}

/// A moment to the minute, for what was planned.
fn minute(at: OffsetDateTime) -> Markup {
    let at = at.to_offset(UtcOffset::UTC);
    let shown = at.format(format_description!("[year]-[month]-[day] [hour]:[minute]")).unwrap_or_default();
    let exact = at.format(&Rfc3339).unwrap_or_default();
    html! { time datetime=(exact) { (shown) } }
}

/// A moment, and how long ago that is.
fn moment_ago(at: OffsetDateTime, now: OffsetDateTime) -> Markup {
    html! { (moment(at)) " " span.quiet { (ago(at, now)) } }
}

fn or_never(at: Option<OffsetDateTime>, now: OffsetDateTime) -> Markup {
    html! { @match at { Some(at) => (moment_ago(at, now)), None => span.quiet { "never" } } }
}

/// As in "3 min ago" or "in 2 h".
fn ago(at: OffsetDateTime, now: OffsetDateTime) -> String {
    let (long, is_past) = if at <= now { (now - at, true) } else { (at - now, false) };
    let text = length(long);
    if is_past { format!("{text} ago") } else { format!("in {text}") }
}

/// How long something is, in its largest unit.
fn length(long: Duration) -> String {
    match (long.whole_days(), long.whole_hours(), long.whole_minutes()) {
        (2.., ..) => format!("{} d", long.whole_days()),
        (_, 2.., _) => format!("{} h", long.whole_hours()),
        (.., 2..) => format!("{} min", long.whole_minutes()),
        _ => format!("{} s", long.whole_seconds().max(0)),
    }
}

/// A number, in groups of three.
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

/// The same of a number that is not below zero.
fn count(of: u64) -> String {
    number(i64::try_from(of).unwrap_or(i64::MAX))
}

/// A change, with its sign.
fn change(by: i64) -> Markup {
    match by {
        0 => html! { span.quiet { "±0" } },
        1.. => html! { span.up { "+" (number(by)) } },
        _ => html! { span.down { (number(by)) } },
    }
}

/// How many in a hundred.
fn percent(part: i64, of: i64) -> String {
    if of == 0 { "–".to_owned() } else { format!("{} %", (part * 100 + of / 2) / of) }
}

/// Goals, or none.
fn score(scores: Option<(i32, i32)>) -> String {
    scores.map_or_else(|| "–".to_owned(), |(home, away)| format!("{home}:{away}"))
}

/// How urgent something is.
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

/// A word on a coloured ground. The word says it too: not everybody sees colours.
fn badge(tone: Tone, text: &str) -> Markup {
    html! { span class={ "badge " (tone.class()) } { (text) } }
}

/// A table in a frame of its own, which scrolls where the screen is narrow.
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

/// Links to what comes before and after.
fn pager(before: Option<String>, after: Option<String>) -> Markup {
    html! {
        @if before.is_some() || after.is_some() {
            nav.pager aria-label="Pages" {
                @if let Some(before) = before { a.button href=(before) rel="prev" { "← Earlier in the list" } }
                @if let Some(after) = after { a.button href=(after) rel="next" { "Further in the list →" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn numbers_and_times_read_well() {
        assert_eq!(
            [number(0), number(999), number(1_000), number(-1_234_567)],
            ["0", "999", "1\u{202f}000", "−1\u{202f}234\u{202f}567"]
        );
        assert_eq!([percent(1, 3), percent(2, 3), percent(0, 0)], ["33 %", "67 %", "–"]);
        let now = datetime!(2026-11-20 15:00 UTC);
        for (at, told) in [
            (datetime!(2026-11-20 14:59:30 UTC), "30 s ago"),
            (datetime!(2026-11-20 14:50 UTC), "10 min ago"),
            (datetime!(2026-11-20 18:00 UTC), "in 3 h"),
            (datetime!(2026-11-10 15:00 UTC), "10 d ago"),
        ] {
            assert_eq!(ago(at, now), told);
        }
    }
}
