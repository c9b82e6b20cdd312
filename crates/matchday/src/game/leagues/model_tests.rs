//! Compares tables with an independent computation, after random joins, leaves, removals, results, corrections and voids.

use platform::{random, testing::SeededRandom};
use scoring::{Confidence, Forecast, Score as Goals};
use serde_json::json;
use time::{Duration, OffsetDateTime};
use web::{
    ClientNetwork,
    fields::FromJson as _,
    ids::{LeagueId, MatchId, TournamentId, UserId},
};

use super::{
    service::{CountsFrom, Invitation, LeagueError, LeagueName, TablePage, Visibility, Wish},
    tests::{FAR, LARGE, tournament_of, without_tables},
};
use crate::{
    game::scores::service::Rebuild,
    testing::{TestApp, TestFixtures},
};

const USERS: usize = 8;
const MATCHES: usize = 10;
const STEPS: usize = 40;

/// A match of the history.
struct Played {
    id: i64,
    key: String,
    /// Number of the fixtures document.
    tournament: usize,
    round: Option<i16>,
    /// Days after [`FAR`].
    day: i64,
    result: Option<(i32, i32)>,
}

struct ModelLeague {
    id: LeagueId,
    tournaments: Vec<usize>,
    from_round: Option<i16>,
    from_day: Option<i64>,
    counts_from: CountsFrom,
    /// Number of the user and the time at which they joined; the first one is the owner.
    members: Vec<(usize, OffsetDateTime)>,
    removed: Vec<usize>,
}

/// Rank, points, exact scores, correct outcomes, settled matches and movement of a user.
type Row = (UserId, i64, i32, i32, i32, i32, Option<i64>);

struct Model<'a> {
    app: &'a TestApp,
    fixtures: [TestFixtures<'a>; 2],
    random: SeededRandom,
    began: OffsetDateTime,
    users: Vec<UserId>,
    matches: Vec<Played>,
    /// Predicted score of each user for each match.
    predicted: Vec<Vec<Option<(i32, i32)>>>,
    leagues: Vec<ModelLeague>,
}

/// Points, exact scores and correct outcomes of a predicted score, with the default rules.
fn points(predicted: (i32, i32), result: (i32, i32)) -> (i32, i32, i32) {
    let difference = |(home, away): (i32, i32)| home - away;
    if predicted == result {
        (40, 1, 1)
    } else if difference(predicted).signum() != difference(result).signum() {
        (0, 0, 0)
    } else if difference(result) != 0 && difference(predicted) == difference(result) {
        (30, 0, 1)
    } else {
        (20, 0, 1)
    }
}

impl<'a> Model<'a> {
    async fn new(app: &'a TestApp, seed: u64) -> Self {
        use platform::clock::Clock as _;
        let mut model = Self {
            app,
            fixtures: [app.fixtures(), app.fixtures()],
            random: SeededRandom::new(seed),
            began: app.clock.now(),
            users: Vec::new(),
            matches: Vec::new(),
            predicted: Vec::new(),
            leagues: Vec::new(),
        };
        for number in 0..MATCHES {
            let round = Some(i16::try_from(model.below(4)).expect("small")).filter(|round| *round > 0);
            let day = i64::try_from(model.below(6)).expect("small");
            let key = format!("m{number}");
            model.matches.push(Played { id: 0, key, tournament: number % 2, round, day, result: None });
            model.matches[number].id = model.put(number, "scheduled", None).await;
        }
        for _ in 0..USERS {
            let user = app.app.accounts.make_without_phone().await.expect("a user");
            let mut predicted = Vec::new();
            for number in 0..MATCHES {
                let score = (model.below(6) > 0).then(|| model.goals());
                if let Some((home, away)) = score {
                    let goals = Goals::new(home.into(), away.into()).expect("a score");
                    let forecast = Forecast::new(goals.pick(), Some(goals), Confidence::new(0).expect("a confidence"));
                    let event = MatchId(model.matches[number].id);
                    app.app.predictions.save(user, event, forecast.expect("a forecast")).await.expect("saved");
                }
                predicted.push(score);
            }
            model.users.push(user);
            model.predicted.push(predicted);
        }
        model.create_leagues().await;
        model
    }

