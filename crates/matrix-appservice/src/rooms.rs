//! Rooms: how they are made, found, named and given up.

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
    homeserver::{Acting, LONG_ANSWER_BYTES},
    ids,
};

/// Not the newest: from version 12 on, the ids of rooms have no `:server`, which older clients and bridges expect.
const ROOM_VERSION: RoomVersionId = RoomVersionId::V11;

/// The power of the bot. Nobody else should have it, because not even the bot could take it back.
const BOT_LEVEL: i64 = 100;

/// The power of a moderator.
const MODERATOR_LEVEL: i64 = 50;

/// A room as it should be.
#[derive(Clone, Copy, Debug)]
pub struct NewRoom<'a> {
    /// The localpart of its alias, in a namespace that is ours. It says which room it is.
    pub alias: &'a str,
    /// What members see.
    pub name: &'a str,
    /// What it is about. If empty, there is none.
    pub topic: &'a str,
    /// Whether it is encrypted and for those who were invited. Otherwise everybody may come in and the server reads
    /// along.
    pub private: bool,
    /// The localpart of who may rename the room, invite, and remove others. The bot always may; without a moderator it
    /// is the only one.
    pub moderator: Option<&'a str>,
}

/// What to do with an alias whose room has no bot in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfMade {
    /// To leave it alone, because another call may be making the room at this moment.
    Wait,
    /// To take the alias away from it and to make a new one. For a caller that waited long enough, or that knows that
    /// it is alone.
    Discard,
}

/// An event as the bot sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenEvent {
    /// Its id.
    pub event_id: OwnedEventId,
    /// Who sent it.
    pub sender: OwnedUserId,
    /// Its type, such as `m.room.message`.
    pub kind: String,
    /// What it is the state of, if it is state at all.
    pub state_key: Option<String>,
    /// When it was sent, in milliseconds since 1970. The sender's server says so, and it may lie.
    pub timestamp_ms: u64,
    /// What it says. Of an event that was redacted, nearly nothing is left.
    pub content: Value,
}

impl Homeserver {
    /// Makes the room with this alias, or finds it and completes what is missing. The alias decides: of a room that is
    /// there, the name and the topic are left as they are, and nobody loses power. Mind that Synapse stores the alias
    /// first, the bot's membership next and everything else after that, and that it may stop at any of these points.
    pub async fn ensure_room(&self, room: &NewRoom<'_>, half_made: HalfMade) -> Result<OwnedRoomId, Error> {
        let wanted = Wanted::new(self, room)?;
        // Twice at most: whoever takes the alias again after it was free is at work on it.
        for _ in 0..2 {
            match self.call(wanted.request()?, &wanted.bot, Acting::AsTheService).await {
                Ok(answer) => return Ok(answer.room_id),
                // Synapse answers 409 to the loser of two calls that make the room together, and M_BAD_ALIAS if the
                // alias is taken away before it is done.
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
                _ if half_made == HalfMade::Wait => break,
                _ => self.delete_alias(&wanted.alias, &wanted.bot).await?,
            }
        }
        Err(Error::HalfMade(wanted.alias))
    }

