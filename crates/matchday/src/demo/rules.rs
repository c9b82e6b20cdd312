//! Who is in the demo, when they play, and how a match goes; no I/O.

use scoring::{Confidence, Forecast, Pick, Score};
use time::{Duration, OffsetDateTime};

use crate::{
    events::rules::Status,
    fixtures::document::{Document, MatchEntry, SportEntry, TeamEntry, TournamentEntry},
};

/// What the tournament is known by.
pub const TOURNAMENT: &str = "lantern_cup";

/// Teams: slug, name, year, and where they play.
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

/// Fans: username and name. The first is the one to log in as.
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

/// A match of the demo: home and away by place in `TEAMS`, when it starts relative to now, and its score if it is over or
/// under way.
struct Fixture {
    key: &'static str,
    home: usize,
    away: usize,
    starts: Duration,
    status: Status,
    scores: Option<(i32, i32)>,
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

/// A round that is over, one that is being played, and one to come.
fn fixtures() -> [Fixture; 12] {
    use Status::{Finished, Live, Scheduled};
    let (days, hours, minutes) = (Duration::days, Duration::hours, Duration::minutes);
    [
        fixture("round-1-1", (0, 1), days(-3) - hours(2), Finished, Some((2, 1))),
        fixture("round-1-2", (2, 3), days(-3), Finished, Some((0, 0))),
        fixture("round-1-3", (4, 5), days(-2) - hours(2), Finished, Some((1, 3))),
        fixture("round-1-4", (6, 7), days(-2), Finished, Some((2, 2))),
        fixture("round-2-1", (1, 2), minutes(-25), Live, Some((1, 0))),
        fixture("round-2-2", (3, 0), minutes(40), Scheduled, None),
        fixture("round-2-3", (5, 6), hours(3), Scheduled, None),
        fixture("round-2-4", (7, 4), days(1), Scheduled, None),
        fixture("round-3-1", (0, 2), days(3), Scheduled, None),
        fixture("round-3-2", (1, 3), days(3) + hours(2), Scheduled, None),
        fixture("round-3-3", (4, 6), days(4), Scheduled, None),
        fixture("round-3-4", (5, 7), days(4) + hours(2), Scheduled, None),
    ]
}

/// The tournament as it stands at a moment. `crests` is where the service draws them.
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
        })
        .collect();
    Document {
        sport: SportEntry { slug: "football".to_owned(), name: "Football".to_owned() },
        tournament: TournamentEntry {
            slug: TOURNAMENT.to_owned(),
            name: "Lantern Cup".to_owned(),
            logo: Some(format!("{crests}/{TOURNAMENT}.svg")),
        },
        teams,
        matches,
    }
}

/// The same before anybody has played: so that it can be predicted.
pub fn before_the_first_whistle(document: &Document, now: OffsetDateTime) -> Document {
    let mut before = document.clone();
    for entry in &mut before.matches {
        if entry.status != Status::Scheduled {
            (entry.status, entry.scores) = (Status::Scheduled, None);
            entry.start_time = now + Duration::hours(1);
        }
    }
    before
}

/// Numbers that look thrown but are the same for the same seed: a simulation that can be repeated.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that fall this way.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number below `sides`. (`SplitMix64`; nothing here is a secret.)
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides.max(1)
    }

    /// One of some things.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> Option<&'a T> {
        let place = self.roll(things.len() as u64);
        things.get(usize::try_from(place).unwrap_or_default())
    }

    fn number(&mut self, sides: u64) -> i64 {
        i64::try_from(self.roll(sides)).unwrap_or_default()
    }
}

/// What a fan would say of a match.
pub fn forecast(dice: &mut Dice) -> Option<Forecast> {
    let (home, away) = (dice.number(4), dice.number(3));
    let pick = Pick::of(i32::try_from(home).ok()?, i32::try_from(away).ok()?);
    let score = if dice.roll(3) == 0 { None } else { Score::new(home, away) };
    Forecast::new(pick, score, Confidence::new(dice.number(11) * 10)?)
}

/// Something that happens in a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The home team scores.
    HomeGoal,
    /// The away team scores.
    AwayGoal,
    /// The last goal is taken back.
    GoalTakenBack,
    /// It is over.
    FullTime,
    /// The result was wrong by a goal.
    Corrected,
}

/// A match as it will go: (minute, what happens), in order, from this minute on.
pub fn script(dice: &mut Dice, from_minute: u32) -> Vec<(u32, Happening)> {
    let mut script = Vec::new();
    let mut goals = 0;
    for minute in (from_minute + 1)..90 {
        // About three goals a match.
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

/// The minute at which a wrong result is corrected.
const AFTER_THE_MATCH: u32 = 100;

/// A minute of a match as it is shown: stoppage time is `90+3'`, and after the match it is `FT`.
pub fn match_clock(minute: u32) -> String {
    match minute {
        0..=90 => format!("{minute}'"),
        AFTER_THE_MATCH.. => "FT".to_owned(),
        _ => format!("90+{}'", minute - 90),
    }
}

/// What the score is after that.
pub fn after(scores: (i32, i32), happening: Happening, last_goal: Option<Happening>) -> (i32, i32) {
    match happening {
        Happening::HomeGoal | Happening::Corrected => (scores.0 + 1, scores.1),
        Happening::AwayGoal => (scores.0, scores.1 + 1),
        Happening::GoalTakenBack if last_goal == Some(Happening::AwayGoal) => (scores.0, (scores.1 - 1).max(0)),
        Happening::GoalTakenBack => ((scores.0 - 1).max(0), scores.1),
        Happening::FullTime => scores,
    }
}

/// What fans shout.
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

/// What fans say while they wait.
pub const CHATTER: [&str; 8] = [
    "Anyone else going for a draw?",
    "Line-ups are out",
    "90 % sure of this one",
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
        fn a_match_ends_once_and_never_has_less_than_no_goals(seed: u64, from in 0_u32..80) {
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
        fn every_fan_has_an_opinion(seed: u64) {
            prop_assert!(forecast(&mut Dice::new(seed)).is_some());
        }
    }

    #[test]
    fn the_tournament_is_always_around_now() {
        let now = datetime!(2031-02-28 23:59:59 UTC);
        let document = tournament(now, "http://127.0.0.1:8080/demo/crests");
        let of = |status| document.matches.iter().filter(move |entry| entry.status == status).collect::<Vec<_>>();
        assert!(of(Status::Finished).iter().all(|entry| entry.start_time < now && entry.scores.is_some()));
        assert!(of(Status::Live).iter().all(|entry| entry.start_time < now));
        assert!(of(Status::Scheduled).iter().all(|entry| entry.start_time > now && entry.scores.is_none()));
        let before = before_the_first_whistle(&document, now);
        assert!(before.matches.iter().all(|entry| entry.status == Status::Scheduled && entry.start_time > now));
    }
}
