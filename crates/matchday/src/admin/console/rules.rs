//! Roles of operators, claims of tokens and CSRF tokens of forms; no I/O.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use time::OffsetDateTime;

use super::settings::Settings;

/// Maximum length of an operator's name in characters.
const LONGEST_NAME: usize = 200;
/// Maximum length of a reason in characters.
const LONGEST_REASON: usize = 500;
/// Tolerated difference between the service's clock and the identity provider's, in seconds.
const CLOCK_SKEW: f64 = 60.0;
/// Prefix of role entries that name an operator; all other entries name a group. Without it, users who can choose their
/// name could take the name of a group.
const PERSON: &str = "user:";

/// Role of an operator. Each role includes the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// May view every page.
    Viewer,
    /// May also handle reports, and mute and ban users.
    Moderator,
    /// May perform every action.
    Operator,
}

impl Role {
    /// Name for pages and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Moderator => "moderator",
            Self::Operator => "operator",
        }
    }
}

/// Groups and operators with a role, from the settings.
#[derive(Clone, Debug)]
pub(super) struct Roles(Vec<(Role, String)>);

impl Roles {
    pub(super) fn new(config: &Settings) -> Self {
        let lists = [
            (Role::Viewer, &config.viewers),
            (Role::Moderator, &config.moderators),
            (Role::Operator, &config.operators),
        ];
        Self(lists.into_iter().flat_map(|(role, list)| list.iter().map(move |entry| (role, entry.clone()))).collect())
    }

    /// Returns the operator's highest role, by name or by group.
    pub(super) fn of(&self, name: &str, groups: &[String]) -> Option<Role> {
        let has = |entry: &str| match entry.strip_prefix(PERSON) {
            Some(person) => person == name,
            None => groups.iter().any(|group| group == entry),
        };
        self.0.iter().filter(|(_, entry)| has(entry)).map(|(role, _)| *role).max()
    }
}

/// Digests of the accepted proxy secrets. Comparing digests takes the same time for every length and every secret.
#[derive(Clone)]
pub(super) struct ProxySecrets(Vec<[u8; 32]>);

impl ProxySecrets {
    pub(super) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        Self(secrets.into_iter().map(|secret| Sha256::digest(secret).into()).collect())
    }

    pub(super) fn contain(&self, given: &[u8]) -> bool {
        let given: [u8; 32] = Sha256::digest(given).into();
        self.0.iter().fold(Choice::from(0), |found, secret| found | secret[..].ct_eq(&given[..])).into()
    }
}

/// Parses groups separated by commas.
pub(super) fn groups(header: &str) -> Vec<String> {
    header.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect()
}

/// Whether a token is currently valid. A token without an expiry is never valid.
pub(super) fn is_current(claims: &Map<String, Value>, now: OffsetDateTime) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
    let now = now.unix_timestamp() as f64;
    let ends = claims.get("exp").and_then(Value::as_f64).is_some_and(|end| now < end + CLOCK_SKEW);
    let begins = match claims.get("nbf") {
        None | Some(Value::Null) => true,
        Some(begin) => begin.as_f64().is_some_and(|begin| begin - CLOCK_SKEW <= now),
    };
    ends && begins
}

/// Returns the operator's name from a token. An unverified email address is not accepted as a name, because a user may
/// have entered another person's address.
pub(super) fn named_by(claims: &Map<String, Value>, claim: &str) -> Option<String> {
    if claim == "email" && claims.get("email_verified").is_some_and(|verified| !is_true(verified)) {
        return None;
    }
    operator_name([claims.get(claim)?.as_str()?.as_bytes()])
}

/// Some providers send booleans as text.
fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or_else(|| value.as_str() == Some("true"))
}

