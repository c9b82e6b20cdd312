use std::collections::HashSet;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use time::Duration;

use crate::{
    operators::Operator,
    platform::telemetry,
    testing::{Answer, TestApp},
};

const PHONE: &str = "+14155550100";
/// The network that `TestApp::post` comes from is 192.0.2.1; this is somebody else's.
const STRANGER: &str = "198.51.100.7";

/// A place like production, with real numbers only.
const STRICT: [(&str, &str); 2] = [("MATCHDAY_ENV", "staging"), ("MATCHDAY_SMS__COUNTRIES", "US,CA:3")];

async fn request(app: &TestApp, phone: &str) -> Answer {
    app.post("/api/code/request", &json!({"phone": phone})).await
}

async fn guess(app: &TestApp, address: &str, code: &str) -> Answer {
    app.post_from(address, "/api/code/verify", &json!({"phone": PHONE, "code": code})).await
}

/// A code that is surely not this one.
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
        .fetch_one(&app.app.db)
        .await
        .expect("a code")
}

#[tokio::test]
async fn a_code_is_sent_and_good_for_five_minutes() {
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
async fn every_limited_endpoint_says_what_is_left() {
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
        assert_eq!((left(&begun), left(&resent)), ((Some(5), Some(3)), (Some(5), Some(2))));
        let code = app.codes(phone).await.remove(0);
        let verified = user.post("/api/auth/verify-phone", json!({"phone": phone, "code": code})).await;
        assert_eq!((verified.status.as_u16(), left(&verified)), (200, (Some(30), Some(29))), "from another network");
    })
    .await;
}

