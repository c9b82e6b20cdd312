//! Creates and changes accounts.

use std::sync::Arc;

use platform::{
    Core,
    clock::Clock,
    outbox::{self, Message},
};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};
use time::{Date, OffsetDateTime};
use tokio::sync::Notify;
use web::{fields::Change, ids::UserId};

use super::{
    hooks::Welcome,
    people::{Person, UserSegment},
    restrictions::{RestrictError, RestrictedPhones, Term, Terms},
    rules::{self, Email, PersonName},
    settings::Settings,
    store,
};
use crate::identity::{
    avatars::AvatarKey,
    phone::Phone,
    usernames::{Username, service::Usernames},
};

/// Subject for replaced usernames; the user moves to a new chat account.
pub const RENAMED: &str = "work.chat.renamed";
/// Subject for changed names, which chat displays.
pub const NAME_CHANGED: &str = "work.chat.name_changed";
/// Subject for new accounts.
pub const REGISTERED: &str = "fact.user.registered";

#[derive(Clone)]
pub struct Accounts {
    db: PgPool,
    usernames: Usernames,
    welcome: Arc<dyn Welcome>,
    minimum_age: u16,
    restricted_phones: RestrictedPhones,
    clock: Arc<dyn Clock>,
    outbox_written: Arc<Notify>,
}

#[derive(Clone, Debug)]
pub struct Account {
    pub id: UserId,
    pub created_at: OffsetDateTime,
    pub username: Username,
    /// Whether the service generated the username. A generated username can be replaced once.
    pub username_is_generated: bool,
    /// Phone that the user logs in with.
    pub phone: Option<Phone>,
    pub name: Option<String>,
    /// Whether other users see the name.
    pub shows_name: bool,
    pub avatar: Option<AvatarKey>,
    pub email: Option<String>,
    pub date_of_birth: Option<Date>,
    /// Whether this service created the homeserver account of the current username.
    pub has_chat_account: bool,
    /// Start of the ban from the service.
    pub banned_at: Option<OffsetDateTime>,
    /// End of the ban, if it has one.
    pub banned_until: Option<OffsetDateTime>,
    /// Start of the mute in chat.
    pub muted_at: Option<OffsetDateTime>,
    /// End of the mute, if it has one.
    pub muted_until: Option<OffsetDateTime>,
}

impl Account {
    /// Whether the user may not send chat messages, because of a ban or a mute.
    pub fn is_silenced(&self) -> bool {
        self.banned_at.is_some() || self.muted_at.is_some()
    }

    /// The user as a viewer sees them.
    pub fn person(&self, viewer: UserId) -> Person {
        let Self { id, username, name, shows_name, avatar, .. } = self.clone();
        Person { id, username: username.to_string(), name, shows_name, avatar }.shown_to(viewer)
    }

    pub(crate) fn terms(&self) -> Terms {
        let term = |since: Option<OffsetDateTime>, until| since.map(|since| Term { since, until });
        Terms { ban: term(self.banned_at, self.banned_until), mute: term(self.muted_at, self.muted_until) }
    }
}

/// A ban or mute that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentRestriction {
    /// `ban` or `mute`.
    pub kind: &'static str,
    pub reason: String,
    /// `None` if it has no end.
    pub until: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
}

/// Profile fields to change.
#[derive(Clone, Debug)]
pub struct ProfileChange {
    pub name: Change<PersonName>,
    pub email: Change<Email>,
    pub date_of_birth: Change<Date>,
    /// Replacement for a generated username.
    pub username: Option<Username>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Renamed {
    pub user_id: UserId,
    pub from: Username,
    pub to: Username,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct NameChanged {
    pub user_id: UserId,
}

/// Payload of [`REGISTERED`]. It never contains the phone, because many consumers read facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    pub user_id: UserId,
    pub username: Username,
    #[serde(with = "platform::timestamp")]
    pub created_at: OffsetDateTime,
}

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The username is reserved, or is or was in use.
    #[error("the username is taken")]
    UsernameTaken,
    /// A concurrent transaction gave the phone to an account or took it from one. The caller must retry.
    #[error("the phone moved to or from an account concurrently")]
    PhoneMoved,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// An outbox message could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("the account does not exist")]
    NoSuchAccount,
    /// The username is reserved, or is or was in use.
    #[error("the username is taken")]
    UsernameTaken,
    /// The user chose the current username, at registration or later.
    #[error("the username has already been chosen")]
    UsernameChosen,
    /// The date of birth is not in the past, or the user is too young.
    #[error("the user is younger than {minimum_age} years")]
    TooYoung { minimum_age: u16 },
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// An outbox message could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl From<RestrictError> for CreateError {
    fn from(error: RestrictError) -> Self {
        match error {
            RestrictError::Database(error) => Self::Database(error),
            RestrictError::Message(error) => Self::Message(error),
        }
    }
}

