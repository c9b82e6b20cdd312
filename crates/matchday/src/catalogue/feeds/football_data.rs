//! Adapter for football-data.org, version 4: `GET /v4/competitions/{code}/matches`.

use std::collections::HashMap;

use scoring::Side;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    reading::{self, Field, ProviderMatch, ProviderTeam, Reading, TournamentPlace},
    stages,
};
use crate::catalogue::{
    fixtures::document::{Fault, TournamentEntry},
    matches::rules::Status,
};

/// Parses the document of the competition with this code; `None` if it has no matches yet.
pub(super) fn read(body: &[u8], code: &str) -> Result<Option<Reading>, Vec<Fault>> {
    let value = reading::json(body)?;
    let root = Field::root(&value);
    let mut faults = Vec::new();
    if !value.is_object() {
        root.fault("must be an object", &mut faults);
        return Err(faults);
    }
    let competition = root.get("competition");
    let name = competition.get("name").required_text(&mut faults);
    let emblem = competition.get("emblem").text(&mut faults).and_then(reading::logo);
    let fields = root.get("matches").list(&mut faults);
    let season = season(&fields, &mut faults);
    let (mut teams, mut notes) = (Teams::default(), Vec::new());
    let mut matches = Vec::with_capacity(fields.len());
    let mut unknown = 0_usize;
    for field in &fields {
        match entry(field, &mut teams, &mut notes, &mut faults) {
            Some(seen) => matches.push(seen),
            None => unknown += 1,
        }
    }
    let (Some(name), true) = (name, faults.is_empty()) else { return Err(faults) };
    let Some(season) = season else { return Ok(None) };
    if unknown > 0 {
        notes.push(format!("matches left out until their teams or times are known: {unknown}"));
    }
    // The code is unique to a competition; many countries have a "Premier League".
    let slug = reading::slug(&format!("{code} {season}"));
    let tournament = TournamentEntry { slug, name: format!("{name} {season}"), logo: emblem, rule_set: None };
    Ok(Some(Reading { tournament, teams: teams.list, matches, notes }))
}

