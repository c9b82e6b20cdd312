//! `docs/performance.md`: what was measured, beside what, and how far one machine is from the whole internet.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use super::{chart, machine, readable, thousands};
use crate::{
    outcome::{Goal, Outcome},
    scenarios::ALL,
};

/// Writes the page and its charts.
pub(crate) fn write(root: &Path, kept: &BTreeMap<String, Vec<Outcome>>) -> anyhow::Result<()> {
    let machine = machine::read(root)?;
    let outcomes: Vec<&Outcome> = ALL.iter().filter_map(|scenario| kept.get(scenario.name)).flatten().collect();
    let sizes: Vec<&Outcome> =
        outcomes.iter().copied().filter(|outcome| outcome.scenario.starts_with("scores-")).collect();
    let docs = root.join("docs");
    fs::write(docs.join("performance-ratios.svg"), chart::ratios(&outcomes))?;
    fs::write(docs.join("performance-sizes.svg"), chart::sizes(&sizes))?;

    let mut page = format!(
        "# Performance

<!-- Written by `just bench --report`; changes by hand are lost. -->

Every figure here has its counterpart from the same run on the same machine: the bare engine that does the least it can
for the same result. Machines differ and are noisy, ratios less so. Load generator, service and engines share the cores.

Measured on {} at revision {}, release build: {}. {}. Both sides of each row alternate {} times, {} s each where time is
what bounds it; figures are medians of the rounds, in parentheses the lowest and the highest round.

![Ratios](performance-ratios.svg)

| scenario | what | ours | beside | bare | ratio | goal |
|---|---|---|---|---|---|---|
",
        machine.day, machine.revision, machine.hardware, machine.parts, machine.rounds, machine.seconds
    );
    page.push_str(&table(&outcomes));
    page.push_str(&limits(&outcomes));
    page.push_str(&latency(&outcomes));
    page.push_str(&cost_over_size(&sizes));
    page.push_str(&scale(kept));
    page.push_str(
        "
## Repeat it

```sh
dev/up                  # PostgreSQL, Redis, NATS, Synapse
just bench              # all of it, about an hour; five million predictions are most of that
just bench events-list  # one scenario
just bench --report     # this page, of what was measured last
```

Each scenario prints a line of JSON for every row above. PostgreSQL, nginx and the service are started for the run, on
loopback, and stopped after it. Do nothing else on the machine meanwhile.
",
    );
    fs::write(docs.join("performance.md"), page)?;
    Ok(())
}

/// How far one node goes, and what comes after it.
fn scale(kept: &BTreeMap<String, Vec<Outcome>>) -> String {
    let find = |name: &str| kept.values().flatten().find(|outcome| outcome.scenario == name);
    let rate = |name: &str| {
        find(name).map_or_else(|| "not measured".to_owned(), |outcome| format!("{} a second", readable(outcome.ours)))
    };
    let limit = |name: &str| find(name).map_or("not measured", |outcome| outcome.limit.as_str());
    let scores = ["scores-5000000", "scores-1000000"].into_iter().find_map(find).map_or_else(
        || "not measured".to_owned(),
        |outcome| {
            let size = outcome.size.unwrap_or_default();
            #[expect(clippy::cast_precision_loss, reason = "some millions")]
            let seconds = size as f64 * 4.0 / outcome.ours;
            let twenty = seconds * 20e6 / (seconds * outcome.ours / 4.0);
            format!(
                "{} scores a second: {} predictions in {} s; 20 million would take {} s on these cores (computed, not measured)",
                readable(outcome.ours),
                thousands(size),
                readable(seconds),
                readable(twenty)
            )
        },
    );
    format!(
        "
## How far one node goes

A final's evening of an app with 100 million accounts, for scale: 10 million people at once, 5 million predictions in the
last half hour, two fifths of them in the last five minutes. That is about 7,000 predictions a second with peaks of
20,000, and 300,000 requests a second, nearly all of them lists; then ranks of 20 million predictions, wanted within a
minute of the whistle. Figures below are of this small machine, with the load generator on it; what was not measured says
so.

| load | one node here | how it grows |
|---|---|---|
| lists of matches | {}; the database does not notice how many ask | more processes; a cache in front may keep a page for a second by its `ETag` |
| predictions | {}; {} when no token is known yet | more cores; then Citus by user: a lane is a shard. Citus: not measured |
| points | nothing happens at the whistle: a page with points derived, {} | with the database's replicas; not measured |
| scores | {scores} | lanes over more workers, and over shards. More than one machine: not measured |
| leaderboards | {}; {} | a table is one sorted set, a set is one slot of a cluster; score ranges once a set outgrows a node. A cluster: not measured |
| coins | {}; {} from one wallet | by user, on one shard |
| logins with chat | {}; Synapse is nearly all of it | Synapse's own workers; not measured |
| connections | {} KB each; {} | more processes |
| listeners of the live stream | a goal reaches 1,000 of them within {}; {} KB each while they wait | more processes: each follows the facts once |
| joins of one chat room | not measured here: one process of the homeserver does all joins of a room | rooms of a match are capped, and further stands of the same match open |
| SMS | the provider's; not measured | a queue and a budget for each country |

Most operators will never need a second node: what a club's app sees on its best evening is a fraction of one column.
",
        rate("events-list"),
        rate("predict-burst"),
        rate("predict-burst-cold"),
        rate("points"),
        rate("rank"),
        limit("rank"),
        rate("deduct"),
        rate("deduct-one-wallet"),
        rate("login"),
        find("idle").map_or_else(|| "?".to_owned(), |outcome| readable(outcome.ours)),
        limit("idle"),
        find("stream").map_or_else(|| "not measured".to_owned(), |outcome| format!("{} ms (p99)", readable(outcome.ours))),
        find("stream-idle").map_or_else(|| "?".to_owned(), |outcome| readable(outcome.ours)),
    )
}

