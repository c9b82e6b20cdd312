use std::{
    fs,
    path::{Path, PathBuf},
};

use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use image::{DynamicImage, ImageFormat, RgbImage};
use serde_json::{Value, json};
use time::Duration;

use super::service::{AVATAR_CHANGED, AvatarError};
use crate::{
    identity::{
        account_deletion::rules::{TABLES, Table},
        accounts,
    },
    testing::{Answer, TINY_PNG, TestApp, TestUser, eventually, unique},
};

const ME: &str = "/api/auth/me/avatar";
const LIMIT: usize = 2 * 1024 * 1024;

fn encoded(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    DynamicImage::from(RgbImage::new(width, height)).write_to(&mut file, format).expect("encoded");
    file.into_inner()
}

async fn upload_as(app: &TestApp, user: &TestUser<'_>, kind: Option<&str>, image: impl Into<Body>) -> Answer {
    let mut request = Request::put(ME).header(header::AUTHORIZATION, format!("Bearer {}", user.token));
    if let Some(kind) = kind {
        request = request.header(header::CONTENT_TYPE, kind);
    }
    app.send(request.body(image.into()).expect("a request")).await
}

async fn upload(app: &TestApp, user: &TestUser<'_>, image: impl Into<Body>) -> Answer {
    upload_as(app, user, Some("image/png"), image).await
}

/// Uploads a picture and returns its URL.
async fn uploaded(app: &TestApp, user: &TestUser<'_>) -> String {
    let response = upload(app, user, TINY_PNG).await.expect(200);
    assert_eq!(response["message"], "Avatar saved.");
    expect_chat_message(app, user).await;
    response["data"]["avatar_url"].as_str().expect("a URL").to_owned()
}

async fn expect_chat_message(app: &TestApp, user: &TestUser<'_>) {
    let mut published = app.published().await;
    published.retain(|(subject, _)| subject.starts_with("work."));
    assert_eq!(published, [(AVATAR_CHANGED.to_owned(), json!({"user_id": user.id}))]);
}

async fn get(app: &TestApp, path: &str) -> Answer {
    app.anonymous(Method::GET, path).await
}

async fn is_missing(app: &TestApp, path: &str) {
    let answer = get(app, path).await;
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
    assert_eq!(answer.expect(404)["code"], "not_found", "{path}");
}

/// Rows of the table, as (number, number without an end).
async fn rows(app: &TestApp) -> (i64, i64) {
    sqlx::query_as("select count(*), count(*) filter (where delete_at is null) from avatars")
        .fetch_one(&app.app.core.db)
        .await
        .expect("read")
}

async fn upload_waits(app: &TestApp) {
    eventually("the upload waits for the account", async || {
        let waiting = "select count(*) from pg_stat_activity
                       where datname = current_database() and wait_event_type = 'Lock'";
        sqlx::query_scalar::<_, i64>(waiting).fetch_one(app.owner()).await.expect("read") == 1
    })
    .await;
}

