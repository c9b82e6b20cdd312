//! Filling an empty database.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail, ensure};
use matrix_appservice::OwnedRoomId;
use platform::{Core, clock::Clock, shutdown::Shutdown};
use serde_json::json;
use time::OffsetDateTime;
use web::{
    ClientNetwork,
    fields::{Change, FromJson as _},
    ids::{TeamId, UserId},
    paging::Paging,
};

use super::{
    rules::{self, CHATTER, Dice, FANS, TOURNAMENT},
    store::{self, Stored},
};
use crate::{
    accounts::{
        PersonName,
        service::{Accounts, ProfileChange},
    },
    chat::service::Chat,
    codes::{Subject, service::Codes},
    coins::{self, service::Coins},
    events::rules::Status,
    fixtures::service::{Fixtures, Mode},
    phone::Phone,
    predictions::service::{Predictions, SaveError},
    rooms::{
        RoomAddress,
        service::{RoomError, Rooms},
    },
    scores::service::Scores,
    sms::{
        service::{LogFilter, Sms},
        templates::Language,
    },
    teams::service::{TeamFilter, Teams},
    usernames::Username,
};

/// How many fans come to a room.
const IN_A_ROOM: usize = 8;
/// How long rooms and scores may take without getting on.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the demo is, for whoever wants to look at it.
#[derive(Clone, Debug)]
pub struct Filled {
    /// How many fans there are.
    pub fans: usize,
    /// How many matches.
    pub matches: usize,
    /// How many predictions were made.
    pub predictions: usize,
    /// How many rooms are open.
    pub rooms: usize,
    /// How many words were said in them.
    pub words: usize,
    /// Why nobody spoke, if that is so.
    pub silence: Option<String>,
    /// Whom to log in as.
    pub phone: String,
    /// With what, for five minutes.
    pub code: String,
}

/// The services that the demo uses as apps do.
pub struct Demo {
    pub core: Core,
    pub coins: coins::settings::Settings,
    /// The URL under which the service draws crests.
    pub crests: String,
    pub shutdown: Shutdown,
    pub accounts: Accounts,
    pub chat: Chat,
    pub codes: Codes,
    pub fixtures: Fixtures,
    pub predictions: Predictions,
    pub rooms: Rooms,
    pub scores: Scores,
    pub sms: Sms,
    pub teams: Teams,
}

/// A clock that shows another moment than now.
#[derive(Debug)]
struct ClockAt(OffsetDateTime);

impl Clock for ClockAt {
    fn now(&self) -> OffsetDateTime {
        self.0
    }
}

/// Fills an empty database; `tell` is called with what is being done. Workers must be running.
pub async fn fill(demo: &Demo, tell: impl Fn(&str)) -> anyhow::Result<Filled> {
    ensure!(
        demo.core.env.is_development(),
        "the demo is for MATCHDAY_ENV local or testing, not for {}",
        demo.core.env.name()
    );
    ensure!(!store::has_users(&demo.core.db).await?, "the database has users already; the demo wants an empty one");
    let (now, mut dice) = (demo.core.clock.now(), Dice::new(7));
    let document = rules::tournament(now, &demo.crests);

    tell("teams and matches");
    demo.fixtures.import(&rules::before_the_first_whistle(&document, now), Mode::Write, |_| {}).await?;
    let teams: Vec<TeamId> = {
        let (teams, _) = demo.teams.list(&TeamFilter { sport_id: None, search: None }, Paging::first(100)).await?;
        teams.into_iter().map(|team| team.id).collect()
    };
    tell("fans");
    let mut fans = Vec::new();
    for (number, (username, name)) in FANS.iter().enumerate() {
        let fan = register(demo, number, username, name).await.with_context(|| format!("the fan {username}"))?;
        if let Some(&team) = dice.pick(&teams) {
            demo.teams.save_primary(fan, team).await?;
        }
        fans.push(fan);
    }
    tell("predictions");
    let mut predictions = 0;
    let before = store::matches(&demo.core.db, TOURNAMENT).await?;
    for entry in &before {
        for &fan in &fans {
            // Not everybody has an opinion of everything, and the one to log in as has something left to do.
            let is_left_out = dice.roll(4) == 0 || (fan == fans[0] && entry.key.starts_with("round-3"));
            if is_left_out {
                continue;
            }
            if let Some(forecast) = rules::forecast(&mut dice) {
                demo.predictions.save(fan, entry.id, forecast).await?;
                predictions += 1;
            }
        }
    }
    tell("what has happened so far");
    for (entry, wanted) in before.iter().zip(&document.matches) {
        if wanted.status != Status::Scheduled {
            store::backdate(&demo.core.db, entry.id, wanted.start_time).await?;
        }
    }
    demo.fixtures.import(&document, Mode::Write, |_| {}).await?;
    streaks(demo, &fans, now).await?;

    tell("chat rooms on the homeserver");
    let rooms = if demo.chat.homeserver().is_some() { open_rooms(demo).await? } else { 0 };
    let (words, silence) = talk(demo, &fans, &mut dice, &tell).await?;
    tell("scores and leaderboards");
    until(demo, "the scores", async || Ok(demo.scores.in_progress().await?.is_empty())).await?;

    let phone = phone(0)?;
    let code = code(demo, &phone).await?;
    Ok(Filled {
        fans: fans.len(),
        matches: document.matches.len(),
        predictions,
        rooms,
        words,
        silence,
        phone: phone.as_str().to_owned(),
        code,
    })
}

