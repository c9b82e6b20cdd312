//! Adapter for openfootball (`football.json`, `worldcup.json`): files with the matches of a season, maintained by
//! volunteers.
//!
//! The files have no ids. A match is identified by its teams and its group, or its round if it has no group. A team is
//! identified by its name.

use std::collections::{BTreeMap, HashMap};

use scoring::Side;
use serde_json::Value;
use time::{
    Date, OffsetDateTime, Time, UtcOffset,
    format_description::FormatItem,
    macros::{format_description, time},
};

use super::{
    reading::{self, Field, ProviderMatch, ProviderTeam, Reading, TournamentPlace},
    stages,
};
use crate::catalogue::{
    feeds::zone::{self, Zone},
    fixtures::document::{Fault, TournamentEntry},
    matches::rules::Status,
};

/// Start of a match without a time, in the document's zone. Most matches start later, so predictions close before the
/// kick-off.
const NOON: Time = time!(12:00);
const DAY: &[FormatItem<'_>] = format_description!("[year]-[month]-[day]");

/// Parses a document. Times without a zone are in `zone`.
pub(super) fn read(body: &[u8], zone: &Zone) -> Result<Reading, Vec<Fault>> {
    let value = reading::json(body)?;
    let root = Field::root(&value);
    let mut faults = Vec::new();
    if !value.is_object() || value.get("matches").is_none() {
        root.get("matches").fault(other_kind(&value), &mut faults);
        return Err(faults);
    }
    let name = root.get("name").required_text(&mut faults);
    let mut notes = Vec::new();
    let mut entries = Vec::new();
    let mut unknown = 0_usize;
    let fields = root.get("matches").list(&mut faults);
    let rounds = Rounds::of(fields.iter().filter_map(|field| field.get("round").value.as_str()));
    for field in fields {
        match entry(&field, zone, &mut notes, &mut faults) {
            Some(entry) => entries.push(entry),
            None => unknown += 1,
        }
    }
    let teams = teams(&entries, &mut notes, &mut faults);
    let (Some(name), true) = (name, faults.is_empty()) else { return Err(faults) };
    if unknown > 0 {
        notes.push(format!("matches left out until their teams or days are known: {unknown}"));
    }
    let keys = keys(&entries);
    let places: HashMap<&str, usize> = teams.iter().enumerate().map(|(at, team)| (team.slug.as_str(), at)).collect();
    let place = |name: &str| places.get(reading::team_slug(name).as_str()).copied().unwrap_or_default();
    let matches = entries
        .iter()
        .zip(keys)
        .map(|(entry, key)| ProviderMatch {
            key,
            home: place(entry.home),
            away: place(entry.away),
            start_time: entry.start_time,
            venue: entry.venue.clone(),
            status: Some(entry.status),
            scores: entry.scores,
            place: TournamentPlace {
                round: rounds.number(entry.round),
                stage: entry.group.and_then(stages::stage).or_else(|| stages::stage(entry.round)),
                winner: entry.winner,
            },
        })
        .collect();
    let tournament = TournamentEntry { slug: reading::slug(name), name: name.to_owned(), ..TournamentEntry::default() };
    Ok(Reading { tournament, teams, matches, notes })
}

/// A match before its teams and key are resolved.
struct Entry<'a> {
    round: &'a str,
    group: Option<&'a str>,
    date: Date,
    home: &'a str,
    away: &'a str,
    start_time: OffsetDateTime,
    venue: Option<String>,
    status: Status,
    scores: Option<(i64, i64)>,
    /// Winner after extra time and penalties.
    winner: Option<Side>,
}

/// Numbers of the rounds in a document.
struct Rounds {
    /// Greatest number in the name of a round.
    last: i16,
    /// Knockout stages of the document, in their order.
    stages: Vec<(i32, String)>,
}

