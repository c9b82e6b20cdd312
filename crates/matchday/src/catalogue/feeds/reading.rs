//! What a provider's document says, and how that becomes a document of ours; no I/O.
//!
//! A provider knows less than a document of ours can say, and sometimes less than it did before. What it does not say
//! stays as it is here: a team's country, a venue, the score of a match that it calls finished without one.

use std::collections::{HashMap, HashSet};

use any_ascii::any_ascii_char;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use time::{OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};
use url::Url;

use crate::catalogue::{
    fixtures::document::{Document, Fault, TournamentEntry},
    matches::rules::Status,
};

/// All that providers know here is football.
pub(super) const SPORT: (&str, &str) = ("football", "Football");

const LONGEST_SLUG: usize = 63;
const LONGEST_KEY: usize = 100;
const LONGEST_VENUE: usize = 200;
const LONGEST_URL: usize = 500;

/// A provider's document, understood.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) tournament: TournamentEntry,
    pub(super) teams: Vec<TeamSeen>,
    pub(super) matches: Vec<MatchSeen>,
    /// What an operator should know, and does no harm.
    pub(super) notes: Vec<String>,
}

/// A team, as a provider names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TeamSeen {
    /// The provider's own name for it, if it has one that stays.
    pub(super) id: Option<String>,
    pub(super) slug: String,
    pub(super) name: String,
    pub(super) logo: Option<String>,
}

/// A match, as a provider shows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MatchSeen {
    pub(super) key: String,
    /// Places in `Reading::teams`.
    pub(super) home: usize,
    pub(super) away: usize,
    pub(super) start_time: OffsetDateTime,
    pub(super) venue: Option<String>,
    /// `None` if the provider says something that means nothing here.
    pub(super) status: Option<Status>,
    /// After 90 minutes, or as far as it was played.
    pub(super) scores: Option<(i64, i64)>,
}

/// What is here already of what a reading speaks of.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) sport: Option<String>,
    pub(super) tournament_logo: Option<String>,
    pub(super) teams: HashMap<String, KnownTeam>,
    pub(super) matches: HashMap<String, KnownMatch>,
}

/// A team that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownTeam {
    pub(super) sport: String,
    pub(super) name: String,
    pub(super) country: Option<String>,
    pub(super) founded: Option<i32>,
    pub(super) logo: Option<String>,
}

/// A match that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownMatch {
    pub(super) venue: String,
    pub(super) status: Status,
    pub(super) scores: Option<(i32, i32)>,
}

/// A document to be imported, and how many matches were left out of it until more is known of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Composed {
    pub(super) document: Document,
    pub(super) left_out: usize,
}

