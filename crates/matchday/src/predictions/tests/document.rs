//! The document about points says what the code does.

use scoring::{Confidence, Forecast, Hit, Outcome, Pick, Preview, RulesVersion, Score};

use crate::testing::{number_in, table_in};

const RULES: RulesVersion = RulesVersion::CURRENT;

/// The rows of the table under a heading.
fn table(heading: &str) -> Vec<Vec<String>> {
    table_in("points.md", &format!("## {heading}"))
}

fn number(cell: &str) -> i32 {
    i32::try_from(number_in(cell)).expect("a small one")
}

fn confidence(percent: i32) -> Confidence {
    Confidence::new(percent.into()).expect("a confidence")
}

/// What a confidence adds, and what it takes.
fn stakes(percent: i32) -> (i32, i32) {
    let with = Preview::of(Forecast::new(Pick::Home, None, confidence(percent)).expect("a forecast"), RULES);
    (with.right - Hit::Outcome.points(), with.wrong - Hit::Wrong.points())
}

fn goals(text: &str) -> (i32, i32) {
    let (home, away) = text.split_once(':').expect("two numbers of goals");
    (number(home), number(away))
}

#[test]
fn the_document_says_what_a_hit_is_worth() {
    let said: Vec<i32> = table("What a prediction earns").iter().map(|row| number(&row[1])).collect();
    assert_eq!(said, [Hit::Exact, Hit::Difference, Hit::Outcome, Hit::Wrong].map(Hit::points));
}

#[test]
fn the_document_says_what_confidence_adds_or_takes() {
    let rows = table("What confidence adds or takes");
    let said: Vec<_> = rows.iter().map(|row| (number(&row[0]), (number(&row[1]), number(&row[2])))).collect();
    let expected: Vec<_> = (0..=100).step_by(10).map(|percent| (percent, stakes(percent))).collect();
    assert_eq!(said, expected);
}

#[test]
fn the_examples_of_the_document_earn_what_it_says() {
    for row in table("Examples") {
        let (pick, score) =
            row[0].split_once(", ").map_or((row[0].as_str(), None), |(pick, score)| (pick, Some(score)));
        let score = score.map(goals).and_then(|(home, away)| Score::new(home.into(), away.into()));
        let said = Forecast::new(pick.parse().expect("a pick"), score, confidence(number(&row[1])));
        let (home, away) = goals(&row[2]);
        let points = said.expect("no contradiction").points(RULES, Outcome::Result { home, away });
        assert_eq!(points, Some(number(&row[3])), "{row:?}");
        // The sum in the last cell is the same.
        let sum = row[4].split(':').next().expect("a sum").replace("\u{2212} ", "-").replace("+ ", "");
        assert_eq!(points, Some(sum.split_whitespace().map(number).sum()), "{row:?}");
    }
}

#[test]
fn the_document_says_what_honesty_brings() {
    let rows = table("Why honest confidence pays best");
    // At a chance of six in ten, in tenths of a point.
    let expected = |percent| {
        let (gain, loss) = stakes(percent);
        6 * gain + 4 * loss
    };
    for row in &rows {
        let tenths = expected(number(&row[0]));
        assert_eq!(row[1], format!("{}.{}", tenths / 10, tenths % 10), "{row:?}");
    }
    let best = rows.iter().map(|row| number(&row[0])).max_by_key(|&percent| expected(percent));
    assert_eq!(best, Some(60));
}
