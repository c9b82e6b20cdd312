//! Checks that the tables in `docs/points.md` match the code.

use scoring::{Confidence, Forecast, Hit, Margin, Multiplier, Outcome, Pick, Preview, RuleSet, Score, Terms};

use crate::testing::{number_in, table_in};

const TERMS: Terms = Terms::DEFAULT;

/// Returns the rows of the table under a heading.
fn table(heading: &str) -> Vec<Vec<String>> {
    table_in("points.md", &format!("## {heading}"))
}

fn number(cell: &str) -> i32 {
    i32::try_from(number_in(cell)).expect("a small number")
}

fn confidence(percent: i32) -> Confidence {
    Confidence::new(percent.into()).expect("a confidence")
}

/// Returns the points that a confidence adds if right and costs if wrong.
fn stakes(percent: i32) -> (i32, i32) {
    let with = Preview::of(Forecast::new(Pick::Home, None, confidence(percent)).expect("a forecast"), &TERMS);
    (with.right - RuleSet::DEFAULT.outcome, with.wrong)
}

fn goals(text: &str) -> (i32, i32) {
    let (home, away) = text.split_once('–').expect("a score");
    (number(home), number(away))
}

#[test]
fn document_lists_points_of_hits() {
    let documented: Vec<i32> = table("Points for a prediction").iter().map(|row| number(&row[1])).collect();
    assert_eq!(
        documented,
        [Hit::Exact, Hit::Difference, Hit::Outcome, Hit::Wrong].map(|hit| RuleSet::DEFAULT.base(hit))
    );
}

#[test]
fn document_lists_stakes_of_confidence() {
    let rows = table("Effect of confidence");
    let documented: Vec<_> = rows.iter().map(|row| (number(&row[0]), (number(&row[1]), number(&row[2])))).collect();
    let expected: Vec<_> = (0..=100).step_by(10).map(|percent| (percent, stakes(percent))).collect();
    assert_eq!(documented, expected);
}

#[test]
fn document_examples_earn_the_listed_points() {
    for row in table("Examples") {
        let (pick, score) =
            row[0].split_once(", ").map_or((row[0].as_str(), None), |(pick, score)| (pick, Some(score)));
        let score = score.map(goals).and_then(|(home, away)| Score::new(home.into(), away.into()));
        let forecast = Forecast::new(pick.parse().expect("a pick"), score, confidence(number(&row[1])));
        let (home, away) = goals(&row[2]);
        let points = forecast.expect("no contradiction").points(&TERMS, Outcome::result(home, away));
        assert_eq!(points, Some(number(&row[3])), "{row:?}");
        // The sum in the last cell has the same value.
        let sum = row[4].split(':').next().expect("a sum").replace("\u{2212} ", "-").replace("+ ", "");
        assert_eq!(points, Some(sum.split_whitespace().map(number).sum()), "{row:?}");
    }
}

/// Reads a prediction like `home, 2–1` with a confidence.
fn predicted(text: &str, percent: &str) -> Forecast {
    let (pick, score) = text.split_once(", ").map_or((text, None), |(pick, score)| (pick, Some(score)));
    let score = score.map(goals).and_then(|(home, away)| Score::new(home.into(), away.into()));
    let forecast = Forecast::new(pick.parse().expect("a pick"), score, confidence(number(percent)));
    forecast.expect("no contradiction")
}

#[test]
fn document_examples_of_knockout_matches_are_right() {
    let terms = Terms { is_knockout: true, ..TERMS };
    let rows = table("Knockout matches");
    assert_eq!(rows.len(), 4);
    for row in rows {
        let ((home, away), side) = (goals(&row[3]), |text: &str| text.parse().ok());
        let forecast = predicted(&row[0], &row[1]).with_advances(side(&row[2]));
        let points = forecast.points(&terms, Outcome::Result { home, away, advanced: side(&row[4]) });
        assert_eq!(points, Some(number(&row[5])), "{row:?}");
    }
}

#[test]
fn document_examples_of_multipliers_and_jokers_are_right() {
    let rows = table("Multipliers and jokers");
    assert_eq!(rows.len(), 6);
    for row in rows {
        let (home, away) = goals(&row[2]);
        let terms = Terms { multiplier: row[3].parse().expect("a multiplier"), ..TERMS };
        let forecast = predicted(&row[0], &row[1]).with_joker(row[4] == "yes");
        assert_eq!(forecast.points(&terms, Outcome::result(home, away)), Some(number(&row[5])), "{row:?}");
    }
    assert_eq!(TERMS.multiplier, Multiplier::One);
}

#[test]
fn document_lists_values_of_default_rule_set() {
    let RuleSet { outcome, difference, exact, margin, stake, advances } = RuleSet::DEFAULT;
    let values =
        [("outcome", outcome), ("difference", difference), ("exact", exact), ("stake", stake), ("advances", advances)];
    let documented: Vec<(String, String)> =
        table("Rule sets").iter().map(|row| (row[0].replace('`', ""), row[2].clone())).collect();
    let mut expected: Vec<(String, String)> =
        values.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
    expected.extend(
        [("joker", "0"), ("margin", "none"), ("multiplier", "none")].map(|(a, b)| (a.to_owned(), b.to_owned())),
    );
    assert_eq!(documented, expected);
    assert_eq!(margin, None);
}

#[test]
fn document_examples_of_margin_are_right() {
    let margin = Some(Margin { within: 5, points: 25 });
    let terms = Terms { rules: RuleSet { margin, stake: 10, ..RuleSet::DEFAULT }, ..TERMS };
    let rows = table_in("points.md", "### Write your own");
    assert_eq!(rows.len(), 6);
    for row in rows {
        let (home, away) = goals(&row[2]);
        let points = predicted(&row[0], &row[1]).points(&terms, Outcome::result(home, away));
        assert_eq!(points, Some(number(&row[3])), "{row:?}");
    }
}

#[test]
fn document_lists_expected_stakes() {
    let rows = table("Why honest confidence pays best");
    // Expected points at a probability of 60 percent, in tenths of a point.
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
