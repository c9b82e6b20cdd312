//! Playing the demo: time runs faster, goals fall, whistles blow, fans predict and talk, and now and then a result was
//! wrong. Everything goes the way it goes in earnest: matches through the importer, predictions through their writers, words
//! through the homeserver.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context as _, ensure};
use time::OffsetDateTime;
use web::ids::UserId;

use super::{
    rules::{self, CHATTER, Dice, FANS, Happening, SHOUTS, TOURNAMENT},
    service::{Demo, came_too_late, join, say},
    store::{self, Stored},
};
use crate::{
    events::rules::Status,
    fixtures::{
        document::Document,
        service::{Mode, Report},
    },
};

/// How the demo is played.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many of its minutes pass in a minute.
    pub speed: u32,
    /// The same seed plays the same matches.
    pub seed: u64,
    /// How many matches are played.
    pub matches: usize,
}

/// What was played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// How many matches.
    pub matches: usize,
    /// How many goals were written, taken back ones included.
    pub goals: usize,
    /// How many results were corrected.
    pub corrections: usize,
    /// How many predictions were made.
    pub predictions: usize,
    /// How many words were said.
    pub words: usize,
}

/// A match on the pitch.
struct Pitch {
    entry: Stored,
    place: usize,
    names: (String, String),
    scores: (i32, i32),
    last_goal: Option<Happening>,
    /// In minutes of the simulation.
    kick_off: u32,
    /// Minutes of the match that were played before the simulation.
    played_before: u32,
    script: std::vec::IntoIter<(u32, Happening)>,
    next: Option<(u32, Happening)>,
    has_begun: bool,
}

/// Plays until the last whistle, or until told to end. `tell` is called with the match's clock and what
/// happens.
pub async fn play(demo: &Demo, settings: Settings, tell: impl Fn(&str, &str)) -> anyhow::Result<Played> {
    ensure!(demo.core.env.is_development(), "the simulation is for MATCHDAY_ENV local or testing");
    ensure!(settings.speed > 0, "--speed must be at least 1");
    let mut game = Game::prepare(demo, settings).await?;
    let minute = Duration::from_mins(1) / settings.speed;
    let began = tokio::time::Instant::now();
    for now in 0.. {
        tokio::select! {
            () = demo.shutdown.closing().cancelled() => break,
            // By the timetable, not after each other's work: what took long is caught up with.
            () = tokio::time::sleep_until(began + minute * now) => {}
        }
        if !game.minute(now, &tell).await? {
            break;
        }
    }
    Ok(game.played)
}

struct Game<'a> {
    demo: &'a Demo,
    dice: Dice,
    document: Document,
    fans: Vec<UserId>,
    pitches: Vec<Pitch>,
    to_come: Vec<Stored>,
    played: Played,
    said: u64,
}

impl<'a> Game<'a> {
    async fn prepare(demo: &'a Demo, settings: Settings) -> anyhow::Result<Self> {
        let now = demo.core.clock.now();
        let stored = store::matches(&demo.core.db, TOURNAMENT).await?;
        ensure!(!stored.is_empty(), "there is no demo here: run `matchday demo` first");
        let document = as_stored(rules::tournament(now, &demo.crests), &stored)?;
        let usernames = FANS.map(|(username, _)| username);
        let found = store::fans(&demo.core.db, &usernames).await?;
        let fans = usernames.iter().filter_map(|username| found.get(*username).copied()).collect();
        let mut dice = Dice::new(settings.seed);
        let mut pitches = Vec::new();
        let open = |entry: &&Stored| matches!(entry.status, Status::Live | Status::Scheduled);
        for (number, entry) in stored.iter().filter(open).take(settings.matches).enumerate() {
            let place = document.matches.iter().position(|other| other.key == entry.key).context("a match")?;
            let names = {
                let of = &document.matches[place];
                (document.teams[of.home].name.clone(), document.teams[of.away].name.clone())
            };
            let has_begun = entry.status == Status::Live;
            let from = if has_begun { minutes_since(entry.start_time, now).min(60) } else { 0 };
            let mut script = rules::script(&mut dice, from).into_iter();
            pitches.push(Pitch {
                place,
                names,
                scores: entry.scores.unwrap_or_default(),
                last_goal: None,
                // What has begun goes on at once, the others follow one after the other.
                kick_off: if has_begun { 0 } else { 10 + 15 * u32::try_from(number).unwrap_or_default() },
                played_before: from,
                next: script.next(),
                script,
                has_begun,
                entry: entry.clone(),
            });
        }
        ensure!(
            !pitches.is_empty(),
            "every match of the demo is over: begin anew with an empty database and `matchday demo`"
        );
        let playing: Vec<_> = pitches.iter().map(|pitch| pitch.entry.id).collect();
        let to_come =
            stored.into_iter().filter(|entry| entry.status == Status::Scheduled && !playing.contains(&entry.id));
        Ok(Self {
            demo,
            dice,
            document,
            fans,
            to_come: to_come.collect(),
            pitches,
            played: Played::default(),
            said: u64::try_from(now.unix_timestamp()).unwrap_or_default() * 1_000,
        })
    }

