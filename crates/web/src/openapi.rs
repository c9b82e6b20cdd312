//! The description of the interface, made from the code, and the page that shows it.

use axum::{
    Router,
    response::{Html, IntoResponse, Response},
    routing::get,
};
use http::{HeaderValue, header};
use utoipa::openapi::{
    Content, OpenApi, Ref, RefOr, Required, Response as OpenApiResponse, ResponseBuilder,
    path::{Operation, Parameter, ParameterIn},
    schema::{ObjectBuilder, Type},
    security::{Http, HttpAuthScheme, SecurityScheme},
};

use crate::LONGEST_IDEMPOTENCY_KEY;

/// Adds what holds for every operation alike, so that no handler repeats it: the token's scheme, and the errors that
/// extractors and the edge answer with.
pub fn complete(mut api: OpenApi) -> OpenApi {
    let components = api.components.get_or_insert_default();
    components.security_schemes.insert(
        "token".to_owned(),
        SecurityScheme::Http(Http::builder().scheme(HttpAuthScheme::Bearer).description(Some("From a login")).build())
            .into(),
    );
    for common in COMMON {
        components.responses.insert(common.name.to_owned(), common.response().into());
    }
    components.parameters.insert(IDEMPOTENCY_KEY.to_owned(), idempotency_key().into());
    for item in api.paths.paths.values_mut() {
        // Without a token there is nobody to whom a key could belong.
        if let Some(post) = item.post.as_mut().filter(|post| post.security.is_some()) {
            let reference = Ref::new(format!("#/components/parameters/{IDEMPOTENCY_KEY}"));
            post.parameters.get_or_insert_default().push(RefOr::Ref(reference));
        }
        let operations =
            [&mut item.get, &mut item.post, &mut item.put, &mut item.delete].into_iter().filter_map(Option::as_mut);
        for operation in operations {
            // A summary comes from a doc comment, which is a sentence; in a list of operations it is a heading.
            operation.summary = operation.summary.take().map(|summary| summary.trim_end_matches('.').to_owned());
            add_common(operation);
        }
    }
    api
}

/// The name of the parameter that every POST with a token has.
const IDEMPOTENCY_KEY: &str = "IdempotencyKey";

