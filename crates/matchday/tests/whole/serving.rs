//! How a process serves requests and shuts down.

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
async fn terminated_process_finishes_open_requests() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_SHUTDOWN__NOTICE", "1s");
        let mut process = setting.start(&["serve"]);
        let token = setting.expect(&["sessions", "issue"], "");
        // An idle connection must not delay the shutdown.
        let idle = TcpStream::connect(process.public.trim_start_matches("http://")).await.expect("connected");

        let mut holder = PgConnection::connect_with(&options).await.expect("connected");
        sqlx::query("begin").execute(&mut holder).await.expect("started");
        sqlx::query("lock table teams in access exclusive mode").execute(&mut holder).await.expect("locked");
        let slow = tokio::spawn({
            let (base, token) = (process.public.clone(), token.clone());
            async move { get(&base, "/api/auth/teams", &token).await }
        });
        let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        let mut watcher = PgConnection::connect_with(&options).await.expect("connected");
        let began = Instant::now();
        while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut watcher).await.expect("read") == 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "the request does not wait for the lock");
        }

        process.signal("TERM");
        eventually("the process reports not ready", async || get(&process.public, "/readyz", "").await == (503, json!({"status": "draining", "parts": {"postgres": "up", "redis": "up", "nats": "up", "homeserver": "up"}}))).await;
        eventually("the listener is closed", async || reqwest::get(format!("{}/healthz", process.public)).await.is_err()).await;
        assert!(!slow.is_finished());
        holder.close().await.expect("released");
        assert_eq!(slow.await.expect("a response").0, 200, "the open request is finished");
        assert!(process.ended().await.success());
        assert!(process.log().last().expect("a line").contains("\"message\":\"shutdown completed\""));
        drop(idle);
        watcher.close().await.expect("closed");
    })
    .await;
}

/// One process connects as the owner of the append-only tables, another with the restricted role.
#[tokio::test]
async fn refuses_start_with_role_that_can_rewrite_ledger() {
    with_database(async |options| {
        let refusal = format!(
            "database.url: the role \"{}\" can modify the append-only tables coin_entries, coin_payouts, coin_rates, \
             coin_transactions, daily_claims, operator_actions, seal_tiles, seal_timestamps, seals; connect as a member of matchday_app that owns no tables, and \
             migrate with database.owner_url",
            options.get_username()
        );
        let service = Setting::new(&options);
        let owner = service.clone().with("MATCHDAY_DATABASE__URL", options.to_url_lossy().as_str());
        let says_so = |process: &Process| process.log().iter().filter(|line| line.contains("can modify append-only tables")).count();
        assert_eq!(says_so(&service.start(&["serve"])), 0);
        assert_eq!(says_so(&owner.start(&["serve"])), 1, "in development it is only a warning");
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
            assert_eq!(String::from_utf8_lossy(&output.stderr).trim(), format!("matchday: {refusal}"), "{command}");
        }
        // Commands that only read may use any role.
        assert_eq!(staging(&owner).expect(&["reports", "list"], ""), "no open reports");
    })
    .await;
}

