//! Arguments for a checked query, derived from its text: the column that a parameter is compared with or inserted into
//! decides the value. The rows of `seed.sql` have values of the same form.

/// Number of different sets of arguments: three that find rows, one whose rooms and matches belong to its users, one with
/// new values, and one without optional filters.
pub(super) const SETS: usize = 6;

/// Arguments of queries whose text says too little about them, by a part of the text.
const SPECIAL: [(&str, &[&str]); 2] = [
    ("-- Inserts missing score rows", &["4", "1", "70", "1", "array['all', 'tournament:9']"]),
    ("-- Lists stored scores", &["1", "70"]),
];

const RELATED: usize = 3;
const NEW: usize = 4;
const UNFILTERED: usize = 5;

/// Number of elements of an array.
pub(super) const ELEMENTS: usize = 12;

/// Users of an array in the given set. They are on several shards.
pub(super) fn spread(set: usize) -> Vec<usize> {
    (0..ELEMENTS).map(|element| 4 + 5 * element + 4 * (set % 3)).collect()
}

/// Returns an SQL literal for each parameter. Numbers of users, and of everything that belongs to them, are from `ids`.
pub(super) fn arguments(query: &str, types: &[String], set: usize, ids: &[usize]) -> Vec<String> {
    let text = query.lines().map(|line| line.split("--").next().unwrap_or_default()).collect::<Vec<_>>().join(" ");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((_, arguments)) = SPECIAL.iter().find(|(start, _)| query.contains(start)) {
        return arguments.iter().copied().map(str::to_owned).collect();
    }
    let columns = columns(&text, types.len());
    let literal = |(at, (kind, column)): (usize, (&String, String))| {
        let is_optional = text.contains(&format!("${}::{} is null", at + 1, sql_type(kind)));
        if set == UNFILTERED && is_optional { "null".to_owned() } else { literal(kind, &column, at, set, ids) }
    };
    types.iter().zip(columns).enumerate().map(literal).collect()
}

/// Column that each parameter belongs to; empty if unknown.
fn columns(text: &str, count: usize) -> Vec<String> {
    let mut columns = vec![String::new(); count];
    let mut assign = |number: &str, column: &str| {
        if let Ok(number) = number.parse::<usize>()
            && (1..=count).contains(&number)
            && columns[number - 1].is_empty()
        {
            column.trim_matches('"').clone_into(&mut columns[number - 1]);
        }
    };
    // insert into t (a, b) values ($1, $2)
    if let Some((head, values)) = text.split_once(") values (") {
        let names = head.rsplit_once('(').map_or("", |(_, names)| names);
        let names: Vec<&str> = names.split(',').map(str::trim).collect();
        for (name, value) in names.iter().zip(values.split(',')) {
            assign(number(value), name);
        }
    }
    // unnest($1::bigint[], $2::text[]) as n (a, b)
    for (at, _) in text.match_indices("unnest(") {
        let rest = &text[at + "unnest(".len()..];
        let Some((given, after)) = rest.split_once(')') else { continue };
        let names = after.split_once('(').and_then(|(_, names)| names.split_once(')')).map_or("", |(names, _)| names);
        for (value, name) in given.split(',').zip(names.split(',')) {
            assign(number(value), name.trim());
        }
    }
    // a = $1, a >= $1, a = any($1), a in ($1, …)
    for (at, _) in text.match_indices('$') {
        let before = text[..at].trim_end_matches(['(', ' ']);
        let before = before
            .strip_suffix("any")
            .or_else(|| before.strip_suffix("all"))
            .unwrap_or(before)
            .trim_end_matches(['(', ' ']);
        let is_comparison =
            before.ends_with(['=', '<', '>']) || before.ends_with(" in") || before.ends_with("distinct from");
        if is_comparison {
            let before = before.trim_end_matches(['=', '<', '>', ' ']);
            let before =
                before.strip_suffix(" in").or_else(|| before.strip_suffix(" is distinct from")).unwrap_or(before);
            let column = before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
            let column = match (column, text[..at].trim_end()) {
                ("user_id", compared) if compared.ends_with(['>']) || compared.ends_with(">=") => "from_user",
                ("user_id", compared) if compared.ends_with(['<']) || compared.ends_with("<=") => "until_user",
                _ => column,
            };
            assign(number(&text[at..]), column);
        }
    }
    for (word, number) in text.split(' ').zip(text.split(' ').skip(1)) {
        if ["limit", "offset"].contains(&word) {
            assign(self::number(number), word);
        }
    }
    columns
}

/// Number of the parameter at the start of the text, as in `$3::bigint`.
fn number(text: &str) -> &str {
    let text = text.trim().strip_prefix('$').unwrap_or_default();
    &text[..text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())]
}

fn literal(kind: &str, column: &str, at: usize, set: usize, ids: &[usize]) -> String {
    match kind.strip_suffix("Array") {
        Some(element) => {
            // Different users in each set, in the same order for all arrays, so their elements belong together.
            let elements: Vec<String> =
                ids.iter().enumerate().map(|(place, &id)| single(element, column, at, set, (place + 1, id))).collect();
            format!("array[{}]::{}[]", elements.join(", "), sql_type(element))
        }
        None => single(kind, column, at, set, (0, ids[0])),
    }
}