#[tokio::test]
async fn pictures_have_two_sizes_and_can_be_cached() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for (kind, format) in
            [("image/jpeg", ImageFormat::Jpeg), ("image/PNG", ImageFormat::Png), ("image/webp", ImageFormat::WebP)]
        {
            let url = upload_as(app, &user, Some(kind), encoded(30, 20, format)).await.expect(200);
            expect_chat_message(app, &user).await;
            let url = url["data"]["avatar_url"].as_str().expect("a URL").to_owned();
            let key = url.strip_prefix("/api/avatars/").and_then(|rest| rest.strip_suffix(".jpg")).expect("a path");
            assert!(key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
            let mut etags = Vec::new();
            for (query, side) in [("", 512), ("?size=512", 512), ("?size=128", 128)] {
                let answer = get(app, &format!("{url}{query}")).await;
                assert_eq!(answer.status, StatusCode::OK);
                for (name, value) in [
                    ("content-type", "image/jpeg"),
                    ("cache-control", "public, max-age=86400, immutable"),
                    ("x-content-type-options", "nosniff"),
                ] {
                    assert_eq!(answer.header(name), Some(value));
                }
                let image = image::load_from_memory_with_format(&answer.bytes, ImageFormat::Jpeg).expect("a JPEG");
                assert_eq!((image.width(), image.height()), (side, side));
                etags.push(answer.header("etag").expect("a validator").to_owned());
            }
            assert!(etags[0] == etags[1] && etags[0] != etags[2] && etags[0].starts_with('"'), "{etags:?}");
            let request = Request::get(&url).header(header::IF_NONE_MATCH, &etags[0]).body(Body::empty());
            let unchanged = app.send(request.expect("a request")).await;
            assert_eq!((unchanged.status, unchanged.bytes.len()), (StatusCode::NOT_MODIFIED, 0));
            assert_eq!(unchanged.header("etag"), Some(etags[0].as_str()));
            for size in ["64", "0", "x", "1024", ""] {
                let refused = get(app, &format!("{url}?size={size}")).await;
                assert_eq!(refused.invalid_fields(), ["size"], "{size}");
            }
        }
        for key in ["0".repeat(32), "x".to_owned(), "..%2F..%2Fetc%2Fpasswd".to_owned(), user.id.to_string()] {
            is_missing(app, &format!("/api/avatars/{key}.jpg")).await;
        }
        is_missing(app, &format!("/api/avatars/{}", "0".repeat(32))).await;
    })
    .await;
}

#[tokio::test]
async fn refused_uploads_keep_the_avatar() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let url = uploaded(app, &user).await;
        for kind in [Some("image/gif"), Some("image/svg+xml"), Some("application/json"), Some("image/jpg"), None] {
            let refused = upload_as(app, &user, kind, TINY_PNG).await.expect(415);
            assert_eq!(refused["code"], "unsupported_media_type", "{kind:?}");
        }
        assert_eq!(upload(app, &user, vec![0; LIMIT + 1]).await.expect(413)["code"], "body_too_large");
        assert_eq!(upload(app, &user, vec![0; LIMIT]).await.invalid_fields(), ["avatar"], "of the largest size");
        let jpeg = encoded(100, 100, ImageFormat::Jpeg);
        let broken = [Vec::new(), b"hello".to_vec(), TINY_PNG[..40].to_vec(), jpeg[..jpeg.len() - 2].to_vec()];
        for image in broken {
            assert_eq!(upload(app, &user, image).await.invalid_fields(), ["avatar"]);
        }
        for (width, height) in [(4097, 1), (1, 4097)] {
            let refused = upload(app, &user, encoded(width, height, ImageFormat::Png)).await.expect(422);
            assert_eq!(refused["errors"]["avatar"], json!(["The avatar must have at most 4096 × 4096 pixels."]));
        }
        // The content decides, not its declared type.
        upload_as(app, &user, Some("image/webp"), encoded(4096, 2, ImageFormat::Png)).await.expect(200);
        expect_chat_message(app, &user).await;
        is_missing(app, &url).await;
        assert_eq!(rows(app).await, (2, 1), "refused uploads leave nothing");
        app.send(Request::put(ME).body(Body::from(TINY_PNG)).expect("a request")).await.expect(401);
        app.anonymous(Method::DELETE, ME).await.expect(401);
    })
    .await;
}

/// Each condition is reported before the ones after it.
#[tokio::test]
async fn conditions_are_checked_in_order() {
    let staging = [
        ("MATCHDAY_ENV", "staging"),
        ("MATCHDAY_SMS__COUNTRIES", "US"),
        ("MATCHDAY_AVATARS__STORE", "none"),
        ("MATCHDAY_CONSOLE__ENABLED", "false"),
    ];
    TestApp::run_with(&staging, async |app| {
        let user = app.user().await;
        for _ in 0..10 {
            let refused = upload_as(app, &user, Some("text/plain"), vec![0; LIMIT + 1]).await;
            assert_eq!(refused.header("x-ratelimit-limit"), Some("10"));
            assert_eq!(refused.expect(409)["code"], "avatars_unavailable");
        }
        let limited = upload_as(app, &user, Some("text/plain"), vec![0; LIMIT + 1]).await;
        assert_eq!(limited.header("retry-after"), Some("60"));
        assert_eq!(limited.expect(429)["code"], "rate_limited");
        app.clock.advance(Duration::minutes(1));
        upload(app, &user, TINY_PNG).await.expect(409);
        upload(app, &user, TINY_PNG).await.expect(429);
        user.delete(ME).await.expect(200);
    })
    .await;
    TestApp::run(async |app| {
        let user = app.user().await;
        upload_as(app, &user, Some("text/plain"), vec![0; LIMIT + 1]).await.expect(415);
    })
    .await;
}

