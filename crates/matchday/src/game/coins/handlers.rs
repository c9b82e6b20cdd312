//! HTTP handlers for coins.

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use platform::{batches::BatchError, timestamp};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::{
    ApiError, ErrorBody, Query, ValidJson,
    fields::{FromJson, from_body, whole_number},
    ids::MatchId,
    paging::CursorPaging,
    permitted,
};

use super::{
    ledger::{Posted, Refusal},
    rules::{self, CoinAmount, Kind, Reason, Reference, Remark, TransactionId},
    service::{ClaimError, Claimed, Coins, Deduction, MoveError, Overview, Transaction},
};
use crate::identity::{
    callers::CallerReader,
    idempotency::{self, KeyOutcome, KeyedRequest, RequestKey},
    sessions::CurrentUser,
};

#[derive(ToSchema)]
pub(crate) struct DeductionBody {
    #[schema(value_type = i64, minimum = 1, maximum = 1_000_000_000, example = 25)]
    pub(crate) amount: CoinAmount,
    /// Purpose of the deduction. The operator may restrict the allowed reasons.
    #[schema(
        value_type = String,
        min_length = 1,
        max_length = 64,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$",
        example = "purchase"
    )]
    pub(crate) reason: Reason,
    /// Identifier of the purchase in the app. A deduction happens once per reason and reference: repeating it returns
    /// the first response, and a different amount is refused.
    #[schema(
        value_type = Option<String>,
        min_length = 1,
        max_length = 128,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$",
        example = "order-4711"
    )]
    pub(crate) reference_id: Option<Reference>,
}

from_body!(DeductionBody { amount, reason, reference_id });

impl FromJson for CoinAmount {
    const EXPECTED: &'static str = "must be a whole number from 1 to 1000000000";

    fn from_json(value: &Value) -> Option<Self> {
        whole_number(value).and_then(Self::new)
    }
}

impl FromJson for Reference {
    const EXPECTED: &'static str = "must be a string of 1 to 128 characters without control characters";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(Self::parse)
    }
}

impl FromJson for Remark {
    const EXPECTED: &'static str = "must be a string of 1 to 200 characters on one line";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(|text| text.parse().ok())
    }
}

impl FromJson for TransactionId {
    const EXPECTED: &'static str = "must have the form txn_0192f0c1-2345-7abc-8def-0123456789ab";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().and_then(|text| text.parse().ok())
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct CoinsDeducted {
    #[schema(example = "The coins were deducted.")]
    message: &'static str,
    data: DeductionItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = CoinDeduction)]
struct DeductionItem {
    #[schema(minimum = 0, example = 150)]
    previous_balance: i64,
    #[schema(minimum = 1, example = 25)]
    amount_deducted: i64,
    #[schema(minimum = 0, example = 125)]
    new_balance: i64,
    #[schema(example = "txn_01a1f978-b580-7c21-9d6b-3f5a1b2c4d5e")]
    transaction_id: String,
}

