//! Questions, answers and their points; no I/O.

use std::{borrow::Cow, collections::HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr,
        schema::{ObjectBuilder, Schema, SchemaType},
    },
};
use web::{
    fields::{FromJson, FromQuery, whole_number},
    ids::{MatchId, QuestionId, TournamentId},
};

pub(super) use crate::catalogue::fixtures::document::{NumberScoring, QuestionKind};

/// Greatest number that can be answered.
const MOST_NUMBER: i64 = 1_000_000;

/// Whether a question takes answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = QuestionStatus)]
pub enum Status {
    Open,
    /// It is too late to answer, and the question is not resolved yet.
    Locked,
    Resolved,
    Void,
}

impl Status {
    const ALL: [Self; 4] = [Self::Open, Self::Locked, Self::Resolved, Self::Void];

    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Locked => "locked",
            Self::Resolved => "resolved",
            Self::Void => "void",
        }
    }

    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl FromQuery for Status {
    const EXPECTED: &'static str = "must be open, locked, resolved or void";

    fn from_query(text: &str) -> Option<Self> {
        Self::of_name(text)
    }
}

/// An option of a question. It keeps its number when options are added or labels change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    pub number: u8,
    pub key: String,
    pub label: String,
}

impl Choice {
    /// Value of an answer with this option only.
    pub fn bit(&self) -> i64 {
        1 << self.number.min(62)
    }
}

/// Answer to a question: the key of an option, the id of a team or a number, or the keys of several options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    Key(String),
    Number(i64),
    Keys(Vec<String>),
}

impl PartialSchema for Answer {
    fn schema() -> RefOr<Schema> {
        any_of_a_kind(
            "Depends on the `kind` of the question: the key of an option (`choice`), the id of a team (`team`), a number \
             (`number`), or a list of keys (`several_of`).",
            [json!("ada"), json!(3), json!(["ada", "grace"])],
        )
    }
}

impl ToSchema for Answer {}

/// Describes a value without its type: generated clients with static types have no union of a number and a list. Some do not
/// compile, others lose the value.
fn any_of_a_kind(description: &str, examples: impl IntoIterator<Item = Value>) -> RefOr<Schema> {
    let schema = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
    schema.description(Some(description)).examples(examples).into()
}

impl FromJson for Answer {
    const EXPECTED: &'static str = "must be the key of an option, the id of a team, a number, or a list of keys";

    fn from_json(value: &serde_json::Value) -> Option<Self> {
        if let Some(keys) = value.as_array() {
            let keys: Option<Vec<String>> = keys.iter().map(|key| key.as_str().map(str::to_owned)).collect();
            return keys.map(Self::Keys);
        }
        value.as_str().map(|key| Self::Key(key.to_owned())).or_else(|| whole_number(value).map(Self::Number))
    }
}

/// Right answers to a question: keys of options, ids of teams, or a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Resolution {
    Keys(Vec<String>),
    Teams(Vec<i64>),
    Number(i64),
}

impl PartialSchema for Resolution {
    fn schema() -> RefOr<Schema> {
        any_of_a_kind(
            "Depends on the `kind` of the question: keys of options (`choice`, `several_of`), ids of teams (`team`), or a \
             number (`number`). Null unless the question is resolved.",
            [json!(["ada"]), json!([3]), json!(171)],
        )
    }
}

impl ToSchema for Resolution {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("QuestionResolution")
    }
}

/// What an answer to a question may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub kind: QuestionKind,
    /// In the order shown.
    pub options: Vec<Choice>,
    /// Number of options in an answer, for `several_of`.
    pub pick: Option<i16>,
}

