//! Checks that the tables in `docs/coins.md` match the code.

use time::{Duration, macros::date};

use crate::{
    game::coins::rules::{Bonus, Paid},
    testing::{number_in, table_in, test_config},
};

fn table(before: &str) -> Vec<Vec<String>> {
    table_in("coins.md", before)
}

/// Returns `None` for an empty cell.
fn number(cell: &str) -> Option<i64> {
    (!cell.is_empty()).then(|| number_in(cell))
}

#[test]
fn document_lists_bonus_of_each_streak_day() {
    let bonus = Bonus { daily: 50, step: 10, most: 60 };
    let (mut streak, mut day) = (None, date!(2026 - 11 - 20));
    for row in table("Each day can be claimed once.") {
        let award = bonus.award(streak, day).expect("not claimed yet");
        let documented: Vec<i64> = row.iter().filter_map(|cell| number(cell)).collect();
        assert_eq!(documented, [award.streak.days.into(), award.bonus, award.coins]);
        (streak, day) = (Some(award.streak), day + Duration::DAY);
    }
}

#[test]
fn document_lists_payouts_after_corrections() {
    let (mut paid, mut wallet) = (Paid::default(), 0);
    for row in table("A fan predicted `home`") {
        let moved = number(&row[2]).expect("a number of coins");
        if let Some(due) = number(&row[1]) {
            let payout = paid.payout_for(due, wallet);
            assert_eq!((Some(payout.amount), Some(payout.written_off)), (Some(moved), number(&row[3])), "{row:?}");
            paid = paid.after(payout);
        }
        wallet += moved;
        assert_eq!((Some(paid.had), Some(wallet)), (number(&row[4]), number(&row[5])), "{row:?}");
    }
    assert_eq!(wallet, 10);
}

#[test]
fn document_lists_defaults_of_settings() {
    let settings = test_config(&[]).coins;
    let documented: Vec<String> = table("### Settings").into_iter().map(|row| row[1].clone()).collect();
    let numbers = [settings.welcome, settings.daily, settings.streak_step, settings.streak_most];
    let mut expected: Vec<String> = numbers.iter().map(u32::to_string).collect();
    expected.extend(["empty".to_owned(), settings.per_point.to_string()]);
    expected.extend([settings.writers.to_string(), settings.queue.to_string()]);
    assert!(settings.reasons.is_empty());
    assert_eq!(documented, expected);
}
