//! The swarm on one machine: several processes behind HAProxy with real dependencies, a calibration of the capacity model,
//! the evening, and the comparison of both.

use std::{
    fmt::Write as _,
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::json;
use sqlx::PgPool;

use super::{
    Local,
    action::Action,
    calibration::Calibration,
    changes, conclude,
    coordinator::{self, Deployment, Import, SCHEDULED, State},
    model::{self, Comparison, Constants, Load, Spent, plus},
    plan::Phones,
    run_number, schedule,
    script::Course,
};
use crate::{
    environment::{
        Stage,
        cores::{self, Group},
        haproxy::Haproxy,
        people,
        postgres::Data,
        service::{Service, Setting},
        synapse::Synapse,
        until,
    },
    scenarios::memory,
};

const DATABASE: &str = "bench_swarm";
/// Time for work that continues after the last response: messages, leaderboards.
const SETTLE: Duration = Duration::from_secs(3);

/// Coins for the deductions of all fans.
const WALLETS: &str = "
insert into wallets (user_id, balance, transactions) select user_id, 1000000, 1 from users;
insert into coin_transactions (user_id, number, transaction_id, kind, amount, balance, reason, operator, created_at)
  select user_id, 1, gen_random_uuid(), 'grant', 1000000, 1000000, 'bench', 'bench', now() from users;
insert into coin_entries (user_id, number, account, amount)
  select user_id, 1, account, amount * 1000000 from users, (values ('wallet', 1), ('granted', -1)) v (account, amount);
";

/// The deployment on this machine.
pub(crate) struct Site {
    services: Vec<Service>,
    balancer: Haproxy,
    synapse: Option<Synapse>,
    setting: Setting,
    pub(crate) stage: Arc<Stage>,
    pool: PgPool,
}

pub(crate) async fn run(arguments: Local) -> anyhow::Result<()> {
    let stage = Arc::new(Stage::set_up(3, Duration::from_secs(5), false, Data::Fresh).await?);
    stage.begin("swarm");
    let site = Site::start(stage, &arguments).await?;
    let run = run_number()?;
    let fans = arguments.evening.fans;
    let all: Vec<String> = (1..=2 * fans).map(people::token).collect();
    let (of_evening, of_calibration) = all.split_at(usize::try_from(fans)?);
    let length = arguments.evening.length();
    let import = site.import();
    import(&coordinator::document(run, "2090-05-01T15:00:00Z", SCHEDULED, SCHEDULED))?;
    let (tournament, event, rehearsal) = coordinator::find_matches(&site.url(), &of_evening[0], run).await?;
    let rooms = site.rooms(&of_evening[0], event).await?;
    let phones = Phones { prefix: "+1415".to_owned(), first: 2_000_000 };
    let courses = arguments.evening.courses(Some(&phones), &rooms);
    let deployment = Deployment {
        url: site.url(),
        run,
        tokens: of_calibration.to_vec(),
        phones: Some(Phones { first: 5_000_000, ..phones.clone() }),
        event: rehearsal,
        tournament,
        rooms,
        spread_addresses: true,
    };
    let constants = if arguments.calibrate > 0 {
        let length = Duration::from_secs(arguments.calibrate);
        Some(Calibration { site: &site, deployment: &deployment, courses: &courses, length }.run().await?)
    } else {
        None
    };

    site.stage.say(format!("the evening: {fans} fans, {} minutes", arguments.evening.minutes));
    let over = if constants.is_some() { FINISHED } else { SCHEDULED };
    let start = schedule(&import, run, over, length)?;
    let moments = changes(run, &start, over, length);
    let evening = Deployment { tokens: of_evening.to_vec(), phones: Some(phones), event, ..deployment };
    let look_ups_before = site.look_ups().await?;
    let (before, began) = (site.spent(), Instant::now());
    let (tally, took) = coordinator::drive(&[], &evening, &courses, length, &moments, Some(&import)).await?;
    site.settle().await?;
    let (measured, seconds) = (difference(&site.spent(), &before), began.elapsed().as_secs_f64());
    let look_ups = site.look_ups().await? - look_ups_before;
    site.audit()?;

    let mut more = serde_json::Value::Null;
    if let Some(constants) = constants {
        let load = Load {
            seconds,
            arrivals: courses.iter().map(|course| (course.action.name(), course.arrivals)).collect(),
            look_ups: model::look_ups(&courses, fans, arguments.processes.into(), site.cached_for()?),
            listener_seconds: tally.listened,
            deliveries: tally.deliveries(),
            scored: predicted_fans(&courses, fans),
        };
        let comparison = Comparison { predicted: model::predict(&constants, &load), measured };
        let text = report(&constants, &comparison, &load, look_ups, &arguments);
        site.stage.quiet(|| print(&text));
        if arguments.report {
            write_report(&text)?;
        }
        more = json!({"constants": constants, "load": load, "comparison": comparison, "error": comparison.error(),
            "measured_look_ups": look_ups});
    }
    let file = arguments.evening.json.clone().unwrap_or_else(|| site.stage.directory.join("swarm.json"));
    site.stage.quiet(|| conclude(&tally, took, Some(&file), more))
}

pub(crate) const FINISHED: State = State { status: "finished", score: Some((5, 0)) };

/// Fans with a prediction of the final: each of the script's arrivals is by another fan, until all have one.
fn predicted_fans(courses: &[Course], fans: u64) -> u64 {
    let predictions = courses.iter().filter(|course| course.action == Action::Predict).map(|course| course.arrivals);
    predictions.sum::<u64>().min(fans)
}

fn difference(later: &Spent, earlier: &Spent) -> Spent {
    plus(later, -1.0, earlier)
}

fn print(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "{text}");
}

