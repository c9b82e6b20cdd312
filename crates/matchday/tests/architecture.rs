//! Checks which modules of the crate may import which, by reading its sources.
//!
//! The tests read `use` statements and paths that start with `crate::`. They skip code under `#[cfg(test)]` and test
//! files, because tests may import everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Domains, lowest first. A domain may import itself and the domains before it.
const DOMAINS: [&str; 7] = ["identity", "catalogue", "chat", "game", "delivery", "admin", "server"];

/// Files that compose the domains, each with the other composition files it may import.
const COMPOSITION: [(&str, &[&str]); 6] = [
    ("app", &["config", "demo"]),
    ("router", &["app", "demo"]),
    ("tasks", &["app", "backlog"]),
    ("commands", &["app", "config", "demo", "router", "tasks"]),
    ("config", &[]),
    ("backlog", &[]),
];

/// The demo uses services as apps do. It is not a domain, and no domain may import it.
const DEMO: &str = "demo";

/// The only modules that may import `App`.
const IMPORT_APP: [&str; 4] = ["app", "router", "tasks", "commands"];

#[test]
fn domains_import_only_lower_domains() {
    let edges = Sources::read().edges();
    let faults: Vec<String> = edges
        .iter()
        .filter(|(from, to)| !is_allowed(top(from), top(to)))
        .map(|(from, to)| format!("{from} imports {to}"))
        .collect();
    assert!(faults.is_empty(), "forbidden imports:\n{}", faults.join("\n"));
}

fn is_allowed(from: &str, to: &str) -> bool {
    match (rank(from), rank(to)) {
        (Some(from), Some(to)) => to <= from,
        // A domain must not import the composition files or the demo.
        (Some(_), None) => false,
        (None, Some(_)) => from == DEMO || COMPOSITION.iter().any(|(name, _)| *name == from),
        (None, None) => from == to || COMPOSITION.iter().any(|(name, also)| *name == from && also.contains(&to)),
    }
}

#[test]
fn only_composition_imports_app() {
    let sources = Sources::read();
    let importers = sources.edges().into_iter().filter(|(_, to)| to == "app").map(|(from, _)| from);
    let faults: Vec<String> = importers.filter(|from| !IMPORT_APP.contains(&top(from))).collect();
    assert!(faults.is_empty(), "only {IMPORT_APP:?} may import App: {faults:?}");
}

/// Modules with messages that only this service reads. Their timestamps have the full precision.
const INTERNAL_TIMESTAMPS: [&str; 5] = [
    "catalogue::matches::facts",
    "chat::messages",
    "delivery::notifications::alerts",
    "delivery::notifications::kinds",
    "delivery::notifications::work",
];

#[test]
fn timestamps_for_clients_have_one_form() {
    let sources = Sources::read();
    let others: Vec<&String> = sources
        .texts
        .iter()
        .filter(|(_, text)| text.contains("time::serde::rfc3339"))
        .map(|(module, _)| module)
        .collect();
    assert_eq!(others, INTERNAL_TIMESTAMPS, "use platform::timestamp for what clients read");
}

#[test]
fn cycles_stay_within_one_feature() {
    let faults: Vec<String> = components(&Sources::read().edges())
        .into_iter()
        .filter(|cycle| cycle.iter().map(|module| feature(module)).collect::<BTreeSet<_>>().len() > 1)
        .map(|cycle| cycle.join(" "))
        .collect();
    assert!(faults.is_empty(), "import cycles across features:\n{}", faults.join("\n"));
}

/// A feature exports SQL that another feature needs as a named function in its `mod.rs`.
#[test]
fn stores_are_private_to_their_feature() {
    let sources = Sources::read();
    let declares_public = |text: &str| text.lines().any(|line| line.starts_with("pub") && line.ends_with("mod store;"));
    let faults: Vec<&String> =
        sources.texts.iter().filter(|(_, text)| declares_public(text)).map(|(module, _)| module).collect();
    assert!(faults.is_empty(), "features whose store is public: {faults:?}");
}

