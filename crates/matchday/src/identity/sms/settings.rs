//! Settings of text messages.

use std::time::Duration;

use platform::{
    Environment, section, setting_by_name,
    settings::{Conditions, Secret, Setting},
};
use url::Url;

use crate::identity::phone::Country;

section! {
    /// How codes are sent.
    sms: Settings {
        /// Who sends them: `twilio`, `vonage`, or outside production `console`, which only logs them. The first is asked
        /// first, the next one when it fails. Empty: `console`, and in production a fault.
        providers: Vec<SmsProvider> = "",
        /// How long one provider may take. All of them together must fit into a request.
        timeout: Duration = "4s",
        /// Twilio's name for the account, `AC…`.
        twilio_account_sid: Option<String> = "",
        /// Its secret; it also signs Twilio's reports.
        twilio_auth_token: Option<Secret> = "",
        /// The sender: a number, or a messaging service `MG…`.
        twilio_from: Option<String> = "",
        /// Where Twilio is.
        twilio_url: Url = "https://api.twilio.com",
        /// Vonage's name for the account.
        vonage_api_key: Option<String> = "",
        /// Its secret.
        vonage_api_secret: Option<Secret> = "",
        /// The sender: a number or a name.
        vonage_from: Option<String> = "",
        /// What Vonage signs its reports with (HMAC-SHA256). Empty: its reports are refused.
        vonage_signature_secret: Option<Secret> = "",
        /// Where Vonage is.
        vonage_url: Url = "https://rest.nexmo.com",
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
    }
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self, env: Environment) -> Conditions {
        let named = |provider| self.providers.contains(&provider);
        let (twilio, vonage) = (named(SmsProvider::Twilio), named(SmsProvider::Vonage));
        let mut conditions: Conditions = [
            (twilio, "sms.twilio_account_sid", self.twilio_account_sid.is_some(), "twilio"),
            (twilio, "sms.twilio_auth_token", self.twilio_auth_token.is_some(), "twilio"),
            (twilio, "sms.twilio_from", self.twilio_from.is_some(), "twilio"),
            (vonage, "sms.vonage_api_key", self.vonage_api_key.is_some(), "vonage"),
            (vonage, "sms.vonage_api_secret", self.vonage_api_secret.is_some(), "vonage"),
            (vonage, "sms.vonage_from", self.vonage_from.is_some(), "vonage"),
        ]
        .map(|(wanted, key, is_set, name)| {
            (!wanted || is_set, format!("{key} is not set, but sms.providers names {name}"))
        })
        .into();
        let is_production = env == Environment::Production;
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
            (!is_production || !self.providers.is_empty(), "sms.providers is empty: name twilio or vonage, or both"),
            (
                !is_production || !named(SmsProvider::Console),
                "sms.providers names console, which sends nothing: production needs twilio or vonage",
            ),
        ];
        conditions.extend(further.map(|(holds, fault)| (holds, fault.to_owned())));
        conditions
    }
}

impl Settings {
    /// The providers that messages are sent with, in order.
    pub fn providers_in_order(&self) -> &[SmsProvider] {
        if self.providers.is_empty() { &[SmsProvider::Console] } else { &self.providers }
    }
}

/// See `sms.providers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmsProvider {
    /// Twilio's Messages.
    Twilio,
    /// Vonage's SMS.
    Vonage,
    /// A line in the log.
    Console,
}

setting_by_name!(SmsProvider, "twilio, vonage or console", "twilio" => Self::Twilio, "vonage" => Self::Vonage, "console" => Self::Console);

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