/// A process that starts while the database is down checks its role once the database is back.
#[tokio::test]
async fn refuses_owner_role_after_late_database_connection() {
    with_database(async |options| {
        // Reserves the port on which the database will become reachable.
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
async fn console_has_a_separate_listener() {
    with_database(async |options| {
        let setting = Setting::new(&options)
            .with("MATCHDAY_CONSOLE__ENABLED", "true")
            .with("MATCHDAY_CONSOLE__LISTEN", "127.0.0.1:0");
        let (server, worker) = (setting.start(&["serve", "--no-workers"]), setting.start(&["worker"]));
        let status = async |base: &str, path: &str| {
            reqwest::get(format!("{base}{path}")).await.expect("a response").status().as_u16()
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
        let stderr_of = |setting: &Setting| {
            let output = setting.run(&["serve"], "");
            assert_eq!(output.status.code(), Some(1));
            String::from_utf8_lossy(&output.stderr).trim().to_owned()
        };
        assert_eq!(
            stderr_of(&setting),
            "matchday: the settings have 1 fault:\n  console.enabled is true, but the console cannot verify its operators: \
             set console.proxy_secrets or console.token_issuer, or console.enabled to false"
        );
        let without_keys = setting
            .with("MATCHDAY_CONSOLE__TOKEN_ISSUER", "https://login.example.org")
            .with("MATCHDAY_CONSOLE__TOKEN_AUDIENCES", "console")
            .with("MATCHDAY_CONSOLE__TOKEN_KEYS_FILE", "/nowhere/keys.json")
            .with("MATCHDAY_CONSOLE__OPERATORS", "sre");
        let last = stderr_of(&without_keys).lines().last().expect("a line").to_owned();
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
        assert_eq!(get(&process.public, "/metrics", "").await.0, 404, "not on the public listener");
        for path in ["/healthz", "/readyz"] {
            assert_eq!(get(&process.private, path, "").await.0, 200, "{path}");
            assert_eq!(get(&process.public, path, "").await.0, 200, "{path}");
        }
        // Health check of a container, which finds the listener by the same settings.
        let here = setting.with("MATCHDAY_HTTP__PRIVATE_LISTEN", process.private.trim_start_matches("http://"));
        for arguments in [["health"].as_slice(), &["health", "--ready"]] {
            assert_eq!(here.expect(arguments, ""), "");
        }
        let refused = here.with("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:1").run(&["health"], "");
        let printed = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && printed.contains("no response from http://127.0.0.1:1/healthz"),
            "{printed}"
        );
        let text =
            reqwest::get(format!("{}/metrics", process.private)).await.expect("a response").text().await.expect("text");
        let count = |status: u16| {
            format!("matchday_http_seconds_count{{method=\"GET\",route=\"/api/auth/events\",status=\"{status}\"}}")
        };
        for line in [format!("{} 3", count(200)), format!("{} 1", count(401))] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        // A token is cached for a short time, so on a busy machine it may have been looked up again.
        let lookups =
            text.lines().find_map(|line| line.strip_prefix("matchday_session_lookups_total ")?.parse::<u8>().ok());
        assert!(lookups.is_some_and(|lookups| (1..=3).contains(&lookups)), "{lookups:?}");
        // A page is kept for a second, so on a busy machine it may have been built again.
        let built = text.lines().find_map(|line| line.strip_prefix("matchday_pages_built_total ")?.parse::<u8>().ok());
        assert!(built.is_some_and(|built| (1..=3).contains(&built)), "{built:?} pages were built\n{text}");
        // Periodic gauges have a value after their first update.
        eventually("the gauges are set", async || {
            let answer = reqwest::get(format!("{}/metrics", process.private)).await.expect("a response");
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
async fn failed_request_is_logged_with_id_without_token() {
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
            .expect("a response");
        assert_eq!((answer.status().as_u16(), answer.headers()["x-request-id"].to_str().ok()), (500, Some("req-42")));
        eventually("the request is logged", async || {
            process.log().iter().any(|line| line.contains("\"request finished\""))
        })
        .await;
        let lines: Vec<Value> = process.log().iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let of_request: Vec<&Value> = lines.iter().filter(|line| line["request_id"] == "req-42").collect();
        assert_eq!(of_request.len(), 2, "one line for the cause and one for the response: {of_request:?}");
        assert!(of_request[0]["cause"].as_str().is_some_and(|cause| cause.contains("does not exist")));
        assert_eq!((&of_request[1]["status"], &of_request[1]["route"]), (&json!(500), &json!("/api/auth/teams")));
        assert!(!process.log().join("").contains(&token));
        connection.close().await.expect("closed");
    })
    .await;
}

#[tokio::test]
async fn slow_headers_are_cut_off() {
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
async fn connections_beyond_limit_wait_and_are_served_later() {
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
        assert!(!third.is_finished(), "no free connection yet");
        drop(held);
        assert_eq!(third.await.expect("a response"), 200);
    })
    .await;
}

#[tokio::test]
async fn idle_connections_are_closed_and_busy_ones_kept() {
    with_database(async |options| {
        let setting =
            Setting::new(&options).with("MATCHDAY_HTTP__KEEP_ALIVE", "3s").with("MATCHDAY_HTTP__DEADLINE", "10s");
        let process = setting.start(&["serve"]);
        let connect =
            async || TcpStream::connect(process.public.trim_start_matches("http://")).await.expect("connected");
        let exchange = async |stream: &mut TcpStream| {
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
            let mut answer = [0; 1_024];
            let read = stream.read(&mut answer).await.expect("a response");
            assert!(answer[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..read]));
        };
        let is_over = async |mut stream: TcpStream| {
            let mut rest = [0; 16];
            tokio::time::timeout(Duration::from_secs(10), stream.read(&mut rest))
                .await
                .is_ok_and(|read| read.is_ok_and(|bytes| bytes == 0))
        };
        let (fresh, mut used, mut busy) = (connect().await, connect().await, connect().await);
        exchange(&mut used).await;
        let keep_busy = async {
            for _ in 0..25 {
                exchange(&mut busy).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let (fresh_over, used_over, ()) = tokio::join!(is_over(fresh), is_over(used), keep_busy);
        assert!(fresh_over && used_over, "idle connections are closed, whether they were used or not");
        exchange(&mut busy).await;
    })
    .await;
}

#[tokio::test]
async fn process_without_nats_serves_and_stops() {
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
        assert!(began.elapsed() < Duration::from_secs(8), "the shutdown took {:?}", began.elapsed());
    })
    .await;
}

#[tokio::test]
async fn ready_without_redis_and_homeserver() {
    with_database(async |options| {
        // Addresses that accept connections and never respond are worse than addresses that refuse them.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = silent.local_addr().expect("bound");
        let setting = Setting::new(&options)
            .with("MATCHDAY_REDIS__URL", &format!("redis://{address}"))
            .with("MATCHDAY_MATRIX__HOMESERVER_URL", &format!("http://{address}"));
        let process = setting.start(&["serve"]);
        eventually("the dependencies were checked", async || {
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

/// The second relay cannot reach NATS, and must not keep the first one from working.
#[tokio::test]
async fn process_without_nats_leaves_relay_to_others() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_SESSIONS__CACHE_UNHEARD", "10m");
        let cut_off = setting.clone().with("MATCHDAY_NATS__URL", "nats://127.0.0.1:1").start(&["serve"]);
        let whole = setting.start(&["serve"]);
        let token = setting.expect(&["sessions", "issue"], "");
        assert_eq!(get(&whole.public, "/api/auth/teams", &token).await.0, 200);
        let logout =
            reqwest::Client::new().post(format!("{}/api/auth/logout", cut_off.public)).bearer_auth(&token).send();
        assert_eq!(logout.await.expect("a response").status(), 200);
        eventually("the revocation arrives", async || get(&whole.public, "/api/auth/teams", &token).await.0 == 401)
            .await;
    })
    .await;
}

/// A request that times out leaves its statement running. The server must cancel it, so that the connection becomes
/// free.
#[tokio::test]
async fn slow_statement_is_cancelled_and_can_be_retried() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_DATABASE__STATEMENT_TIMEOUT", "500ms");
        let process = setting.start(&["serve"]);
        let token = setting.expect(&["sessions", "issue"], "");
        assert_eq!(get(&process.public, "/api/auth/teams", &token).await.0, 200);
        let mut holder = PgConnection::connect_with(&options).await.expect("connected");
        sqlx::query("begin").execute(&mut holder).await.expect("started");
        sqlx::query("lock table teams in access exclusive mode").execute(&mut holder).await.expect("locked");
        let (status, body) = get(&process.public, "/api/auth/teams", &token).await;
        assert_eq!((status, &body["code"]), (503, &json!("database_unavailable")));
        holder.close().await.expect("released");
        assert_eq!(get(&process.public, "/api/auth/teams", &token).await.0, 200);
    })
    .await;
}