impl Site {
    async fn start(stage: Arc<Stage>, arguments: &Local) -> anyhow::Result<Self> {
        let mut setting = Setting::on(DATABASE).with("MATCHDAY_HTTP__TRUSTED_PROXIES", "127.0.0.0/8");
        let synapse = if arguments.chat {
            stage.say("starting a homeserver");
            Some(Synapse::start(&stage).await?)
        } else {
            None
        };
        if let Some(synapse) = &synapse {
            setting = setting.with("MATCHDAY_MATRIX__HOMESERVER_URL", &synapse.url);
        }
        stage.say("creating the database");
        stage.forget_in_redis(DATABASE)?;
        stage.postgres.create(DATABASE).await?;
        stage.matchday(&setting, &["migrate"], "")?;
        let pool = stage.postgres.pool(DATABASE).await?;
        // One half for the evening, and one for the calibration.
        let users = 2 * arguments.evening.fans;
        stage.say(format!("inserting {users} users with a session and a wallet each"));
        people::make(&pool, users, users).await?;
        sqlx::raw_sql(WALLETS).execute(&pool).await?;
        sqlx::raw_sql("vacuum analyze").execute(&pool).await?;
        let mut services = Vec::new();
        for number in 1..=arguments.processes {
            stage.say(format!("starting process {number}"));
            let own = setting.clone().logging_to(&format!("service-{number}.log"));
            services.push(stage.serve(&own, &[]).await?);
        }
        let balancer = Haproxy::start(&stage.directory, &services).await?;
        Ok(Self { services, balancer, synapse, setting, stage, pool })
    }

    fn url(&self) -> String {
        format!("http://{}", self.balancer.address)
    }

    /// Imports documents with the operator's command.
    pub(crate) fn import(&self) -> Import {
        let (stage, setting) = (Arc::clone(&self.stage), self.setting.clone());
        Arc::new(move |document| {
            stage.matchday(&setting, &["fixtures", "import", "--no-wait", "-"], document).map(|_| ())
        })
    }

    /// Rooms of a match, once they are open.
    async fn rooms(&self, token: &str, event: u64) -> anyhow::Result<Vec<String>> {
        if self.synapse.is_none() {
            return Ok(Vec::new());
        }
        let mut rooms = Vec::new();
        until("the match has a room", Duration::from_mins(2), async || {
            rooms = coordinator::find_rooms(&self.url(), token, event).await.unwrap_or_default();
            !rooms.is_empty()
        })
        .await?;
        Ok(rooms)
    }

    pub(crate) fn groups(&self) -> Vec<Group> {
        let one = |name, leader| Group { name, leader, with_children: false };
        let mut groups: Vec<_> = self.services.iter().map(|service| one("service", service.id())).collect();
        groups.push(Group { name: "PostgreSQL", leader: self.stage.postgres.id(), with_children: true });
        groups.push(self.balancer.group());
        for (name, file) in [("Redis", "redis.pid"), ("NATS", "nats.pid")] {
            let text = fs::read_to_string(self.stage.directory.join("../run").join(file)).unwrap_or_default();
            groups.extend(text.trim().parse().map(|leader| one(name, leader)));
        }
        groups.extend(self.synapse.as_ref().map(Synapse::group));
        groups
    }

    pub(crate) fn spent(&self) -> Spent {
        spent_by(&self.groups())
    }

    /// Memory of all processes, in kilobytes.
    pub(crate) fn memory(&self) -> anyhow::Result<f64> {
        memory(&self.services.iter().map(Service::id).collect::<Vec<_>>())
    }

