//! Processor time by process group, which shows whether the processor limits a figure and which program uses it.

use std::{collections::BTreeMap, fmt, fs, time::Instant};

/// Processes that are counted together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    /// Process id of the only process, or of the parent of all others.
    pub(crate) leader: u32,
    /// Whether the group includes the processes that the leader started.
    pub(crate) with_children: bool,
}

/// A reading of the counters, or the difference of two readings.
#[derive(Debug)]
pub(crate) struct Cores {
    at: Instant,
    seconds: f64,
    busy: f64,
    spent: BTreeMap<&'static str, f64>,
}

impl Default for Cores {
    fn default() -> Self {
        Self { at: Instant::now(), seconds: 0.0, busy: 0.0, spent: BTreeMap::new() }
    }
}

/// The kernel counts processor time in hundredths of a second.
const TICKS_A_SECOND: f64 = 100.0;

impl Cores {
    pub(crate) fn now(groups: &[Group]) -> Self {
        let spent = groups.iter().map(|group| (group.name, spent_by(*group))).collect();
        Self { at: Instant::now(), seconds: 0.0, busy: busy_of_all(), spent }
    }

    /// Time spent from this reading to a later one.
    pub(crate) fn until(&self, later: &Self) -> Self {
        let spent = later.spent.iter().map(|(name, spent)| (*name, spent - self.spent.get(name).unwrap_or(&0.0)));
        let seconds = later.at.duration_since(self.at).as_secs_f64();
        Self { at: self.at, seconds, busy: later.busy - self.busy, spent: spent.collect() }
    }

    /// Seconds that a group has spent.
    pub(crate) fn spent_by(&self, name: &str) -> f64 {
        self.spent.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.busy += other.busy;
        for (name, spent) in &other.spent {
            *self.spent.entry(name).or_default() += spent;
        }
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        #[expect(clippy::cast_precision_loss, reason = "a machine has few cores")]
        let all = self.seconds * cores as f64;
        let share = |spent: f64| (100.0 * spent / all).round();
        write!(formatter, "{cores} cores {} % busy", share(self.busy))?;
        let mut spent: Vec<_> = self.spent.iter().filter(|(_, spent)| share(**spent) >= 1.0).collect();
        spent.sort_by(|one, other| other.1.total_cmp(one.1));
        for (index, (name, spent)) in spent.iter().enumerate() {
            write!(formatter, "{} {name} {} %", if index == 0 { ":" } else { "," }, share(**spent))?;
        }
        Ok(())
    }
}

/// Seconds that all cores together have been busy since boot.
fn busy_of_all() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = first.split_whitespace().skip(1).filter_map(|ticks| ticks.parse().ok()).collect();
    // Fields: user, nice, system, idle, iowait, irq, softirq. Idle and iowait are left out.
    [0, 1, 2, 5, 6].iter().filter_map(|&place| ticks.get(place)).sum::<f64>() / TICKS_A_SECOND
}

/// Seconds that a group has spent, including its children that have exited.
pub(crate) fn spent_by(group: Group) -> f64 {
    let of_leader =
        stat(group.leader).map_or(0.0, |stat| stat.own + if group.with_children { stat.ended } else { 0.0 });
    if !group.with_children {
        return of_leader;
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let children = ids.filter_map(stat).filter(|stat| stat.parent == group.leader);
    of_leader + children.map(|stat| stat.own + stat.ended).sum::<f64>()
}

struct Stat {
    parent: u32,
    own: f64,
    ended: f64,
}

fn stat(process: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The process name, in parentheses, may contain spaces and parentheses.
    let (_, after_name) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = |place: usize| fields.get(place).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or_default();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own: (ticks(11) + ticks(12)) / TICKS_A_SECOND,
        ended: (ticks(13) + ticks(14)) / TICKS_A_SECOND,
    })
}
