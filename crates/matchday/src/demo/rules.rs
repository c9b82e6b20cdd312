//! Teams, fans, schedule and match scripts of the demo; no I/O.

use scoring::{Confidence, Forecast, Pick, Score};
use time::{Duration, OffsetDateTime};

use crate::catalogue::{
    fixtures::document::{
        Document, EntryDetails, MatchEntry, NumberScoring, QuestionEntry, QuestionKind, SportEntry, TeamEntry,
        TournamentEntry,
    },
    matches::rules::Status,
};

/// Slug of the demo's tournament.
pub const TOURNAMENT: &str = "lantern_cup";

/// Teams: slug, name, founding year and venue.
const TEAMS: [(&str, &str, i32, &str); 8] = [
    ("harbour_united", "Harbour United", 1897, "Pier Ground"),
    ("mill_lane", "Mill Lane", 1904, "The Weir"),
    ("northgate_rovers", "Northgate Rovers", 1888, "Northgate Park"),
    ("old_quay", "Old Quay", 1911, "Ropewalk"),
    ("saltmarsh_athletic", "Saltmarsh Athletic", 1923, "The Flats"),
    ("tannery_wanderers", "Tannery Wanderers", 1893, "Bark Street"),
    ("windmill_city", "Windmill City", 1950, "Sailors' Field"),
    ("foundry_town", "Foundry Town", 1901, "Anvil Road"),
];

/// Fans: username and name. The demo's login belongs to the first one.
pub const FANS: [(&str, &str); 24] = [
    ("mara.lind", "Mara Lind"),
    ("otto.brandt", "Otto Brandt"),
    ("ines.duarte", "Inês Duarte"),
    ("tomas.kral", "Tomáš Král"),
    ("ayla.demir", "Ayla Demir"),
    ("jonas.berg", "Jonas Berg"),
    ("noor.haddad", "Noor Haddad"),
    ("luca.ferri", "Luca Ferri"),
    ("wanjiru.k", "Wanjiru Kamau"),
    ("pia.holm", "Pia Holm"),
    ("diego.ruiz", "Diego Ruiz"),
    ("sanna.virta", "Sanna Virta"),
    ("kofi.asante", "Kofi Asante"),
    ("elena.popa", "Elena Popa"),
    ("hugo.morel", "Hugo Morel"),
    ("yuki.tanabe", "Yuki Tanabe"),
    ("zofia.nowak", "Zofia Nowak"),
    ("sam.okoro", "Sam Okoro"),
    ("freya.dahl", "Freya Dahl"),
    ("ravi.menon", "Ravi Menon"),
    ("lena.vogt", "Lena Vogt"),
    ("mateus.s", "Mateus Silva"),
    ("aoife.byrne", "Aoife Byrne"),
    ("nils.aker", "Nils Aker"),
];

/// A match of the demo: home and away as indexes into `TEAMS`, start relative to now, and the score if it is live or
/// finished.
struct Fixture {
    key: &'static str,
    home: usize,
    away: usize,
    starts: Duration,
    status: Status,
    scores: Option<(i32, i32)>,
}

impl Fixture {
    /// Number of the round, which is part of the key.
    fn round(&self) -> Option<i16> {
        self.key.split('-').nth(1)?.parse().ok()
    }
}

const fn fixture(
    key: &'static str,
    (home, away): (usize, usize),
    starts: Duration,
    status: Status,
    scores: Option<(i32, i32)>,
) -> Fixture {
    Fixture { key, home, away, starts, status, scores }
}

/// Minutes of the live match that were played before the demo began.
pub const PLAYED_BEFORE: u32 = 25;

/// Three rounds: finished, live, and scheduled.
fn fixtures() -> [Fixture; 12] {
    use Status::{Finished, Live, Scheduled};
    let (days, hours, minutes) = (Duration::days, Duration::hours, Duration::minutes);
    [
        fixture("round-1-1", (0, 1), days(-3) - hours(2), Finished, Some((2, 1))),
        fixture("round-1-2", (2, 3), days(-3), Finished, Some((0, 0))),
        fixture("round-1-3", (4, 5), days(-2) - hours(2), Finished, Some((1, 3))),
        fixture("round-1-4", (6, 7), days(-2), Finished, Some((2, 2))),
        fixture("round-2-1", (1, 2), minutes(-i64::from(PLAYED_BEFORE)), Live, Some((1, 0))),
        fixture("round-2-2", (3, 0), minutes(40), Scheduled, None),
        fixture("round-2-3", (5, 6), hours(3), Scheduled, None),
        fixture("round-2-4", (7, 4), days(1), Scheduled, None),
        fixture("round-3-1", (0, 2), days(3), Scheduled, None),
        fixture("round-3-2", (1, 3), days(3) + hours(2), Scheduled, None),
        fixture("round-3-3", (4, 6), days(4), Scheduled, None),
        fixture("round-3-4", (5, 7), days(4) + hours(2), Scheduled, None),
    ]
}