/// A row for each figure.
fn table(outcomes: &[&Outcome]) -> String {
    let mut page = String::new();
    for outcome in outcomes {
        let goal = match outcome.goal {
            None => "none".to_owned(),
            Some(goal) => {
                let (word, number) = match goal {
                    Goal::AtLeast(least) => ("at least", least),
                    Goal::AtMost(most) => ("at most", most),
                };
                let met = if goal.is_met(outcome.ratio) { "" } else { "; **missed**" };
                format!("{word} {number}{met}")
            }
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {} {} | {} | {} | **{:.2}** ({:.2} to {:.2}, {} rounds) | {goal} |",
            outcome.scenario,
            outcome.what,
            readable(outcome.ours),
            outcome.unit,
            outcome.beside,
            readable(outcome.bare),
            outcome.ratio,
            outcome.spread[0],
            outcome.spread[1],
            outcome.rounds.len(),
        );
    }
    page
}

/// What stood in the way.
fn limits(outcomes: &[&Outcome]) -> String {
    let mut page = String::new();
    page.push_str(
        "
## What each ran into

What the cores did while our side ran, and what else was seen:

",
    );
    for outcome in outcomes {
        let _ = writeln!(page, "- `{}`: {}.", outcome.scenario, outcome.limit);
    }
    page
}

/// p50, p99 and p99.9.
fn latency(outcomes: &[&Outcome]) -> String {
    let mut page = String::new();
    page.push_str(
        "
## Latency

At a rate that both sides manage (half of what the slower one managed at most; `predict-lone` one at a time, `login` as
fast as it goes). Requests have a timetable, and latency counts from the moment a request was due, so that a pause of the
service is felt by all that were due during it. Milliseconds.

| scenario | a second | p50 | p99 | p99.9 | bare p50 | bare p99 | bare p99.9 |
|---|---|---|---|---|---|---|---|
",
    );
    for outcome in outcomes {
        let Some(latency) = outcome.latency else { continue };
        let three = |[p50, p99, p999]: [f64; 3]| format!("{} | {} | {}", readable(p50), readable(p99), readable(p999));
        let bare = latency.bare.map_or_else(|| "– | – | –".to_owned(), three);
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {bare} |",
            outcome.scenario,
            readable(latency.rate),
            three(latency.ours)
        );
    }
    page
}

/// How the cost of a score grows with the match.
fn cost_over_size(sizes: &[&Outcome]) -> String {
    let mut page = String::new();
    if !sizes.is_empty() {
        page.push_str("\n## Cost over size\n\n![Cost over size](performance-sizes.svg)\n\n");
        for outcome in sizes {
            let size = outcome.size.unwrap_or_default();
            #[expect(clippy::cast_precision_loss, reason = "some millions")]
            let seconds = size as f64 * 4.0 / outcome.ours;
            let _ = writeln!(
                page,
                "- {} predictions: {} s from the result to the last place on the last board.",
                thousands(size),
                readable(seconds)
            );
        }
    }
    page
}
