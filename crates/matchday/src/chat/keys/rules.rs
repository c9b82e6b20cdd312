//! Checks of uploaded cross-signing keys. No I/O.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use matrix_appservice::SigningKeys;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use web::fields::{Faults, FromJson, one};

/// Maximum size of one key in bytes. A key with the signature of one device has about 500 bytes.
const LARGEST: usize = 8 * 1024;
/// Maximum length of a key id and of a public key, in bytes.
const LONGEST: usize = 255;
/// Numbers in signed JSON must be whole and within this distance of zero.
const LARGEST_NUMBER: i64 = (1 << 53) - 1;
const ALGORITHM: &str = "ed25519:";
/// Length of an Ed25519 public key in bytes.
const PUBLIC_KEY: usize = 32;

/// A cross-signing key of the Matrix specification. It contains no private key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = CrossSigningKey)]
pub(super) struct SigningKey {
    /// The caller's Matrix id.
    #[schema(example = "@ada_obi:example.org")]
    user_id: String,
    /// Exactly one of `master`, `self_signing` and `user_signing`.
    #[schema(example = json!(["master"]))]
    usage: Vec<String>,
    /// Exactly one public key, by its id `ed25519:` and the public key in unpadded base64.
    #[schema(example = json!({"ed25519:nqOvzeuGWT/sRx3h7+MHoInYj3Uk2LD/unI9kDYcHwk": "nqOvzeuGWT/sRx3h7+MHoInYj3Uk2LD/unI9kDYcHwk"}))]
    keys: BTreeMap<String, String>,
    /// Signatures by user id and key id. The homeserver requires a signature of the master key on the other two keys.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    signatures: Option<BTreeMap<String, BTreeMap<String, String>>>,
    /// Further fields are part of the signed object, so they are passed on.
    #[serde(flatten)]
    #[schema(ignore)]
    other: Map<String, Value>,
}

/// Reads a field that may be absent, but not null.
fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(field: D) -> Result<Option<T>, D::Error> {
    T::deserialize(field).map(Some)
}

impl FromJson for SigningKey {
    const EXPECTED: &'static str = "must be a cross-signing key of the Matrix specification, with one ed25519 key";

    fn from_json(value: &Value) -> Option<Self> {
        let key: Self = Self::deserialize(value).ok()?;
        let (id, public) = key.public()?;
        let fits = id.starts_with(ALGORITHM)
            && (ALGORITHM.len() + 1..=LONGEST).contains(&id.len())
            && (1..=LONGEST).contains(&public.len())
            && key.usage.len() == 1
            && is_canonical(value)
            && value.to_string().len() <= LARGEST;
        fits.then_some(key)
    }
}

impl SigningKey {
    /// Id and public key, if there is exactly one.
    fn public(&self) -> Option<(&String, &String)> {
        self.keys.first_key_value().filter(|_| self.keys.len() == 1)
    }

    /// Whether the public key has the right length and its id contains it.
    fn is_well_formed(&self) -> bool {
        self.public().is_some_and(|(id, public)| {
            let bytes = STANDARD_NO_PAD.decode(public);
            id.strip_prefix(ALGORITHM) == Some(public) && bytes.is_ok_and(|bytes| bytes.len() == PUBLIC_KEY)
        })
    }
}

/// The keys that replace the user's present ones.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_field_names, reason = "as in Matrix requests")]
pub(super) struct NewKeys {
    pub(super) master_key: SigningKey,
    pub(super) self_signing_key: SigningKey,
    pub(super) user_signing_key: SigningKey,
}

impl NewKeys {
    fn each(&self) -> [(&'static str, &'static str, &SigningKey); 3] {
        [
            ("master_key", "master", &self.master_key),
            ("self_signing_key", "self_signing", &self.self_signing_key),
            ("user_signing_key", "user_signing", &self.user_signing_key),
        ]
    }

    /// Faults by field: keys of another user or with another usage.
    pub(super) fn faults(&self, user_id: &str) -> Faults {
        let mut faults = Faults::new();
        for (field, usage, key) in self.each() {
            if key.usage != [usage] {
                faults.extend(one(field, &format!("must have exactly the usage {usage}")));
            } else if key.user_id != user_id {
                faults.extend(one(field, "must have your chat id as user_id"));
            }
        }
        faults
    }

    /// Faults by field: public keys that no signature can be checked with. A homeserver may store some of the keys before
    /// it detects such a fault in another one, so these keys must not reach it.
    pub(super) fn malformed(&self) -> Faults {
        let malformed = self.each().into_iter().filter(|(_, _, key)| !key.is_well_formed());
        malformed
            .flat_map(|(field, ..)| one(field, "must have an ed25519 public key in unpadded base64, also as its id"))
            .collect()
    }

    /// Faults of all fields, because the homeserver does not reliably name the key that it refuses.
    pub(super) fn refused(&self) -> Faults {
        let message = "was refused by the chat server: the master key must sign the other two";
        self.each().into_iter().flat_map(|(field, ..)| one(field, message)).collect()
    }

    /// Whether these are the same public keys.
    pub(super) fn are(&self, stored: &SigningKeys) -> bool {
        let stored = [&stored.master, &stored.self_signing, &stored.user_signing];
        self.each().into_iter().zip(stored).all(|((_, _, key), stored)| {
            key.public().is_some_and(|(id, public)| stored["keys"][id].as_str() == Some(public))
        })
    }

