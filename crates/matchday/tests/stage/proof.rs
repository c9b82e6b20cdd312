//! Reports results of a test, on standard error and for `docs/reliability.md`.

use std::{fs::File, io::Write as _};

use serde_json::json;

/// Prints a line, and appends it to the file named by `MATCHDAY_PROOF`, from which `docs/reliability.md` is generated.
/// `what` names the test in a few words, and `held` describes the result with its figures.
pub(crate) fn held(what: &str, held: &str) {
    let _ = writeln!(std::io::stderr(), "held: {what}: {held}");
    let Some(path) = std::env::var_os("MATCHDAY_PROOF") else { return };
    let line = json!({"what": what, "held": held});
    let mut file = File::options().create(true).append(true).open(path).expect("MATCHDAY_PROOF can be written");
    // A single write, so that lines of concurrent tests do not mix.
    file.write_all(format!("{line}\n").as_bytes()).expect("written");
}
