//! Simulation of the demo in accelerated time: kick-offs, goals, results, corrected results, predictions and chat.
//! Everything takes the same path as in production: matches go through the importer, predictions through the batch
//! writers, messages through the homeserver.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use web::ids::UserId;

use super::{
    rules::{self, CHATTER, Dice, FANS, Happening, PLAYED_BEFORE, SHOUTS, TOURNAMENT},
    service::{Demo, came_too_late, join, say},
    store::{self, Stored},
};
use crate::catalogue::{
    fixtures::{
        document::Document,
        service::{Mode, Report},
    },
    matches::rules::Status,
};

/// Options of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Minutes of a match that pass in one minute.
    pub speed: u32,
    /// On fresh demo data, the same seed plays the same matches, predictions and chat messages.
    pub seed: u64,
    /// Number of matches to play.
    pub matches: usize,
}

/// Totals of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    pub matches: usize,
    /// Changes of a score, disallowed goals included.
    pub goals: usize,
    pub corrections: usize,
    pub predictions: usize,
    pub words: usize,
}

/// A match being simulated.
struct Pitch {
    entry: Stored,
    place: usize,
    names: (String, String),
    scores: (i32, i32),
    last_goal: Option<Happening>,
    /// Minute of the simulation in which the match starts.
    kick_off: u32,
    /// Minutes of the match played before the simulation started.
    played_before: u32,
    script: std::vec::IntoIter<(u32, Happening)>,
    next: Option<(u32, Happening)>,
    has_begun: bool,
}

/// Plays until the last match ends or until shutdown. `report` receives the match clock and a line for each incident.
pub async fn play(demo: &Demo, settings: Settings, report: impl Fn(&str, &str)) -> anyhow::Result<Played> {
    ensure!(demo.core.env.is_development(), "the simulation requires MATCHDAY_ENV local or testing");
    ensure!(settings.speed > 0, "--speed must be at least 1");
    let mut game = Game::prepare(demo, settings).await?;
    let minute = Duration::from_mins(1) / settings.speed;
    let began = tokio::time::Instant::now();
    for now in 0.. {
        tokio::select! {
            () = demo.shutdown.closing().cancelled() => break,
            // Sleep until a fixed schedule, so slow minutes are caught up.
            () = tokio::time::sleep_until(began + minute * now) => {}
        }
        if !game.minute(now, &report).await? {
            break;
        }
    }
    Ok(game.played)
}

struct Game<'a> {
    demo: &'a Demo,
    /// For predictions and chat. Each match has dice of its own.
    dice: Dice,
    document: Document,
    /// The fans of the demo; `None` for a fan who has another name now.
    fans: Vec<Option<UserId>>,
    /// Fans for whom the simulation does not act: the one whose login is printed, and those who have had a session since the
    /// simulation began, which only a person opens.
    people: HashSet<UserId>,
    pitches: Vec<Pitch>,
    to_come: Vec<Stored>,
    played: Played,
    said: u64,
}