/// Makes a document of ours, through the checks that every imported document passes.
pub(super) fn compose(reading: &Reading, known: &Known) -> Result<Composed, Vec<Fault>> {
    let teams: Vec<Value> = reading
        .teams
        .iter()
        .map(|team| {
            let known = known.teams.get(&team.slug);
            // Without an id a name only finds a team. It must not rename one that others, who know it by more, call otherwise.
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
    for seen in &reading.matches {
        let known = known.matches.get(&seen.key);
        let Some((status, scores)) = state(seen, known) else { continue };
        let venue = seen.venue.as_deref().or_else(|| known.map(|known| known.venue.as_str()));
        keys.push(seen.key.as_str());
        matches.push(json!({
            "key": seen.key,
            "home": reading.teams[seen.home].slug,
            "away": reading.teams[seen.away].slug,
            "start_time": seen.start_time.to_offset(UtcOffset::UTC).format(&Rfc3339).unwrap_or_default(),
            "venue": venue.unwrap_or_default(),
            "status": status.name(),
            "home_score": scores.map(|(home, _)| home),
            "away_score": scores.map(|(_, away)| away),
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

/// What a match is to become; `None` if it is to be left out.
fn state(seen: &MatchSeen, known: Option<&KnownMatch>) -> Option<(Status, Option<(i64, i64)>)> {
    let kept = known.map(|known| (known.status, known.scores.map(|(home, away)| (home.into(), away.into()))));
    match (seen.status, seen.scores) {
        (None, _) => kept,
        (Some(status), None) if status.needs_scores() => kept,
        (Some(status), _) if status.precedes_scores() => Some((status, None)),
        // A match that is still on does not lose its score because nobody told it.
        (Some(status @ (Status::Live | Status::Suspended)), None) => {
            let scores = kept.filter(|(before, _)| matches!(before, Status::Live | Status::Suspended));
            Some((status, scores.and_then(|(_, scores)| scores)))
        }
        (Some(status), scores) => Some((status, scores)),
    }
}

/// The same faults, saying by key which match they mean: its place among ours is not its place among the provider's.
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

/// Gives a provider's teams the slugs that they have here, and returns those that are new, as (id, slug).
///
/// A team keeps its slug whatever it is called later. A new one gets that of its name, and is thereby the team that is here
/// under it already; unless that is another team of the same provider, or plays another sport. Then the provider's id is
/// part of the slug.
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
            let note = format!("`{}` is called `{}` here, because `{other}` is another team", team.name, team.slug);
            reading.notes.push(note);
        } else if let Some(known) = known.filter(|known| known.name != team.name) {
            let note =
                format!("`{}` is taken for the team `{}` that is here as `{}`", team.name, team.slug, known.name);
            reading.notes.push(note);
        }
        taken.insert(team.slug.clone());
        claims.push((id.clone(), team.slug.clone()));
    }
    claims
}

/// A slug made of a name: its letters in ASCII, and nothing else.
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

/// The slug of a club. Sources write `FC` or leave it out, in the same document too; it distinguishes nobody.
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

/// The key of a match, made of what tells it from all others.
pub(super) fn key(parts: &[&str]) -> String {
    shortened(&parts.join("-"), LONGEST_KEY)
}

/// What is too long is cut, and ends in a digest of the whole, so that it still differs from what is like it.
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

/// A venue as far as it can be shown; whatever else is wrong with it, the match matters more.
pub(super) fn venue(text: &str) -> Option<String> {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST_VENUE).collect();
    let plain = plain.trim();
    (!plain.is_empty()).then(|| plain.to_owned())
}

/// A picture's address, if it can be one.
pub(super) fn logo(text: &str) -> Option<String> {
    let fits = (1..=LONGEST_URL).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    let url = Url::parse(text).ok().filter(|url| fits && matches!(url.scheme(), "http" | "https"))?;
    url.has_host().then(|| text.to_owned())
}

/// A value of a provider's document, and where it stands. What is not there is null.
#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    pub(super) place: String,
    pub(super) value: &'a Value,
}

impl<'a> Field<'a> {
    /// The whole document.
    pub(super) fn root(value: &'a Value) -> Self {
        Self { place: String::new(), value }
    }

    /// A field of it.
    pub(super) fn get(&self, name: &str) -> Self {
        let place = if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) };
        Self { place, value: self.value.get(name).unwrap_or(&Value::Null) }
    }

    pub(super) fn fault(&self, problem: impl Into<String>, faults: &mut Vec<Fault>) {
        faults.push(Fault { place: self.place.clone(), problem: problem.into() });
    }

    /// Its items.
    pub(super) fn list(&self, faults: &mut Vec<Fault>) -> Vec<Self> {
        let Some(items) = self.value.as_array() else {
            self.fault(if self.value.is_null() { "is missing" } else { "must be a list" }, faults);
            return Vec::new();
        };
        items.iter().enumerate().map(|(at, value)| Self { place: format!("{}[{at}]", self.place), value }).collect()
    }

    /// A text; `None` if it is empty, null or not there.
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

    /// A text that must be there.
    pub(super) fn required_text(&self, faults: &mut Vec<Fault>) -> Option<&'a str> {
        let before = faults.len();
        let text = self.text(faults);
        if text.is_none() && faults.len() == before {
            self.fault("is missing", faults);
        }
        text
    }
}

/// As much of what a provider wrote as a line can hold.
pub(super) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(40).is_some() { format!("`{short}…`") } else { format!("`{short}`") }
}

