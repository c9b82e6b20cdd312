//! Turns a provider's document into a fixture document; no I/O.
//!
//! A provider supplies less data than a fixture document can hold, and sometimes less than before. Data that the
//! provider omits stays as stored: the country of a team, a venue, the score of a match that is reported as finished
//! without one.

use std::collections::{HashMap, HashSet};

use any_ascii::any_ascii_char;
use scoring::{Multiplier, Side};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use time::{OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};
use url::Url;

use super::stages;
use crate::catalogue::{
    fixtures::document::{Document, Fault, TournamentEntry},
    matches::rules::{Details, Status},
};

/// All supported providers cover football only.
pub(super) const SPORT: (&str, &str) = ("football", "Football");

const LONGEST_SLUG: usize = 63;
const LONGEST_KEY: usize = 100;
const LONGEST_VENUE: usize = 200;
const LONGEST_URL: usize = 500;

/// The parsed document of a provider.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) tournament: TournamentEntry,
    pub(super) teams: Vec<ProviderTeam>,
    pub(super) matches: Vec<ProviderMatch>,
    /// Harmless remarks for operators.
    pub(super) notes: Vec<String>,
}

/// A team as a provider reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProviderTeam {
    /// Stable id that the provider uses, if it has one.
    pub(super) id: Option<String>,
    pub(super) slug: String,
    pub(super) name: String,
    pub(super) logo: Option<String>,
}

/// A match as a provider reports it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProviderMatch {
    pub(super) key: String,
    /// Indices of both teams in `Reading::teams`.
    pub(super) home: usize,
    pub(super) away: usize,
    pub(super) start_time: OffsetDateTime,
    pub(super) venue: Option<String>,
    /// `None` if the provider reports an unknown status.
    pub(super) status: Option<Status>,
    /// Score after 90 minutes, or so far.
    pub(super) scores: Option<(i64, i64)>,
    pub(super) place: TournamentPlace,
}

/// Place of a match in its tournament, as far as the provider reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TournamentPlace {
    pub(super) round: Option<i16>,
    /// Slug of the stage, from [`stages::stage`].
    pub(super) stage: Option<String>,
    /// Winner after extra time and penalties.
    pub(super) winner: Option<Side>,
}

/// Stored data for the teams and matches of a reading, by slug and key.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) sport: Option<String>,
    pub(super) tournament_logo: Option<String>,
    pub(super) teams: HashMap<String, KnownTeam>,
    pub(super) matches: HashMap<String, KnownMatch>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownTeam {
    pub(super) sport: String,
    pub(super) name: String,
    pub(super) country: Option<String>,
    pub(super) founded: Option<i32>,
    pub(super) logo: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownMatch {
    pub(super) venue: String,
    pub(super) status: Status,
    pub(super) scores: Option<(i32, i32)>,
    pub(super) details: Details,
}

/// A document to import, and the number of matches left out until more is known about them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Composed {
    pub(super) document: Document,
    pub(super) left_out: usize,
}