impl Rounds {
    /// Reads the names of all rounds, also of matches whose teams are not known yet, so that numbers stay the same when
    /// they are.
    fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let (mut last, mut known) = (0, Vec::new());
        for name in names {
            match stages::stage(name) {
                None => last = last.max(matchday(name).unwrap_or_default()),
                Some(stage) => known.extend(stages::order(&stage).map(|order| (order, stage))),
            }
        }
        known.sort();
        known.dedup();
        Self { last, stages: known }
    }

    /// Number of a round: the one in its name, or the position of its knockout stage after those with a number.
    fn number(&self, name: &str) -> Option<i16> {
        let Some(stage) = stages::stage(name) else { return matchday(name) };
        let position = self.stages.iter().position(|(_, known)| *known == stage)?;
        Some(self.last + i16::try_from(position + 1).ok()?).filter(|number| *number <= 999)
    }
}

/// Number in the name of a round, as in `Matchday 12`.
fn matchday(name: &str) -> Option<i16> {
    let number = numbers(name).first().copied()?;
    i16::try_from(number).ok().filter(|number| (1..=999).contains(number))
}

/// Parses a match; `None` if it lacks teams or a day, or has a fault.
fn entry<'a>(field: &Field<'a>, zone: &Zone, notes: &mut Vec<String>, faults: &mut Vec<Fault>) -> Option<Entry<'a>> {
    if !field.value.is_object() {
        field.fault("must be an object", faults);
        return None;
    }
    let (home, away) = (team(&field.get("team1"), faults), team(&field.get("team2"), faults));
    let date = date(&field.get("date"), faults);
    let time = time_of_day(&field.get("time"), faults);
    let score = score(&field.get("score"), faults);
    let (round, group) = (field.get("round").text(faults), field.get("group").text(faults));
    let ground = field.get("ground");
    let venue = if ground.value.is_object() { ground.get("name").text(faults) } else { ground.text(faults) };
    let status = field.get("status").text(faults);
    let (home, away, date, (time, offset), score) = (home?, away?, date?, time?, score?);
    let start_time = match offset {
        Some(offset) => Some(date.with_time(time).assume_offset(offset)),
        None => zone.moment(date, time),
    };
    let Some(start_time) = start_time else {
        field.get("date").fault("is not a valid day in this time zone", faults);
        return None;
    };
    let played = if score.over { Status::Finished } else { Status::Scheduled };
    let status = match status.map(|status| (status, status_of(status))) {
        None => played,
        Some((_, Some(status))) => status,
        Some((unknown, None)) => {
            let unknown = reading::quoted(unknown);
            notes.push(format!("{}.status: unknown status {unknown}; the match is treated as {played}", field.place));
            played
        }
    };
    Some(Entry {
        round: round.unwrap_or("match"),
        group,
        date,
        home,
        away,
        start_time,
        venue: venue.and_then(reading::venue),
        status,
        scores: score.after_90,
        winner: score.winner,
    })
}

fn other_kind(value: &Value) -> &'static str {
    if value.get("rounds").is_some() {
        "is missing: the older format with matches inside `rounds` is not supported"
    } else {
        "is missing: only match files are supported, not files of teams, clubs, groups, stadiums or squads"
    }
}

/// Returns the name of a team; `None` for a placeholder.
fn team<'a>(field: &Field<'a>, faults: &mut Vec<Fault>) -> Option<&'a str> {
    let name = if field.value.is_object() { field.get("name").text(faults) } else { field.text(faults) };
    name.filter(|name| !is_placeholder(name))
}

