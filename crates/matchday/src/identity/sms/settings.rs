//! Settings for text messages.

use std::time::Duration;

use platform::{
    Environment, section,
    settings::{Conditions, Setting},
};

use super::{
    console,
    registry::{self, Accounts, Registration},
};
use crate::identity::phone::Country;

section! {
    /// Sending of login codes by SMS.
    sms: Settings {
        /// SMS providers in order of preference, like `twilio,vonage`. If one fails, the next is tried. `console` only
        /// logs messages; production refuses it. Empty: `console`, or an error in production.
        providers: Vec<&'static Registration> = "",
        /// Time limit for each provider. The sum for all providers must fit into a request.
        timeout: Duration = "4s",
        /// Name of the app in messages.
        app_name: String = "Matchday",
        /// Hash of 11 characters by which Android passes the message to the app (SMS Retriever). Empty: none.
        app_hash: Option<String> = "",
        /// Domain for which browsers fill in the code, like `app.example.org`. Empty: none.
        web_domain: Option<String> = "",
        /// Countries that codes are sent to, each with an hourly limit if it differs from `limits.country_hourly`:
        /// `DE,GB:2000`. `staging` and `production` send codes only to these countries, other environments to all.
        countries: Vec<CountryRule> = "",
        /// Retention of the message log.
        log_for: Duration = "30d",
        ..accounts: Accounts
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self, env: Environment) -> Conditions {
        let used = self.providers.iter().filter_map(|provider| Some((provider.name, self.accounts.of(provider)?)));
        let required = used.flat_map(|(name, account)| account.required().into_iter().map(move |key| (name, key)));
        let mut conditions: Conditions = required
            .map(|(name, (key, is_set))| (is_set, format!("{key} is not set, but sms.providers names {name}")))
            .collect();
        let further = [
            (
                self.app_hash.as_ref().is_none_or(|hash| hash.len() == 11 && hash.is_ascii()),
                "sms.app_hash does not have 11 characters",
            ),
            (
                self.app_hash.is_none() || self.web_domain.is_none(),
                "sms.app_hash and sms.web_domain are both set: each must be the last line of a message, so choose one",
            ),
            (
                env.is_development() || !self.countries.is_empty(),
                "sms.countries is empty: name the countries that codes may be sent to, like DE,GB",
            ),
        ];
        conditions.extend(further.map(|(holds, fault)| (holds, fault.to_owned())));
        if env == Environment::Production {
            conditions.extend(self.reaching_phones());
        }
        conditions
    }

    /// Conditions for production, which requires providers that reach phones.
    fn reaching_phones(&self) -> Conditions {
        let real = registry::reaching_phones().collect::<Vec<_>>().join(" or ");
        let named = (!self.providers.is_empty(), format!("sms.providers is empty: name {real}, or several"));
        let each = self.providers.iter().map(|provider| {
            let fault = format!("sms.providers names {}, which sends nothing: production needs {real}", provider.name);
            (provider.reaches_phones, fault)
        });
        [named].into_iter().chain(each).collect()
    }
}

impl Settings {
    /// Providers to send messages with, in order of preference.
    pub fn providers_in_order(&self) -> &[&'static Registration] {
        if self.providers.is_empty() { &[&console::REGISTRATION] } else { &self.providers }
    }
}

/// A country that codes are sent to.
#[derive(Clone, Debug)]
pub struct CountryRule {
    pub country: Country,
    /// Hourly limit, if it differs from `limits.country_hourly`.
    pub hourly: Option<u32>,
}

impl Setting for CountryRule {
    const EXPECTED: &'static str = "a country code like DE or GB:2000";
    const LISTED: &'static str = "a list of country codes like DE or GB:2000, separated by commas";
    fn parse(text: &str) -> Option<Self> {
        let (country, hourly) = match text.split_once(':') {
            Some((country, hourly)) => (country, Some(hourly.parse().ok()?)),
            None => (text, None),
        };
        Country::parse(country).map(|country| Self { country, hourly })
    }
    fn show(&self) -> String {
        self.hourly.map_or_else(|| self.country.as_str().to_owned(), |most| format!("{}:{most}", self.country.as_str()))
    }
}
