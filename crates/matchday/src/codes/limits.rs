//! What sending codes may cost. Every limit here is somebody's money or somebody's peace.

use std::time::Duration;

use crate::{
    http::ClientNetwork,
    phone::{Country, Phone},
    platform::{
        config::Config,
        rate_limit::{Decision, Limit, Quota, RateLimiter},
        settings::CountryRule,
    },
};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// The limits of sending.
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
    /// Whether only real numbers of the named countries are served.
    strict: bool,
    scale: u32,
}

/// Why no code is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) decision: Decision,
}

impl Limits {
    pub(super) fn new(limiter: RateLimiter, config: &Config) -> Self {
        let sizes = &config.limits;
        let scale = config.env.leniency();
        let quota = |name, most: u32, per| Quota { name, most: most.saturating_mul(scale), per };
        Self {
            limiter,
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
            countries: config.sms.countries.clone(),
            strict: !config.env.is_development(),
            scale,
        }
    }

    /// Whether codes are sent to such a number at all.
    pub(super) fn serves(&self, phone: &Phone, country: &Country) -> bool {
        !self.strict || (phone.is_worth_texting() && self.countries.iter().any(|rule| rule.country == *country))
    }

    /// Takes one request from what a network may ask. It comes before everything else, so that a stranger who is
    /// refused for himself touches nothing that is another's.
    pub(super) async fn take_network(&self, network: ClientNetwork) -> Result<(), Refusal> {
        allowed("network", self.limiter.count(self.network, &network.to_string()).await).map(|_| ())
    }

    /// Takes one message from every other limit, or from none; returns what is left of the phone's.
    pub(super) async fn take(&self, phone: &Phone, country: &Country) -> Result<Decision, Refusal> {
        let shown = allowed("phone", self.limiter.take(self.phone, phone.as_str()).await)?;
        let quotas = self.quotas(phone, country);
        for (at, (name, quota, key)) in quotas.iter().enumerate() {
            if let Err(refusal) = allowed(name, self.limiter.count(*quota, key).await) {
                self.limiter.untake(self.phone, phone.as_str()).await;
                for (_, quota, key) in &quotas[..at] {
                    self.limiter.uncount(*quota, key).await;
                }
                return Err(refusal);
            }
        }
        Ok(shown)
    }

    /// Gives everything back for a message that nobody took.
    pub(super) async fn give_back(&self, phone: &Phone, network: ClientNetwork, country: &Country) {
        self.limiter.uncount(self.network, &network.to_string()).await;
        self.limiter.untake(self.phone, phone.as_str()).await;
        for (_, quota, key) in self.quotas(phone, country) {
            self.limiter.uncount(quota, key).await;
        }
    }

    /// Those that a message counts towards, the smallest first, with their names and keys.
    fn quotas<'a>(&self, phone: &'a Phone, country: &'a Country) -> [(&'static str, Quota, &'a str); 4] {
        let own = self.countries.iter().find(|rule| rule.country == *country).and_then(|rule| rule.hourly);
        let most = own.map_or(self.country.most, |hourly| hourly.saturating_mul(self.scale));
        [
            ("phone_day", self.phone_day, phone.as_str()),
            ("block", self.block, phone.block()),
            ("country", Quota { most, ..self.country }, country.as_str()),
            ("budget", self.budget, "all"),
        ]
    }

    /// Takes one guess from what a network may try, whoever's codes it tries.
    pub(super) async fn take_guess(&self, network: ClientNetwork) -> Decision {
        self.limiter.take(self.guesses, &network.to_string()).await
    }
}

fn allowed(reason: &'static str, decision: Decision) -> Result<Decision, Refusal> {
    if decision.allowed { Ok(decision) } else { Err(Refusal { reason, decision }) }
}
