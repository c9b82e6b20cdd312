//! Where matches come from by themselves.

use maud::{Markup, html};
use time::OffsetDateTime;

use super::{Tone, ago, badge, moment_ago, or_never, table};
use crate::catalogue::feeds::service::Health;

pub(in crate::admin::console) fn show(feeds: &[Health], now: OffsetDateTime) -> Markup {
    html! {
        h1 { "Feeds" }
        (feeds_table(feeds, now))
        p.quiet { "The settings " code { "feeds.openfootball" } " and " code { "feeds.football_data_competitions" } " name the feeds; "
            code { "matchday feeds run --once" } " looks at all of them at once." }
    }
}

pub(super) fn feeds_table(feeds: &[Health], now: OffsetDateTime) -> Markup {
    let rows = html! { @for health in feeds {
        @let state = health.state.as_ref();
        tr {
            th scope="row" { (health.feed) }
            td { @match (health.is_configured, state) {
                (false, _) => (badge(Tone::Quiet, "not in the settings")),
                (true, None) => (badge(Tone::Busy, "not looked at yet")),
                (true, Some(state)) if state.failures > 0 => (badge(Tone::Bad, &if state.failures == 1 { "failed".to_owned() } else { format!("failed {} times in a row", state.failures) })),
                (true, Some(_)) => (badge(Tone::Good, "good")),
            } }
            td { (or_never(state.map(|state| state.polled_at), now)) }
            td { (or_never(state.and_then(|state| state.changed_at), now)) }
            td { @match state {
                _ if !health.is_configured => span.quiet { "never" },
                Some(state) => (ago(state.next_poll_at, now)),
                None => "at once",
            } }
            td { @if let Some((at, error)) = state.and_then(|state| state.failed_at.zip(state.error.as_deref())) {
                (error) br; (moment_ago(at, now))
            } }
        }
    } };
    table(
        "Feeds",
        &["Feed", "State", "Last look", "Last change", "Next look", "Last failure"],
        &rows,
        feeds.is_empty(),
        "No feed is configured: matches come in by `matchday fixtures import`.",
    )
}
