//! HTTP handlers for seals and proofs.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use web::{
    ApiError, ErrorBody, Path, Query, Wanted,
    fields::{FromParameters, FromQuery, Parameters},
    ids::{MatchId, PredictionId},
};

use super::{
    rules::Seal,
    service::{ChainHead, ListError, Proof, ProofError, Seals},
};
use crate::{
    game::predictions::receipts::{Hash, ReceiptItem},
    identity::sessions::CurrentUser,
};

/// A seal may still get a time-stamp token, and the list further seals.
const SHORT: HeaderValue = HeaderValue::from_static("public, max-age=2");
const LONG: HeaderValue = HeaderValue::from_static("public, max-age=86400");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Maximum page size. Larger values are reduced to it.
const MOST_PER_PAGE: i64 = 1_000;

const DEFAULT_PER_PAGE: i64 = 100;

#[derive(Clone, Copy, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ChainParameters {
    /// Only seals with a higher sequence.
    #[param(value_type = Option<i64>, minimum = 0, default = 0)]
    after: i64,
    /// Number of seals. Values above 1000 are treated as 1000.
    #[param(value_type = Option<i64>, minimum = 1, default = 100)]
    per_page: i64,
    /// Only seals of this match.
    #[param(value_type = Option<i64>, minimum = 1)]
    event_id: Option<MatchId>,
}

impl FromParameters for ChainParameters {
    fn from_parameters(parameters: &mut Parameters<'_>) -> Option<Self> {
        let after = parameters.optional::<After>("after");
        let per_page = parameters.optional::<PerPage>("per_page");
        let event_id = parameters.optional("event_id");
        Some(Self {
            after: after?.map_or(0, |After(after)| after),
            per_page: per_page?.map_or(DEFAULT_PER_PAGE, |PerPage(size)| size.min(MOST_PER_PAGE)),
            event_id: event_id?,
        })
    }
}

struct After(i64);

impl FromQuery for After {
    const EXPECTED: &'static str = "must be a whole number from 0";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok().filter(|&number| number >= 0).map(Self)
    }
}

struct PerPage(i64);

impl FromQuery for PerPage {
    const EXPECTED: &'static str = "must be a positive integer";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok().filter(|&number| number >= 1).map(Self)
    }
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a response that is joined from cached parts")]
pub(super) struct SealList {
    data: Vec<Seal>,
    meta: ChainMeta,
}

#[derive(Serialize, ToSchema)]
struct ChainMeta {
    /// `after` for the next page: the last sequence of this one.
    #[schema(example = 2)]
    next_after: i64,
    /// Whether there are further seals.
    more: bool,
    /// The newest seal; null without seals.
    #[schema(required)]
    head: Option<ChainHead>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct SealResponse {
    data: Seal,
}

fn page_failed(error: Arc<ListError>) -> ApiError {
    match &*error {
        ListError::Database(database) => ApiError::database(database).because(Arc::clone(&error)),
        ListError::Render(_) => ApiError::internal(error),
    }
}

/// List the seals of all matches, in the order of their chain.
///
/// Public, so that anyone can keep a copy and check later that no seal was changed.
#[utoipa::path(get, path = "/api/seals", tag = "Seals",
    params(ChainParameters),
    responses(
        (status = 200, body = SealList, headers(("ETag" = String, description = "Weak validator of the page"))),
        (status = 304, description = "The page has not changed since the one with this `ETag`"),
    ))]
pub(super) async fn list_seals(
    State(seals): State<Seals>,
    Query(ChainParameters { after, per_page, event_id }): Query<ChainParameters>,
    wanted: Wanted,
) -> Result<Response, ApiError> {
    let page = seals.page(event_id, after, per_page).await.map_err(page_failed)?;
    let meta = ChainMeta { next_after: page.last.unwrap_or(after), more: page.more, head: page.head };
    let meta = serde_json::to_vec(&meta).map_err(ApiError::internal)?;
    let digest = Hash::of(&[&page.digest.0, &after.to_be_bytes(), &meta]);
    let etag = HeaderValue::try_from(format!("W/\"{}\"", hex::encode(&digest.0[..8]))).map_err(ApiError::internal)?;
    let mut response = if wanted.is_unchanged(&etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, JSON)], body(page.seals, meta)).into_response()
    };
    response.headers_mut().insert(header::ETAG, etag);
    response.headers_mut().insert(header::CACHE_CONTROL, SHORT);
    Ok(response)
}