/// The body as JSON.
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
    fn slugs_are_made_of_names() {
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
        assert_ne!(slug("!"), slug("?"), "what has no letters still differs");
        assert_ne!(slug(&"long ".repeat(30)), slug(&"long ".repeat(31)));
    }

    fn seen(status: Option<Status>, scores: Option<(i64, i64)>) -> MatchSeen {
        MatchSeen {
            key: "m".to_owned(),
            home: 0,
            away: 1,
            start_time: datetime!(2026-11-20 15:00 UTC),
            venue: None,
            status,
            scores,
        }
    }

    #[test]
    fn what_is_missing_leaves_a_match_as_it_was() {
        use Status::{Awarded, Cancelled, Finished, Live, Postponed, Scheduled, Suspended};
        let known = |status, scores| Some(KnownMatch { venue: String::new(), status, scores });
        let (live, over) = (known(Live, Some((1, 0))), known(Finished, Some((2, 1))));
        for (status, scores, known, expected) in [
            // Finished without a score.
            (Some(Finished), None, live.as_ref(), Some((Live, Some((1, 0))))),
            (Some(Finished), None, over.as_ref(), Some((Finished, Some((2, 1))))),
            (Some(Awarded), None, None, None),
            (Some(Finished), None, None, None),
            // A status that means nothing here.
            (None, Some((4, 4)), live.as_ref(), Some((Live, Some((1, 0))))),
            (None, None, None, None),
            // A score that cannot be.
            (Some(Scheduled), Some((0, 0)), None, Some((Scheduled, None))),
            (Some(Postponed), Some((1, 0)), live.as_ref(), Some((Postponed, None))),
            // A score that nobody told.
            (Some(Live), None, live.as_ref(), Some((Live, Some((1, 0))))),
            (Some(Suspended), None, live.as_ref(), Some((Suspended, Some((1, 0))))),
            (Some(Live), None, over.as_ref(), Some((Live, None))),
            (Some(Live), None, None, Some((Live, None))),
            // As it was told.
            (Some(Live), Some((1, 1)), live.as_ref(), Some((Live, Some((1, 1))))),
            (Some(Finished), Some((3, 1)), over.as_ref(), Some((Finished, Some((3, 1))))),
            (Some(Cancelled), None, over.as_ref(), Some((Cancelled, None))),
        ] {
            assert_eq!(state(&seen(status, scores), known), expected, "{status:?} {scores:?} over {known:?}");
        }
    }

    fn reading() -> Reading {
        let team = |slug: &str| TeamSeen { id: None, slug: slug.to_owned(), name: slug.to_owned(), logo: None };
        Reading {
            tournament: TournamentEntry { slug: "cup".to_owned(), name: "Cup".to_owned(), logo: None },
            teams: vec![team("rovers"), team("city")],
            matches: vec![seen(None, None), seen(Some(Status::Live), Some((1, 1_000)))],
            notes: Vec::new(),
        }
    }

    #[test]
    fn what_the_provider_does_not_say_stays() {
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
                KnownMatch { venue: "Park".to_owned(), status: Status::Live, scores: None },
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
        reading.teams[0].id = Some("57".to_owned());
        let Composed { document, .. } = compose(&reading, &known).expect("no faults");
        assert_eq!(document.teams[0].name, "rovers", "by its id, a team is called what its provider calls it");
    }

    #[test]
    fn teams_keep_their_slugs_and_share_none() {
        let team = |id: &str, name: &str| TeamSeen {
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
        `Rovers` is called `rovers_3` here, because `rovers` is another team
        `FC City` is called `city_4` here, because `city` is another team
        `Albion FC` is taken for the team `albion` that is here as `Albion`
        `Giants` is called `giants_6` here, because `giants` is another team
        ");
    }

    #[test]
    fn a_fault_names_its_match() {
        let faults = compose(&reading(), &Known::default()).expect_err("a thousand goals");
        let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["match m.away_score: must be a number of goals or null, not 1000"]);
    }

    proptest! {
        /// Whatever a name has in it, its slug is one that a document may have.
        #[test]
        fn every_name_has_a_slug(name in "\\PC{1,120}") {
            for slug in [slug(&name), team_slug(&name)] {
                prop_assert!((1..=LONGEST_SLUG).contains(&slug.len()), "{slug}");
                prop_assert!(slug.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{slug}");
                prop_assert!(!slug.starts_with('_') && !slug.ends_with('_'), "{slug}");
            }
        }

        #[test]
        fn every_key_fits_and_long_ones_differ(round in "[a-z_]{1,80}", home in "[a-z_]{60,63}", away in "[a-z_]{60,63}") {
            let one = key(&[&round, &home, &away]);
            prop_assert!(one.len() <= LONGEST_KEY);
            prop_assert_ne!(one, key(&[&round, &home, &format!("{away}x")]));
        }

        #[test]
        fn venues_and_logos_are_as_documents_want_them(text in ".{0,600}") {
            if let Some(venue) = venue(&text) {
                prop_assert!((1..=LONGEST_VENUE).contains(&venue.chars().count()));
                prop_assert!(!venue.chars().any(char::is_control));
            }
            let _ = logo(&text);
        }
    }
}