fn sql_type(kind: &str) -> &str {
    match kind {
        "Int8" => "bigint",
        "Int4" => "integer",
        "Int2" => "smallint",
        "Bool" => "boolean",
        "Float8" => "float8",
        other => match other {
            "Text" => "text",
            "Bytea" => "bytea",
            "Timestamptz" => "timestamptz",
            "Uuid" => "uuid",
            "Jsonb" => "jsonb",
            _ => "date",
        },
    }
}

/// `element` is 0 for a single value, and counts the elements of an array from 1.
fn single(kind: &str, column: &str, at: usize, set: usize, (element, id): (usize, usize)) -> String {
    // Rooms, matches and teams have numbers up to 20. The row of a user has the one above its own number modulo 20.
    let small = if set == RELATED { id % 20 + 1 } else { (id - 1) % 20 + 1 };
    let (new, set) = (if set == NEW { "new" } else { "" }, set % 3);
    match kind {
        "Int8" => match column {
            "limit" => (7 + set * 30).to_string(),
            "offset" => set.to_string(),
            "event_id" | "room_id" | "team_id" | "home_team_id" | "away_team_id" => small.to_string(),
            "revision" | "shown_revision" | "paid_revision" | "number" if new.is_empty() => "1".to_owned(),
            "revision" | "number" => "9".to_owned(),
            "blocked_id" => (id % 80 + 2).to_string(),
            // Later parameters of a range are greater.
            "user_id" => (id + at * 20 * usize::from(element == 0 && at > 1)).to_string(),
            "reverses" => "null".to_owned(),
            "from_user" => "1".to_owned(),
            "until_user" | "last" => "70".to_owned(),
            _ if element == 0 => small.to_string(),
            _ => id.to_string(),
        },
        "Int4" | "Int2" => match column {
            "lane" | "stand" | "key_version" | "level" => "1".to_owned(),
            "status" => "201".to_owned(),
            "home_goals" | "away_goals" => "null".to_owned(),
            _ => (1 + (set + element) % 3).to_string(),
        },
        "Bool" => ["true", "false"][(set + element) % 2].to_owned(),
        "Float8" => "30".to_owned(),
        "Timestamptz" => {
            let moment = ["2026-06-01 00:00+00", "2026-05-24 00:00+00", "2026-06-04 00:00+00"][set];
            format!("timestamptz '{moment}' + interval '{} minutes'", at * 10)
        }
        "Date" => "date '2026-06-02'".to_owned(),
        "Interval" => "interval '1 minute'".to_owned(),
        "Bytea" => match column {
            "auth" => "decode(repeat('05', 16), 'hex')".to_owned(),
            "p256dh" => "decode(repeat('04', 65), 'hex')".to_owned(),
            "nonce" => "decode(repeat('06', 16), 'hex')".to_owned(),
            _ => format!("sha256('{new}{id}'::bytea)"),
        },
        "Uuid" => match column {
            "transaction_id" => format!("md5('{new}{id}/2')::uuid"),
            "holder" => "md5('1')::uuid".to_owned(),
            _ => format!("md5('{id}')::uuid"),
        },
        "Jsonb" => "'{\"members\": 2}'::jsonb".to_owned(),
        _ => format!("'{}'", word(column, set, id, element, new)),
    }
}

fn word(column: &str, set: usize, id: usize, element: usize, new: &str) -> String {
    match column {
        "username" | "name" => format!("{new}fan{id}"),
        "phone" | "from_phone" => format!("+1415555{id:04}"),
        "subject" => format!("login:+1415555{id:04}"),
        "scope" => ["all", "month:2026-06", "tournament:1", "week:2026-23"][(set + element) % 4].to_owned(),
        "membership" => ["join", "invite", "leave"][set].to_owned(),
        "prediction" => ["home", "draw", "away"][(set + element) % 3].to_owned(),
        "status" => ["scheduled", "live", "postponed"][set].to_owned(),
        "slug" => format!("{new}team{}", id % 20 + 1),
        "key" => format!("{new}m{}", id % 20 + 1),
        "sender" => format!("@fan{id}:example.org"),
        "matrix_room" | "matrix_id" => format!("!room{}:example.org", id % 20 + 1),
        "matrix_user_id" => "@guest1:elsewhere.example".to_owned(),
        "action" => "ban".to_owned(),
        "kind" => "deduction".to_owned(),
        "reason" => "quiz".to_owned(),
        "reference" => format!("{new}reference{id}"),
        "account" => "spent:quiz".to_owned(),
        "provider" => "twilio".to_owned(),
        "outcome" => "applied".to_owned(),
        "target" => format!("report:{id}"),
        "operator" => "ada".to_owned(),
        "prefix" | "network" => "203.0.113.7".to_owned(),
        "event_id" => format!("${new}event{id}"),
        _ => format!("text{id}"),
    }
}