/// Joins the cached parts without copying them. To save CPU, the list is not compressed for each request: a page can have
/// megabytes of time-stamp tokens, and anyone can request pages. Proxies can cache them.
fn body(seals: Vec<Bytes>, meta: Vec<u8>) -> Body {
    let mut chunks = vec![Bytes::from_static(b"{\"data\":[")];
    for (at, some) in seals.into_iter().enumerate() {
        chunks.extend((at > 0).then(|| Bytes::from_static(b",")));
        chunks.push(some);
    }
    chunks.extend([Bytes::from_static(b"],\"meta\":"), meta.into(), Bytes::from_static(b"}")]);
    Body::from_stream(stream::iter(chunks.into_iter().map(Ok::<_, Infallible>)))
}

/// Show a seal.
#[utoipa::path(get, path = "/api/seals/{sequence}", tag = "Seals",
    params(("sequence" = i64, Path, description = "Position in the chain", minimum = 1)),
    responses(
        (status = 200, body = SealResponse),
        (status = 404, description = "There is no such seal", body = ErrorBody),
    ))]
pub(super) async fn get_seal(
    State(seals): State<Seals>,
    Path(Sequence(sequence)): Path<Sequence>,
) -> Result<impl IntoResponse, ApiError> {
    let seal = seals.find(sequence).await?.ok_or_else(|| ApiError::not_found("The seal"))?;
    let is_final = seal.timestamp_token.is_some() || !seals.has_authority();
    Ok(([(header::CACHE_CONTROL, if is_final { LONG } else { SHORT })], Json(SealResponse { data: seal })))
}

/// Position of a seal in a path.
pub(super) struct Sequence(i64);

impl std::str::FromStr for Sequence {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        // `parse` would also accept a leading `+`, which would give a seal two URLs.
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|&sequence: &i64| digits && sequence >= 1).map(Self).ok_or(())
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct ProofResponse {
    data: ProofItem,
}

/// Proves that a prediction was sealed: the leaf hash and the path give the root of the seal (RFC 9162, section 2.1.3.2).
#[derive(Serialize, ToSchema)]
#[schema(as = PredictionProof)]
struct ProofItem {
    /// Receipt of the sealed revision, which may be older than the latest revision.
    receipt: ReceiptItem,
    seal: Seal,
    /// Position of the prediction among the sorted hashes, from 0. The size of the tree is `seal.count`.
    #[schema(example = 1)]
    leaf_index: u64,
    /// Hashes from the leaf up.
    #[schema(value_type = Vec<String>)]
    inclusion_path: Vec<Hash>,
}

impl From<ProofError> for ApiError {
    fn from(error: ProofError) -> Self {
        match error {
            ProofError::NoSuchPrediction => Self::not_found("The prediction"),
            ProofError::NotSealed => {
                Self::new(StatusCode::CONFLICT, "not_sealed", "This prediction is sealed when its match has started.")
            }
            ProofError::NotCounted => Self::new(
                StatusCode::CONFLICT,
                "not_counted",
                "This prediction was made after the start of the match and does not count.",
            ),
            error @ ProofError::Differs => Self::internal(error),
            ProofError::Database(error) => error.into(),
        }
    }
}

/// Prove that a prediction was sealed when its match started.
#[utoipa::path(get, path = "/api/auth/predictions/{id}/proof", tag = "Predictions", security(("token" = [])),
    params(("id" = PredictionId, Path, description = "Id of the prediction")),
    responses(
        (status = 200, body = ProofResponse),
        (status = 404, description = "The caller has no such prediction", body = ErrorBody),
        (status = 409, description = "The prediction is not sealed yet (`not_sealed`), or it was late (`not_counted`)", body = ErrorBody),
    ))]
pub(super) async fn get_proof(
    State(seals): State<Seals>,
    user: CurrentUser,
    Path(id): Path<PredictionId>,
) -> Result<Json<ProofResponse>, ApiError> {
    let Proof { receipt, seal, leaf_index, path } = seals.prove(user.id, id).await?;
    let data = ProofItem { receipt: receipt.into(), seal, leaf_index, inclusion_path: path };
    Ok(Json(ProofResponse { data }))
}
