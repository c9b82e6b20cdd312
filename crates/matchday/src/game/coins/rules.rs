//! Rules for coins, without I/O or a clock.

use std::{fmt, str::FromStr};

use time::{Date, OffsetDateTime, Time};
use uuid::Uuid;

/// Maximum balance of a wallet: the greatest integer that every JSON client represents exactly.
pub const MOST: i64 = (1 << 53) - 1;

/// Number of coins to move: 1 to 1,000,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoinAmount(i64);

impl CoinAmount {
    /// Maximum number of coins per movement.
    pub const MOST: i64 = 1_000_000_000;

    /// Returns `None` if the number is out of range.
    pub fn new(coins: i64) -> Option<Self> {
        (1..=Self::MOST).contains(&coins).then_some(Self(coins))
    }

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

/// Purpose of a deduction, chosen by the app.
pub type Reason = platform::settings::Phrase;

/// Identifier that an app gives to a movement, so that a repeated request moves coins only once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference(String);

impl Reference {
    /// Parses 1 to 128 characters without control characters.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (1..=128).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        fits.then(|| Self(text.to_owned()))
    }

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

/// An operator's explanation of a movement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark(String);

impl Remark {
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

/// Public identifier of a transaction: `txn_` and a UUID version 7.
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
        let id = text.strip_prefix("txn_").and_then(|uuid| Uuid::try_parse(uuid).ok()).map(Self);
        // An id has one notation; the parser of UUIDs accepts several.
        id.filter(|id| id.to_string() == text).ok_or("must have the form txn_0192f0c1-2345-7abc-8def-0123456789ab")
    }
}

/// Reason for a movement of coins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, sqlx::Type, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[schema(as = CoinTransactionKind)]
pub enum Kind {
    /// Coins for a new account.
    Welcome,
    /// Daily bonus claimed by the user.
    Daily,
    /// Coins spent by the user.
    Deduction,
    /// Coins granted by an operator.
    Grant,
    /// Reversal of another transaction by an operator.
    Reversal,
    /// Coins paid for points, or reclaimed after a result correction.
    Points,
}

impl Kind {
    /// Name in the database.
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

/// Settings of the daily bonus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bonus {
    /// Coins per day, without the streak bonus.
    pub daily: i64,
    /// Streak bonus for each further consecutive day.
    pub step: i64,
    /// Maximum of the streak bonus.
    pub most: i64,
}

/// Consecutive days on which a user claimed the daily bonus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streak {
    /// Last claimed day (UTC).
    pub last: Date,
    pub days: i32,
}

impl Streak {
    /// Returns the length of the streak on a day; 0 if a day was missed.
    pub fn days_on(self, today: Date) -> i32 {
        let is_alive = self.last >= today || self.last.next_day() == Some(today);
        if is_alive { self.days } else { 0 }
    }
}

/// Daily bonus of a user on one day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Award {
    /// Streak including this day.
    pub streak: Streak,
    /// Streak bonus, included in `coins`.
    pub bonus: i64,
    /// Total, including the streak bonus.
    pub coins: i64,
}

impl Bonus {
    /// Returns the bonus that a user with this streak can claim today; `None` if it was already claimed. If a process
    /// with a fast clock has already recorded a claim for a later day, today counts as claimed too.
    pub fn award(self, before: Option<Streak>, today: Date) -> Option<Award> {
        if before.is_some_and(|streak| streak.last >= today) {
            return None;
        }
        let days = before.map_or(0, |streak| streak.days_on(today)).saturating_add(1);
        let bonus = self.step.saturating_mul(i64::from(days - 1)).min(self.most);
        Some(Award { streak: Streak { last: today, days }, bonus, coins: self.daily.saturating_add(bonus) })
    }
}

/// Returns the start of the following day (UTC).
pub fn next_midnight(today: Date) -> OffsetDateTime {
    today.next_day().unwrap_or(Date::MAX).with_time(Time::MIDNIGHT).assume_utc()
}

/// Coins that a user has received for the points of one match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paid {
    /// Net coins received: paid minus reclaimed.
    pub had: i64,
    /// Coins of `had` that should have been reclaimed but were already spent. They are never reclaimed later.
    pub written_off: i64,
}

/// Movement that a result causes for one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payout {
    /// Coins that the result is worth.
    pub due: i64,
    /// Coins added to the wallet; negative if coins are reclaimed.
    pub amount: i64,
    /// Coins that should be reclaimed but exceed the balance.
    pub written_off: i64,
}

