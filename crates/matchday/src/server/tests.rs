//! The server API through the router, on a real database.

mod access;
mod actions;
mod coins;

use axum::body::Body;
use http::{Method, Request, header};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use web::ids::ServerKeyId;

use crate::{
    identity::{
        operators::{
            Operator,
            service::{ActionFilter, Recorded},
        },
        server_keys::{
            scopes::Scope,
            service::{IssuedKey, KeyRequest},
        },
    },
    testing::{Answer, TestApp, unique},
};

const API: &str = "/api/server/v1";

/// A backend with a server key.
struct Backend<'a> {
    app: &'a TestApp,
    id: ServerKeyId,
    key: String,
}

fn ola() -> Operator {
    Operator::new("ola", "for a test")
}

fn wish(scopes: &[Scope]) -> KeyRequest {
    KeyRequest {
        name: "shop".parse().expect("a name"),
        scopes: scopes.to_vec(),
        networks: Vec::new(),
        expires_in: None,
    }
}

async fn backend<'a>(app: &'a TestApp, scopes: &[Scope]) -> Backend<'a> {
    Backend::with(app, &wish(scopes)).await
}

impl<'a> Backend<'a> {
    async fn with(app: &'a TestApp, request: &KeyRequest) -> Self {
        Self::of(app, &app.app.server_keys.create(request, &ola()).await.expect("a key"))
    }

    fn of(app: &'a TestApp, issued: &IssuedKey) -> Self {
        Self { app, id: issued.key.id, key: issued.text.expose_secret().to_owned() }
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Answer {
        send(self.app, &self.key, method, path, headers, body).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], None).await
    }

    /// Posts with a new idempotency key.
    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_as(&unique("key"), path, body).await
    }

    async fn post_as(&self, key: &str, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, &[("idempotency-key", key)], Some(body)).await
    }

    async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, &[], Some(body)).await
    }

    async fn delete(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::DELETE, path, &[], Some(body)).await
    }

    /// Actions of the key, oldest first.
    async fn audit(&self) -> Vec<Recorded> {
        let filter = ActionFilter { key: Some(self.id), ..ActionFilter::default() };
        let mut recorded = self.app.app.operators.recorded(&filter, 100).await.expect("read");
        recorded.reverse();
        recorded
    }

    async fn actions(&self) -> Vec<String> {
        self.audit().await.into_iter().map(|action| action.action).collect()
    }
}

/// Sends a request with a bearer token.
async fn send(
    app: &TestApp,
    token: &str,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(format!("{API}{path}"));
    if !token.is_empty() {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = body.map(ToString::to_string).unwrap_or_default();
    app.send(request.body(Body::from(body)).expect("a request")).await
}
