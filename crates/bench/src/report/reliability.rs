//! `docs/reliability.md`: what held when parts failed, of the lines that the tests wrote.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use serde::Deserialize;

use super::machine;

/// What a test saw.
#[derive(Deserialize)]
struct Line {
    section: String,
    what: String,
    held: String,
}

const SECTIONS: [(&str, &str, &str); 4] = [
    (
        "faults",
        "When a part fails",
        "Each test starts parts of its own, puts load on the service, breaks a part, and compares what was acknowledged \
         with what is in the database afterwards. `just faults`.",
    ),
    (
        "hostile",
        "Hostile input",
        "Generated requests over the whole interface, bytes that no client should send, and more connections than \
         anybody needs. `just hostile`.",
    ),
    ("upgrade", "Upgrades", "Processes are replaced and tables changed while requests go on. `just upgrade`."),
    ("soak", "Endurance", "All kinds of traffic with all workers for a while. `just soak`."),
];

/// Writes the page.
pub(crate) fn write(root: &Path, file: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("{}: just nightly makes it", file.display()))?;
    let lines: Vec<Line> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let machine = machine::here(root)?;
    let mut page = format!(
        "# Reliability

<!-- Written by `just nightly` of what its tests printed; changes by hand are lost. -->

What was promised for the day a part fails, and what was seen when it did. The parts are real (PostgreSQL under Patroni,
Redis, a cluster of NATS, Synapse); only the providers of text messages are local servers that answer as their documents
say. Times are of a small shared machine, service and tests built for debugging, and are there to show the order of
magnitude; that nothing acknowledged is lost and nothing is done twice is checked exactly, every time.

Seen on {} at revision {}: {}.

```sh
just nightly   # all of it, and this page
```
",
        machine.day, machine.revision, machine.hardware
    );
    for (section, title, about) in SECTIONS {
        let _ = write!(page, "\n## {title}\n\n{about}\n\n| what was done | what held |\n|---|---|\n");
        let mut rows: Vec<(String, String)> = Vec::new();
        for line in lines.iter().filter(|line| line.section == section) {
            let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
            // A test that ran twice counts as it ran last.
            rows.retain(|(what, _)| *what != cell(&line.what));
            rows.push((cell(&line.what), cell(&line.held)));
        }
        for (what, held) in &rows {
            let _ = writeln!(page, "| {what} | {held} |");
        }
        if rows.is_empty() {
            page.push_str("| nothing | was run |\n");
        }
    }
    fs::write(root.join("docs/reliability.md"), page)?;
    Ok(())
}