impl Accounts {
    pub fn new(
        core: &Core,
        settings: &Settings,
        usernames: Usernames,
        welcome: Arc<dyn Welcome>,
        restricted_phones: RestrictedPhones,
    ) -> Self {
        let Core { db, clock, outbox_written, .. } = core.clone();
        Self { db, usernames, welcome, minimum_age: settings.minimum_age, restricted_phones, clock, outbox_written }
    }

    pub async fn find(&self, user: UserId) -> sqlx::Result<Option<Account>> {
        store::find(&self.db, user, self.clock.now()).await
    }

    /// Finds the account with this user id or username.
    pub async fn resolve(&self, named: &str) -> sqlx::Result<Option<Account>> {
        match named.parse::<UserId>() {
            Ok(id) => self.find(id).await,
            Err(()) => self.named(&named.to_ascii_lowercase()).await,
        }
    }

    /// Finds the account that a path names.
    pub async fn at(&self, segment: &UserSegment) -> sqlx::Result<Option<Account>> {
        match segment {
            UserSegment::Id(id) => self.find(*id).await,
            UserSegment::Name(name) => self.named(name.as_str()).await,
            UserSegment::Unknown => Ok(None),
        }
    }

    /// Finds the account that this phone logs in to.
    pub async fn with_phone(&self, phone: &Phone) -> sqlx::Result<Option<Account>> {
        let mut connection = self.db.acquire().await?;
        match store::phone_owner(&mut connection, phone).await? {
            Some(owner) => store::find(&mut *connection, owner, self.clock.now()).await,
            None => Ok(None),
        }
    }

    /// Returns the current ban and mute of an account, with their reasons.
    pub async fn restrictions(&self, account: &Account) -> sqlx::Result<Vec<CurrentRestriction>> {
        let Terms { ban, mute } = account.terms();
        let terms = [("ban", ban), ("mute", mute)];
        if terms.iter().all(|(_, term)| term.is_none()) {
            return Ok(Vec::new());
        }
        let mut reasons = store::latest_restrictions(&self.db, account.id).await?;
        let current = |(kind, term): (&'static str, Option<Term>)| {
            let Term { since, until } = term?;
            let (reason, created_at) = reasons.remove(kind).unwrap_or_else(|| (String::new(), since));
            Some(CurrentRestriction { kind, reason, until, created_at })
        };
        Ok(terms.into_iter().filter_map(current).collect())
    }

    /// Finds the account that has this username now.
    pub async fn named(&self, username: &str) -> sqlx::Result<Option<Account>> {
        let mut connection = self.db.acquire().await?;
        let owner = store::username_owners(&mut connection, &[username]).await?.users.into_values().next();
        match owner {
            Some(owner) => store::find(&mut *connection, owner, self.clock.now()).await,
            None => Ok(None),
        }
    }

    /// Finds the account of a phone, or creates it. Returns whether it was created. Runs in the caller's transaction,
    /// which must be rolled back on any error.
    pub async fn find_or_make_in(
        &self,
        connection: &mut PgConnection,
        phone: &Phone,
        username: Option<&Username>,
    ) -> Result<(Account, bool), CreateError> {
        let Some(owner) = store::phone_owner(connection, phone).await? else {
            let mut account = self.make_in(connection, Some(phone), username).await?;
            let (user_id, username, created_at) = (account.id, account.username.clone(), account.created_at);
            let registered = Registered { user_id, username, created_at };
            let message = Message::new(REGISTERED, format!("user:{user_id}"), &registered)?.logged();
            outbox::enqueue(connection, &[message]).await?;
            self.restricted_phones.apply_in(connection, &mut account, phone, self.clock.now()).await?;
            return Ok((account, true));
        };
        store::lock(connection, owner).await?;
        // The owner may have moved to another phone before the lock.
        if store::phone_owner(connection, phone).await? != Some(owner) {
            return Err(CreateError::PhoneMoved);
        }
        let account = store::find(connection, owner, self.clock.now()).await?;
        account.map(|account| (account, false)).ok_or(CreateError::Database(sqlx::Error::RowNotFound))
    }

    async fn make_in(
        &self,
        connection: &mut PgConnection,
        phone: Option<&Phone>,
        username: Option<&Username>,
    ) -> Result<Account, CreateError> {
        let now = self.clock.now();
        let id = match phone {
            Some(phone) => store::claim_phone_for_new(connection, phone, now).await?.ok_or(CreateError::PhoneMoved)?,
            None => store::next_id(connection).await?,
        };
        let chosen = match username {
            Some(wanted) if !self.usernames.claim_in(connection, wanted, id).await? => {
                return Err(CreateError::UsernameTaken);
            }
            Some(wanted) => wanted.clone(),
            None => self.usernames.claim_invented_in(connection, id).await?,
        };
        let account = Account {
            id,
            created_at: now,
            username: chosen,
            username_is_generated: username.is_none(),
            phone: phone.cloned(),
            name: None,
            shows_name: true,
            avatar: None,
            email: None,
            date_of_birth: None,
            has_chat_account: false,
            banned_at: None,
            banned_until: None,
            muted_at: None,
            muted_until: None,
        };
        store::insert(connection, &account).await?;
        self.welcome.welcome_in(connection, id).await?;
        Ok(account)
    }

