//! Making accounts and changing them.

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
    rules::{self, Email, PersonName},
    settings::Settings,
    store,
};
use crate::{
    coins::service::Coins,
    phone::Phone,
    safety::{
        phones::{RestrictError, RestrictedPhones},
        rules::{Term, Terms},
    },
    usernames::{Username, service::Usernames},
};

/// The subject on which a replaced username is told: the chat account moves along.
pub const RENAMED: &str = "work.chat.renamed";
/// The subject on which a changed name is told: chat shows it too.
pub const NAME_CHANGED: &str = "work.chat.name_changed";
/// The subject on which a new account is told.
pub const REGISTERED: &str = "fact.user.registered";

/// The accounts of everybody.
#[derive(Clone)]
pub struct Accounts {
    db: PgPool,
    usernames: Usernames,
    coins: Coins,
    minimum_age: u16,
    restricted_phones: RestrictedPhones,
    clock: Arc<dyn Clock>,
    outbox_written: Arc<Notify>,
}

/// An account.
#[derive(Clone, Debug)]
pub struct Account {
    /// Whose.
    pub id: UserId,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// What others know it by.
    pub username: Username,
    /// Whether the service made the username up; then it can be replaced.
    pub username_is_generated: bool,
    /// What it logs in with.
    pub phone: Option<Phone>,
    /// The person's name.
    pub name: Option<String>,
    /// The person's e-mail address.
    pub email: Option<String>,
    /// When the person was born.
    pub date_of_birth: Option<Date>,
    /// Whether the homeserver's account of that username was made by us.
    pub has_chat_account: bool,
    /// Since when they may not use the service.
    pub banned_at: Option<OffsetDateTime>,
    /// When the ban ends, if it has an end.
    pub banned_until: Option<OffsetDateTime>,
    /// Since when they may not speak in chat.
    pub muted_at: Option<OffsetDateTime>,
    /// When the mute ends, if it has an end.
    pub muted_until: Option<OffsetDateTime>,
}

impl Account {
    /// Whether they may say nothing in chat, for whatever reason.
    pub fn is_silenced(&self) -> bool {
        self.banned_at.is_some() || self.muted_at.is_some()
    }

    /// The account's ban and mute.
    pub(crate) fn terms(&self) -> Terms {
        let term = |since: Option<OffsetDateTime>, until| since.map(|since| Term { since, until });
        Terms { ban: term(self.banned_at, self.banned_until), mute: term(self.muted_at, self.muted_until) }
    }
}

/// What a person wants changed.
#[derive(Clone, Debug)]
pub struct ProfileChange {
    /// The name.
    pub name: Change<PersonName>,
    /// The e-mail address.
    pub email: Change<Email>,
    /// The date of birth.
    pub date_of_birth: Change<Date>,
    /// Another username than the one that was made up.
    pub username: Option<Username>,
}

/// A username was replaced.
#[derive(Debug, Serialize, Deserialize)]
pub struct Renamed {
    /// Whose.
    pub user_id: UserId,
    /// The one before.
    pub from: Username,
    /// The one now.
    pub to: Username,
}

/// A name changed.
#[derive(Debug, Serialize, Deserialize)]
pub struct NameChanged {
    /// Whose.
    pub user_id: UserId,
}

/// Somebody has an account now. Never with the phone: facts are read by many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// Who.
    pub user_id: UserId,
    /// What others know them by.
    pub username: Username,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// Why no account was made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// Somebody has or had it, or it is reserved.
    #[error("the username is taken")]
    UsernameTaken,
    /// The phone came to an account, or went from one, just now: look again.
    #[error("the phone changed hands meanwhile")]
    PhoneMoved,
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A message could not be written.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

/// Why an account was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no such account.
    #[error("the account does not exist")]
    NoSuchAccount,
    /// Somebody has or had it, or it is reserved.
    #[error("the username is taken")]
    UsernameTaken,
    /// It was chosen, at registration or since.
    #[error("the username was chosen already")]
    UsernameChosen,
    /// Not a past date, or too young.
    #[error("the person is not {minimum_age} years old")]
    TooYoung {
        /// In years.
        minimum_age: u16,
    },
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A message could not be written.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl From<RestrictError> for MakeError {
    fn from(error: RestrictError) -> Self {
        match error {
            RestrictError::Database(error) => Self::Database(error),
            RestrictError::Message(error) => Self::Message(error),
        }
    }
}

impl Accounts {
    /// Accounts in this database.
    pub fn new(
        core: &Core,
        settings: &Settings,
        usernames: Usernames,
        coins: Coins,
        restricted_phones: RestrictedPhones,
    ) -> Self {
        let Core { db, clock, outbox_written, .. } = core.clone();
        Self { db, usernames, coins, minimum_age: settings.minimum_age, restricted_phones, clock, outbox_written }
    }

    /// The account.
    pub async fn find(&self, user: UserId) -> sqlx::Result<Option<Account>> {
        store::find(&self.db, user, self.clock.now()).await
    }