/// Numbers that are nobody's.
fn phone(number: usize) -> anyhow::Result<Phone> {
    let text = format!("+155501001{number:02}");
    Phone::parse(&text).with_context(|| format!("{text} is no phone"))
}

async fn register(demo: &Demo, number: usize, username: &str, name: &str) -> anyhow::Result<UserId> {
    let username = Username::parse(username).context("a username")?;
    let mut tx = demo.core.db.begin().await?;
    let (account, _) = demo.accounts.find_or_make_in(&mut tx, &phone(number)?, Some(&username)).await?;
    tx.commit().await?;
    let named = ProfileChange {
        name: Change::Set(PersonName::from_json(&json!(name)).context("a name")?),
        email: Change::Keep,
        date_of_birth: Change::Keep,
        username: None,
    };
    demo.accounts.change(account.id, named).await?;
    Ok(account.id)
}

/// Some claim their coins every day.
async fn streaks(demo: &Demo, fans: &[UserId], now: OffsetDateTime) -> anyhow::Result<()> {
    for days_ago in (0..6).rev() {
        let clock = Arc::new(ClockAt(now - time::Duration::days(days_ago)));
        let coins = Coins::new(&demo.core.with_clock(clock), &demo.coins);
        for (number, &fan) in fans.iter().enumerate() {
            // The fan to log in as has not claimed today's yet.
            let claims = i64::try_from(number % 7).unwrap_or_default() >= days_ago && !(number == 0 && days_ago == 0);
            if claims || (number == 0 && days_ago > 0) {
                coins.claim(fan, None).await.context("the daily bonus")?;
            }
        }
    }
    Ok(())
}

/// Waits until something holds, as long as the patience lasts.
async fn until(demo: &Demo, what: &str, holds: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let began = std::time::Instant::now();
    while !holds().await? {
        if began.elapsed() > PATIENCE {
            bail!("{what} did not come within {} s; is NATS there? The rest is done", PATIENCE.as_secs());
        }
        tokio::select! {
            () = demo.shutdown.closing().cancelled() => bail!("told to end"),
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
    }
    Ok(())
}

async fn open_rooms(demo: &Demo) -> anyhow::Result<usize> {
    let is_open =
        async || Ok(store::matches(&demo.core.db, TOURNAMENT).await?.iter().all(|entry| entry.room.is_some()));
    until(demo, "the chat rooms", is_open).await?;
    Ok(store::matches(&demo.core.db, TOURNAMENT).await?.len())
}

/// Lets some fans talk in the rooms of the match that is on and of the next one; returns how many words they said, and why
/// they stopped if they did. A demo without chat is still one.
async fn talk(
    demo: &Demo,
    fans: &[UserId],
    dice: &mut Dice,
    tell: &impl Fn(&str),
) -> anyhow::Result<(usize, Option<String>)> {
    let matches = store::matches(&demo.core.db, TOURNAMENT).await?;
    let talked_about = matches.iter().filter(|entry| matches!(entry.key.as_str(), "round-2-1" | "round-2-2"));
    let mut words = 0;
    for entry in talked_about.filter(|entry| entry.room.is_some()) {
        tell(&format!("fans join the room of {}", entry.key));
        // Everybody says something else, as long as there is something.
        let first = usize::try_from(dice.roll(CHATTER.len() as u64)).unwrap_or_default();
        for (&fan, chatter) in fans.iter().take(IN_A_ROOM).zip(CHATTER.iter().cycle().skip(first)) {
            let said = async {
                join(demo, fan, entry).await?;
                say(demo, fan, entry, &format!("demo-{}-{fan}", entry.key), chatter).await
            };
            if let Err(error) = said.await {
                return Ok((words, Some(format!("{error:#}"))));
            }
            words += 1;
        }
    }
    Ok((words, None))
}

/// Joins a match's room, unless one is there.
pub(super) async fn join(demo: &Demo, fan: UserId, entry: &Stored) -> anyhow::Result<()> {
    let Some(room) = entry.room.as_deref().and_then(|room| room.parse::<RoomAddress>().ok()) else { return Ok(()) };
    match demo.rooms.join(fan, &room).await {
        Ok(_) | Err(RoomError::AlreadyMember) => Ok(()),
        Err(error) => Err(error).context("joining a room"),
    }
}

/// Says something in a match's room.
pub(super) async fn say(demo: &Demo, fan: UserId, entry: &Stored, id: &str, words: &str) -> anyhow::Result<()> {
    let (Some(homeserver), Some(room)) = (demo.chat.homeserver(), entry.room.as_deref()) else { return Ok(()) };
    let account = demo.chat.account(fan).await?;
    let room = OwnedRoomId::try_from(room)?;
    let content = json!({"msgtype": "m.text", "body": words});
    homeserver.say_as(account.username.as_str(), &room, id, &content).await?;
    Ok(())
}

async fn code(demo: &Demo, phone: &Phone) -> anyhow::Result<String> {
    let subject = Subject::Login(phone.clone());
    demo.codes.request(&subject, phone, ClientNetwork::local(), Language::default()).await?;
    let filter = LogFilter { phone: Some(phone.clone()), date: None, status: Some("sent"), notices: false };
    let (log, _) = demo.sms.log(&filter, Paging::first(1)).await?;
    log.into_iter().next().and_then(|entry| entry.code).context("the code is not in the log of messages")
}

/// Whether a prediction could simply not be made any more.
pub(super) fn came_too_late(error: &SaveError) -> bool {
    matches!(error, SaveError::Closed(_) | SaveError::Overloaded)
}