impl Shape {
    /// Returns the value under which an answer is stored; `None` if the question does not allow the answer. `teams` are
    /// the teams that can be answered.
    pub fn value(&self, answer: &Answer, teams: &[i64]) -> Option<i64> {
        match (self.kind, answer) {
            (QuestionKind::Choice, Answer::Key(key)) => self.bit(key),
            (QuestionKind::Team, Answer::Number(id)) => teams.contains(id).then_some(*id),
            (QuestionKind::Number, Answer::Number(number)) => (0..=MOST_NUMBER).contains(number).then_some(*number),
            (QuestionKind::SeveralOf, Answer::Keys(keys)) => {
                let bits: Option<HashSet<i64>> = keys.iter().map(|key| self.bit(key)).collect();
                let wanted = usize::try_from(self.pick?).ok()?;
                bits.filter(|bits| bits.len() == keys.len() && keys.len() == wanted).map(|bits| bits.iter().sum())
            }
            _ => None,
        }
    }

    fn bit(&self, key: &str) -> Option<i64> {
        self.options.iter().find(|option| option.key == key).map(Choice::bit)
    }

    /// Keys of the options in a stored value, in the order shown.
    fn keys(&self, value: i64) -> Vec<String> {
        self.options.iter().filter(|option| value & option.bit() != 0).map(|option| option.key.clone()).collect()
    }

    /// Returns a stored value as an answer.
    pub fn answer(&self, value: i64) -> Answer {
        match self.kind {
            QuestionKind::Choice => Answer::Key(self.keys(value).pop().unwrap_or_default()),
            QuestionKind::SeveralOf => Answer::Keys(self.keys(value)),
            QuestionKind::Team | QuestionKind::Number => Answer::Number(value),
        }
    }

    /// Returns a stored resolution.
    pub fn resolution(&self, values: &[i64]) -> Resolution {
        let first = values.first().copied().unwrap_or_default();
        match self.kind {
            QuestionKind::Choice | QuestionKind::SeveralOf => Resolution::Keys(self.keys(first)),
            QuestionKind::Team => {
                let mut teams = values.to_vec();
                teams.sort_unstable();
                Resolution::Teams(teams)
            }
            QuestionKind::Number => Resolution::Number(first),
        }
    }

    /// Returns the choices that an answer counts for in the tally: numbers of options, the team, or 0.
    pub fn choices(&self, value: i64) -> Vec<i64> {
        match self.kind {
            QuestionKind::Choice | QuestionKind::SeveralOf => {
                let chosen = self.options.iter().filter(|option| value & option.bit() != 0);
                chosen.map(|option| i64::from(option.number)).collect()
            }
            QuestionKind::Team => vec![value],
            QuestionKind::Number => vec![0],
        }
    }

    /// Name of a choice of the tally in a distribution; `None` for numbers, which have none.
    pub fn choice_name(&self, choice: i64) -> Option<String> {
        match self.kind {
            QuestionKind::Choice | QuestionKind::SeveralOf => {
                self.options.iter().find(|option| i64::from(option.number) == choice).map(|option| option.key.clone())
            }
            QuestionKind::Team => Some(choice.to_string()),
            QuestionKind::Number => None,
        }
    }

    /// Number of answers behind the sum of all choices in the tally.
    pub fn answers(&self, choices: i64) -> i64 {
        choices / self.pick.map_or(1, i64::from).max(1)
    }
}

/// What the points of an answer depend on, besides the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    pub scoring: Option<NumberScoring>,
    pub points: i32,
    /// Right answers, as stored.
    pub resolution: Vec<i64>,
    /// For the nearest number: the smallest distance of an answer.
    pub distance: Option<i64>,
}

/// Returns the points of an answer. The SQL function `answer_points` does the same; a test compares them.
pub(super) fn points(kind: QuestionKind, terms: &Terms, value: i64) -> i32 {
    let first = terms.resolution.first().copied().unwrap_or_default();
    let right = match (kind, terms.scoring) {
        (QuestionKind::Choice | QuestionKind::SeveralOf, _) => (value & first).count_ones(),
        (QuestionKind::Team, _) => u32::from(terms.resolution.contains(&value)),
        (QuestionKind::Number, Some(NumberScoring::Nearest)) => {
            u32::from(terms.distance == Some((value - first).abs()))
        }
        (QuestionKind::Number, _) => u32::from(value == first),
    };
    terms.points * i32::try_from(right).unwrap_or_default()
}