    /// The account with this username.
    pub async fn named(&self, username: &str) -> sqlx::Result<Option<Account>> {
        let mut connection = self.db.acquire().await?;
        let owner = store::behind(&mut connection, &[username]).await?.users.into_values().next();
        match owner {
            Some(owner) => store::find(&mut *connection, owner, self.clock.now()).await,
            None => Ok(None),
        }
    }

    /// The account that a phone logs in to, made if there is none; and whether it was made. In the caller's
    /// transaction, which must be given up on any error.
    pub async fn find_or_make_in(
        &self,
        connection: &mut PgConnection,
        phone: &Phone,
        username: Option<&Username>,
    ) -> Result<(Account, bool), MakeError> {
        let Some(owner) = store::phone_owner(connection, phone).await? else {
            let mut account = self.make_in(connection, Some(phone), username).await?;
            let (user_id, username, created_at) = (account.id, account.username.clone(), account.created_at);
            let registered = Registered { user_id, username, created_at };
            let message = Message::new(REGISTERED, format!("user:{user_id}"), &registered)?;
            outbox::enqueue(connection, &[message]).await?;
            self.restricted_phones.apply_in(connection, &mut account, phone, self.clock.now()).await?;
            return Ok((account, true));
        };
        store::lock(connection, owner).await?;
        // The owner may have moved to another phone before the lock.
        if store::phone_owner(connection, phone).await? != Some(owner) {
            return Err(MakeError::PhoneMoved);
        }
        let account = store::find(connection, owner, self.clock.now()).await?;
        account.map(|account| (account, false)).ok_or(MakeError::Database(sqlx::Error::RowNotFound))
    }

    async fn make_in(
        &self,
        connection: &mut PgConnection,
        phone: Option<&Phone>,
        username: Option<&Username>,
    ) -> Result<Account, MakeError> {
        let now = self.clock.now();
        let id = match phone {
            Some(phone) => store::claim_phone_for_new(connection, phone, now).await?.ok_or(MakeError::PhoneMoved)?,
            None => store::next_id(connection).await?,
        };
        let chosen = match username {
            Some(wanted) if !self.usernames.claim_in(connection, wanted, id).await? => {
                return Err(MakeError::UsernameTaken);
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
            email: None,
            date_of_birth: None,
            has_chat_account: false,
            banned_at: None,
            banned_until: None,
            muted_at: None,
            muted_until: None,
        };
        store::insert(connection, &account).await?;
        self.coins.welcome_in(connection, id).await?;
        Ok(account)
    }

    /// Whether the homeserver has an account of that name that is not ours, see [`Usernames::is_foreign`].
    pub async fn is_foreign_name(&self, username: &Username) -> bool {
        self.usernames.is_foreign(username).await
    }

    /// Lets a user replace their username once more, because the homeserver's account of that name is not ours.
    pub async fn allow_another_username(&self, user: UserId, username: &Username) -> sqlx::Result<()> {
        store::allow_another_username(&self.db, user, username).await
    }

    /// Makes the restrictions of an account follow a phone that the account releases, in the caller's transaction. Whoever
    /// takes a phone from an account must call this, or [`Self::carry_restrictions_in`].
    pub async fn keep_restrictions_in(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        released: &Phone,
    ) -> sqlx::Result<()> {
        let Some(account) = store::find(&mut *connection, user, self.clock.now()).await? else { return Ok(()) };
        self.restricted_phones.keep_in(connection, &account, released).await
    }

    /// The same for an account that moves to another phone, whose restrictions then apply to the account.
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

    /// Takes note that the homeserver's account of that username is this account's.
    pub async fn note_chat_account(&self, user: UserId, username: &Username) -> sqlx::Result<()> {
        store::note_chat_account(&self.db, user, username).await
    }

    /// The transaction in which an account was made is committed: what was written of it can be published.
    pub fn note_made(&self) {
        metrics::counter!("matchday_accounts_made_total").increment(1);
        self.outbox_written.notify_one();
    }

    /// Makes an account that nobody can log in to, for development and tests. Nobody registered, so nobody is told.
    pub async fn make_without_phone(&self) -> Result<UserId, MakeError> {
        let mut tx = self.db.begin().await?;
        let account = self.make_in(&mut tx, None, None).await?;
        tx.commit().await?;
        Ok(account.id)
    }

    /// Changes what the person wants changed; returns the account as it is then, and whether its username is a new one.
    pub async fn change(&self, user: UserId, change: ProfileChange) -> Result<(Account, bool), ChangeError> {
        let now = self.clock.now();
        if let Change::Set(born) = change.date_of_birth
            && !rules::is_old_enough(born, self.minimum_age, now.date())
        {
            return Err(ChangeError::TooYoung { minimum_age: self.minimum_age });
        }
        let before = self.find(user).await?.ok_or(ChangeError::NoSuchAccount)?;
        // A form that is sent back as it was changes nothing.
        let wanted = change.username.filter(|wanted| *wanted != before.username);
        if let Some(username) = &wanted
            && before.username_is_generated
            && self.usernames.is_foreign(username).await
        {
            return Err(ChangeError::UsernameTaken);
        }
        let mut tx = self.db.begin().await?;
        // A name that somebody else claims meanwhile is waited for before this account is locked, as in a login: two
        // transactions that wait for each other's claims could otherwise hold each other up.
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
