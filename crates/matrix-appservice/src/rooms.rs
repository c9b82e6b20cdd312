//! Creating, finding, naming and discarding rooms.

use std::collections::BTreeMap;

use ruma::{
    EventId, OwnedEventId, OwnedRoomAliasId, OwnedRoomId, OwnedUserId, RoomId, RoomVersionId, UserId,
    api::client::{
        alias::{delete_alias, get_alias},
        room::{Visibility, create_room, get_room_event},
        state::{get_state_event_for_key, get_state_events, send_state_event},
    },
    events::{AnyStateEvent, StateEventType},
    serde::Raw,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::{
    Error, Homeserver, Membership,
    homeserver::{Acting, LONG_RESPONSE_BYTES},
    ids,
};

/// Version 11 rather than the newest: from version 12 on, room ids have no `:server` suffix, which older clients and
/// bridges expect.
const ROOM_VERSION: RoomVersionId = RoomVersionId::V11;

/// Power level of the bot. No other user should have it, because even the bot could not revoke it.
const BOT_LEVEL: i64 = 100;

const MODERATOR_LEVEL: i64 = 50;

/// Desired properties of a room.
#[derive(Clone, Copy, Debug)]
pub struct NewRoom<'a> {
    /// Localpart of the room's alias, in one of our namespaces. It identifies the room.
    pub alias: &'a str,
    pub name: &'a str,
    /// The room has no topic if this is empty.
    pub topic: &'a str,
    /// A private room is encrypted and invite-only. Any user may join a public room, and the server can read its
    /// messages.
    pub private: bool,
    /// Whether only the bot may invite users to a private room.
    pub bot_invites: bool,
    /// Localpart of the user who may rename the room, invite and remove members, as the bot always may. Without a
    /// moderator, only the bot may.
    pub moderator: Option<&'a str>,
}

/// Handling of an alias whose room does not contain the bot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncompleteRoom {
    /// Keeps the alias, because another call may be creating the room now.
    Wait,
    /// Removes the alias and creates a new room. For callers that waited long enough or that hold exclusive access.
    Discard,
}

/// A Matrix event as visible to the bot.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenEvent {
    pub event_id: OwnedEventId,
    pub sender: OwnedUserId,
    /// Event type, for example `m.room.message`.
    pub kind: String,
    /// Set for state events only.
    pub state_key: Option<String>,
    /// Send time in milliseconds since 1970, as reported by the sender's server. It may be false.
    pub timestamp_ms: u64,
    /// Nearly empty if the event was redacted.
    pub content: Value,
}

impl SeenEvent {
    /// Whether this is a message of a user, encrypted or not.
    pub fn is_message(&self) -> bool {
        self.state_key.is_none() && matches!(self.kind.as_str(), "m.room.message" | "m.room.encrypted" | "m.sticker")
    }

    /// Whether the content of this message was removed.
    pub fn is_redacted(&self) -> bool {
        // A redaction keeps no field of a message's content.
        self.content.as_object().is_some_and(Map::is_empty)
    }
}

impl Homeserver {
    /// Creates the room with this alias, or finds it and completes missing state. The alias identifies the room: an
    /// existing room keeps its name and topic, and no user loses power.
    ///
    /// Synapse stores the alias first, then the bot's membership, then everything else, and may stop after any of these
    /// steps.
    pub async fn ensure_room(&self, room: &NewRoom<'_>, half_made: IncompleteRoom) -> Result<OwnedRoomId, Error> {
        let wanted = Wanted::new(self, room)?;
        // Two attempts at most: if the alias is taken again after it was free, another call is creating the room.
        for _ in 0..2 {
            match self.call(wanted.request()?, &wanted.bot, Acting::AsTheService).await {
                Ok(response) => return Ok(response.room_id),
                // Synapse returns 409 to the loser of two concurrent creations, and M_BAD_ALIAS if the alias is removed
                // before the creation completes.
                Err(Error::Refused { status, errcode, .. })
                    if status == 409 || errcode == "M_ROOM_IN_USE" || errcode == "M_BAD_ALIAS" => {}
                Err(error) => return Err(error),
            }
            let Some(room_id) = self.find_room(room.alias).await? else { continue };
            match self.state(&room_id, &wanted.bot).await? {
                Some(state) if state.membership(&wanted.bot) == Some(Membership::Join) => {
                    self.complete(&room_id, &state, &wanted).await?;
                    return Ok(room_id);
                }
                _ if half_made == IncompleteRoom::Wait => break,
                _ => self.delete_alias(&wanted.alias, &wanted.bot).await?,
            }
        }
        Err(Error::IncompleteRoom(wanted.alias))
    }