impl Paid {
    /// Computes the payout that brings a user to the coins that a result is worth, given their wallet balance. Coins
    /// written off earlier are not reclaimed later, and are not paid a second time. If the wallet is full, the rest is
    /// paid with a later result.
    pub fn payout_for(self, due: i64, balance: i64) -> Payout {
        if due > self.had {
            let room = (MOST - balance).max(0);
            return Payout { due, amount: (due - self.had).min(room), written_off: 0 };
        }
        let wanted = (self.had - self.written_off - due).max(0);
        let taken = wanted.min(balance);
        Payout { due, amount: -taken, written_off: wanted - taken }
    }

    /// Returns the state after this payout.
    #[must_use]
    pub fn after(self, payout: Payout) -> Self {
        Self { had: self.had + payout.amount, written_off: self.written_off + payout.written_off }
    }
}

/// Returns the coins that points are worth. Negative points cost nothing, because users stake no coins.
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
    fn streak_grows_to_cap_and_restarts_after_missed_day() {
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
    fn day_ends_exactly_at_midnight_utc() {
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
    fn claim_dated_tomorrow_counts_for_today() {
        let ahead = Streak { last: date!(2026 - 11 - 21), days: 4 };
        assert_eq!(BONUS.award(Some(ahead), date!(2026 - 11 - 20)), None);
        assert_eq!(ahead.days_on(date!(2026 - 11 - 20)), 4);
    }

    #[test]
    fn last_representable_date_does_not_panic() {
        let last = Streak { last: Date::MAX, days: i32::MAX };
        assert_eq!(BONUS.award(Some(last), Date::MAX), None);
        let before = Streak { last: Date::MAX.previous_day().expect("a day"), days: i32::MAX };
        assert_eq!(BONUS.award(Some(before), Date::MAX).map(|award| award.bonus), Some(60));
        let _ = next_midnight(Date::MAX);
    }

    #[test]
    fn parses_reasons_and_references() {
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
        fn transaction_id_parses_from_its_display(bytes: [u8; 16]) {
            let id = TransactionId(Uuid::from_bytes(bytes));
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        /// Compares the streak with a plain count of consecutive claimed days.
        #[test]
        fn streaks_count_consecutive_days(claims in proptest::collection::vec(any::<bool>(), 1..60)) {
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

        /// For any sequence of corrections and purchases: no balance is negative, a user never receives less than is
        /// due, and receives more only by the written-off amount, which is never reclaimed.
        #[test]
        fn payouts_follow_results(steps in proptest::collection::vec((0_i64..100, 0_i64..100), 1..30)) {
            let (mut paid, mut balance) = (Paid::default(), 0_i64);
            for (due, spent) in steps {
                let payout = paid.payout_for(due, balance);
                balance += payout.amount;
                prop_assert!(balance >= 0 && payout.written_off >= 0);
                prop_assert!(payout.written_off == 0 || balance == 0, "the balance is used first");
                let before = paid;
                paid = paid.after(payout);
                prop_assert!((due..=due + paid.written_off).contains(&paid.had));
                prop_assert!(payout.amount >= 0 || paid.had >= before.written_off, "written-off coins are kept");
                // Applying the same result again changes nothing, for any balance.
                prop_assert_eq!(paid.payout_for(due, balance + spent), Payout { due, amount: 0, written_off: 0 });
                balance -= spent.min(balance);
            }
        }
    }

    #[test]
    fn written_off_coins_are_neither_reclaimed_nor_paid_twice() {
        // 40 coins were paid and 30 of them spent. The result is corrected to 0 points, so only 10 can be reclaimed.
        let paid = Paid { had: 40, written_off: 0 };
        let taken = paid.payout_for(0, 10);
        assert_eq!(taken, Payout { due: 0, amount: -10, written_off: 30 });
        let paid = paid.after(taken);
        // The result is corrected back. The user still has 30 of the 40.
        assert_eq!(paid.payout_for(40, 0).amount, 10);
        // For any due amount up to 30 nothing moves, up or down, even if the wallet holds more coins.
        for due in [20, 30, 5, 0] {
            assert_eq!(paid.payout_for(due, 500), Payout { due, amount: 0, written_off: 0 });
        }
        // Coins paid above 30 are reclaimed.
        let paid = paid.after(paid.payout_for(40, 500));
        assert_eq!(paid.payout_for(0, 500), Payout { due: 0, amount: -10, written_off: 0 });
    }

    #[test]
    fn full_wallet_is_paid_the_rest_later() {
        let paid = Paid::default();
        let some = paid.payout_for(40, MOST - 15);
        assert_eq!(some, Payout { due: 40, amount: 15, written_off: 0 });
        assert_eq!(paid.after(some).payout_for(40, 100).amount, 25);
        assert_eq!(paid.after(some).payout_for(0, 100).amount, -15, "no more is taken than was paid");
    }

    #[test]
    fn negative_points_cost_no_coins() {
        assert_eq!([worth(-20, 3), worth(0, 3), worth(7, 3), worth(60, 0)], [0, 0, 21, 0]);
    }
}
