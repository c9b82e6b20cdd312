//! How a process serves, and how it ends.

use std::time::{Duration, Instant};

use matchday::testing::{eventually, with_database};
use serde_json::{Value, json};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::process::{Process, Setting, get};

#[tokio::test]
async fn a_process_that_is_told_to_end_finishes_what_it_began() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_SHUTDOWN__NOTICE", "1s");
        let mut process = setting.start(&["serve"]);
        let token = setting.expect(&["sessions", "issue"], "");
        // An idle connection must not hold the process up.
        let idle = TcpStream::connect(process.public.trim_start_matches("http://")).await.expect("connected");

        let mut holder = PgConnection::connect_with(&options).await.expect("connected");
        sqlx::query("begin").execute(&mut holder).await.expect("begun");
        sqlx::query("lock table teams in access exclusive mode").execute(&mut holder).await.expect("locked");
        let slow = tokio::spawn({
            let (base, token) = (process.public.clone(), token.clone());
            async move { get(&base, "/api/auth/teams", &token).await }
        });
        let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        let mut watcher = PgConnection::connect_with(&options).await.expect("connected");
        let began = Instant::now();
        while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut watcher).await.expect("read") == 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "the request does not wait");
        }

        process.signal("TERM");
        eventually("readiness is off", async || get(&process.public, "/readyz", "").await == (503, json!({"status": "draining", "parts": {"postgres": "up", "redis": "up", "nats": "up", "homeserver": "up"}}))).await;
        eventually("the listener is closed", async || reqwest::get(format!("{}/healthz", process.public)).await.is_err()).await;
        assert!(!slow.is_finished());
        holder.close().await.expect("let go");
        assert_eq!(slow.await.expect("answered").0, 200, "the request under way is finished");
        assert!(process.ended().await.success());
        assert!(process.log().last().expect("a line").contains("\"message\":\"ended\""));
        drop(idle);
        watcher.close().await.expect("closed");
    })
    .await;
}

/// One process that owns the tables, and one that does not, where there is a table that only ever grows.
#[tokio::test]
async fn who_could_change_what_only_grows_is_refused_where_it_matters() {
    with_database(async |options| {
        let told = format!(
            "database.url: the role \"{}\" may change what \"coin_entries\", \"coin_payouts\", \"coin_rates\", \
             \"coin_transactions\", \"daily_claims\", \"operator_actions\" keeps; connect as a member of matchday_app that owns \
             nothing, and migrate with database.owner_url",
            options.get_username()
        );
        let service = Setting::new(&options);
        let owner = service.clone().with("MATCHDAY_DATABASE__URL", options.to_url_lossy().as_str());
        let says_so = |process: &Process| process.log().iter().filter(|line| line.contains("may change what")).count();
        assert_eq!(says_so(&service.start(&["serve"])), 0);
        assert_eq!(says_so(&owner.start(&["serve"])), 1, "in development it is only said");
        assert_eq!(says_so(&owner.start(&["worker"])), 1);

        let staging = |setting: &Setting| {
            setting
                .clone()
                .with("MATCHDAY_ENV", "staging")
                .with("MATCHDAY_MATRIX__PUBLIC_URL", "https://chat.example.org")
                .with("MATCHDAY_SMS__COUNTRIES", "US")
        };
        staging(&service).start(&["serve"]);
        staging(&service).start(&["worker"]);
        let production = staging(&owner)
            .with("MATCHDAY_ENV", "production")
            .with("MATCHDAY_SMS__PROVIDERS", "vonage")
            .with("MATCHDAY_SMS__VONAGE_API_KEY", "key")
            .with("MATCHDAY_SMS__VONAGE_API_SECRET", "secret")
            .with("MATCHDAY_SMS__VONAGE_FROM", "Matchday");
        for (setting, command) in [
            (staging(&owner), "serve"),
            (staging(&owner), "worker"),
            (production.clone(), "serve"),
            (production, "worker"),
        ] {
            let output = setting.run(&[command], "");
            assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{command}");
            assert_eq!(String::from_utf8_lossy(&output.stderr).trim(), format!("matchday: {told}"), "{command}");
        }
        // Whoever is sent to look may be anybody.
        assert_eq!(staging(&owner).expect(&["reports", "list"], ""), "there are no open reports");
    })
    .await;
}

