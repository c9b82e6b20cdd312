//! Balances, grants, deductions and reversals.

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use web::{ApiError, ErrorBody, Path, Query, ValidJson, fields::from_body, ids::UserId, paging::CursorPaging};

use super::users::{LateJson, named};
use crate::{
    game::coins::{
        DeductionBody, HistoryMeta, TransactionItem,
        ledger::Posted,
        rules::{CoinAmount, Kind, Reference, Remark, TransactionId},
        service::{Coins, Deduction, Grant, OperatorError, Reversal},
    },
    identity::{
        accounts::service::Accounts,
        callers::CallerReader,
        idempotency::{KeyOutcome, KeyedRequest},
        server_keys::{
            Authorized,
            scopes::{CoinsRead, CoinsWrite},
        },
    },
};

#[derive(Serialize, ToSchema)]
#[schema(as = ServerCoinsResponse)]
pub(super) struct CoinsResponse {
    data: CoinsItem,
    meta: HistoryMeta,
}

#[derive(Serialize, ToSchema)]
#[schema(as = UserCoins)]
struct CoinsItem {
    user_id: UserId,
    #[schema(minimum = 0, example = 125)]
    balance: i64,
    /// Transactions of the wallet, newest first.
    history: Vec<TransactionItem>,
}

/// Get the balance and the transactions of a user.
#[utoipa::path(get, path = "/api/server/v1/users/{user}/coins", tag = "Coins",
    params(("user" = String, Path, description = "User id or username", example = "12"), CursorPaging),
    responses(
        (status = 200, body = CoinsResponse),
        (status = 404, description = "The user does not exist", body = ErrorBody),
    ))]
pub(super) async fn get_coins(
    _: Authorized<CoinsRead>,
    State(accounts): State<Accounts>,
    State(coins): State<Coins>,
    CallerReader(reader): CallerReader,
    Path(user): Path<String>,
    paging: Result<Query<CursorPaging>, ApiError>,
) -> Result<Json<CoinsResponse>, ApiError> {
    let user_id = named(&accounts, &user).await?.id;
    let Query(paging) = paging?;
    let overview = coins.overview(&reader, user_id, paging).await?;
    let history = overview.history.into_iter().map(TransactionItem::from).collect();
    Ok(Json(CoinsResponse {
        data: CoinsItem { user_id, balance: overview.balance, history },
        meta: HistoryMeta { next_cursor: overview.next.map(|cursor| cursor.to_string()) },
    }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct CoinsMoved {
    #[schema(example = "The coins were granted.")]
    message: &'static str,
    data: MovementItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = CoinMovement)]
struct MovementItem {
    #[schema(example = "txn_01a1f978-b580-7c21-9d6b-3f5a1b2c4d5e")]
    transaction_id: String,
    user_id: UserId,
    kind: Kind,
    /// Coins added to the wallet; negative if coins were removed.
    #[schema(example = 40)]
    amount: i64,
    #[schema(minimum = 0, example = 100)]
    previous_balance: i64,
    #[schema(minimum = 0, example = 140)]
    new_balance: i64,
    #[schema(example = "campaign")]
    reason: String,
    #[schema(required, example = "outage-7")]
    reference_id: Option<String>,
    /// For a reversal, the transaction that it reverses in whole or in part.
    #[schema(required)]
    reverses: Option<String>,
}

/// A response with the outcome of its idempotency key.
type Moved = (Option<Extension<KeyOutcome>>, Json<CoinsMoved>);

impl MovementItem {
    fn new(user_id: UserId, kind: Kind, posted: Posted, reason: String) -> Self {
        Self {
            transaction_id: posted.id.to_string(),
            user_id,
            kind,
            amount: posted.amount,
            previous_balance: posted.balance - posted.amount,
            new_balance: posted.balance,
            reason,
            reference_id: None,
            reverses: None,
        }
    }
}

/// Returns the id of the user that a path names. A user id is not looked up: the batch that moves the coins checks whether
/// the user exists. With an invalid body there is no batch.
async fn user_of<T>(accounts: &Accounts, user: &str, body: &LateJson<T>) -> Result<UserId, ApiError> {
    match user.parse() {
        Ok(id) if body.is_ok() => Ok(id),
        _ => Ok(named(accounts, user).await?.id),
    }
}

#[derive(ToSchema)]
#[schema(as = CoinGrant)]
pub(super) struct GrantBody {
    #[schema(value_type = i64, minimum = 1, maximum = 1_000_000_000, example = 40)]
    amount: CoinAmount,
    /// Shown to the user.
    #[schema(value_type = String, min_length = 1, max_length = 200, pattern = r"^[\t-\r ]*[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*[\t-\r ]*$", example = "campaign")]
    reason: Remark,
    /// A grant happens once per user and reference: repeating it returns the first response, and a different amount is
    /// refused. After its reversal, it is refused too.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$", example = "outage-7")]
    reference_id: Option<Reference>,
}

from_body!(GrantBody { amount, reason, reference_id });

/// Grant coins to a user.
#[utoipa::path(post, path = "/api/server/v1/users/{user}/coins/grant", tag = "Coins",
    params(("user" = String, Path, description = "User id or username", example = "12")),
    request_body = GrantBody,
    responses(
        (status = 200, body = CoinsMoved),
        (status = 400, description = "The body is not JSON, or the wallet cannot hold more coins (`wallet_full`)", body = ErrorBody),
        (status = 404, description = "The user does not exist", body = ErrorBody),
        (status = 409, description = "The grant with this reference was reversed (`reversed`), or a request with the same idempotency key is in progress (`idempotency_in_progress`)", body = ErrorBody),
    ))]
