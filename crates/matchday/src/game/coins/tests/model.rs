//! Model test: compares the ledger with a simple one in memory.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use platform::{batches::BatchError, clock::Clock as _};
use proptest::{collection::vec, prelude::*, test_runner::Config as ProptestConfig};
use time::{Date, Duration, OffsetDateTime};
use web::ids::UserId;

use super::{assert_clean, check_cases};
use crate::{
    game::coins::{
        ledger::{Posted, Refusal},
        rules::{CoinAmount, Kind, Reason, Reference, Remark, TransactionId},
        service::{ClaimError, Deduction, MoveError, OperatorError},
    },
    identity::idempotency::{KeyedRequest, RequestKey},
    testing::TestApp,
};

const USERS: usize = 3;
const REASONS: [&str; 2] = ["purchase", "wager"];

#[derive(Clone, Debug)]
enum Step {
    Grant {
        user: usize,
        amount: i64,
        reference: Option<u8>,
    },
    Deduct {
        user: usize,
        amount: i64,
        reason: usize,
        reference: Option<u8>,
        request: Option<u8>,
    },
    Claim {
        user: usize,
        request: Option<u8>,
    },
    /// `which` is the position of the transaction in the user's history.
    Reverse {
        user: usize,
        amount: i64,
        which: usize,
    },
    Wait {
        hours: i64,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let (user, amount) = (0..USERS, 1_i64..120);
    // Only a few values each, so that many are reused.
    let few = || proptest::option::weighted(0.6, 0_u8..4);
    prop_oneof![
        2 => (user.clone(), amount.clone(), few()).prop_map(|(user, amount, reference)| Step::Grant { user, amount, reference }),
        6 => (user.clone(), prop_oneof![amount.clone(), Just(10_i64)], 0..REASONS.len(), few(), proptest::option::weighted(0.2, 0_u8..4))
            .prop_map(|(user, amount, reason, reference, request)| Step::Deduct { user, amount, reason, reference, request }),
        3 => (user.clone(), proptest::option::weighted(0.3, 4_u8..8)).prop_map(|(user, request)| Step::Claim { user, request }),
        3 => (user, prop_oneof![amount, Just(10_i64)], 0_usize..12).prop_map(|(user, amount, which)| Step::Reverse { user, amount, which }),
        2 => (1_i64..40).prop_map(|hours| Step::Wait { hours }),
    ]
}

/// Outcome of a step: the coins moved and the new balance, or the reason for a refusal.
type Acknowledged = Result<(i64, i64), &'static str>;

/// Model of the ledger: a list of movements per user.
#[derive(Default)]
struct Model {
    users: [Page; USERS],
}

/// Amount, reason and reference of a deduction; `None` for a claim.
type RequestBody = Option<(i64, usize, Option<u8>)>;

#[derive(Default)]
struct Page {
    /// Amount, kind, and the part that was reversed.
    lines: Vec<(i64, Kind, i64)>,
    references: BTreeMap<(&'static str, usize, u8), usize>,
    /// Index of the line, the request, and its time.
    requests: BTreeMap<u8, (usize, RequestBody, OffsetDateTime)>,
    claims: BTreeMap<Date, i64>,
}

impl Page {
    fn balance_after(&self, line: usize) -> i64 {
        self.lines[..=line].iter().map(|(amount, ..)| amount).sum()
    }

    /// Returns the line written for a key within the last day.
    fn done(&self, request: Option<u8>, now: OffsetDateTime) -> Option<(usize, RequestBody)> {
        let &(line, body, at) = self.requests.get(&request?)?;
        (now - at < Duration::DAY).then_some((line, body))
    }

    fn outcome(&self, line: usize) -> (i64, i64) {
        (self.lines[line].0, self.balance_after(line))
    }

    fn add(&mut self, amount: i64, kind: Kind) -> Acknowledged {
        if self.lines.iter().map(|(amount, ..)| amount).sum::<i64>() + amount < 0 {
            return Err("insufficient");
        }
        self.lines.push((amount, kind, 0));
        Ok(self.outcome(self.lines.len() - 1))
    }

