//! Announcement of a goal in a hundred rooms of a match, compared with the same messages sent to the homeserver without
//! the service.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use sqlx::PgPool;

use super::{Match, OPEN, document, join_storm::Bare, prepare};
use crate::{
    environment::{Stage, free_port, service::Setting, synapse::Synapse, until},
    outcome::{Goal, Outcome},
};

const STANDS: u64 = 100;
/// Goals of a round.
const GOALS: u8 = 3;
/// Concurrent messages without the service, as many as the service sends.
const BARE_AT_ONCE: usize = 8;
/// Time limit for the messages of a goal.
const PATIENCE: Duration = Duration::from_mins(3);

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, stands) = ("bench_announcements", stage.sized(STANDS));
    stage.say("starting a homeserver");
    let port = free_port()?;
    let synapse = Synapse::start_pushing_to(stage, Some(port)).await?;
    let chat = Bare::on(stage, &synapse)?;
    let setting = Setting::on(name)
        .with("MATCHDAY_MATRIX__HOMESERVER_URL", &synapse.url)
        .with("MATCHDAY_HTTP__PRIVATE_LISTEN", &format!("127.0.0.1:{port}"));
    prepare(stage, &setting, name, &[OPEN]).await?;
    let db = stage.postgres.pool(name).await?;
    let service = stage.serve(&setting, &[]).await?;
    until("the first room is open", Duration::from_mins(1), async || opened(&db).await == Some(1)).await?;
    stage.say(format!("creating {stands} rooms"));
    let mut rooms = Vec::new();
    for stand in 2..=stands {
        let room = chat.create_room(&format!("match_stand_{stand}")).await?;
        sqlx::query(
            "with room as (
               insert into rooms (event_id, stand, matrix_id, alias, name, created_at, made_until, opened_at)
               values (1, $1::bigint, $2, $2, 'Stand', now(), now(), now()) returning id)
             insert into room_activity (room_id, member_count, last_activity, compared_at)
             select id, 0, now(), now() from room",
        )
        .bind(i64::try_from(stand)?)
        .bind(&room)
        .execute(&db)
        .await?;
        rooms.push(room);
    }
    rooms.push(sqlx::query_scalar("select matrix_id from rooms where stand = 1").fetch_one(&db).await?);
    let homeserver = stage.postgres.pool("bench_synapse").await?;
    // The first message creates the bot's device, and is not measured.
    goal(stage, &setting, &homeserver, stands, 0).await?;
    let mut groups = stage.groups(&service);
    groups.push(synapse.group());
    let (figures, cores) = stage
        .alternate(
            &groups,
            async |round| {
                let began = Instant::now();
                for number in 1..=GOALS {
                    let score = u8::try_from(round)? * GOALS + number;
                    goal(stage, &setting, &homeserver, stands, score).await?;
                }
                rate(stands, began)
            },
            async |round| {
                let began = Instant::now();
                for number in 0..GOALS {
                    chat.say_in_all(&rooms, &format!("bare-{round}-{number}")).await?;
                }
                rate(stands, began)
            },
        )
        .await?;
    // A retried announcement must not appear twice. Messages: one for each room, goal and side, and the kick-off.
    let expected = i64::try_from(stands * (2 * u64::from(GOALS) * u64::try_from(stage.rounds)? + 1))?;
    let messages = messages(&homeserver).await?;
    ensure!(messages == expected, "{messages} messages instead of {expected}");
    homeserver.close().await;
    db.close().await;
    drop((service, synapse));
    stage.postgres.forget("bench_synapse").await?;
    stage.postgres.forget(name).await?;
    Ok(vec![Outcome {
        what: format!("Messages that announce a goal, in {stands} rooms of a match"),
        beside: format!("same messages to the same Synapse, {BARE_AT_ONCE} at a time"),
        size: Some(stands),
        goal: Some(Goal::AtLeast(0.8)),
        limit: format!("from the start of the command that writes the goal; {cores}"),
        ..Outcome::of("announcements", figures)
    }])
}

fn rate(stands: u64, began: Instant) -> anyhow::Result<f64> {
    Ok(f64::from(u32::try_from(stands * u64::from(GOALS))?) / began.elapsed().as_secs_f64())
}

/// Writes a goal, or the kick-off, and waits until all rooms have its message.
async fn goal(stage: &Stage, setting: &Setting, homeserver: &PgPool, stands: u64, score: u8) -> anyhow::Result<()> {
    let wanted = messages(homeserver).await? + i64::try_from(stands)?;
    let live = Match { status: "live", start: "2026-05-01T15:00:00Z", score: Some((score, 0)) };
    stage.matchday(setting, &["fixtures", "import", "--no-wait", "-"], &document(&[live]))?;
    until("all rooms have the message", PATIENCE, async || messages(homeserver).await.is_ok_and(|now| now >= wanted))
        .await
}

async fn messages(homeserver: &PgPool) -> anyhow::Result<i64> {
    let count = "select count(*) from events where type = 'm.room.message'";
    sqlx::query_scalar(count).fetch_one(homeserver).await.context("counting messages")
}

async fn opened(db: &PgPool) -> Option<i64> {
    sqlx::query_scalar("select count(*) from rooms where opened_at is not null").fetch_one(db).await.ok()
}

impl Bare {
    /// Sends a message to each room.
    async fn say_in_all(&self, rooms: &[String], transaction: &str) -> anyhow::Result<()> {
        let content = json!({"msgtype": "m.notice", "body": "Goal for Rovers! Rovers 1 – 0 City"});
        let sent = rooms.iter().map(async |room| {
            let url = self.path(&format!("rooms/{room}/send/m.room.message/{transaction}"));
            self.send(self.web.put(url).json(&content)).await
        });
        stream::iter(sent).buffer_unordered(BARE_AT_ONCE).try_collect::<Vec<_>>().await?;
        Ok(())
    }
}