#[test]
fn use_trees_are_expanded_to_leaves() {
    assert_eq!(
        leaves("crate::{a::{self, B as C}, d::*}"),
        ["crate::a::self", "crate::a::B as C", "crate::d::*"].map(str::to_owned)
    );
}

#[test]
fn finds_strongly_connected_components() {
    let edge = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let edges = BTreeSet::from([edge("a", "b"), edge("b", "c"), edge("c", "a"), edge("c", "d")]);
    assert_eq!(components(&edges), [["a", "b", "c"].map(str::to_owned)]);
}

/// First segment of a module's name: a domain, or a composition file.
fn top(module: &str) -> &str {
    module.split("::").next().unwrap_or_default()
}

fn rank(top: &str) -> Option<usize> {
    DOMAINS.iter().position(|domain| *domain == top)
}

/// Domain and feature of a module.
fn feature(module: &str) -> String {
    module.split("::").take(2).collect::<Vec<_>>().join("::")
}

/// Sources of the crate by module, without tests.
struct Sources {
    texts: BTreeMap<String, String>,
    /// Re-exports: maps a module and an exported name to the original path.
    exports: BTreeMap<(String, String), String>,
}

impl Sources {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut texts = BTreeMap::new();
        for file in files(&root) {
            let path = file.strip_prefix(&root).expect("a file below src").with_extension("");
            let mut parts: Vec<&str> = path.iter().map(|part| part.to_str().expect("UTF-8")).collect();
            if parts.last() == Some(&"mod") {
                parts.pop();
            }
            let is_test = parts.iter().any(|part| *part == "tests" || *part == "testing" || part.ends_with("_tests"));
            if is_test || matches!(parts[..], ["lib" | "main"]) {
                continue;
            }
            let text = fs::read_to_string(&file).expect("a source file");
            texts.insert(parts.join("::"), without_tests_and_comments(&text));
        }
        // Drop modules that their parent declares for tests only.
        for (module, text) in texts.clone() {
            for (attribute, declaration) in text.lines().zip(text.lines().skip(1)) {
                let name = declaration.trim().strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
                if let (true, Some(name)) = (attribute.trim() == "#[cfg(test)]", name) {
                    texts.remove(&format!("{module}::{name}"));
                }
            }
        }
        let mut exports = BTreeMap::new();
        for (module, text) in &texts {
            for statement in statements(text).filter(|statement| statement.is_public) {
                for leaf in leaves(&statement.tree) {
                    let (path, name) = leaf.split_once(" as ").map_or_else(
                        || (leaf.clone(), leaf.rsplit("::").next().unwrap_or_default().to_owned()),
                        |(path, name)| (path.to_owned(), name.to_owned()),
                    );
                    if let Some(path) = absolute(module, &path) {
                        exports.insert((module.clone(), name), path);
                    }
                }
            }
        }
        Self { texts, exports }
    }

    /// Pairs of importing and imported module. A module that imports from itself is left out.
    fn edges(&self) -> BTreeSet<(String, String)> {
        let mut edges = BTreeSet::new();
        for (module, text) in &self.texts {
            let imported = statements(text)
                .filter(|statement| !statement.is_public)
                .flat_map(|statement| leaves(&statement.tree))
                .map(|leaf| leaf.split(" as ").next().unwrap_or_default().to_owned());
            for path in imported.chain(inline_paths(text)) {
                let target = absolute(module, &path).and_then(|path| self.module_of(&path));
                if let Some(target) = target.filter(|target| target != module) {
                    edges.insert((module.clone(), target));
                }
            }
        }
        edges
    }

    /// Resolves a path to the module that defines the item: the longest prefix that is a module, following re-exports.
    fn module_of(&self, path: &str) -> Option<String> {
        let parts: Vec<&str> = path.split("::").collect();
        let length = (1..=parts.len()).rev().find(|&length| self.texts.contains_key(&parts[..length].join("::")))?;
        let module = parts[..length].join("::");
        let export = parts.get(length).and_then(|name| self.exports.get(&(module.clone(), (*name).to_owned())));
        match export {
            Some(export) if export != path => self.module_of(export),
            _ => Some(module),
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let sources = files.into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
    sources.chain(folders.iter().flat_map(|folder| self::files(folder))).collect()
}

fn without_tests_and_comments(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

struct Statement {
    is_public: bool,
    tree: String,
}

fn statements(text: &str) -> impl Iterator<Item = Statement> {
    text.match_indices("use ").filter_map(|(at, _)| {
        let before = text[..at].rsplit('\n').next().unwrap_or_default().trim();
        let is_public = before == "pub" || (before.starts_with("pub(") && before.ends_with(')'));
        // `use ` in the middle of a line is part of a comment, a string or a longer word.
        let is_statement = before.is_empty() || is_public;
        let tree = text[at + "use ".len()..].split(';').next()?;
        is_statement.then(|| Statement { is_public, tree: tree.split_whitespace().collect::<Vec<_>>().join(" ") })
    })
}

/// Expands a `use` tree to the paths that it imports.
fn leaves(tree: &str) -> Vec<String> {
    let Some(open) = tree.find('{') else { return vec![tree.trim().to_owned()] };
    let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut start, mut items) = (0, 0, Vec::new());
    for (at, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&inner[start..]);
    let items = items.into_iter().map(str::trim).filter(|item| !item.is_empty());
    items.flat_map(leaves).map(|leaf| format!("{}{leaf}", tree[..open].trim())).collect()
}

/// Fully qualified paths in code outside `use` statements.
fn inline_paths(text: &str) -> impl Iterator<Item = String> {
    let roots = text.match_indices("crate::").chain(text.match_indices("matchday::"));
    roots.map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':');
        rest[..end.unwrap_or(rest.len())].trim_end_matches(':').to_owned()
    })
}

