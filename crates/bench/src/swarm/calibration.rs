//! Measures the constants of the capacity model, one kind of load at a time.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::ensure;

use super::{
    action::Action,
    coordinator::{self, Deployment, Import, Moment, SCHEDULED, State},
    local::{FINISHED, Site, spent_by},
    model::{Constants, Spent, plus},
    script::{Course, FINAL_EVENING, float},
};

/// Lowest rate of a calibration, which needs enough requests for the clock ticks of processor time.
const LOWEST_RATE: f64 = 200.0;
/// Lowest rate of log-ins, which cost a hundred times as much as other requests, and of joins.
const LOWEST_LOG_IN_RATE: f64 = 10.0;
const LOWEST_JOIN_RATE: f64 = 4.0;
/// Most listeners of the calibration; their cost is proportional to their number.
const MOST_LISTENERS: u64 = 2_000;
const GOALS: u8 = 5;

/// Actions in the order of their calibration. Ranks and points need the result that the listeners receive.
const BEFORE_RESULT: [Action; 3] = [Action::OneMatch, Action::Profile, Action::Predict];
const AFTER_RESULT: [Action; 8] = [
    Action::Rank,
    Action::OwnPredictions,
    Action::MatchPredictions,
    Action::Claim,
    Action::Deduct,
    Action::LogIn,
    Action::Join,
    Action::RoomStats,
];

/// A run with one kind of load.
struct Phase {
    /// Processor time without that of an idle deployment.
    spent: Spent,
    requests: f64,
    look_ups: f64,
}

pub(crate) struct Calibration<'a> {
    pub(crate) site: &'a Site,
    pub(crate) deployment: &'a Deployment,
    pub(crate) courses: &'a [Course],
    pub(crate) length: Duration,
}

