//! Rules for statements: forms that Citus refuses, or runs with a wrong result or on the wrong clock. They hold on plain
//! PostgreSQL too, so one set of statements serves both (see `docs/citus.md`).
//!
//! The rules read the text of a statement, without a parser: they know which tables it names, by which aliases, and its
//! parentheses. `just citus` runs every statement on a real cluster.

use std::collections::{BTreeMap, BTreeSet};

use super::Kinds;

/// Kinds whose tables are distributed over the nodes.
const DISTRIBUTED: [&str; 3] = ["user", "room", "claim"];
/// Kinds whose tables stay on the coordinator.
const LOCAL: [&str; 4] = ["local", "tally", "timed", "queue"];
/// Functions whose value depends on the node that runs them.
const CLOCKS: [&str; 4] = ["now(", "statement_timestamp(", "clock_timestamp(", "current_timestamp"];

/// Returns the rule that a statement violates, if any.
pub(super) fn breaks(statement: &str, kinds: &Kinds) -> Option<&'static str> {
    let statement = Statement::parse(statement, kinds);
    RULES.iter().find_map(|(rule, is_broken)| is_broken(&statement).then_some(*rule))
}

type Rule = (&'static str, fn(&Statement<'_>) -> bool);

const RULES: [Rule; 17] = [
    ("merge is not supported on shards", |s| s.has("merge into")),
    ("do update must take its values from excluded, not from now()", |s| {
        s.text.split("do update").nth(1).is_some_and(|update| update.contains("now()"))
    }),
    ("skip locked must not be used on user tables", |s| s.is_distributed() && s.has("skip locked")),
    ("a write to a user table must be a plain statement", |s| {
        s.is_distributed()
            && ["insert into", "update ", "delete from"].iter().any(|write| s.text.contains(&format!("as ({write}")))
    }),
    ("an empty select list is not supported in a subquery: write select 1", |s| s.text.contains("select from ")),
    ("transaction and row ids differ between nodes", |s| {
        ["xmin", "xmax", "ctid", "txid_current", "pg_current_xact_id"].iter().any(|word| s.words.contains(word))
    }),
    ("rows can be locked on one shard only: compare the distribution column with a parameter", |s| {
        s.is_distributed()
            && ["for update", "for no key update", "for share", "for key share"].iter().any(|lock| s.has(lock))
            && !s.is_pruned()
    }),
    ("a distributed table must not be compared with the clock of a node: pass the time", |s| {
        s.is_distributed() && CLOCKS.iter().any(|clock| s.text.contains(clock))
    }),
    ("an update must not compute with intervals or the clock: pass the result", |s| {
        s.text.starts_with("update")
            && !s.is_only_local()
            && (s.words.contains(&"interval") || CLOCKS.iter().any(|clock| s.text.contains(clock)))
    }),
    ("a CTE with a local table that is merged twice loses columns: write materialized", |s| {
        s.has("as not materialized") && s.is_distributed() && s.names_any(&LOCAL)
    }),
    ("a join with unnest reads all shards: compare the distribution column with any($n)", |s| {
        s.joins_keys() && s.reads_distributed() && !s.is_pruned()
    }),
    ("a limit or offset in a lateral subquery is not supported", |s| {
        s.subqueries().any(|sub| {
            sub.is_lateral
                && s.names_distributed(sub.text)
                && [" limit ", " offset "].iter().any(|w| sub.text.contains(w))
        })
    }),
    ("a correlated subquery must compare the distribution columns of two distributed tables", |s| {
        s.subqueries().any(|sub| s.names_distributed(sub.text) && s.correlation_of(sub.text) == Some(false))
    }),
    ("values must not contain a subquery", |s| {
        s.text.starts_with("insert")
            && s.text.split(" values ").nth(1).is_some_and(|values| {
                let values = values.split(" on conflict").next().unwrap_or_default();
                values.contains("(select ")
            })
    }),
    ("returning must not use parameters after insert … select", |s| {
        s.text.starts_with("insert")
            && s.is_distributed()
            && s.has("select")
            && s.text.rsplit_once(" returning ").is_some_and(|(_, returned)| returned.contains('$'))
    }),
    ("a join of tables with different distribution columns is not supported: use two statements", |s| s.joins_groups()),
    ("a join with prediction_revisions must compare its event_id with a plain value, which prunes partitions", |s| {
        let plain = s
            .text
            .match_indices("l.event_id = ")
            .filter(|(at, equals)| !s.text[at + equals.len()..].starts_with("case "));
        plain.count() < s.text.matches("join prediction_revisions l ").count()
    }),
];

