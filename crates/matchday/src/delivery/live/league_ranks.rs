//! Ranks of listeners in their leagues.
//!
//! A change is found by comparison with the rank that is remembered for each listener and league. Ranks are looked up when
//! a user connects, and after the scores of a match or question were applied, for the users who are connected to this
//! process only. One task does this for the whole process, and everything that has waited meanwhile is looked up
//! together.
//!
//! A table of a large league is a copy, which may be older than the scores. It is looked up again until it is not.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::Notify;
use web::ids::{MatchId, TournamentId, UserId};

use super::{
    payloads::{Data as _, StreamLeagueRank},
    rules::Filter,
};
use crate::game::leagues::{
    ranks::{Copies, LeagueRank, Wanted},
    service::Leagues,
};

/// Pause before an old copy is looked up again, and how often that is done. The copy of the largest league takes less.
const PAUSE: Duration = Duration::from_secs(2);
const ATTEMPTS: u32 = 60;

/// Looks up ranks in leagues.
pub(super) struct LeagueRanks {
    leagues: Leagues,
    pending: Mutex<Pending>,
    added: Notify,
}

#[derive(Default)]
struct Pending {
    /// Users who have connected.
    users: HashSet<UserId>,
    /// Matches whose scores were applied.
    events: HashSet<MatchId>,
    /// Tournaments in which the scores of a question were applied.
    tournaments: HashSet<TournamentId>,
}

/// Tables that were older than the scores.
struct Old {
    tournaments: HashSet<TournamentId>,
    /// Copies that began at this time or later are not old.
    since: i64,
    attempts: u32,
}

/// Event for one listener.
pub(super) struct LeagueFrame {
    tournaments: Vec<TournamentId>,
    text: String,
}

impl LeagueFrame {
    pub(super) fn new(rank: LeagueRank, previous_rank: i64) -> Self {
        let LeagueRank { league: league_id, tournaments, rank, points, .. } = rank;
        Self { tournaments, text: StreamLeagueRank { league_id, rank, previous_rank, points }.frame() }
    }

    /// Returns the events that pass the filter of a listener. A listener to one match gets none.
    pub(super) fn for_listener(frames: &[Self], filter: &Filter) -> Option<Bytes> {
        let wanted = |frame: &&Self| filter.tournament.is_none_or(|only| frame.tournaments.contains(&only));
        let text: String = frames.iter().filter(wanted).map(|frame| frame.text.as_str()).collect();
        (filter.event.is_none() && !text.is_empty()).then(|| text.into())
    }
}

impl LeagueRanks {
    pub(super) fn new(leagues: Leagues) -> Self {
        Self { leagues, pending: Mutex::default(), added: Notify::new() }
    }

    /// Notes that a user has connected.
    pub(super) fn add_listener(&self, user: UserId) {
        self.lock().users.insert(user);
        self.added.notify_one();
    }

    /// Notes that the scores of a match were applied.
    pub(super) fn add_scores(&self, event: MatchId) {
        self.lock().events.insert(event);
        self.added.notify_one();
    }

    /// Notes that the scores of a question in this tournament were applied.
    pub(super) fn add_tournament(&self, tournament: TournamentId) {
        self.lock().tournaments.insert(tournament);
        self.added.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up ranks as needed, and passes them to `report`. `listeners` returns the connected users.
    pub(super) async fn run(&self, listeners: impl Fn() -> Vec<UserId>, report: impl Fn(Vec<LeagueRank>)) {
        let mut old: Option<Old> = None;
        loop {
            tokio::select! {
                () = self.added.notified() => {}
                () = tokio::time::sleep(PAUSE), if old.is_some() => {}
            }
            let pending = std::mem::take(&mut *self.lock());
            let looked = self.look(pending, &mut old, &listeners, &report).await;
            // Clients can request their ranks at any time.
            if let Err(error) = looked {
                tracing::debug!(%error, "ranks of listeners in leagues could not be read");
            }
        }
    }

    async fn look(
        &self,
        pending: Pending,
        old: &mut Option<Old>,
        listeners: &impl Fn() -> Vec<UserId>,
        report: &impl Fn(Vec<LeagueRank>),
    ) -> sqlx::Result<()> {
        let new: Vec<UserId> = pending.users.into_iter().collect();
        self.leagues.ranks_of(&new, Wanted { tournaments: None, only_large: false }, report).await?;
        if let Some(Old { tournaments, since, attempts }) = old.take() {
            let wanted: Vec<TournamentId> = tournaments.iter().copied().collect();
            let wanted = Wanted { tournaments: Some(&wanted), only_large: true };
            let oldest = self.leagues.ranks_of(&listeners(), wanted, report).await?.copied_at;
            if attempts < ATTEMPTS && oldest.is_some_and(|oldest| oldest < since) {
                *old = Some(Old { tournaments, since, attempts: attempts + 1 });
            }
        }
        let events: Vec<MatchId> = pending.events.into_iter().collect();
        let mut tournaments: Vec<TournamentId> = pending.tournaments.into_iter().collect();
        if !events.is_empty() {
            tournaments.extend(self.leagues.tournaments_of(&events).await?);
        }
        if tournaments.is_empty() {
            return Ok(());
        }
        let wanted = Wanted { tournaments: Some(&tournaments), only_large: false };
        let Copies { copied_at, read_at } = self.leagues.ranks_of(&listeners(), wanted, report).await?;
        if copied_at.is_some_and(|copied_at| copied_at < read_at) {
            let mut tournaments: HashSet<TournamentId> = tournaments.into_iter().collect();
            tournaments.extend(old.take().into_iter().flat_map(|old| old.tournaments));
            *old = Some(Old { tournaments, since: read_at, attempts: 0 });
        }
        Ok(())
    }
}