pub(super) async fn grant_coins(
    caller: Authorized<CoinsWrite>,
    State(accounts): State<Accounts>,
    State(coins): State<Coins>,
    Path(user): Path<String>,
    request: Option<KeyedRequest>,
    body: LateJson<GrantBody>,
) -> Result<Moved, ApiError> {
    let user = user_of(&accounts, &user, &body).await?;
    let ValidJson(GrantBody { amount, reason: remark, reference_id: reference }) = body?;
    let (reason, named) = (remark.as_str().to_owned(), reference.as_ref().map(|one| one.as_str().to_owned()));
    let by = caller.operator(reason.as_str());
    let booked = coins.grant_by(user, Grant { amount, remark, reference, request }, by).await?;
    let data = MovementItem {
        reference_id: named,
        ..MovementItem::new(user, Kind::Grant, booked.posted, booked.prior_remark.unwrap_or(reason))
    };
    Ok((booked.key_outcome.map(Extension), Json(CoinsMoved { message: "The coins were granted.", data })))
}

/// Deduct coins from a user.
#[utoipa::path(post, path = "/api/server/v1/users/{user}/coins/deduct", tag = "Coins",
    params(("user" = String, Path, description = "User id or username", example = "12")),
    request_body = DeductionBody,
    responses(
        (status = 200, body = CoinsMoved),
        (status = 400, description = "The body is not JSON, or the wallet has too few coins (`insufficient_balance`)", body = ErrorBody),
        (status = 404, description = "The user does not exist", body = ErrorBody),
        (status = 409, description = "The deduction with this reference was reversed (`reversed`), or a request with the same idempotency key is in progress (`idempotency_in_progress`)", body = ErrorBody),
    ))]
