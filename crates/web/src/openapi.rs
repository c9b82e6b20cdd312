//! The OpenAPI description, generated from the code, and the reference page that displays it.

use axum::{
    Router,
    response::{Html, IntoResponse, Response},
    routing::get,
};
use http::{HeaderValue, header};
use utoipa::openapi::{
    Contact, Content, OpenApi, Ref, RefOr, Required, Response as OpenApiResponse, ResponseBuilder, Schema, Server,
    path::{Operation, Parameter, ParameterIn, PathItem},
    schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type},
    security::{Http, HttpAuthScheme, SecurityScheme},
};
use utoipa::{PartialSchema, ToSchema};

use crate::LONGEST_IDEMPOTENCY_KEY;

/// Adds the parts that all operations share, so handlers do not repeat them: the security scheme, and the errors
/// returned by extractors and by the edge.
pub fn complete(mut api: OpenApi) -> OpenApi {
    // An idempotency key belongs to a user, so it requires a token.
    let posts = api.paths.paths.values_mut().filter_map(|item| item.post.as_mut());
    posts.filter(|post| post.security.is_some()).for_each(add_idempotency_key);
    let others: Vec<&Common> = COMMON.iter().filter(|common| common.name != SERVER_FORBIDDEN).collect();
    finish(api, "token", "Session token", idempotency_key(Required::False), &others)
}

/// Like [`complete`], for the API of backends. Its routes state their scopes and whether they need an idempotency key.
pub fn complete_server(api: OpenApi) -> OpenApi {
    let others: Vec<&Common> = COMMON.iter().filter(|common| common.name != SUSPENDED).collect();
    finish(api, SERVER_KEY, "Server key", idempotency_key(Required::True), &others)
}

fn finish(mut api: OpenApi, scheme: &str, meaning: &str, key: Parameter, common: &[&Common]) -> OpenApi {
    api.servers = Some(vec![Server::new("/")]);
    let mut contact = Contact::new();
    contact.name = Some("The operator of this service".to_owned());
    api.info.contact = Some(contact);
    let components = api.components.get_or_insert_default();
    components.security_schemes.insert(
        scheme.to_owned(),
        SecurityScheme::Http(Http::builder().scheme(HttpAuthScheme::Bearer).description(Some(meaning)).build()).into(),
    );
    for common in common {
        components.responses.insert(common.name.to_owned(), common.response().into());
    }
    components.parameters.insert(IDEMPOTENCY_KEY.to_owned(), key.into());
    for operation in api.paths.paths.values_mut().flat_map(operations_mut) {
        // A summary is the first sentence of a doc comment, but is displayed as a heading.
        operation.summary = operation.summary.take().map(|summary| summary.trim_end_matches('.').to_owned());
        add_common(operation, common);
        // States that a public operation needs no token. Without it, the description would leave that open.
        operation.security.get_or_insert_default();
        for (status, response) in &mut operation.responses.responses {
            if let RefOr::T(response) = response
                && response.description.is_empty()
            {
                // The specification requires a description, but utoipa omits an empty one.
                if status == "201" { "Created" } else { "Success" }.clone_into(&mut response.description);
            }
        }
    }
    api
}

/// Body that is not text, such as an image.
pub struct Binary;

/// Implemented manually, because the schema of bytes would be an array of numbers.
impl PartialSchema for Binary {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
        ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
    }
}

impl ToSchema for Binary {}

/// Name of the security scheme of server keys.
pub const SERVER_KEY: &str = "server_key";

/// Operations of a path.
pub fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete]
        .into_iter()
        .filter_map(Option::as_mut)
}

/// Adds the shared parameter for the idempotency key.
pub fn add_idempotency_key(operation: &mut Operation) {
    let reference = Ref::new(format!("#/components/parameters/{IDEMPOTENCY_KEY}"));
    operation.parameters.get_or_insert_default().push(RefOr::Ref(reference));
}

/// Name of the shared parameter for idempotency keys.
const IDEMPOTENCY_KEY: &str = "IdempotencyKey";