/// Returns the season of all matches, as in `2025/26` or `2026`; `None` without matches.
fn season(fields: &[Field<'_>], faults: &mut Vec<Fault>) -> Option<String> {
    let mut found: Option<(String, &str)> = None;
    for field in fields {
        let season = field.get("season");
        let [start, end] = ["startDate", "endDate"].map(|name| {
            let date = season.get(name);
            let year = date.required_text(faults)?.split('-').next().filter(|year| is_year(year));
            if year.is_none() {
                date.fault("must be a day like 2026-06-11", faults);
            }
            year
        });
        let (Some(start), Some(end)) = (start, end) else { continue };
        let season = if start == end { start.to_owned() } else { format!("{start}/{}", &end[2..]) };
        match &found {
            None => found = Some((season, &field.place)),
            Some((other, first)) if *other != season => {
                field.get("season").fault(format!("is {season}, but the season of {first} is {other}"), faults);
            }
            Some(_) => {}
        }
    }
    found.map(|(season, _)| season)
}

fn is_year(text: &str) -> bool {
    text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The distinct teams of a document.
#[derive(Default)]
struct Teams {
    list: Vec<ProviderTeam>,
    places: HashMap<i64, usize>,
}

impl Teams {
    /// Returns the index of the team in the list; `None` if it is not known yet or has a fault.
    fn place(&mut self, field: &Field<'_>, faults: &mut Vec<Fault>) -> Option<usize> {
        if field.value.is_null() {
            return None;
        }
        let id = field.get("id");
        let name = field.get("name").text(faults).or_else(|| field.get("shortName").text(faults));
        let crest = field.get("crest").text(faults).and_then(reading::logo);
        if id.value.is_null() {
            return None;
        }
        let Some(number) = id.value.as_i64() else {
            id.fault("must be a number", faults);
            return None;
        };
        let name = name?;
        let list = &mut self.list;
        let place = *self.places.entry(number).or_insert_with(|| {
            let (id, slug) = (Some(number.to_string()), reading::team_slug(name));
            list.push(ProviderTeam { id, slug, name: name.to_owned(), logo: crest });
            list.len() - 1
        });
        Some(place)
    }
}

/// Parses a match; `None` if it lacks teams or a start time, or has a fault.
fn entry(
    field: &Field<'_>,
    teams: &mut Teams,
    notes: &mut Vec<String>,
    faults: &mut Vec<Fault>,
) -> Option<ProviderMatch> {
    if !field.value.is_object() {
        field.fault("must be an object", faults);
        return None;
    }
    let id = field.get("id");
    if id.value.as_i64().is_none() {
        id.fault(if id.value.is_null() { "is missing" } else { "must be a number" }, faults);
    }
    let start_time = moment(&field.get("utcDate"), faults);
    let reported = field.get("status").required_text(faults);
    let scores = reported.and_then(|status| after_90(&field.get("score"), status, faults));
    let venue = field.get("venue").text(faults).and_then(reading::venue);
    // Read both teams: a known team is recorded even if its opponent is not known.
    let (home, away) = (teams.place(&field.get("homeTeam"), faults), teams.place(&field.get("awayTeam"), faults));
    let (id, start_time, reported, home, away) = (id.value.as_i64()?, start_time?, reported?, home?, away?);
    let status = status_of(reported);
    if status.is_none() {
        let reported = reading::quoted(reported);
        notes.push(format!("match {id}: unknown status {reported}; the match is left unchanged"));
    }
    let place = TournamentPlace {
        round: field
            .get("matchday")
            .value
            .as_i64()
            .and_then(|round| i16::try_from(round).ok())
            .filter(|round| (1..=999).contains(round)),
        stage: field.get("stage").text(faults).and_then(stages::stage),
        winner: match field.get("score").get("winner").text(faults) {
            Some("HOME_TEAM") => Some(Side::Home),
            Some("AWAY_TEAM") => Some(Side::Away),
            _ => None,
        },
    };
    Some(ProviderMatch { key: id.to_string(), home, away, start_time, venue, status, scores, place })
}

/// Reads the start time. An absent one is not a fault.
fn moment(field: &Field<'_>, faults: &mut Vec<Fault>) -> Option<OffsetDateTime> {
    let text = field.text(faults)?;
    let moment = OffsetDateTime::parse(text, &Rfc3339).ok();
    if moment.is_none() {
        field.fault(format!("must be a timestamp like 2026-11-20T15:00:00Z, not {}", reading::quoted(text)), faults);
    }
    moment
}

/// Maps a status of football-data.org. It has no status for abandoned matches: an abandoned match stays suspended until
/// it is replayed, cancelled or awarded.
fn status_of(reported: &str) -> Option<Status> {
    Some(match reported {
        "SCHEDULED" | "TIMED" => Status::Scheduled,
        "IN_PLAY" | "PAUSED" | "EXTRA_TIME" | "PENALTY_SHOOTOUT" | "LIVE" => Status::Live,
        "FINISHED" => Status::Finished,
        "SUSPENDED" => Status::Suspended,
        "POSTPONED" => Status::Postponed,
        "CANCELLED" | "CANCELED" => Status::Cancelled,
        "AWARDED" => Status::Awarded,
        _ => return None,
    })
}

/// Returns the score after 90 minutes, or so far. `fullTime` includes extra time and penalties, so it is used only for
/// matches without them.
fn after_90(score: &Field<'_>, status: &str, faults: &mut Vec<Fault>) -> Option<(i64, i64)> {
    let regular = matches!(score.get("duration").text(faults), None | Some("REGULAR"))
        && !matches!(status, "EXTRA_TIME" | "PENALTY_SHOOTOUT");
    let goals = score.get(if regular { "fullTime" } else { "regularTime" });
    let [home, away] = ["home", "away"].map(|side| {
        let field = goals.get(side);
        if !field.value.is_null() && field.value.as_i64().is_none() {
            field.fault(
                format!("must be a number of goals or null, not {}", reading::quoted(&field.value.to_string())),
                faults,
            );
        }
        field.value.as_i64()
    });
    home.zip(away)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use time::macros::datetime;

    use super::*;
    use crate::testing::table_in;

    fn team(id: i64, name: &str) -> Value {
        json!({"id": id, "name": name, "shortName": name, "tla": "XXX", "crest": format!("https://crests.example.org/{id}.png")})
    }

    fn a_match(status: &str, score: &Value) -> Value {
        json!({
            "area": {"id": 2072, "name": "England"},
            "season": {"id": 2403, "startDate": "2026-08-15", "endDate": "2027-05-23", "currentMatchday": 12, "winner": null},
            "id": 540_001, "utcDate": "2026-11-20T15:00:00Z", "status": status, "matchday": 12, "stage": "REGULAR_SEASON",
            "homeTeam": team(57, "Harbour Rovers FC"), "awayTeam": team(61, "Harbour City FC"),
            "score": score, "lastUpdated": "2026-11-20T14:00:00Z",
        })
    }

    fn document(matches: &Value) -> Value {
        json!({
            "filters": {"season": "2026"},
            "resultSet": {"count": 1, "first": "2026-11-20", "last": "2026-11-20", "played": 0},
            "competition": {"id": 2021, "name": "Harbour League", "code": "HL", "type": "LEAGUE", "emblem": "https://crests.example.org/HL.png"},
            "matches": matches,
        })
    }

    fn understood(matches: &Value) -> Reading {
        read(document(matches).to_string().as_bytes(), "HL").expect("no faults").expect("matches")
    }

    fn fault_lines(value: &Value) -> Vec<String> {
        read(value.to_string().as_bytes(), "HL").expect_err("faults").iter().map(ToString::to_string).collect()
    }

    fn nothing() -> Value {
        json!({"winner": null, "duration": "REGULAR", "fullTime": {"home": null, "away": null}, "halfTime": {"home": null, "away": null}})
    }

    fn running(home: i64, away: i64) -> Value {
        json!({"winner": null, "duration": "REGULAR", "fullTime": {"home": home, "away": away}, "halfTime": {"home": 0, "away": 0}})
    }

    fn longer(duration: &str, full: [i64; 2], regular: &Value) -> Value {
        json!({"winner": "HOME_TEAM", "duration": duration, "fullTime": {"home": full[0], "away": full[1]},
               "halfTime": {"home": 0, "away": 0}, "regularTime": regular, "extraTime": {"home": 0, "away": 0}})
    }

    #[test]
    fn season_becomes_tournament() {
        let reading = understood(&json!([a_match("TIMED", &nothing())]));
        assert_eq!(reading.tournament.slug, "hl_2026_27");
        assert_eq!(reading.tournament.name, "Harbour League 2026/27");
        assert_eq!(reading.tournament.logo.as_deref(), Some("https://crests.example.org/HL.png"));
        assert_eq!(
            reading.teams[0],
            ProviderTeam {
                id: Some("57".to_owned()),
                slug: "harbour_rovers".to_owned(),
                name: "Harbour Rovers FC".to_owned(),
                logo: Some("https://crests.example.org/57.png".to_owned()),
            }
        );
        assert_eq!(reading.matches[0].key, "540001");
        assert_eq!(reading.matches[0].start_time, datetime!(2026-11-20 15:00 UTC));
        let mut cup = a_match("TIMED", &nothing());
        cup["season"]["endDate"] = json!("2026-12-19");
        assert_eq!(understood(&json!([cup])).tournament.slug, "hl_2026");
        let empty = read(document(&json!([])).to_string().as_bytes(), "HL").expect("no faults");
        assert_eq!(empty, None, "a season without matches is valid");
    }

    #[test]
    fn statuses_map_to_status_and_score() {
        let after_extra = json!({"home": 1, "away": 1});
        for (status, score, expected) in [
            ("SCHEDULED", nothing(), (Status::Scheduled, None)),
            ("TIMED", nothing(), (Status::Scheduled, None)),
            ("IN_PLAY", running(0, 0), (Status::Live, Some((0, 0)))),
            ("PAUSED", running(1, 0), (Status::Live, Some((1, 0)))),
            ("EXTRA_TIME", longer("EXTRA_TIME", [2, 1], &after_extra), (Status::Live, Some((1, 1)))),
            // The status arrives before the duration.
            ("EXTRA_TIME", longer("REGULAR", [2, 1], &after_extra), (Status::Live, Some((1, 1)))),
            // The duration arrives before the regular-time score.
            ("IN_PLAY", longer("EXTRA_TIME", [2, 1], &json!({"home": null, "away": null})), (Status::Live, None)),
            ("PENALTY_SHOOTOUT", longer("PENALTY_SHOOTOUT", [4, 3], &after_extra), (Status::Live, Some((1, 1)))),
            ("FINISHED", running(3, 2), (Status::Finished, Some((3, 2)))),
            ("FINISHED", longer("EXTRA_TIME", [2, 1], &after_extra), (Status::Finished, Some((1, 1)))),
            ("FINISHED", longer("PENALTY_SHOOTOUT", [6, 5], &after_extra), (Status::Finished, Some((1, 1)))),
            // The relevant score is unknown and must not be guessed.
            ("FINISHED", longer("PENALTY_SHOOTOUT", [6, 5], &json!(null)), (Status::Finished, None)),
            ("FINISHED", nothing(), (Status::Finished, None)),
            ("SUSPENDED", running(1, 0), (Status::Suspended, Some((1, 0)))),
            ("POSTPONED", nothing(), (Status::Postponed, None)),
            ("CANCELLED", nothing(), (Status::Cancelled, None)),
            ("AWARDED", running(3, 0), (Status::Awarded, Some((3, 0)))),
        ] {
            let reading = understood(&json!([a_match(status, &score)]));
            let seen = &reading.matches[0];
            assert_eq!((seen.status, seen.scores), (Some(expected.0), expected.1), "{status} {score}");
        }
    }

    #[test]
    fn docs_list_every_status_mapping() {
        let rows = table_in("feeds.md", "### football-data.org");
        let mut documented = 0;
        for row in &rows {
            for status in row[0].split(", ") {
                let meaning = status_of(status.trim_matches('`')).map(Status::name);
                assert_eq!(meaning, Some(row[1].trim_matches('`')), "{status}");
                documented += 1;
            }
        }
        assert_eq!(documented, 13, "all statuses are documented");
    }

    #[test]
    fn unknown_status_is_reported() {
        let reading = understood(&json!([a_match("WALKED_OFF", &running(1, 1))]));
        assert_eq!(reading.matches[0].status, None);
        assert_eq!(reading.notes, ["match 540001: unknown status `WALKED_OFF`; the match is left unchanged"]);
    }

    #[test]
    fn matches_without_teams_or_times_are_left_out() {
        let mut unknown_team = a_match("TIMED", &nothing());
        unknown_team["homeTeam"] = json!({"id": null, "name": null, "shortName": null, "tla": null, "crest": null});
        let mut open = a_match("TIMED", &nothing());
        open["awayTeam"] = json!(null);
        let mut timeless = a_match("SCHEDULED", &nothing());
        timeless["utcDate"] = json!(null);
        let mut known = a_match("TIMED", &nothing());
        known["id"] = json!(540_002);
        let reading = understood(&json!([unknown_team, open, timeless, known]));
        assert_eq!(reading.matches.len(), 1);
        assert_eq!(reading.notes, ["matches left out until their teams or times are known: 3"]);
    }

    #[test]
    fn minor_missing_data_is_accepted() {
        let mut entry = a_match("FINISHED", &running(1, 0));
        entry["venue"] = json!("Harbour\u{7} Park");
        entry["homeTeam"]["crest"] = json!("");
        entry["homeTeam"]["name"] = json!(null);
        entry["homeTeam"]["shortName"] = json!("Rovers");
        entry["score"] = json!({"fullTime": {"home": 1, "away": 0}});
        let reading = understood(&json!([entry]));
        assert_eq!(reading.matches[0].venue.as_deref(), Some("Harbour  Park"));
        assert_eq!((reading.teams[0].name.as_str(), &reading.teams[0].logo), ("Rovers", &None));
        assert_eq!(reading.matches[0].scores, Some((1, 0)));
    }

    #[test]
    fn every_fault_has_its_path() {
        let mut odd = a_match("FINISHED", &running(1, 0));
        odd["id"] = json!("540001");
        odd["utcDate"] = json!("tomorrow");
        odd["homeTeam"]["id"] = json!("57");
        odd["score"]["fullTime"]["home"] = json!("1");
        let mut other = a_match("FINISHED", &running(1, 0));
        other["season"] = json!({"startDate": "2025-08-15", "endDate": "2026-05-23"});
        let mut bare = a_match("FINISHED", &running(1, 0));
        bare["season"] = json!(null);
        bare["status"] = json!(null);
        let mut bad = document(&json!([odd, other, bare, 3]));
        bad["competition"]["name"] = json!(null);
        insta::assert_snapshot!(fault_lines(&bad).join("\n"), @r#"
        competition.name: is missing
        matches[1].season: is 2025/26, but the season of matches[0] is 2026/27
        matches[2].season.startDate: is missing
        matches[2].season.endDate: is missing
        matches[3].season.startDate: is missing
        matches[3].season.endDate: is missing
        matches[0].id: must be a number
        matches[0].utcDate: must be a timestamp like 2026-11-20T15:00:00Z, not `tomorrow`
        matches[0].score.fullTime.home: must be a number of goals or null, not `"1"`
        matches[0].homeTeam.id: must be a number
        matches[2].status: is missing
        matches[3]: must be an object
        "#);
        assert_eq!(
            fault_lines(&json!({"message": "welcome"})),
            ["competition.name: is missing", "matches: is missing"]
        );
        assert_eq!(fault_lines(&json!([])), ["must be an object"]);
        let html = read(b"<html>", "HL").expect_err("invalid JSON");
        assert_eq!(html[0].to_string(), "the document is not JSON: expected value at line 1 column 1");
    }

    proptest! {
        #[test]
        fn parser_never_panics_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes, "HL");
        }

        /// A valid document with one value replaced by another. It parses or is refused; it never panics.
        #[test]
        fn parser_never_panics_on_any_value(pointer in proptest::sample::select(vec![
            "/competition", "/competition/name", "/competition/emblem", "/matches", "/matches/0", "/matches/0/id",
            "/matches/0/utcDate", "/matches/0/status", "/matches/0/season", "/matches/0/season/startDate",
            "/matches/0/homeTeam", "/matches/0/homeTeam/id", "/matches/0/homeTeam/name", "/matches/0/homeTeam/crest",
            "/matches/0/score", "/matches/0/score/duration", "/matches/0/score/fullTime", "/matches/0/score/fullTime/home",
        ]), value in proptest::sample::select(vec![
            json!(null), json!(true), json!(-1), json!(1e300), json!(u64::MAX), json!(""), json!("\u{0}"), json!("ü-ü"),
            json!("é".repeat(1_000)), json!([]), json!([[]]), json!({}), json!({"home": {}}), json!("20é6-08-15"),
        ])) {
            let mut value_of = document(&json!([a_match("FINISHED", &running(1, 0))]));
            *value_of.pointer_mut(pointer).expect("a place") = value;
            if let Ok(Some(reading)) = read(value_of.to_string().as_bytes(), "HL") {
                let _ = reading::compose(&reading, &reading::Known::default());
            }
        }
    }
}
