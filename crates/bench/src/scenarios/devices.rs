//! Notifications to phones after a result, compared with a bare HTTP/2 client that sends one notification to the same phones, on
//! as many connections to the same servers, which behave like FCM and APNs. Afterwards the process is killed ten times while it
//! sends: no phone gets a notification twice, invalid tokens are removed, and phones with a rate limit are not tried too early.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use phone_push::stand_in::{ApnsStandIn, FcmStandIn, Reaction, Received, bare};
use serde_json::json;
use sqlx::PgPool;

use super::{fill_leaderboards, insert_predictions, prepare, scores};
use crate::{
    environment::{
        Stage, people,
        service::{Service, Setting},
    },
    outcome::Outcome,
    wire::{Connection, Protocol, write_http},
};

/// Devices, unless `MATCHDAY_BENCH_DEVICES` or `--users` names another number; a million at full size.
const DEVICES: u64 = 100_000;
/// HTTP/2 connections to each provider, as the settings have them.
const CONNECTIONS: usize = 2;
/// Requests under way, as the settings allow them.
const AT_ONCE: usize = 128;
/// Connections that register devices.
const REGISTERING: u64 = 32;
const KILLS: u64 = 10;
/// One in this number of devices has an invalid token, and another one a rate limit.
const FRACTION: u64 = 100;
const RETRY_AFTER: u64 = 3;
/// Notifications that a killed process may have claimed or taken without sending them: for each of two workers 50 users and 64
/// requests under way, and a hundred retries.
const MAX_UNSENT: u64 = 2 * (50 + 64) + 100;
/// Time without a further notification after which sending has ended. Longer than the pause of a rate limit, and than the
/// time after which the queue hands out the work of a killed process again.
const QUIET: Duration = Duration::from_secs(45);

struct Providers {
    fcm: FcmStandIn,
    apns: ApnsStandIn,
}