fn idempotency_key() -> Parameter {
    let key = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(LONGEST_IDEMPOTENCY_KEY))
        .pattern(Some("^[!-~]+$"));
    Parameter::builder()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within \
             24 hours, the request does not happen again: the answer is the one of the first time, with \
             `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that \
             hold credentials. Another body is 422 `idempotency_key_reused`.",
        ))
        .schema(Some(key))
        .example(Some("8e03978e-40d5-43dd-bc93-6894a57f9324".into()))
        .build()
}

fn takes_key(operation: &Operation) -> bool {
    operation.parameters.iter().flatten().any(|parameter| matches!(parameter, RefOr::Ref(_)))
}

struct Common {
    name: &'static str,
    status: &'static str,
    description: &'static str,
    example: &'static str,
    applies: fn(&Operation) -> bool,
}

const COMMON: [Common; 9] = [
    Common {
        name: "Malformed",
        status: "400",
        description: "The body is not JSON",
        example: r#"{"message": "The body is not JSON: line 1, column 10.", "code": "malformed_json"}"#,
        applies: takes_json,
    },
    Common {
        name: "Unauthenticated",
        status: "401",
        description: "The token is missing, unknown, expired or revoked",
        example: r#"{"message": "A valid token is needed.", "code": "unauthenticated"}"#,
        applies: |operation| operation.security.is_some(),
    },
    Common {
        name: "Suspended",
        status: "403",
        description: "The account is suspended",
        example: r#"{"message": "This account is suspended.", "code": "account_suspended"}"#,
        applies: |operation| operation.security.is_some(),
    },
    Common {
        name: "InProgress",
        status: "409",
        description: "The same request is still under way; `Retry-After` says when to try again",
        example: r#"{"message": "The same request is still under way. Try again shortly.", "code": "idempotency_in_progress"}"#,
        applies: takes_key,
    },
    Common {
        name: "TooLarge",
        status: "413",
        description: "The body is larger than 64 KiB",
        example: r#"{"message": "The body is too large.", "code": "body_too_large"}"#,
        applies: |operation| operation.request_body.is_some(),
    },
    Common {
        name: "Invalid",
        status: "422",
        description: "Something in the request is of the wrong type or value; `errors` says what, by field",
        example: r#"{"message": "The page must be a whole number from 1.", "code": "validation_failed", "errors": {"page": ["The page must be a whole number from 1."]}}"#,
        applies: |operation| {
            takes_json(operation)
                || takes_key(operation)
                || operation.parameters.iter().flatten().any(|parameter| {
                    matches!(parameter, RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query)
                })
        },
    },
    Common {
        name: "RateLimited",
        status: "429",
        description: "Too many requests; `Retry-After` says when to try again",
        example: r#"{"message": "Too many requests. Try again later.", "code": "rate_limited"}"#,
        applies: |operation| operation.security.is_some(),
    },
    Common {
        name: "Internal",
        status: "500",
        description: "Something went wrong on our side; tell the operator the request id",
        example: r#"{"message": "Something went wrong on our side.", "code": "internal_error", "request_id": "4f1c2ab9d0e8f7360000000001"}"#,
        applies: is_api,
    },
    Common {
        name: "Unavailable",
        status: "503",
        description: "A part is away, or too much is going on; `Retry-After` says when to try again",
        example: r#"{"message": "Too many requests are under way. Try again shortly.", "code": "overloaded"}"#,
        applies: is_api,
    },
];

/// Whether the body is parsed as JSON before the handler runs. Bodies that may also be of another type are handed on as
/// received.
fn takes_json(operation: &Operation) -> bool {
    matches!(&operation.request_body, Some(RefOr::T(body)) if body.content.keys().eq(["application/json"]))
}

/// Health and readiness answer for themselves.
fn is_api(operation: &Operation) -> bool {
    !operation.tags.iter().flatten().any(|tag| tag == "Operations")
}

impl Common {
    fn response(&self) -> OpenApiResponse {
        let mut content = Content::new(Some(Ref::from_schema_name("ErrorBody")));
        content.example = serde_json::from_str(self.example).ok();
        ResponseBuilder::new().description(self.description).content("application/json", content).build()
    }
}

fn add_common(operation: &mut Operation) {
    for common in COMMON {
        if !(common.applies)(operation) {
            continue;
        }
        operation
            .responses
            .responses
            .entry(common.status.to_owned())
            .or_insert_with(|| RefOr::Ref(Ref::from_response_name(common.name)));
    }
}

/// The paths of the reference page and its scripts.
pub const REFERENCE_PATHS: [&str; 3] = ["/docs", "/docs/setup.js", "/docs/viewer.js"];

/// The reference page and its scripts.
pub fn reference_routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let [page, setup, viewer] = REFERENCE_PATHS;
    Router::new()
        .route(page, get(get_reference))
        .route(setup, get(get_reference_setup))
        .route(viewer, get(get_reference_viewer))
}

/// The reference page. It may load only what this service serves: a page that needs the internet is broken in a
/// closed network, and tells others who reads it.
async fn get_reference() -> Response {
    const POLICY: HeaderValue = HeaderValue::from_static(
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    );
    ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(include_str!("reference/index.html"))).into_response()
}

/// The page's own script.
async fn get_reference_setup() -> Response {
    script(include_str!("reference/setup.js").as_bytes(), false)
}

/// The viewer (Scalar, MIT), compressed as it is kept.
async fn get_reference_viewer() -> Response {
    script(include_bytes!("reference/viewer.js.gz"), true)
}

fn script(body: &'static [u8], gzipped: bool) -> Response {
    let mut response = (
        [
            (header::CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8")),
            (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600")),
        ],
        body,
    )
        .into_response();
    if gzipped {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}