    /// Creates a league of each kind.
    async fn create_leagues(&mut self) {
        let mut tournaments = Vec::new();
        for number in 0..2 {
            let found = self.matches.iter().find(|found| found.tournament == number).expect("a match");
            tournaments.push(TournamentId(tournament_of(self.app, found.id).await));
        }
        let (start, joined) = (CountsFrom::LeagueStart, CountsFrom::Joined);
        for (most, of, from_round, from_day, counts_from) in [
            (10, vec![0], None, None, start),
            (1_000, vec![0], None, None, start),
            (10, vec![0, 1], Some(2), None, start),
            (1_000, vec![0, 1], Some(2), None, start),
            (1_000, vec![0, 1], None, None, start),
            (10, vec![0, 1], None, None, joined),
            (10, vec![1], None, Some(2), start),
            (1_000, vec![0, 1], None, Some(1), joined),
        ] {
            let wish = Wish {
                name: LeagueName::from_json(&json!("Friends")).expect("a name"),
                tournaments: of.iter().map(|at| tournaments[*at]).collect(),
                from_round,
                from: from_day.map(|day| self.began + FAR + Duration::days(day)),
                max_members: most,
                visibility: Visibility::Public,
                counts_from,
                chat: false,
            };
            let view = self.app.app.leagues.create(self.users[0], &wish, None).await.expect("created");
            let joined_at = view.own.expect("the owner").joined_at;
            self.leagues.push(ModelLeague {
                id: view.league.id,
                tournaments: of,
                from_round,
                from_day,
                counts_from,
                members: vec![(0, joined_at)],
                removed: Vec::new(),
            });
        }
    }

    fn below(&self, most: usize) -> usize {
        usize::from(u16::from_be_bytes(random::bytes(&self.random))) % most
    }

    fn goals(&self) -> (i32, i32) {
        [(0, 0), (1, 1), (1, 0), (2, 1), (3, 0), (0, 1), (1, 3)][self.below(7)]
    }

    async fn put(&self, number: usize, status: &'static str, score: Option<(i32, i32)>) -> i64 {
        let Played { key, tournament, round, day, .. } = &self.matches[number];
        let entry = self.fixtures[*tournament].a_match(key).starting_in(FAR + Duration::days(*day));
        let entry = entry.with(json!({"round": round}));
        match score {
            Some((home, away)) => entry.at(status, home, away).put().await,
            None => entry.being(status).put().await,
        }
    }

    /// Moves a match to another day and round; with a result, this is a correction.
    async fn move_match(&mut self) {
        let (number, day) = (self.below(MATCHES), i64::try_from(self.below(6)).expect("small"));
        let round = Some(i16::try_from(self.below(4)).expect("small")).filter(|round| *round > 0);
        let found = &mut self.matches[number];
        (found.day, found.round) = (day, round);
        let status = if found.result.is_some() { "finished" } else { "scheduled" };
        let score = found.result;
        self.put(number, status, score).await;
        self.app.settle().await;
    }

    async fn step(&mut self) {
        match self.below(12) {
            0..4 => self.join().await,
            4 => self.leave().await,
            5 => self.remove().await,
            6..9 => {
                let (number, score) = (self.below(MATCHES), self.goals());
                self.put(number, "finished", Some(score)).await;
                self.matches[number].result = Some(score);
                self.app.settle().await;
            }
            9 => {
                let number = self.below(MATCHES);
                if self.matches[number].result.take().is_some() {
                    self.put(number, "abandoned", None).await;
                    self.app.settle().await;
                }
            }
            _ => self.move_match().await,
        }
    }

    /// Lets a user join a league, at a time before or after the start of some matches.
    async fn join(&mut self) {
        let (league, user) = (self.below(self.leagues.len()), self.below(USERS));
        let later = FAR + Duration::days(i64::try_from(self.below(6)).expect("small")) - Duration::hours(1);
        let (leagues, invitation) = (&self.app.app.leagues, Invitation::League(self.leagues[league].id));
        self.app.clock.advance(later);
        let joined = leagues.join(self.users[user], ClientNetwork::local(), &invitation, None).await;
        self.app.clock.advance(-later);
        let model = &mut self.leagues[league];
        match joined {
            Ok(view) => model.members.push((user, view.own.expect("a member").joined_at)),
            Err(LeagueError::AlreadyMember) => assert!(model.members.iter().any(|(member, _)| *member == user)),
            Err(LeagueError::Removed) => assert!(model.removed.contains(&user)),
            Err(error) => panic!("{error}"),
        }
    }

    async fn leave(&mut self) {
        let league = self.below(self.leagues.len());
        let model = &mut self.leagues[league];
        if model.members.len() > 1 {
            let (user, _) = model.members.pop().expect("a member");
            self.app.app.leagues.leave(self.users[user], model.id).await.expect("left");
        }
    }

