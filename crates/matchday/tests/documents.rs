//! Checks that the files and functions named in the documents exist.
//!
//! Inline code in [`DOCUMENTS`] is a reference if its first word is one of the kinds below. Fenced blocks and all other
//! inline code (settings, tables, headers, HTTP paths, which start with `/`) are not checked.
//!
//! - A **path** consists of letters, digits and `_ - . /`, and contains a `/` or ends in one of [`EXTENSIONS`]. It is
//!   relative to the repository root, to `crates/matchday/src`, or to a folder (a path that ends in `/`) named earlier
//!   in the same section. Targets of Markdown links are paths too, relative to the root.
//! - A **name** is `module::name`. Its first segment is a crate (`platform::outbox::enqueue`), a test suite of the
//!   service (`whole::coins::…`) or a module of the service (`identity::codes::tests::…`). `…::name` refers to the
//!   module of the previous reference, and `module::*` to all tests of a module. In [`PROOFS`] every name must be a
//!   test.
//! - A **method** is `Type::name`: some file must contain both an `impl` of the type and the function.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Documents whose references are checked.
const DOCUMENTS: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", PROOFS];

/// Document in which every name must be a test.
const PROOFS: &str = "SECURITY.md";

/// File extensions by which a name without a folder is recognised as a path.
const EXTENSIONS: [&str; 12] =
    [".rs", ".md", ".sql", ".toml", ".py", ".sh", ".yaml", ".json", ".ts", ".tsx", ".css", ".conf"];

/// Inline code that resembles a path but is not one: spellings of URLs, and placeholders.
const EXCEPTIONS: [&str; 4] = ["createRoom/..", "//", "migrations/NNNN_name.up.sql", ".down.sql"];

/// Root of the clone that runs the tests. It is read at run time, because several clones may share one target folder.
fn repository() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    Path::new(&package).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    paths
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

/// Identifier after a keyword in a line, such as the name of a function after `fn`.
fn declared<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == keyword)?;
    words.next()?.split(|character: char| !character.is_ascii_alphanumeric() && character != '_').next()
}

fn declares(text: &str, keywords: &[&str], name: &str) -> bool {
    text.lines().any(|line| keywords.iter().any(|keyword| declared(line, keyword) == Some(name)))
}

/// Names of the functions with a test attribute.
fn tests_in(text: &str) -> Vec<&str> {
    let mut is_test = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(name) = declared(line, "fn").filter(|_| !line.starts_with("//")) {
            if is_test {
                found.push(name);
            }
            is_test = false;
        }
    }
    found
}

/// A module's file, and the folder of its child modules.
struct Module {
    file: PathBuf,
    children: PathBuf,
}

/// Finds a module below a source folder. A module without a file must be declared in its parent's file.
fn module_below(base: &Path, segments: &[&str]) -> Option<Module> {
    let mut found = Module { file: base.join("lib.rs"), children: base.to_owned() };
    for segment in segments {
        let children = found.children.join(segment);
        let files = [children.with_extension("rs"), children.join("mod.rs"), children.join("main.rs")];
        if let Some(file) = files.into_iter().find(|file| file.is_file()) {
            found.file = file;
        } else if !found.file.is_file() || !declares(&read(&found.file), &["mod"], segment) {
            return None;
        }
        found.children = children;
    }
    Some(found)
}

fn module(root: &Path, segments: &[&str]) -> Option<Module> {
    let (first, rest) = segments.split_first()?;
    let package = root.join("crates").join(first.replace('_', "-"));
    let (package, segments) = if package.is_dir() { (package, rest) } else { (root.join("crates/matchday"), segments) };
    ["src", "tests"].iter().find_map(|folder| module_below(&package.join(folder), segments))
}