    /// Returns the room with this alias.
    ///
    /// For an unknown alias, Synapse first queries us at `/_matrix/app/v1/rooms/{alias}` if the registration that owns
    /// the namespace has a URL. The handler of that endpoint must not wait for this call.
    pub async fn find_room(&self, alias: &str) -> Result<Option<OwnedRoomId>, Error> {
        let bot = self.bot()?;
        let alias = ids::alias(alias, &self.inner.settings.server_name)?;
        match self.call(get_alias::v3::Request::new(alias), &bot, Acting::AsTheService).await {
            Ok(response) => Ok(Some(response.room_id)),
            Err(Error::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the alias, closes the room, removes all members and makes the bot leave, so that the room can no longer
    /// be found or used. Idempotent, also after a partial run.
    ///
    /// Without a room id, the room is found by its alias, and the alias is removed last instead of first, so that a
    /// repeated call still finds the room after an interruption.
    pub async fn discard_room(&self, alias: &str, room: Option<&RoomId>) -> Result<(), Error> {
        let bot = self.bot()?;
        let alias_id = ids::alias(alias, &self.inner.settings.server_name)?;
        if let Some(room) = room {
            self.delete_alias(&alias_id, &bot).await?;
            return self.empty(room, &bot).await;
        }
        let Some(room) = self.find_room(alias).await? else { return Ok(()) };
        self.empty(&room, &bot).await?;
        self.delete_alias(&alias_id, &bot).await
    }

    /// Sets the name, as the bot. Setting the same name again creates no event.
    pub async fn set_room_name(&self, room: &RoomId, name: &str) -> Result<(), Error> {
        let bot = self.bot()?;
        self.send_state(room, "m.room.name", "", &json!({"name": name}), &bot, Acting::AsTheService).await.map(|_| ())
    }

    /// Sets the topic, as the bot. Setting the same topic again creates no event.
    pub async fn set_room_topic(&self, room: &RoomId, topic: &str) -> Result<(), Error> {
        let bot = self.bot()?;
        self.send_state(room, "m.room.topic", "", &topic_content(topic), &bot, Acting::AsTheService).await.map(|_| ())
    }

    /// Returns the name, or `None` if it is empty.
    pub async fn room_name(&self, room: &RoomId) -> Result<Option<String>, Error> {
        self.text_of_state(room, "m.room.name", "name").await
    }

    /// Returns the topic, or `None` if it is empty.
    pub async fn room_topic(&self, room: &RoomId) -> Result<Option<String>, Error> {
        self.text_of_state(room, "m.room.topic", "topic").await
    }

    /// Sets a user's power level in the room. Sends no event if the user has that level already. The bot can neither
    /// remove a user with level 100, its own level, nor lower that level again.
    ///
    /// The levels of other users are kept. Two concurrent calls for the same room may undo each other, because Matrix
    /// has no conditional update.
    pub async fn set_power_level(&self, room: &RoomId, localpart: &str, level: i64) -> Result<(), Error> {
        let (bot, user_id) = (self.bot()?, self.user_id(localpart)?);
        let levels = self.state_content(room, "m.room.power_levels", "").await?;
        let Some(Value::Object(mut levels)) = levels else { return Err(Error::NoSuchRoom(room.to_owned())) };
        let default = levels.get("users_default").and_then(Value::as_i64).unwrap_or(0);
        let mut users = take_object(&mut levels, "users");
        if users.get(user_id.as_str()).map_or(Some(default), Value::as_i64) == Some(level) {
            return Ok(());
        }
        if level == default {
            users.remove(user_id.as_str());
        } else {
            users.insert(user_id.to_string(), level.into());
        }
        levels.insert("users".to_owned(), users.into());
        let levels = Value::Object(levels);
        self.send_state(room, "m.room.power_levels", "", &levels, &bot, Acting::AsTheService).await.map(|_| ())
    }

    /// Gives these users their power levels, and all other users except the bot the default level. Sends no event if the
    /// levels are the same. The last of two concurrent calls for the same room wins.
    pub async fn set_power_levels(&self, room: &RoomId, users: &BTreeMap<OwnedUserId, i64>) -> Result<(), Error> {
        let bot = self.bot()?;
        let levels = self.state_content(room, "m.room.power_levels", "").await?;
        let Some(Value::Object(mut levels)) = levels else { return Err(Error::NoSuchRoom(room.to_owned())) };
        let mut wanted: Map<String, Value> =
            users.iter().map(|(user, level)| (user.to_string(), Value::from(*level))).collect();
        wanted.insert(bot.to_string(), BOT_LEVEL.into());
        let wanted = Value::Object(wanted);
        if levels.get("users") == Some(&wanted) {
            return Ok(());
        }
        levels.insert("users".to_owned(), wanted);
        let levels = Value::Object(levels);
        self.send_state(room, "m.room.power_levels", "", &levels, &bot, Acting::AsTheService).await.map(|_| ())
    }

    /// Returns the power levels of a room, as in the `m.room.power_levels` event.
    pub async fn power_levels(&self, room: &RoomId) -> Result<Option<Value>, Error> {
        self.state_content(room, "m.room.power_levels", "").await
    }

    /// Returns one event as visible to the bot, or `None` if the room has no such event.
    pub async fn event(&self, room: &RoomId, event_id: &EventId) -> Result<Option<SeenEvent>, Error> {
        let bot = self.bot()?;
        let request = get_room_event::v3::Request::new(ids::room_in_path(room)?, ids::event_in_path(event_id)?);
        let event = match self.call(request, &bot, Acting::AsTheService).await.map_err(|error| in_room(error, room)) {
            Ok(response) => response.event,
            Err(Error::NoSuchRoom(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        match read_event(&event) {
            Some(seen) if seen.event_id == event_id => Ok(Some(seen)),
            Some(_) => Err(unreadable("it describes another event")),
            None => Err(unreadable("it is not an event")),
        }
    }

    /// Sends a state event and returns its id. If the state is unchanged, Synapse creates no event and returns the id
    /// of the existing one.
    pub(crate) async fn send_state(
        &self,
        room: &RoomId,
        kind: &str,
        key: &str,
        content: &Value,
        user_id: &UserId,
        acting: Acting<'_>,
    ) -> Result<OwnedEventId, Error> {
        let content = raw(content)?;
        let request =
            send_state_event::v3::Request::new_raw(ids::room_in_path(room)?, kind.into(), ids::in_path(key), content);
        let response = self.call(request, user_id, acting).await.map_err(|error| in_room(error, room))?;
        Ok(response.event_id)
    }

    /// Returns one state event as visible to the bot, or `None` if the room has no such state.
    pub(crate) async fn state_event(
        &self,
        room: &RoomId,
        kind: &str,
        key: &str,
    ) -> Result<Option<Raw<AnyStateEvent>>, Error> {
        use get_state_event_for_key::v3::{Request, StateEventFormat};
        let bot = self.bot()?;
        let mut request = Request::new(ids::room_in_path(room)?, StateEventType::from(kind), ids::in_path(key));
        request.format = StateEventFormat::Event;
        match self.call(request, &bot, Acting::AsTheService).await {
            Ok(response) => Ok(Some(response.into_event())),
            Err(Error::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(no_view(error, room)),
        }
    }

    async fn state_content(&self, room: &RoomId, kind: &str, key: &str) -> Result<Option<Value>, Error> {
        let Some(event) = self.state_event(room, kind, key).await? else { return Ok(None) };
        field(&event, "content").map(Some).ok_or_else(|| unreadable("it is not an event"))
    }

    async fn text_of_state(&self, room: &RoomId, kind: &str, text: &str) -> Result<Option<String>, Error> {
        let content = self.state_content(room, kind, "").await?;
        let text = content.as_ref().and_then(|content| content.get(text)).and_then(Value::as_str);
        Ok(text.filter(|text| !text.is_empty()).map(str::to_owned))
    }

    /// Returns the room's state as visible to the bot, or `None` if the bot was never in the room.
    async fn state(&self, room: &RoomId, bot: &UserId) -> Result<Option<State>, Error> {
        let request = get_state_events::v3::Request::new(ids::room_in_path(room)?);
        match self.call_up_to(LONG_RESPONSE_BYTES, request, bot, Acting::AsTheService).await {
            Ok(response) => Ok(Some(State(response.room_state))),
            Err(error) => match in_room(error, room) {
                Error::ForbiddenInRoom { .. } | Error::NoSuchRoom(_) => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Sends the state that the room still lacks.
    async fn complete(&self, room: &RoomId, state: &State, wanted: &Wanted<'_>) -> Result<(), Error> {
        let mut missing = Vec::new();
        // Power levels first, because they decide who may send the rest.
        let levels = state.content("m.room.power_levels");
        let right_levels = wanted.power_levels(levels.as_ref());
        if levels.as_ref() != Some(&right_levels) {
            missing.push(("m.room.power_levels", right_levels));
        }
        for (kind, content) in wanted.fixed_state() {
            if !agrees(state.content(kind).as_ref(), &content) {
                missing.push((kind, content));
            }
        }
        for (kind, content) in wanted.first_state() {
            if state.content(kind).is_none() {
                missing.push((kind, content));
            }
        }
        for (kind, content) in missing {
            self.send_state(room, kind, "", &content, &wanted.bot, Acting::AsTheService).await.map_err(|error| {
                match error {
                    Error::Refused { errcode, .. } if errcode == "M_BAD_ALIAS" => {
                        Error::IncompleteRoom(wanted.alias.clone())
                    }
                    error => error,
                }
            })?;
        }
        Ok(())
    }

    /// Removes an alias from any room that has it. Succeeds if the alias does not exist.
    async fn delete_alias(&self, alias: &OwnedRoomAliasId, bot: &UserId) -> Result<(), Error> {
        match self.call(delete_alias::v3::Request::new(alias.clone()), bot, Acting::AsTheService).await {
            // Synapse returns 200 for an unknown alias; other homeservers may return 404.
            Ok(_) | Err(Error::Refused { status: 404, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes all members and makes the bot leave. Does nothing if the bot is not in the room.
    async fn empty(&self, room: &RoomId, bot: &UserId) -> Result<(), Error> {
        match self.member(room, bot).await {
            Ok(Some(member)) if member.membership == Membership::Join => {}
            Ok(_) | Err(Error::NoSuchRoom(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        // Close the room first; otherwise a removed member could rejoin a public room before the bot has left.
        let closed = join_rules(true);
        self.send_state(room, "m.room.join_rules", "", &closed, bot, Acting::AsTheService).await?;
        for member in self.members(room).await? {
            if member.user_id != bot && member.membership != Membership::Ban {
                self.remove(room, &member.user_id, "", bot).await?;
            }
        }
        self.leave(room, bot.localpart()).await.map(|_| ())
    }
}

/// Desired state of a room, in Matrix terms.
struct Wanted<'a> {
    room: &'a NewRoom<'a>,
    bot: OwnedUserId,
    alias: OwnedRoomAliasId,
    moderator: Option<OwnedUserId>,
}

impl<'a> Wanted<'a> {
    fn new(homeserver: &Homeserver, room: &'a NewRoom<'a>) -> Result<Self, Error> {
        Ok(Self {
            room,
            bot: homeserver.bot()?,
            alias: ids::alias(room.alias, &homeserver.inner.settings.server_name)?,
            moderator: room.moderator.map(|localpart| homeserver.user_id(localpart)).transpose()?,
        })
    }

    fn request(&self) -> Result<create_room::v3::Request, Error> {
        let mut request = create_room::v3::Request::new();
        request.room_version = Some(ROOM_VERSION);
        request.room_alias_name = Some(self.alias.alias().to_owned());
        request.visibility = Visibility::Private;
        request.preset = Some(if self.room.private {
            create_room::v3::RoomPreset::PrivateChat
        } else {
            create_room::v3::RoomPreset::PublicChat
        });
        request.name = Some(self.room.name.to_owned());
        request.topic = Some(self.room.topic.to_owned()).filter(|topic| !topic.is_empty());
        request.power_level_content_override = Some(raw(&self.power_levels(None))?);
        request.initial_state = self
            .fixed_state()
            .into_iter()
            .map(|(kind, content)| raw(&json!({"type": kind, "state_key": "", "content": content})))
            .collect::<Result<_, _>>()?;
        Ok(request)
    }

    /// Returns the desired power levels, given the current ones. Users keep power that was granted to them.
    fn power_levels(&self, now: Option<&Value>) -> Value {
        let private = self.room.private;
        let mut levels = now.and_then(Value::as_object).cloned().unwrap_or_default();
        let mut users = take_object(&mut levels, "users");
        users.insert(self.bot.to_string(), BOT_LEVEL.into());
        if let Some(moderator) = &self.moderator {
            let level = users.entry(moderator.as_str()).or_insert(MODERATOR_LEVEL.into());
            if level.as_i64().is_none_or(|level| level < MODERATOR_LEVEL) {
                *level = MODERATOR_LEVEL.into();
            }
        }
        let rules = json!({
            "users": users,
            "users_default": 0,
            "events_default": 0,
            "invite": match (private, self.room.bot_invites) {
                (true, true) => BOT_LEVEL,
                (true, false) => MODERATOR_LEVEL,
                (false, _) => 0,
            },
            "kick": MODERATOR_LEVEL,
            "ban": MODERATOR_LEVEL,
            "redact": MODERATOR_LEVEL,
            "state_default": BOT_LEVEL,
            "events": {
                "m.room.name": MODERATOR_LEVEL,
                "m.room.topic": MODERATOR_LEVEL,
                "m.room.avatar": MODERATOR_LEVEL,
                "m.room.power_levels": BOT_LEVEL,
                "m.room.encryption": BOT_LEVEL,
                "m.room.history_visibility": BOT_LEVEL,
                "m.room.canonical_alias": BOT_LEVEL,
                "m.room.server_acl": BOT_LEVEL,
                "m.room.tombstone": BOT_LEVEL,
                "m.room.join_rules": BOT_LEVEL,
            },
        });
        if let Value::Object(rules) = rules {
            levels.extend(rules);
        }
        levels.into()
    }

    /// State that only the bot may change.
    fn fixed_state(&self) -> Vec<(&'static str, Value)> {
        let mut state = vec![
            ("m.room.join_rules", join_rules(self.room.private)),
            ("m.room.guest_access", json!({"guest_access": "forbidden"})),
            ("m.room.history_visibility", json!({"history_visibility": "shared"})),
        ];
        if self.room.private {
            state.push(("m.room.encryption", json!({"algorithm": "m.megolm.v1.aes-sha2"})));
        }
        state
    }

    /// State that is set once. Moderators may change the name and the topic, so they are not restored.
    fn first_state(&self) -> Vec<(&'static str, Value)> {
        let mut state = vec![
            ("m.room.canonical_alias", json!({"alias": self.alias})),
            ("m.room.name", json!({"name": self.room.name})),
        ];
        if !self.room.topic.is_empty() {
            state.push(("m.room.topic", topic_content(self.room.topic)));
        }
        state
    }
}

struct State(Vec<Raw<AnyStateEvent>>);

impl State {
    /// Content of the state event with this type and an empty state key.
    fn content(&self, kind: &str) -> Option<Value> {
        self.find(kind, "").and_then(|event| field(event, "content"))
    }

    fn membership(&self, user_id: &UserId) -> Option<Membership> {
        let content: Value = field(self.find("m.room.member", user_id.as_str())?, "content")?;
        content.get("membership").and_then(Value::as_str).and_then(Membership::parse)
    }

    fn find(&self, kind: &str, key: &str) -> Option<&Raw<AnyStateEvent>> {
        self.0.iter().find(|event| {
            field::<String, _>(event, "state_key").is_some_and(|found| found == key)
                && field::<String, _>(event, "type").is_some_and(|found| found == kind)
        })
    }
}

/// Whether every wanted field has the wanted value. Servers and later Matrix versions may add other fields.
fn agrees(now: Option<&Value>, wanted: &Value) -> bool {
    let (Some(now), Some(wanted)) = (now, wanted.as_object()) else { return false };
    wanted.iter().all(|(name, value)| now.get(name) == Some(value))
}

fn join_rules(private: bool) -> Value {
    json!({"join_rule": if private { "invite" } else { "public" }})
}

/// Topic in the old and the new format, as Synapse writes it when it creates a room.
fn topic_content(topic: &str) -> Value {
    json!({"topic": topic, "m.topic": {"m.text": [{"body": topic}]}})
}

/// Removes a nested object from an object. A value that is not an object counts as missing.
fn take_object(object: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
    match object.remove(name) {
        Some(Value::Object(inner)) => inner,
        _ => Map::new(),
    }
}

/// Converts JSON for a request field that ruma declares with a specific type.
pub(crate) fn raw<T>(value: &Value) -> Result<Raw<T>, Error> {
    match Raw::new(value) {
        Ok(raw) => Ok(raw.cast_unchecked()),
        Err(error) => Err(Error::Unsendable(error.to_string())),
    }
}

/// Reads only the required fields by hand: users control the rest, and it may not follow the specification.
pub(crate) fn read_event<E>(event: &Raw<E>) -> Option<SeenEvent> {
    Some(SeenEvent {
        event_id: field(event, "event_id")?,
        sender: field(event, "sender")?,
        kind: field(event, "type")?,
        state_key: event.get_field("state_key").ok()?,
        timestamp_ms: field(event, "origin_server_ts")?,
        content: field(event, "content").filter(Value::is_object)?,
    })
}

/// Returns a field of an event if it exists and has the expected type.
pub(crate) fn field<T: DeserializeOwned, E>(event: &Raw<E>, name: &str) -> Option<T> {
    event.get_field(name).ok().flatten()
}

pub(crate) fn unreadable(reason: &str) -> Error {
    Error::Unreadable { status: 200, reason: reason.to_owned() }
}

/// Interprets a refusal of a request about a room.
pub(crate) fn in_room(error: Error, room: &RoomId) -> Error {
    match error {
        // Only the message text distinguishes a user outside our namespace from a user whom the room refuses. If
        // Synapse changes the text, this becomes ForbiddenInRoom, which no caller treats as success.
        Error::NotAllowed { user_id, message } if message.contains("masquerade") => {
            Error::NotAllowed { user_id, message }
        }
        Error::NotAllowed { message, .. } | Error::Refused { status: 403, message, .. } => {
            Error::ForbiddenInRoom { message }
        }
        Error::Refused { status: 404, .. } => Error::NoSuchRoom(room.to_owned()),
        error => error,
    }
}

/// Like `in_room`, for read requests. The homeserver refuses them only to users outside the room, so a refusal means
/// `NoSuchRoom`.
pub(crate) fn no_view(error: Error, room: &RoomId) -> Error {
    match in_room(error, room) {
        Error::ForbiddenInRoom { .. } => Error::NoSuchRoom(room.to_owned()),
        error => error,
    }
}
