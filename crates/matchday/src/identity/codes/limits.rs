//! Limits on sending codes, which bound the cost of messages and the number of texts a phone receives.
//!
//! There are two kinds:
//!
//! - The caller's own limit, keyed by phone and network together. Only the caller can use it up; exceeding it returns
//!   429.
//! - Shared limits (network, phone, block, country, day), which strangers can use up. They never block a returning
//!   phone (a phone that has verified before), because returning phones draw on a reserve. Other phones receive no
//!   message. Both get the same response, so it does not reveal which phones have an account.

use std::time::Duration;

use platform::{
    Core,
    rate_limit::{Decision, Limit, Quota, RateLimiter},
};
use web::ClientNetwork;

use super::{rules::Cap, settings};
use crate::identity::{
    phone::{Country, Phone},
    sms::settings::CountryRule,
};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// Divisor for the share of the daily budget reserved for returning phones: one in five messages.
const RETURNING_SHARE: u32 = 5;

#[derive(Clone)]
pub(super) struct Limits {
    limiter: RateLimiter,
    phone: Limit,
    phone_day: Quota,
    network: Quota,
    block: Quota,
    country: Quota,
    budget: Quota,
    guesses: Limit,
    countries: Vec<CountryRule>,
    /// Whether only valid mobile numbers of the configured countries are served.
    strict: bool,
    scale: u32,
}

/// A limit that was used up, with the time until it allows another message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) decision: Decision,
}

/// A rate limit that a message counts towards.
#[derive(Clone, Debug)]
enum Counter {
    Limit(Limit, String),
    Quota(Quota, String),
    Network(Quota, ClientNetwork),
}

/// Counters that a message was charged to. They are refunded if no provider accepts the message.
#[derive(Debug, Default)]
pub(super) struct Taken(Vec<Counter>);

/// Verification history of a phone that a code is requested for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The phone has verified before.
    pub(super) is_returning: bool,
    /// The phone has verified from the neighbourhood of the caller's network (see `ClientNetwork::neighbourhood`).
    pub(super) is_home: bool,
}

impl Limits {
    pub(super) fn new(core: &Core, sizes: &settings::Limits, countries: &[CountryRule]) -> Self {
        let scale = core.env.leniency();
        let quota = |name, most: u32, per| Quota { name, most: most.saturating_mul(scale), per };
        Self {
            limiter: core.limits.clone(),
            phone: Limit { name: "phone", burst: sizes.phone_burst, every: sizes.phone_every },
            phone_day: Quota { name: "phone_day", most: sizes.phone_daily, per: DAY },
            network: quota("network", sizes.network_hourly, HOUR),
            block: quota("block", sizes.block_hourly, HOUR),
            country: quota("country", sizes.country_hourly, HOUR),
            budget: quota("budget", sizes.daily_budget, DAY),
            guesses: Limit {
                name: "guesses",
                burst: sizes.network_guesses.saturating_mul(scale),
                every: Duration::from_secs(10) / scale,
            },
            countries: countries.to_vec(),
            strict: !core.env.is_development(),
            scale,
        }
    }

    /// Whether codes are sent to this number at all.
    pub(super) fn serves(&self, phone: &Phone, country: &Country) -> bool {
        !self.strict || (phone.is_worth_texting() && self.countries.iter().any(|rule| rule.country == *country))
    }

    /// Charges a request to the caller's network. This check comes first, so a flood from one network uses up no other
    /// counter.
    pub(super) async fn take_network(&self, network: ClientNetwork) -> Result<Taken, Refusal> {
        self.take_all(vec![("network", Counter::Network(self.network, network))]).await.map(|(taken, _)| taken)
    }

    /// Charges the limit of this phone and network together, which no other network can use up. Returns the remaining
    /// allowance.
    pub(super) async fn take_own(&self, phone: &Phone, network: ClientNetwork) -> Result<(Taken, Decision), Refusal> {
        let key = format!("{} {network}", phone.as_str());
        let counters = vec![
            ("phone", Counter::Limit(self.phone, key.clone())),
            ("phone_day", Counter::Quota(self.phone_day, key)),
        ];
        let (taken, decisions) = self.take_all(counters).await?;
        Ok((taken, decisions[0]))
    }