pub(super) async fn deduct_coins(
    caller: Authorized<CoinsWrite>,
    State(accounts): State<Accounts>,
    State(coins): State<Coins>,
    Path(user): Path<String>,
    request: Option<KeyedRequest>,
    body: LateJson<DeductionBody>,
) -> Result<Moved, ApiError> {
    let user = user_of(&accounts, &user, &body).await?;
    let ValidJson(DeductionBody { amount, reason, reference_id: reference }) = body?;
    let (purpose, named) = (reason.as_str().to_owned(), reference.as_ref().map(|one| one.as_str().to_owned()));
    let by = caller.operator(purpose.as_str());
    let booked = coins.deduct_by(user, Deduction { amount, reason, reference, request }, by).await?;
    let data = MovementItem { reference_id: named, ..MovementItem::new(user, Kind::Deduction, booked.posted, purpose) };
    Ok((booked.key_outcome.map(Extension), Json(CoinsMoved { message: "The coins were deducted.", data })))
}

#[derive(ToSchema)]
#[schema(as = CoinReversal)]
pub(super) struct ReversalBody {
    #[schema(value_type = String, pattern = "^txn_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", example = "txn_01a1f978-b580-7c21-9d6b-3f5a1b2c4d5e")]
    transaction_id: TransactionId,
    /// Default: what remains of the transaction.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 1_000_000_000, example = 10)]
    amount: Option<CoinAmount>,
    /// Shown to the user.
    #[schema(value_type = String, min_length = 1, max_length = 200, pattern = r"^[\t-\r ]*[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*[\t-\r ]*$", example = "returned")]
    reason: Remark,
}

from_body!(ReversalBody { transaction_id, amount, reason });

/// Reverse a transaction of a user, in whole or in part.
///
/// The reversal of a deduction adds coins. The reversal of a grant, welcome or daily bonus removes them.
#[utoipa::path(post, path = "/api/server/v1/users/{user}/coins/reverse", tag = "Coins",
    params(("user" = String, Path, description = "User id or username", example = "12")),
    request_body = ReversalBody,
    responses(
        (status = 200, body = CoinsMoved),
        (status = 400, description = "The body is not JSON, or the user has spent the coins (`insufficient_balance`)", body = ErrorBody),
        (status = 404, description = "The user does not exist, or has no such transaction", body = ErrorBody),
        (status = 409, description = "Nothing of the transaction remains (`already_reversed`), or a request with the same idempotency key is in progress (`idempotency_in_progress`)", body = ErrorBody),
    ))]
pub(super) async fn reverse_transaction(
    caller: Authorized<CoinsWrite>,
    State(accounts): State<Accounts>,
    State(coins): State<Coins>,
    Path(user): Path<String>,
    request: Option<KeyedRequest>,
    body: LateJson<ReversalBody>,
) -> Result<Moved, ApiError> {
    let user = named(&accounts, &user).await?.id;
    let ValidJson(ReversalBody { transaction_id, amount, reason: remark }) = body?;
    let reason = remark.as_str().to_owned();
    let by = caller.operator(reason.as_str());
    let reversal = Reversal { amount, id: Some(transaction_id), remark, request };
    let (reversed, booked) = coins.reverse_by(user, &reversal, &by).await.map_err(refused)?;
    let data = MovementItem {
        reverses: Some(reversed.to_string()),
        ..MovementItem::new(user, Kind::Reversal, booked.posted, reason)
    };
    Ok((booked.key_outcome.map(Extension), Json(CoinsMoved { message: "The transaction was reversed.", data })))
}

fn refused(error: OperatorError) -> ApiError {
    match error {
        OperatorError::NoSuchTransaction | OperatorError::Ambiguous(_) => ApiError::not_found("The transaction"),
        OperatorError::NotReversible(kind) => {
            ApiError::invalid_field("transaction_id", &format!("must not name a transaction of kind {}", kind.name()))
        }
        OperatorError::TooMuch(0) => {
            let message = "The transaction is already reversed completely.";
            ApiError::new(StatusCode::CONFLICT, "already_reversed", message)
        }
        OperatorError::TooMuch(left) => ApiError::invalid_field("amount", &format!("must be at most {left}")),
        OperatorError::Refused(refusal) => refusal.into(),
        OperatorError::Database(error) => error.into(),
    }
}