/// Builds a fixture document, with the same validation as every imported document.
pub(super) fn compose(reading: &Reading, known: &Known) -> Result<Composed, Vec<Fault>> {
    let teams: Vec<Value> = reading
        .teams
        .iter()
        .map(|team| {
            let known = known.teams.get(&team.slug);
            // Without an id, the name only serves to find the team. It must not overwrite a name from a better source.
            let name = known.filter(|_| team.id.is_none()).map_or(&team.name, |known| &known.name);
            json!({
                "slug": team.slug,
                "name": name,
                "country": known.and_then(|known| known.country.as_ref()),
                "founded": known.and_then(|known| known.founded),
                "logo": team.logo.as_ref().or_else(|| known.and_then(|known| known.logo.as_ref())),
            })
        })
        .collect();
    let mut matches = Vec::with_capacity(reading.matches.len());
    let mut keys = Vec::with_capacity(reading.matches.len());
    let ties = ties(reading);
    for seen in &reading.matches {
        let known = known.matches.get(&seen.key);
        let Some((status, scores)) = state(seen, known) else { continue };
        let venue = seen.venue.as_deref().or_else(|| known.map(|known| known.venue.as_str()));
        keys.push(seen.key.as_str());
        let has_one_match = ties.get(&tie(seen)) == Some(&1);
        let details = details(seen, known, status, has_one_match);
        matches.push(json!({
            "key": seen.key,
            "home": reading.teams[seen.home].slug,
            "away": reading.teams[seen.away].slug,
            "start_time": seen.start_time.to_offset(UtcOffset::UTC).format(&Rfc3339).unwrap_or_default(),
            "venue": venue.unwrap_or_default(),
            "status": status.name(),
            "home_score": scores.map(|(home, _)| home),
            "away_score": scores.map(|(_, away)| away),
            "round": details.round,
            "stage": details.stage,
            "knockout": details.is_knockout,
            "advanced": details.advanced,
            "multiplier": details.multiplier,
        }));
    }
    let left_out = reading.matches.len() - matches.len();
    let document = json!({
        "sport": {"slug": SPORT.0, "name": known.sport.as_deref().unwrap_or(SPORT.1)},
        "tournament": {
            "slug": reading.tournament.slug,
            "name": reading.tournament.name,
            "logo": reading.tournament.logo.as_ref().or(known.tournament_logo.as_ref()),
        },
        "teams": teams,
        "matches": matches,
    });
    let document = Document::read(&document).map_err(|faults| named(faults, &keys))?;
    Ok(Composed { document, left_out })
}

/// Returns the status and score to import; `None` if the match must be left out.
fn state(seen: &ProviderMatch, known: Option<&KnownMatch>) -> Option<(Status, Option<(i64, i64)>)> {
    let kept = known.map(|known| (known.status, known.scores.map(|(home, away)| (home.into(), away.into()))));
    match (seen.status, seen.scores) {
        (None, _) => kept,
        (Some(status), None) if status.needs_scores() => kept,
        (Some(status), _) if status.precedes_scores() => Some((status, None)),
        // A live match keeps its score when the provider omits it.
        (Some(status @ (Status::Live | Status::Suspended)), None) => {
            let scores = kept.filter(|(before, _)| matches!(before, Status::Live | Status::Suspended));
            Some((status, scores.and_then(|(_, scores)| scores)))
        }
        (Some(status), scores) => Some((status, scores)),
    }
}

/// Stage and teams of a match, in any order.
fn tie(seen: &ProviderMatch) -> (Option<&str>, usize, usize) {
    (seen.place.stage.as_deref(), seen.home.min(seen.away), seen.home.max(seen.away))
}

/// Returns how many matches the same two teams play in a stage. The winner of one match of two need not advance.
fn ties(reading: &Reading) -> HashMap<(Option<&str>, usize, usize), usize> {
    let mut ties = HashMap::new();
    for seen in &reading.matches {
        *ties.entry(tie(seen)).or_default() += 1;
    }
    ties
}

/// Optional details of a match to import.
struct DocumentDetails<'a> {
    round: Option<i16>,
    stage: Option<&'a str>,
    is_knockout: bool,
    advanced: Option<Side>,
    multiplier: Option<Multiplier>,
}

/// Combines what the provider reports with what is stored. An operator may have stored more than the provider knows.
fn details<'a>(
    seen: &'a ProviderMatch,
    known: Option<&'a KnownMatch>,
    status: Status,
    has_one_match: bool,
) -> DocumentDetails<'a> {
    let (place, known) = (&seen.place, known.map(|known| &known.details));
    let known_stage = known.and_then(|known| known.stage.as_deref());
    let stage = place.stage.as_deref().or(known_stage);
    let is_knockout = stage.is_some_and(stages::is_knockout) || known.is_some_and(|known| known.is_knockout);
    let winner = place.winner.filter(|_| has_one_match);
    let advanced = winner.or_else(|| known?.advanced).filter(|_| is_knockout && status.may_have_advanced());
    // A stored multiplier stays, unless it may be that of another stage.
    let multiplier = known.filter(|known| known.stage.as_deref() == stage).map(|known| known.multiplier);
    DocumentDetails { round: place.round.or_else(|| known?.round), stage, is_knockout, advanced, multiplier }
}

