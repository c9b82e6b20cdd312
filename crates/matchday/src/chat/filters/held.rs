//! Messages that wait for a moderator's decision. Their texts are encrypted under a key that is not in the database.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use matrix_appservice::{Error as MatrixError, RoomId as MatrixRoomId};
use platform::{database, encryption::Encrypted};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{
    message::{ChatMessage, PASS},
    service::Filters,
    store::{self, HeldRow, NewHeld},
};
use crate::identity::operators::{self, Operator, service::Action};

/// Time for which an undecided message is kept.
const KEPT_FOR: time::Duration = time::Duration::days(7);
/// Number of undecided messages of one sender. Further ones are removed without being held.
const MOST_OF_SENDER: i64 = 50;

/// Texts of a held message.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct HeldText {
    pub(super) body: String,
    /// Other texts of the message, such as a formatted text that differs.
    pub(super) others: Vec<String>,
}

/// A message that waits for a decision.
#[derive(Clone)]
pub struct HeldMessage {
    pub id: i64,
    /// The homeserver's id of the room.
    pub matrix_room: String,
    /// Matrix id of the sender.
    pub sender: String,
    /// The homeserver's id of the removed message. `None` if the message was refused when it was sent.
    pub event_id: Option<String>,
    /// Filter that matched.
    pub filter: String,
    /// Text that a release sends. `None` if its key is not configured any more.
    pub body: Option<String>,
    /// Other texts of the message, such as a formatted text that differs.
    pub others: Vec<String>,
    pub created_at: OffsetDateTime,
}

