//! Chat credentials in API responses.

use matrix_appservice::Credentials;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use utoipa::ToSchema;

/// Credentials with which a Matrix client acts as the user.
#[derive(Serialize, ToSchema)]
#[schema(as = MatrixCredentials)]
pub(crate) struct CredentialsItem {
    #[schema(example = "@swift_winger:example.org")]
    user_id: String,
    /// Valid as long as the session.
    #[schema(example = "syt_c3dpZnRfd2luZ2Vy_AbCdEf_123456")]
    access_token: String,
    #[schema(example = "MD0AbCdEf12345")]
    device_id: String,
}

impl From<Credentials> for CredentialsItem {
    fn from(credentials: Credentials) -> Self {
        Self {
            user_id: credentials.user_id.to_string(),
            access_token: credentials.access_token.expose_secret().to_owned(),
            device_id: credentials.device_id.to_string(),
        }
    }
}
