//! Tells what held: to whoever runs a test by hand, and to the page that is made of it.

use std::{fs::File, io::Write as _};

use serde_json::json;

/// Prints a line, and adds it to the file that `MATCHDAY_PROOF` names: `docs/reliability.md` is made of those.
///
/// `section` is one of the page's (`faults`, `hostile`, `upgrade`, `soak`), `what` the test in a few words, and `held`
/// what was seen, with its figures.
pub(crate) fn held(section: &str, what: &str, held: &str) {
    let _ = writeln!(std::io::stderr(), "held: {what}: {held}");
    let Some(path) = std::env::var_os("MATCHDAY_PROOF") else { return };
    let line = json!({"section": section, "what": what, "held": held});
    let mut file = File::options().create(true).append(true).open(path).expect("MATCHDAY_PROOF can be written");
    // One write, so that lines of tests that run side by side do not mix.
    file.write_all(format!("{line}\n").as_bytes()).expect("written");
}
