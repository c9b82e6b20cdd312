//! Identity tokens: which ones are accepted, and how their keys are read.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use aws_lc_rs::{
    rand::SystemRandom,
    rsa::KeySize,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
        RSA_PKCS1_SHA256, RsaKeyPair,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use platform::clock::Clock as _;
use serde_json::{Value, json};
use sha2::Sha256;
use time::Duration;

use super::{
    access::{expect_closed, expect_role, things},
    get_with, mark_on, text,
};
use crate::{
    admin::console::Role,
    testing::{Receiver, Reply, TestApp, unique},
};

const ISSUER: &str = "https://login.example.org/realms/staff";
const AUDIENCE: &str = "matchday-console";

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Private key of an identity provider.
enum Signer {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Rsa(RsaKeyPair),
    Ed(Ed25519KeyPair),
    Hmac(Vec<u8>),
    Nothing,
}

impl Signer {
    fn p256() -> Self {
        Self::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key"))
    }

    fn p384() -> Self {
        Self::P384(EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("a key"))
    }

    fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).expect("a key"))
    }

    fn ed() -> Self {
        Self::Ed(Ed25519KeyPair::generate().expect("a key"))
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::P384(_) => "ES384",
            Self::Rsa(_) => "RS256",
            Self::Ed(_) => "EdDSA",
            Self::Hmac(_) => "HS256",
            Self::Nothing => "none",
        }
    }

    /// Returns the public key as a JWK.
    fn public(&self, id: &str) -> Value {
        match self {
            Self::P256(pair) | Self::P384(pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({"kty": "EC", "crv": curve, "kid": id, "use": "sig", "x": base64(x), "y": base64(y)})
            }
            Self::Rsa(pair) => {
                let public = pair.public_key();
                let (n, e) = (public.modulus(), public.exponent());
                json!({"kty": "RSA", "kid": id, "alg": "RS256", "n": base64(n.big_endian_without_leading_zero()),
                       "e": base64(e.big_endian_without_leading_zero())})
            }
            Self::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": base64(pair.public_key().as_ref())})
            }
            Self::Hmac(secret) => json!({"kty": "oct", "kid": id, "k": base64(secret)}),
            Self::Nothing => Value::Null,
        }
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let random = SystemRandom::new();
        let message = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        let bytes = message.as_bytes();
        let signature = match self {
            Self::P256(pair) | Self::P384(pair) => pair.sign(&random, bytes).expect("signed").as_ref().to_vec(),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).expect("signed");
                signature
            }
            Self::Ed(pair) => pair.sign(bytes).as_ref().to_vec(),
            Self::Hmac(secret) => {
                let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key");
                mac.update(bytes);
                mac.finalize().into_bytes().to_vec()
            }
            Self::Nothing => Vec::new(),
        };
        format!("{message}.{}", base64(signature))
    }

    fn token(&self, id: &str, claims: &Value) -> String {
        self.sign(&json!({"alg": self.algorithm(), "typ": "JWT", "kid": id}), claims)
    }
}

/// Returns claims of an operator, valid for ten minutes.
fn claims(app: &TestApp, groups: &[&str]) -> Value {
    let now = app.clock.now().unix_timestamp();
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "7", "email": "ola@example.org", "email_verified": true,
        "groups": groups, "iat": now, "exp": now + 600,
    })
}