    /// The room with this alias. Should there be none, Synapse asks us for it before it answers, at
    /// `/_matrix/app/v1/rooms/{alias}`, if the registration with the namespace of the alias has a URL: whoever serves
    /// that must not wait for this call.
    pub async fn find_room(&self, alias: &str) -> Result<Option<OwnedRoomId>, Error> {
        let bot = self.bot()?;
        let alias = ids::alias(alias, &self.inner.settings.server_name)?;
        match self.call(get_alias::v3::Request::new(alias), &bot, Acting::AsTheService).await {
            Ok(answer) => Ok(Some(answer.room_id)),
            Err(Error::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes the alias away, closes the room, removes everybody and lets the bot leave: nobody finds or uses the room
    /// any more. That it is so already, in part or as a whole, is fine.
    ///
    /// Without the id of the room it is looked up, and the alias goes last instead of first, so that a repeated call
    /// finds what an interrupted one left.
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

    /// Sets the name, as the bot. The same name again makes no event.
    pub async fn set_room_name(&self, room: &RoomId, name: &str) -> Result<(), Error> {
        let bot = self.bot()?;
        self.send_state(room, "m.room.name", "", &json!({"name": name}), &bot, Acting::AsTheService).await.map(|_| ())
    }

    /// Sets the topic, as the bot. The same topic again makes no event.
    pub async fn set_room_topic(&self, room: &RoomId, topic: &str) -> Result<(), Error> {
        let bot = self.bot()?;
        self.send_state(room, "m.room.topic", "", &topic_content(topic), &bot, Acting::AsTheService).await.map(|_| ())
    }

    /// The name; none if it is empty.
    pub async fn room_name(&self, room: &RoomId) -> Result<Option<String>, Error> {
        self.text_of_state(room, "m.room.name", "name").await
    }

    /// The topic; none if it is empty.
    pub async fn room_topic(&self, room: &RoomId) -> Result<Option<String>, Error> {
        self.text_of_state(room, "m.room.topic", "topic").await
    }

    /// Gives a user this power in the room. No event is sent when they have it already. Whom it gives 100, as much as
    /// it has itself, the bot can neither remove nor take it back from. What is not about this user is
    /// kept; but of two calls for the same room at the same time, one may undo the other, since Matrix has no way to
    /// say "only if nobody changed it meanwhile".
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

    /// One event as the bot sees it. None if there is no such event in this room.
    pub async fn event(&self, room: &RoomId, event_id: &EventId) -> Result<Option<SeenEvent>, Error> {
        let bot = self.bot()?;
        let request = get_room_event::v3::Request::new(ids::room_in_path(room)?, ids::event_in_path(event_id)?);
        let event = match self.call(request, &bot, Acting::AsTheService).await.map_err(|error| in_room(error, room)) {
            Ok(answer) => answer.event,
            Err(Error::NoSuchRoom(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let seen = (|| {
            Some(SeenEvent {
                event_id: field(&event, "event_id")?,
                sender: field(&event, "sender")?,
                kind: field(&event, "type")?,
                state_key: event.get_field("state_key").ok()?,
                timestamp_ms: field(&event, "origin_server_ts")?,
                content: field(&event, "content").filter(Value::is_object)?,
            })
        })();
        match seen {
            Some(seen) if seen.event_id == event_id => Ok(Some(seen)),
            Some(_) => Err(unreadable("it is about another event")),
            None => Err(unreadable("it is not an event")),
        }
    }

    /// Sends state and says which event has it now: Synapse makes none if the state is the same already.
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
        let answer = self.call(request, user_id, acting).await.map_err(|error| in_room(error, room))?;
        Ok(answer.event_id)
    }

    /// One state event as the bot sees it. None if the room has none.
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
            Ok(answer) => Ok(Some(answer.into_event())),
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

    /// All state of a room, as the bot sees it. None if it never was in it.
    async fn state(&self, room: &RoomId, bot: &UserId) -> Result<Option<State>, Error> {
        let request = get_state_events::v3::Request::new(ids::room_in_path(room)?);
        match self.call_up_to(LONG_ANSWER_BYTES, request, bot, Acting::AsTheService).await {
            Ok(answer) => Ok(Some(State(answer.room_state))),
            Err(error) => match in_room(error, room) {
                Error::ForbiddenInRoom { .. } | Error::NoSuchRoom(_) => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Sends what the room lacks of what was wanted.
    async fn complete(&self, room: &RoomId, state: &State, wanted: &Wanted<'_>) -> Result<(), Error> {
        let mut missing = Vec::new();
        // First of all, because it says who may send the rest.
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
                    Error::Refused { errcode, .. } if errcode == "M_BAD_ALIAS" => Error::HalfMade(wanted.alias.clone()),
                    error => error,
                }
            })?;
        }
        Ok(())
    }

    /// Takes an alias away from whatever room has it. That there is no such alias is fine.
    async fn delete_alias(&self, alias: &OwnedRoomAliasId, bot: &UserId) -> Result<(), Error> {
        match self.call(delete_alias::v3::Request::new(alias.clone()), bot, Acting::AsTheService).await {
            // Synapse answers 200 for an unknown alias; others may well say that it is not found.
            Ok(_) | Err(Error::Refused { status: 404, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes everybody and leaves. If the bot is not in the room, there is nothing that it could do.
    async fn empty(&self, room: &RoomId, bot: &UserId) -> Result<(), Error> {
        match self.member(room, bot).await {
            Ok(Some(member)) if member.membership == Membership::Join => {}
            Ok(_) | Err(Error::NoSuchRoom(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        // Otherwise whoever was removed from a public room could come back before the bot is gone.
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

/// What a room should have, in the words of Matrix.
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

    /// The power levels that the room should have if it has these now. Whoever was given power keeps it.
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
            "invite": if private { MODERATOR_LEVEL } else { 0 },
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

    /// What nobody may change.
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

    /// What the room is given once. Moderators may change the name and the topic, and so they are not set again.
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

/// All state of a room.
struct State(Vec<Raw<AnyStateEvent>>);

impl State {
    /// What the state event of this type, without a key, says.
    fn content(&self, kind: &str) -> Option<Value> {
        self.find(kind, "").and_then(|event| field(event, "content"))
    }

    /// Whether a user is in the room.
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

/// Whether every field that was wanted is as it was wanted. Servers and later versions may add others.
fn agrees(now: Option<&Value>, wanted: &Value) -> bool {
    let (Some(now), Some(wanted)) = (now, wanted.as_object()) else { return false };
    wanted.iter().all(|(name, value)| now.get(name) == Some(value))
}

fn join_rules(private: bool) -> Value {
    json!({"join_rule": if private { "invite" } else { "public" }})
}

/// In the old words and in the new ones, as Synapse puts it when it makes a room.
fn topic_content(topic: &str) -> Value {
    json!({"topic": topic, "m.topic": {"m.text": [{"body": topic}]}})
}

/// Takes an object out of another one. What is not an object is as good as missing.
fn take_object(object: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
    match object.remove(name) {
        Some(Value::Object(inner)) => inner,
        _ => Map::new(),
    }
}

/// JSON for a request whose type ruma spells out.
pub(crate) fn raw<T>(value: &Value) -> Result<Raw<T>, Error> {
    match Raw::new(value) {
        Ok(raw) => Ok(raw.cast_unchecked()),
        Err(error) => Err(Error::Unsendable(error.to_string())),
    }
}

/// A field of an event, if it is there and what it should be.
pub(crate) fn field<T: DeserializeOwned, E>(event: &Raw<E>, name: &str) -> Option<T> {
    event.get_field(name).ok().flatten()
}

pub(crate) fn unreadable(reason: &str) -> Error {
    Error::Unreadable { status: 200, reason: reason.to_owned() }
}

/// What a refusal means when a room was asked for.
pub(crate) fn in_room(error: Error, room: &RoomId) -> Error {
    match error {
        // Synapse tells a user outside our namespace from one that the room refuses by words alone. Should they change,
        // this becomes ForbiddenInRoom, which nobody takes for success.
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

/// The same for those who only want to look: that is refused to nobody but those who are not in the room.
pub(crate) fn no_view(error: Error, room: &RoomId) -> Error {
    match in_room(error, room) {
        Error::ForbiddenInRoom { .. } => Error::NoSuchRoom(room.to_owned()),
        error => error,
    }
}