/// Returns true if the name is a placeholder for a team that is not known yet: `2A` is the runner-up of group A,
/// `3A/B/C` one of several third-placed teams, `W74` the winner of match 74.
fn is_placeholder(name: &str) -> bool {
    let group_place = || {
        let letters = name.trim_start_matches(|c: char| c.is_ascii_digit());
        let one = |part: &str| part.len() == 1 && part.bytes().all(|byte| byte.is_ascii_uppercase());
        (1..=2).contains(&(name.len() - letters.len())) && letters.split('/').all(one)
    };
    let of_match = || {
        let number = name.strip_prefix(['W', 'L']).unwrap_or_default();
        (1..=3).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let lower = name.to_lowercase();
    let begins = |words: &[&str]| words.iter().any(|word| lower.starts_with(word));
    matches!(lower.as_str(), "?" | "tbd" | "tba" | "n.n.")
        || begins(&["winner ", "loser ", "runner-up ", "runners-up "])
        || group_place()
        || of_match()
}

/// Reads the day. An absent one is not a fault.
fn date(field: &Field<'_>, faults: &mut Vec<Fault>) -> Option<Date> {
    let text = field.text(faults)?;
    let date = Date::parse(text, DAY).ok().filter(|date| (1900..=2999).contains(&date.year()));
    if date.is_none() {
        field.fault(format!("must be a day like 2026-06-11, not {}", reading::quoted(text)), faults);
    }
    date
}

/// Reads the time of day, with its offset if it has one.
fn time_of_day(field: &Field<'_>, faults: &mut Vec<Fault>) -> Option<(Time, Option<UtcOffset>)> {
    let before = faults.len();
    let Some(text) = field.text(faults) else {
        return (faults.len() == before).then_some((NOON, None));
    };
    let parsed = || {
        let mut words = text.split_whitespace();
        let (hour, minute) = words.next()?.split_once(':')?;
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        let time = Time::from_hms(number(hour)?, number(minute)?, 0).ok()?;
        let offset = match words.next() {
            Some(zone) => Some(named_offset(zone)?),
            None => None,
        };
        words.next().is_none().then_some((time, offset))
    };
    let time = parsed();
    if time.is_none() {
        field.fault(format!("must be a time like 20:30 or 13:00 UTC-6, not {}", reading::quoted(text)), faults);
    }
    time
}

/// Parses offsets, and the few zone abbreviations that these documents use.
fn named_offset(name: &str) -> Option<UtcOffset> {
    let hours = match name {
        "WET" => 0,
        "BST" | "WEST" | "CET" => 1,
        "CEST" | "EET" => 2,
        "EEST" | "MSK" => 3,
        other => return zone::offset(other),
    };
    UtcOffset::from_hms(hours, 0, 0).ok()
}

struct Score {
    /// Whether any final score is recorded.
    over: bool,
    after_90: Option<(i64, i64)>,
    /// Winner after extra time and penalties.
    winner: Option<Side>,
}

fn winner(score: Option<(i64, i64)>) -> Option<Side> {
    let (home, away) = score?;
    match home.cmp(&away) {
        std::cmp::Ordering::Greater => Some(Side::Home),
        std::cmp::Ordering::Less => Some(Side::Away),
        std::cmp::Ordering::Equal => None,
    }
}

/// Reads the score. `ft` is the score after 90 minutes, and so is a plain pair.
fn score(field: &Field<'_>, faults: &mut Vec<Fault>) -> Option<Score> {
    match field.value {
        Value::Null => Some(Score { over: false, after_90: None, winner: None }),
        Value::Array(_) => pair(field, faults).map(|after_90| {
            let (over, winner) = (after_90.is_some(), winner(after_90));
            Score { over, after_90, winner }
        }),
        Value::Object(_) => {
            let [after_90, extra, penalties] = ["ft", "et", "p"].map(|name| pair(&field.get(name), faults));
            let (after_90, extra, penalties) = (after_90?, extra?, penalties?);
            // A score after extra time or penalties alone: the match was played, but predictions cannot be scored.
            let over = after_90.or(extra).or(penalties).is_some();
            Some(Score { over, after_90, winner: winner(penalties.or(extra).or(after_90)) })
        }
        _ => {
            field.fault("must have the form {\"ft\": [2, 1]}", faults);
            None
        }
    }
}

#[expect(clippy::option_option, reason = "the outer level is a fault, the inner an unknown score")]
fn pair(field: &Field<'_>, faults: &mut Vec<Fault>) -> Option<Option<(i64, i64)>> {
    match field.value {
        Value::Null => return Some(None),
        Value::Array(goals) => {
            if let [home, away] = goals.as_slice()
                && let (Some(home), Some(away)) = (home.as_i64(), away.as_i64())
            {
                return Some(Some((home, away)));
            }
            if goals.is_empty() || goals.iter().all(Value::is_null) {
                return Some(None);
            }
        }
        _ => {}
    }
    field.fault("must be two numbers like [2, 1]", faults);
    None
}

fn status_of(text: &str) -> Option<Status> {
    Some(match text.to_lowercase().as_str() {
        "scheduled" => Status::Scheduled,
        "awarded" => Status::Awarded,
        "postponed" => Status::Postponed,
        "cancelled" | "canceled" => Status::Cancelled,
        "abandoned" => Status::Abandoned,
        "suspended" => Status::Suspended,
        _ => return None,
    })
}

/// Returns the teams. Names with the same slug are one team, under the most frequent name, and a note reports it. It is
/// a fault if two of these names play on the same day: they are different teams that cannot be distinguished.
fn teams(entries: &[Entry<'_>], notes: &mut Vec<String>, faults: &mut Vec<Fault>) -> Vec<ProviderTeam> {
    let mut slugs: Vec<String> = Vec::new();
    let mut names: HashMap<String, BTreeMap<&str, Vec<Date>>> = HashMap::new();
    for entry in entries {
        for name in [entry.home, entry.away] {
            let slug = reading::team_slug(name);
            let known = names.entry(slug.clone()).or_insert_with(|| {
                slugs.push(slug);
                BTreeMap::new()
            });
            known.entry(name).or_default().push(entry.date);
        }
    }
    let mut teams = Vec::with_capacity(slugs.len());
    for slug in slugs {
        let mut known: Vec<(&str, Vec<Date>)> = names.remove(&slug).unwrap_or_default().into_iter().collect();
        known.sort_by_key(|(name, days)| std::cmp::Reverse((days.len(), name.len())));
        for (at, (name, days)) in known.iter().enumerate() {
            let shared = |other: &[Date]| days.iter().find(|day| other.contains(day)).copied();
            if let Some((other, day)) = known[..at].iter().find_map(|(other, on)| Some((*other, shared(on)?))) {
                let problem = format!(
                    "{} and {} both play on {day}, so they are two teams, but both have the slug `{slug}`",
                    reading::quoted(other),
                    reading::quoted(name),
                );
                faults.push(Fault { place: "matches".to_owned(), problem });
            }
        }
        let Some((&(name, _), others)) = known.split_first() else { continue };
        if !others.is_empty() {
            let others: Vec<String> = others.iter().map(|(name, _)| reading::quoted(name)).collect();
            notes.push(format!("{} is treated as the same team as {}", others.join(", "), reading::quoted(name)));
        }
        teams.push(ProviderTeam { id: None, slug, name: name.to_owned(), logo: None });
    }
    teams
}

/// Returns the keys of the matches. A moved kick-off must not change a key. The round is used only if the match has no
/// group: for the group matches of a world cup, the round is a count of days.
fn keys(entries: &[Entry<'_>]) -> Vec<String> {
    let mut alike: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        let among = reading::slug(entry.group.unwrap_or(entry.round));
        let base = reading::key(&[&among, &reading::team_slug(entry.home), &reading::team_slug(entry.away)]);
        alike.entry(base).or_default().push(at);
    }
    let mut keys = vec![String::new(); entries.len()];
    for (base, mut places) in alike {
        // Sort by round instead of day: repeated pairings keep their numbers when one of them moves.
        places.sort_by_key(|&at| (numbers(entries[at].round), entries[at].round, at));
        for (number, at) in places.into_iter().enumerate() {
            keys[at] = if number == 0 { base.clone() } else { reading::key(&[&base, &(number + 1).to_string()]) };
        }
    }
    keys
}

/// Returns the numbers in a round's name. They sort `Matchday 10` after `Matchday 9`.
fn numbers(round: &str) -> Vec<u64> {
    round.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    fn document(matches: &Value) -> Value {
        json!({"name": "Harbour League 2026/27", "matches": matches})
    }

    fn understood(matches: &Value) -> Reading {
        read(document(matches).to_string().as_bytes(), &Zone::utc()).expect("no faults")
    }

    fn fault_lines(value: &Value) -> Vec<String> {
        let faults = read(value.to_string().as_bytes(), &Zone::utc()).expect_err("faults");
        faults.iter().map(ToString::to_string).collect()
    }

    fn a_match(home: &str, away: &str) -> Value {
        json!({"round": "Matchday 1", "date": "2026-08-15", "time": "15:00", "team1": home, "team2": away})
    }

    #[test]
    fn match_is_scheduled_until_it_has_score() {
        let mut played = a_match("Rovers FC", "City");
        played["score"] = json!({"ht": [1, 0], "ft": [2, 1]});
        played["ground"] = json!(" Rovers Park\n");
        let reading = understood(&json!([played, a_match("City", "Rovers FC")]));
        assert_eq!(reading.tournament.slug, "harbour_league_2026_27");
        assert_eq!(reading.tournament.name, "Harbour League 2026/27");
        let slugs: Vec<&str> = reading.teams.iter().map(|team| team.slug.as_str()).collect();
        assert_eq!(slugs, ["rovers", "city"]);
        assert_eq!(
            reading.matches,
            [
                ProviderMatch {
                    key: "matchday_1-rovers-city".to_owned(),
                    home: 0,
                    away: 1,
                    start_time: datetime!(2026-08-15 15:00 UTC),
                    venue: Some("Rovers Park".to_owned()),
                    status: Some(Status::Finished),
                    scores: Some((2, 1)),
                    place: TournamentPlace { round: Some(1), stage: None, winner: Some(Side::Home) },
                },
                ProviderMatch {
                    key: "matchday_1-city-rovers".to_owned(),
                    home: 1,
                    away: 0,
                    start_time: datetime!(2026-08-15 15:00 UTC),
                    venue: None,
                    status: Some(Status::Scheduled),
                    scores: None,
                    place: TournamentPlace { round: Some(1), ..TournamentPlace::default() },
                },
            ]
        );
        assert_eq!(reading.notes, Vec::<String>::new());
    }

    #[test]
    fn knockout_stages_follow_the_numbered_rounds() {
        let rounds = ["Matchday 1", "Matchday 12", "Quarter-finals", "Final", "Semi-finals", "Final"];
        let rounds = Rounds::of(rounds.into_iter());
        for (name, number) in [
            ("Matchday 1", Some(1)),
            ("Matchday 12", Some(12)),
            ("Quarter-finals", Some(13)),
            ("Semi-finals", Some(14)),
            ("Final", Some(15)),
            ("Round of 16", None),
            ("match", None),
        ] {
            assert_eq!(rounds.number(name), number, "{name}");
        }
    }

    #[test]
    fn winner_is_known_after_extra_time_and_penalties() {
        for (score, expected) in [
            (json!([2, 0]), Some(Side::Home)),
            (json!({"ft": [1, 1]}), None),
            (json!({"ft": [1, 1], "et": [2, 1]}), Some(Side::Home)),
            (json!({"p": [3, 4], "et": [1, 1], "ft": [1, 1]}), Some(Side::Away)),
            (json!({}), None),
        ] {
            let mut faults = Vec::new();
            let read = super::score(&Field::root(&score), &mut faults).expect("a score");
            assert_eq!(read.winner, expected, "{score}");
        }
    }

    #[test]
    fn score_is_taken_after_90_minutes() {
        for (score, status, expected) in [
            (json!({}), Status::Scheduled, None),
            (json!(null), Status::Scheduled, None),
            (json!([2, 0]), Status::Finished, Some((2, 0))),
            (json!({"ft": [1, 1], "et": [2, 1]}), Status::Finished, Some((1, 1))),
            (json!({"p": [3, 4], "et": [1, 1], "ft": [1, 1], "ht": [0, 1]}), Status::Finished, Some((1, 1))),
            // The match was played, but the relevant score is unknown.
            (json!({"p": [2, 4], "et": [1, 1]}), Status::Finished, None),
            (json!({"ft": [null, null]}), Status::Scheduled, None),
            (json!({"ft": []}), Status::Scheduled, None),
        ] {
            let mut entry = a_match("Rovers", "City");
            entry["score"] = score.clone();
            let reading = understood(&json!([entry]));
            assert_eq!((reading.matches[0].status, reading.matches[0].scores), (Some(status), expected), "{score}");
        }
    }

    #[test]
    fn every_explicit_status_is_mapped() {
        for (status, ft, expected) in [
            ("awarded", json!([0, 2]), Status::Awarded),
            ("postponed", json!(null), Status::Postponed),
            ("cancelled", json!(null), Status::Cancelled),
            ("Abandoned", json!(null), Status::Abandoned),
            ("suspended", json!(null), Status::Suspended),
            ("walked off", json!([1, 1]), Status::Finished),
        ] {
            let mut entry = a_match("Rovers", "City");
            (entry["status"], entry["score"]) = (json!(status), json!({"ft": ft}));
            let reading = understood(&json!([entry]));
            assert_eq!(reading.matches[0].status, Some(expected), "{status}");
            assert_eq!(reading.notes.len(), usize::from(status == "walked off"), "{status}");
        }
    }

    #[test]
    fn times_use_configured_or_named_zone() {
        let london = Zone::parse("Europe/London").expect("a zone");
        for (time, expected) in [
            (json!("13:00 UTC-6"), datetime!(2026-08-15 19:00 UTC)),
            (json!("19:45 UTC±0"), datetime!(2026-08-15 19:45 UTC)),
            (json!("20:45 CEST"), datetime!(2026-08-15 18:45 UTC)),
            (json!("20:30"), datetime!(2026-08-15 19:30 UTC)),
            (json!(null), datetime!(2026-08-15 11:00 UTC)),
        ] {
            let mut entry = a_match("Rovers", "City");
            entry["time"] = time.clone();
            let reading = read(document(&json!([entry])).to_string().as_bytes(), &london).expect("no faults");
            assert_eq!(reading.matches[0].start_time, expected, "{time}");
        }
    }

    #[test]
    fn matches_with_placeholder_teams_are_left_out() {
        let unknown = ["1A", "2L", "3A/B/C/D/F", "W74", "L101", "TBD", "?", "Winner Match 3", ""];
        let mut entries: Vec<Value> = unknown.iter().map(|name| a_match("Rovers", name)).collect();
        let mut without = a_match("Rovers", "City");
        without["team1"] = json!(null);
        entries.push(without);
        let mut undated = a_match("Rovers", "City");
        undated["date"] = json!(null);
        entries.push(undated);
        entries.push(a_match("B36", "1860 München"));
        let reading = understood(&json!(entries));
        let keys: Vec<&str> = reading.matches.iter().map(|seen| seen.key.as_str()).collect();
        assert_eq!(keys, ["matchday_1-b36-1860_munchen"]);
        assert_eq!(reading.teams.len(), 2);
        assert_eq!(reading.notes, ["matches left out until their teams or days are known: 11"]);
    }

    #[test]
    fn team_may_be_an_object() {
        let mut entry = a_match("", "City");
        entry["team1"] = json!({"name": "Rovers", "code": "ROV"});
        assert_eq!(understood(&json!([entry])).teams[0].name, "Rovers");
    }

    #[test]
    fn team_with_two_names_is_merged_and_reported() {
        let mut later = a_match("City", "Rovers");
        later["date"] = json!("2026-08-22");
        let mut last = a_match("Albion", "Rovers FC");
        last["date"] = json!("2026-08-29");
        let reading = understood(&json!([a_match("Rovers FC", "City"), later, last]));
        let names: Vec<&str> = reading.teams.iter().map(|team| team.name.as_str()).collect();
        assert_eq!(names, ["Rovers FC", "City", "Albion"]);
        assert_eq!(reading.notes, ["`Rovers` is treated as the same team as `Rovers FC`"]);
    }

    #[test]
    fn two_teams_with_one_slug_are_refused() {
        let same_day = document(&json!([a_match("América", "City"), a_match("Rovers", "America")]));
        assert_eq!(
            fault_lines(&same_day),
            ["matches: `América` and `America` both play on 2026-08-15, so they are two teams, \
                 but both have the slug `america`"]
        );
        assert_eq!(fault_lines(&document(&json!([a_match("Rovers", "FC Rovers")]))).len(), 1);
    }

    /// Group matches keep their keys although their round is a count of days. A repeated pairing keeps its numbers
    /// although the second match moved before the first.
    #[test]
    fn moved_kick_off_keeps_match_key() {
        let group = |round: &str, date: &str| {
            let mut entry = a_match("Rovers", "City");
            (entry["round"], entry["date"], entry["group"]) = (json!(round), json!(date), json!("Group A"));
            entry
        };
        let keys = |matches: &Value| {
            let mut keys: Vec<(String, OffsetDateTime)> =
                understood(matches).matches.into_iter().map(|seen| (seen.key, seen.start_time)).collect();
            keys.sort();
            keys
        };
        let before = keys(&json!([group("Matchday 3", "2026-06-13")]));
        let after = keys(&json!([group("Matchday 4", "2026-06-14")]));
        assert_eq!((before[0].0.as_str(), after[0].0.as_str()), ("group_a-rovers-city", "group_a-rovers-city"));

        let twice = keys(&json!([group("Matchday 9", "2026-08-01"), group("Matchday 10", "2026-09-01")]));
        let moved = keys(&json!([group("Matchday 10", "2026-07-01"), group("Matchday 9", "2026-08-01")]));
        let names = |keys: &[(String, OffsetDateTime)]| keys.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
        assert_eq!(names(&twice), ["group_a-rovers-city", "group_a-rovers-city-2"]);
        assert_eq!(names(&twice), names(&moved));
        assert_eq!(twice[0].1, moved[0].1, "the first match keeps its key");
    }

    #[test]
    fn every_fault_has_its_path() {
        let bad = json!({"matches": [
            3,
            {"team1": 7, "team2": "City", "date": "tomorrow", "time": "8pm"},
            {"team1": "Rovers", "team2": "City", "date": "2026-08-15", "time": "20:30 XYZ", "score": {"ft": [1]}},
            {"team1": "Rovers", "team2": "City", "date": "2026-13-15", "score": "2:1", "round": 4},
        ]});
        insta::assert_snapshot!(fault_lines(&bad).join("\n"), @r#"
        name: is missing
        matches[0]: must be an object
        matches[1].team1: must be a text
        matches[1].date: must be a day like 2026-06-11, not `tomorrow`
        matches[1].time: must be a time like 20:30 or 13:00 UTC-6, not `8pm`
        matches[2].time: must be a time like 20:30 or 13:00 UTC-6, not `20:30 XYZ`
        matches[2].score.ft: must be two numbers like [2, 1]
        matches[3].date: must be a day like 2026-06-11, not `2026-13-15`
        matches[3].score: must have the form {"ft": [2, 1]}
        matches[3].round: must be a text
        "#);
        assert_eq!(
            fault_lines(&json!([{"name": "Mexico"}])),
            ["matches: is missing: only match files are supported, \
                 not files of teams, clubs, groups, stadiums or squads"]
        );
        assert_eq!(
            fault_lines(&json!({"name": "Cup", "rounds": []})),
            ["matches: is missing: the older format with matches inside `rounds` is not supported"]
        );
        assert_eq!(fault_lines(&json!({"name": "Cup", "matches": {}})), ["matches: must be a list"]);
    }

    proptest! {
        #[test]
        fn parser_never_panics_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes, &Zone::utc());
        }

        /// A valid document with one value replaced by another. It parses or is refused; it never panics.
        #[test]
        fn parser_never_panics_on_any_value(pointer in proptest::sample::select(vec![
            "/name", "/matches", "/matches/0", "/matches/0/team1", "/matches/0/date", "/matches/0/time", "/matches/0/round",
            "/matches/0/score", "/matches/0/score/ft", "/matches/0/group", "/matches/0/ground", "/matches/0/status",
        ]), value in proptest::sample::select(vec![
            json!(null), json!(true), json!(-1), json!(1e300), json!(""), json!("\u{0}"), json!("ü".repeat(1_000)),
            json!([]), json!([1]), json!([1, 2, 3]), json!([u64::MAX, 1]), json!({}), json!({"name": {}}), json!("W74"),
        ])) {
            let mut value_of = document(&json!([{
                "round": "Final", "date": "2026-08-15", "time": "15:00", "team1": "Rovers", "team2": "City",
                "score": {"ft": [1, 0]}, "group": "A", "ground": "Park", "status": "awarded",
            }]));
            *value_of.pointer_mut(pointer).expect("a place") = value;
            if let Ok(reading) = read(value_of.to_string().as_bytes(), &Zone::utc()) {
                let _ = reading::compose(&reading, &reading::Known::default());
            }
        }
    }
}
