//! Registration of SMS providers.
//!
//! A provider is one file: its settings, sending, and verification of its delivery reports. The file declares a
//! [`Registration`], and the list in `sms/mod.rs` names the file. Settings, start-up checks, the report route and its
//! description in OpenAPI all follow from the list.

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
    /// The name in `sms.providers`, in the path of delivery reports, in logs, metrics and the database. It is also the
    /// name of the provider's module.
    pub name: &'static str,
    /// Whether messages reach phones, and delivery can be reported. Production accepts no other provider.
    pub reaches_phones: bool,
    /// Reads the provider's settings. Their keys begin with `sms.`, the provider's name and an underscore. They are
    /// read whether or not the provider is used, so that a misspelt key is reported in either case.
    pub read: fn(&mut Source) -> Option<Arc<dyn Account>>,
}

/// The settings of one provider.
pub trait Account: fmt::Debug + Send + Sync {
    /// Keys that must be set before the provider can be used, and whether each is.
    fn required(&self) -> Vec<(&'static str, bool)>;

    /// Makes the provider. Called only where all required keys are set.
    fn open(&self, setup: Setup) -> Result<Box<dyn Provider>, SetupError>;
}

/// What every provider is given besides its own settings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How long sending one message may take.
    pub timeout: Duration,
    /// Public URL of the provider's report route. None where the service does not know its own public URL.
    pub report_url: Option<Url>,
}

impl Registration {
    /// The path that the provider reports to.
    pub fn report_path(&self) -> String {
        format!("/api/sms/{}/status", self.name)
    }
}

/// The registered provider of that name.
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

/// The settings of all registered providers, those in use and others.
#[derive(Clone, Debug)]
pub struct Accounts(Vec<(&'static Registration, Arc<dyn Account>)>);

impl Accounts {
    /// Reads them.
    pub fn read(source: &mut Source) -> Option<Self> {
        Self::read_of(PROVIDERS, source)
    }

    /// Reads the settings of these providers.
    pub fn read_of(providers: &[&'static Registration], source: &mut Source) -> Option<Self> {
        // Reads every provider before a missing one ends the construction, so that all faults are reported.
        let read: Vec<_> = providers.iter().map(|provider| Some((*provider, (provider.read)(source)?))).collect();
        read.into_iter().collect::<Option<_>>().map(Self)
    }

    /// The settings of one provider.
    pub fn of(&self, provider: &Registration) -> Option<&dyn Account> {
        self.0.iter().find(|(registered, _)| registered.name == provider.name).map(|(_, account)| &**account)
    }
}

/// Makes the list of providers from the names of their modules.
macro_rules! providers {
    ($first:ident $(, $other:ident)* $(,)?) => {
        /// The registered providers.
        pub const PROVIDERS: &[&registry::Registration] = &[&$first::REGISTRATION $(, &$other::REGISTRATION)*];

        const PROVIDER_NAMES: &str =
            concat!("a list of providers separated by commas, each one of ", stringify!($first) $(, ", ", stringify!($other))*);
    };
}
pub(super) use providers;
