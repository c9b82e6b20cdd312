//! The reference of all settings, written from where they are declared.

use std::fmt::Write as _;

use platform::settings::{Faults, Origin};

use super::{Config, Loaded};

const HEAD: &str = "# Settings

<!-- Written by `matchday config --reference`; changes by hand are lost, and a test compares. -->

Every setting of Matchday. Each can stand in a TOML file (`--config FILE`, or `MATCHDAY_CONFIG`) and in a variable, which
wins: `http.listen` is `MATCHDAY_HTTP__LISTEN`. Lists are separated by commas in variables. Times are like `500ms`, `30s`,
`5m`, `12h` or `7d`. `MATCHDAY_ENV` is `local`, `testing`, `staging` or `production`; unset or unknown means `production`.
`matchday config` prints what is in force, and where each value came from; a name that is none is refused.
";

/// What has no default, with something to stand there.
const REQUIRED: [(&str, &str); 5] = [
    ("MATCHDAY_DATABASE__URL", "postgres://127.0.0.1/matchday"),
    ("MATCHDAY_REDIS__URL", "redis://127.0.0.1"),
    ("MATCHDAY_NATS__URL", "nats://127.0.0.1"),
    ("MATCHDAY_CODES__KEYS", "1:00000000000000000000000000000000ffffffffffffffffffffffffffffffff"),
    ("MATCHDAY_ENV", "local"),
];

/// A document of all settings.
pub fn reference() -> Result<String, Faults> {
    let variables = REQUIRED.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let Loaded { entries, .. } = Config::parse(variables, None)?;
    let mut text = HEAD.to_owned();
    for (section, meaning) in Config::SECTIONS {
        let _ = write!(text, "\n## `{section}`\n\n{}\n\n", in_a_line(meaning));
        text.push_str("| setting | default | meaning |\n|---|---|---|\n");
        for entry in entries.iter().filter(|entry| entry.key.split('.').next() == Some(section)) {
            let default = match (&entry.origin, &entry.value) {
                (Origin::Default, Some(value)) => format!("`{value}`"),
                (Origin::Default, None) => String::new(),
                _ => "must be set".to_owned(),
            };
            let _ = writeln!(text, "| `{}` | {default} | {} |", entry.key, in_a_line(entry.meaning));
        }
    }
    Ok(text)
}

/// A comment as the cell of a table.
fn in_a_line(meaning: &str) -> String {
    meaning.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_document_is_up_to_date() {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
        let path = std::path::Path::new(&package).join("../../docs/configuration.md");
        let there = std::fs::read_to_string(path).expect("docs/configuration.md");
        let wanted = super::reference().expect("the defaults are good");
        assert_eq!(
            there.trim_end(),
            wanted.trim_end(),
            "write it: cargo run --bin matchday -- config --reference > docs/configuration.md"
        );
    }
}
