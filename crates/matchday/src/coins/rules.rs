//! What coins may do; no I/O and no clock.

use std::{fmt, str::FromStr};

use time::{Date, OffsetDateTime, Time};
use uuid::Uuid;

/// The most coins that a wallet holds: the greatest number that every client reads exactly.
pub const MOST: i64 = (1 << 53) - 1;

/// How many coins are to be moved: 1 to 1,000,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoinAmount(i64);

impl CoinAmount {
    /// The most that is moved at once.
    pub const MOST: i64 = 1_000_000_000;

    /// So many coins, if that is a number that can be moved.
    pub fn new(coins: i64) -> Option<Self> {
        (1..=Self::MOST).contains(&coins).then_some(Self(coins))
    }

    /// How many.
    pub fn coins(self) -> i64 {
        self.0
    }
}

impl FromStr for CoinAmount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let coins = text.parse().ok().and_then(Self::new);
        coins.ok_or_else(|| format!("must be a whole number from 1 to {}", Self::MOST))
    }
}

/// What a deduction is for, as the app says it.
pub type Reason = platform::settings::Phrase;

/// What an app calls a movement of coins, so that it happens once however often it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference(String);

impl Reference {
    /// Reads one: up to 128 characters that can be seen or are spaces.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (1..=128).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        fits.then(|| Self(text.to_owned()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Reference {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).ok_or("must have 1 to 128 characters, none of them a control character")
    }
}

/// What an operator says of a movement of coins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark(String);

impl Remark {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Remark {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let fits = (1..=200).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        fits.then(|| Self(text.to_owned())).ok_or("must have 1 to 200 characters on one line")
    }
}

/// What clients know a transaction by: `txn_` and a UUID of version 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, sqlx::Type)]
#[sqlx(transparent)]
pub struct TransactionId(pub Uuid);

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "txn_{}", self.0)
    }
}

impl FromStr for TransactionId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uuid = text.strip_prefix("txn_").and_then(|uuid| Uuid::try_parse(uuid).ok());
        uuid.map(Self).ok_or("must look like txn_0192f0c1-2345-7abc-8def-0123456789ab")
    }
}

/// Why coins moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, sqlx::Type, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[schema(as = CoinTransactionKind)]
pub enum Kind {
    /// A new account.
    Welcome,
    /// The daily bonus.
    Daily,
    /// The user spent them.
    Deduction,
    /// An operator gave them.
    Grant,
    /// An operator took another transaction back.
    Reversal,
    /// Points became coins, or a corrected result took some of them back.
    Points,
}

impl Kind {
    /// As it is stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Welcome => "welcome",
            Self::Daily => "daily",
            Self::Deduction => "deduction",
            Self::Grant => "grant",
            Self::Reversal => "reversal",
            Self::Points => "points",
        }
    }
}

/// What the daily bonus is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bonus {
    /// On the first day, and every day.
    pub daily: i64,
    /// More for each further day in a row.
    pub step: i64,
    /// At most so much more.
    pub most: i64,
}

/// Days in a row on which a user claimed the bonus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streak {
    /// The last of them, in UTC.
    pub last: Date,
    /// How many.
    pub days: i32,
}

impl Streak {
    /// How many days it has on a day: none once a day was missed.
    pub fn days_on(self, today: Date) -> i32 {
        let is_alive = self.last >= today || self.last.next_day() == Some(today);
        if is_alive { self.days } else { 0 }
    }
}

/// What somebody gets on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Award {
    /// The streak with this day.
    pub streak: Streak,
    /// The part that is for it.
    pub bonus: i64,
    /// All of it.
    pub coins: i64,
}

impl Bonus {
    /// What a user with that streak gets today; nothing if they have had it. A claim of a day to come, by a clock that is
    /// ahead of this one, is one too.
    pub fn award(self, before: Option<Streak>, today: Date) -> Option<Award> {
        if before.is_some_and(|streak| streak.last >= today) {
            return None;
        }
        let days = before.map_or(0, |streak| streak.days_on(today)).saturating_add(1);
        let bonus = self.step.saturating_mul(i64::from(days - 1)).min(self.most);
        Some(Award { streak: Streak { last: today, days }, bonus, coins: self.daily.saturating_add(bonus) })
    }
}

/// When the day after this one begins.
pub fn next_midnight(today: Date) -> OffsetDateTime {
    today.next_day().unwrap_or(Date::MAX).with_time(Time::MIDNIGHT).assume_utc()
}

