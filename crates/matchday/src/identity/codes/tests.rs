use std::collections::HashSet;

use futures_util::future::join_all;
use http::Method;
use platform::telemetry;
use serde_json::{Value, json};
use time::Duration;

use crate::{
    identity::operators::Operator,
    testing::{Answer, TestApp, eventually},
};

const PHONE: &str = "+14155550100";
/// A network other than 192.0.2.1, which `TestApp::post` sends from.
const STRANGER: &str = "198.51.100.7";

/// Production-like settings that accept valid numbers only.
const STRICT: [(&str, &str); 2] = [("MATCHDAY_ENV", "staging"), ("MATCHDAY_SMS__COUNTRIES", "US,CA:3")];

async fn request(app: &TestApp, phone: &str) -> Answer {
    app.post("/api/code/request", &json!({"phone": phone})).await
}

async fn guess(app: &TestApp, address: &str, code: &str) -> Answer {
    app.post_from(address, "/api/code/verify", &json!({"phone": PHONE, "code": code})).await
}

/// Whether the response announces that only returning phones receive a code.
fn is_limited(answer: &Answer) -> bool {
    let body: Value = serde_json::from_slice(&answer.bytes).expect("JSON");
    answer.status == 200 && body["data"]["notice"] == "codes_limited" && answer.header("retry-after").is_some()
}

async fn messages(app: &TestApp) -> i64 {
    sqlx::query_scalar("select count(*) from sms_log").fetch_one(&app.app.core.db).await.expect("read")
}

/// Returns a code that differs from the given one.
fn other_than(code: &str, by: u32) -> String {
    format!("{:06}", (code.parse::<u32>().expect("digits") + by) % 1_000_000)
}

fn metric(name: &str) -> u64 {
    let text = telemetry::metrics().render();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().expect("a number"))
}

async fn guesses(app: &TestApp) -> (i32, i32) {
    sqlx::query_as("select own_guesses::int, other_guesses::int from codes order by id desc limit 1")
        .fetch_one(&app.app.core.db)
        .await
        .expect("a code")
}

#[tokio::test]
async fn code_is_valid_for_five_minutes() {
    TestApp::run(async |app| {
        let answer = request(app, "+1 (415) 555-0100").await;
        assert_eq!(
            (answer.header("x-ratelimit-limit"), answer.header("x-ratelimit-remaining")),
            (Some("5"), Some("4"))
        );
        let body = answer.expect(200);
        assert_eq!(body, json!({"message": "A code was sent.", "data": {"expires_in": 300}}));
        let code = app.codes(PHONE).await.remove(0);
        app.clock.advance(Duration::seconds(299));
        guess(app, "192.0.2.1", &code).await.expect(200);

        let code = app.code(PHONE).await;
        app.clock.advance(Duration::seconds(300));
        assert_eq!(guess(app, "192.0.2.1", &code).await.expect(401)["code"], "invalid_code");
    })
    .await;
}

#[tokio::test]
async fn limited_endpoints_report_remaining_allowance() {
    let changes = [STRICT[0], STRICT[1]];
    TestApp::run_with(&changes, async |app| {
        let phone = "+12024561111";
        let left = |answer: &Answer| {
            let number = |name| answer.header(name).and_then(|value| value.parse::<u32>().ok());
            (number("x-ratelimit-limit"), number("x-ratelimit-remaining"))
        };
        let (user, _) = app.log_in(phone).await;
        let check = app.post("/api/auth/username/check", &json!({"username": "somebody"})).await;
        let generated = app.post("/api/auth/username/generate", &json!({"base": "somebody"})).await;
        assert_eq!((left(&check), left(&generated)), ((Some(30), Some(29)), (Some(30), Some(28))));
        let wrong = json!({"phone": phone, "code": "000000"});
        let (malformed, refused) =
            (app.post("/api/code/verify", &json!({})).await, app.post("/api/auth/login", &wrong).await);
        assert_eq!((malformed.status.as_u16(), left(&malformed)), (422, (Some(30), Some(28))));
        assert_eq!((refused.status.as_u16(), left(&refused)), (401, (Some(30), Some(27))));
        let begun = user.post("/api/auth/verify-phone/initiate", json!({"phone": phone})).await;
        let resent = user.post("/api/auth/resend-code", json!({"phone": phone})).await;
        assert_eq!((left(&begun), left(&resent)), ((Some(5), Some(4)), (Some(5), Some(3))), "from another network");
        let code = app.codes(phone).await.remove(0);
        let verified = user.post("/api/auth/verify-phone", json!({"phone": phone, "code": code})).await;
        assert_eq!((verified.status.as_u16(), left(&verified)), (200, (Some(30), Some(29))), "from another network");
    })
    .await;
}

