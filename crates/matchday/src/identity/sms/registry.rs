//! Registration of SMS providers.
//!
//! A provider is one file: its settings, sending, and verification of its delivery reports. The file declares a
//! [`Registration`], and the list in `sms/mod.rs` names the file. Settings, start-up checks, the report route and its
//! OpenAPI description are derived from the list.

use std::{fmt, sync::Arc, time::Duration};

use platform::settings::{Setting, Source};
use url::Url;

use super::{
    PROVIDER_NAMES, PROVIDERS,
    provider::{Provider, SetupError},
};

/// A provider that `sms.providers` can name.
#[derive(Debug)]
pub struct Registration {
    /// Name in `sms.providers`, in the path of delivery reports, in logs, metrics and the database. It is also the name
    /// of the provider's module.
    pub name: &'static str,
    /// Whether messages reach phones and delivery can be reported. Production refuses other providers.
    pub reaches_phones: bool,
    /// Reads the provider's settings. Their keys start with `sms.`, the provider's name and an underscore. They are
    /// read even if the provider is not used, so a misspelt key is always reported.
    pub read: fn(&mut Source) -> Option<Arc<dyn Account>>,
}

/// Settings of one provider.
pub trait Account: fmt::Debug + Send + Sync {
    /// Keys that must be set before the provider can be used. The flag is true if the key is set.
    fn required(&self) -> Vec<(&'static str, bool)>;

    /// Creates the provider. Called only if all required keys are set.
    fn open(&self, setup: Setup) -> Result<Box<dyn Provider>, SetupError>;
}

/// Data that every provider receives in addition to its own settings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Time limit for sending one message.
    pub timeout: Duration,
    /// Public URL of the provider's report route; `None` if no public URL of the service is configured.
    pub report_url: Option<Url>,
}

impl Registration {
    /// Path that receives the provider's delivery reports.
    pub fn report_path(&self) -> String {
        format!("/api/sms/{}/status", self.name)
    }
}

/// Finds a registered provider by name.
pub fn find(name: &str) -> Option<&'static Registration> {
    PROVIDERS.iter().copied().find(|provider| provider.name == name)
}

/// Names of the providers that reach phones.
pub fn reaching_phones() -> impl Iterator<Item = &'static str> {
    PROVIDERS.iter().filter(|provider| provider.reaches_phones).map(|provider| provider.name)
}

impl Setting for &'static Registration {
    const EXPECTED: &'static str = PROVIDER_NAMES;
    const LISTED: &'static str = PROVIDER_NAMES;

    fn parse(text: &str) -> Option<Self> {
        find(text)
    }

    fn show(&self) -> String {
        self.name.to_owned()
    }
}

/// Settings of all registered providers, used or not.
#[derive(Clone, Debug)]
pub struct Accounts(Vec<(&'static Registration, Arc<dyn Account>)>);

impl Accounts {
    /// Reads the settings of all registered providers.
    pub fn read(source: &mut Source) -> Option<Self> {
        Self::read_of(PROVIDERS, source)
    }

    /// Reads the settings of these providers.
    pub fn read_of(providers: &[&'static Registration], source: &mut Source) -> Option<Self> {
        // Read the settings of every provider before failing, to report all errors.
        let read: Vec<_> = providers.iter().map(|provider| Some((*provider, (provider.read)(source)?))).collect();
        read.into_iter().collect::<Option<_>>().map(Self)
    }

    /// Settings of one provider.
    pub fn of(&self, provider: &Registration) -> Option<&dyn Account> {
        self.0.iter().find(|(registered, _)| registered.name == provider.name).map(|(_, account)| &**account)
    }
}

/// Declares the list of providers from the names of their modules.
macro_rules! providers {
    ($first:ident $(, $other:ident)* $(,)?) => {
        pub const PROVIDERS: &[&registry::Registration] = &[&$first::REGISTRATION $(, &$other::REGISTRATION)*];

        const PROVIDER_NAMES: &str =
            concat!("a list of providers separated by commas, each one of ", stringify!($first) $(, ", ", stringify!($other))*);
    };
}
pub(super) use providers;