#[tokio::test]
async fn upload_beyond_the_limit_is_refused_before_its_body() {
    TestApp::run_with(&[("MATCHDAY_AVATARS__AT_ONCE", "1")], async |app| {
        let (user, avatars) = (app.user().await, &app.app.avatars);
        let places: Vec<_> = std::iter::from_fn(|| avatars.upload_place().ok()).collect();
        assert_eq!(places.len(), 16);
        let request = Request::put(ME)
            .header(header::AUTHORIZATION, format!("Bearer {}", user.token))
            .header(header::CONTENT_TYPE, "image/png")
            .header(header::EXPECT, "100-continue");
        let endless = Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
        let refused = app.send(request.body(endless).expect("a request")).await;
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(refused.expect(503)["code"], "overloaded");
        drop(places);
        uploaded(app, &user).await;
        let places: Vec<_> = std::iter::from_fn(|| avatars.upload_place().ok()).collect();
        assert_eq!(places.len(), 16, "all places are free again");
    })
    .await;
}

#[tokio::test]
async fn reads_beyond_the_limit_are_refused() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let url = uploaded(app, &user).await;
        let places: Vec<_> = std::iter::from_fn(|| app.app.avatars.read_place().ok()).collect();
        assert_eq!(places.len(), 64);
        let refused = get(app, &url).await;
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(refused.expect(503)["code"], "overloaded");
        drop(places);
        assert_eq!(get(app, &url).await.status, StatusCode::OK);
    })
    .await;
}

#[tokio::test]
async fn each_upload_replaces_the_previous_one() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let first = uploaded(app, &user).await;
        let second = uploaded(app, &user).await;
        assert_ne!(first, second, "also for the same bytes");
        for size in ["", "?size=128"] {
            is_missing(app, &format!("{first}{size}")).await;
            assert_eq!(get(app, &format!("{second}{size}")).await.status, StatusCode::OK);
        }
        assert_eq!(rows(app).await, (2, 1));
        assert_eq!(app.app.avatars.delete_due().await.expect("deleted"), 1);
        assert_eq!(app.app.avatars.delete_due().await.expect("deleted"), 0);
        assert_eq!(rows(app).await, (1, 1));
        assert_eq!(get(app, &second).await.status, StatusCode::OK);

        for _ in 0..2 {
            assert_eq!(user.delete(ME).await.expect(200), json!({"message": "Avatar removed."}));
        }
        expect_chat_message(app, &user).await;
        is_missing(app, &second).await;
        assert_eq!(app.app.avatars.delete_due().await.expect("deleted"), 1);
        assert_eq!(rows(app).await, (0, 0));
    })
    .await;
}

#[tokio::test]
async fn concurrent_uploads_leave_one_avatar() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let uploads = futures_util::future::join_all((0..8).map(|_| upload(app, &user, TINY_PNG))).await;
        let urls: Vec<String> = uploads
            .into_iter()
            .map(|answer| answer.expect(200)["data"]["avatar_url"].as_str().expect("a URL").to_owned())
            .collect();
        let mut served = 0;
        for url in &urls {
            served += u32::from(get(app, url).await.status == StatusCode::OK);
        }
        assert_eq!((served, rows(app).await), (1, (8, 1)));
        assert_eq!(app.published().await.into_iter().filter(|(subject, _)| subject == AVATAR_CHANGED).count(), 8);
    })
    .await;
}