fn idempotency_key(required: Required) -> Parameter {
    let key = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(LONGEST_IDEMPOTENCY_KEY))
        .pattern(Some("^[!-~]+$"));
    Parameter::builder()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(required)
        .description(Some(
            "Unique key of this request, chosen by the client, like a UUID. A request that is sent again with the same \
             key, path and body within 24 hours is not performed again: the response is the stored one, with \
             `Idempotency-Replayed: true`. Responses with status 401, 403, 413, 429 or 5xx are not stored, nor are \
             responses with credentials. The same key with another body is 422 `idempotency_key_reused`.",
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

const SUSPENDED: &str = "Suspended";
const SERVER_FORBIDDEN: &str = "Forbidden";

const COMMON: [Common; 10] = [
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
        example: r#"{"message": "A valid token is required.", "code": "unauthenticated"}"#,
        applies: |operation| operation.security.is_some(),
    },
    Common {
        name: SUSPENDED,
        status: "403",
        description: "The account is suspended",
        example: r#"{"message": "This account is suspended.", "code": "account_suspended"}"#,
        applies: |operation| operation.security.is_some(),
    },
    Common {
        name: SERVER_FORBIDDEN,
        status: "403",
        description: "The key lacks the scope (`insufficient_scope`), or may not be used from this network (`network_not_allowed`)",
        example: r#"{"message": "This key lacks the scope coins:write.", "code": "insufficient_scope"}"#,
        applies: |operation| operation.security.is_some(),
    },
    Common {
        name: "InProgress",
        status: "409",
        description: "A request with the same idempotency key is still in progress; `Retry-After` says when to try again",
        example: r#"{
            "message": "A request with this idempotency key is still in progress. Try again shortly.",
            "code": "idempotency_in_progress"
        }"#,
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
        description: "The request has missing or invalid values; `errors` lists them by field",
        example: r#"{
            "message": "The page must be a positive integer.",
            "code": "validation_failed",
            "errors": {"page": ["The page must be a positive integer."]}
        }"#,
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
        description: "Internal error; report the request id to the operator",
        example: r#"{
            "message": "Something went wrong on our side.",
            "code": "internal_error",
            "request_id": "4f1c2ab9d0e8f7360000000001"
        }"#,
        applies: is_api,
    },
    Common {
        name: "Unavailable",
        status: "503",
        description: "A dependency is unavailable, or the server is overloaded; `Retry-After` says when to try again",
        example: r#"{"message": "The server is overloaded. Try again shortly.", "code": "overloaded"}"#,
        applies: is_api,
    },
];

/// Whether the body is parsed as JSON before the handler runs. Bodies that may have another type are passed on as
/// received.
fn takes_json(operation: &Operation) -> bool {
    matches!(&operation.request_body, Some(RefOr::T(body)) if body.content.keys().eq(["application/json"]))
}

/// Health and readiness declare their own responses.
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

fn add_common(operation: &mut Operation, common: &[&Common]) {
    for common in common {
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

/// Paths of the reference page and its scripts.
pub const REFERENCE_PATHS: [&str; 3] = ["/docs", "/docs/setup.js", "/docs/viewer.js"];

/// Routes of the reference page and its scripts.
pub fn reference_routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let [page, setup, viewer] = REFERENCE_PATHS;
    Router::new()
        .route(page, get(get_reference))
        .route(setup, get(get_reference_setup))
        .route(viewer, get(get_reference_viewer))
}

/// Serves the reference page. It loads only resources of this service: a page that needs the internet would be broken
/// in a closed network and reveal its readers to third parties.
async fn get_reference() -> Response {
    const POLICY: HeaderValue = HeaderValue::from_static(
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
         font-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    );
    ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(include_str!("reference/index.html"))).into_response()
}

/// Serves the script that configures the viewer.
async fn get_reference_setup() -> Response {
    script(include_str!("reference/setup.js").as_bytes(), false)
}

/// Serves the viewer (Scalar, MIT), which is stored compressed.
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
