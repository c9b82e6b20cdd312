//! Ids are checked here before they are sent. Synapse takes whatever an application service registers, and an id that
//! cannot be said in a path would reach another endpoint than the one meant.

use ruma::{
    EventId, OwnedDeviceId, OwnedEventId, OwnedRoomAliasId, OwnedRoomId, OwnedUserId, RoomAliasId, RoomId, ServerName,
    UserId,
};

use crate::Error;

/// The longest user id, with its `@` and its server name.
const USER_ID_BYTES: usize = 255;

/// The longest alias of a room, with its `#` and its server name.
const ALIAS_BYTES: usize = 255;

/// The longest device id. Synapse takes 512; nobody needs them.
const DEVICE_ID_BYTES: usize = 255;

/// `@localpart:server_name`, if the localpart keeps to the grammar of the specification.
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
    UserId::parse(id).map_err(|_| Error::InvalidLocalpart("it does not make a user id"))
}

/// `#localpart:server_name`. The specification leaves nearly everything open; ours need no more than this.
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
    RoomAliasId::parse(alias).map_err(|_| Error::InvalidAlias("it does not make an alias"))
}

/// An id of other people's making as ruma must be given it for a path: it encodes everything there but the `%`, and the
/// server would read that as the beginning of an encoded character, and come upon another room or user.
pub(crate) fn in_path(id: &str) -> String {
    id.replace('%', "%25")
}

/// The same for the id of a room.
pub(crate) fn room_in_path(id: &RoomId) -> Result<OwnedRoomId, Error> {
    RoomId::parse(in_path(id.as_str())).map_err(|_| Error::Unsendable("the id of the room is too long".to_owned()))
}

/// The same for the id of an event.
pub(crate) fn event_in_path(id: &EventId) -> Result<OwnedEventId, Error> {
    EventId::parse(in_path(id.as_str())).map_err(|_| Error::Unsendable("the id of the event is too long".to_owned()))
}

/// A device id, if it can stand in a path as it is. The specification leaves them opaque; `..` would be taken for the
/// parent folder on the way.
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
    fn what_the_grammar_allows_is_a_localpart() {
        for localpart in ["a", "alice", "0", "a.b_c=d-e/f+g", "..", "_ops"] {
            let id = user_id(localpart, server_name!("matrix.example")).unwrap();
            assert_eq!(id.localpart(), localpart);
            assert_eq!(id.server_name(), "matrix.example");
        }
    }

    #[test]
    fn everything_else_is_not() {
        for localpart in ["", "Alice", "a b", "a:b", "@a", "a\n", "a\0", "é", "a?b", "a#b", "a%2e", "a\u{200b}"] {
            assert!(matches!(user_id(localpart, server_name!("matrix.example")), Err(Error::InvalidLocalpart(_))));
        }
    }

    #[test]
    fn a_user_id_has_at_most_255_bytes() {
        let fits = 255 - "@:matrix.example".len();
        assert!(user_id(&"a".repeat(fits), server_name!("matrix.example")).is_ok());
        assert!(user_id(&"a".repeat(fits + 1), server_name!("matrix.example")).is_err());
    }

    #[test]
    fn an_alias_is_plain_and_has_at_most_255_bytes() {
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
    fn a_device_id_cannot_leave_its_place_in_the_path() {
        assert!(device_id("Md-01_J").is_ok());
        for id in ["", ".", "..", "%2e%2e", "a/b", "a?b", "a#b", "a b", "é"] {
            assert!(matches!(device_id(id), Err(Error::InvalidDeviceId(_))), "{id}");
        }
        assert!(device_id(&"a".repeat(256)).is_err());
    }

    proptest! {
        #[test]
        fn a_localpart_is_kept_to_the_letter_or_refused(localpart in any::<String>()) {
            if let Ok(id) = user_id(&localpart, &owned_server_name!("matrix.example")) {
                prop_assert_eq!(id.localpart(), localpart);
            }
        }
    }
}