impl Calibration<'_> {
    pub(crate) async fn run(&self) -> anyhow::Result<Constants> {
        let site = self.site;
        site.stage.say("calibration: idle");
        site.settle().await?;
        let (before, began) = (site.spent(), Instant::now());
        tokio::time::sleep(self.length.max(Duration::from_secs(15))).await;
        let idle = plus(&Spent::new(), 1.0 / began.elapsed().as_secs_f64(), &plus(&site.spent(), -1.0, &before));
        let mut constants = Constants { idle, ..Constants::default() };
        self.lists(&mut constants).await?;
        for action in BEFORE_RESULT {
            self.action(action, &mut constants).await?;
        }
        self.listeners(&mut constants).await?;
        for action in AFTER_RESULT {
            self.action(action, &mut constants).await?;
        }
        Ok(constants.without_negative())
    }

    fn course(&self, action: Action) -> Option<&Course> {
        self.courses.iter().find(|course| course.action == action && course.arrivals > 0)
    }

    /// A steady course at the rate that the average arrival of the evening sees, and its number of fans.
    fn steady(&self, action: Action, distinct: bool) -> Option<(Course, Duration, usize)> {
        let felt = self.course(action)?.felt_rate();
        let lowest = match action {
            Action::LogIn => LOWEST_LOG_IN_RATE,
            Action::Join => LOWEST_JOIN_RATE,
            _ => LOWEST_RATE,
        };
        let per_fan = FINAL_EVENING.iter().find(|line| line.action == action).map_or(1.0, |line| line.per_fan.max(1.0));
        let per_fan = if distinct { 1.0 } else { per_fan };
        #[expect(clippy::cast_precision_loss, reason = "a number of fans")]
        let all = self.deployment.tokens.len() as f64;
        let rate = felt.max(lowest);
        let arrivals = (rate * self.length.as_secs_f64()).min(all * per_fan).floor();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive counts")]
        let (number, fans) = (arrivals as u64, ((arrivals / per_fan).ceil() as usize).max(1));
        let length = Duration::from_secs_f64(arrivals / rate);
        Some((Course::steady(action, number, length), length, fans.min(self.deployment.tokens.len())))
    }

    async fn phase(&self, idle: &Spent, course: Course, length: Duration, tokens: &[String]) -> anyhow::Result<Phase> {
        let (site, name) = (self.site, course.action.name());
        site.stage.say(format!("calibration: {name}, {:.0} a second", float(course.arrivals) / length.as_secs_f64()));
        let deployment = Deployment { tokens: tokens.to_vec(), ..self.deployment.clone() };
        let requests = float(course.arrivals);
        let looked_up = site.look_ups().await?;
        let (before, began) = (site.spent(), Instant::now());
        let (tally, _) = coordinator::drive(&[], &deployment, &[course], length, &[], None).await?;
        site.settle().await?;
        let spent = plus(&site.spent(), -1.0, &before);
        let spent = plus(&spent, -began.elapsed().as_secs_f64(), idle);
        ensure!(tally.failures() == 0, "calibration of {name} failed:\n{}", tally.table(length.as_secs_f64()));
        Ok(Phase { spent, requests, look_ups: site.look_ups().await? - looked_up })
    }

    /// Cost of a list and of a token look-up, from two runs: fans who come back, and fans who come once.
    async fn lists(&self, constants: &mut Constants) -> anyhow::Result<()> {
        let Some((course, length, fans)) = self.steady(Action::Matches, false) else { return Ok(()) };
        let tokens = &self.deployment.tokens;
        let few = fans.min(64).min(tokens.len() / 2);
        let warm = self.phase(&constants.idle, course, length, &tokens[..few]).await?;
        let Some((course, length, fans)) = self.steady(Action::Matches, true) else { return Ok(()) };
        let fans = fans.min(tokens.len() - few);
        let arrivals = course.arrivals.min(fans as u64);
        let length = length.mul_f64(float(arrivals) / float(course.arrivals.max(1)));
        let course = Course::steady(Action::Matches, arrivals, length);
        let cold = self.phase(&constants.idle, course, length, &tokens[few..few + fans]).await?;
        let (mut list, mut look_up) = (Spent::new(), Spent::new());
        for (group, warm_seconds) in &warm.spent {
            let cold_seconds = cold.spent.get(group).copied().unwrap_or_default();
            let [one, other] =
                solve([warm.requests, warm.look_ups, *warm_seconds], [cold.requests, cold.look_ups, cold_seconds]);
            list.insert(group, one);
            look_up.insert(group, other);
        }
        constants.actions.insert(Action::Matches.name(), list);
        constants.look_up = look_up;
        Ok(())
    }

    /// Cost of an action beyond its token look-ups.
    async fn action(&self, action: Action, constants: &mut Constants) -> anyhow::Result<()> {
        let Some((course, length, fans)) = self.steady(action, false) else { return Ok(()) };
        let phase = self.phase(&constants.idle, course, length, &self.deployment.tokens[..fans]).await?;
        let spent = plus(&phase.spent, -phase.look_ups, &constants.look_up);
        constants.actions.insert(action.name(), plus(&Spent::new(), 1.0 / phase.requests, &spent));
        Ok(())
    }

    /// Costs of connecting a listener, of listening, of delivering an event, and of scoring the predictions of a match.
    async fn listeners(&self, constants: &mut Constants) -> anyhow::Result<()> {
        let (Some(course), Some((_, _, predicted))) =
            (self.course(Action::Listen), self.steady(Action::Predict, false))
        else {
            return Ok(());
        };
        let predicted = predicted as u64;
        let listeners = course.arrivals.min(MOST_LISTENERS).min(predicted);
        self.site.stage.say(format!("calibration: {listeners} listeners, {GOALS} goals and a result"));
        let (connecting, connected, goals) = (Duration::from_secs(5), Duration::from_secs(8), Duration::from_secs(23));
        let run = self.deployment.run;
        let document = |state| coordinator::document(run, "2090-05-01T15:00:00Z", SCHEDULED, state);
        let mut moments = vec![Moment { at: connected, kind: "", document: String::new() }];
        for goal in 1..=GOALS {
            let live = State { status: "live", score: Some((goal, 0)) };
            let at = goals + Duration::from_secs(2) * u32::from(goal - 1);
            moments.push(Moment { at, kind: "event", document: document(live) });
        }
        let whistle = goals + Duration::from_secs(2) * u32::from(GOALS) + Duration::from_secs(1);
        moments.push(Moment { at: whistle, kind: "result", document: document(FINISHED) });
        let length = whistle + Duration::from_secs(12);

        // Each change reads the counters before it is made.
        let readings: Arc<Mutex<Vec<(Instant, Spent)>>> = Arc::default();
        let (groups, import, noted) = (self.site.groups(), self.site.import(), Arc::clone(&readings));
        let reading: Import = Arc::new(move |document| {
            noted.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), spent_by(&groups)));
            if document.is_empty() { Ok(()) } else { import(document) }
        });
        let used = usize::try_from(predicted)?;
        let deployment = Deployment { tokens: self.deployment.tokens[..used].to_vec(), ..self.deployment.clone() };
        let courses = [Course::steady(Action::Listen, listeners, connecting)];
        let memory_before = self.site.memory()?;
        let (looked_up, first) = (self.site.look_ups().await?, (Instant::now(), self.site.spent()));
        let driving = coordinator::drive(&[], &deployment, &courses, length, &moments, Some(&reading));
        let watching = async {
            tokio::time::sleep(connected + Duration::from_secs(5)).await;
            Ok((self.site.memory()?, self.site.look_ups().await?))
        };
        let ((tally, _), (memory, look_ups)) = tokio::try_join!(driving, watching)?;
        self.site.settle().await?;
        ensure!(tally.failures() == 0, "calibration of listeners failed:\n{}", tally.table(length.as_secs_f64()));
        let mut all = vec![first];
        all.append(&mut readings.lock().unwrap_or_else(PoisonError::into_inner));
        all.push((Instant::now(), self.site.spent()));

        let between = |from: usize, to: usize| {
            let seconds = all[to].0.duration_since(all[from].0).as_secs_f64();
            (plus(&plus(&all[to].1, -1.0, &all[from].1), -seconds, &constants.idle), seconds)
        };
        let (each, nothing) = (1.0 / float(listeners), Spent::new());
        let (connect, _) = between(0, 1);
        let connect = plus(&connect, -(look_ups - looked_up), &constants.look_up);
        let (hold, seconds) = between(1, 2);
        let hold = plus(&nothing, each / seconds, &hold);
        let last = all.len() - 2;
        let (deliver, seconds) = between(2, last);
        let deliver = plus(&deliver, -seconds * float(listeners), &hold);
        let deliver = plus(&nothing, each / f64::from(GOALS), &deliver);
        let (result, seconds) = between(last, last + 1);
        let others = float(tally.deliveries()) - f64::from(GOALS) * float(listeners);
        let result = plus(&plus(&result, -seconds * float(listeners), &hold), -others, &deliver);
        constants.actions.insert(Action::Listen.name(), plus(&nothing, each, &connect));
        constants.listener = hold;
        constants.delivery = deliver;
        constants.scored = plus(&nothing, 1.0 / float(predicted), &result);
        constants.memory = memory_before;
        constants.listener_memory = (memory - memory_before) * each;
        Ok(())
    }
}