/// Two questions that lock before the last round.
fn questions(now: OffsetDateTime) -> Vec<QuestionEntry> {
    let question = |key: &str, text: &str, kind, scoring, round, points| QuestionEntry {
        key: key.to_owned(),
        text: text.to_owned(),
        kind,
        options: Vec::new(),
        pick: None,
        scoring,
        points,
        match_key: None,
        round,
        opens_at: None,
        locks_at: Some(now + Duration::days(3)),
        resolution: None,
        is_void: false,
    };
    vec![
        question("champion", "Who wins the Lantern Cup?", QuestionKind::Team, None, None, 50),
        question(
            "goals",
            "How many goals are scored in round 3?",
            QuestionKind::Number,
            Some(NumberScoring::Nearest),
            Some(3),
            25,
        ),
    ]
}

/// Builds the tournament relative to `now`. `crests` is the base URL of the crests.
pub fn tournament(now: OffsetDateTime, crests: &str) -> Document {
    let now = now.replace_second(0).and_then(|now| now.replace_nanosecond(0)).unwrap_or(now);
    let teams = TEAMS
        .iter()
        .map(|&(slug, name, founded, _)| TeamEntry {
            slug: slug.to_owned(),
            name: name.to_owned(),
            country: Some("Lanternia".to_owned()),
            founded: Some(founded),
            logo: Some(format!("{crests}/{slug}.svg")),
        })
        .collect();
    let matches = fixtures()
        .into_iter()
        .map(|fixture| MatchEntry {
            key: fixture.key.to_owned(),
            home: fixture.home,
            away: fixture.away,
            start_time: now + fixture.starts,
            venue: TEAMS[fixture.home].3.to_owned(),
            status: fixture.status,
            scores: fixture.scores,
            details: EntryDetails { round: fixture.round(), ..EntryDetails::default() },
        })
        .collect();
    Document {
        sport: SportEntry { slug: "football".to_owned(), name: "Football".to_owned(), ..SportEntry::default() },
        tournament: TournamentEntry {
            slug: TOURNAMENT.to_owned(),
            name: "Lantern Cup".to_owned(),
            logo: Some(format!("{crests}/{TOURNAMENT}.svg")),
            rule_set: None,
        },
        rule_sets: Vec::new(),
        teams,
        matches,
        questions: questions(now),
    }
}

/// The same tournament with every match scheduled, so all of them can be predicted.
pub fn all_scheduled(document: &Document, now: OffsetDateTime) -> Document {
    let mut before = document.clone();
    for entry in &mut before.matches {
        if entry.status != Status::Scheduled {
            (entry.status, entry.scores) = (Status::Scheduled, None);
            entry.start_time = now + Duration::hours(1);
        }
    }
    before
}

/// Pseudorandom numbers from a seed, so a simulation is repeatable.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice of one subject. They do not depend on how often those of other subjects were rolled.
    pub fn of(seed: u64, subject: &str) -> Self {
        subject.bytes().fold(Self(seed), |mut dice, byte| Self(dice.roll(u64::MAX).wrapping_add(byte.into())))
    }

    /// Next number below `sides`, from `SplitMix64`. Not suitable for secrets.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides.max(1)
    }

    /// Picks a random element.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> Option<&'a T> {
        let place = self.roll(things.len() as u64);
        things.get(usize::try_from(place).unwrap_or_default())
    }

    fn number(&mut self, sides: u64) -> i64 {
        i64::try_from(self.roll(sides)).unwrap_or_default()
    }
}

/// Generates a random forecast.
pub fn forecast(dice: &mut Dice) -> Option<Forecast> {
    let (home, away) = (dice.number(4), dice.number(3));
    let pick = Pick::of(i32::try_from(home).ok()?, i32::try_from(away).ok()?);
    let score = if dice.roll(3) == 0 { None } else { Score::new(home, away) };
    Forecast::new(pick, score, Confidence::new(dice.number(11) * 10)?)
}

/// An incident in a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    HomeGoal,
    AwayGoal,
    /// The last goal is disallowed.
    GoalTakenBack,
    FullTime,
    /// The final result is corrected by one goal.
    Corrected,
}