/// Returns why `module::name` or `Type::name` cannot be resolved.
fn name_fault(root: &Path, path: &[&str], must_be_test: bool) -> Option<String> {
    let (name, parents) = path.split_last()?;
    if let [owner] = parents
        && owner.starts_with(|first: char| first.is_ascii_uppercase())
    {
        let found = sources(&root.join("crates")).iter().any(|file| {
            let text = read(file);
            let implements =
                |line: &str| line.starts_with("impl") && line.split(|c| !is_word(c)).any(|word| word == *owner);
            text.lines().any(implements) && declares(&text, &["fn"], name)
        });
        return (!found).then(|| format!("no file has an impl of {owner} and a function {name}"));
    }
    let Some(module) = module(root, parents) else {
        return Some(format!("module {} does not exist", parents.join("::")));
    };
    let (text, file) = (read(&module.file), module.file.strip_prefix(root).unwrap_or(&module.file).display());
    if let Some(prefix) = name.strip_suffix('*') {
        let below = sources(&module.children).iter().map(|file| read(file)).collect::<Vec<_>>();
        let found =
            std::iter::once(&text).chain(&below).flat_map(|text| tests_in(text)).any(|test| test.starts_with(prefix));
        (!found).then(|| format!("{file} has no such test"))
    } else if must_be_test {
        (!tests_in(&text).contains(name)).then(|| format!("{file} has no such test"))
    } else {
        let kinds = ["fn", "struct", "enum", "trait", "type", "const", "mod"];
        (!declares(&text, &kinds, name)).then(|| format!("{file} has no {name}"))
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn is_path(text: &str) -> bool {
    text.chars().all(|character| is_word(character) || "-./".contains(character))
        && !text.starts_with('/')
        && (text.contains('/') || EXTENSIONS.iter().any(|extension| text.ends_with(extension)))
}

/// Segments of `module::name`, with `…` replaced by the module of the previous reference.
fn name_in<'a>(text: &'a str, module_before: &[&'a str]) -> Option<Vec<&'a str>> {
    let mut segments: Vec<&str> = text.split("::").collect();
    if segments.len() < 2 {
        return None;
    }
    let last = segments.len() - 1;
    let is_name = |segment: &str| is_identifier(segment.strip_suffix('*').unwrap_or(segment)) || segment == "*";
    if segments[0] == "…" {
        segments.splice(..1, module_before.iter().copied());
        return is_name(segments.last()?).then_some(segments);
    }
    (segments[..last].iter().all(|segment| is_identifier(segment)) && is_name(segments[last])).then_some(segments)
}

/// Lines of a document outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// Targets of the Markdown links to files in a line, without anchors.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()).filter(|target| !target.contains("://"))
}

/// Returns the broken references of a document, and the number of all its references.
fn check(root: &Path, text: &str, must_be_tests: bool) -> (Vec<String>, usize) {
    let (mut faults, mut count) = (Vec::new(), 0);
    let mut folders: Vec<PathBuf> = Vec::new();
    let mut module_before: Vec<&str> = Vec::new();
    for (number, line) in prose(text) {
        if line.starts_with('#') {
            folders.clear();
        }
        if line.matches('`').count() % 2 != 0 {
            faults.push(format!("{number}: inline code that continues on the next line cannot be checked"));
        }
        for target in links(line).filter(|target| !root.join(target).exists()) {
            faults.push(format!("{number}: the target of the link {target} does not exist"));
        }
        for span in line.split('`').skip(1).step_by(2) {
            let Some(word) = span.split_whitespace().next().filter(|word| !EXCEPTIONS.contains(word)) else { continue };
            if is_path(word) {
                count += 1;
                let bases = [root.to_owned(), root.join("crates/matchday/src")];
                let found = bases.iter().chain(&folders).map(|base| base.join(word)).find(|path| path.exists());
                match found {
                    Some(folder) if word.ends_with('/') => folders.push(folder),
                    Some(_) => {}
                    None => faults.push(format!("{number}: `{word}` does not exist")),
                }
            } else if let Some(path) = name_in(span, &module_before) {
                count += 1;
                if let Some(fault) = name_fault(root, &path, must_be_tests) {
                    faults.push(format!("{number}: `{span}`: {fault}"));
                }
                module_before = path[..path.len() - 1].to_vec();
            }
        }
    }
    (faults, count)
}

#[test]
fn documents_name_existing_files_and_functions() {
    let root = repository();
    let mut faults = Vec::new();
    for document in DOCUMENTS {
        let (found, count) = check(&root, &read(&root.join(document)), document == PROOFS);
        assert!(count > 20, "{document} has {count} references: they are not recognised");
        faults.extend(found.iter().map(|fault| format!("{document}:{fault}")));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn exceptions_are_in_use() {
    let root = repository();
    let texts = DOCUMENTS.map(|document| read(&root.join(document)));
    for exception in EXCEPTIONS {
        let span = format!("`{exception}`");
        assert!(texts.iter().any(|text| text.contains(&span)), "no document contains {span}; remove the exception");
    }
}

#[test]
fn missing_references_are_reported() {
    let sound = "## `crates/platform/src/`\n`outbox/` and `clock.rs`, `app.rs`, [readme](README.md#quick-start), `POST /api/x/y`, \
                 `platform::outbox::enqueue`, `stage::proof::held`, `Core::with_clock`\n```\nnot/checked.rs\n```\n";
    let (faults, count) = check(&repository(), sound, false);
    assert_eq!((faults, count), (Vec::new(), 7));

    let broken = [
        ("`crates/matchday/src/workers.rs`", false),
        ("`clock.rs`", false),
        ("`crates/platform/src/clock.rs", false),
        ("## `crates/platform/src/`\n`clock.rs`\n## another section\n`clock.rs`", false),
        ("`crates/nowhere/`", false),
        ("`dev/nothing --now`", false),
        ("[gone](docs/gone.md)", false),
        ("`platform::outbox::no_such_function`", false),
        ("`platform::no_such_module::enqueue`", false),
        ("`Core::no_such_method`", false),
        ("`NoSuchType::new`", false),
        ("`platform::outbox::enqueue`", true),
        ("`platform::batches::tests::no_such_prefix_*`", true),
        ("`platform::batches::tests::*`, `…::no_such_test`", true),
    ];
    for (text, must_be_tests) in broken {
        let (faults, _) = check(&repository(), text, must_be_tests);
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
    }
}