/// Identifies matches in faults by key, because their indices differ from those in the provider's document.
fn named(faults: Vec<Fault>, keys: &[&str]) -> Vec<Fault> {
    let name = |fault: Fault| {
        let number = fault.place.strip_prefix("matches[").and_then(|rest| rest.split_once(']'));
        let Some((number, rest)) = number else { return fault };
        let key = number.parse::<usize>().ok().and_then(|at| keys.get(at));
        let place = key.map(|key| format!("match {key}{rest}"));
        Fault { place: place.unwrap_or_else(|| fault.place.clone()), problem: fault.problem }
    };
    faults.into_iter().map(name).collect()
}

/// Replaces the slugs of the provider's teams with the stored ones. Returns the new slugs as (id, slug).
///
/// A team keeps its slug when its name changes. A new team gets the slug of its name, and is thereby matched to an
/// existing team with that slug. If that slug belongs to another team of the provider or to a team of another sport,
/// the provider's id becomes part of the slug.
pub(super) fn name_teams(
    reading: &mut Reading,
    given: &HashMap<String, String>,
    here: &HashMap<String, KnownTeam>,
) -> Vec<(String, String)> {
    let mut taken: HashSet<String> = given.values().cloned().collect();
    let mut claims = Vec::new();
    for team in &mut reading.teams {
        let Some(id) = &team.id else { continue };
        if let Some(slug) = given.get(id) {
            team.slug.clone_from(slug);
            continue;
        }
        let known = here.get(&team.slug);
        if taken.contains(&team.slug) || known.is_some_and(|known| known.sport != SPORT.0) {
            let own = slug(&format!("{} {id}", team.slug));
            let other = std::mem::replace(&mut team.slug, own);
            let note = format!("`{}` gets the slug `{}`, because `{other}` is another team", team.name, team.slug);
            reading.notes.push(note);
        } else if let Some(known) = known.filter(|known| known.name != team.name) {
            let note =
                format!("`{}` is matched to the existing team `{}`, named `{}`", team.name, team.slug, known.name);
            reading.notes.push(note);
        }
        taken.insert(team.slug.clone());
        claims.push((id.clone(), team.slug.clone()));
    }
    claims
}

/// Converts a name to a slug of lower-case ASCII letters, digits and underscores.
pub(super) fn slug(name: &str) -> String {
    let mut slug = String::new();
    for letter in name.chars() {
        for byte in any_ascii_char(letter).bytes() {
            if byte.is_ascii_alphanumeric() {
                slug.push(char::from(byte.to_ascii_lowercase()));
            } else if !slug.is_empty() && !slug.ends_with('_') {
                slug.push('_');
            }
        }
    }
    let slug = slug.trim_end_matches('_');
    if slug.is_empty() { format!("x{}", digest(name)) } else { shortened(slug, LONGEST_SLUG) }
}

/// Converts the name of a club to a slug. Sources write or omit `FC`, even within one document, so it is dropped.
pub(super) fn team_slug(name: &str) -> String {
    let whole = slug(name);
    let is_club = |word: &&str| matches!(*word, "fc" | "afc");
    let mut words: Vec<&str> = whole.split('_').collect();
    if words.len() > 1 && words.last().is_some_and(is_club) {
        words.pop();
    }
    if words.len() > 1 && words.first().is_some_and(is_club) {
        words.remove(0);
    }
    words.join("_")
}

/// Builds the key of a match from the parts that identify it.
pub(super) fn key(parts: &[&str]) -> String {
    shortened(&parts.join("-"), LONGEST_KEY)
}

/// Cuts a long text and appends a digest of the whole, which keeps similar long texts different.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let digest = digest(text);
    let stem: String = text.chars().take(most - digest.len() - 1).filter(char::is_ascii).collect();
    format!("{}_{digest}", stem.trim_end_matches(['_', '-']))
}

fn digest(text: &str) -> String {
    hex::encode(&Sha256::digest(text)[..4])
}

/// Removes control characters from a venue and shortens it. An unusable venue is not a fault, because it must not block
/// the import of the match.
pub(super) fn venue(text: &str) -> Option<String> {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST_VENUE).collect();
    let plain = plain.trim();
    (!plain.is_empty()).then(|| plain.to_owned())
}

/// Returns the URL of an image if it is valid.
pub(super) fn logo(text: &str) -> Option<String> {
    let fits = (1..=LONGEST_URL).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    let url = Url::parse(text).ok().filter(|url| fits && matches!(url.scheme(), "http" | "https"))?;
    url.has_host().then(|| text.to_owned())
}