impl fmt::Debug for HeldMessage {
    // Not derived, so that no log line contains the text of a message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldMessage").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Reason why a held message was not decided on.
#[derive(Debug, thiserror::Error)]
pub enum HeldError {
    #[error("message {0} is not held: `matchday messages held` lists all")]
    NotHeld(i64),
    /// The key that encrypted the text is not configured.
    #[error("the text of message {0} cannot be decrypted: webhooks.keys lacks the key that encrypted it")]
    Unreadable(i64),
    #[error("chat is not configured: matrix.homeserver_url is not set")]
    NoChat,
    /// The sender has an account on another homeserver, or left the room.
    #[error("the message cannot be sent for its sender, who is not a member of the room or has no account here")]
    NotAMember,
    #[error(transparent)]
    Homeserver(MatrixError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Filters {
    /// Keeps a text for a moderator, encrypted. Without a key, nothing is kept.
    pub(super) async fn hold_in(
        &self,
        connection: &mut PgConnection,
        matrix_room: &str,
        sender: &str,
        event_id: Option<&str>,
        filter: &str,
        text: &HeldText,
    ) -> sqlx::Result<()> {
        let inner = &*self.inner;
        let secret = serde_json::to_vec(text).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let Some(text) = inner.cipher.seal(&*inner.random, &purpose(matrix_room, sender), &secret) else {
            tracing::error!(filter, "held message was removed without its text, because webhooks.keys is not set");
            return Ok(());
        };
        let held = NewHeld { matrix_room, sender, event_id, filter, text };
        store::hold(connection, &held, MOST_OF_SENDER, inner.clock.now()).await
    }

    /// Messages without a decision whose id is greater than `after`, oldest first.
    pub async fn held(&self, after: i64, most: i64) -> sqlx::Result<Vec<HeldMessage>> {
        let rows = store::open(&self.inner.db, after, most).await?;
        Ok(rows.into_iter().map(|row| self.opened(row)).collect())
    }

    fn opened(&self, row: HeldRow) -> HeldMessage {
        let text = self.decrypted(&row);
        let (body, others) = text.map_or((None, Vec::new()), |text| (Some(text.body), text.others));
        let HeldRow { id, matrix_room, sender, event_id, filter, created_at, .. } = row;
        HeldMessage { id, matrix_room, sender, event_id, filter, body, others, created_at }
    }

    fn decrypted(&self, row: &HeldRow) -> Option<HeldText> {
        let sealed = Encrypted { key_version: row.key_version, bytes: row.ciphertext.clone() };
        let opened = self.inner.cipher.open(&purpose(&row.matrix_room, &row.sender), &sealed)?;
        serde_json::from_slice(&opened).ok()
    }

    /// Sends a held message again as its sender. Returns the homeserver's id of the new message. Repeating it after a
    /// failure sends one message: the homeserver knows the transaction.
    pub async fn release(&self, id: i64, operator: &Operator) -> Result<String, HeldError> {
        let inner = &*self.inner;
        let row = store::begin_release(&inner.db, id).await?.ok_or(HeldError::NotHeld(id))?;
        let event_id = match self.send_held(&row).await {
            Ok(event_id) => event_id,
            Err(error) => {
                store::abandon_release(&inner.db, id).await?;
                return Err(error);
            }
        };
        let now = inner.clock.now();
        let mut tx = database::begin(&inner.db).await?;
        if !store::finish_release(&mut tx, id, &operator.name, now).await? {
            return Err(HeldError::NotHeld(id));
        }
        let details = json!({"room": row.matrix_room, "filter": row.filter, "event_id": event_id});
        let action = Action::new("message.release", format!("held_message:{id}")).with(details);
        operators::service::record(&mut tx, operator, &action, now).await?;
        tx.commit().await?;
        Ok(event_id)
    }

    async fn send_held(&self, row: &HeldRow) -> Result<String, HeldError> {
        let inner = &*self.inner;
        let text = self.decrypted(row).ok_or(HeldError::Unreadable(row.id))?;
        let homeserver = inner.chat.homeserver_for_rooms().ok_or(HeldError::NoChat)?;
        let localpart = row.sender.strip_prefix('@').and_then(|rest| rest.split_once(':'));
        let localpart = localpart.filter(|(_, server)| *server == inner.server_name).map(|(localpart, _)| localpart);
        let localpart = localpart.ok_or(HeldError::NotAMember)?;
        let room = MatrixRoomId::parse(&row.matrix_room).map_err(|_| HeldError::NotAMember)?;
        let mut content = json!({"msgtype": "m.text", "body": text.body});
        if let Some(pass) = self.pass(&row.matrix_room, &row.sender, &text.body) {
            content[PASS] = json!(pass);
        }
        let transaction = format!("matchday-held-{}", row.id);
        let sent = homeserver.send_message_as(localpart, &room, &transaction, &content).await;
        match sent {
            Ok(event_id) => Ok(event_id.to_string()),
            Err(MatrixError::ForbiddenInRoom { .. } | MatrixError::NoSuchRoom(_) | MatrixError::NoSuchUser(_)) => {
                Err(HeldError::NotAMember)
            }
            Err(error) => Err(HeldError::Homeserver(error)),
        }
    }

    /// Rejects a held message, and deletes its text.
    pub async fn reject(&self, id: i64, operator: &Operator) -> Result<(), HeldError> {
        let (inner, now) = (&*self.inner, self.inner.clock.now());
        let mut tx = database::begin(&inner.db).await?;
        let rejected = store::reject(&mut tx, id, &operator.name, now).await?;
        let (room, _) = rejected.ok_or(HeldError::NotHeld(id))?;
        let action = Action::new("message.reject", format!("held_message:{id}")).with(json!({"room": room}));
        operators::service::record(&mut tx, operator, &action, now).await?;
        Ok(tx.commit().await?)
    }

    /// Deletes messages that were held seven days ago, decided on or not. Returns their number.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let (db, before) = (&self.inner.db, self.inner.clock.now() - KEPT_FOR);
        database::sweep(|most| store::sweep(db, before, most)).await
    }

    /// Permission to send exactly this text in this room as this sender. The filters would remove a released message
    /// again. It needs no lookup when the message is pushed, and a client that copies it can only repeat the released text.
    fn pass(&self, matrix_room: &str, sender: &str, body: &str) -> Option<String> {
        let inner = &*self.inner;
        let sealed = inner.cipher.seal(&*inner.random, &pass_purpose(matrix_room, sender), &Sha256::digest(body))?;
        Some(format!("{}.{}", sealed.key_version, STANDARD.encode(&sealed.bytes)))
    }

    /// Whether a moderator released this message.
    pub(super) fn is_released(&self, message: &ChatMessage) -> bool {
        let sealed = || {
            let (version, bytes) = message.pass.as_deref()?.split_once('.')?;
            Some(Encrypted { key_version: version.parse().ok()?, bytes: STANDARD.decode(bytes).ok()? })
        };
        let about = pass_purpose(&message.matrix_room, &message.sender);
        let digest = sealed().and_then(|sealed| self.inner.cipher.open(&about, &sealed));
        message.others.is_empty() && digest.as_deref() == Some(&Sha256::digest(&message.body)[..])
    }
}

/// Purpose of the encryption of a text. Another room or sender cannot be put in its place.
fn purpose(matrix_room: &str, sender: &str) -> String {
    format!("held message {matrix_room} {sender}")
}

fn pass_purpose(matrix_room: &str, sender: &str) -> String {
    format!("released message {matrix_room} {sender}")
}