#[tokio::test]
async fn invalid_phone_and_code_name_their_fields() {
    TestApp::run(async |app| {
        for phone in
            [json!(""), json!("12345"), json!("+0123456789"), json!(14_155_550_100_i64), json!(null), json!([PHONE])]
        {
            let fields = app.post("/api/code/request", &json!({"phone": phone})).await.invalid_fields();
            assert_eq!(fields, ["phone"], "{phone}");
        }
        assert_eq!(app.post("/api/code/request", &json!({})).await.invalid_fields(), ["phone"]);
        assert_eq!(app.post("/api/code/verify", &json!({})).await.invalid_fields(), ["code", "phone"]);
        for code in [json!("12ab56"), json!(""), json!(123_456), json!("1234567")] {
            let fields = app.post("/api/auth/login", &json!({"phone": PHONE, "code": code})).await.invalid_fields();
            assert_eq!(fields, ["code"], "{code}");
        }
    })
    .await;
}

#[tokio::test]
async fn all_invalid_codes_get_the_same_response() {
    TestApp::run(async |app| {
        let never = guess(app, "192.0.2.1", "123456").await;
        let code = app.code(PHONE).await;
        let wrong = guess(app, "192.0.2.1", &other_than(&code, 1)).await;
        guess(app, "192.0.2.1", &code).await.expect(200);
        let used = guess(app, "192.0.2.1", &code).await;
        let code = app.code(PHONE).await;
        for n in 1..=5 {
            guess(app, "192.0.2.1", &other_than(&code, n)).await.expect(401);
        }
        let burnt = guess(app, "192.0.2.1", &code).await;
        let code = app.code(PHONE).await;
        app.clock.advance(Duration::minutes(6));
        let expired = guess(app, "192.0.2.1", &code).await;
        for answer in [&never, &wrong, &used, &burnt, &expired] {
            assert_eq!(answer.status, 401);
            assert_eq!(answer.bytes, never.bytes);
        }
    })
    .await;
}