/// A statement in lower case, without comments and repeated white space.
struct Statement<'a> {
    text: String,
    words: BTreeSet<&'static str>,
    /// Names of all tables in the statement.
    tables: BTreeSet<String>,
    /// Tables by alias, including their own names.
    aliases: BTreeMap<String, String>,
    kinds: &'a Kinds,
}

struct Subquery<'a> {
    text: &'a str,
    is_lateral: bool,
}

impl<'a> Statement<'a> {
    fn parse(statement: &str, kinds: &'a Kinds) -> Self {
        let lines = statement.lines().map(|line| line.split("--").next().unwrap_or_default());
        let text = lines.collect::<Vec<_>>().join(" ").to_lowercase();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(").replace(" )", ")");
        let (mut tables, mut aliases) = (BTreeSet::new(), BTreeMap::new());
        let tokens = words(&text);
        for (at, word) in tokens.iter().enumerate() {
            let follows = at.checked_sub(1).map(|before| tokens[before]);
            if kinds.contains_key(*word) && follows.is_some_and(|word| TABLE_FOLLOWS.contains(&word)) {
                tables.insert((*word).to_owned());
                aliases.insert((*word).to_owned(), (*word).to_owned());
                let alias = tokens.get(at + 1).filter(|next| **next != "as").or_else(|| tokens.get(at + 2));
                if let Some(alias) = alias.filter(|alias| !KEYWORDS.contains(alias)) {
                    aliases.insert((*alias).to_owned(), (*word).to_owned());
                }
            }
        }
        let words = INTERESTING.into_iter().filter(|word| tokens.contains(word)).collect();
        Self { text, words, tables, aliases, kinds }
    }

    /// Whether these words follow each other in the statement.
    fn has(&self, phrase: &str) -> bool {
        let (phrase, tokens) = (words(phrase), words(&self.text));
        tokens.windows(phrase.len()).any(|window| window == phrase)
    }

    fn kind(&self, table: &str) -> &str {
        self.kinds.get(table).map_or("", String::as_str)
    }

    fn names_any(&self, kinds: &[&str]) -> bool {
        self.tables.iter().any(|table| kinds.contains(&self.kind(table)))
    }

    fn is_distributed(&self) -> bool {
        self.names_any(&DISTRIBUTED)
    }

    fn is_only_local(&self) -> bool {
        self.tables.iter().all(|table| LOCAL.contains(&self.kind(table)))
    }

    fn names_distributed(&self, text: &str) -> bool {
        words(text).iter().any(|word| self.tables.contains(*word) && DISTRIBUTED.contains(&self.kind(word)))
    }

    /// Whether the statement reads or changes a distributed table, and not only inserts into one.
    fn reads_distributed(&self) -> bool {
        let rest =
            self.text.strip_prefix("insert into ").and_then(|rest| rest.split_once(' ')).map_or("", |(_, rest)| rest);
        if self.text.starts_with("insert into ") { self.names_distributed(rest) } else { self.is_distributed() }
    }

    /// Whether a distribution column is compared with a parameter, so Citus knows the shards.
    fn is_pruned(&self) -> bool {
        // In other tables, a column of this name does not determine the shard.
        let of_tokens = self.tables.contains("device_tokens").then_some("token_hash");
        let compares = |key| self.text.contains(&format!("{key} = $")) || self.text.contains(&format!("{key} = any($"));
        KEYS.into_iter().chain(of_tokens).any(compares)
    }

    /// Whether `unnest` of a parameter gives values of a distribution column, as in `unnest($1) as n (user_id)`, or of an
    /// unnamed one.
    fn joins_keys(&self) -> bool {
        self.text.match_indices("unnest($").any(|(at, _)| {
            let after = self.text[at..].split_once(')').map_or("", |(_, after)| after);
            let after = after.strip_prefix(" with ordinality").unwrap_or(after);
            let names = after
                .strip_prefix(" as ")
                .and_then(|alias| alias.split_once(" ("))
                .filter(|(alias, _)| !alias.contains(' '));
            let names = names.and_then(|(_, names)| names.split_once(')')).map(|(names, _)| names);
            names.is_none_or(|names| names.split(", ").any(|name| KEYS.contains(&name)))
        })
    }

    /// All subqueries in parentheses, at any depth.
    fn subqueries(&self) -> impl Iterator<Item = Subquery<'_>> {
        self.text.match_indices("(select ").map(|(start, _)| {
            let mut depth = 0;
            let end = self.text[start..].char_indices().find(|&(_, c)| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth == 0
            });
            let text = end.map_or(&self.text[start..], |(length, _)| &self.text[start..start + length]);
            Subquery { text, is_lateral: self.text[..start].trim_end().ends_with("lateral") }
        })
    }

    /// `None` if a subquery refers to no outer table; otherwise whether it does so by equal distribution columns of two
    /// distributed tables.
    fn correlation_of(&self, sub: &str) -> Option<bool> {
        let tokens = words(sub);
        let inside: BTreeSet<&str> = tokens
            .iter()
            .enumerate()
            .filter(|(at, _)| {
                let before = |back: usize| at.checked_sub(back).map_or("", |before| tokens[before]);
                // The name of a relation, its alias, or the alias of a subquery or function.
                ["from", "join"].contains(&before(1))
                    || ["from", "join"].contains(&before(2))
                    || ["as", ")"].contains(&before(1))
            })
            .map(|(_, word)| *word)
            .collect();
        let outer: Vec<(&str, &str)> =
            columns(sub).into_iter().filter(|(alias, _)| !inside.contains(alias) && *alias != "excluded").collect();
        if outer.is_empty() {
            return None;
        }
        let by_key = outer.iter().any(|(alias, column)| {
            let table = self.aliases.get(*alias);
            let is_distributed = table.is_some_and(|table| DISTRIBUTED.contains(&self.kind(table)));
            let compared = sub.contains(&format!("{column} = {alias}.{column}"));
            ["user_id", "room_id"].contains(column) && is_distributed && compared
        });
        Some(by_key)
    }

    /// Whether tables with different distribution columns are joined in one query, outside subqueries with a limit,
    /// which Citus runs first.
    fn joins_groups(&self) -> bool {
        let mut flat = self.text.clone();
        for sub in self.subqueries() {
            flat = flat.replace(sub.text, "");
        }
        let tokens = words(&flat);
        let named = |kinds: &[&str]| {
            self.tables.iter().any(|table| {
                kinds.contains(&self.kind(table))
                    && tokens.windows(2).any(|pair| pair[1] == table && ["from", "join"].contains(&pair[0]))
            })
        };
        [named(&["user"]), named(&["room"]), named(&["claim"])].iter().filter(|named| **named).count() > 1
    }
}

