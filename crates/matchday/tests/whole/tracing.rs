//! Traces reach a collector. In this test it is a plain HTTP server that accepts OTLP.

use std::sync::{Arc, Mutex};

use axum::{Router, body::Bytes, extract::State, routing::post};
use matchday::testing::{eventually, with_database};
use tokio::net::TcpListener;

use crate::process::{Setting, get};

#[tokio::test]
async fn request_span_joins_callers_trace() {
    with_database(async |options| {
        let received: Arc<Mutex<Vec<u8>>> = Arc::default();
        let collector = Router::new()
            .route(
                "/v1/traces",
                post(async |State(received): State<Arc<Mutex<Vec<u8>>>>, body: Bytes| {
                    received.lock().expect("not poisoned").extend_from_slice(&body);
                }),
            )
            .with_state(Arc::clone(&received));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
        tokio::spawn(async move { axum::serve(listener, collector).await });

        let setting =
            Setting::new(&options).with("MATCHDAY_TRACES__ENDPOINT", &endpoint).with("MATCHDAY_TRACES__SAMPLE", "0");
        let mut process = setting.start(&["serve"]);
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let answer = reqwest::Client::new()
            .get(format!("{}/api/auth/sports", process.public))
            .header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"))
            .send()
            .await
            .expect("a response");
        assert_eq!(answer.status(), 401);
        assert_eq!(
            get(&process.public, "/api/auth/teams", "").await.0,
            401,
            "a request without a trace is not sampled"
        );
        process.signal("TERM");
        assert!(process.ended().await.success());

        let has =
            |needle: &[u8]| received.lock().expect("not poisoned").windows(needle.len()).any(|part| part == needle);
        eventually("the span arrived", async || has(b"GET /api/auth/sports")).await;
        let id: Vec<u8> = (0..16).map(|at| u8::from_str_radix(&trace[at * 2..at * 2 + 2], 16).expect("hex")).collect();
        assert!(has(&id), "the span belongs to the caller's trace");
        assert!(!has(b"GET /api/auth/teams"));
    })
    .await;
}