    fn once(&mut self, key: (&'static str, usize, Option<u8>), amount: i64, kind: Kind) -> Acknowledged {
        let key = key.2.map(|reference| (key.0, key.1, reference));
        if let Some(&line) = key.and_then(|key| self.references.get(&key)) {
            let (posted, _, reversed) = self.lines[line];
            return if posted != amount {
                Err("other amount")
            } else if reversed == amount.abs() {
                Err("reversed")
            } else {
                Ok(self.outcome(line))
            };
        }
        let outcome = self.add(amount, kind)?;
        if let Some(key) = key {
            self.references.insert(key, self.lines.len() - 1);
        }
        Ok(outcome)
    }
}

impl Model {
    fn new() -> Self {
        let mut model = Self::default();
        for page in &mut model.users {
            page.lines.push((100, Kind::Welcome, 0));
        }
        model
    }

    fn run(&mut self, step: &Step, now: OffsetDateTime) -> Acknowledged {
        let today = now.date();
        match *step {
            Step::Grant { user, amount, reference } => {
                self.users[user].once(("grant", 0, reference), amount, Kind::Grant)
            }
            Step::Deduct { user, amount, reason, reference, request } => {
                let page = &mut self.users[user];
                let body = Some((amount, reason, reference));
                if let Some((line, first)) = page.done(request, now) {
                    return if first == body { Ok(page.outcome(line)) } else { Err("other request") };
                }
                let before = page.lines.len();
                let outcome = page.once(("deduct", reason, reference), -amount, Kind::Deduction)?;
                if let Some(request) = request.filter(|_| page.lines.len() > before) {
                    page.requests.insert(request, (before, body, now));
                }
                Ok(outcome)
            }
            Step::Claim { user, request } => {
                let page = &mut self.users[user];
                if let Some((line, _)) = page.done(request, now) {
                    return Ok(page.outcome(line));
                }
                if page.claims.contains_key(&today) {
                    return Err("claimed");
                }
                let claimed = |ago: &i64| page.claims.contains_key(&(today - Duration::days(*ago)));
                let days = (1_i64..7).take_while(claimed).count();
                let coins = 50 + 10 * i64::try_from(days).expect("few");
                let outcome = page.add(coins, Kind::Daily)?;
                page.claims.insert(today, coins);
                if let Some(request) = request {
                    page.requests.insert(request, (page.lines.len() - 1, None, now));
                }
                Ok(outcome)
            }
            Step::Reverse { user, amount, which } => {
                let page = &mut self.users[user];
                let Some(&(moved, kind, reversed)) = page.lines.get(which) else { return Err("no such transaction") };
                if kind == Kind::Reversal {
                    return Err("not reversible");
                }
                if amount > moved.abs() - reversed {
                    return Err("too much");
                }
                let outcome = page.add(if moved > 0 { -amount } else { amount }, Kind::Reversal)?;
                page.lines[which].2 += amount;
                Ok(outcome)
            }
            Step::Wait { .. } => Err("waited"),
        }
    }
}

fn amount_and_balance(posted: Posted) -> (i64, i64) {
    (posted.amount, posted.balance)
}

fn refused(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NoSuchUser => "no such user",
        Refusal::Insufficient { .. } => "insufficient",
        Refusal::OtherAmount => "other amount",
        Refusal::Reversed => "reversed",
        Refusal::KeyUsed => "other request",
        Refusal::Full => "full",
    }
}

fn operator_outcome(outcome: Result<Posted, OperatorError>) -> Result<Posted, &'static str> {
    outcome.map_err(|error| match error {
        OperatorError::Refused(refusal) => refused(refusal),
        OperatorError::NoSuchTransaction => "no such transaction",
        OperatorError::NotReversible(_) => "not reversible",
        OperatorError::TooMuch(_) => "too much",
        other => panic!("{other}"),
    })
}

/// Whether a deduction gave up because other movements held the wallet's lock for too long. It then wrote nothing.
fn is_lock_timeout(error: &MoveError) -> bool {
    const LOCK_NOT_AVAILABLE: &str = "55P03";
    let MoveError::Failed(BatchError::Database(error)) = error else { return false };
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == LOCK_NOT_AVAILABLE)
}