fn changed(claims: &Value, changes: &Value) -> Value {
    let mut claims = claims.clone();
    for (name, value) in changes.as_object().expect("an object") {
        if *value == json!("remove") {
            claims.as_object_mut().expect("an object").remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

fn settings<'a>(key: &'a str, value: &'a str) -> Vec<(&'static str, &'a str)> {
    let source = if key == "file" { "MATCHDAY_CONSOLE__TOKEN_KEYS_FILE" } else { "MATCHDAY_CONSOLE__TOKEN_KEYS_URL" };
    vec![
        ("MATCHDAY_CONSOLE__TOKEN_ISSUER", ISSUER),
        ("MATCHDAY_CONSOLE__TOKEN_AUDIENCES", AUDIENCE),
        ("MATCHDAY_CONSOLE__VIEWERS", "staff"),
        ("MATCHDAY_CONSOLE__MODERATORS", "moderators"),
        ("MATCHDAY_CONSOLE__OPERATORS", "operators"),
        (source, value),
    ]
}

/// Runs a test with a console outside development that reads its keys from a file.
async fn with_keys(keys: &[Value], more: &[(&str, &str)], test: impl AsyncFnOnce(&TestApp)) {
    let path = std::env::temp_dir().join(unique("jwks"));
    std::fs::write(&path, json!({"keys": keys}).to_string()).expect("written");
    let file = path.to_str().expect("text").to_owned();
    let mut settings = settings("file", &file);
    settings.extend([
        ("MATCHDAY_ENV", "staging"),
        ("MATCHDAY_SMS__COUNTRIES", "US"),
        ("MATCHDAY_CONSOLE__ENABLED", "true"),
    ]);
    settings.extend(more);
    TestApp::run_with(&settings, test).await;
    std::fs::remove_file(path).expect("removed");
}

async fn status(app: &TestApp, token: &str) -> u16 {
    let value = format!("Bearer {token}");
    get_with(app, "/console/feeds", &[("authorization", &value)]).await.status.as_u16()
}

#[tokio::test]
async fn invalid_tokens_are_refused() {
    let (good, other) = (Signer::p256(), Signer::p256());
    let (p384, for_encryption) = (Signer::p384(), Signer::p256());
    let shared = Signer::Hmac(b"a shared secret of the provider!".to_vec());
    let mut encryption_key = for_encryption.public("enc");
    encryption_key["use"] = json!("enc");
    let keys =
        [good.public("one"), p384.public("p384"), encryption_key, shared.public("shared"), json!({"kty": "future"})];
    // An attacker uses the bytes of the public key as the secret of a symmetric algorithm.
    let confused = Signer::Hmac(keys[0].to_string().into_bytes());
    with_keys(&keys, &[], async |app| {
        let ids = things(app).await;
        let claims = claims(app, &["operators"]);
        let now = app.clock.now().unix_timestamp();
        let bearer = format!("Bearer {}", good.token("one", &claims));
        let mark = mark_on(&text(&get_with(app, "/console/users", &[("authorization", &bearer)]).await));
        let with = |changes: Value| good.token("one", &changed(&claims, &changes));
        let valid = good.token("one", &claims);
        let (head, rest) = valid.split_once('.').expect("parts");
        let (payload, signature) = rest.split_once('.').expect("parts");
        let critical = json!({"alg": "ES256", "kid": "one", "crit": ["b64"], "b64": false});
        for (what, token) in [
            ("nothing", String::new()),
            ("garbage", "abc.def.ghi".to_owned()),
            ("two parts", format!("{head}.{payload}")),
            ("four parts", format!("{valid}.x")),
            ("expired", with(json!({"exp": now - 61}))),
            ("not valid yet", with(json!({"nbf": now + 3600}))),
            ("without expiry", with(json!({"exp": "remove"}))),
            ("expiry as text", with(json!({"exp": (now + 600).to_string()}))),
            ("wrong audience", with(json!({"aud": "another-client"}))),
            ("wrong audiences", with(json!({"aud": ["another-client", "matchday"]}))),
            ("without audience", with(json!({"aud": "remove"}))),
            ("wrong issuer", with(json!({"iss": "https://login.example.org/realms/public"}))),
            ("without issuer", with(json!({"iss": "remove"}))),
            ("unverified email", with(json!({"email_verified": false}))),
            ("without name", with(json!({"email": "remove"}))),
            ("without groups", with(json!({"groups": "remove"}))),
            ("other groups", with(json!({"groups": ["operators2", "Operators"]}))),
            ("signed by another key", other.token("one", &claims)),
            ("unknown key", other.token("two", &claims)),
            ("other claims under the signature", {
                let forged = base64(changed(&claims, &json!({"email": "root@example.org"})).to_string());
                format!("{head}.{forged}.{signature}")
            }),
            ("without signature", format!("{head}.{payload}.")),
            ("algorithm none", Signer::Nothing.token("one", &claims)),
            ("algorithm NONE", Signer::Nothing.sign(&json!({"alg": "NONE", "kid": "one"}), &claims)),
            ("symmetric with the public key", confused.token("one", &claims)),
            ("symmetric key of the set", shared.token("shared", &claims)),
            ("key for encryption", for_encryption.token("enc", &claims)),
            ("algorithm that is not allowed", p384.token("p384", &claims)),
            ("algorithm of another key", good.sign(&json!({"alg": "RS256", "kid": "one"}), &claims)),
            ("critical extension", good.sign(&critical, &claims)),
            ("key in the header", {
                let header = json!({"alg": "ES256", "kid": "three", "jwk": other.public("three")});
                other.sign(&header, &claims)
            }),
        ] {
            let value = format!("Bearer {token}");
            expect_closed(app, what, &[("authorization", &value)], &mark, ids).await;
        }
        expect_closed(app, "no header", &[], &mark, ids).await;
        let forged = [("x-forwarded-user", "ola@example.org"), ("x-forwarded-groups", "operators")];
        expect_closed(app, "headers instead of a token", &forged, &mark, ids).await;
        let twice = [("authorization", bearer.as_str()), ("authorization", &bearer)];
        expect_closed(app, "two tokens", &twice, &mark, ids).await;
        assert_eq!(status(app, &valid).await, 200);
        app.clock.advance(Duration::seconds(600 + 60));
        assert_eq!(status(app, &valid).await, 403, "expired in the meantime");
    })
    .await;
}

#[tokio::test]
async fn role_is_read_from_token_groups() {
    let signer = Signer::p256();
    with_keys(&[signer.public("one")], &[], async |app| {
        let ids = things(app).await;
        for (role, groups) in [(Role::Viewer, "staff"), (Role::Moderator, "moderators"), (Role::Operator, "operators")]
        {
            let token = signer.token("one", &claims(app, &["other", groups]));
            expect_role(app, role, &[("authorization", &format!("Bearer {token}"))], ids).await;
        }
        let html = signer.token("one", &claims(app, &["staff"]));
        let html = text(&get_with(app, "/console", &[("authorization", &format!("bearer {html}"))]).await);
        assert!(html.contains("ola@example.org · viewer"), "{html}");
    })
    .await;
}

#[tokio::test]
async fn every_allowed_algorithm_and_header_works() {
    let signers = [Signer::p256(), Signer::rsa(), Signer::ed()];
    let keys: Vec<Value> = signers.iter().map(|signer| signer.public(signer.algorithm())).collect();
    let more = [
        ("MATCHDAY_CONSOLE__TOKEN_HEADER", "X-Goog-Iap-Jwt-Assertion"),
        ("MATCHDAY_CONSOLE__NAME_CLAIM", "sub"),
        ("MATCHDAY_CONSOLE__ROLE_CLAIM", "realm_access.roles"),
    ];
    with_keys(&keys, &more, async |app| {
        let claims = changed(&claims(app, &[]), &json!({"realm_access": {"roles": ["staff"]}, "aud": ["x", AUDIENCE]}));
        for signer in &signers {
            let named = signer.token(signer.algorithm(), &claims);
            // Without a key id, the only key for the algorithm is used.
            let unnamed = signer.sign(&json!({"alg": signer.algorithm()}), &claims);
            for token in [named, unnamed] {
                let answer = get_with(app, "/console", &[("x-goog-iap-jwt-assertion", &token)]).await;
                assert_eq!(answer.status, 200, "{}", signer.algorithm());
                assert!(text(&answer).contains("7 · viewer"));
                assert_eq!(status(app, &token).await, 403, "in the header that is not configured");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn keys_are_refetched_for_new_but_not_invented_ids() {
    let signers = [Signer::p256(), Signer::p256()];
    let served = Arc::new(Mutex::new(json!({"keys": [signers[0].public("0")]}).to_string()));
    let is_down = Arc::new(AtomicBool::new(false));
    let (document, down) = (Arc::clone(&served), Arc::clone(&is_down));
    let provider = Receiver::start(move |_, _| {
        if down.load(Ordering::Relaxed) {
            return Reply::status(503);
        }
        Reply::status(200).saying(&document.lock().expect("not poisoned"))
    })
    .await;
    let url = provider.url.join("keys").expect("a URL").to_string();
    TestApp::run_with(&settings("url", &url), async |app| {
        let token = |at: usize| signers[at].token(&at.to_string(), &changed(&claims(app, &["staff"]), &json!({})));
        let fetched = || provider.seen().len();
        assert_eq!(fetched(), 0, "no fetch before a token needs a key");
        for _ in 0..5 {
            assert_eq!(status(app, &token(0)).await, 200);
        }
        assert_eq!(fetched(), 1);
        // The provider replaces its key. Invented key ids cause at most one call in 30 seconds.
        *served.lock().expect("not poisoned") = json!({"keys": [signers[1].public("1")]}).to_string();
        app.clock.advance(Duration::seconds(31));
        for number in 0..50 {
            assert_eq!(
                status(app, &signers[0].token(&format!("invented{number}"), &claims(app, &["staff"]))).await,
                403
            );
        }
        assert_eq!(fetched(), 2);
        assert_eq!((status(app, &token(1)).await, status(app, &token(0)).await), (200, 403), "old keys are dropped");
        assert_eq!(fetched(), 2);
        // While the provider is down, its keys stay in use for a day.
        is_down.store(true, Ordering::Relaxed);
        app.clock.advance(Duration::hours(23));
        assert_eq!(status(app, &token(1)).await, 200);
        assert_eq!(status(app, &token(1)).await, 200);
        assert_eq!(fetched(), 3, "tried once");
        app.clock.advance(Duration::hours(2));
        assert_eq!(status(app, &token(1)).await, 503);
        is_down.store(false, Ordering::Relaxed);
        assert_eq!(status(app, &token(1)).await, 503, "not tried again immediately");
        app.clock.advance(Duration::seconds(31));
        assert_eq!(status(app, &token(1)).await, 200);
    })
    .await;
}

#[tokio::test]
async fn unusable_key_documents_refuse_all_tokens() {
    let large = format!("{{\"keys\": [], \"x\": \"{}\"}}", "x".repeat(300_000));
    for (what, reply) in [
        ("not found", Reply::status(404)),
        ("a redirect", Reply::status(302).with("location", "/elsewhere")),
        ("no JSON", Reply::status(200).saying("<html>")),
        ("no keys", Reply::status(200).saying("{\"keys\": []}")),
        (
            "only symmetric keys",
            Reply::status(200).saying("{\"keys\": [{\"kty\": \"oct\", \"kid\": \"one\", \"k\": \"AAAA\"}]}"),
        ),
        ("too large", Reply::status(200).saying(&large)),
    ] {
        let provider = Receiver::start(move |_, _| reply.clone()).await;
        let url = provider.url.to_string();
        TestApp::run_with(&settings("url", &url), async |app| {
            let token = Signer::p256().token("one", &claims(app, &["operators"]));
            assert_eq!(status(app, &token).await, 503, "{what}");
            assert_eq!(provider.seen().len(), 1, "{what}");
        })
        .await;
    }
}

#[tokio::test]
async fn key_file_is_read_again_and_checked_at_start() {
    let signers = [Signer::p256(), Signer::p256()];
    let path = std::env::temp_dir().join(unique("jwks"));
    let file = path.to_str().expect("text").to_owned();
    TestApp::run_with(&settings("file", &file), async |app| {
        let missing = app.app.console.check().await.expect_err("no file");
        assert!(format!("{missing:#}").contains("No such file"), "{missing:#}");
        for (at, signer) in signers.iter().enumerate() {
            let id = at.to_string();
            std::fs::write(&path, json!({"keys": [signer.public(&id)]}).to_string()).expect("written");
            app.clock.advance(Duration::seconds(31));
            assert_eq!(status(app, &signer.token(&id, &claims(app, &["staff"]))).await, 200);
        }
        app.app.console.check().await.expect("a file");
    })
    .await;
    std::fs::remove_file(path).expect("removed");
}