/// Resolves a path from the crate's root; `None` for a path into another crate.
fn absolute(module: &str, path: &str) -> Option<String> {
    let mut base: Vec<&str> = module.split("::").collect();
    let mut parts = path.split("::").filter(|part| *part != "self").peekable();
    // The commands belong to the binary, which imports the library by its name.
    if path.starts_with("crate::") || path.starts_with("matchday::") {
        base.clear();
        parts.next();
    } else if path.starts_with("super::") {
        while parts.next_if_eq(&"super").is_some() {
            base.pop();
        }
    } else if !path.starts_with("self::") {
        return None;
    }
    Some(base.into_iter().chain(parts).collect::<Vec<_>>().join("::"))
}

/// Strongly connected components of more than one module (Tarjan's algorithm).
fn components(edges: &BTreeSet<(String, String)>) -> Vec<Vec<String>> {
    let mut search = Search::new(edges);
    let modules: BTreeSet<&String> = edges.iter().flat_map(|(from, to)| [from, to]).collect();
    for module in modules {
        if !search.order.contains_key(module) {
            search.visit(module);
        }
    }
    search.found
}

struct Search<'a> {
    edges: &'a BTreeSet<(String, String)>,
    order: BTreeMap<String, usize>,
    lowest: BTreeMap<String, usize>,
    stack: Vec<String>,
    found: Vec<Vec<String>>,
}

impl<'a> Search<'a> {
    fn new(edges: &'a BTreeSet<(String, String)>) -> Self {
        Self { edges, order: BTreeMap::new(), lowest: BTreeMap::new(), stack: Vec::new(), found: Vec::new() }
    }

    fn visit(&mut self, module: &str) {
        let number = self.order.len();
        self.order.insert(module.to_owned(), number);
        self.lowest.insert(module.to_owned(), number);
        self.stack.push(module.to_owned());
        let edges = self.edges;
        for (_, to) in edges.iter().filter(|(from, _)| from == module) {
            if !self.order.contains_key(to) {
                self.visit(to);
                let reached = self.lowest[module].min(self.lowest[to]);
                self.lowest.insert(module.to_owned(), reached);
            } else if self.stack.contains(to) {
                let reached = self.lowest[module].min(self.order[to]);
                self.lowest.insert(module.to_owned(), reached);
            }
        }
        if self.lowest[module] == number {
            let at = self.stack.iter().position(|other| other == module).unwrap_or_default();
            let mut component = self.stack.split_off(at);
            component.sort();
            if component.len() > 1 {
                self.found.push(component);
            }
        }
    }
}
