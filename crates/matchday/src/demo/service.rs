//! Fills an empty database with the demo.

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
    catalogue::{
        fixtures::service::{Fixtures, Mode},
        matches::rules::Status,
        teams::service::{TeamFilter, Teams},
    },
    chat::{
        accounts::service::Chat,
        rooms::{
            RoomAddress,
            service::{RoomError, Rooms},
        },
    },
    game::{
        coins::{self, service::Coins},
        predictions::service::{Predictions, SaveError},
        scores::service::Scores,
        seals::service::Seals,
    },
    identity::{
        accounts::{
            PersonName,
            service::{Accounts, ProfileChange},
        },
        codes::{Subject, service::Codes},
        phone::Phone,
        sms::{
            service::{LogFilter, Sms},
            templates::Language,
        },
        usernames::Username,
    },
};

/// Fans who join each room.
const IN_A_ROOM: usize = 8;
/// Maximum wait for rooms and for scores.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// Contents of the demo, and a login for it.
#[derive(Clone, Debug)]
pub struct Filled {
    pub fans: usize,
    pub matches: usize,
    pub predictions: usize,
    pub rooms: usize,
    pub words: usize,
    /// Error that stopped the chat messages, if any.
    pub silence: Option<String>,
    /// Phone number of the first fan.
    pub phone: String,
    /// Login code for that phone, valid for five minutes.
    pub code: String,
}

/// Services that the demo uses. Apps reach the same services through the API.
pub struct Demo {
    pub core: Core,
    pub coins: coins::settings::Settings,
    /// Base URL of the crests.
    pub crests: String,
    pub shutdown: Shutdown,
    pub accounts: Accounts,
    pub chat: Chat,
    pub codes: Codes,
    pub fixtures: Fixtures,
    pub predictions: Predictions,
    pub rooms: Rooms,
    pub scores: Scores,
    pub seals: Seals,
    pub sms: Sms,
    pub teams: Teams,
}

/// A clock fixed at one moment.
#[derive(Debug)]
struct ClockAt(OffsetDateTime);

impl Clock for ClockAt {
    fn now(&self) -> OffsetDateTime {
        self.0
    }
}

