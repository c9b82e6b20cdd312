//! Fake SMS providers that respond as Twilio and Vonage document.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Json, Router, body::Bytes, extract::State, http::StatusCode, response::IntoResponse as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// How a provider reacts to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Accepts the message.
    Accepting,
    /// Responds with 503.
    Refusing,
    /// Accepts the message, but responds after this delay.
    Slow(Duration),
    /// Never responds.
    Hanging,
}

/// A provider that accepts requests on every path.
pub(crate) struct Provider {
    pub(crate) url: String,
    inner: Arc<Inner>,
}

struct Inner {
    behaviour: Mutex<Behaviour>,
    received: Mutex<Vec<String>>,
    taken: Value,
}

impl Provider {
    pub(crate) async fn twilio() -> Self {
        Self::start(json!({"sid": "SM0123456789abcdef0123456789abcdef", "status": "queued"})).await
    }

    pub(crate) async fn vonage() -> Self {
        Self::start(json!({"message-count": "1", "messages": [{"status": "0", "message-id": "0A0000000123ABCD1"}]}))
            .await
    }

    async fn start(taken: Value) -> Self {
        let inner = Arc::new(Inner { behaviour: Mutex::new(Behaviour::Accepting), received: Mutex::default(), taken });
        let take = async |State(inner): State<Arc<Inner>>, form: Bytes| {
            let behaviour = *inner.behaviour.lock().expect("not poisoned");
            match behaviour {
                Behaviour::Refusing => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
                Behaviour::Hanging => std::future::pending().await,
                Behaviour::Slow(time) => tokio::time::sleep(time).await,
                Behaviour::Accepting => {}
            }
            let to = url::form_urlencoded::parse(&form).find(|(name, _)| name.eq_ignore_ascii_case("to"));
            let digits = to.expect("a recipient").1.trim_start_matches('+').to_owned();
            inner.received.lock().expect("not poisoned").push(digits);
            Json(inner.taken.clone()).into_response()
        };
        let app = Router::new().fallback(take).with_state(Arc::clone(&inner));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, inner }
    }

    pub(crate) fn set(&self, behaviour: Behaviour) {
        *self.inner.behaviour.lock().expect("not poisoned") = behaviour;
    }

    /// Whether the provider accepted a message to this phone.
    pub(crate) fn has_sent(&self, phone: &str) -> bool {
        let received = self.inner.received.lock().expect("not poisoned");
        received.iter().any(|digits| digits == phone.trim_start_matches('+'))
    }
}