/// Returns the groups in a token. The claim is looked up by its full name first, then as a path separated by dots.
pub(super) fn groups_in(claims: &Map<String, Value>, claim: &str) -> Vec<String> {
    let at_path = || {
        let mut steps = claim.split('.');
        let first = claims.get(steps.next()?)?;
        steps.try_fold(first, |value, step| value.get(step))
    };
    match claims.get(claim).or_else(at_path) {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Key for the CSRF tokens of forms. It is derived from a secret that all processes share, so any process accepts forms
/// of the others.
#[derive(Clone)]
pub(super) struct FormKey(Hmac<Sha256>);

impl FormKey {
    pub(super) fn new(secret: &str) -> Self {
        // HMAC accepts keys of any length, so this cannot fail.
        let mut own = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length");
        own.update(b"matchday console forms");
        Self(Hmac::new_from_slice(&own.finalize().into_bytes()).expect("a key of any length"))
    }

    /// Returns the operator's CSRF token of this day.
    pub(super) fn mark(&self, operator: &str, now: OffsetDateTime) -> String {
        hex::encode(self.of_day(operator, day(now)).finalize().into_bytes())
    }

    /// Whether a CSRF token is this operator's, of today or yesterday. Accepting yesterday's keeps forms valid past
    /// midnight.
    pub(super) fn accepts(&self, mark: &str, operator: &str, now: OffsetDateTime) -> bool {
        let Ok(mark) = hex::decode(mark) else { return false };
        [0, 1].into_iter().any(|ago| self.of_day(operator, day(now) - ago).verify_slice(&mark).is_ok())
    }

    fn of_day(&self, operator: &str, day: i64) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(&day.to_be_bytes());
        mac.update(operator.as_bytes());
        mac
    }
}

fn day(now: OffsetDateTime) -> i64 {
    now.unix_timestamp().div_euclid(86_400)
}

/// Returns the operator's name from the proxy's header values. If there are two values, it is unclear which one the
/// proxy set, so both are refused.
pub(super) fn operator_name<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<String> {
    let mut values = values.into_iter();
    let (first, second) = (values.next()?, values.next());
    let name = std::str::from_utf8(first).ok()?.trim();
    let fits = (1..=LONGEST_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    (fits && second.is_none()).then(|| name.to_owned())
}

/// Validates a reason: one line of 1 to 500 characters.
pub(super) fn reason(text: &str) -> Option<&str> {
    let text = text.trim();
    let fits = (1..=LONGEST_REASON).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    fits.then_some(text)
}

/// Returns the text of a reported message, or its whole content if it has no text.
pub(super) fn message_text(content: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(content).ok();
    let body = value.as_ref().and_then(|value| value["body"].as_str());
    body.unwrap_or(content).to_owned()
}

/// Returns the text of a message near a reported one, or the reason why there is none.
pub(super) fn context_text(content: &Value) -> Result<&str, &'static str> {
    match (content["body"].as_str(), content.get("ciphertext")) {
        (Some(body), _) => Ok(body),
        (None, Some(_)) => Err("Encrypted message"),
        (None, None) => Err("Removed message"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use serde_json::json;
    use time::{Duration, macros::datetime};

    use super::*;

    #[test]
    fn csrf_token_is_valid_until_next_day_ends() {
        let (key, now) = (FormKey::new("00ff"), datetime!(2026-11-20 23:59 UTC));
        let mark = key.mark("ola", now);
        assert!(key.accepts(&mark, "ola", now) && key.accepts(&mark, "ola", now + Duration::minutes(2)));
        assert!(!key.accepts(&mark, "ola", now + Duration::hours(25)), "two days later");
        assert!(!key.accepts(&mark, "ida", now) && !FormKey::new("00fe").accepts(&mark, "ola", now));
        assert!(FormKey::new("00ff").accepts(&mark, "ola", now), "another process");
        for nonsense in ["", "zz", &mark[..62], &mark.replace('a', "b")] {
            assert!(nonsense == mark || !key.accepts(nonsense, "ola", now), "{nonsense}");
        }
    }

    fn roles(viewers: &[&str], moderators: &[&str], operators: &[&str]) -> Roles {
        let of =
            |role: Role, list: &[&str]| list.iter().map(move |entry| (role, (*entry).to_owned())).collect::<Vec<_>>();
        Roles([of(Role::Viewer, viewers), of(Role::Moderator, moderators), of(Role::Operator, operators)].concat())
    }

    fn claims(value: Value) -> Map<String, Value> {
        let Value::Object(claims) = value else { panic!("not an object") };
        claims
    }

    #[test]
    fn highest_role_by_group_or_name_counts() {
        let roles = roles(&["staff"], &["trust-and-safety", "user:ida"], &["sre", "user:ola"]);
        let of = |name: &str, groups: &[&str]| {
            roles.of(name, &groups.iter().map(|group| (*group).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of("eve", &[]), None);
        assert_eq!(of("eve", &["Staff", "sr", "sre2"]), None, "names are compared exactly");
        assert_eq!(of("eve", &["staff"]), Some(Role::Viewer));
        assert_eq!(of("ida", &["staff"]), Some(Role::Moderator));
        assert_eq!(of("eve", &["staff", "sre", "trust-and-safety"]), Some(Role::Operator));
        assert_eq!(of("ola", &[]), Some(Role::Operator));
    }

    #[test]
    fn name_like_a_group_gives_no_role() {
        let roles = roles(&[], &[], &["sre", "user:ola"]);
        assert_eq!(roles.of("sre", &[]), None, "an operator with the name of a group");
        assert_eq!(
            roles.of("eve", &["ola".to_owned(), "user:ola".to_owned()]),
            None,
            "a group with the name of an operator"
        );
    }

    #[test]
    fn token_is_current_between_its_times() {
        let now = datetime!(2026-11-20 15:00 UTC);
        let at = now.unix_timestamp();
        for (value, expected) in [
            (json!({"exp": at + 1}), true),
            (json!({"exp": at - 59}), true),
            (json!({"exp": at - 60}), false),
            (serde_json::from_str(&format!("{{\"exp\": {at}.5}}")).expect("JSON"), true),
            (json!({"exp": at + 600, "nbf": at + 60}), true),
            (json!({"exp": at + 600, "nbf": at + 61}), false),
            (json!({"exp": at + 600, "nbf": null}), true),
            (json!({"exp": at + 600, "nbf": "now"}), false),
            (json!({"exp": (at + 600).to_string()}), false),
            (json!({"exp": null}), false),
            (json!({}), false),
        ] {
            assert_eq!(is_current(&claims(value.clone()), now), expected, "{value}");
        }
    }

    #[test]
    fn token_names_operator_and_groups() {
        let token = claims(json!({
            "email": "ola@example.org", "sub": "7", "groups": ["a", 3, "b"], "role": "one",
            "realm_access": {"roles": ["deep"]}, "https://example.org/roles": ["dotted"],
        }));
        assert_eq!(named_by(&token, "email").as_deref(), Some("ola@example.org"));
        assert_eq!(named_by(&token, "sub").as_deref(), Some("7"));
        assert_eq!(named_by(&token, "name"), None);
        for (claim, expected) in [
            ("groups", vec!["a", "b"]),
            ("role", vec!["one"]),
            ("realm_access.roles", vec!["deep"]),
            ("https://example.org/roles", vec!["dotted"]),
            ("realm_access", vec![]),
            ("realm_access.nothing.at.all", vec![]),
        ] {
            assert_eq!(groups_in(&token, claim), expected, "{claim}");
        }
        for (verified, expected) in [
            (json!(true), true),
            (json!("true"), true),
            (json!(false), false),
            (json!("false"), false),
            (json!(null), false),
        ] {
            let token = claims(json!({"email": "ola@example.org", "email_verified": verified}));
            assert_eq!(named_by(&token, "email").is_some(), expected, "{token:?}");
        }
    }

    proptest! {
        #[test]
        fn only_the_exact_secret_is_accepted(secrets in vec("[!-~]{32,40}", 1..4), given in "[!-~]{0,40}") {
            let known = ProxySecrets::new(secrets.iter().map(String::as_str));
            prop_assert!(secrets.iter().all(|secret| known.contain(secret.as_bytes())));
            prop_assert_eq!(known.contain(given.as_bytes()), secrets.contains(&given));
            let (shorter, longer) = (&secrets[0].as_bytes()[..31], [secrets[0].as_bytes(), b" "].concat());
            prop_assert!(!known.contain(shorter) && !known.contain(&longer));
            prop_assert!(!ProxySecrets::new([]).contain(given.as_bytes()));
        }

        #[test]
        fn no_role_without_an_entry(name in "[a-z:]{0,12}", groups in vec("[a-z:]{0,12}", 0..4), entries in vec("[a-z:]{0,12}", 0..4)) {
            let role = Roles(entries.iter().map(|entry| (Role::Operator, entry.clone())).collect()).of(&name, &groups);
            let is_named = entries.contains(&format!("user:{name}"));
            let is_member = groups.iter().any(|group| entries.contains(group) && !group.starts_with("user:"));
            prop_assert_eq!(role.is_some(), is_named || is_member);
        }
    }

    #[test]
    fn operator_name_must_be_single_and_printable() {
        let name = |values: &[&str]| operator_name(values.iter().map(|text| text.as_bytes()));
        assert_eq!(name(&[" ola@example.org "]).as_deref(), Some("ola@example.org"));
        assert_eq!(name(&["Żaneta"]).as_deref(), Some("Żaneta"));
        for invalid in [&[][..], &[""], &[" "], &["ola", "ida"], &["o\u{7}la"], &["x".repeat(201).as_str()]] {
            assert_eq!(name(invalid), None, "{invalid:?}");
        }
        assert_eq!(operator_name([&b"\xff"[..]]), None);
    }

    #[test]
    fn reported_messages_show_their_text() {
        assert_eq!(message_text(r#"{"body": "hi <b>", "msgtype": "m.text"}"#), "hi <b>");
        assert_eq!(message_text(r#"{"ciphertext": "x"}"#), r#"{"ciphertext": "x"}"#);
        assert_eq!(message_text("cut o"), "cut o");
    }
}