/// A process that begins while its database is away looks when it is back.
#[tokio::test]
async fn who_began_without_a_database_is_refused_when_it_is_there() {
    with_database(async |options| {
        // Where the database will be reached.
        let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, real) =
            (door.local_addr().expect("an address"), (options.get_host().to_owned(), options.get_port()));
        drop(door);
        let url = options.clone().host("127.0.0.1").port(address.port()).to_url_lossy();
        let setting = Setting::new(&options)
            .with("MATCHDAY_DATABASE__URL", url.as_str())
            .with("MATCHDAY_DATABASE__ACQUIRE_TIMEOUT", "500ms")
            .with("MATCHDAY_ENV", "staging")
            .with("MATCHDAY_MATRIX__PUBLIC_URL", "https://chat.example.org")
            .with("MATCHDAY_SMS__COUNTRIES", "US");
        let mut process = setting.start(&["serve"]);
        let door = tokio::net::TcpListener::bind(address).await.expect("the same port");
        let forwarding = tokio::spawn(async move {
            while let Ok((mut inside, _)) = door.accept().await {
                let mut outside = tokio::net::TcpStream::connect(real.clone()).await.expect("the database");
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut inside, &mut outside).await });
            }
        });
        let status = process.ended().await;
        assert_eq!(status.code(), Some(1));
        let last = process.log().last().expect("a line").clone();
        assert!(last.starts_with("matchday: database.url: the role"), "{last}");
        forwarding.abort();
    })
    .await;
}

#[tokio::test]
async fn console_has_a_listener_of_its_own() {
    with_database(async |options| {
        let setting = Setting::new(&options)
            .with("MATCHDAY_CONSOLE__ENABLED", "true")
            .with("MATCHDAY_CONSOLE__LISTEN", "127.0.0.1:0");
        let (server, worker) = (setting.start(&["serve", "--no-workers"]), setting.start(&["worker"]));
        let status = async |base: &str, path: &str| {
            reqwest::get(format!("{base}{path}")).await.expect("an answer").status().as_u16()
        };
        for process in [&server, &worker] {
            assert_eq!(status(&process.console, "/console").await, 200);
            assert_eq!(status(&process.private, "/console").await, 404);
            for path in ["/metrics", "/readyz", "/_matrix/app/v1/ping", "/api/auth/events"] {
                assert_eq!(status(&process.console, path).await, 404, "{path}");
            }
        }
        assert_eq!(status(&server.public, "/console").await, 404);
        let without = setting.with("MATCHDAY_CONSOLE__ENABLED", "false").start(&["serve"]);
        assert_eq!(without.console, "");
    })
    .await;
}

#[tokio::test]
async fn refuses_start_with_console_that_cannot_verify_operators() {
    with_database(async |options| {
        let setting = Setting::new(&options)
            .with("MATCHDAY_ENV", "staging")
            .with("MATCHDAY_SMS__COUNTRIES", "US")
            .with("MATCHDAY_MATRIX__HOMESERVER_URL", "")
            .with("MATCHDAY_CONSOLE__ENABLED", "true")
            .with("MATCHDAY_CONSOLE__LISTEN", "127.0.0.1:0");
        let told = |setting: &Setting| {
            let output = setting.run(&["serve"], "");
            assert_eq!(output.status.code(), Some(1));
            String::from_utf8_lossy(&output.stderr).trim().to_owned()
        };
        assert_eq!(
            told(&setting),
            "matchday: the settings have 1 fault:\n  console.enabled is true, but the console cannot verify its operators: \
             set console.proxy_secrets or console.token_issuer, or console.enabled to false"
        );
        let without_keys = setting
            .with("MATCHDAY_CONSOLE__TOKEN_ISSUER", "https://login.example.org")
            .with("MATCHDAY_CONSOLE__TOKEN_AUDIENCES", "console")
            .with("MATCHDAY_CONSOLE__TOKEN_KEYS_FILE", "/nowhere/keys.json")
            .with("MATCHDAY_CONSOLE__OPERATORS", "sre");
        let last = told(&without_keys).lines().last().expect("a line").to_owned();
        assert_eq!(last, "matchday: console.token_keys_file: No such file or directory (os error 2)");
    })
    .await;
}

