//! How everything stands.

use std::collections::BTreeMap;

use maud::{Markup, html};
use platform::stream::Queue;
use time::{Duration, OffsetDateTime};

use super::{Tone, ago, badge, count, length, number, table};
use crate::{
    admin::console::service::Waiting, catalogue::feeds::service::Health,
    chat::membership_sync::service::Status as SyncStatus, game::scores::service::Progress,
};

/// A message that waits longer than this wants to be looked at.
const LATE: Duration = Duration::MINUTE;

/// What the page shows. A part that does not answer is `None`, and all else is still shown.
pub(in crate::admin::console) struct Overview {
    pub(in crate::admin::console) now: OffsetDateTime,
    pub(in crate::admin::console) parts: BTreeMap<&'static str, &'static str>,
    pub(in crate::admin::console) waiting: Option<Waiting>,
    pub(in crate::admin::console) queues: Option<Vec<Queue>>,
    pub(in crate::admin::console) dead: Option<u64>,
    pub(in crate::admin::console) progress: Option<Vec<Progress>>,
    pub(in crate::admin::console) feeds: Option<Vec<Health>>,
    pub(in crate::admin::console) mirror: Option<SyncStatus>,
    pub(in crate::admin::console) closures: Option<usize>,
    pub(in crate::admin::console) listeners: usize,
    pub(in crate::admin::console) has_chat: bool,
}

impl Overview {
    /// What an operator should look at, each with where.
    fn wanted(&self) -> Vec<(Tone, String, &'static str)> {
        let mut wanted = Vec::new();
        for (part, state) in &self.parts {
            if *state != "up" {
                wanted.push((Tone::Bad, format!("{part} does not answer"), "/console"));
            }
        }
        if let Some(oldest) = self.waiting.as_ref().and_then(|waiting| waiting.outbox.oldest)
            && self.now - oldest > LATE
        {
            let text = format!("the oldest message in the outbox waits for {}", length(self.now - oldest));
            wanted.push((Tone::Bad, text, "/console/queues"));
        }
        if let Some(dead) = self.dead.filter(|&dead| dead > 0) {
            wanted.push((Tone::Bad, counted(dead, "dead letter"), "/console/queues"));
        }
        if let Some(mirror) = self.mirror.as_ref().filter(|mirror| mirror.set_aside > 0) {
            let text = format!("{} set aside", counted(mirror.set_aside.unsigned_abs(), "chat event"));
            wanted.push((Tone::Busy, text, "/console/queues"));
        }
        for health in self.feeds.iter().flatten().filter(|health| health.is_configured) {
            if health.state.as_ref().is_some_and(|state| state.failures > 0) {
                wanted.push((Tone::Bad, format!("the feed {} fails", health.feed), "/console/feeds"));
            }
        }
        if let Some(reports) = self.waiting.as_ref().map(|waiting| waiting.reports).filter(|&reports| reports > 0) {
            let text = format!("{} to look at", counted(reports.unsigned_abs(), "report"));
            wanted.push((Tone::Busy, text, "/console/reports"));
        }
        if let Some(closures) = self.closures.filter(|&closures| closures > 0) {
            let text = format!("few codes are sent to {}", counted(closures as u64, "place"));
            wanted.push((Tone::Busy, text, "/console/sms"));
        }
        let late = self.progress.iter().flatten().filter(|progress| self.now - progress.recorded_at > LATE).count();
        if late > 0 {
            let text = format!("{} long on the way into scores", counted(late as u64, "result"));
            wanted.push((Tone::Busy, text, "#results"));
        }
        wanted
    }

    pub(in crate::admin::console) fn show(&self, is_live: bool) -> Markup {
        let wanted = self.wanted();
        html! {
            div.heading {
                h1 { "Overview" }
                @if is_live { a.button href="/console" { "Stop refreshing" } }
                @else { a.button href="/console?live=1" { "Refresh every 15 s" } }
            }
            @if wanted.is_empty() {
                p.banner.good { "Nothing wants your attention." }
            } @else {
                section.banner.card {
                    h2 { (wanted.len()) @if wanted.len() == 1 { " thing wants" } @else { " things want" } " your attention" }
                    ul.wanted { @for (tone, text, href) in &wanted {
                        li class=(tone.class()) { a href=(href) { (text) } }
                    } }
                }
            }
            ul.parts aria-label="Parts" {
                @for (part, state) in &self.parts {
                    li { (part) (badge(if *state == "up" { Tone::Good } else { Tone::Bad }, state)) }
                }
            }
            div.tiles {
                (self.outbox())
                (tile("dead letters", &known(self.dead.map(count)), &html! { a href="/console/queues" { "Queues" } }))
                (tile("open reports", &known(self.waiting.as_ref().map(|waiting| number(waiting.reports))), &html! { a href="/console/reports" { "Reports" } }))
                @if self.has_chat {
                    (tile("chat events set aside", &known(self.mirror.as_ref().map(|mirror| number(mirror.set_aside))), &html! { a href="/console/queues" { "Queues" } }))
                }
                (tile("listeners", &html! { (count(self.listeners as u64)) }, &html! { span.quiet { "on this process" } }))
            }
            (self.results())
            (self.lag())
            (self.feed_table())
        }
    }

    fn outbox(&self) -> Markup {
        let backlog = self.waiting.as_ref().map(|waiting| waiting.outbox);
        let oldest = backlog.and_then(|backlog| backlog.oldest);
        let more = html! { @match oldest {
            Some(oldest) => { "the oldest " (ago(oldest, self.now)) },
            None => span.quiet { "nothing waits" },
        } };
        tile("outbox", &known(backlog.map(|backlog| number(backlog.length))), &more)
    }

    fn results(&self) -> Markup {
        let Some(progress) = &self.progress else { return html! {} };
        let rows = html! { @for progress in progress { tr {
            th scope="row" { a href={ "/console/matches/" (progress.event) } { "Match " (progress.event) } }
            td.n { (progress.revision) }
            td { (super::moment_ago(progress.recorded_at, self.now)) }
            td {
                @if progress.chunks == 0 { "not planned yet" }
                @else {
                    progress max=(progress.chunks) value=(progress.done) {}
                    " " (number(progress.done)) " of " (number(progress.chunks)) " chunks"
                }
            }
        } } };
        html! { div id="results" {
            (table("Results on their way into scores", &["Match", "#Revision", "Recorded", "Progress"], &rows,
                   progress.is_empty(), "Every result is in all scores."))
        } }
    }

    fn lag(&self) -> Markup {
        let Some(queues) = &self.queues else {
            return html! { section.card.empty { h2 { "Consumers" } p { "NATS does not answer, so nobody knows what waits there." } } };
        };
        super::queues::consumers(queues)
    }

    fn feed_table(&self) -> Markup {
        html! { @if let Some(feeds) = &self.feeds { (super::feeds::feeds_table(feeds, self.now)) } }
    }
}

fn tile(label: &str, value: &Markup, more: &Markup) -> Markup {
    html! { section.tile { h2 { (label) } p.value { (value) } p.more { (more) } } }
}

/// As in "1 report" and "2 reports".
fn counted(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{} {thing}s", count(number)) }
}

/// A value, or that it is not known.
fn known(value: Option<String>) -> Markup {
    html! { @match value { Some(value) => (value), None => span.quiet { "?" } } }
}
