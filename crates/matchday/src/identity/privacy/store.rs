//! SQL queries for privacy settings.

use sqlx::{PgConnection, PgExecutor};
use web::ids::UserId;

use super::{
    rules::{Audience, NameAudience},
    service::Privacy,
};

pub(super) async fn find(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Option<Privacy>> {
    let row = sqlx::query!(
        r#"select shows_name, teams_audience as "teams: Audience", record_audience as "record: Audience",
                  calibration_audience as "calibration: Audience"
           from users where user_id = $1 and deleted_at is null"#,
        user.0,
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(|row| Privacy {
        name: row.shows_name.into(),
        teams: row.teams,
        record: row.record,
        calibration: row.calibration,
    }))
}

pub(super) async fn set(connection: &mut PgConnection, user: UserId, privacy: Privacy) -> sqlx::Result<()> {
    sqlx::query!(
        "update users set shows_name = $2, teams_audience = $3, record_audience = $4, calibration_audience = $5
         where user_id = $1",
        user.0,
        privacy.name == NameAudience::Everyone,
        privacy.teams as Audience,
        privacy.record as Audience,
        privacy.calibration as Audience,
    )
    .execute(connection)
    .await?;
    Ok(())
}