#[tokio::test]
async fn metrics_health_and_readiness_are_on_the_private_listener() {
    with_database(async |options| {
        let setting = Setting::new(&options);
        let process = setting.start(&["serve"]);
        let token = setting.expect(&["sessions", "issue"], "");
        for _ in 0..3 {
            assert_eq!(get(&process.public, "/api/auth/events", &token).await.0, 200);
        }
        assert_eq!(get(&process.public, "/api/auth/events", "nonsense").await.0, 401);
        assert_eq!(get(&process.public, "/metrics", "").await.0, 404, "not for the public");
        for path in ["/healthz", "/readyz"] {
            assert_eq!(get(&process.private, path, "").await.0, 200, "{path}");
            assert_eq!(get(&process.public, path, "").await.0, 200, "{path}");
        }
        // As a container asks, which knows where it is by the same settings.
        let here = setting.with("MATCHDAY_HTTP__PRIVATE_LISTEN", process.private.trim_start_matches("http://"));
        for arguments in [["health"].as_slice(), &["health", "--ready"]] {
            assert_eq!(here.expect(arguments, ""), "");
        }
        let refused = here.with("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:1").run(&["health"], "");
        let told = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && told.contains("nobody answers at http://127.0.0.1:1/healthz"), "{told}");
        let text =
            reqwest::get(format!("{}/metrics", process.private)).await.expect("an answer").text().await.expect("text");
        let count = |status: u16| {
            format!("matchday_http_seconds_count{{method=\"GET\",route=\"/api/auth/events\",status=\"{status}\"}}")
        };
        for line in [
            format!("{} 3", count(200)),
            format!("{} 1", count(401)),
            "matchday_session_lookups_total 1".to_owned(),
            "matchday_pages_built_total 1".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        // What is looked at every few seconds is there at the first look.
        eventually("the state of things is told", async || {
            let answer = reqwest::get(format!("{}/metrics", process.private)).await.expect("an answer");
            let text = answer.text().await.expect("text");
            let number = |name: &str| {
                text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok())
            };
            number("matchday_part_up{part=\"postgres\"}") == Some(1.0)
                && number("matchday_database_connections_limit") == Some(16.0)
                && number("process_resident_memory_bytes").is_some_and(|bytes| bytes > 1e6)
                && number("process_open_fds").is_some_and(|files| files > 3.0)
                && number("matchday_results_unfinished") == Some(0.0)
                && number("matchday_work_waiting{consumer=\"scores\"}") == Some(0.0)
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_problem_is_logged_with_its_request_id_and_without_the_token() {
    with_database(async |options| {
        let setting = Setting::new(&options);
        let process = setting.start(&["serve"]);
        let token = setting.expect(&["sessions", "issue"], "");
        let mut connection = PgConnection::connect_with(&options).await.expect("connected");
        sqlx::query("alter table teams rename to gone").execute(&mut connection).await.expect("renamed");
        let answer = reqwest::Client::new()
            .get(format!("{}/api/auth/teams", process.public))
            .bearer_auth(&token)
            .header("x-request-id", "req-42")
            .send()
            .await
            .expect("an answer");
        assert_eq!((answer.status().as_u16(), answer.headers()["x-request-id"].to_str().ok()), (500, Some("req-42")));
        eventually("it is logged", async || process.log().iter().any(|line| line.contains("\"request finished\"")))
            .await;
        let lines: Vec<Value> = process.log().iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let of_request: Vec<&Value> = lines.iter().filter(|line| line["request_id"] == "req-42").collect();
        assert_eq!(of_request.len(), 2, "the cause, and the answer: {of_request:?}");
        assert!(of_request[0]["cause"].as_str().is_some_and(|cause| cause.contains("does not exist")));
        assert_eq!((&of_request[1]["status"], &of_request[1]["route"]), (&json!(500), &json!("/api/auth/teams")));
        assert!(!process.log().join("").contains(&token));
        connection.close().await.expect("closed");
    })
    .await;
}

#[tokio::test]
async fn a_client_that_dawdles_with_its_headers_is_cut_off() {
    with_database(async |options| {
        let setting =
            Setting::new(&options).with("MATCHDAY_HTTP__DEADLINE", "1s").with("MATCHDAY_MATRIX__TIMEOUT", "500ms");
        let process = setting.start(&["serve"]);
        let mut slow = TcpStream::connect(process.public.trim_start_matches("http://")).await.expect("connected");
        slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.expect("sent");
        let mut rest = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(5), slow.read_to_end(&mut rest)).await;
        assert!(read.is_ok(), "still open after five times the deadline");
        assert_eq!(get(&process.public, "/healthz", "").await.0, 200);
    })
    .await;
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_and_are_served_later() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_HTTP__MAX_CONNECTIONS", "2");
        let process = setting.start(&["serve"]);
        let address = process.public.trim_start_matches("http://").to_owned();
        let held = [
            TcpStream::connect(&address).await.expect("connected"),
            TcpStream::connect(&address).await.expect("connected"),
        ];
        let third = tokio::spawn({
            let base = process.public.clone();
            async move { get(&base, "/healthz", "").await.0 }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!third.is_finished(), "no place yet");
        drop(held);
        assert_eq!(third.await.expect("answered"), 200);
    })
    .await;
}

#[tokio::test]
async fn idle_connections_end_and_busy_ones_go_on() {
    with_database(async |options| {
        let setting =
            Setting::new(&options).with("MATCHDAY_HTTP__KEEP_ALIVE", "3s").with("MATCHDAY_HTTP__DEADLINE", "10s");
        let process = setting.start(&["serve"]);
        let connect =
            async || TcpStream::connect(process.public.trim_start_matches("http://")).await.expect("connected");
        let ask = async |stream: &mut TcpStream| {
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
            let mut answer = [0; 1_024];
            let read = stream.read(&mut answer).await.expect("an answer");
            assert!(answer[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..read]));
        };
        let is_over = async |mut stream: TcpStream| {
            let mut rest = [0; 16];
            tokio::time::timeout(Duration::from_secs(10), stream.read(&mut rest))
                .await
                .is_ok_and(|read| read.is_ok_and(|bytes| bytes == 0))
        };
        let (fresh, mut used, mut busy) = (connect().await, connect().await, connect().await);
        ask(&mut used).await;
        let keep_busy = async {
            for _ in 0..25 {
                ask(&mut busy).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let (fresh_over, used_over, ()) = tokio::join!(is_over(fresh), is_over(used), keep_busy);
        assert!(fresh_over && used_over, "idle ones are ended, whether they were used or not");
        ask(&mut busy).await;
    })
    .await;
}

#[tokio::test]
async fn a_process_without_nats_serves_and_ends_when_told() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_NATS__URL", "nats://127.0.0.1:1");
        let mut process = setting.start(&["serve"]);
        let token = setting.expect(&["sessions", "issue"], "");
        assert_eq!(get(&process.public, "/api/auth/events", &token).await.0, 200);
        let (status, body) = get(&process.public, "/readyz", "").await;
        assert_eq!((status, &body["parts"]["nats"]), (200, &json!("down")));
        let began = Instant::now();
        process.signal("TERM");
        assert!(process.ended().await.success());
        assert!(began.elapsed() < Duration::from_secs(8), "it took {:?} to end", began.elapsed());
    })
    .await;
}