    /// One minute; returns whether there is another.
    async fn minute(&mut self, now: u32, tell: &impl Fn(&str, &str)) -> anyhow::Result<bool> {
        let mut goes_on = false;
        for number in 0..self.pitches.len() {
            if now < self.pitches[number].kick_off {
                goes_on = true;
                self.predict(number).await?;
                continue;
            }
            if !self.pitches[number].has_begun {
                self.kick_off(number).await?;
                let (home, away) = &self.pitches[number].names;
                tell(&rules::match_clock(0), &format!("kick-off: {home} – {away}"));
            }
            let played = self.pitches[number].played_before + now - self.pitches[number].kick_off;
            while let Some((minute, happening)) = self.pitches[number].next.filter(|(minute, _)| *minute <= played) {
                let told = self.happen(number, happening).await?;
                tell(&rules::match_clock(minute), &told);
                self.pitches[number].next = self.pitches[number].script.next();
            }
            goes_on |= self.pitches[number].next.is_some();
        }
        self.chatter().await?;
        Ok(goes_on)
    }

    async fn kick_off(&mut self, number: usize) -> anyhow::Result<()> {
        let now = self.demo.core.clock.now();
        let pitch = &mut self.pitches[number];
        pitch.has_begun = true;
        let entry = &mut self.document.matches[pitch.place];
        (entry.status, entry.scores, entry.start_time) = (Status::Live, Some((0, 0)), now);
        self.write().await.map(|_| ())
    }

    async fn happen(&mut self, number: usize, happening: Happening) -> anyhow::Result<String> {
        let pitch = &mut self.pitches[number];
        pitch.scores = rules::after(pitch.scores, happening, pitch.last_goal);
        if matches!(happening, Happening::HomeGoal | Happening::AwayGoal) {
            pitch.last_goal = Some(happening);
        }
        let entry = &mut self.document.matches[pitch.place];
        entry.scores = Some(pitch.scores);
        if happening == Happening::FullTime {
            entry.status = Status::Finished;
        }
        let what = match happening {
            Happening::HomeGoal | Happening::AwayGoal => "goal",
            Happening::GoalTakenBack => "taken back",
            Happening::FullTime => "full time",
            Happening::Corrected => "corrected",
        };
        let told = format!("{what}: {} {} – {} {}", pitch.names.0, pitch.scores.0, pitch.scores.1, pitch.names.1);
        self.write().await?;
        match happening {
            Happening::HomeGoal | Happening::AwayGoal | Happening::GoalTakenBack => {
                self.played.goals += 1;
                self.speak(number, &SHOUTS).await;
            }
            Happening::FullTime => self.played.matches += 1,
            Happening::Corrected => self.played.corrections += 1,
        }
        Ok(told)
    }

    async fn write(&self) -> anyhow::Result<Report> {
        Ok(self.demo.fixtures.import(&self.document, Mode::Write, |_| {}).await?)
    }

    /// A fan has an opinion of a match that has not begun.
    async fn predict(&mut self, number: usize) -> anyhow::Result<()> {
        let mut wanted = vec![self.pitches[number].entry.id];
        wanted.extend(self.dice.pick(&self.to_come).map(|entry| entry.id));
        for event in wanted {
            let (Some(&fan), Some(forecast)) = (self.dice.pick(&self.fans), rules::forecast(&mut self.dice)) else {
                continue;
            };
            match self.demo.predictions.save(fan, event, forecast).await {
                Ok(_) => self.played.predictions += 1,
                Err(error) if came_too_late(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn chatter(&mut self) -> anyhow::Result<()> {
        if self.dice.roll(3) == 0 && !self.pitches.is_empty() {
            let number = usize::try_from(self.dice.roll(self.pitches.len() as u64)).unwrap_or_default();
            self.speak(number, &CHATTER).await;
        }
        Ok(())
    }

    /// Somebody says something in a match's room. Chat that is away keeps nobody from playing.
    async fn speak(&mut self, number: usize, words: &[&'static str]) {
        let (Some(&fan), Some(&words)) = (self.dice.pick(&self.fans), self.dice.pick(words)) else { return };
        self.said += 1;
        let (entry, id) = (&self.pitches[number].entry, format!("simulation-{}", self.said));
        let said = async {
            join(self.demo, fan, entry).await?;
            say(self.demo, fan, entry, &id, words).await
        };
        match said.await {
            Ok(()) => self.played.words += 1,
            Err(error) => tracing::debug!(error = %format_args!("{error:#}"), "a fan could not speak"),
        }
    }
}

/// The tournament as it stands in the database.
fn as_stored(mut document: Document, stored: &[Stored]) -> anyhow::Result<Document> {
    let by_key: HashMap<&str, &Stored> = stored.iter().map(|entry| (entry.key.as_str(), entry)).collect();
    for entry in &mut document.matches {
        let is = by_key.get(entry.key.as_str()).with_context(|| format!("the demo has no {} any more", entry.key))?;
        (entry.status, entry.scores, entry.start_time) = (is.status, is.scores, is.start_time);
    }
    Ok(document)
}

fn minutes_since(then: OffsetDateTime, now: OffsetDateTime) -> u32 {
    u32::try_from((now - then).whole_minutes()).unwrap_or_default()
}