    pub(super) fn to_upload(&self) -> serde_json::Result<SigningKeys> {
        Ok(SigningKeys {
            master: serde_json::to_value(&self.master_key)?,
            self_signing: serde_json::to_value(&self.self_signing_key)?,
            user_signing: serde_json::to_value(&self.user_signing_key)?,
        })
    }
}

/// Whether the value can be signed and stored: canonical JSON has only whole numbers of limited size, and `PostgreSQL`,
/// which homeservers use too, cannot store NUL.
fn is_canonical(value: &Value) -> bool {
    let is_text = |text: &str| !text.contains('\0');
    match value {
        Value::Null | Value::Bool(_) => true,
        Value::Number(number) => {
            number.as_i64().is_some_and(|number| (-LARGEST_NUMBER..=LARGEST_NUMBER).contains(&number))
        }
        Value::String(text) => is_text(text),
        Value::Array(values) => values.iter().all(is_canonical),
        Value::Object(fields) => fields.iter().all(|(name, value)| is_text(name) && is_canonical(value)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const ADA: &str = "@ada:example.org";

    fn key(usage: &str) -> Value {
        let public = STANDARD_NO_PAD.encode([7; 32]);
        json!({"user_id": ADA, "usage": [usage], "keys": {format!("ed25519:{public}"): public}})
    }

    fn with(name: &str, value: impl Into<Value>) -> Value {
        let mut key = key("master");
        key[name] = value.into();
        key
    }

    fn read(value: &Value) -> Option<SigningKey> {
        SigningKey::from_json(value)
    }

    fn keys(values: [Value; 3]) -> NewKeys {
        let [master_key, self_signing_key, user_signing_key] = values.map(|value| read(&value).expect("a key"));
        NewKeys { master_key, self_signing_key, user_signing_key }
    }

    fn valid() -> NewKeys {
        keys(["master", "self_signing", "user_signing"].map(key))
    }

    #[test]
    fn only_objects_of_the_specification_are_keys() {
        let signatures = json!({ADA: {"ed25519:DEVICE": "c2lnbmF0dXJl"}});
        for good in [
            key("master"),
            with("keys", json!({"ed25519:x": "x"})),
            with("signatures", signatures),
            with("signatures", json!({})),
            with("org.example.note", json!({"any": ["thing", 1, null, true]})),
            with("unsigned", json!(9_007_199_254_740_991_i64)),
        ] {
            assert!(read(&good).is_some(), "{good}");
        }
        for bad in [
            json!(null),
            json!("master"),
            json!([]),
            json!({}),
            with("user_id", 7),
            with("user_id", "@a\u{0}:example.org"),
            with("usage", "master"),
            with("usage", json!([])),
            with("usage", json!(["master", "self_signing"])),
            with("usage", json!(["master", "master"])),
            with("keys", json!({})),
            with("keys", json!({"ed25519:x": "x", "ed25519:y": "y"})),
            with("keys", json!({"curve25519:x": "x"})),
            with("keys", json!({"ed25519:": "x"})),
            with("keys", json!({"ed25519:x": ""})),
            with("keys", json!({"ed25519:x": 7})),
            with("keys", json!({"ed25519:x": "x".repeat(256)})),
            with("keys", json!({format!("ed25519:{}", "x".repeat(256)): "x"})),
            with("signatures", json!(null)),
            with("signatures", json!([])),
            with("signatures", json!({ADA: "signature"})),
            with("signatures", json!({ADA: {"ed25519:x": 7}})),
            with("note", 0.5),
            with("note", json!(9_007_199_254_740_992_i64)),
            with("note", json!({"a\u{0}": 1})),
            with("note", "x".repeat(LARGEST)),
        ] {
            assert!(read(&bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn keys_must_belong_to_user_and_field() {
        assert!(valid().faults(ADA).is_empty());
        assert_eq!(valid().faults("@bob:example.org").len(), 3);
        let swapped = keys(["self_signing", "master", "user_signing"].map(key));
        assert_eq!(swapped.faults(ADA).into_keys().collect::<Vec<_>>(), ["master_key", "self_signing_key"]);
    }

    #[test]
    fn public_key_must_match_its_id() {
        assert!(valid().malformed().is_empty());
        let public = STANDARD_NO_PAD.encode([7; 31]);
        let other = STANDARD_NO_PAD.encode([8; 32]);
        for (id, public) in [(&public, &public), (&"x".to_owned(), &"x".to_owned()), (&other, &public)] {
            let bad = with("keys", json!({format!("ed25519:{id}"): public}));
            let faults = NewKeys { master_key: read(&bad).expect("a key"), ..valid() }.malformed();
            assert_eq!(faults.into_keys().collect::<Vec<_>>(), ["master_key"], "{bad}");
        }
    }

    #[test]
    fn stored_keys_are_compared_without_signatures() {
        let mut stored = valid().to_upload().expect("JSON");
        stored.master["signatures"] = json!({ADA: {"ed25519:DEVICE": "added"}});
        assert!(valid().are(&stored));
        stored.user_signing["keys"] = json!({"ed25519:x": "x"});
        assert!(!valid().are(&stored));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Signatures cover all fields, so a key that is accepted must reach the homeserver unchanged.
        #[test]
        fn accepted_keys_are_passed_on_unchanged(name in "[a-z_.]{0,12}", value in any_json()) {
            let mut object = key("master");
            object[name.as_str()] = value;
            if let Some(read) = read(&object) {
                prop_assert_eq!(serde_json::to_value(read).expect("JSON"), object);
            }
        }

        #[test]
        fn reading_keys_never_panics(value in any_json()) {
            let _ = read(&value);
        }
    }
}