impl Providers {
    async fn start() -> anyhow::Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "the providers have their own clock")]
        let now: phone_push::Now = Arc::new(|| std::time::SystemTime::now().into());
        Ok(Self { fcm: FcmStandIn::start(now.clone()).await?, apns: ApnsStandIn::start(now).await? })
    }

    fn accepted(&self) -> u64 {
        u64::from(self.fcm.record().total().accepted) + u64::from(self.apns.record().total().accepted)
    }

    fn too_early(&self) -> u32 {
        self.fcm.record().total().too_early + self.apns.record().total().too_early
    }

    /// Accepted notifications by token.
    fn by_token(&self) -> HashMap<String, u32> {
        let all = self.fcm.record().all_counts().into_iter().chain(self.apns.record().all_counts());
        all.map(|(token, counts)| (token, counts.accepted)).collect()
    }

    fn react(&self, user: u64, reaction: Reaction) {
        let record = if is_apns(user) { self.apns.record() } else { self.fcm.record() };
        record.react_for(&token(user), [reaction]);
    }

    /// The last requests.
    fn samples(&self) -> anyhow::Result<[Received; 2]> {
        let last = |received: Vec<Received>| received.into_iter().next_back().context("a request");
        Ok([last(self.fcm.record().received())?, last(self.apns.record().received())?])
    }

    /// Rate of the bare client, which sends one notification to all phones.
    async fn bare(&self, samples: &[Received; 2], devices: u64) -> anyhow::Result<f64> {
        let half = usize::try_from(devices / 2)?;
        let (fcm, apns) = (self.fcm.address(), self.apns.address());
        let load = (CONNECTIONS, AT_ONCE / 2, half);
        // Users with even numbers have an iPhone.
        let of = |number: usize, odd: u64| token(2 * (number as u64 + 1) - odd);
        let began = Instant::now();
        tokio::try_join!(
            bare::send_to(&fcm, &samples[0], move |number| of(number, 1), load),
            bare::send_to(&apns, &samples[1], move |number| of(number, 0), load),
        )?;
        Ok(per_second(devices / 2 * 2, began.elapsed()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "some millions")]
fn per_second(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// Half of the users have an iPhone.
fn is_apns(user: u64) -> bool {
    user.is_multiple_of(2)
}

fn token(user: u64) -> String {
    if is_apns(user) { format!("{user:064x}") } else { format!("phone-{user}") }
}

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let wanted = std::env::var("MATCHDAY_BENCH_DEVICES").ok().and_then(|devices| devices.parse().ok());
    let devices = stage.users.or(wanted).unwrap_or(DEVICES);
    let name = "bench_devices";
    let providers = Providers::start().await?;
    let (account, key) = (stage.directory.join("account.json"), stage.directory.join("key.p8"));
    std::fs::write(&account, providers.fcm.account())?;
    std::fs::write(&key, providers.apns.key())?;
    let setting = Setting::on(name)
        .with("MATCHDAY_FCM__URL", &providers.fcm.url())
        .with("MATCHDAY_FCM__SERVICE_ACCOUNT_FILE", &account.to_string_lossy())
        .with("MATCHDAY_APNS__URL", &providers.apns.url())
        .with("MATCHDAY_APNS__KEY_FILE", &key.to_string_lossy())
        .with("MATCHDAY_APNS__KEY_ID", providers.apns.key_id())
        .with("MATCHDAY_APNS__TEAM_ID", providers.apns.team_id())
        .with("MATCHDAY_APNS__TOPIC", providers.apns.topic());
    // The first result inserts scores, and the last one is sent while the process is killed.
    let matches = stage.rounds + 2;
    prepare(stage, &setting, name, &[]).await?;
    stage.matchday(&setting, &["fixtures", "import", "--no-wait", "-"], &scores::results(0, matches))?;
    let pool = stage.postgres.pool(name).await?;
    stage.say(format!("inserting {devices} users"));
    people::make(&pool, devices, devices).await?;
    insert_predictions(stage, &pool, matches, scores::predict).await?;
    let service = stage.serve(&setting, &[]).await?;
    register(stage, &service, devices).await?;
    fill_leaderboards(stage, &service).await?;

    stage.say("first result");
    publish(stage, &setting, 1, matches)?;
    sent(&providers, devices, Instant::now()).await?;
    let samples = providers.samples()?;
    let ours = async |round: usize| {
        let before = providers.accepted();
        publish(stage, &setting, round + 2, matches)?;
        let published = Instant::now();
        while providers.accepted() == before {
            ensure!(published.elapsed() < QUIET * 4, "no notification was sent");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let began = Instant::now();
        let finished = sent(&providers, before + devices, began).await?;
        anyhow::Ok(per_second(devices, finished - began))
    };
    let (rounds, cores) =
        stage.alternate(&stage.groups(&service), ours, async |_| providers.bare(&samples, devices).await).await?;
    let unsent = kill(stage, &setting, &pool, &providers, service, (devices, matches)).await?;
    stage.forget_in_redis(name)?;
    stage.postgres.forget(name).await?;
    Ok(vec![Outcome {
        what: format!("Notifications of a result to {devices} phones, FCM and APNs"),
        beside: "bare HTTP/2 client that sends one notification to the same phones, on as many connections".to_owned(),
        unit: "notifications a second".to_owned(),
        size: Some(devices),
        limit: format!("with {KILLS} kills of the process, none was sent twice and {unsent} were not sent; {cores}"),
        ..Outcome::of("devices", rounds)
    }])
}

/// Registers a device for each user, as the app does.
async fn register(stage: &Stage, service: &Service, devices: u64) -> anyhow::Result<()> {
    stage.say(format!("registering {devices} devices"));
    let (next, address) = (Arc::new(AtomicU64::new(1)), service.public);
    let registering = (0..REGISTERING).map(|_| {
        let next = next.clone();
        tokio::spawn(async move {
            let (mut connection, mut request) = (Connection::open(address).await?, Vec::new());
            loop {
                let user = next.fetch_add(1, Ordering::Relaxed);
                if user > devices {
                    return anyhow::Ok(());
                }
                let platform = if is_apns(user) { "apns" } else { "fcm" };
                let body = json!({"platform": platform, "token": token(user)}).to_string();
                write_http(&mut request, "PUT", "/api/auth/devices/device-1", &people::token(user), &body);
                let status = connection.exchange(Protocol::Http, &request).await?;
                ensure!(status == 200, "device of user {user}: {status}");
            }
        })
    });
    for finished in futures_util::future::join_all(registering).await {
        finished??;
    }
    Ok(())
}

/// Publishes the result of the match with this number.
fn publish(stage: &Stage, setting: &Setting, finished: usize, matches: usize) -> anyhow::Result<()> {
    stage.matchday(setting, &["fixtures", "import", "--no-wait", "-"], &scores::results(finished, matches))?;
    Ok(())
}

/// Waits until this number of notifications was accepted, or none for a while. Returns the time of the last one.
async fn sent(providers: &Providers, expected: u64, began: Instant) -> anyhow::Result<Instant> {
    let (mut last, mut changed) = (providers.accepted(), began);
    while last < expected {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = providers.accepted();
        if now != last {
            (last, changed) = (now, Instant::now());
        }
        ensure!(changed.elapsed() < QUIET * 4, "{last} of {expected} notifications were sent");
    }
    Ok(changed)
}

/// Kills the process while it sends. Returns the number of phones that got no notification.
async fn kill(
    stage: &Stage,
    setting: &Setting,
    pool: &PgPool,
    providers: &Providers,
    mut service: Service,
    (devices, matches): (u64, usize),
) -> anyhow::Result<u64> {
    let (invalid, limited) = (devices / FRACTION, devices / FRACTION);
    for number in 0..invalid {
        let user = number * FRACTION + 1 + number % 2;
        let reaction =
            if is_apns(user) { Reaction::error(410, "Unregistered") } else { Reaction::error(404, "UNREGISTERED") };
        providers.react(user, reaction);
    }
    for number in 0..limited {
        providers.react(number * FRACTION + 11 + number % 2, Reaction::limited(RETRY_AFTER));
    }
    let before = providers.by_token();
    let start = providers.accepted();
    publish(stage, setting, matches, matches)?;
    for killed in 1..=KILLS {
        // Evenly over the notifications; the last kill leaves some to send.
        let until = start + devices * killed / (KILLS + 2);
        stage.say(format!("kill {killed} of {KILLS}"));
        sent(providers, until, Instant::now()).await?;
        service.kill();
        service = stage.serve(setting, &[]).await?;
    }
    stage.say("sending the rest");
    let (mut last, mut changed) = (providers.accepted(), Instant::now());
    while changed.elapsed() < QUIET {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = providers.accepted();
        if now != last {
            (last, changed) = (now, Instant::now());
        }
    }
    let after = providers.by_token();
    let twice = (1..=devices).filter(|user| {
        let of = |counts: &HashMap<String, u32>| counts.get(&token(*user)).copied().unwrap_or_default();
        of(&after) > of(&before) + 1
    });
    let twice = twice.count();
    ensure!(twice == 0, "{twice} phones were notified twice");
    ensure!(providers.too_early() == 0, "{} attempts before the end of a rate limit", providers.too_early());
    let left: i64 = sqlx::query_scalar("select count(*) from devices").fetch_one(pool).await?;
    let removed = devices - u64::try_from(left)?;
    let unsent = devices.saturating_sub(invalid).saturating_sub(last - start);
    ensure!(unsent <= KILLS * MAX_UNSENT, "{unsent} phones were not notified");
    ensure!(removed <= invalid && removed + unsent >= invalid, "{removed} of {invalid} invalid tokens were removed");
    drop(service);
    Ok(unsent)
}
