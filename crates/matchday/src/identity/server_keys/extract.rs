//! Extractor that authorizes the caller of a handler of the server API.

use std::{marker::PhantomData, sync::Arc};

use axum::extract::FromRequestParts;
use http::{StatusCode, request::Parts};
use web::{ApiError, ClientAddress, WebState, ids::ServerKeyId, permitted};

use super::{
    scopes::Needs,
    service::{ServerKey, ServerKeys},
};
use crate::identity::{
    operators::{KeyUse, Operator},
    sessions::token_of,
};

/// Router state that can authorize callers by their server keys.
pub(crate) trait AuthorizesKeys: WebState {
    fn server_keys(&self) -> &ServerKeys;
}

/// A caller whose key has the scope `N`. Checks in this order: the key, the network, the rate limit, the scope.
pub(crate) struct Authorized<N> {
    key: Arc<ServerKey>,
    needs: PhantomData<fn() -> N>,
}

impl<N: Needs> Authorized<N> {
    pub(crate) fn key(&self) -> &ServerKey {
        &self.key
    }

    pub(crate) fn id(&self) -> ServerKeyId {
        self.key.id
    }

    /// The caller as the author of a change, for the audit log.
    pub(crate) fn operator(&self, reason: impl Into<String>) -> Operator {
        let scope = N::SCOPE.map_or("", |scope| scope.name());
        Operator::with_key(KeyUse { id: self.key.id, scope }, reason)
    }
}

/// Key of a request that passed all checks but the scope. A layer may authorize a request before its handler does; the
/// request must not count twice.
#[derive(Clone)]
struct Admitted(Arc<ServerKey>);

impl<S: AuthorizesKeys, N: Needs> FromRequestParts<S> for Authorized<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let admitted = parts.extensions.get::<Admitted>().cloned();
        let Admitted(key) = match admitted {
            Some(admitted) => admitted,
            None => admit(parts, state).await?,
        };
        match N::SCOPE {
            Some(scope) if !key.scopes.contains(&scope) => Err(ApiError::insufficient_scope(scope.name())),
            _ => Ok(Self { key, needs: PhantomData }),
        }
    }
}

async fn admit<S: AuthorizesKeys>(parts: &mut Parts, state: &S) -> Result<Admitted, ApiError> {
    let keys = state.server_keys();
    let text = token_of(&parts.headers).ok_or_else(unauthenticated)?;
    let stored = keys.check(text).await?.ok_or_else(unauthenticated)?;
    let key = Arc::clone(&stored.key);
    let ClientAddress(address) = ClientAddress::from_request_parts(parts, state).await?;
    if !key.allows(address) {
        let message = "This key may not be used from this network.";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "network_not_allowed", message));
    }
    permitted(keys.take(key.id).await)?;
    keys.note_use(&stored).await;
    let admitted = Admitted(key);
    parts.extensions.insert(admitted.clone());
    Ok(admitted)
}

fn unauthenticated() -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthenticated", "A valid server key is required.")
}

/// Arguments of a handler that states its scope: [`Authorized`] comes first. `T` in `Handler<T, S>` implements this, so
/// the scope is part of the handler's type.
pub(crate) trait StatesScope {
    type Needs: Needs;
}

macro_rules! states_scope {
    ($($argument:ident),*) => {
        impl<M, N: Needs, $($argument),*> StatesScope for (M, Authorized<N>, $($argument,)*) {
            type Needs = N;
        }
    };
}

states_scope!();
states_scope!(A);
states_scope!(A, B);
states_scope!(A, B, C);
states_scope!(A, B, C, D);
states_scope!(A, B, C, D, E);
states_scope!(A, B, C, D, E, F);