/// Finds the costs of a request and of a look-up from two runs with both: `[requests, look-ups, seconds]`. Noise never makes a
/// cost negative.
fn solve(one: [f64; 3], other: [f64; 3]) -> [f64; 2] {
    let sum = |place: usize| one[place] + other[place];
    let minor = |left: usize, right: usize| one[left] * other[right] - one[right] * other[left];
    let determinant = minor(0, 1);
    if determinant.abs() < f64::EPSILON {
        return [sum(2) / sum(0).max(1.0), 0.0];
    }
    let (request, look_up) = (minor(2, 1) / determinant, minor(0, 2) / determinant);
    if look_up < 0.0 {
        [sum(2) / sum(0).max(1.0), 0.0]
    } else if request < 0.0 {
        [0.0, sum(2) / sum(1).max(1.0)]
    } else {
        [request, look_up]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_found_from_two_runs() {
        // 100 requests with 10 look-ups cost 3 s; 100 requests with 100 look-ups cost 12 s.
        let [request, look_up] = solve([100.0, 10.0, 3.0], [100.0, 100.0, 12.0]);
        assert!((request - 0.02).abs() < 1e-9 && (look_up - 0.1).abs() < 1e-9, "{request} {look_up}");
        // Noise never makes a cost negative.
        let [request, look_up] = solve([100.0, 10.0, 3.0], [100.0, 100.0, 2.0]);
        assert!(request > 0.0 && look_up == 0.0);
    }
}
