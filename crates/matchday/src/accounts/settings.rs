//! Settings of accounts.

use platform::{section, settings::Conditions};
use url::Url;

section! {
    /// Accounts.
    accounts: Settings {
        /// The page of your app that undoes moving an account to another phone. The text to the old phone then has a link
        /// to it, with the undo code behind `#`. Empty: the text has the code alone.
        undo_url: Option<Url> = "",
        /// How many years old a user must be, by the date of birth they give. 0: any age.
        minimum_age: u16 = "13",
    }
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        vec![(self.minimum_age <= 150, "accounts.minimum_age is above 150: no user could be that old".to_owned())]
    }
}