/// Runs a step on the service. A movement is identified by its transaction, a claim by its day. `which` finds a user's
/// transaction by its position in their history.
async fn run(
    app: &TestApp,
    users: &[UserId],
    step: &Step,
    which: impl AsyncFn(usize, usize) -> Option<TransactionId>,
) -> Result<(String, i64, i64), &'static str> {
    let coins = &app.app.coins;
    let remark: Remark = "why not".parse().expect("a remark");
    let amount_of = |amount| CoinAmount::new(amount).expect("an amount");
    let reference_of = |reference: Option<u8>| reference.map(|n| Reference::parse(&format!("r{n}")).expect("one"));
    let request_of = |request: Option<u8>| request.map(|n| RequestKey([n; 32]));
    let posted = match *step {
        Step::Grant { user, amount, reference } => {
            let reference = reference_of(reference);
            let granted = coins.grant(users[user], amount_of(amount), &remark, reference.as_ref(), "op").await;
            operator_outcome(granted.map(|(posted, _)| posted))?
        }
        Step::Deduct { user, amount, reason, reference, request } => {
            let deduction = Deduction {
                amount: amount_of(amount),
                reason: Reason::parse(REASONS[reason]).expect("a reason"),
                reference: reference_of(reference),
                request: request_of(request).map(|key| KeyedRequest {
                    owner: users[user].into(),
                    key,
                    digest: [0; 32],
                }),
            };
            let deducted = coins.deduct(users[user], deduction).await.map_err(|error| match error {
                MoveError::Refused(refusal) => refused(refusal),
                error if is_lock_timeout(&error) => "wallet locked",
                other => panic!("{other}"),
            })?;
            deducted.posted
        }
        Step::Claim { user, request } => {
            let claimed = coins.claim(users[user], request_of(request)).await.map_err(|error| match error {
                ClaimError::AlreadyClaimed { .. } => "claimed",
                ClaimError::Refused(refusal) => refused(refusal),
                ClaimError::Database(error) => panic!("{error}"),
            })?;
            return Ok((claimed.day.to_string(), claimed.coins, claimed.balance));
        }
        Step::Reverse { user, amount, which: place } => {
            let Some(id) = which(user, place).await else { return Err("no such transaction") };
            let reversed = coins.reverse(users[user], amount_of(amount), Some(id), &remark, "op").await;
            operator_outcome(reversed.map(|(_, posted)| posted))?
        }
        Step::Wait { hours } => {
            app.clock.advance(Duration::hours(hours));
            return Err("waited");
        }
    };
    let (amount, balance) = amount_and_balance(posted);
    Ok((posted.id.to_string(), amount, balance))
}

async fn new_users(app: &TestApp) -> Vec<UserId> {
    let mut users = Vec::new();
    for _ in 0..USERS {
        users.push(app.app.accounts.make_without_phone().await.expect("a user"));
    }
    users
}

/// Returns the user's transaction at this position.
async fn nth(app: &TestApp, user: UserId, place: usize) -> Option<TransactionId> {
    sqlx::query_scalar("select transaction_id from coin_transactions where user_id = $1 and number = $2")
        .bind(user)
        .bind(i64::try_from(place).expect("few") + 1)
        .fetch_optional(&app.app.core.db)
        .await
        .expect("read")
}