/// A question as users see it.
#[derive(Clone, Debug)]
pub struct Question {
    pub id: QuestionId,
    pub tournament_id: TournamentId,
    /// Round of the question, or of its match.
    pub round: Option<i16>,
    pub event_id: Option<MatchId>,
    pub text: String,
    pub shape: Shape,
    pub scoring: Option<NumberScoring>,
    pub points: i32,
    pub locks_at: OffsetDateTime,
    pub status: Status,
    /// Present if the question is resolved.
    pub terms: Option<Terms>,
    /// Sum of the tally.
    pub choices: i64,
}

impl Question {
    /// Points of an answer; `None` unless the question is resolved.
    pub fn earned(&self, value: i64) -> Option<i32> {
        self.terms.as_ref().map(|terms| points(self.shape.kind, terms, value))
    }

    pub fn answers_count(&self) -> i64 {
        self.shape.answers(self.choices)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shape(kind: QuestionKind, pick: Option<i16>) -> Shape {
        let option = |number: u8, key: &str| Choice { number, key: key.to_owned(), label: key.to_owned() };
        // Shown in another order than added.
        let options = vec![option(1, "bea"), option(0, "ada"), option(31, "zoe")];
        Shape { kind, options: if kind.has_options() { options } else { Vec::new() }, pick }
    }

    fn answer(value: &serde_json::Value) -> Option<Answer> {
        Answer::from_json(value)
    }

    #[test]
    fn answers_are_stored_and_shown_in_order_of_options() {
        let several = shape(QuestionKind::SeveralOf, Some(2));
        let value = several.value(&answer(&json!(["zoe", "bea"])).expect("an answer"), &[]);
        assert_eq!(value, Some((1 << 31) + 2));
        assert_eq!(several.answer((1 << 31) + 2), Answer::Keys(vec!["bea".to_owned(), "zoe".to_owned()]));
        assert_eq!((several.choices((1 << 31) + 2), several.answers(10)), (vec![1, 31], 5));
        assert_eq!(several.resolution(&[3]), Resolution::Keys(vec!["bea".to_owned(), "ada".to_owned()]));
        let choice = shape(QuestionKind::Choice, None);
        assert_eq!(choice.answer(1), Answer::Key("ada".to_owned()));
        assert_eq!((choice.choice_name(31), choice.choice_name(5)), (Some("zoe".to_owned()), None));
    }

    #[test]
    fn answers_must_fit_the_kind() {
        let cases = [
            (QuestionKind::Choice, None, json!("ada"), true),
            (QuestionKind::Choice, None, json!("eve"), false),
            (QuestionKind::Choice, None, json!(["ada"]), false),
            (QuestionKind::Team, None, json!(7), true),
            (QuestionKind::Team, None, json!(8), false),
            (QuestionKind::Number, None, json!(1_000_000), true),
            (QuestionKind::Number, None, json!(1_000_001), false),
            (QuestionKind::Number, None, json!(-1), false),
            (QuestionKind::Number, None, json!("7"), false),
            (QuestionKind::SeveralOf, Some(2), json!(["ada", "zoe"]), true),
            (QuestionKind::SeveralOf, Some(2), json!(["ada", "ada"]), false),
            (QuestionKind::SeveralOf, Some(2), json!(["ada"]), false),
            (QuestionKind::SeveralOf, Some(2), json!(["ada", "bea", "zoe"]), false),
        ];
        for (kind, pick, value, fits) in cases {
            let stored = answer(&value).and_then(|answer| shape(kind, pick).value(&answer, &[7]));
            assert_eq!(stored.is_some(), fits, "{kind:?} {value}");
        }
        for value in [json!(1.5), json!(null), json!({}), json!(["ada", 1]), json!(true)] {
            assert_eq!(answer(&value), None, "{value}");
        }
    }
}