    async fn remove(&mut self) {
        let league = self.below(self.leagues.len());
        let model = &mut self.leagues[league];
        if model.members.len() > 1 {
            let (user, _) = model.members.remove(1);
            model.removed.push(user);
            self.app.app.leagues.remove(self.users[0], model.id, self.users[user]).await.expect("removed");
        }
    }

    /// Matches with a result that count for a league.
    fn counting(&self, league: &ModelLeague) -> Vec<usize> {
        let counts = |number: &usize| {
            let found = &self.matches[*number];
            found.result.is_some()
                && league.tournaments.contains(&found.tournament)
                && league.from_round.is_none_or(|from| found.round >= Some(from))
                && league.from_day.is_none_or(|from| found.day >= from)
        };
        (0..MATCHES).filter(counts).collect()
    }

    /// Ranks the members by these matches, in the order of the table.
    fn ranked(&self, league: &ModelLeague, matches: &[usize]) -> Vec<(UserId, i64, [i32; 4])> {
        let sum = |&(user, joined_at): &(usize, OffsetDateTime)| {
            let mut sum = [0; 4];
            for &number in matches {
                let found = &self.matches[number];
                let start = self.began + FAR + Duration::days(found.day);
                if league.counts_from == CountsFrom::Joined && start < joined_at {
                    continue;
                }
                if let (Some(predicted), Some(result)) = (self.predicted[user][number], found.result) {
                    let (points, exact, correct) = points(predicted, result);
                    for (sum, part) in sum.iter_mut().zip([points, exact, correct, 1]) {
                        *sum += part;
                    }
                }
            }
            (self.users[user], sum)
        };
        let mut sums: Vec<(UserId, [i32; 4])> = league.members.iter().map(sum).collect();
        sums.sort_by_key(|(user, [points, exact, correct, _])| (-points, -exact, -correct, user.0));
        let better = |than: i32| sums.iter().filter(|(_, [points, ..])| *points > than).count();
        let rank = |than: i32| i64::try_from(better(than)).expect("small") + 1;
        sums.iter().map(|(user, sum)| (*user, rank(sum[0]), *sum)).collect()
    }

    fn table(&self, league: &ModelLeague, round: Option<i16>) -> Vec<Row> {
        let all = self.counting(league);
        let of_table: Vec<usize> =
            all.iter().filter(|at| round.is_none() || self.matches[**at].round == round).copied().collect();
        let latest = all.iter().filter_map(|at| self.matches[*at].round).max();
        let earlier: Vec<usize> = all.iter().filter(|at| self.matches[**at].round != latest).copied().collect();
        let shows_movement = round.is_none() && latest.is_some() && !earlier.is_empty();
        let before = self.ranked(league, &earlier);
        self.ranked(league, &of_table)
            .into_iter()
            .map(|(user, rank, [points, exact, correct, settled])| {
                let earlier = before.iter().find(|(other, ..)| *other == user).expect("a member").1;
                (user, rank, points, exact, correct, settled, shows_movement.then_some(earlier - rank))
            })
            .collect()
    }

    async fn check(&self, seed: u64, step: usize) {
        let service = without_tables(self.app);
        for (number, league) in self.leagues.iter().enumerate() {
            for round in [None, Some(1), Some(2), Some(3)] {
                let page = TablePage { round, after: None, limit: 100 };
                let view =
                    service.table(&service.primary_reader(), self.users[0], league.id, page).await.expect("a table");
                let row = |row: &super::service::TableRow| {
                    let score = row.score;
                    (row.user, row.rank, score.points, score.exact, score.correct, score.settled, row.movement)
                };
                let found: Vec<Row> = view.rows.iter().map(|(found, _)| row(found)).collect();
                assert_eq!(
                    found,
                    self.table(league, round),
                    "seed {seed}, step {step}, league {number}, round {round:?}"
                );
                assert_eq!(usize::try_from(view.total_members), Ok(league.members.len()));
            }
        }
        let mut differences = Vec::new();
        let rebuilt =
            self.app.app.scores.rebuild(Rebuild::DryRun, |_, _| {}, |difference| differences.push(difference)).await;
        rebuilt.expect("compared");
        assert_eq!(differences, [], "seed {seed}, step {step}");
    }
}

/// Seeds of the histories; more in manual runs.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("LEAGUE_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

#[tokio::test]
async fn tables_equal_history_after_any_sequence() {
    for seed in seeds() {
        TestApp::run_with(&LARGE, async |app| {
            let mut model = Model::new(app, seed).await;
            for step in 0..STEPS {
                model.step().await;
                if step % 8 == 7 {
                    model.check(seed, step).await;
                }
            }
            app.published().await;
        })
        .await;
    }
}