#[tokio::test]
async fn what_is_no_phone_is_refused_by_name() {
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
async fn wrong_expired_burnt_used_and_never_sent_look_the_same() {
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
async fn a_new_code_takes_the_place_of_the_one_before() {
    TestApp::run(async |app| {
        let (old, new) = (app.code(PHONE).await, app.code(PHONE).await);
        assert_ne!(old, new, "the seed gives two different ones");
        guess(app, "192.0.2.1", &old).await.expect(401);
        guess(app, "192.0.2.1", &new).await.expect(200);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_right_codes_at_once_one_gets_in() {
    TestApp::run(async |app| {
        for round in 0..3 {
            let code = app.code(PHONE).await;
            // From fifty networks, as a thief with the code would, and from the person's own.
            let addresses: Vec<String> =
                (0..50).map(|n| if n < 5 { "192.0.2.1".into() } else { format!("203.0.113.{n}") }).collect();
            let answers = join_all(addresses.iter().map(|address| guess(app, address, &code))).await;
            let statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
            assert_eq!(statuses.iter().filter(|&&status| status == 200).count(), 1, "round {round}: {statuses:?}");
            assert!(statuses.iter().all(|status| [200, 401].contains(status)), "{statuses:?}");
        }
        let sessions: i64 =
            sqlx::query_scalar("select count(*) from sessions").fetch_one(&app.app.db).await.expect("read");
        assert_eq!(sessions, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_hundred_guesses_at_once_eight_are_compared() {
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
async fn a_stranger_who_guesses_does_not_keep_the_person_out() {
    TestApp::run(async |app| {
        // Often enough that the phone's failures would matter too.
        for _ in 0..9 {
            app.clock.advance(Duration::minutes(2));
            let code = app.code(PHONE).await;
            for n in 1..=100 {
                let answer = guess(app, STRANGER, &other_than(&code, n)).await;
                assert!([401, 429].contains(&answer.status.as_u16()), "{}", answer.status);
            }
            assert!(guesses(app).await.1 <= 3);
            let code = app.codes(PHONE).await.remove(0);
            // Each time the person is let in at the very end would end the row of failures: so only look that they could be.
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
async fn failures_of_a_phone_survive_new_codes_and_slow_guessing_down() {
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
        assert_eq!(guesses(app).await, (0, 0), "and waiting costs no guess");
        app.clock.advance(Duration::seconds(30));
        guess(app, "192.0.2.1", &other_than(&code, 1)).await.expect(401);
        assert_eq!(guess(app, "192.0.2.1", &code).await.header("retry-after"), Some("60"));
        app.clock.advance(Duration::seconds(60));
        guess(app, "192.0.2.1", &code).await.expect(200);
        // A right code ends the row.
        let code = app.code(PHONE).await;
        guess(app, "192.0.2.1", &other_than(&code, 1)).await.expect(401);
        guess(app, "192.0.2.1", &code).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn guesses_at_a_verification_do_not_slow_down_the_phones_login() {
    TestApp::run(async |app| {
        let (attacker, _) = app.log_in("+14155550199").await;
        let mut failed = 0;
        while failed < 25 {
            app.clock.advance(Duration::hours(2));
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
async fn a_phone_gets_five_at_once_then_one_a_minute_and_ten_a_day() {
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
async fn an_address_that_anybody_can_write_is_not_believed() {
    let changes = [STRICT[0], STRICT[1], ("MATCHDAY_LIMITS__NETWORK_HOURLY", "3")];
    TestApp::run_with(&changes, async |app| {
        telemetry::metrics();
        let from = async |address: &str, n: u32| {
            let phone = format!("+120245{n:05}");
            app.post_from(address, "/api/code/request", &json!({"phone": phone})).await.status.as_u16()
        };
        // What stands before the last address was written by the client itself.
        let spoofed = [1, 2, 3, 4].map(|n| (format!("10.9.8.{n}, 203.0.113.5"), 61_000 + n));
        let mut statuses = Vec::new();
        for (address, n) in &spoofed {
            statuses.push(from(address, *n).await);
        }
        assert_eq!(statuses, [200, 200, 200, 429]);
        // A thousand addresses of one customer are one network.
        let mut sent = 0;
        for n in 0..1_000_u32 {
            sent += u32::from(from(&format!("2001:db8:7:7:{n:x}::1"), 62_000 + n).await == 200);
        }
        assert_eq!(sent, 3);
        assert_eq!(metric(r#"matchday_codes_refused_total{reason="network"}"#), 998);
    })
    .await;
}

#[tokio::test]
async fn a_thousand_numbers_of_a_block_cost_no_more_than_the_block_may() {
    TestApp::run_with(&STRICT, async |app| {
        telemetry::metrics();
        let mut sent = 0;
        for n in 0..1_000_u32 {
            let (address, phone) = (format!("203.0.{}.{}", n / 250, n % 250), format!("+1202456{n:04}"));
            let answer = app.post_from(&address, "/api/code/request", &json!({"phone": phone})).await;
            if answer.status == 429 {
                assert!(answer.header("retry-after").is_some());
            } else {
                answer.expect(200);
                sent += 1;
            }
        }
        let logged: i64 =
            sqlx::query_scalar("select count(*) from sms_log").fetch_one(&app.app.db).await.expect("read");
        assert_eq!((sent, logged), (60, 60));
        assert_eq!(metric(r#"matchday_codes_refused_total{reason="block"}"#), 940);
        // The next block is not concerned, nor is this one in the next hour.
        request(app, "+12024570000").await.expect(200);
        app.clock.advance(Duration::hours(1));
        request(app, "+12024560999").await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn only_real_numbers_of_named_countries_are_served_and_each_country_has_its_cap() {
    TestApp::run_with(&STRICT, async |app| {
        for phone in ["+442079460958", "+11234567890", "+19005550123", "+10000000000", "+8835100012345"] {
            assert_eq!(request(app, phone).await.invalid_fields(), ["phone"], "{phone}");
        }
        for n in 0..3 {
            request(app, &format!("+1416{}240100", 2 + n)).await.expect(200);
        }
        request(app, "+14167240100").await.expect(429);
        request(app, "+12024570000").await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn the_days_budget_is_the_end_of_it() {
    let changes = [STRICT[0], STRICT[1], ("MATCHDAY_LIMITS__DAILY_BUDGET", "4")];
    TestApp::run_with(&changes, async |app| {
        telemetry::metrics();
        let statuses =
            join_all((0..9).map(|n| async move { request(app, &format!("+1202456{n}000")).await.status.as_u16() }))
                .await;
        assert_eq!(statuses.iter().filter(|&&status| status == 200).count(), 4);
        assert_eq!(metric(r#"matchday_codes_refused_total{reason="budget"}"#), 5);
        app.clock.advance(Duration::hours(9));
        request(app, "+12024560000").await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn many_guesses_at_many_phones_are_limited_by_network() {
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
async fn a_limit_that_refuses_leaves_the_others_as_they_were() {
    let changes = [STRICT[0], STRICT[1], ("MATCHDAY_LIMITS__BLOCK_HOURLY", "1")];
    TestApp::run_with(&changes, async |app| {
        request(app, "+12024561111").await.expect(200);
        telemetry::metrics();
        // More often than the phone or its day would allow.
        for _ in 0..20 {
            request(app, "+12024562222").await.expect(429);
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
async fn whether_somebody_is_logging_in_cannot_be_asked_without_end() {
    let changes = [STRICT[0], STRICT[1], ("MATCHDAY_LIMITS__NETWORK_HOURLY", "3")];
    TestApp::run_with(&changes, async |app| {
        let ask = async || {
            let body = json!({"phone": "+12024561111"});
            app.post_from(STRANGER, "/api/auth/resend-code", &body).await.status.as_u16()
        };
        assert_eq!([ask().await, ask().await, ask().await, ask().await], [422, 422, 422, 429]);
    })
    .await;
}

/// Sends `sends` codes to a block and lets `verified` of them come back.
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

#[tokio::test]
async fn where_too_few_codes_come_back_no_more_are_sent_for_a_day() {
    TestApp::run_with(&STRICT, async |app| {
        telemetry::metrics();
        let judge = async || {
            let closed = app.app.codes.judge_conversions().await.expect("judged");
            closed.into_iter().map(|closure| closure.prefix).collect::<Vec<_>>()
        };
        traffic(app, "+1202456", 40, 7).await;
        traffic(app, "+1202457", 40, 8).await;
        traffic(app, "+1202458", 29, 0).await;
        // Nobody has had the time to type anything in.
        assert!(judge().await.is_empty());
        app.clock.advance(Duration::minutes(5));
        // 15 of 109 for the whole country is too few as well.
        let closed: HashSet<String> = judge().await.into_iter().collect();
        assert_eq!(closed, HashSet::from(["+1202456".to_owned(), "US".to_owned()]));
        assert!(judge().await.is_empty(), "reported once");
        assert_eq!(metric("matchday_sms_closed"), 2);
        assert_eq!(metric(r#"matchday_sms_closures_total{kind="block"}"#), 1);
        let refused = request(app, "+12024560001").await;
        assert_eq!(refused.header("retry-after"), Some("86400"));
        refused.expect(429);
        request(app, "+12134560001").await.expect(429);
        assert_eq!(metric(r#"matchday_codes_refused_total{reason="closed"}"#), 2);

        // An operator who knows better opens the country; what was judged is not judged again.
        let ola = Operator::new("ola", "a slow carrier");
        let open = async || app.app.codes.open("US", &ola).await.expect("asked");
        assert!(open().await && !open().await);
        assert!(judge().await.is_empty());
        request(app, "+12134560001").await.expect(200);
        request(app, "+12024560001").await.expect(429);
        app.clock.advance(Duration::days(1));
        assert!(judge().await.is_empty());
        request(app, "+12024560001").await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn who_asks_again_and_gets_in_is_no_fraud() {
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
        // 3 of 60 codes, but 3 of 12 people.
        assert!(app.app.codes.judge_conversions().await.expect("judged").is_empty());
    })
    .await;
}

#[tokio::test]
async fn known_and_unknown_phones_get_the_same_bytes() {
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
async fn a_code_made_for_one_purpose_does_for_no_other() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in("+14155550111").await;
        user.post("/api/auth/verify-phone/initiate", json!({"phone": PHONE})).await.expect(200);
        let verification = app.codes(PHONE).await.remove(0);
        guess(app, "192.0.2.1", &verification).await.expect(401);
        let login = app.code(PHONE).await;
        assert_ne!(login, verification);
        user.post("/api/auth/verify-phone", json!({"phone": PHONE, "code": login})).await.expect(401);
        // Neither was harmed by the other.
        guess(app, "192.0.2.1", &login).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn resending_repeats_what_is_pending_and_nothing_else() {
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
        // A token means the caller's own verification, whatever logins are pending.
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
async fn what_has_had_its_time_is_swept() {
    TestApp::run(async |app| {
        let code = app.code(PHONE).await;
        guess(app, "192.0.2.1", &other_than(&code, 1)).await.expect(401);
        assert_eq!(app.app.codes.sweep().await.expect("swept"), 0);
        app.clock.advance(Duration::hours(25));
        assert_eq!(app.app.codes.sweep().await.expect("swept"), 1);
        app.clock.advance(Duration::days(30));
        assert_eq!(app.app.codes.sweep().await.expect("swept"), 1, "the phone's failures");
        let left: Value = app.anonymous(Method::GET, "/api/logs/sms").await.expect(200);
        assert_eq!(left["data"][0]["attempts"], 1, "the log outlives the code, and remembers");
        assert_eq!(app.app.sms.sweep().await.expect("swept"), 1);
    })
    .await;
}