/// Runs the steps sequentially and checks that every outcome equals the one of the model.
async fn check_against_model(app: &TestApp, steps: &[Step]) {
    let users = new_users(app).await;
    let mut model = Model::new();
    for (at, step) in steps.iter().enumerate() {
        let expected = model.run(step, app.clock.now());
        let found = run(app, &users, step, async |user, place| nth(app, users[user], place).await).await;
        assert_eq!(found.map(|(_, amount, balance)| (amount, balance)), expected, "step {at}: {step:?}");
    }
    for (user, page) in users.iter().zip(&model.users) {
        let held = app.app.coins.balance(*user).await.expect("read");
        assert_eq!(held, page.lines.iter().map(|(amount, ..)| amount).sum::<i64>());
    }
}

/// Runs the steps concurrently. For any order, each acknowledged movement is stored once, nothing else is stored, and
/// the ledger adds up.
async fn check_concurrent_steps(app: &TestApp, steps: &[Step]) {
    let users = new_users(app).await;
    // A reversal may name a transaction that does not exist yet; it is then skipped.
    let which = async |user: usize, place| nth(app, users[user], place).await;
    let outcomes: Vec<_> = stream::iter(steps)
        .map(|step| {
            let (users, which) = (&users, &which);
            async move { (step, run(app, users, step, which).await) }
        })
        .buffer_unordered(24)
        .collect()
        .await;
    let mut acknowledged: [BTreeSet<(String, i64, i64)>; USERS] = Default::default();
    let mut references: BTreeMap<(usize, &str, usize, u8), BTreeSet<String>> = BTreeMap::new();
    for (step, outcome) in outcomes {
        let Ok((id, amount, balance)) = outcome else { continue };
        let (user, reference) = match *step {
            Step::Grant { user, reference, .. } => (user, reference.map(|reference| ("grant", 0, reference))),
            Step::Deduct { user, reason, reference, request: None, .. } => {
                (user, reference.map(|reference| ("deduct", reason, reference)))
            }
            Step::Deduct { user, .. } | Step::Claim { user, .. } | Step::Reverse { user, .. } => (user, None),
            Step::Wait { .. } => continue,
        };
        if let Some((kind, reason, reference)) = reference {
            references.entry((user, kind, reason, reference)).or_default().insert(id.clone());
        }
        acknowledged[user].insert((id, amount, balance));
        assert!(balance >= 0);
    }
    for (key, transactions) in &references {
        assert_eq!(transactions.len(), 1, "{key:?} was charged more than once");
    }
    for (user, acknowledged) in users.iter().zip(&acknowledged) {
        let rows: Vec<(uuid::Uuid, Option<Date>, i64, i64)> = sqlx::query_as(
            "select t.transaction_id, c.day, t.amount, t.balance from coin_transactions t
             left join daily_claims c on c.user_id = t.user_id and c.number = t.number
             where t.user_id = $1 and t.kind <> 'welcome'",
        )
        .bind(user)
        .fetch_all(&app.app.core.db)
        .await
        .expect("read");
        let known_by = |id, day: Option<Date>| day.map_or_else(|| TransactionId(id).to_string(), |day| day.to_string());
        let written: BTreeSet<_> =
            rows.into_iter().map(|(id, day, amount, balance)| (known_by(id, day), amount, balance)).collect();
        assert_eq!(&written, acknowledged, "acknowledged and stored movements are equal");
        let held = app.app.coins.balance(*user).await.expect("read");
        assert_eq!(held, 100 + written.iter().map(|(_, amount, _)| amount).sum::<i64>());
    }
}

#[test]
fn any_sequence_matches_the_model() {
    let config = ProptestConfig { cases: 40, max_shrink_iters: 200, ..ProptestConfig::default() };
    check_cases(&[], config, vec(any_step(), 1..80), &async |app, steps| {
        check_against_model(app, steps).await;
        assert_clean(app).await;
    });
}

#[test]
fn any_interleaving_keeps_the_ledger_consistent() {
    let config = ProptestConfig { cases: 30, max_shrink_iters: 50, ..ProptestConfig::default() };
    check_cases(&[], config, vec(any_step(), 20..200), &async |app, steps| {
        check_concurrent_steps(app, steps).await;
        assert_clean(app).await;
    });
}
