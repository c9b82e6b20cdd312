//! Feeds and their health.

use maud::{Markup, html};
use time::OffsetDateTime;

use super::{Tone, ago, badge, moment_ago, or_never, table};
use crate::catalogue::feeds::service::Health;

pub(in crate::admin::console) fn show(feeds: &[Health], now: OffsetDateTime) -> Markup {
    html! {
        h1 { "Feeds" }
        (feeds_table(feeds, now))
        p.quiet { "Configure feeds with " code { "feeds.openfootball" } " and " code { "feeds.football_data_competitions" } ". To poll all of them now, run "
            code { "matchday feeds run --once" } "." }
    }
}

pub(super) fn feeds_table(feeds: &[Health], now: OffsetDateTime) -> Markup {
    let rows = html! { @for health in feeds {
        @let state = health.state.as_ref();
        tr {
            th scope="row" { (health.feed) }
            td { @match (health.is_configured, state) {
                (false, _) => (badge(Tone::Quiet, "not configured")),
                (true, None) => (badge(Tone::Busy, "not polled yet")),
                (true, Some(state)) if state.failures > 0 => (badge(Tone::Bad, &if state.failures == 1 { "failed".to_owned() } else { format!("failed {} times in a row", state.failures) })),
                (true, Some(_)) => (badge(Tone::Good, "ok")),
            } }
            td { (or_never(state.map(|state| state.polled_at), now)) }
            td { (or_never(state.and_then(|state| state.changed_at), now)) }
            td { @match state {
                _ if !health.is_configured => span.quiet { "never" },
                Some(state) => (ago(state.next_poll_at, now)),
                None => "now",
            } }
            td { @if let Some((at, error)) = state.and_then(|state| state.failed_at.zip(state.error.as_deref())) {
                (error) br; (moment_ago(at, now))
            } }
        }
    } };
    table(
        "Feeds",
        &["Feed", "State", "Last poll", "Last change", "Next poll", "Last failure"],
        &rows,
        feeds.is_empty(),
        "No feeds are configured. Import matches with `matchday fixtures import`.",
    )
}