/// A value in a provider's document, with its path. An absent value is null.
#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    pub(super) place: String,
    pub(super) value: &'a Value,
}

impl<'a> Field<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self { place: String::new(), value }
    }

    pub(super) fn get(&self, name: &str) -> Self {
        let place = if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) };
        Self { place, value: self.value.get(name).unwrap_or(&Value::Null) }
    }

    pub(super) fn fault(&self, problem: impl Into<String>, faults: &mut Vec<Fault>) {
        faults.push(Fault { place: self.place.clone(), problem: problem.into() });
    }

    pub(super) fn list(&self, faults: &mut Vec<Fault>) -> Vec<Self> {
        let Some(items) = self.value.as_array() else {
            self.fault(if self.value.is_null() { "is missing" } else { "must be a list" }, faults);
            return Vec::new();
        };
        items.iter().enumerate().map(|(at, value)| Self { place: format!("{}[{at}]", self.place), value }).collect()
    }

    /// Returns the text; `None` if it is empty, null or absent.
    pub(super) fn text(&self, faults: &mut Vec<Fault>) -> Option<&'a str> {
        match self.value {
            Value::String(text) => Some(text.trim()).filter(|text| !text.is_empty()),
            Value::Null => None,
            _ => {
                self.fault("must be a text", faults);
                None
            }
        }
    }

    /// Returns the text, and reports a fault if it is missing.
    pub(super) fn required_text(&self, faults: &mut Vec<Fault>) -> Option<&'a str> {
        let before = faults.len();
        let text = self.text(faults);
        if text.is_none() && faults.len() == before {
            self.fault("is missing", faults);
        }
        text
    }
}

/// Quotes the start of a provider's text for a one-line message.
pub(super) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(40).is_some() { format!("`{short}…`") } else { format!("`{short}`") }
}