/// What a user has had of a match's points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paid {
    /// What they have had in all: what was paid, without what was taken back.
    pub had: i64,
    /// How much of that should have been taken back, but was spent. Nobody is asked for it again.
    pub written_off: i64,
}

/// What a result changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payout {
    /// What the result is worth.
    pub due: i64,
    /// What the wallet gains; below zero what it loses.
    pub amount: i64,
    /// How much of what should be taken back is not there.
    pub written_off: i64,
}

impl Paid {
    /// Brings a user to what a result is worth to them, with so much in their wallet. What was once written off is not
    /// taken later; but it is not paid a second time either. A wallet that is full takes the rest with a later result.
    pub fn bring_to(self, due: i64, balance: i64) -> Payout {
        if due > self.had {
            let room = (MOST - balance).max(0);
            return Payout { due, amount: (due - self.had).min(room), written_off: 0 };
        }
        let wanted = (self.had - self.written_off - due).max(0);
        let taken = wanted.min(balance);
        Payout { due, amount: -taken, written_off: wanted - taken }
    }

    /// How it stands after that.
    #[must_use]
    pub fn after(self, payout: Payout) -> Self {
        Self { had: self.had + payout.amount, written_off: self.written_off + payout.written_off }
    }
}

/// What points are worth. Points below zero cost nothing: nobody staked any coins.
pub fn worth(points: i32, per_point: i64) -> i64 {
    i64::from(points.max(0)).saturating_mul(per_point)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::{Duration, macros::date};

    use super::*;

    const BONUS: Bonus = Bonus { daily: 50, step: 10, most: 60 };

    #[test]
    fn a_streak_grows_to_its_cap_and_restarts_after_a_missed_day() {
        let mut streak = None;
        let mut day = date!(2028 - 02 - 26);
        let mut awards = Vec::new();
        for claims in [true, true, true, true, true, true, true, true, true, false, true, true] {
            if claims {
                let award = BONUS.award(streak, day).expect("not claimed yet");
                assert_eq!(BONUS.award(Some(award.streak), day), None, "once a day");
                awards.push((award.streak.days, award.bonus, award.coins));
                streak = Some(award.streak);
            }
            day = day.next_day().expect("a day");
        }
        let growing = [(1, 0), (2, 10), (3, 20), (4, 30), (5, 40), (6, 50), (7, 60), (8, 60), (9, 60), (1, 0), (2, 10)];
        assert_eq!(awards, growing.map(|(days, bonus)| (days, bonus, 50 + bonus)));
    }

    #[test]
    fn a_day_ends_at_midnight_utc_to_the_second() {
        let last = time::macros::datetime!(2026-12-31 23:59:59.999_999_999 UTC);
        let claimed = BONUS.award(None, last.date()).expect("the first").streak;
        assert_eq!(next_midnight(last.date()), time::macros::datetime!(2027-01-01 00:00 UTC));
        assert_eq!(BONUS.award(Some(claimed), last.date()), None);
        let midnight = last + Duration::nanoseconds(1);
        assert_eq!(BONUS.award(Some(claimed), midnight.date()).map(|award| award.streak.days), Some(2));
        assert_eq!(claimed.days_on(midnight.date()), 1);
        assert_eq!(claimed.days_on((midnight + Duration::days(1)).date()), 0);
    }

    #[test]
    fn a_claim_by_a_clock_that_is_ahead_counts_today_too() {
        let ahead = Streak { last: date!(2026 - 11 - 21), days: 4 };
        assert_eq!(BONUS.award(Some(ahead), date!(2026 - 11 - 20)), None);
        assert_eq!(ahead.days_on(date!(2026 - 11 - 20)), 4);
    }

    #[test]
    fn the_end_of_time_is_no_panic() {
        let last = Streak { last: Date::MAX, days: i32::MAX };
        assert_eq!(BONUS.award(Some(last), Date::MAX), None);
        let before = Streak { last: Date::MAX.previous_day().expect("a day"), days: i32::MAX };
        assert_eq!(BONUS.award(Some(before), Date::MAX).map(|award| award.bonus), Some(60));
        let _ = next_midnight(Date::MAX);
    }

    #[test]
    fn reasons_and_references() {
        for (text, fits) in [
            ("purchase", true),
            ("a", true),
            ("shop.item:7_x-y", true),
            ("Match wager", true),
            ("7 % größer!", true),
            ("", false),
            ("a\n", false),
            ("a\u{0}b", false),
            ("\u{9f}", false),
        ] {
            assert_eq!(Reason::parse(text).is_some(), fits, "{text:?}");
        }
        let long = |letters: usize| "x".repeat(letters);
        assert!(Reason::parse(&long(64)).is_some() && Reason::parse(&long(65)).is_none());
        assert!(Reason::parse(&"ü".repeat(64)).is_some() && Reason::parse(&"ü".repeat(65)).is_none());
        for (text, fits) in [
            (long(128), true),
            (long(129), false),
            ("ü".repeat(128), true),
            (String::new(), false),
            ("a\0".into(), false),
        ] {
            assert_eq!(Reference::parse(&text).is_some(), fits, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_transaction_id_reads_back(bytes: [u8; 16]) {
            let id = TransactionId(Uuid::from_bytes(bytes));
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        /// Against a tale of each day, told without the rule: how many days in a row were claimed up to this one.
        #[test]
        fn streaks_count_days_in_a_row(claims in proptest::collection::vec(any::<bool>(), 1..60)) {
            let first = date!(2026 - 01 - 01);
            let (mut streak, mut in_a_row) = (None, 0);
            for (number, &claims) in claims.iter().enumerate() {
                let day = first + Duration::days(i64::try_from(number).expect("few"));
                in_a_row = if claims { in_a_row + 1 } else { 0 };
                if claims {
                    let award = BONUS.award(streak, day).expect("once a day");
                    prop_assert_eq!(award.streak.days, in_a_row);
                    prop_assert_eq!(award.coins, 50 + award.bonus);
                    prop_assert_eq!(award.bonus, i64::from(10 * (in_a_row - 1)).min(60));
                    streak = Some(award.streak);
                }
            }
        }

        /// However results are corrected and coins are spent in between: nobody is pushed below zero, nobody has had
        /// less than is due, and more only by what was written off, which nobody loses again.
        #[test]
        fn payouts_follow_results(steps in proptest::collection::vec((0_i64..100, 0_i64..100), 1..30)) {
            let (mut paid, mut balance) = (Paid::default(), 0_i64);
            for (due, spent) in steps {
                let payout = paid.bring_to(due, balance);
                balance += payout.amount;
                prop_assert!(balance >= 0 && payout.written_off >= 0);
                prop_assert!(payout.written_off == 0 || balance == 0, "as long as there is something it is taken");
                let before = paid;
                paid = paid.after(payout);
                prop_assert!((due..=due + paid.written_off).contains(&paid.had));
                prop_assert!(payout.amount >= 0 || paid.had >= before.written_off, "what was let go stays let go");
                // The same result again changes nothing, whatever the wallet holds by then.
                prop_assert_eq!(paid.bring_to(due, balance + spent), Payout { due, amount: 0, written_off: 0 });
                balance -= spent.min(balance);
            }
        }
    }

    #[test]
    fn what_is_written_off_is_neither_taken_later_nor_paid_twice() {
        // 40 were paid and 30 of them spent. The result is corrected to nothing: 10 can be taken.
        let paid = Paid { had: 40, written_off: 0 };
        let taken = paid.bring_to(0, 10);
        assert_eq!(taken, Payout { due: 0, amount: -10, written_off: 30 });
        let paid = paid.after(taken);
        // It is corrected back. They have 30 of the 40 already.
        assert_eq!(paid.bring_to(40, 0).amount, 10);
        // Up to that nothing moves, and nothing on the way down either, however much they have won elsewhere.
        for due in [20, 30, 5, 0] {
            assert_eq!(paid.bring_to(due, 500), Payout { due, amount: 0, written_off: 0 });
        }
        // Of what was paid beyond it, it does.
        let paid = paid.after(paid.bring_to(40, 500));
        assert_eq!(paid.bring_to(0, 500), Payout { due: 0, amount: -10, written_off: 0 });
    }

    #[test]
    fn a_full_wallet_is_paid_the_rest_later() {
        let paid = Paid::default();
        let some = paid.bring_to(40, MOST - 15);
        assert_eq!(some, Payout { due: 40, amount: 15, written_off: 0 });
        assert_eq!(paid.after(some).bring_to(40, 100).amount, 25);
        assert_eq!(paid.after(some).bring_to(0, 100).amount, -15, "no more is taken than was paid");
    }

    #[test]
    fn points_below_zero_cost_no_coins() {
        assert_eq!([worth(-20, 3), worth(0, 3), worth(7, 3), worth(60, 0)], [0, 0, 21, 0]);
    }
}
