//! Cross-signing keys of users. The homeserver stores public keys only.

use http::StatusCode;
use ruma::{
    OwnedUserId,
    api::client::keys::{get_keys, upload_signing_keys},
};
use serde_json::Value;

use crate::{
    Error, Homeserver,
    homeserver::{Acting, RESPONSE_BYTES},
    rooms::raw,
};

/// The three cross-signing keys of a user, as JSON objects of the specification.
#[derive(Clone, Debug, PartialEq)]
pub struct SigningKeys {
    pub master: Value,
    pub self_signing: Value,
    pub user_signing: Value,
}

impl Homeserver {
    /// Uploads a user's cross-signing keys, which replace the previous ones. The user's devices stay logged in, and are
    /// unverified until the new self-signing key signs them.
    ///
    /// Synapse requires interactive authentication to replace keys, except from an application service (MSC4190). It
    /// checks most of the request before it stores the first key. A self-signing key with a valid signature but an
    /// unreadable public key is refused only after the master key was stored. It fails with status 500 if the user had one of
    /// the keys before, so use [`Purpose::Keys`](crate::Purpose::Keys) for keys that users choose.
    pub async fn upload_signing_keys(&self, localpart: &str, keys: &SigningKeys) -> Result<(), Error> {
        let user_id = self.user_id(localpart)?;
        let mut request = upload_signing_keys::v3::Request::new();
        request.master_key = Some(raw(&keys.master)?);
        request.self_signing_key = Some(raw(&keys.self_signing)?);
        request.user_signing_key = Some(raw(&keys.user_signing)?);
        let request = self.prepare(request, &user_id, Acting::AsTheUser)?;
        let response = self.exchange(request, RESPONSE_BYTES).await?;
        if response.0.status == StatusCode::UNAUTHORIZED && has_flows(&response.1) {
            return Err(Error::InteractiveAuthRequired(user_id));
        }
        self.expect_no_refusal(&response, &user_id, Acting::AsTheUser)
    }

    /// Returns the user's cross-signing keys, or `None` if at least one is missing. The homeserver may have added
    /// signatures.
    pub async fn signing_keys(&self, localpart: &str) -> Result<Option<SigningKeys>, Error> {
        let user_id = self.user_id(localpart)?;
        let mut request = get_keys::v3::Request::new();
        request.device_keys.insert(user_id.clone(), Vec::new());
        let found = self.call(request, &user_id, Acting::AsTheUser).await?;
        let [master, self_signing, user_signing] =
            [found.master_keys, found.self_signing_keys, found.user_signing_keys].map(|keys| key_of(keys, &user_id));
        Ok(match (master, self_signing, user_signing) {
            (Some(master), Some(self_signing), Some(user_signing)) => {
                Some(SigningKeys { master, self_signing, user_signing })
            }
            _ => None,
        })
    }
}

fn key_of<T>(
    mut keys: std::collections::BTreeMap<OwnedUserId, ruma::serde::Raw<T>>,
    user_id: &OwnedUserId,
) -> Option<Value> {
    keys.remove(user_id)?.deserialize_as_unchecked::<Value>().ok()
}

/// Whether the body asks for interactive authentication. Even an empty list of flows does.
fn has_flows(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|body| body["flows"].is_array())
}