    /// Token look-ups of all processes so far.
    pub(crate) async fn look_ups(&self) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for service in &self.services {
            sum += service.counted("matchday_session_lookups_total", "").await?;
        }
        Ok(sum)
    }

    /// Time for which a process caches a token.
    fn cached_for(&self) -> anyhow::Result<Duration> {
        let printed = self.stage.matchday(&self.setting, &["config"], "")?;
        cached_for(&printed).with_context(|| format!("no sessions.cache_for in: {printed}"))
    }

    /// Waits until all results are in all scores, and work after responses is done.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        until("results are in all scores", Duration::from_mins(5), async || {
            let left = sqlx::query_scalar::<_, i64>("select count(*) from event_results where applied_at is null");
            left.fetch_one(&self.pool).await.is_ok_and(|left| left == 0)
        })
        .await?;
        tokio::time::sleep(SETTLE).await;
        Ok(())
    }

    /// Checks the data: every wallet matches the ledger, and every score matches predictions and results.
    fn audit(&self) -> anyhow::Result<()> {
        self.stage.say("checking wallets and scores");
        self.stage.matchday(&self.setting, &["coins", "audit"], "")?;
        self.stage.matchday(&self.setting, &["scores", "rebuild", "--dry-run"], "")?;
        Ok(())
    }
}

pub(crate) fn spent_by(groups: &[Group]) -> Spent {
    let mut spent = Spent::new();
    for group in groups {
        *spent.entry(group.name).or_default() += cores::spent_by(*group);
    }
    spent
}

/// Value of `sessions.cache_for` in the output of `matchday config`.
fn cached_for(printed: &str) -> Option<Duration> {
    let section = printed.split("\n[sessions]\n").nth(1)?.split("\n[").next()?;
    let value = section.lines().find_map(|line| line.strip_prefix("cache_for = "))?;
    duration(value.trim_matches('"'))
}

/// Parses a duration such as `30s`, `5m` or `1h`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let seconds = match &text[digits..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return None,
    };
    Some(Duration::from_secs(number * seconds))
}

/// Constants, prediction and measurement, in Markdown.
fn report(constants: &Constants, comparison: &Comparison, load: &Load, look_ups: f64, arguments: &Local) -> String {
    let mut text = format!(
        "Constants, from runs with one kind of load each on {} processes:\n\n{}\n",
        arguments.processes,
        constants.table()
    );
    let _ = writeln!(
        text,
        "The processes used {:.0} MB together before the listeners, and {:.1} KB per listener.\n",
        constants.memory / 1_024.0,
        constants.listener_memory
    );
    let requests: u64 = load.arrivals.values().sum();
    let _ = writeln!(
        text,
        "The evening: {} fans, {:.0} s, {requests} arrivals, {} token look-ups computed ({look_ups:.0} counted), {:.0} \
         listener-seconds, {} stream events delivered, {} predictions scored.\n",
        arguments.evening.fans, load.seconds, load.look_ups, load.listener_seconds, load.deliveries, load.scored
    );
    text.push_str(&comparison.table());
    text
}

const BEGIN: &str = "<!-- Generated by `bench swarm local --report`; manual changes are lost. -->\n";
const END: &str = "<!-- End of the generated part. -->";

/// Replaces the generated part of the capacity page.
fn write_report(text: &str) -> anyhow::Result<()> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/capacity.md");
    let page = fs::read_to_string(&file)?;
    fs::write(&file, replaced(&page, text).with_context(|| format!("{}: no generated part", file.display()))?)?;
    Ok(())
}

/// Replaces the part between the two markers.
fn replaced(page: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n\n{END}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_cache_lifetime_from_settings() {
        let printed = |value: &str| {
            format!(
                "# MATCHDAY_ENV is local\n\n# A\n[other]\ncache_for = \"9s\"\n\n# B\n[sessions]\n# C\ncache_for = {value}\n"
            )
        };
        for (value, seconds) in [("\"30s\"", 30), ("\"5m\"", 300), ("\"1h\"", 3_600)] {
            assert_eq!(cached_for(&printed(value)), Some(Duration::from_secs(seconds)));
        }
        assert_eq!(cached_for(&printed("\"\"")), None);
        assert_eq!(cached_for("[other]\ncache_for = \"9s\"\n"), None);
    }

    #[test]
    fn report_replaces_only_the_generated_part() {
        let page = format!("# Page\n{BEGIN}old\n{END}\nrest\n");
        let once = replaced(&page, "new").expect("markers");
        assert_eq!(once, format!("# Page\n{BEGIN}\nnew\n\n{END}\nrest\n"));
        assert_eq!(replaced(&once, "new"), Some(once));
    }
}
