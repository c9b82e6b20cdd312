//! Identifier types, which prevent passing the id of a team where the id of a match is expected.

/// Declares a newtype over `bigint`. Parsing accepts only values of at least 1.
macro_rules! id {
    ($($(#[doc = $doc:literal])* $name:ident $(as $schema:ident)?),* $(,)?) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize, sqlx::Type, utoipa::ToSchema)]
        #[serde(transparent)]
        #[sqlx(transparent)]
        #[schema($(as = $schema,)? value_type = i64, minimum = 1)]
        pub struct $name(pub i64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                // `parse` would also accept a leading `+`, which would give a resource two URLs.
                let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                text.parse().ok().filter(|&id: &i64| digits && id >= 1).map(Self).ok_or(())
            }
        }

        impl crate::fields::FromQuery for $name {
            const EXPECTED: &'static str = "must be a positive integer";

            fn from_query(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }

        impl crate::fields::FromJson for $name {
            const EXPECTED: &'static str = "must be a positive integer";

            fn from_json(value: &serde_json::Value) -> Option<Self> {
                crate::fields::whole_number(value).filter(|&id| id >= 1).map(Self)
            }
        }
    )*};
}

id! {
    /// Identifies a user account.
    UserId,
    /// Identifies a session of an account.
    SessionId,
    /// Identifies a sport such as football.
    SportId,
    /// Identifies a tournament with its matches.
    TournamentId,
    /// Identifies a team that plays matches.
    TeamId,
    /// Identifies the values by which points are computed.
    RuleSetId,
    /// Identifies a match, which the API calls an event.
    MatchId as EventId,
    /// Identifies a user's prediction of a match.
    PredictionId,
    /// Identifies a bonus question.
    QuestionId,
    /// Identifies a league of users.
    LeagueId,
    /// Identifies a chat room internally. Apps use the Matrix room id.
    RoomId,
    /// Identifies a webhook endpoint.
    EndpointId,
    /// Identifies a browser's push subscription.
    SubscriptionId,
    /// Identifies a key for the server API.
    ServerKeyId,
}
