//! Validation of ids before they are sent. Synapse accepts any id that an application service registers, and an id that
//! is not safe in a path would reach a different endpoint.

use ruma::{
    EventId, OwnedDeviceId, OwnedEventId, OwnedRoomAliasId, OwnedRoomId, OwnedUserId, RoomAliasId, RoomId, ServerName,
    UserId,
};

use crate::Error;

/// Limit for a user id, including `@` and the server name.
const USER_ID_BYTES: usize = 255;

/// Limit for a room alias, including `#` and the server name.
const ALIAS_BYTES: usize = 255;

/// Limit for a device id. Synapse accepts 512 bytes; ours are much shorter.
const DEVICE_ID_BYTES: usize = 255;

/// Returns `@localpart:server_name` if the localpart follows the grammar of the specification.
pub(crate) fn user_id(localpart: &str, server_name: &ServerName) -> Result<OwnedUserId, Error> {
    if localpart.is_empty() {
        return Err(Error::InvalidLocalpart("it is empty"));
    }
    if !localpart
        .bytes()
        .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'=' | b'-' | b'/' | b'+'))
    {
        return Err(Error::InvalidLocalpart("only a-z, 0-9 and . _ = - / + are allowed"));
    }
    let id = format!("@{localpart}:{server_name}");
    if id.len() > USER_ID_BYTES {
        return Err(Error::InvalidLocalpart("the user id would be longer than 255 bytes"));
    }
    UserId::parse(id).map_err(|_| Error::InvalidLocalpart("the result is not a valid user id"))
}

/// Returns `#localpart:server_name`. The specification allows nearly any character; our aliases need only these.
pub(crate) fn alias(localpart: &str, server_name: &ServerName) -> Result<OwnedRoomAliasId, Error> {
    if localpart.is_empty() {
        return Err(Error::InvalidAlias("it is empty"));
    }
    if !localpart.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_')) {
        return Err(Error::InvalidAlias("only a-z, 0-9 and _ are allowed"));
    }
    let alias = format!("#{localpart}:{server_name}");
    if alias.len() > ALIAS_BYTES {
        return Err(Error::InvalidAlias("the alias would be longer than 255 bytes"));
    }
    RoomAliasId::parse(alias).map_err(|_| Error::InvalidAlias("the result is not a valid alias"))
}

/// Escapes `%` in an id that we did not create, for use in a path. ruma encodes every other reserved character but not
/// `%`. The server would decode a bare `%` as the start of an escape sequence and address a different room or user.
pub(crate) fn in_path(id: &str) -> String {
    id.replace('%', "%25")
}

pub(crate) fn room_in_path(id: &RoomId) -> Result<OwnedRoomId, Error> {
    RoomId::parse(in_path(id.as_str())).map_err(|_| Error::Unsendable("the room id is too long".to_owned()))
}

pub(crate) fn event_in_path(id: &EventId) -> Result<OwnedEventId, Error> {
    EventId::parse(in_path(id.as_str())).map_err(|_| Error::Unsendable("the event id is too long".to_owned()))
}

/// Accepts a device id only if it is safe in a path without escaping. The specification treats device ids as opaque,
/// but a path would resolve `..` to the parent segment.
pub(crate) fn device_id(id: &str) -> Result<OwnedDeviceId, Error> {
    if id.is_empty() {
        return Err(Error::InvalidDeviceId("it is empty"));
    }
    if id.len() > DEVICE_ID_BYTES {
        return Err(Error::InvalidDeviceId("it is longer than 255 bytes"));
    }
    if !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')) {
        return Err(Error::InvalidDeviceId("only A-Z, a-z, 0-9, _ and - are allowed"));
    }
    Ok(id.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ruma::{owned_server_name, server_name};

    use super::*;

    #[test]
    fn accepts_localparts_that_follow_the_grammar() {
        for localpart in ["a", "alice", "0", "a.b_c=d-e/f+g", "..", "_ops"] {
            let id = user_id(localpart, server_name!("matrix.example")).unwrap();
            assert_eq!(id.localpart(), localpart);
            assert_eq!(id.server_name(), "matrix.example");
        }
    }

    #[test]
    fn refuses_localparts_that_break_the_grammar() {
        for localpart in ["", "Alice", "a b", "a:b", "@a", "a\n", "a\0", "é", "a?b", "a#b", "a%2e", "a\u{200b}"] {
            assert!(matches!(user_id(localpart, server_name!("matrix.example")), Err(Error::InvalidLocalpart(_))));
        }
    }

    #[test]
    fn user_id_is_limited_to_255_bytes() {
        let fits = 255 - "@:matrix.example".len();
        assert!(user_id(&"a".repeat(fits), server_name!("matrix.example")).is_ok());
        assert!(user_id(&"a".repeat(fits + 1), server_name!("matrix.example")).is_err());
    }

    #[test]
    fn alias_is_plain_and_limited_to_255_bytes() {
        for localpart in ["match_01jz", "room_a_9", "_", "0"] {
            let alias = alias(localpart, server_name!("matrix.example")).unwrap();
            assert_eq!(alias, format!("#{localpart}:matrix.example"));
        }
        for localpart in ["", "Match_1", "a b", "a:b", "#a", "a-b", "a.b", "é", "a/b", "a%2f", "a\0"] {
            let refused = alias(localpart, server_name!("matrix.example"));
            assert!(matches!(refused, Err(Error::InvalidAlias(_))), "{localpart}");
        }
        let fits = 255 - "#:matrix.example".len();
        assert!(alias(&"a".repeat(fits), server_name!("matrix.example")).is_ok());
        assert!(alias(&"a".repeat(fits + 1), server_name!("matrix.example")).is_err());
    }

    #[test]
    fn device_id_cannot_escape_its_path_segment() {
        assert!(device_id("Md-01_J").is_ok());
        for id in ["", ".", "..", "%2e%2e", "a/b", "a?b", "a#b", "a b", "é"] {
            assert!(matches!(device_id(id), Err(Error::InvalidDeviceId(_))), "{id}");
        }
        assert!(device_id(&"a".repeat(256)).is_err());
    }

    proptest! {
        #[test]
        fn localpart_is_kept_verbatim_or_refused(localpart in any::<String>()) {
            if let Ok(id) = user_id(&localpart, &owned_server_name!("matrix.example")) {
                prop_assert_eq!(id.localpart(), localpart);
            }
        }
    }
}