/// Distribution columns.
const KEYS: [&str; 5] = ["user_id", "room_id", "username", "phone", "mac"];
/// Words before the name of a table.
const TABLE_FOLLOWS: [&str; 7] = ["from", "join", "into", "update", "using", "only", ","];
/// Words that are no alias.
const KEYWORDS: [&str; 22] = [
    "set",
    "where",
    "on",
    "join",
    "left",
    "right",
    "inner",
    "cross",
    "full",
    "order",
    "group",
    "limit",
    "using",
    "select",
    "values",
    "returning",
    "union",
    "for",
    ")",
    "(",
    "overriding",
    ",",
];
const INTERESTING: [&str; 6] = ["xmin", "xmax", "ctid", "txid_current", "pg_current_xact_id", "interval"];

/// Words, and the punctuation that matters for aliases.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_alphanumeric() || "_(),".contains(c)) {
        rest = &rest[start..];
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len()).max(1);
        words.push(&rest[..end]);
        rest = &rest[end..];
    }
    words
}

/// Pairs of alias and column, as in `u.user_id`.
fn columns(text: &str) -> Vec<(&str, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices('.')
        .filter_map(|(at, _)| {
            let start = text[..at].rfind(|c: char| !is_word(c)).map_or(0, |before| before + 1);
            let end = text[at + 1..].find(|c: char| !is_word(c)).map_or(text.len(), |length| at + 1 + length);
            let (alias, column) = (&text[start..at], &text[at + 1..end]);
            (alias.starts_with(|c: char| c.is_alphabetic()) && !column.is_empty()).then_some((alias, column))
        })
        .collect()
}

