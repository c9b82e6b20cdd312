//! Settings of text messages.

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
    /// How codes are sent.
    sms: Settings {
        /// Providers that send the messages, like `twilio,vonage`. The first is asked first, the next one when it fails.
        /// `console` only logs messages, and production refuses it. Empty: `console`, and in production a fault.
        providers: Vec<&'static Registration> = "",
        /// How long one provider may take. All of them together must fit into a request.
        timeout: Duration = "4s",
        /// Who the message says it is from.
        app_name: String = "Matchday",
        /// The hash of 11 characters by which Android hands the message to the app. Empty: none.
        app_hash: Option<String> = "",
        /// The domain by which browsers hand the code to the page, like `app.example.org`. Empty: none.
        web_domain: Option<String> = "",
        /// The countries that codes are sent to, each with the most an hour if it is not the usual: `DE,GB:2000`. In
        /// `staging` and `production` nobody else is sent any; elsewhere everybody is.
        countries: Vec<CountryRule> = "",
        /// How long the log of messages is kept.
        log_for: Duration = "30d",
        ..accounts: Accounts
    }
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
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

    /// Conditions of production, which needs providers that reach phones.
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
    /// The providers that messages are sent with, in order.
    pub fn providers_in_order(&self) -> &[&'static Registration] {
        if self.providers.is_empty() { &[&console::REGISTRATION] } else { &self.providers }
    }
}

/// A country that codes are sent to, and how many an hour if not the usual number.
#[derive(Clone, Debug)]
pub struct CountryRule {
    /// Which.
    pub country: Country,
    /// The most an hour.
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
