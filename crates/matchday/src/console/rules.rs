//! Who an operator is and what they may do, and what proves that a form is ours; no I/O.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use time::OffsetDateTime;

use super::settings::Settings;

/// The longest name of an operator.
const LONGEST_NAME: usize = 200;
/// The longest reason.
const LONGEST_REASON: usize = 500;
/// Difference between our clock and the identity provider's that is tolerated, in seconds.
const CLOCK_SKEW: f64 = 60.0;
/// Entries of role settings with this prefix name an operator, all others a group. Without it, users who can choose their own
/// name could take the name of a group.
const PERSON: &str = "user:";

/// What an operator may do. Each role includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look at every page.
    Viewer,
    /// Handle reports, mute and ban users.
    Moderator,
    /// Everything.
    Operator,
}

impl Role {
    /// As pages and logs show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Moderator => "moderator",
            Self::Operator => "operator",
        }
    }
}

/// Groups and operators that have a role, from the settings.
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

    /// The highest role that an operator has by name or by group.
    pub(super) fn of(&self, name: &str, groups: &[String]) -> Option<Role> {
        let has = |entry: &str| match entry.strip_prefix(PERSON) {
            Some(person) => person == name,
            None => groups.iter().any(|group| group == entry),
        };
        self.0.iter().filter(|(_, entry)| has(entry)).map(|(role, _)| *role).max()
    }
}

/// Digests of the secrets that a proxy may send. Comparing digests takes the same time for every length and every secret.
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

/// Groups out of a header: names separated by commas.
pub(super) fn groups(header: &str) -> Vec<String> {
    header.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect()
}

/// Whether a token is valid at this moment. A token without an end is not.
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

/// The operator that a token names. An email address that the provider has not verified is not a name: its user may have
/// entered another person's.
pub(super) fn named_by(claims: &Map<String, Value>, claim: &str) -> Option<String> {
    if claim == "email" && claims.get("email_verified").is_some_and(|verified| !is_true(verified)) {
        return None;
    }
    operator_name([claims.get(claim)?.as_str()?.as_bytes()])
}

/// Some providers write truth values as text.
fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or_else(|| value.as_str() == Some("true"))
}

/// Groups that a token names: in the claim of that name, or else where its dots lead.
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

/// What forms are marked with. It is made from a secret that all processes share, so that any of them knows the forms of
/// the others.
#[derive(Clone)]
pub(super) struct FormKey(Hmac<Sha256>);

impl FormKey {
    pub(super) fn new(secret: &str) -> Self {
        // HMAC takes a key of any length, so it cannot fail.
        let mut own = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length");
        own.update(b"matchday console forms");
        Self(Hmac::new_from_slice(&own.finalize().into_bytes()).expect("a key of any length"))
    }

    /// The mark of an operator's forms, today.
    pub(super) fn mark(&self, operator: &str, now: OffsetDateTime) -> String {
        hex::encode(self.of_day(operator, day(now)).finalize().into_bytes())
    }

    /// Whether a form is this operator's, of today or yesterday: who works past midnight need not begin again.
    pub(super) fn knows(&self, mark: &str, operator: &str, now: OffsetDateTime) -> bool {
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

/// What a proxy calls an operator. Said twice, nobody knows which one the proxy said and which one was let through.
pub(super) fn operator_name<'a>(said: impl IntoIterator<Item = &'a [u8]>) -> Option<String> {
    let mut said = said.into_iter();
    let (first, second) = (said.next()?, said.next());
    let name = std::str::from_utf8(first).ok()?.trim();
    let fits = (1..=LONGEST_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    (fits && second.is_none()).then(|| name.to_owned())
}

/// Why somebody does something: a few words on one line.
pub(super) fn reason(text: &str) -> Option<&str> {
    let text = text.trim();
    let fits = (1..=LONGEST_REASON).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    fits.then_some(text)
}

/// What a reported message says, for people: its text, or all of it where it has none.
pub(super) fn said(content: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(content).ok();
    let body = value.as_ref().and_then(|value| value["body"].as_str());
    body.unwrap_or(content).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use serde_json::json;
    use time::{Duration, macros::datetime};

    use super::*;

    #[test]
    fn a_form_is_known_by_its_operator_until_the_end_of_the_next_day() {
        let (key, now) = (FormKey::new("00ff"), datetime!(2026-11-20 23:59 UTC));
        let mark = key.mark("ola", now);
        assert!(key.knows(&mark, "ola", now) && key.knows(&mark, "ola", now + Duration::minutes(2)));
        assert!(!key.knows(&mark, "ola", now + Duration::hours(25)), "two days later");
        assert!(!key.knows(&mark, "ida", now) && !FormKey::new("00fe").knows(&mark, "ola", now));
        assert!(FormKey::new("00ff").knows(&mark, "ola", now), "another process");
        for nonsense in ["", "zz", &mark[..62], &mark.replace('a', "b")] {
            assert!(nonsense == mark || !key.knows(nonsense, "ola", now), "{nonsense}");
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
        assert_eq!(roles.of("sre", &[]), None, "an operator who calls themselves like a group");
        assert_eq!(
            roles.of("eve", &["ola".to_owned(), "user:ola".to_owned()]),
            None,
            "a group called like an operator"
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
    fn an_operator_is_named_once_and_plainly() {
        let name = |said: &[&str]| operator_name(said.iter().map(|text| text.as_bytes()));
        assert_eq!(name(&[" ola@example.org "]).as_deref(), Some("ola@example.org"));
        assert_eq!(name(&["Żaneta"]).as_deref(), Some("Żaneta"));
        for nobody in [&[][..], &[""], &[" "], &["ola", "ida"], &["o\u{7}la"], &["x".repeat(201).as_str()]] {
            assert_eq!(name(nobody), None, "{nobody:?}");
        }
        assert_eq!(operator_name([&b"\xff"[..]]), None);
    }

    #[test]
    fn messages_are_shown_as_people_wrote_them() {
        assert_eq!(said(r#"{"body": "hi <b>", "msgtype": "m.text"}"#), "hi <b>");
        assert_eq!(said(r#"{"ciphertext": "x"}"#), r#"{"ciphertext": "x"}"#);
        assert_eq!(said("cut o"), "cut o");
    }
}
