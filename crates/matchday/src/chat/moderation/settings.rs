//! Settings of moderation.

use platform::{section, settings::Conditions};
use url::Url;

section! {
    /// Moderation of chat.
    moderation: Settings {
        /// Contact for complaints about content, shown to users at `GET /api/contact`: an address like
        /// `safety@example.org`, or an `https` URL. App stores require one.
        contact: Option<String> = "",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        let is_valid = self.contact.as_deref().is_none_or(|contact| is_mail_address(contact) || is_web_page(contact));
        let fault = "moderation.contact is neither an email address like safety@example.org nor an https URL";
        vec![(is_valid, fault.to_owned())]
    }
}

fn is_mail_address(text: &str) -> bool {
    let is_plain = text.chars().all(|c| c.is_ascii_graphic() && !matches!(c, ':' | '/' | '<' | '>' | '"' | ','));
    let parts = text.split_once('@');
    text.len() <= 254
        && is_plain
        && parts.is_some_and(|(name, host)| !name.is_empty() && host.contains('.') && !host.contains('@'))
}

fn is_web_page(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| url.scheme() == "https" && url.has_host())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contact_is_mail_address_or_web_page() {
        for (contact, valid) in [
            (None, true),
            (Some("safety@example.org"), true),
            (Some("https://example.org/contact?topic=chat"), true),
            (Some("http://example.org/contact"), false),
            (Some("javascript:alert(1)"), false),
            (Some("mailto:safety@example.org"), false),
            (Some("safety@localhost"), false),
            (Some("a@b@example.org"), false),
            (Some("call us"), false),
        ] {
            let settings = Settings { contact: contact.map(str::to_owned) };
            assert_eq!(settings.conditions()[0].0, valid, "{contact:?}");
        }
    }
}