/// A process that dies before its commit leaves images that are never served, and that a worker deletes.
#[tokio::test]
async fn unfinished_upload_is_deleted() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let url = uploaded(app, &user).await;
        let key = url.trim_start_matches("/api/avatars/").trim_end_matches(".jpg");
        sqlx::query("update avatars set delete_at = $1")
            .bind(platform::clock::Clock::now(&*app.clock) + Duration::minutes(10))
            .execute(&app.app.core.db)
            .await
            .expect("as before the commit");
        sqlx::query("update users set avatar_key = null").execute(&app.app.core.db).await.expect("written");
        is_missing(app, &url).await;
        assert_eq!(app.app.avatars.delete_due().await.expect("deleted"), 0, "the upload may still finish");
        app.clock.advance(Duration::minutes(10));
        assert_eq!(app.app.avatars.delete_due().await.expect("deleted"), 1);
        let left: Vec<String> = sqlx::query_scalar("select avatar_key from avatars where avatar_key = $1")
            .bind(key)
            .fetch_all(&app.app.core.db)
            .await
            .expect("read");
        assert_eq!(left, Vec::<String>::new());
    })
    .await;
}

/// Replaces the large image of an avatar by a directory, which cannot be deleted like an image.
fn block_deletion(store: &Path, url: &str) -> PathBuf {
    let name = url.trim_start_matches("/api/avatars/").replace(".jpg", "-512.jpg");
    let image = store.join(name);
    fs::remove_file(&image).expect("removed");
    fs::create_dir(&image).expect("created");
    image
}

#[tokio::test]
async fn failed_deletion_does_not_block_the_others() {
    let directory = std::env::temp_dir().join(unique("matchday-test-avatars"));
    let store = format!("file://{}", directory.display());
    TestApp::run_with(&[("MATCHDAY_AVATARS__STORE", store.as_str())], async |app| {
        let user = app.user().await;
        let bad = block_deletion(&directory, &uploaded(app, &user).await);
        for _ in 0..2 {
            uploaded(app, &user).await;
            app.clock.advance(Duration::seconds(1));
        }
        let failed = app.app.avatars.delete_due().await;
        assert!(matches!(failed, Err(AvatarError::Storage(_))), "{failed:?}");
        assert_eq!(rows(app).await, (2, 1), "the second avatar is deleted");
        assert_eq!(app.app.avatars.delete_due().await.expect("nothing is due"), 0);
        fs::remove_dir(bad).expect("removed");
        app.clock.advance(Duration::minutes(10));
        assert_eq!(app.app.avatars.delete_due().await.expect("deleted"), 1);
        assert_eq!(rows(app).await, (1, 1));
    })
    .await;
    let _ = fs::remove_dir_all(&directory);
}

/// Its images may be deleted only in part, so they must not be served.
#[tokio::test]
async fn postponed_deletion_gives_an_unfinished_upload_no_more_time() {
    let directory = std::env::temp_dir().join(unique("matchday-test-avatars"));
    let store = format!("file://{}", directory.display());
    TestApp::run_with(&[("MATCHDAY_AVATARS__STORE", store.as_str())], async |app| {
        let user = app.user().await;
        let mut locked = platform::database::begin(&app.app.core.db).await.expect("a transaction");
        assert!(accounts::lock(&mut locked, user.id).await.expect("locked"));
        let deletion = async {
            upload_waits(app).await;
            let key: String =
                sqlx::query_scalar("select avatar_key from avatars").fetch_one(app.owner()).await.expect("read");
            block_deletion(&directory, &format!("/api/avatars/{key}.jpg"));
            app.clock.advance(Duration::minutes(10));
            app.app.avatars.delete_due().await.expect_err("postponed");
            locked.rollback().await.expect("unlocked");
        };
        let (late, ()) = tokio::join!(app.app.avatars.save(user.id, TINY_PNG.into()), deletion);
        assert!(matches!(late, Err(AvatarError::TooLate)), "{late:?}");
    })
    .await;
    let _ = fs::remove_dir_all(&directory);
}