impl From<Posted> for DeductionItem {
    fn from(posted: Posted) -> Self {
        Self {
            previous_balance: posted.balance - posted.amount,
            amount_deducted: -posted.amount,
            new_balance: posted.balance,
            transaction_id: posted.id.to_string(),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct DailyCoinsClaimed {
    #[schema(example = "Daily coins claimed.")]
    message: &'static str,
    data: ClaimItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = DailyCoinClaim)]
struct ClaimItem {
    /// Coins awarded, including the streak bonus.
    #[schema(example = 60)]
    coins_awarded: i64,
    #[schema(minimum = 0, example = 210)]
    new_balance: i64,
    /// Time of the next possible claim: the next midnight UTC.
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-21T00:00:00.000Z")]
    next_claim_at: OffsetDateTime,
    /// Consecutive days of claiming, including today.
    #[schema(minimum = 1, example = 2)]
    streak_days: i32,
    /// Part of `coins_awarded` that rewards the streak.
    #[schema(minimum = 0, example = 10)]
    streak_bonus: i64,
}

impl From<Claimed> for ClaimItem {
    fn from(claimed: Claimed) -> Self {
        Self {
            coins_awarded: claimed.coins,
            new_balance: claimed.balance,
            next_claim_at: rules::next_midnight(claimed.day),
            streak_days: claimed.streak_days,
            streak_bonus: claimed.bonus,
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct CoinOverview {
    data: CoinsItem,
    meta: HistoryMeta,
}

/// The caller's balance, streak and history.
#[derive(Serialize, ToSchema)]
#[schema(as = Coins)]
struct CoinsItem {
    #[schema(minimum = 0, example = 125)]
    balance: i64,
    streak: StreakItem,
    /// Transactions of the wallet, newest first.
    history: Vec<TransactionItem>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = CoinStreak)]
struct StreakItem {
    /// Consecutive days on which the daily coins were claimed, up to today or yesterday; 0 after a missed day.
    #[schema(minimum = 0, example = 2)]
    days: i32,
    /// Whether today's coins have been claimed.
    claimed_today: bool,
    /// Earliest time of the next claim: now, or the next midnight UTC.
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-21T00:00:00.000Z")]
    next_claim_at: OffsetDateTime,
    /// Coins that the next claim awards, if no day is missed.
    #[schema(example = 70)]
    next_coins: i64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = CoinTransaction)]
pub(crate) struct TransactionItem {
    #[schema(example = "txn_01a1f978-b580-7c21-9d6b-3f5a1b2c4d5e")]
    transaction_id: String,
    kind: Kind,
    /// Coins added to the wallet; negative if coins were removed.
    #[schema(example = -25)]
    amount: i64,
    /// Balance after the transaction.
    #[schema(minimum = 0, example = 125)]
    balance: i64,
    /// Purpose of a deduction, or the operator's explanation; null if there is none.
    #[schema(required, example = "purchase")]
    reason: Option<String>,
    #[schema(required, example = "order-4711")]
    reference_id: Option<String>,
    /// For a reversal, the transaction that it reverses in whole or in part.
    #[schema(required)]
    reverses: Option<String>,
    /// For a payout, the match that it pays for.
    #[schema(required)]
    event_id: Option<MatchId>,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    created_at: OffsetDateTime,
}

#[derive(Serialize, ToSchema)]
#[schema(as = CoinHistoryMeta)]
pub(crate) struct HistoryMeta {
    /// Cursor of the next page; null on the last page.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

impl From<Transaction> for TransactionItem {
    fn from(transaction: Transaction) -> Self {
        Self {
            transaction_id: transaction.id.to_string(),
            kind: transaction.kind,
            amount: transaction.amount,
            balance: transaction.balance,
            reason: transaction.reason,
            reference_id: transaction.reference,
            reverses: transaction.reverses.map(|id| id.to_string()),
            event_id: transaction.event,
            created_at: transaction.created_at,
        }
    }
}

impl From<Overview> for CoinOverview {
    fn from(overview: Overview) -> Self {
        let streak = StreakItem {
            days: overview.streak_days,
            claimed_today: overview.claimed_today,
            next_claim_at: overview.next_claim_at,
            next_coins: overview.next_coins,
        };
        let history = overview.history.into_iter().map(TransactionItem::from).collect();
        Self {
            data: CoinsItem { balance: overview.balance, streak, history },
            meta: HistoryMeta { next_cursor: overview.next.map(|cursor| cursor.to_string()) },
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Insufficient { balance } => Self::new(
                StatusCode::BAD_REQUEST,
                "insufficient_balance",
                format!("The wallet has only {balance} coins."),
            ),
            Refusal::OtherAmount => Self::invalid_field("reference_id", "was used for another amount"),
            Refusal::KeyUsed => idempotency::key_used(),
            Refusal::NoSuchUser => Self::not_found("The user"),
            Refusal::Full => Self::new(StatusCode::BAD_REQUEST, "wallet_full", "The wallet cannot hold more coins."),
        }
    }
}

impl From<MoveError> for ApiError {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::UnknownReason { allowed } => {
                let allowed: Vec<&str> = allowed.iter().map(Reason::as_str).collect();
                Self::invalid_field("reason", &format!("must be one of: {}", allowed.join(", ")))
            }
            MoveError::Refused(refusal) => refusal.into(),
            MoveError::Failed(BatchError::Overloaded) => {
                Self::unavailable("overloaded", "Too many deductions are in progress. Try again shortly.")
            }
            MoveError::Failed(BatchError::Database(error)) => Self::database(&error).because(error),
        }
    }
}

impl From<ClaimError> for ApiError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::AlreadyClaimed { next } => {
                let next = timestamp::text(next).unwrap_or_default();
                let message = format!("Today's coins have already been claimed. The next claim is possible at {next}.");
                Self::new(StatusCode::BAD_REQUEST, "already_claimed", message)
            }
            ClaimError::Refused(refusal) => refusal.into(),
            ClaimError::Database(error) => error.into(),
        }
    }
}

/// Spend coins on a purchase or a wager.
#[utoipa::path(post, path = "/api/auth/coins/deduct", tag = "Coins", security(("token" = [])),
    request_body = DeductionBody,
    responses(
        (status = 200, body = CoinsDeducted),
        (status = 400, description = "The body is not JSON, or the wallet has too few coins (`insufficient_balance`)", body = ErrorBody),
    ))]
pub(super) async fn deduct_coins(
    State(coins): State<Coins>,
    user: CurrentUser,
    request: Option<KeyedRequest>,
    ValidJson(DeductionBody { amount, reason, reference_id }): ValidJson<DeductionBody>,
) -> Result<(Option<Extension<KeyOutcome>>, Json<CoinsDeducted>), ApiError> {
    let deduction = Deduction { amount, reason, reference: reference_id, request };
    let deducted = coins.deduct(user.id, deduction).await?;
    let body = CoinsDeducted { message: "The coins were deducted.", data: deducted.posted.into() };
    Ok((deducted.key_outcome.map(Extension), Json(body)))
}

/// Claim the daily coins.
#[utoipa::path(post, path = "/api/auth/daily-coins", tag = "Coins", security(("token" = [])),
    responses(
        (status = 200, body = DailyCoinsClaimed),
        (status = 400, description = "Today's coins have already been claimed (`already_claimed`)", body = ErrorBody),
        (status = 429, description = "Too many attempts; retry after the time in `Retry-After`", body = ErrorBody),
    ))]
pub(super) async fn claim_daily_coins(
    State(coins): State<Coins>,
    user: CurrentUser,
    request: Option<RequestKey>,
) -> Result<Json<DailyCoinsClaimed>, ApiError> {
    permitted(coins.take_claim(user.id).await)?;
    let claimed = coins.claim(user.id, request).await?;
    Ok(Json(DailyCoinsClaimed { message: "Daily coins claimed.", data: claimed.into() }))
}

/// Get the caller's coins, streak and history.
#[utoipa::path(get, path = "/api/auth/coins", tag = "Coins", security(("token" = [])),
    params(CursorPaging), responses((status = 200, body = CoinOverview)))]
pub(super) async fn get_coins(
    State(coins): State<Coins>,
    user: CurrentUser,
    CallerReader(reader): CallerReader,
    Query(paging): Query<CursorPaging>,
) -> Result<Json<CoinOverview>, ApiError> {
    Ok(Json(coins.overview(&reader, user.id, paging).await?.into()))
}
