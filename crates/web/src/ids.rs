//! Identifiers: a number that names a team cannot be handed in where a match is meant.

/// Declares a newtype over `bigint` that is at least 1 wherever it was parsed.
macro_rules! id {
    ($($(#[doc = $doc:literal])* $name:ident),* $(,)?) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, sqlx::Type, utoipa::ToSchema)]
        #[serde(transparent)]
        #[sqlx(transparent)]
        #[schema(value_type = i64, minimum = 1)]
        pub struct $name(pub i64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                // `parse` would also take a leading `+`, giving one thing two addresses.
                let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                text.parse().ok().filter(|&id: &i64| digits && id >= 1).map(Self).ok_or(())
            }
        }

        impl crate::fields::FromQuery for $name {
            const EXPECTED: &'static str = "must be an id";

            fn from_query(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }

        impl crate::fields::FromJson for $name {
            const EXPECTED: &'static str = "must be an id, a whole number from 1";

            fn from_json(value: &serde_json::Value) -> Option<Self> {
                crate::fields::whole_number(value).filter(|&id| id >= 1).map(Self)
            }
        }
    )*};
}

id! {
    /// An account.
    UserId,
    /// A login of an account.
    SessionId,
    /// A sport.
    SportId,
    /// A tournament.
    TournamentId,
    /// A team.
    TeamId,
    /// A match.
    EventId,
    /// What a user predicts of a match.
    PredictionId,
    /// A chat room, as this service counts them. Apps know it by the homeserver's id.
    RoomId,
    /// An address that webhooks go to.
    EndpointId,
    /// A browser that a user wants to be notified in.
    SubscriptionId,
}