#[tokio::test]
async fn new_code_invalidates_the_previous_one() {
    TestApp::run(async |app| {
        let (old, new) = (app.code(PHONE).await, app.code(PHONE).await);
        assert_ne!(old, new, "the seed draws two different codes");
        guess(app, "192.0.2.1", &old).await.expect(401);
        guess(app, "192.0.2.1", &new).await.expect(200);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_correct_codes_log_in_once() {
    TestApp::run(async |app| {
        for round in 0..3 {
            let code = app.code(PHONE).await;
            // Five guesses come from the user's own network, the others from 45 networks, as a thief with the code
            // could send them.
            let addresses: Vec<String> =
                (0..50).map(|n| if n < 5 { "192.0.2.1".into() } else { format!("203.0.113.{n}") }).collect();
            let answers = join_all(addresses.iter().map(|address| guess(app, address, &code))).await;
            let statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
            assert_eq!(statuses.iter().filter(|&&status| status == 200).count(), 1, "round {round}: {statuses:?}");
            assert!(statuses.iter().all(|status| [200, 401].contains(status)), "{statuses:?}");
        }
        let sessions: i64 =
            sqlx::query_scalar("select count(*) from sessions").fetch_one(&app.app.core.db).await.expect("read");
        assert_eq!(sessions, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_eight_concurrent_guesses_are_compared() {
    TestApp::run(async |app| {
        telemetry::metrics();
        let code = app.code(PHONE).await;
        let wrong: Vec<(String, String)> = (0..200)
            .map(|n: u32| {
                (
                    if n.is_multiple_of(2) { "192.0.2.1".into() } else { format!("203.0.113.{n}") },
                    other_than(&code, n + 1),
                )
            })
            .collect();
        let answers = join_all(wrong.iter().map(|(address, wrong)| guess(app, address, wrong))).await;
        assert!(answers.iter().all(|answer| answer.status == 401));
        assert_eq!(guesses(app).await, (5, 3));
        assert_eq!(metric("matchday_codes_compared_total"), 8);
        guess(app, "192.0.2.1", &code).await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn guesses_by_strangers_do_not_lock_user_out() {
    TestApp::run(async |app| {
        // Repeat often enough for the delay after consecutive failures to apply.
        for _ in 0..9 {
            app.clock.advance(Duration::minutes(2));
            let code = app.code(PHONE).await;
            for n in 1..=100 {
                let answer = guess(app, STRANGER, &other_than(&code, n)).await;
                assert!([401, 429].contains(&answer.status.as_u16()), "{}", answer.status);
            }
            assert!(guesses(app).await.1 <= 3);
            let code = app.codes(PHONE).await.remove(0);
            // A correct code would reset the failures, so send a wrong one: 401 shows that the user's guess was
            // compared.
            guess(app, "192.0.2.1", &other_than(&code, 1)).await.expect(401);
        }
        app.clock.advance(Duration::minutes(1));
        let code = app.code(PHONE).await;
        assert_eq!(guess(app, STRANGER, &other_than(&code, 1)).await.expect(429)["code"], "rate_limited");
        guess(app, "192.0.2.1", &code).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn failures_outlive_codes_and_delay_guesses() {
    TestApp::run(async |app| {
        let mut code = String::new();
        for n in 0..20 {
            if n % 5 == 0 {
                app.clock.advance(Duration::minutes(2));
                code = app.code(PHONE).await;
            }
            guess(app, "192.0.2.1", &other_than(&code, n + 1)).await.expect(401);
        }
        code = app.code(PHONE).await;
        let refused = guess(app, "192.0.2.1", &code).await;
        assert_eq!(refused.header("retry-after"), Some("30"), "even the right code has to wait");
        refused.expect(429);
        assert_eq!(guesses(app).await, (0, 0), "a guess during the wait is not counted");
        app.clock.advance(Duration::seconds(30));
        guess(app, "192.0.2.1", &other_than(&code, 1)).await.expect(401);
        assert_eq!(guess(app, "192.0.2.1", &code).await.header("retry-after"), Some("60"));
        app.clock.advance(Duration::seconds(60));
        guess(app, "192.0.2.1", &code).await.expect(200);
        // The correct code reset the failures.
        let code = app.code(PHONE).await;
        guess(app, "192.0.2.1", &other_than(&code, 1)).await.expect(401);
        guess(app, "192.0.2.1", &code).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn verification_guesses_do_not_delay_login() {
    TestApp::run(async |app| {
        let mut failed = 0;
        while failed < 25 {
            app.clock.advance(Duration::hours(2));
            let (attacker, _) = app.log_in("+14155550199").await;
            attacker.post("/api/auth/verify-phone/initiate", json!({"phone": PHONE})).await.expect(200);
            let code = app.codes(PHONE).await.remove(0);
            for n in 1..=5 {
                let body = json!({"phone": PHONE, "code": other_than(&code, n)});
                let answer = attacker.post("/api/auth/verify-phone", body).await;
                failed += u32::from(answer.status == 401);
                if answer.status == 429 {
                    app.clock.advance(Duration::hours(1));
                }
            }
        }
        app.clock.advance(Duration::days(1));
        let code = app.code(PHONE).await;
        guess(app, "192.0.2.1", &code).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn phone_has_burst_minute_and_daily_limits() {
    TestApp::run(async |app| {
        for left in (0..5).rev() {
            assert_eq!(request(app, PHONE).await.header("x-ratelimit-remaining"), Some(left.to_string().as_str()));
        }
        let refused = request(app, PHONE).await;
        assert_eq!((refused.header("retry-after"), refused.header("x-ratelimit-limit")), (Some("60"), Some("5")));
        assert_eq!(refused.expect(429)["code"], "rate_limited");
        for _ in 0..5 {
            app.clock.advance(Duration::minutes(1));
            request(app, PHONE).await.expect(200);
            request(app, PHONE).await.expect(429);
        }
        app.clock.advance(Duration::minutes(10));
        let refused = request(app, PHONE).await;
        assert_eq!(refused.header("retry-after"), Some("31500"), "from 15:15 until midnight UTC");
        refused.expect(429);
        request(app, "+14155550101").await.expect(200);
        app.clock.advance(Duration::hours(9));
        request(app, PHONE).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn spoofed_forwarded_addresses_are_ignored() {
    let changes = [STRICT[0], STRICT[1], ("MATCHDAY_LIMITS__NETWORK_HOURLY", "3")];
    TestApp::run_with(&changes, async |app| {
        telemetry::metrics();
        let from = async |address: &str, n: u32| {
            let phone = format!("+120245{n:05}");
            let answer = app.post_from(address, "/api/code/request", &json!({"phone": phone})).await;
            assert_eq!(answer.status, 200);
            !is_limited(&answer)
        };
        // The client controls every address before the last one.
        let spoofed = [1, 2, 3, 4].map(|n| (format!("10.9.8.{n}, 203.0.113.5"), 61_000 + n));
        let mut served = Vec::new();
        for (address, n) in &spoofed {
            served.push(from(address, *n).await);
        }
        assert_eq!(served, [true, true, true, false]);
        // A thousand addresses in one /64 count as one network.
        let mut sent = 0;
        for n in 0..1_000_u32 {
            sent += u32::from(from(&format!("2001:db8:7:7:{n:x}::1"), 62_000 + n).await);
        }
        assert_eq!((sent, messages(app).await), (3, 6));
        assert_eq!(metric(r#"matchday_codes_refused_total{reason="network"}"#), 998);
    })
    .await;
}

#[tokio::test]
async fn block_limit_bounds_cost_of_a_thousand_numbers() {
    TestApp::run_with(&STRICT, async |app| {
        telemetry::metrics();
        let mut sent = 0;
        for n in 0..1_000_u32 {
            let (address, phone) = (format!("203.0.{}.{}", n / 250, n % 250), format!("+1202456{n:04}"));
            let answer = app.post_from(&address, "/api/code/request", &json!({"phone": phone})).await;
            sent += i64::from(!is_limited(&answer));
            answer.expect(200);
        }
        assert_eq!((sent, messages(app).await), (60, 60));
        assert_eq!(metric(r#"matchday_codes_refused_total{reason="block"}"#), 940);
        // The limit affects neither the next block nor the next hour.
        request(app, "+12024570000").await.expect(200);
        app.clock.advance(Duration::hours(1));
        request(app, "+12024560999").await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn only_valid_numbers_of_capped_countries_are_served() {
    TestApp::run_with(&STRICT, async |app| {
        for phone in ["+442079460958", "+11234567890", "+19005550123", "+10000000000", "+8835100012345"] {
            assert_eq!(request(app, phone).await.invalid_fields(), ["phone"], "{phone}");
        }
        for n in 0..3 {
            request(app, &format!("+1416{}240100", 2 + n)).await.expect(200);
        }
        assert!(is_limited(&request(app, "+14167240100").await));
        assert!(!is_limited(&request(app, "+12024570000").await));
        assert_eq!(messages(app).await, 4);
    })
    .await;
}

#[tokio::test]
async fn daily_budget_keeps_reserve_for_returning_phones() {
    let changes = [STRICT[0], STRICT[1], ("MATCHDAY_LIMITS__DAILY_BUDGET", "5")];
    TestApp::run_with(&changes, async |app| {
        telemetry::metrics();
        app.app.codes.note_verified_before(&["+12024567000", "+12024568000"]).await;
        let limited =
            join_all((0..7).map(|n| async move { is_limited(&request(app, &format!("+1202456{n}000")).await) })).await;
        assert_eq!(limited.iter().filter(|&&limited| limited).count(), 3, "a fifth is reserved for returning phones");
        assert_eq!(metric(r#"matchday_codes_refused_total{reason="budget"}"#), 3);
        for phone in ["+12024567000", "+12024568000"] {
            assert!(is_limited(&request(app, phone).await));
        }
        eventually("only the reserve is spent", async || {
            (messages(app).await, metric(r#"matchday_codes_refused_total{reason="budget"}"#)) == (5, 4)
        })
        .await;
        app.clock.advance(Duration::hours(9));
        assert!(!is_limited(&request(app, "+12024560000").await));
    })
    .await;
}

#[tokio::test]
async fn guesses_across_phones_are_limited_by_network() {
    TestApp::run_with(&STRICT, async |app| {
        let attempt = async |n: u32| {
            let body = json!({"phone": format!("+1202456{n:04}"), "code": "000000"});
            app.post_from(STRANGER, "/api/code/verify", &body).await.status.as_u16()
        };
        let statuses = join_all((0..40).map(attempt)).await;
        assert_eq!(statuses.iter().filter(|&&status| status == 401).count(), 30);
        assert_eq!(statuses.iter().filter(|&&status| status == 429).count(), 10);
    })
    .await;
}

#[tokio::test]
async fn refused_limit_does_not_charge_other_limits() {
    let changes = [STRICT[0], STRICT[1], ("MATCHDAY_LIMITS__BLOCK_HOURLY", "1")];
    TestApp::run_with(&changes, async |app| {
        request(app, "+12024561111").await.expect(200);
        telemetry::metrics();
        // Exceeds the phone's burst and daily limits.
        for _ in 0..20 {
            assert!(is_limited(&request(app, "+12024562222").await));
        }
        assert_eq!(metric(r#"matchday_codes_refused_total{reason="block"}"#), 20, "always for the same reason");
        app.clock.advance(Duration::hours(1));
        let answer = request(app, "+12024562222").await;
        assert_eq!(answer.header("x-ratelimit-remaining"), Some("4"));
        answer.expect(200);
    })
    .await;
}

#[tokio::test]
async fn pending_login_cannot_be_probed_without_limit() {
    let changes = [STRICT[0], STRICT[1], ("MATCHDAY_LIMITS__NETWORK_HOURLY", "3")];
    TestApp::run_with(&changes, async |app| {
        let post = async |phone: &str| app.post_from(STRANGER, "/api/auth/resend-code", &json!({"phone": phone})).await;
        for _ in 0..3 {
            post("+12024561111").await.expect(422);
        }
        request(app, "+12024562222").await.expect(200);
        let (without, with) = (post("+12024561111").await, post("+12024562222").await);
        assert!(is_limited(&without) && is_limited(&with));
        assert_eq!((without.bytes, messages(app).await), (with.bytes, 1), "all phones get the same response");
    })
    .await;
}

/// Sends `sends` codes to a block and verifies the first `verified` of them.
async fn traffic(app: &TestApp, block: &str, sends: u32, verified: u32) {
    for n in 0..sends {
        let phone = format!("{block}{n:04}");
        let answer = app.post_from(&format!("203.0.113.{n}"), "/api/code/request", &json!({"phone": phone})).await;
        answer.expect(200);
        if n < verified {
            let code = app.codes(&phone).await.remove(0);
            let body = json!({"phone": phone, "code": code});
            app.post_from(&format!("203.0.113.{n}"), "/api/code/verify", &body).await.expect(200);
        }
    }
}

async fn judge(app: &TestApp) -> HashSet<String> {
    let closed = app.app.codes.judge_conversions().await.expect("judged");
    closed.into_iter().map(|closure| closure.prefix).collect()
}

fn prefixes<const N: usize>(prefixes: [&str; N]) -> HashSet<String> {
    prefixes.map(str::to_owned).into()
}

#[tokio::test]
async fn low_conversion_block_is_capped_stepwise() {
    TestApp::run_with(&STRICT, async |app| {
        telemetry::metrics();
        traffic(app, "+1202456", 40, 7).await;
        traffic(app, "+1202457", 40, 8).await;
        traffic(app, "+1202458", 29, 0).await;
        assert!(judge(app).await.is_empty(), "the codes have not expired yet");
        app.clock.advance(Duration::minutes(5));
        // 15 of 109 phones of the country verified, but 109 phones are too few to judge a country.
        assert_eq!(judge(app).await, prefixes(["+1202456"]));
        assert!(judge(app).await.is_empty(), "reported once");
        assert_eq!(metric("matchday_sms_closed"), 1);
        assert_eq!(metric(r#"matchday_sms_closures_total{kind="block"}"#), 1);
        // The cap is 14 an hour: twice the number of phones that verified.
        app.clock.advance(Duration::minutes(55));
        let mut served = 0;
        for n in 100..130 {
            let address = format!("198.51.{n}.1");
            let body = json!({"phone": format!("+12024560{n}")});
            served += u32::from(!is_limited(&app.post_from(&address, "/api/code/request", &body).await));
        }
        assert_eq!(served, 14);
        assert_eq!(metric(r#"matchday_codes_refused_total{reason="closed"}"#), 16);
        assert!(!is_limited(&request(app, "+12134560001").await), "the rest of the country is not capped");

        // An operator overrides the closure; codes that were judged are not judged again.
        let ola = Operator::new("ola", "a slow carrier");
        let open = async || app.app.codes.open("+1202456", &ola).await.expect("opened");
        assert!(open().await && !open().await);
        app.clock.advance(Duration::minutes(5));
        assert!(judge(app).await.is_empty());
        assert!(!is_limited(&request(app, "+12024560001").await));

        // A second closure within a day lasts longer and has a lower cap.
        app.clock.advance(Duration::hours(2));
        traffic(app, "+1202456", 40, 1).await;
        app.clock.advance(Duration::minutes(5));
        assert_eq!(judge(app).await, prefixes(["+1202456"]));
        let closure = app.app.codes.closures().await.expect("read").remove(0);
        assert_eq!((closure.level, closure.hourly), (2, 2));
        assert_eq!(closure.closed_until - app.app.core.clock.now(), Duration::hours(2));
    })
    .await;
}

/// Inserts unverified codes for this many phones, as a fraud campaign leaves them.
async fn campaign(app: &TestApp, phones: i32, networks: i32, blocks: i32) {
    sqlx::query(
        "insert into codes (subject, phone, block, country, mac, nonce, key_version, network, origin, place, is_limited,
                            created_at, expires_at)
         select 'login:' || n, '+1213' || n, '+1213' || n % $3, 'US', repeat('m', 32)::bytea, repeat('n', 16)::bytea, 1,
                '100.64.0.' || n % $2, '100.64.0.' || n % $2, '', false, $4, $4
         from generate_series(1, $1) n",
    )
    .bind(phones)
    .bind(networks)
    .bind(blocks)
    .bind(app.app.core.clock.now())
    .execute(&app.app.core.db)
    .await
    .expect("codes");
    app.clock.advance(Duration::minutes(5));
}

/// Cost of preventing logins in a whole country. An attacker with one address closes only that address. Before this
/// rule, forty unverified codes closed a country for a day.
#[tokio::test]
async fn one_address_cannot_close_a_country() {
    TestApp::run_with(&STRICT, async |app| {
        for n in 0..40 {
            let body = json!({"phone": format!("+1213{:03}0100", 200 + n)});
            app.post_from(STRANGER, "/api/code/request", &body).await.expect(200);
        }
        app.clock.advance(Duration::minutes(5));
        assert_eq!(judge(app).await, prefixes([STRANGER]));
        assert!(!is_limited(&request(app, "+12024560001").await));

        // Closing a country takes at least a hundred addresses and a thousand phones in fifty blocks.
        for (phones, networks, blocks) in [(990, 500, 500), (1_900, 99, 500), (1_400, 500, 49)] {
            campaign(app, phones, networks, blocks).await;
            assert!(!judge(app).await.contains("US"), "{phones} {networks} {blocks}");
            sqlx::query("delete from codes").execute(&app.app.core.db).await.expect("deleted");
        }
    })
    .await;
}

#[tokio::test]
async fn distributed_campaign_caps_only_new_phones() {
    TestApp::run_with(&STRICT, async |app| {
        app.app.codes.note_verified_before(&["+12024569999"]).await;
        campaign(app, 1_000, 100, 500).await;
        assert_eq!(judge(app).await, prefixes(["US"]));
        let mut served = 0;
        for n in 0..60 {
            let (address, body) = (format!("198.51.{n}.1"), json!({"phone": format!("+1202{:03}0100", 300 + n)}));
            served += i64::from(!is_limited(&app.post_from(&address, "/api/code/request", &body).await));
        }
        assert_eq!((served, messages(app).await), (50, 50), "fifty new phones an hour");
        assert!(is_limited(&request(app, "+12024569999").await));
        eventually("the returning phone receives its code", async || messages(app).await == 51).await;
        app.clock.advance(Duration::hours(1));
        assert!(!is_limited(&request(app, "+12024560001").await), "the closure ends after an hour");
    })
    .await;
}

/// Cost of preventing logins with one phone: the attacker needs an address in the phone's home neighbourhood.
#[tokio::test]
async fn strangers_cannot_exhaust_codes_of_phone_at_home() {
    TestApp::run_with(&STRICT, async |app| {
        let phone = "+12024561111";
        let post = async |address: &str| {
            app.post_from(address, "/api/code/request", &json!({"phone": phone})).await.expect(200)
        };
        let log_in = async |address: &str| {
            let before = messages(app).await;
            post(address).await;
            eventually("a code", async || messages(app).await == before + 1).await;
            let body = json!({"phone": phone, "code": app.codes(phone).await.remove(0)});
            app.post_from(address, "/api/code/verify", &body).await.status.as_u16()
        };
        assert_eq!(log_in("203.0.113.7").await, 200);
        // Requests from twenty networks do not reach any per-network limit.
        for n in 0..20 {
            app.clock.advance(Duration::minutes(1));
            post(&format!("198.51.100.{n}")).await;
        }
        assert_eq!(messages(app).await, 10, "the phone's daily limit is used up");
        let stranger = post("198.51.100.99").await;
        assert_eq!((stranger["data"]["notice"].as_str(), messages(app).await), (Some("codes_limited"), 10));
        // A different address in the same neighbourhood, because phones roam.
        assert_eq!(log_in("203.0.200.1").await, 200);
    })
    .await;
}

/// Cost of locking out the users behind one address: the attacker needs phones that have verified.
#[tokio::test]
async fn shared_address_abuse_does_not_lock_out_returning_phones() {
    TestApp::run_with(&STRICT, async |app| {
        let (address, known, new) = ("203.0.113.7", "+12024561111", "+12024562222");
        app.app.codes.note_verified_before(&[known]).await;
        let post = async |path: &str, body: Value| app.post_from(address, path, &body).await;
        for n in 0..60 {
            post("/api/code/request", json!({"phone": format!("+1213{:03}0100", 200 + n)})).await.expect(200);
        }
        for _ in 0..40 {
            post("/api/code/verify", json!({"phone": "+12137770100", "code": "000000"})).await;
        }
        post("/api/code/verify", json!({"phone": "+12137770100", "code": "000000"})).await.expect(429);
        let sent = messages(app).await;
        let (of_known, of_new) = (
            post("/api/code/request", json!({"phone": known})).await,
            post("/api/code/request", json!({"phone": new})).await,
        );
        assert!(is_limited(&of_known) && is_limited(&of_new));
        eventually("the returning phone receives its code", async || messages(app).await == sent + 1).await;
        let code = app.codes(known).await.remove(0);
        let wrong = json!({"phone": known, "code": other_than(&code, 1)});
        post("/api/code/verify", wrong).await.expect(401);
        post("/api/code/verify", json!({"phone": known, "code": code})).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn limited_responses_do_not_reveal_returning_phones() {
    let changes = [STRICT[0], STRICT[1], ("MATCHDAY_LIMITS__NETWORK_HOURLY", "2")];
    TestApp::run_with(&changes, async |app| {
        let (known, new) = ("+12024561111", "+12024562222");
        app.app.codes.note_verified_before(&[known]).await;
        for phone in ["+12137770100", "+12137780100"] {
            app.post_from(STRANGER, "/api/code/request", &json!({"phone": phone})).await.expect(200);
        }
        let seen = |answer: Answer| {
            let mut headers = answer.headers.clone();
            headers.remove("x-request-id");
            (answer.status, headers, answer.bytes)
        };
        for path in ["/api/code/request", "/api/auth/resend-code"] {
            let (first, second) = (
                app.post_from(STRANGER, path, &json!({"phone": known})).await,
                app.post_from(STRANGER, path, &json!({"phone": new})).await,
            );
            assert!(is_limited(&first));
            assert_eq!(seen(first), seen(second));
        }
        eventually("the returning phone receives its codes", async || messages(app).await == 4).await;
        // A resend from another network and a wrong guess do not distinguish them either.
        for (path, address, status) in
            [("/api/auth/resend-code", "192.0.2.9", 422), ("/api/code/verify", "192.0.2.8", 401)]
        {
            let post = async |phone| app.post_from(address, path, &json!({"phone": phone, "code": "000000"})).await;
            let (first, second) = (post(known).await, post(new).await);
            assert_eq!((first.status.as_u16(), seen(first).2), (status, seen(second).2), "{path}");
        }
    })
    .await;
}

#[tokio::test]
async fn authenticated_requests_report_limited_codes() {
    let changes = [STRICT[0], STRICT[1], ("MATCHDAY_LIMITS__NETWORK_HOURLY", "2")];
    TestApp::run_with(&changes, async |app| {
        let (user, _) = app.log_in("+12024561111").await;
        app.post_from(STRANGER, "/api/code/request", &json!({"phone": "+12137770100"})).await.expect(200);
        let post = async |path: &str, body: Value| {
            let headers = [("x-forwarded-for", STRANGER)];
            user.send_with(Method::POST, path, &headers, Some(body.to_string())).await
        };
        let move_to = json!({"phone": "+12024562222"});
        let sent = post("/api/auth/verify-phone/initiate", move_to.clone()).await;
        assert!(!is_limited(&sent));
        assert_eq!(sent.expect(200)["message"], "A code was sent.");
        for (path, body) in [("/api/auth/verify-phone/initiate", move_to), ("/api/auth/me/deletion", json!({}))] {
            let limited = post(path, body).await;
            assert!(is_limited(&limited), "{path}");
            let message = limited.expect(200)["message"].as_str().map(|text| text.starts_with("Few codes can be sent"));
            assert_eq!(message, Some(true), "{path}");
        }
    })
    .await;
}

#[tokio::test]
async fn network_limits_also_apply_to_ipv6_sites() {
    TestApp::run_with(&STRICT, async |app| {
        // Each request comes from a different /64 of the same /48.
        let from =
            async |n: u32, path: &str, body: Value| app.post_from(&format!("2001:db8:7:{n:x}::1"), path, &body).await;
        let mut answered = [0; 3];
        for n in 0..300 {
            let codes = from(n, "/api/code/request", json!({"phone": format!("+1{}3560100", 210 + n % 700)})).await;
            let guess = from(n, "/api/code/verify", json!({"phone": "+12024561111", "code": "000000"})).await;
            let name = from(n, "/api/auth/username/check", json!({"username": "somebody"})).await;
            answered[0] += u32::from(codes.status == 200 && !is_limited(&codes));
            answered[1] += u32::from(guess.status == 401);
            answered[2] += u32::from(name.status == 200);
        }
        assert!(answered[0] <= 240, "four times 60 codes: {answered:?}");
        assert_eq!(answered[1..], [120, 120], "four times 30 guesses and names");
    })
    .await;
}

#[tokio::test]
async fn repeated_requests_do_not_count_as_fraud() {
    TestApp::run_with(&STRICT, async |app| {
        for n in 0..12 {
            let phone = format!("+1202456{n:04}");
            for _ in 0..5 {
                let address = format!("203.0.113.{n}");
                app.post_from(&address, "/api/code/request", &json!({"phone": phone})).await.expect(200);
            }
            if n < 3 {
                let code = app.codes(&phone).await.remove(0);
                let body = json!({"phone": phone, "code": code});
                app.post_from(&format!("203.0.113.{n}"), "/api/code/verify", &body).await.expect(200);
            }
        }
        app.clock.advance(Duration::minutes(5));
        // 3 of 60 codes were verified, but by 3 of 12 phones.
        assert!(app.app.codes.judge_conversions().await.expect("judged").is_empty());
    })
    .await;
}

#[tokio::test]
async fn known_and_unknown_phones_get_identical_responses() {
    TestApp::run(async |app| {
        app.log_in("+14155550111").await;
        app.clock.advance(Duration::minutes(5));
        let (known, unknown) = (request(app, "+14155550111").await, request(app, "+14155550112").await);
        let headers = |answer: &Answer| {
            let mut headers = answer.headers.clone();
            headers.remove("x-request-id");
            headers
        };
        assert_eq!((known.status, headers(&known), &known.bytes), (unknown.status, headers(&unknown), &unknown.bytes));
        let wrong = async |phone: &str| {
            let code = other_than(&app.codes(phone).await[0], 1);
            app.post("/api/code/verify", &json!({"phone": phone, "code": code})).await.bytes
        };
        assert_eq!(wrong("+14155550111").await, wrong("+14155550112").await);
        let resent = async |phone: &str| app.post("/api/auth/resend-code", &json!({"phone": phone})).await.bytes;
        assert_eq!(resent("+14155550111").await, resent("+14155550112").await);
    })
    .await;
}

#[tokio::test]
async fn code_is_valid_for_one_purpose_only() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in("+14155550111").await;
        user.post("/api/auth/verify-phone/initiate", json!({"phone": PHONE})).await.expect(200);
        let verification = app.codes(PHONE).await.remove(0);
        guess(app, "192.0.2.1", &verification).await.expect(401);
        let login = app.code(PHONE).await;
        assert_ne!(login, verification);
        user.post("/api/auth/verify-phone", json!({"phone": PHONE, "code": login})).await.expect(401);
        // The failed attempt did not invalidate the login code.
        guess(app, "192.0.2.1", &login).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn resend_repeats_only_the_pending_code() {
    TestApp::run(async |app| {
        let resend = async |phone: &str| app.post("/api/auth/resend-code", &json!({"phone": phone})).await;
        assert_eq!(resend(PHONE).await.invalid_fields(), ["phone"]);
        let first = app.code(PHONE).await;
        assert_eq!(resend(PHONE).await.expect(200)["data"]["expires_in"], 300);
        let second = app.codes(PHONE).await.remove(0);
        guess(app, "192.0.2.1", &first).await.expect(401);
        guess(app, "192.0.2.1", &second).await.expect(200);
        resend(PHONE).await.expect(422);

        let (user, _) = app.log_in("+14155550111").await;
        // With a token, only the caller's own verification is resent, regardless of pending logins.
        app.code(PHONE).await;
        user.post("/api/auth/resend-code", json!({"phone": PHONE})).await.expect(422);
        user.post("/api/auth/verify-phone/initiate", json!({"phone": "+14155550122"})).await.expect(200);
        user.post("/api/auth/resend-code", json!({"phone": PHONE})).await.expect(422);
        user.post("/api/auth/resend-code", json!({"phone": "+14155550122"})).await.expect(200);
        app.clock.advance(Duration::minutes(5));
        user.post("/api/auth/resend-code", json!({"phone": "+14155550122"})).await.expect(422);
        let mut forged = user;
        "md_1_nonsense".clone_into(&mut forged.token);
        forged.post("/api/auth/resend-code", json!({"phone": PHONE})).await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn expired_codes_failures_and_verifications_are_swept() {
    TestApp::run(async |app| {
        let code = app.code(PHONE).await;
        guess(app, "192.0.2.1", &other_than(&code, 1)).await.expect(401);
        assert_eq!(app.app.codes.sweep().await.expect("swept"), 0);
        app.clock.advance(Duration::hours(25));
        assert_eq!(app.app.codes.sweep().await.expect("swept"), 1);
        app.clock.advance(Duration::days(30));
        assert_eq!(app.app.codes.sweep().await.expect("swept"), 1, "the phone's failures");
        app.app.codes.note_verified_before(&[PHONE]).await;
        app.clock.advance(Duration::days(401));
        assert_eq!(app.app.codes.sweep().await.expect("swept"), 1, "the phone's verification");
        let left: Value = app.anonymous(Method::GET, "/api/logs/sms").await.expect(200);
        assert_eq!(left["data"][0]["attempts"], 1, "the SMS log keeps the guesses after the code is deleted");
        assert_eq!(app.app.sms.sweep().await.expect("swept"), 1);
    })
    .await;
}