/// Fills an empty database. `report` receives the name of each step. Workers must be running.
pub async fn fill(demo: &Demo, report: impl Fn(&str)) -> anyhow::Result<Filled> {
    ensure!(
        demo.core.env.is_development(),
        "the demo requires MATCHDAY_ENV local or testing, not {}",
        demo.core.env.name()
    );
    ensure!(!store::has_users(&demo.core.db).await?, "the database has users already; the demo requires an empty one");
    let (now, mut dice) = (demo.core.clock.now(), Dice::new(7));
    let document = rules::tournament(now, &demo.crests);

    report("teams and matches");
    demo.fixtures.import(&rules::all_scheduled(&document, now), Mode::Write, |_| {}).await?;
    let teams: Vec<TeamId> = {
        let (teams, _) = demo
            .teams
            .list(&demo.core.reads.primary_reader(), &TeamFilter { sport_id: None, search: None }, Paging::first(100))
            .await?;
        teams.into_iter().map(|team| team.id).collect()
    };
    report("fans");
    let mut fans = Vec::new();
    for (number, (username, name)) in FANS.iter().enumerate() {
        let fan = register(demo, number, username, name).await.with_context(|| format!("fan {username}"))?;
        if let Some(&team) = dice.pick(&teams) {
            demo.teams.save_primary(fan, team).await?;
        }
        fans.push(fan);
    }
    report("predictions");
    let mut predictions = 0;
    let before = store::matches(&demo.core.db, TOURNAMENT).await?;
    for entry in &before {
        for &fan in &fans {
            // Fans skip some matches. The first fan, whose login is printed, has the whole third round left to predict.
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
    report("results and streaks");
    let begun = before.iter().zip(&document.matches).filter(|(_, wanted)| wanted.status != Status::Scheduled);
    let mut begun: Vec<_> = begun.map(|(entry, wanted)| (wanted.start_time, entry.id)).collect();
    begun.sort_unstable();
    for (start_time, id) in begun {
        store::backdate(&demo.core.db, id, start_time).await?;
        // Before the import closes the match, and a worker seals it now, which proves less.
        demo.seals.seal_in_past(id, start_time).await?;
    }
    demo.fixtures.import(&document, Mode::Write, |_| {}).await?;
    streaks(demo, &fans, now).await?;

    report("chat rooms on the homeserver");
    let rooms = if demo.chat.homeserver().is_some() { open_rooms(demo).await? } else { 0 };
    let (words, silence) = talk(demo, &fans, &mut dice, &report).await?;
    report("scores and leaderboards");
    until(demo, "scores", async || Ok(demo.scores.in_progress().await?.is_empty())).await?;

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

/// Returns a phone number in the unassigned area code 555.
fn phone(number: usize) -> anyhow::Result<Phone> {
    let text = format!("+155501001{number:02}");
    Phone::parse(&text).with_context(|| format!("{text} is not a phone number"))
}

async fn register(demo: &Demo, number: usize, username: &str, name: &str) -> anyhow::Result<UserId> {
    let username = Username::parse(username).context("a username")?;
    let mut tx = platform::database::begin(&demo.core.db).await?;
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

/// Claims daily bonuses of the last days for some fans, so they have streaks.
async fn streaks(demo: &Demo, fans: &[UserId], now: OffsetDateTime) -> anyhow::Result<()> {
    for days_ago in (0..6).rev() {
        let clock = Arc::new(ClockAt(now - time::Duration::days(days_ago)));
        let coins = Coins::new(&demo.core.with_clock(clock), &demo.coins);
        for (number, &fan) in fans.iter().enumerate() {
            // The first fan, whose login is printed, can still claim today's bonus.
            let claims = i64::try_from(number % 7).unwrap_or_default() >= days_ago && !(number == 0 && days_ago == 0);
            if claims || (number == 0 && days_ago > 0) {
                coins.claim(fan, None).await.context("the daily bonus")?;
            }
        }
    }
    Ok(())
}

/// Waits until a condition holds, for at most one minute.
async fn until(demo: &Demo, what: &str, holds: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let began = std::time::Instant::now();
    while !holds().await? {
        if began.elapsed() > MAX_WAIT {
            bail!("{what} not ready after {} s: is NATS available? All other steps are done", MAX_WAIT.as_secs());
        }
        tokio::select! {
            () = demo.shutdown.closing().cancelled() => bail!("interrupted"),
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
    }
    Ok(())
}

async fn open_rooms(demo: &Demo) -> anyhow::Result<usize> {
    let is_open =
        async || Ok(store::matches(&demo.core.db, TOURNAMENT).await?.iter().all(|entry| entry.room.is_some()));
    until(demo, "chat rooms", is_open).await?;
    Ok(store::matches(&demo.core.db, TOURNAMENT).await?.len())
}

/// Lets some fans chat in the rooms of a live match and of the next one. Returns the number of messages and the error
/// that stopped them, if any. The demo works without chat.
async fn talk(
    demo: &Demo,
    fans: &[UserId],
    dice: &mut Dice,
    report: &impl Fn(&str),
) -> anyhow::Result<(usize, Option<String>)> {
    let matches = store::matches(&demo.core.db, TOURNAMENT).await?;
    let talked_about = matches.iter().filter(|entry| matches!(entry.key.as_str(), "round-2-1" | "round-2-2"));
    let mut words = 0;
    for entry in talked_about.filter(|entry| entry.room.is_some()) {
        report(&format!("fans join the room of {}", entry.key));
        // Each fan sends a different message while there are enough.
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

/// Joins a match room, unless the fan is a member or the match has no room.
pub(super) async fn join(demo: &Demo, fan: UserId, entry: &Stored) -> anyhow::Result<()> {
    let Some(room) = entry.room.as_deref().and_then(|room| room.parse::<RoomAddress>().ok()) else { return Ok(()) };
    match demo.rooms.join(fan, &room).await {
        Ok(_) | Err(RoomError::AlreadyMember) => Ok(()),
        Err(error) => Err(error).context("joining a room failed"),
    }
}

/// Sends a chat message to a match room.
pub(super) async fn say(demo: &Demo, fan: UserId, entry: &Stored, id: &str, words: &str) -> anyhow::Result<()> {
    let (Some(homeserver), Some(room)) = (demo.chat.homeserver(), entry.room.as_deref()) else { return Ok(()) };
    let account = demo.chat.account(fan).await?;
    let room = OwnedRoomId::try_from(room)?;
    let content = json!({"msgtype": "m.text", "body": words});
    homeserver.send_message_as(account.username.as_str(), &room, id, &content).await?;
    Ok(())
}

async fn code(demo: &Demo, phone: &Phone) -> anyhow::Result<String> {
    let subject = Subject::Login(phone.clone());
    demo.codes.request(&subject, phone, ClientNetwork::local(), Language::default()).await?;
    let filter = LogFilter { phone: Some(phone.clone()), date: None, status: Some("sent"), notices: false };
    let (log, _) = demo.sms.log(&filter, Paging::first(1)).await?;
    log.into_iter().next().and_then(|entry| entry.code).context("the code is missing from the SMS log")
}

/// Whether a prediction was refused because the match is closed or the server is overloaded.
pub(super) fn came_too_late(error: &SaveError) -> bool {
    matches!(error, SaveError::Closed(_) | SaveError::Overloaded)
}
