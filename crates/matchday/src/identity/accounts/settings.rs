use platform::{section, settings::Conditions};
use url::Url;

section! {
    /// User accounts and their usernames.
    accounts: Settings {
        /// Page of your app that undoes a phone move. If set, the text message to the old phone links to it, with the
        /// undo code after `#`. If empty, the text message contains only the code.
        undo_url: Option<Url> = "",
        /// Minimum age in years, according to the date of birth that a user enters. 0 allows any age.
        minimum_age: u16 = "13",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        vec![(self.minimum_age <= 150, "accounts.minimum_age must be at most 150".to_owned())]
    }
}