pub(super) fn json(body: &[u8]) -> Result<Value, Vec<Fault>> {
    serde_json::from_slice(body)
        .map_err(|error| vec![Fault { place: String::new(), problem: format!("the document is not JSON: {error}") }])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    #[test]
    fn slugs_are_derived_from_names() {
        for (name, expected) in [
            ("Liverpool FC", "liverpool"),
            ("AFC Bournemouth", "bournemouth"),
            ("Brighton & Hove Albion FC", "brighton_hove_albion"),
            ("1. FC Köln", "1_fc_koln"),
            ("FC Bayern München", "bayern_munchen"),
            ("Atlético Nacional", "atletico_nacional"),
            ("Côte d'Ivoire", "cote_d_ivoire"),
            ("Спартак Москва", "spartak_moskva"),
            ("FC", "fc"),
            ("FC AFC", "fc"),
            ("Chelsea FC (ENG)", "chelsea_fc_eng"),
        ] {
            assert_eq!(team_slug(name), expected, "{name}");
        }
        assert_ne!(slug("!"), slug("?"), "names without letters get different slugs");
        assert_ne!(slug(&"long ".repeat(30)), slug(&"long ".repeat(31)));
    }

    fn seen(status: Option<Status>, scores: Option<(i64, i64)>) -> ProviderMatch {
        ProviderMatch {
            key: "m".to_owned(),
            home: 0,
            away: 1,
            start_time: datetime!(2026-11-20 15:00 UTC),
            venue: None,
            status,
            scores,
            place: TournamentPlace::default(),
        }
    }

    #[test]
    fn missing_data_leaves_match_unchanged() {
        use Status::{Awarded, Cancelled, Finished, Live, Postponed, Scheduled, Suspended};
        let known =
            |status, scores| Some(KnownMatch { venue: String::new(), status, scores, details: Details::default() });
        let (live, over) = (known(Live, Some((1, 0))), known(Finished, Some((2, 1))));
        for (status, scores, known, expected) in [
            // Finished without a score: unchanged, or left out if new.
            (Some(Finished), None, live.as_ref(), Some((Live, Some((1, 0))))),
            (Some(Finished), None, over.as_ref(), Some((Finished, Some((2, 1))))),
            (Some(Awarded), None, None, None),
            (Some(Finished), None, None, None),
            // Unknown status: unchanged, or left out if new.
            (None, Some((4, 4)), live.as_ref(), Some((Live, Some((1, 0))))),
            (None, None, None, None),
            // A score that the status does not allow.
            (Some(Scheduled), Some((0, 0)), None, Some((Scheduled, None))),
            (Some(Postponed), Some((1, 0)), live.as_ref(), Some((Postponed, None))),
            // A live match without a score.
            (Some(Live), None, live.as_ref(), Some((Live, Some((1, 0))))),
            (Some(Suspended), None, live.as_ref(), Some((Suspended, Some((1, 0))))),
            (Some(Live), None, over.as_ref(), Some((Live, None))),
            (Some(Live), None, None, Some((Live, None))),
            // Complete reports are applied.
            (Some(Live), Some((1, 1)), live.as_ref(), Some((Live, Some((1, 1))))),
            (Some(Finished), Some((3, 1)), over.as_ref(), Some((Finished, Some((3, 1))))),
            (Some(Cancelled), None, over.as_ref(), Some((Cancelled, None))),
        ] {
            assert_eq!(state(&seen(status, scores), known), expected, "{status:?} {scores:?} over {known:?}");
        }
    }

    fn reading() -> Reading {
        let team = |slug: &str| ProviderTeam { id: None, slug: slug.to_owned(), name: slug.to_owned(), logo: None };
        Reading {
            tournament: TournamentEntry {
                slug: "cup".to_owned(),
                name: "Cup".to_owned(),
                ..TournamentEntry::default()
            },
            teams: vec![team("rovers"), team("city")],
            matches: vec![seen(None, None), seen(Some(Status::Live), Some((1, 1_000)))],
            notes: Vec::new(),
        }
    }

    #[test]
    fn data_omitted_by_provider_is_kept() {
        let team = KnownTeam {
            sport: "football".to_owned(),
            name: "Rovers".to_owned(),
            country: Some("England".to_owned()),
            founded: Some(1886),
            logo: Some("https://cdn.example.org/r.png".to_owned()),
        };
        let known = Known {
            sport: Some("Soccer".to_owned()),
            tournament_logo: Some("https://cdn.example.org/c.png".to_owned()),
            teams: HashMap::from([("rovers".to_owned(), team)]),
            matches: HashMap::from([(
                "m".to_owned(),
                KnownMatch {
                    venue: "Park".to_owned(),
                    status: Status::Live,
                    scores: None,
                    details: Details { round: Some(3), multiplier: Multiplier::Two, ..Details::default() },
                },
            )]),
        };
        let mut reading = reading();
        reading.matches.truncate(1);
        let Composed { document, left_out } = compose(&reading, &known).expect("no faults");
        assert_eq!(left_out, 0);
        assert_eq!(document.sport.name, "Soccer");
        assert_eq!(document.tournament.logo.as_deref(), Some("https://cdn.example.org/c.png"));
        assert_eq!(document.teams[0].country.as_deref(), Some("England"));
        assert_eq!((document.teams[0].name.as_str(), document.teams[0].founded), ("Rovers", Some(1886)));
        assert_eq!((document.teams[1].name.as_str(), &document.teams[1].country), ("city", &None));
        assert_eq!((document.matches[0].venue.as_str(), document.matches[0].status), ("Park", Status::Live));
        let details = &document.matches[0].details;
        assert_eq!((details.round, details.multiplier), (Some(3), Some(Multiplier::Two)));
        reading.teams[0].id = Some("57".to_owned());
        let Composed { document, .. } = compose(&reading, &known).expect("no faults");
        assert_eq!(document.teams[0].name, "rovers", "a team with an id gets the provider's name");
    }

    #[test]
    fn winner_advances_if_the_tie_has_one_match() {
        let place = |winner| TournamentPlace { round: Some(7), stage: Some("final".to_owned()), winner };
        let over = ProviderMatch { place: place(Some(Side::Away)), ..seen(Some(Status::Finished), Some((1, 1))) };
        let mut reading = Reading { matches: vec![over.clone()], ..reading() };
        let details = |reading: &Reading, known: &Known| {
            compose(reading, known).expect("no faults").document.matches[0].details.clone()
        };
        let composed = details(&reading, &Known::default());
        assert_eq!((composed.round, composed.stage.as_deref()), (Some(7), Some("final")));
        assert_eq!((composed.is_knockout, composed.advanced), (true, Some(Side::Away)));
        let second = ProviderMatch { key: "n".to_owned(), home: 1, away: 0, ..over };
        reading.matches.push(second);
        assert_eq!(details(&reading, &Known::default()).advanced, None, "a tie with two matches");
        // What an operator has stored stays.
        let stored = Details { is_knockout: true, advanced: Some(Side::Home), ..Details::default() };
        let known = KnownMatch { venue: String::new(), status: Status::Finished, scores: None, details: stored };
        let known = Known { matches: HashMap::from([("m".to_owned(), known)]), ..Known::default() };
        assert_eq!(details(&reading, &known).advanced, Some(Side::Home));
    }

    #[test]
    fn team_slugs_are_stable_and_unique() {
        let team = |id: &str, name: &str| ProviderTeam {
            id: Some(id.to_owned()),
            slug: team_slug(name),
            name: name.to_owned(),
            logo: None,
        };
        let here = |sport: &str, name: &str| KnownTeam {
            sport: sport.to_owned(),
            name: name.to_owned(),
            country: None,
            founded: None,
            logo: None,
        };
        let mut reading = reading();
        reading.teams = vec![
            team("1", "Harbour Rovers FC"),
            team("2", "City"),
            team("3", "Rovers"),
            team("4", "FC City"),
            team("5", "Albion FC"),
            team("6", "Giants"),
        ];
        let given = HashMap::from([("1".to_owned(), "rovers".to_owned())]);
        let here = HashMap::from([
            ("rovers".to_owned(), here("football", "Rovers")),
            ("albion".to_owned(), here("football", "Albion")),
            ("giants".to_owned(), here("basketball", "Giants")),
        ]);
        let claims = name_teams(&mut reading, &given, &here);
        let slugs: Vec<&str> = reading.teams.iter().map(|team| team.slug.as_str()).collect();
        assert_eq!(slugs, ["rovers", "city", "rovers_3", "city_4", "albion", "giants_6"]);
        let claimed: Vec<(&str, &str)> = claims.iter().map(|(id, slug)| (id.as_str(), slug.as_str())).collect();
        assert_eq!(claimed, [("2", "city"), ("3", "rovers_3"), ("4", "city_4"), ("5", "albion"), ("6", "giants_6")]);
        insta::assert_snapshot!(reading.notes.join("\n"), @r"
        `Rovers` gets the slug `rovers_3`, because `rovers` is another team
        `FC City` gets the slug `city_4`, because `city` is another team
        `Albion FC` is matched to the existing team `albion`, named `Albion`
        `Giants` gets the slug `giants_6`, because `giants` is another team
        ");
    }

    #[test]
    fn fault_names_match_by_key() {
        let faults = compose(&reading(), &Known::default()).expect_err("a thousand goals");
        let messages: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(messages, ["match m.away_score: must be a number of goals or null, not 1000"]);
    }

    proptest! {
        #[test]
        fn every_name_has_valid_slug(name in "\\PC{1,120}") {
            for slug in [slug(&name), team_slug(&name)] {
                prop_assert!((1..=LONGEST_SLUG).contains(&slug.len()), "{slug}");
                prop_assert!(slug.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{slug}");
                prop_assert!(!slug.starts_with('_') && !slug.ends_with('_'), "{slug}");
            }
        }

        #[test]
        fn keys_fit_and_long_keys_differ(round in "[a-z_]{1,80}", home in "[a-z_]{60,63}", away in "[a-z_]{60,63}") {
            let one = key(&[&round, &home, &away]);
            prop_assert!(one.len() <= LONGEST_KEY);
            prop_assert_ne!(one, key(&[&round, &home, &format!("{away}x")]));
        }

        #[test]
        fn venues_are_valid_in_documents(text in ".{0,600}") {
            if let Some(venue) = venue(&text) {
                prop_assert!((1..=LONGEST_VENUE).contains(&venue.chars().count()));
                prop_assert!(!venue.chars().any(char::is_control));
            }
            let _ = logo(&text);
        }
    }
}