#[tokio::test]
async fn account_deletion_removes_the_images() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in("+14155550161").await;
        let url = uploaded(app, &user).await;
        let export = user.get("/api/auth/me/export").await.expect(200);
        let account = &export["data"]["users"][0];
        assert_eq!((&account["avatar_url"], account.get("avatar_key")), (&json!(url), None));
        assert_eq!(export["data"]["avatars"].as_array().map(Vec::len), Some(1));
        user.send(Method::POST, "/api/auth/me/deletion", None).await.expect(200);
        let code = app.codes("+14155550161").await.remove(0);
        user.send(Method::DELETE, "/api/auth/me", Some(json!({"code": code}).to_string())).await.expect(200);
        app.published().await;
        is_missing(app, &url).await;
        assert_eq!(app.app.avatars.delete_due().await.expect("deleted"), 1);
        assert_eq!(rows(app).await, (0, 0));
        // An upload that was on its way fails.
        let late = app.app.avatars.save(user.id, TINY_PNG.into()).await;
        assert!(matches!(late, Err(AvatarError::NoSuchAccount)), "{late:?}");
        assert_eq!(rows(app).await, (1, 0));
    })
    .await;
}

/// A deletion holds the account when it changes the rows of the avatars, and an upload waits for the account before it
/// changes a row. The images of the upload are deleted after its deadline, when they are certainly stored.
#[tokio::test]
async fn upload_during_account_deletion_does_not_deadlock() {
    TestApp::run(async |app| {
        let user = app.user().await;
        uploaded(app, &user).await;
        let mut deleting = platform::database::begin(&app.app.core.db).await.expect("a transaction");
        assert!(accounts::lock(&mut deleting, user.id).await.expect("locked"));
        let deletion = async {
            upload_waits(app).await;
            let is_avatars = |table: &&Table| table.name == "avatars";
            let table = TABLES.iter().find(is_avatars).expect("a table");
            sqlx::query(sqlx::AssertSqlSafe(table.forget().expect("a statement")))
                .bind(user.id)
                .execute(&mut *deleting)
                .await
                .expect("the rows are not locked");
            sqlx::query("update users set deleted_at = now(), avatar_key = null where user_id = $1")
                .bind(user.id)
                .execute(&mut *deleting)
                .await
                .expect("deleted");
            deleting.commit().await.expect("deleted");
        };
        let (late, ()) = tokio::join!(app.app.avatars.save(user.id, TINY_PNG.into()), deletion);
        assert!(matches!(late, Err(AvatarError::NoSuchAccount)), "{late:?}");
        assert_eq!(app.app.avatars.delete_due().await.expect("deleted"), 1, "the published avatar");
        assert_eq!(rows(app).await, (1, 0));
        app.clock.advance(Duration::minutes(10));
        assert_eq!(app.app.avatars.delete_due().await.expect("deleted"), 1, "the upload");
    })
    .await;
}

#[tokio::test]
async fn export_without_avatar_has_null() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let export = user.get("/api/auth/me/export").await.expect(200);
        assert_eq!(export["data"]["users"][0].get("avatar_url"), Some(&Value::Null));
    })
    .await;
}

#[tokio::test]
async fn unavailable_store_is_503() {
    // A file is in the place of the directory.
    TestApp::run_with(&[("MATCHDAY_AVATARS__STORE", "file:///dev/null/avatars")], async |app| {
        let user = app.user().await;
        let refused = upload(app, &user, TINY_PNG).await;
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(refused.expect(503)["code"], "storage_unavailable");
        assert_eq!(user.get("/api/auth/me/export").await.expect(200)["data"]["users"][0]["avatar_url"], Value::Null);
    })
    .await;
}

#[tokio::test]
async fn cdn_or_service_is_the_base_of_urls() {
    let cdn = [("MATCHDAY_AVATARS__PUBLIC_URL", "https://cdn.example.org/")];
    TestApp::run_with(&cdn, async |app| {
        let user = app.user().await;
        let url = uploaded(app, &user).await;
        assert!(url.starts_with("https://cdn.example.org/api/avatars/"), "{url}");
    })
    .await;
}
