//! Coins survive crashes of the processes that move them, and operators can audit them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use matchday::testing::with_database;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::{process::Setting, report};

/// Acknowledged movements of one fan's coins: amount that the wallet gained, and transaction, by order.
type Acknowledged = BTreeMap<String, (i64, String)>;

/// Who moves the coins of a fan.
#[derive(Clone)]
enum Mover {
    /// The fan, with a token.
    Fan(String),
    /// A backend, with a server key.
    Backend(String),
}

/// Moves coins until all kills are over, but at least this many times, and repeats every request until it succeeds. Fans
/// send a reference or an `Idempotency-Key`, a backend always a key; after a kill they wait until the key's claim expires.
async fn move_coins(base: String, mover: Mover, fan: usize, least: i64, is_over: Arc<AtomicBool>) -> Acknowledged {
    let web = reqwest::Client::builder().timeout(Duration::from_secs(5)).build().expect("a client");
    let mut orders = Acknowledged::new();
    for number in 0.. {
        if number >= least && is_over.load(Relaxed) {
            break;
        }
        let (name, amount) = (format!("order-{fan}-{number}"), 1 + number % 9);
        let mut body = json!({"amount": amount, "reason": "purchase"});
        let has_reference = fan.is_multiple_of(2);
        if has_reference {
            body["reference_id"] = json!(name);
        }
        let is_grant = matches!(mover, Mover::Backend(_)) && number % 2 == 0;
        let mut request = match &mover {
            Mover::Fan(token) => web.post(format!("{base}/api/auth/coins/deduct")).bearer_auth(token),
            Mover::Backend(key) => {
                let (user, verb) = (fan + 1, if is_grant { "grant" } else { "deduct" });
                web.post(format!("{base}/api/server/v1/users/{user}/coins/{verb}")).bearer_auth(key)
            }
        };
        if !has_reference || matches!(mover, Mover::Backend(_)) {
            request = request.header("idempotency-key", &name);
        }
        let request = request.json(&body).build().expect("a request");
        loop {
            let answer = web.execute(request.try_clone().expect("a clone")).await;
            match answer {
                Ok(answer) if answer.status() == 200 => {
                    // A truncated response counts as no response.
                    let Ok(body) = answer.json::<Value>().await else { continue };
                    let id = body["data"]["transaction_id"].as_str().expect("an id").to_owned();
                    orders.insert(name, (if is_grant { amount } else { -amount }, id));
                    break;
                }
                Ok(answer) => assert!([409, 503].contains(&answer.status().as_u16()), "{answer:?}"),
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    orders
}

#[tokio::test]
async fn acknowledged_movements_survive_kills_exactly_once() {
    const FANS: usize = 16;
    const LEAST: i64 = 10;
    with_database(async |options| {
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        let setting = Setting::new(&options)
            .without("MATCHDAY_MATRIX__HOMESERVER_URL")
            .with("MATCHDAY_HTTP__LISTEN", &format!("127.0.0.1:{port}"))
            // Claims of a killed process expire soon, so that requests can be repeated.
            .with("MATCHDAY_HTTP__DEADLINE", "1s")
            .with("MATCHDAY_SMS__TIMEOUT", "500ms")
            .with("MATCHDAY_COINS__WELCOME", "1000000");
        let tokens: Vec<String> = (0..FANS).map(|_| setting.expect(&["sessions", "issue"], "")).collect();
        let key = setting.expect(&["keys", "create", "shop", "--scope", "coins:write", "--json"], "");
        let key: Value = serde_json::from_str(&key).expect("JSON");
        let key = Mover::Backend(key["key"].as_str().expect("a key").to_owned());
        let mut service = setting.start(&["serve", "--no-workers"]);
        let (base, is_over) = (service.public.clone(), Arc::new(AtomicBool::new(false)));
        let movers = tokens.into_iter().enumerate().map(|(fan, token)| {
            let mover = if fan < FANS / 2 { Mover::Fan(token) } else { key.clone() };
            tokio::spawn(move_coins(base.clone(), mover, fan, LEAST, Arc::clone(&is_over)))
        });
        let movers: Vec<_> = movers.collect();
        let mut killed = 0;
        for pause in [310, 90, 520, 170, 240, 60, 400, 130, 280, 35] {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            service.kill();
            killed += 1;
            service = setting.start(&["serve", "--no-workers"]);
        }
        is_over.store(true, Relaxed);
        let (mut orders, mut by_backend) = (Acknowledged::new(), BTreeMap::new());
        for (fan, mover) in movers.into_iter().enumerate() {
            let acknowledged = mover.await.expect("a mover");
            if fan >= FANS / 2 {
                by_backend.extend(acknowledged.values().map(|(amount, id)| (id.clone(), *amount)));
            }
            orders.extend(acknowledged);
        }
        let db = PgPool::connect_with(options).await.expect("connected");
        let query = "select transaction_id, amount from coin_transactions where kind in ('deduction', 'grant')";
        let rows: Vec<(uuid::Uuid, i64)> = sqlx::query_as(query).fetch_all(&db).await.expect("read");
        let query = "select details ->> 'transaction_id', (details ->> 'amount')::bigint from operator_actions
                     where operator = 'key:1' and action in ('coins.grant', 'coins.deduct')";
        let audited: Vec<(String, i64)> = sqlx::query_as(query).fetch_all(&db).await.expect("read");
        db.close().await;
        let written: BTreeMap<String, i64> =
            rows.into_iter().map(|(id, amount)| (format!("txn_{id}"), amount)).collect();
        let acknowledged: BTreeMap<String, i64> = orders.values().map(|(amount, id)| (id.clone(), *amount)).collect();
        assert_eq!(acknowledged.len(), orders.len(), "no transaction belongs to two orders");
        // Every order was repeated until it was acknowledged, so exactly the acknowledged transactions are stored.
        assert_eq!(written, acknowledged);
        assert_eq!(audited.len(), by_backend.len(), "one audit entry for each movement of the backend");
        assert_eq!(audited.into_iter().collect::<BTreeMap<_, _>>(), by_backend);
        report(&format!(
            "coins: {} movements, {} of them by a server key, service killed {killed} times",
            orders.len(),
            by_backend.len()
        ));
        let audit = setting.expect(&["coins", "audit"], "");
        assert!(audit.ends_with("every wallet matches its history"), "{audit}");
    })
    .await;
}

#[tokio::test]
async fn operator_grants_reverses_and_audits() {
    with_database(async |options| {
        let setting = Setting::new(&options).without("MATCHDAY_MATRIX__HOMESERVER_URL");
        let run = |arguments: &[&str]| {
            let output = setting.run(arguments, "");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        };
        assert_eq!(
            run(&["coins", "audit"]),
            (Some(0), "0 wallets, 0 transactions; accounts: none\nevery wallet matches its history".into(), String::new())
        );
        setting.expect(&["sessions", "issue"], "");
        let granted = setting.expect(&["coins", "grant", "1", "40", "--reason", "for the outage"], "");
        assert!(granted.starts_with("1 (user 1) has 140 coins after txn_"), "{granted}");
        setting.expect(&["coins", "grant", "1", "40", "--reason", "for the outage", "--by", "ada"], "");
        let (code, _, stderr) = run(&["coins", "reverse", "1", "40", "--reason", "granted twice"]);
        assert_eq!(code, Some(1));
        assert!(stderr.starts_with("matchday: 1 has several transactions of 40 coins; choose one with --transaction"), "{stderr}");
        let candidate = stderr.lines().nth(1).and_then(|line| line.split_whitespace().next()).expect("a candidate");
        let reverse = ["coins", "reverse", "1", "40", "--reason", "granted twice", "--transaction", candidate];
        let reversed = setting.expect(&reverse, "");
        assert!(reversed.starts_with(&format!("reversed 40 coins of {candidate}; 1 (user 1) has 140 coins")), "{reversed}");
        let (code, _, stderr) = run(&reverse);
        assert_eq!((code, stderr.as_str()), (Some(1), "matchday: only 0 coins of the transaction can still be reversed"));
        for (arguments, complaint) in [
            (["coins", "grant", "nobody", "1", "--reason", "x"], "nobody"),
            (["coins", "grant", "1", "0", "--reason", "x"], "whole number from 1"),
            (["coins", "grant", "1", "1", "--reason", " "], "1 to 200 characters"),
            (["coins", "reverse", "1", "7", "--reason", "x"], "has no transaction of this amount"),
        ] {
            let (code, _, stderr) = run(&arguments);
            assert!(code != Some(0) && stderr.contains(complaint), "{arguments:?}: {stderr}");
        }
        assert_eq!(
            setting.expect(&["coins", "audit"], ""),
            "1 wallet, 4 transactions; accounts: granted -40, wallet 140, welcome -100\nevery wallet matches its history"
        );
        let db = PgPool::connect_with(options).await.expect("connected");
        sqlx::query("update wallets set balance = 141").execute(&db).await.expect("tampered");
        db.close().await;
        let (code, printed, stderr) = run(&["coins", "audit"]);
        assert_eq!((code, stderr.as_str()), (Some(1), "matchday: 1 difference found; all entries together add up to 0; nothing was changed"));
        assert!(printed.starts_with("user 1: the wallet holds 141, but its entries add up to 140"), "{printed}");
    })
    .await;
}