    /// Charges a message to all shared limits, or to none if one is used up.
    pub(super) async fn take_shared(&self, phone: &Phone, country: &Country, caps: &[Cap]) -> Result<Taken, Refusal> {
        let budget = Quota { most: self.budget.most - self.budget.most / RETURNING_SHARE, ..self.budget };
        let mut counters = self.of_phone("phone_all", "phone_all_day", phone.as_str());
        for cap in caps {
            let quota = Quota { name: "closed", most: cap.hourly, per: HOUR };
            counters.push(("closed", Counter::Quota(quota, cap.prefix.clone())));
        }
        counters.extend([
            ("block", Counter::Quota(self.block, phone.block().to_owned())),
            ("country", Counter::Quota(self.of_country(country), country.as_str().to_owned())),
            ("budget", Counter::Quota(budget, "all".to_owned())),
        ]);
        self.take_all(counters).await.map(|(taken, _)| taken)
    }

    /// Charges a message to the reserve of returning phones. Strangers can use up a reserve only with phones that have
    /// verified, and the reserve of one phone only from the neighbourhood of a network it has verified from.
    pub(super) async fn take_reserve(
        &self,
        phone: &Phone,
        country: &Country,
        network: ClientNetwork,
        known: Known,
    ) -> Result<Taken, Refusal> {
        let named = |name, quota: Quota| Quota { name, ..quota };
        let mut counters = if known.is_home {
            let key = format!("{} {}", phone.as_str(), network.neighbourhood());
            self.of_phone("phone_home", "phone_home_day", &key)
        } else {
            self.of_phone("phone_all", "phone_all_day", phone.as_str())
        };
        let budget = Quota { most: self.budget.most / RETURNING_SHARE, ..named("budget_returning", self.budget) };
        counters.extend([
            ("network", Counter::Network(named("network_returning", self.network), network)),
            ("block", Counter::Quota(named("block_returning", self.block), phone.block().to_owned())),
            (
                "country",
                Counter::Quota(named("country_returning", self.of_country(country)), country.as_str().to_owned()),
            ),
            ("budget", Counter::Quota(budget, "all".to_owned())),
        ]);
        self.take_all(counters).await.map(|(taken, _)| taken)
    }

    fn of_phone(&self, burst: &'static str, day: &'static str, key: &str) -> Vec<(&'static str, Counter)> {
        vec![
            ("phone", Counter::Limit(Limit { name: burst, ..self.phone }, key.to_owned())),
            ("phone_day", Counter::Quota(Quota { name: day, ..self.phone_day }, key.to_owned())),
        ]
    }

    fn of_country(&self, country: &Country) -> Quota {
        let own = self.countries.iter().find(|rule| rule.country == *country).and_then(|rule| rule.hourly);
        let most = own.map_or(self.country.most, |hourly| hourly.saturating_mul(self.scale));
        Quota { most, ..self.country }
    }

    async fn take_all(&self, counters: Vec<(&'static str, Counter)>) -> Result<(Taken, Vec<Decision>), Refusal> {
        let (mut taken, mut decisions) = (Taken::default(), Vec::new());
        for (reason, counter) in counters {
            let decision = match &counter {
                Counter::Limit(limit, key) => self.limiter.take(*limit, key).await,
                Counter::Quota(quota, key) => self.limiter.count(*quota, key).await,
                Counter::Network(quota, network) => network.count(&self.limiter, *quota).await,
            };
            if !decision.allowed {
                self.give_back(&taken).await;
                return Err(Refusal { reason, decision });
            }
            taken.0.push(counter);
            decisions.push(decision);
        }
        Ok((taken, decisions))
    }

    /// Refunds the counters of a message that was not sent.
    pub(super) async fn give_back(&self, taken: &Taken) {
        for counter in &taken.0 {
            match counter {
                Counter::Limit(limit, key) => self.limiter.untake(*limit, key).await,
                Counter::Quota(quota, key) => self.limiter.uncount(*quota, key).await,
                Counter::Network(quota, network) => network.uncount(&self.limiter, *quota).await,
            }
        }
    }

    /// Charges a network's allowance for guessing codes that other networks requested.
    pub(super) async fn take_guess(&self, network: ClientNetwork) -> Decision {
        network.take(&self.limiter, self.guesses).await
    }
}

impl Taken {
    pub(super) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}
