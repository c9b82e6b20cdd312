use serde_json::json;

use super::{
    Operator,
    service::{Action, ActionFilter, Recorded},
};
use crate::{identity::accounts::restrictions::Restriction, testing::TestApp};

async fn all(app: &TestApp) -> Vec<Recorded> {
    app.app.operators.recorded(&ActionFilter::default(), 100).await.expect("read")
}

fn summary(recorded: &Recorded) -> (&str, &str, &str, &str, &str) {
    (&recorded.operator, &recorded.action, &recorded.target, &recorded.reason, &recorded.outcome)
}

#[tokio::test]
async fn action_is_recorded_in_its_transaction() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let (ola, target) = (Operator::new("ola", "insults"), format!("user:{}", user.id));
        app.app.moderation.restrict(user.id, Restriction::Ban, &ola).await.expect("banned");
        app.app.moderation.restrict(user.id, Restriction::Ban, &ola).await.expect_err("already banned");
        let recorded = all(app).await;
        assert_eq!(
            recorded.iter().map(summary).collect::<Vec<_>>(),
            [("ola", "user.ban", &*target, "insults", "done")]
        );
        assert_eq!(recorded[0].request_id, None, "not an HTTP request");
        let filter = |operator: &str, target: &str| ActionFilter {
            operator: Some(operator.to_owned()),
            target: Some(target.to_owned()),
            before: None,
            ..ActionFilter::default()
        };
        let found = async |filter| app.app.operators.recorded(&filter, 10).await.expect("read").len();
        assert_eq!([found(filter("ola", &target)).await, found(filter("ida", &target)).await], [1, 0]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn non_transactional_actions_are_recorded_before_and_after() {
    TestApp::run(async |app| {
        let (operators, ola) = (&app.app.operators, Operator::new("ola", "a test"));
        let action = |target: &str| Action::new("webhook.replay", target).with(json!({"letters": [7]}));
        let seen_within = async {
            let begun = all(app).await;
            assert_eq!(
                begun.iter().map(summary).collect::<Vec<_>>(),
                [("ola", "webhook.replay", "one", "a test", "begun")]
            );
            Ok::<_, sqlx::Error>(3)
        };
        operators
            .record_around(&ola, action("one"), seen_within, |number| json!({"replayed": number}))
            .await
            .expect("done");
        let failing = async { Err::<(), _>(sqlx::Error::RowNotFound) };
        operators.record_around(&ola, action("two"), failing, |()| json!({})).await.expect_err("fails");
        // This action never ends, as if the process died: only its start is recorded.
        let never =
            operators.record_around(&ola, action("three"), std::future::pending::<sqlx::Result<()>>(), |()| json!({}));
        tokio::time::timeout(std::time::Duration::from_millis(200), never).await.expect_err("never ends");
        let recorded = all(app).await;
        let outcomes: Vec<_> = recorded.iter().map(|row| (row.target.as_str(), row.outcome.as_str())).collect();
        assert_eq!(outcomes, [("three", "begun"), ("two", "failed"), ("one", "done")]);
        assert_eq!(recorded[2].details, json!({"letters": [7], "replayed": 3}));
        assert!(recorded[1].details["error"].as_str().is_some_and(|error| error.contains("no rows")));
    })
    .await;
}

#[tokio::test]
async fn service_role_cannot_change_audit_log() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let ola = Operator::new("ola", "insults");
        app.app.moderation.restrict(user.id, Restriction::Mute, &ola).await.expect("muted");
        for statement in [
            "update operator_actions set operator = 'ida'",
            "delete from operator_actions",
            "truncate operator_actions",
        ] {
            let refused = sqlx::query(statement).execute(&app.app.core.db).await.expect_err(statement);
            let code = refused.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
            assert_eq!(code.as_deref(), Some("42501"), "{statement}: insufficient privilege");
        }
        assert_eq!(all(app).await.len(), 1);
        app.published().await;
    })
    .await;
}