    /// Whether the homeserver has an account of this name that this service did not create, see
    /// [`Usernames::is_foreign`].
    pub async fn is_foreign_name(&self, username: &Username) -> bool {
        self.usernames.is_foreign(username).await
    }

    /// Lets a user replace their username once more, because this service did not create the homeserver account of that
    /// name.
    pub async fn allow_another_username(&self, user: UserId, username: &Username) -> sqlx::Result<()> {
        store::allow_another_username(&self.db, user, username).await
    }

    /// Stores the restrictions of an account with a phone that the account releases, in the caller's transaction. Any
    /// code that takes a phone from an account must call this or [`Self::carry_restrictions_in`].
    pub async fn keep_restrictions_in(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        released: &Phone,
    ) -> sqlx::Result<()> {
        let Some(account) = store::find(&mut *connection, user, self.clock.now()).await? else { return Ok(()) };
        self.restricted_phones.keep_in(connection, &account, released).await
    }

    /// Like [`Self::keep_restrictions_in`], for an account that moves to another phone. The restrictions of the new
    /// phone then apply to the account.
    pub async fn carry_restrictions_in(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        released: &Phone,
        taken: &Phone,
    ) -> Result<(), RestrictError> {
        let now = self.clock.now();
        let Some(mut account) = store::find(&mut *connection, user, now).await? else { return Ok(()) };
        self.restricted_phones.keep_in(connection, &account, released).await?;
        self.restricted_phones.apply_in(connection, &mut account, taken, now).await
    }

    /// Records that this service created the homeserver account of this username.
    pub async fn note_chat_account(&self, user: UserId, username: &Username) -> sqlx::Result<()> {
        store::note_chat_account(&self.db, user, username).await
    }

    /// Call after the transaction that created an account is committed: counts the account and wakes the outbox relay.
    pub fn note_created(&self) {
        metrics::counter!("matchday_accounts_made_total").increment(1);
        self.outbox_written.notify_one();
    }

    /// Creates an account without a phone, for development and tests. Publishes no registration.
    pub async fn make_without_phone(&self) -> Result<UserId, CreateError> {
        let mut tx = platform::database::begin(&self.db).await?;
        let account = self.make_in(&mut tx, None, None).await?;
        tx.commit().await?;
        Ok(account.id)
    }

    /// Changes a profile. Returns the changed account, and whether a new username was set.
    pub async fn change(&self, user: UserId, change: ProfileChange) -> Result<(Account, bool), ChangeError> {
        let now = self.clock.now();
        if let Change::Set(born) = change.date_of_birth
            && !rules::is_old_enough(born, self.minimum_age, now.date())
        {
            return Err(ChangeError::TooYoung { minimum_age: self.minimum_age });
        }
        let before = self.find(user).await?.ok_or(ChangeError::NoSuchAccount)?;
        // A form submitted with the current username changes nothing.
        let wanted = change.username.filter(|wanted| *wanted != before.username);
        if let Some(username) = &wanted
            && before.username_is_generated
            && self.usernames.is_foreign(username).await
        {
            return Err(ChangeError::UsernameTaken);
        }
        let mut tx = platform::database::begin(&self.db).await?;
        // Claim the name before locking the account, in the same order as a login. A claim waits for concurrent claims
        // of the same name, so the opposite order could deadlock.
        if let Some(username) = &wanted
            && !self.usernames.claim_in(&mut tx, username, user).await?
        {
            return Err(if before.username_is_generated {
                ChangeError::UsernameTaken
            } else {
                ChangeError::UsernameChosen
            });
        }
        if !store::lock(&mut tx, user).await? {
            return Err(ChangeError::NoSuchAccount);
        }
        let before = store::find(&mut *tx, user, now).await?.ok_or(ChangeError::NoSuchAccount)?;
        let mut messages = Vec::new();
        let key = format!("user:{user}");
        if let Some(username) = &wanted {
            if !before.username_is_generated {
                return Err(ChangeError::UsernameChosen);
            }
            store::set_username(&mut tx, user, username).await?;
            let renamed = Renamed { user_id: user, from: before.username.clone(), to: username.clone() };
            messages.push(Message::new(RENAMED, key.clone(), &renamed)?);
        }
        let name = change.name.apply(before.name.clone().map(PersonName)).map(|name| name.0);
        let email = change.email.apply(before.email.clone().map(Email)).map(|email| email.0);
        let date_of_birth = change.date_of_birth.apply(before.date_of_birth);
        store::set_profile(&mut tx, user, name.as_deref(), email.as_deref(), date_of_birth).await?;
        if name != before.name {
            messages.push(Message::new(NAME_CHANGED, key, &NameChanged { user_id: user })?);
        }
        outbox::enqueue(&mut tx, &messages).await?;
        let after = store::find(&mut *tx, user, now).await?.ok_or(ChangeError::NoSuchAccount)?;
        tx.commit().await?;
        if !messages.is_empty() {
            self.outbox_written.notify_one();
        }
        Ok((after, wanted.is_some()))
    }
}
