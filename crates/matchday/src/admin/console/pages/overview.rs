//! Overview of the service's health.

use std::collections::BTreeMap;

use maud::{Markup, html};
use platform::stream::Queue;
use time::{Duration, OffsetDateTime};

use super::{Tone, ago, badge, count, length, number, table};
use crate::{
    admin::console::service::Waiting,
    catalogue::feeds::service::Health,
    chat::membership_sync::service::Status as SyncStatus,
    game::scores::{rules::Source, service::Progress},
};

/// A message or result that waits longer than this needs attention.
const LATE: Duration = Duration::MINUTE;

/// Data of the page. A part that could not be read is `None`; the other parts are still shown.
pub(in crate::admin::console) struct Overview {
    pub(in crate::admin::console) now: OffsetDateTime,
    pub(in crate::admin::console) parts: BTreeMap<&'static str, &'static str>,
    pub(in crate::admin::console) waiting: Option<Waiting>,
    pub(in crate::admin::console) queues: Option<Vec<Queue>>,
    pub(in crate::admin::console) dead: Option<u64>,
    pub(in crate::admin::console) progress: Option<Vec<Progress>>,
    pub(in crate::admin::console) feeds: Option<Vec<Health>>,
    pub(in crate::admin::console) sync: Option<SyncStatus>,
    pub(in crate::admin::console) closures: Option<usize>,
    pub(in crate::admin::console) listeners: usize,
    pub(in crate::admin::console) has_chat: bool,
}

impl Overview {
    /// Conditions that need attention, each with a link.
    fn issues(&self) -> Vec<(Tone, String, &'static str)> {
        let mut issues = Vec::new();
        for (part, state) in &self.parts {
            if *state != "up" {
                issues.push((Tone::Bad, format!("{part} is unavailable"), "/console"));
            }
        }
        if let Some(oldest) = self.waiting.as_ref().and_then(|waiting| waiting.outbox.oldest)
            && self.now - oldest > LATE
        {
            let text = format!("Oldest outbox message has waited for {}", length(self.now - oldest));
            issues.push((Tone::Bad, text, "/console/queues"));
        }
        if let Some(dead) = self.dead.filter(|&dead| dead > 0) {
            issues.push((Tone::Bad, counted(dead, "dead letter"), "/console/queues"));
        }
        if let Some(sync) = self.sync.as_ref().filter(|sync| sync.set_aside > 0) {
            let text = format!("{} set aside", counted(sync.set_aside.unsigned_abs(), "chat event"));
            issues.push((Tone::Busy, text, "/console/queues"));
        }
        for health in self.feeds.iter().flatten().filter(|health| health.is_configured) {
            if health.state.as_ref().is_some_and(|state| state.failures > 0) {
                issues.push((Tone::Bad, format!("Feed {} is failing", health.feed), "/console/feeds"));
            }
        }
        if let Some(reports) = self.waiting.as_ref().map(|waiting| waiting.reports).filter(|&reports| reports > 0) {
            let text = counted(reports.unsigned_abs(), "open report");
            issues.push((Tone::Busy, text, "/console/reports"));
        }
        if let Some(closures) = self.closures.filter(|&closures| closures > 0) {
            let text = format!("Codes limited for {}", counted(closures as u64, "destination"));
            issues.push((Tone::Busy, text, "/console/sms"));
        }
        let late = self.progress.iter().flatten().filter(|progress| self.now - progress.recorded_at > LATE).count();
        if late > 0 {
            let text = format!("{} delayed in scoring", counted(late as u64, "result"));
            issues.push((Tone::Busy, text, "#results"));
        }
        issues
    }

    pub(in crate::admin::console) fn show(&self, is_live: bool) -> Markup {
        let issues = self.issues();
        html! {
            div.heading {
                h1 { "Overview" }
                @if is_live { a.button href="/console" { "Stop refreshing" } }
                @else { a.button href="/console?live=1" { "Refresh every 15 s" } }
            }
            @if issues.is_empty() {
                p.banner.good { "Nothing needs your attention." }
            } @else {
                section.banner.card {
                    h2 { (issues.len()) @if issues.len() == 1 { " issue needs" } @else { " issues need" } " your attention" }
                    ul.issues { @for (tone, text, href) in &issues {
                        li class=(tone.class()) { a href=(href) { (text) } }
                    } }
                }
            }
            ul.dependencies aria-label="Dependencies" {
                @for (part, state) in &self.parts {
                    li { (part) (badge(if *state == "up" { Tone::Good } else { Tone::Bad }, state)) }
                }
            }
            div.tiles {
                (self.outbox())
                (tile("Dead letters", &known(self.dead.map(count)), &html! { a href="/console/queues" { "Queues" } }))
                (tile("Open reports", &known(self.waiting.as_ref().map(|waiting| number(waiting.reports))), &html! { a href="/console/reports" { "Reports" } }))
                @if self.has_chat {
                    (tile("Chat events set aside", &known(self.sync.as_ref().map(|sync| number(sync.set_aside))), &html! { a href="/console/queues" { "Queues" } }))
                }
                (tile("Live stream listeners", &html! { (count(self.listeners as u64)) }, &html! { span.quiet { "in this process" } }))
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
            Some(oldest) => { "oldest " (ago(oldest, self.now)) },
            None => span.quiet { "empty" },
        } };
        tile("Outbox", &known(backlog.map(|backlog| number(backlog.length))), &more)
    }

    fn results(&self) -> Markup {
        let Some(progress) = &self.progress else { return html! {} };
        let rows = html! { @for progress in progress { tr {
            th scope="row" {
                @match progress.source {
                    Source::Match(event) => a href={ "/console/matches/" (event) } { "Match " (event) },
                    Source::Question(question) => a href={ "/console/questions/" (question) } { "Question " (question) },
                }
            }
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
            (table("Results being applied to scores", &["Match or question", "#Revision", "Recorded", "Progress"], &rows,
                   progress.is_empty(), "All results are applied."))
        } }
    }

    fn lag(&self) -> Markup {
        let Some(queues) = &self.queues else {
            return html! { section.card.empty { h2 { "Consumers" } p { "NATS is unavailable, so the backlogs are unknown." } } };
        };
        super::queues::consumers(queues)
    }

    fn feed_table(&self) -> Markup {
        html! { @if let Some(feeds) = &self.feeds { (super::feeds::feeds_table(feeds, self.now)) } }
    }
}

pub(super) fn tile(label: &str, value: &Markup, more: &Markup) -> Markup {
    html! { section.tile { h2 { (label) } p.value { (value) } p.more { (more) } } }
}

/// Formats as "1 report" or "2 reports".
fn counted(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{} {thing}s", count(number)) }
}

/// Shows a question mark if the value is unknown.
fn known(value: Option<String>) -> Markup {
    html! { @match value { Some(value) => (value), None => span.quiet { "?" } } }
}