#[test]
fn each_rule_catches_a_violating_query() {
    let kinds: Kinds = [
        ("sessions", "user"),
        ("predictions", "user"),
        ("seats", "user"),
        ("room_activity", "room"),
        ("username_claims", "claim"),
        ("leases", "local"),
        ("outbox", "queue"),
        ("rooms", "reference"),
        ("events", "reference"),
    ]
    .into_iter()
    .map(|(table, kind)| (table.to_owned(), kind.to_owned()))
    .collect();
    for (query, expected) in [
        ("MERGE INTO sessions USING x ON true WHEN MATCHED THEN DO NOTHING", Some("merge")),
        ("insert into leases values ($1) on conflict (name) do update set at = now()", Some("excluded")),
        ("insert into leases values ($1, now()) on conflict (name) do update set at = excluded.at", None),
        ("select 1 from sessions for update skip locked", Some("skip locked")),
        ("select 1 from outbox for update skip locked", None),
        ("with gone as (delete from sessions returning *) select * from gone", Some("plain statement")),
        ("with some as (select * from sessions) select * from some", None),
        ("select exists (select from sessions)", Some("select 1")),
        ("select xmin from sessions where user_id = $1", Some("row ids")),
        ("select id from sessions where check_at < $1 for update nowait", Some("one shard")),
        ("select id from sessions where user_id = any($1) order by user_id for update", None),
        ("select id from rooms where id = $1 for update", None),
        ("select id from sessions where expires_at > statement_timestamp()", Some("pass the time")),
        ("update rooms set opened_at = opened_at - interval '1 minute'", Some("intervals")),
        ("update rooms set opened_at = now()", Some("intervals")),
        ("update outbox set created_at = now()", None),
        (
            "with a as not materialized (select * from leases) select (select count(*) from a), b.* from a b, sessions s",
            Some("materialized"),
        ),
        (
            "update sessions s set id = n.id from unnest($1::bigint[], $2::bigint[]) as n (user_id, id) where s.user_id = n.user_id",
            Some("any($n)"),
        ),
        (
            "update sessions s set id = n.id from unnest($1::bigint[], $2::bigint[]) as n (user_id, id)
             where s.user_id = n.user_id and ($3::bigint[] is null or s.user_id = any($3))",
            None,
        ),
        ("insert into sessions (user_id) select n from unnest($1::bigint[]) as n", None),
        ("select 1 from sessions s join unnest($1::bigint[]) as n on n = s.user_id", Some("any($n)")),
        ("select s.id from sessions s cross join unnest($1::text[]) as t (scope) where s.scope = t.scope", None),
        (
            "select 1 from predictions p cross join lateral
             (select * from sessions s where s.user_id = p.user_id offset 0 ) l",
            Some("lateral"),
        ),
        ("select r.id, (select count(*) from seats s where s.room_id = r.id) from rooms r", Some("correlated")),
        (
            "insert into seats (user_id) select w.user_id from unnest($1::bigint[]) as w (user_id)
             where not exists (select 1 from predictions p where p.user_id = w.user_id and p.user_id = any($1))",
            Some("correlated"),
        ),
        (
            "select s.id from sessions s where not exists (select 1 from predictions p where p.user_id = s.user_id)",
            None,
        ),
        ("select id from rooms r where id not in (select s.room_id from seats s where s.user_id = $1)", None),
        ("insert into outbox (id, key) values ($1, (select max(id) from sessions where user_id = $1))", Some("values")),
        (
            "insert into sessions (user_id, id) select user_id, 1 from predictions where event_id = $1
             returning array_position($2, id)",
            Some("returning"),
        ),
        (
            "select u.id from username_claims c join sessions u on u.user_id = c.user_id where c.username = $1",
            Some("different distribution"),
        ),
        (
            "select 1 from predictions p left join prediction_revisions l
               on l.user_id = p.user_id and l.event_id = case when p.updated_at >= $2 then p.event_id end",
            Some("prunes partitions"),
        ),
        (
            "select 1 from predictions p left join prediction_revisions l
               on l.user_id = p.user_id and l.event_id = $1 and l.event_id = case when p.updated_at >= $2 then p.event_id end",
            None,
        ),
        (
            "select u.id from (select user_id from username_claims where username >= $1 limit 5) c
             join sessions u on u.user_id = c.user_id",
            None,
        ),
        ("select a.room_id from rooms r join room_activity a on a.room_id = r.id where r.event_id = $1", None),
    ] {
        let found = breaks(query, &kinds);
        assert_eq!(found.is_some(), expected.is_some(), "{query}: {found:?}");
        if let (Some(found), Some(expected)) = (found, expected) {
            assert!(found.contains(expected), "{query}: {found}");
        }
    }
}