impl<'a> Game<'a> {
    async fn prepare(demo: &'a Demo, settings: Settings) -> anyhow::Result<Self> {
        let now = demo.core.clock.now();
        let stored = store::matches(&demo.core.db, TOURNAMENT).await?;
        ensure!(!stored.is_empty(), "the database has no demo: run `matchday demo` first");
        let mut document = as_stored(rules::tournament(now, &demo.crests), &stored)?;
        // Stored questions stay as they are.
        document.questions.clear();
        let usernames = FANS.map(|(username, _)| username);
        let found = store::fans(&demo.core.db, &usernames).await?;
        let fans = usernames.iter().map(|username| found.get(*username).copied()).collect();
        let mut pitches = Vec::new();
        let open = |entry: &&Stored| matches!(entry.status, Status::Live | Status::Scheduled);
        for (number, entry) in stored.iter().filter(open).take(settings.matches).enumerate() {
            let place = document.matches.iter().position(|other| other.key == entry.key).context("a match")?;
            let names = {
                let of = &document.matches[place];
                (document.teams[of.home].name.clone(), document.teams[of.away].name.clone())
            };
            let has_begun = entry.status == Status::Live;
            // Not the time since the start, because the script must not depend on the time of day.
            let from = if has_begun { PLAYED_BEFORE } else { 0 };
            let mut script = rules::script(&mut Dice::of(settings.seed, &entry.key), from).into_iter();
            pitches.push(Pitch {
                place,
                names,
                scores: entry.scores.unwrap_or_default(),
                last_goal: None,
                // Live matches continue immediately; scheduled ones start 15 minutes apart.
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
            "every match of the demo has ended: run `matchday demo` on an empty database to start again"
        );
        let playing: Vec<_> = pitches.iter().map(|pitch| pitch.entry.id).collect();
        let to_come =
            stored.into_iter().filter(|entry| entry.status == Status::Scheduled && !playing.contains(&entry.id));
        Ok(Self {
            demo,
            dice: Dice::new(settings.seed),
            document,
            fans,
            people: HashSet::new(),
            to_come: to_come.collect(),
            pitches,
            played: Played::default(),
            said: u64::try_from(now.unix_timestamp()).unwrap_or_default() * 1_000,
        })
    }

    /// Plays one minute; returns whether the simulation continues.
    async fn minute(&mut self, now: u32, report: &impl Fn(&str, &str)) -> anyhow::Result<bool> {
        let mut continues = false;
        self.find_people().await?;
        for number in 0..self.pitches.len() {
            if now < self.pitches[number].kick_off {
                continues = true;
                self.predict(number).await?;
                continue;
            }
            if !self.pitches[number].has_begun {
                self.kick_off(number).await?;
                let (home, away) = &self.pitches[number].names;
                report(&rules::match_clock(0), &format!("kick-off: {home} – {away}"));
            }
            let played = self.pitches[number].played_before + now - self.pitches[number].kick_off;
            while let Some((minute, happening)) = self.pitches[number].next.filter(|(minute, _)| *minute <= played) {
                let line = self.happen(number, happening).await?;
                report(&rules::match_clock(minute), &line);
                self.pitches[number].next = self.pitches[number].script.next();
            }
            continues |= self.pitches[number].next.is_some();
        }
        self.chatter().await?;
        Ok(continues)
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
            Happening::GoalTakenBack => "disallowed",
            Happening::FullTime => "full time",
            Happening::Corrected => "corrected",
        };
        let line = format!("{what}: {} {} – {} {}", pitch.names.0, pitch.scores.0, pitch.scores.1, pitch.names.1);
        self.write().await?;
        match happening {
            Happening::HomeGoal | Happening::AwayGoal | Happening::GoalTakenBack => {
                self.played.goals += 1;
                self.speak(number, &SHOUTS).await;
            }
            Happening::FullTime => self.played.matches += 1,
            Happening::Corrected => self.played.corrections += 1,
        }
        Ok(line)
    }

    async fn write(&self) -> anyhow::Result<Report> {
        Ok(self.demo.fixtures.import(&self.document, Mode::Write, |_| {}).await?)
    }

    async fn find_people(&mut self) -> anyhow::Result<()> {
        let fans: Vec<i64> = self.fans.iter().flatten().map(|fan| fan.0).collect();
        let first = self.fans.first().copied().flatten();
        self.people.extend(store::with_session(&self.demo.core.db, &fans).await?.into_iter().chain(first));
        Ok(())
    }

    /// Picks a random fan; `None` if a person uses the account. The next picks are the same in both cases.
    fn pick_fan(&mut self) -> Option<UserId> {
        self.dice.pick(&self.fans).copied().flatten().filter(|fan| !self.people.contains(fan))
    }

    /// Lets fans predict this match, which has not started, and one later match.
    async fn predict(&mut self, number: usize) -> anyhow::Result<()> {
        let mut wanted = vec![self.pitches[number].entry.id];
        wanted.extend(self.dice.pick(&self.to_come).map(|entry| entry.id));
        for event in wanted {
            let (fan, forecast) = (self.pick_fan(), rules::forecast(&mut self.dice));
            let (Some(fan), Some(forecast)) = (fan, forecast) else { continue };
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

    /// Sends a chat message from a random fan to a match room. A failure is only logged: the simulation does not need
    /// chat.
    async fn speak(&mut self, number: usize, words: &[&'static str]) {
        let (fan, words) = (self.pick_fan(), self.dice.pick(words).copied());
        let (Some(fan), Some(words)) = (fan, words) else { return };
        self.said += 1;
        let (entry, id) = (&self.pitches[number].entry, format!("simulation-{}", self.said));
        let said = async {
            join(self.demo, fan, entry).await?;
            say(self.demo, fan, entry, &id, words).await
        };
        match said.await {
            Ok(()) => self.played.words += 1,
            Err(error) => tracing::debug!(error = %format_args!("{error:#}"), "chat message not sent"),
        }
    }
}

/// Updates the tournament with the status, score and start of each match in the database.
fn as_stored(mut document: Document, stored: &[Stored]) -> anyhow::Result<Document> {
    let by_key: HashMap<&str, &Stored> = stored.iter().map(|entry| (entry.key.as_str(), entry)).collect();
    for entry in &mut document.matches {
        let is = by_key.get(entry.key.as_str()).with_context(|| format!("the demo has no match {}", entry.key))?;
        (entry.status, entry.scores, entry.start_time) = (is.status, is.scores, is.start_time);
    }
    Ok(document)
}
