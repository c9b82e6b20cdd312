//! Which requests must see which writes, if a replica of the database serves reads. See [`platform::reads`].

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::{HeaderMap, Uri, request::Parts};
use platform::reads::{Caller, Reader, Reads};
use web::{WebState, ids::UserId};

use super::{server_keys, sessions};

/// Router state with databases for reads.
pub trait HasReads: WebState {
    fn reads(&self) -> &Reads;
}

/// Databases for the lists of a handler, in which its caller finds their own writes.
///
/// It does not check the token, so a handler takes it after [`CurrentUser`](sessions::CurrentUser) or
/// [`Authorized`](server_keys::Authorized).
pub(crate) struct CallerReader(pub(crate) Reader);

impl<S: HasReads> FromRequestParts<S> for CallerReader {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let reads = state.reads();
        Ok(Self(match reads.has_replica().then(|| caller_of(&parts.headers)).flatten() {
            Some(caller) => reads.reader(caller).await,
            None => reads.primary_reader(),
        }))
    }
}

/// The user as a caller.
pub(crate) fn user(id: UserId) -> Caller {
    Caller::new("user", id.0)
}

/// Returns the callers who must see the writes of a request: the user or the server key of its token, and the user on
/// whose account a backend acts.
pub(crate) fn writers_of(headers: &HeaderMap, uri: &Uri) -> Vec<Caller> {
    let account =
        uri.path().strip_prefix("/api/server/v1/users/").and_then(|rest| rest.split('/').next()?.parse().ok());
    caller_of(headers).into_iter().chain(account.map(user)).collect()
}

/// Tokens contain the id of their user or key.
fn caller_of(headers: &HeaderMap) -> Option<Caller> {
    let token = sessions::token_of(headers)?;
    let key = || server_keys::id_in(token).map(|id| Caller::new("key", id.0));
    sessions::user_in(token).map(user).or_else(key)
}

#[cfg(test)]
mod tests {
    use http::header::AUTHORIZATION;
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::identity::sessions::make_token;

    fn writers(token: &str, path: &'static str) -> Vec<String> {
        let value = format!("Bearer {token}").try_into().expect("a header");
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        writers_of(&headers, &Uri::from_static(path)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn writers_are_callers_and_the_users_they_act_for() {
        let token = make_token(UserId(37), [7; 32]).0;
        let token = token.expose_secret();
        assert_eq!(writers(token, "/api/auth/predictions"), ["user:37"]);
        assert_eq!(writers(token, "/api/server/v1/users/5/coins/deduct"), ["user:37", "user:5"]);
        assert_eq!(writers("no token", "/api/auth/predictions"), [""; 0]);
        assert_eq!(writers("no token", "/api/server/v1/users/lookup"), [""; 0]);
    }
}
