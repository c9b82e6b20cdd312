//! Scopes of server keys. No scope includes another one.

use std::{fmt, str::FromStr};

/// Declares the scopes, and a type for each, with which a handler states the scope that it needs.
macro_rules! scopes {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal),* $(,)?) => {
        /// What a key may do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Scope {
            $($(#[doc = $doc])* $name,)*
        }

        impl Scope {
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }

        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug)]
            pub enum $name {}

            impl Needs for $name {
                const SCOPE: Option<Scope> = Some(Scope::$name);
            }
        )*
    };
}

/// A requirement that a handler states.
pub trait Needs: Send + Sync + 'static {
    /// `None` if any valid key suffices.
    const SCOPE: Option<Scope>;
}

/// Any valid key suffices.
#[derive(Clone, Copy, Debug)]
pub enum AnyKey {}

impl Needs for AnyKey {
    const SCOPE: Option<Scope> = None;
}

scopes! {
    /// Look up users and their restrictions.
    UsersRead = "users:read",
    /// Restrict users and end their sessions.
    UsersWrite = "users:write",
    /// Read balances and transactions.
    CoinsRead = "coins:read",
    /// Grant and deduct coins, and reverse transactions.
    CoinsWrite = "coins:write",
    /// Import matches and set results.
    CatalogueWrite = "catalogue:write",
    /// List rooms.
    RoomsRead = "rooms:read",
    /// Post announcements.
    RoomsWrite = "rooms:write",
    /// Remove messages.
    ModerationWrite = "moderation:write",
    /// List, add and remove webhooks.
    WebhooksWrite = "webhooks:write",
    /// Remove members of leagues.
    LeaguesWrite = "leagues:write",
    /// Read facts.
    ExportRead = "export:read",
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Error for a text that is not the name of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be one of users:read, users:write, coins:read, coins:write, catalogue:write, rooms:read, rooms:write, \
         moderation:write, webhooks:write, leagues:write and export:read"
)]
pub struct UnknownScope;

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        Self::ALL.iter().copied().find(|scope| scope.name() == text).ok_or(UnknownScope)
    }
}