#[tokio::test]
async fn without_redis_and_homeserver_a_process_is_ready_and_says_so_at_once() {
    with_database(async |options| {
        // Addresses that take connections and never answer are worse than such that refuse them.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = silent.local_addr().expect("bound");
        let setting = Setting::new(&options)
            .with("MATCHDAY_REDIS__URL", &format!("redis://{address}"))
            .with("MATCHDAY_MATRIX__HOMESERVER_URL", &format!("http://{address}"));
        let process = setting.start(&["serve"]);
        eventually("the parts were asked", async || {
            get(&process.public, "/readyz", "").await.1["parts"]["redis"] == "down"
        })
        .await;
        let began = Instant::now();
        let (status, body) = get(&process.public, "/readyz", "").await;
        assert_eq!(
            (status, &body["parts"]["homeserver"], &body["parts"]["postgres"]),
            (200, &json!("down"), &json!("up"))
        );
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    })
    .await;
}

/// The second relay cannot reach NATS; it must not keep the first from working.
#[tokio::test]
async fn a_process_cut_off_from_nats_leaves_the_relay_to_others() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_SESSIONS__CACHE_FOR", "10m");
        let cut_off = setting.clone().with("MATCHDAY_NATS__URL", "nats://127.0.0.1:1").start(&["serve"]);
        let whole = setting.start(&["serve"]);
        let token = setting.expect(&["sessions", "issue"], "");
        assert_eq!(get(&whole.public, "/api/auth/teams", &token).await.0, 200);
        let logout =
            reqwest::Client::new().post(format!("{}/api/auth/logout", cut_off.public)).bearer_auth(&token).send();
        assert_eq!(logout.await.expect("an answer").status(), 200);
        eventually("the revocation is heard", async || get(&whole.public, "/api/auth/teams", &token).await.0 == 401)
            .await;
    })
    .await;
}

/// A request that gives up leaves its statement behind; the server must not keep the connection busy with it.
#[tokio::test]
async fn a_statement_that_takes_too_long_is_ended_by_the_server_and_worth_another_try() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_DATABASE__STATEMENT_TIMEOUT", "500ms");
        let process = setting.start(&["serve"]);
        let token = setting.expect(&["sessions", "issue"], "");
        assert_eq!(get(&process.public, "/api/auth/teams", &token).await.0, 200);
        let mut holder = PgConnection::connect_with(&options).await.expect("connected");
        sqlx::query("begin").execute(&mut holder).await.expect("begun");
        sqlx::query("lock table teams in access exclusive mode").execute(&mut holder).await.expect("locked");
        let (status, body) = get(&process.public, "/api/auth/teams", &token).await;
        assert_eq!((status, &body["code"]), (503, &json!("database_unavailable")));
        holder.close().await.expect("let go");
        assert_eq!(get(&process.public, "/api/auth/teams", &token).await.0, 200);
    })
    .await;
}
