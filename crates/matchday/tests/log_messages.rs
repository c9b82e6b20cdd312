//! Checks the form of log messages in all crates, as `docs/logging.md` describes it: every call of a `tracing` macro ends
//! with a literal message that starts lower-case, has no trailing period and contains no interpolated value.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Names that keep their capital letter at the start of a message. Acronyms such as NATS and SMS are recognised by their
/// second capital letter.
const PROPER_NAMES: [&str; 3] = ["Redis", "Synapse", "Prometheus"];

const MACROS: [&str; 5] =
    ["tracing::error!(", "tracing::warn!(", "tracing::info!(", "tracing::debug!(", "tracing::trace!("];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Arguments of a macro call, split at its top-level commas. `text` starts after the opening parenthesis.
fn arguments(text: &str) -> Vec<String> {
    let (mut depth, mut in_string, mut is_escaped) = (0_u32, false, false);
    let mut found = vec![String::new()];
    for character in text.chars() {
        if in_string {
            in_string = is_escaped || character != '"';
            is_escaped = !is_escaped && character == '\\';
        } else {
            match character {
                '"' => in_string = true,
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' if depth == 0 => break,
                ')' | ']' | '}' => depth -= 1,
                ',' if depth == 0 => {
                    found.push(String::new());
                    continue;
                }
                _ => {}
            }
        }
        found.last_mut().expect("it has one").push(character);
    }
    found.into_iter().map(|argument| argument.trim().to_owned()).filter(|argument| !argument.is_empty()).collect()
}

fn keeps_capital(word: &str) -> bool {
    PROPER_NAMES.contains(&word) || word.chars().filter(char::is_ascii_uppercase).count() > 1
}

/// Returns why the message of a call is not well-formed.
fn fault(call: &str) -> Option<&'static str> {
    let arguments = arguments(call);
    let message = arguments.last().and_then(|last| last.strip_prefix('"')?.strip_suffix('"'));
    let Some(message) = message else { return Some("the last argument is not a literal message") };
    let first = message.split_whitespace().next().unwrap_or_default();
    if message.contains('{') {
        Some("the message interpolates a value; use a field")
    } else if message.ends_with('.') {
        Some("the message ends with a period")
    } else if first.is_empty()
        || (first.starts_with(|letter: char| !letter.is_ascii_lowercase()) && !keeps_capital(first))
    {
        Some("the message does not start with a lower-case letter")
    } else {
        None
    }
}

fn calls(text: &str) -> impl Iterator<Item = (usize, &str)> {
    MACROS.into_iter().flat_map(move |name| {
        text.match_indices(name).map(move |(place, _)| (text[..place].lines().count(), &text[place + name.len()..]))
    })
}

#[test]
fn log_messages_follow_the_guide() {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    let crates = Path::new(&package).join("..");
    let mut checked = 0;
    let mut faults = Vec::new();
    for path in sources(&crates).into_iter().filter(|path| path.components().any(|part| part.as_os_str() == "src")) {
        let text = fs::read_to_string(&path).expect("a readable file");
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (line, call) in calls(text) {
            checked += 1;
            faults.extend(fault(call).map(|fault| format!("{}:{line}: {fault}", path.display())));
        }
    }
    assert!(checked > 100, "only {checked} calls were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn each_rule_finds_a_violation() {
    assert_eq!(fault(r#"%error, room = %id(1, "a, b"), "room was not created"); rest"#), None);
    assert_eq!(fault(r#""NATS connection lost")"#), None);
    for wrong in [r#""Room created")"#, r#""room created.")"#, r#"room = 1, "room {id} created")"#, "%error)", r#""")"#]
    {
        assert!(fault(wrong).is_some(), "{wrong}");
    }
}