/// Generates the incidents of a match after `from_minute`, as (minute, incident) in order.
pub fn script(dice: &mut Dice, from_minute: u32) -> Vec<(u32, Happening)> {
    let mut script = Vec::new();
    let mut goals = 0;
    for minute in (from_minute + 1)..90 {
        // Yields about three goals per match.
        match dice.roll(100) {
            0..2 => {
                goals += 1;
                script.push((minute, Happening::HomeGoal));
            }
            2 => {
                goals += 1;
                script.push((minute, Happening::AwayGoal));
            }
            3 if goals > 0
                && dice.roll(6) == 0
                && matches!(script.last(), Some((_, Happening::HomeGoal | Happening::AwayGoal))) =>
            {
                script.push((minute, Happening::GoalTakenBack));
            }
            _ => {}
        }
    }
    script.push((90 + u32::try_from(dice.roll(6)).unwrap_or_default(), Happening::FullTime));
    if dice.roll(4) == 0 {
        script.push((AFTER_THE_MATCH, Happening::Corrected));
    }
    script
}

/// Minute in which a wrong result is corrected.
const AFTER_THE_MATCH: u32 = 100;

/// Formats a minute: `45'`, `90+3'` in stoppage time, `FT` after the match.
pub fn match_clock(minute: u32) -> String {
    match minute {
        0..=90 => format!("{minute}'"),
        AFTER_THE_MATCH.. => "FT".to_owned(),
        _ => format!("90+{}'", minute - 90),
    }
}

/// Score after an incident.
pub fn after(scores: (i32, i32), happening: Happening, last_goal: Option<Happening>) -> (i32, i32) {
    match happening {
        Happening::HomeGoal | Happening::Corrected => (scores.0 + 1, scores.1),
        Happening::AwayGoal => (scores.0, scores.1 + 1),
        Happening::GoalTakenBack if last_goal == Some(Happening::AwayGoal) => (scores.0, (scores.1 - 1).max(0)),
        Happening::GoalTakenBack => ((scores.0 - 1).max(0), scores.1),
        Happening::FullTime => scores,
    }
}

/// Chat messages after a goal.
pub const SHOUTS: [&str; 8] = [
    "What a goal!",
    "I said so. I said so!",
    "Offside, surely?",
    "My prediction is still alive",
    "Come on!",
    "That keeper though",
    "One more and I have the exact score",
    "I can't watch",
];

/// Chat messages at other times.
pub const CHATTER: [&str; 8] = [
    "Anyone else going for a draw?",
    "Line-ups are out",
    "90% sure of this one",
    "Never bet against the home side here",
    "Who is watching from the pier?",
    "Streak day seven, by the way",
    "That leaderboard is getting tight",
    "First time here, hello everybody",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    proptest! {
        #[test]
        fn match_ends_once_with_non_negative_score(seed: u64, from in 0_u32..80) {
            let script = script(&mut Dice::new(seed), from);
            prop_assert!(script.is_sorted_by_key(|(minute, _)| *minute));
            prop_assert_eq!(script.iter().filter(|(_, happening)| *happening == Happening::FullTime).count(), 1);
            let (mut scores, mut last) = ((0, 0), None);
            for (_, happening) in script {
                let next = after(scores, happening, last);
                prop_assert!(next.0 >= 0 && next.1 >= 0);
                if matches!(happening, Happening::HomeGoal | Happening::AwayGoal) {
                    prop_assert_eq!(next.0 + next.1, scores.0 + scores.1 + 1);
                    last = Some(happening);
                }
                scores = next;
            }
        }

        #[test]
        fn match_clock_stops_at_five_minutes_of_stoppage_time(seed: u64, from in 0_u32..80) {
            for (minute, happening) in script(&mut Dice::new(seed), from) {
                let clock = match_clock(minute);
                let regular = clock.trim_end_matches('\'').parse::<u32>().is_ok_and(|minute| minute <= 90);
                let stoppage = ["90+1'", "90+2'", "90+3'", "90+4'", "90+5'"].contains(&clock.as_str());
                match happening {
                    Happening::Corrected => prop_assert_eq!(clock, "FT"),
                    Happening::FullTime => prop_assert!(stoppage || clock == "90'", "{}", clock),
                    _ => prop_assert!(regular, "{}", clock),
                }
            }
        }

        #[test]
        fn forecast_is_always_valid(seed: u64) {
            prop_assert!(forecast(&mut Dice::new(seed)).is_some());
        }
    }

    #[test]
    fn tournament_is_relative_to_now() {
        let now = datetime!(2031-02-28 23:59:59 UTC);
        let document = tournament(now, "http://127.0.0.1:8080/demo/crests");
        let of = |status| document.matches.iter().filter(move |entry| entry.status == status).collect::<Vec<_>>();
        assert!(of(Status::Finished).iter().all(|entry| entry.start_time < now && entry.scores.is_some()));
        assert!(of(Status::Live).iter().all(|entry| entry.start_time < now));
        assert!(of(Status::Scheduled).iter().all(|entry| entry.start_time > now && entry.scores.is_none()));
        let before = all_scheduled(&document, now);
        assert!(before.matches.iter().all(|entry| entry.status == Status::Scheduled && entry.start_time > now));
    }
}
