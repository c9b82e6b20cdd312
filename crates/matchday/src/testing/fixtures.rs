//! Builders for a catalogue: `fixtures.a_match("m").between("rovers", "city").starting_in(2.hours()).put().await`.

use platform::clock::Clock as _;
use serde_json::{Value, json};
use time::{Duration, format_description::well_known::Rfc3339};

use super::{TestApp, unique};
use crate::catalogue::fixtures::{
    document::Document,
    service::{Mode, Report},
};

const TEAMS: [(&str, &str); 4] =
    [("rovers", "Rovers"), ("city", "City"), ("albion", "Albion"), ("wanderers", "Wanderers")];

/// One tournament with four teams.
pub struct TestFixtures<'a> {
    app: &'a TestApp,
    /// Part of every name and slug, so a test can use several tournaments.
    pub tag: String,
}

impl<'a> TestFixtures<'a> {
    pub(super) fn new(app: &'a TestApp) -> Self {
        Self { app, tag: unique("f").replace('_', "") }
    }

    /// Starts building a match.
    pub fn a_match(&self, key: &str) -> MatchBuilder<'_, 'a> {
        MatchBuilder {
            fixtures: self,
            key: key.to_owned(),
            home: "rovers",
            away: "city",
            starts_in: Duration::hours(2),
            status: "scheduled",
            score: None,
            more: json!({}),
        }
    }

    /// Builds a fixture document with these matches.
    pub fn document(&self, matches: &[Value]) -> Value {
        let teams: Vec<Value> = TEAMS
            .iter()
            .zip(1900..)
            .map(|((slug, name), founded)| {
                json!({"slug": self.slug(slug), "name": format!("{name} {}", self.tag), "country": "Testland",
                       "founded": founded, "logo": format!("https://cdn.example.org/{slug}.png")})
            })
            .collect();
        json!({
            "sport": {"slug": "football", "name": "Football"},
            "tournament": {"slug": format!("cup_{}", self.tag), "name": format!("Cup {}", self.tag),
                           "logo": "https://cdn.example.org/cup.png"},
            "teams": teams,
            "matches": matches,
        })
    }

    /// Imports matches and discards the messages that this publishes.
    pub async fn import(&self, matches: &[Value]) -> Report {
        let report = self.write(matches).await;
        self.app.published().await;
        report
    }

    /// Imports matches and leaves the messages in the outbox for the test.
    pub async fn write(&self, matches: &[Value]) -> Report {
        let document = Document::parse(&self.document(matches).to_string()).expect("a valid document");
        self.app.app.fixtures.import(&document, Mode::Write, |_| {}).await.expect("imported")
    }

    /// Imports matches in a document with further fields, such as `rule_sets`. Fields that the document has already are
    /// replaced. Returns the ids of the matches.
    pub async fn import_with(&self, more: Value, matches: &[Value]) -> Vec<i64> {
        let mut document = self.document(matches);
        merge(&mut document, &more);
        let document = Document::parse(&document.to_string()).expect("a valid document");
        self.app.app.fixtures.import(&document, Mode::Write, |_| {}).await.expect("imported");
        self.app.published().await;
        let mut ids = Vec::with_capacity(matches.len());
        for entry in matches {
            let id = sqlx::query_scalar("select id from events where key = $1").bind(entry["key"].as_str());
            ids.push(id.fetch_one(&self.app.app.core.db).await.expect("an imported match"));
        }
        ids
    }

    /// Imports the teams without matches.
    pub async fn import_teams(&self) -> Report {
        self.import(&[]).await
    }

    pub fn slug(&self, team: &str) -> String {
        format!("{team}_{}", self.tag)
    }

    pub async fn team_id(&self, team: &str) -> i64 {
        sqlx::query_scalar("select id from teams where slug = $1")
            .bind(self.slug(team))
            .fetch_one(&self.app.app.core.db)
            .await
            .expect("an imported team")
    }
}

/// Adds the fields of an object to another one.
fn merge(into: &mut Value, more: &Value) {
    if let (Some(into), Some(more)) = (into.as_object_mut(), more.as_object()) {
        into.extend(more.clone());
    }
}

/// Builder of one match in a fixture document.
pub struct MatchBuilder<'f, 'a> {
    fixtures: &'f TestFixtures<'a>,
    key: String,
    home: &'static str,
    away: &'static str,
    starts_in: Duration,
    status: &'static str,
    score: Option<(i32, i32)>,
    more: Value,
}

impl MatchBuilder<'_, '_> {
    /// Sets the two teams.
    #[must_use]
    pub fn between(mut self, home: &'static str, away: &'static str) -> Self {
        (self.home, self.away) = (home, away);
        self
    }

    /// Sets the start relative to the test's clock; negative for the past.
    #[must_use]
    pub fn starting_in(mut self, time: Duration) -> Self {
        self.starts_in = time;
        self
    }

    /// Sets the status, without a score.
    #[must_use]
    pub fn being(mut self, status: &'static str) -> Self {
        self.status = status;
        self
    }

    /// Sets the status and the score.
    #[must_use]
    pub fn at(mut self, status: &'static str, home: i32, away: i32) -> Self {
        self.status = status;
        self.score = Some((home, away));
        self
    }

    /// Sets further fields of the entry, as in `{"round": 3}`.
    #[must_use]
    pub fn with(mut self, more: Value) -> Self {
        self.more = more;
        self
    }

    /// Renders the match as an entry of a fixture document.
    pub fn json(&self) -> Value {
        let start = self.fixtures.app.clock.now() + self.starts_in;
        let mut entry = json!({
            "key": format!("{}-{}", self.key, self.fixtures.tag),
            "home": self.fixtures.slug(self.home),
            "away": self.fixtures.slug(self.away),
            "start_time": start.format(&Rfc3339).expect("a moment"),
            "venue": "Test Park",
            "status": self.status,
            "home_score": self.score.map(|(home, _)| home),
            "away_score": self.score.map(|(_, away)| away),
        });
        merge(&mut entry, &self.more);
        entry
    }

    /// Imports the match and returns its id.
    pub async fn put(self) -> i64 {
        let json = self.json();
        self.fixtures.import(std::slice::from_ref(&json)).await;
        sqlx::query_scalar("select id from events where key = $1")
            .bind(json["key"].as_str())
            .fetch_one(&self.fixtures.app.app.core.db)
            .await
            .expect("an imported match")
    }
}
