//! Time stamps of a public authority (RFC 3161): they prove to others that a seal existed at a time, without trust in the
//! operator of this service.

use std::{sync::Arc, time::Duration};

use der::{Decode as _, Reader as _, SliceReader, Tag, Tagged as _, asn1::AnyRef};
use http::header;
use platform::{
    Core,
    clock::Clock,
    random::{self, Random},
};
use sqlx::PgPool;
use url::Url;

use super::{settings::Settings, store};
use crate::game::predictions::receipts::Hash;

/// Maximum duration of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Pause while all seals have a token.
const POLL: Duration = Duration::from_secs(1);

/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(30);

/// Maximum length of a response. Tokens with certificates have a few kilobytes.
const MOST_BYTES: usize = 64 * 1_024;

/// Number of seals that get a token before the newest ones are looked up again.
const BATCH: i64 = 20;

/// A time-stamping authority.
#[derive(Clone)]
pub struct Timestamps {
    url: Url,
    http: reqwest::Client,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// Reason why a seal got no token.
#[derive(Debug, thiserror::Error)]
enum StampError {
    #[error("the authority cannot be reached: {0}")]
    Http(#[from] reqwest::Error),
    #[error("the response is too long")]
    TooLong,
    #[error("the authority responded with status {0}")]
    Status(u16),
    #[error("the authority refused the request with status {0}")]
    Refused(u8),
    #[error("the response is not a time-stamp response: {0}")]
    Malformed(der::Error),
    /// The token is for another hash or another request.
    #[error("the token is for another hash or request")]
    Other,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl From<der::Error> for StampError {
    fn from(error: der::Error) -> Self {
        Self::Malformed(error)
    }
}

impl Timestamps {
    /// Returns the authority of the settings, if they have one.
    pub fn new(core: &Core, settings: &Settings) -> reqwest::Result<Option<Self>> {
        let Some(url) = settings.timestamp_url.clone() else { return Ok(None) };
        // Operators choose the URL, so it may be inside their network. Many authorities have no TLS: tokens are signed.
        let http = reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Some(Self { url, http, clock: core.clock.clone(), random: core.random.clone() }))
    }

    /// Requests tokens for seals that have none. Returns the pause before the next call.
    pub(super) async fn stamp(&self, db: &PgPool) -> Duration {
        match self.stamp_some(db).await {
            Ok(true) => Duration::ZERO,
            Ok(false) => POLL,
            Err(error) => {
                tracing::warn!(%error, "seals got no time stamp; retrying");
                RETRY
            }
        }
    }

    async fn stamp_some(&self, db: &PgPool) -> Result<bool, StampError> {
        let seals = store::without_token(db, BATCH).await?;
        for &(sequence, hash) in &seals {
            let token = self.request(hash).await?;
            store::insert_token(db, sequence, &token, self.clock.now()).await?;
        }
        Ok(!seals.is_empty())
    }

    async fn request(&self, hash: Hash) -> Result<Vec<u8>, StampError> {
        let nonce: [u8; 8] = random::bytes(&*self.random);
        let request = self.http.post(self.url.clone()).body(encode_request(hash, nonce));
        let request = request
            .header(header::CONTENT_TYPE, "application/timestamp-query")
            .header(header::ACCEPT, "application/timestamp-reply");
        let mut response = request.send().await?;
        if response.status() != http::StatusCode::OK {
            return Err(StampError::Status(response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await? {
            body.extend_from_slice(&part);
            if body.len() > MOST_BYTES {
                return Err(StampError::TooLong);
            }
        }
        read_response(&body, hash, nonce)
    }
}

/// DER of `AlgorithmIdentifier { sha256, NULL }` and of the tag and length of the hash after it.
const IMPRINT: [u8; 17] = [
    0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05,
    0x00, // AlgorithmIdentifier
    0x04, 0x20, // OCTET STRING of 32 bytes
];

/// Encodes a `TimeStampReq` for a hash, with a nonce of at most eight bytes, that asks for the certificates.
fn encode_request(hash: Hash, nonce: [u8; 8]) -> Vec<u8> {
    // A positive integer: a leading zero keeps the sign, and the bit after it keeps the encoding shortest.
    let [first, rest @ ..] = nonce;
    let nonce = [&[0x00, first | 0x80], &rest[..]].concat();
    let imprint = [&IMPRINT[..], &hash.0].concat();
    let body = [
        &[0x02, 0x01, 0x01][..], // version 1
        &[0x30, 0x31],
        &imprint,
        &[0x02, 0x09],
        &nonce,
        &[0x01, 0x01, 0xff], // certReq TRUE
    ]
    .concat();
    [&[0x30, u8::try_from(body.len()).unwrap_or_default()], &body[..]].concat()
}

/// Reads a `TimeStampResp`, checks that its token is for this hash and nonce, and returns the token. The signature is for
/// readers of the token to check: they choose whose certificates they trust.
fn read_response(response: &[u8], hash: Hash, nonce: [u8; 8]) -> Result<Vec<u8>, StampError> {
    let mut fields = contents(AnyRef::from_der(response)?, Tag::Sequence)?;
    let mut status = contents(fields.decode()?, Tag::Sequence)?;
    // 0 is granted, 1 granted with modifications.
    let status = status.decode::<u8>()?;
    if status > 1 {
        return Err(StampError::Refused(status));
    }
    let token = fields.tlv_bytes()?;
    let info = AnyRef::from_der(signed_content(token)?)?;
    let mut info = contents(info, Tag::Sequence)?;
    // Version and policy come first.
    skip(&mut info, 2)?;
    let imprint = info.tlv_bytes()?;
    let is_hash = imprint.strip_prefix(&[0x30, 0x31]).and_then(|rest| rest.strip_prefix(&IMPRINT)) == Some(&hash.0[..]);
    let [first, rest @ ..] = nonce;
    let expected = [&[0x02, 0x09, 0x00, first | 0x80], &rest[..]].concat();
    let mut has_nonce = false;
    while !info.is_finished() {
        has_nonce |= info.tlv_bytes()? == expected;
    }
    if is_hash && has_nonce { Ok(token.to_vec()) } else { Err(StampError::Other) }
}

/// Returns the `TSTInfo` in a token: the content of a CMS `SignedData`.
fn signed_content(token: &[u8]) -> der::Result<&[u8]> {
    let mut token = contents(AnyRef::from_der(token)?, Tag::Sequence)?;
    // The content type comes first.
    skip(&mut token, 1)?;
    let mut wrapped = SliceReader::new(token.decode::<AnyRef<'_>>()?.value())?;
    let mut signed = contents(wrapped.decode()?, Tag::Sequence)?;
    // Version and digest algorithms come first.
    skip(&mut signed, 2)?;
    let mut encapsulated = contents(signed.decode()?, Tag::Sequence)?;
    skip(&mut encapsulated, 1)?;
    let wrapped = encapsulated.decode::<AnyRef<'_>>()?;
    let content = AnyRef::from_der(wrapped.value())?;
    content.tag().assert_eq(Tag::OctetString)?;
    Ok(content.value())
}

fn contents(value: AnyRef<'_>, tag: Tag) -> der::Result<SliceReader<'_>> {
    value.tag().assert_eq(tag)?;
    SliceReader::new(value.value())
}

fn skip(reader: &mut SliceReader<'_>, number: usize) -> der::Result<()> {
    for _ in 0..number {
        reader.tlv_bytes()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn request_is_encoded_as_der() {
        let request = encode_request(Hash([0xab; 32]), [1, 2, 3, 4, 5, 6, 7, 8]);
        let imprint = format!("3031300d060960864801650304020105000420{}", "ab".repeat(32));
        let expected = format!("3044020101{imprint}02090081020304050607080101ff");
        assert_eq!(hex::encode(&request), expected);
        let mut fields = contents(AnyRef::from_der(&request).expect("DER"), Tag::Sequence).expect("a sequence");
        assert_eq!(fields.decode::<u8>(), Ok(1));
        skip(&mut fields, 3).expect("three fields");
        assert!(fields.is_finished());
    }

    #[test]
    fn refusal_is_an_error() {
        let refusal = hex::decode("3005300302010200").expect("hex");
        let refused = read_response(&refusal[..7], Hash::default(), [0; 8]);
        assert!(matches!(refused, Err(StampError::Refused(2))), "{refused:?}");
    }

    proptest! {
        #[test]
        fn arbitrary_responses_do_not_panic(bytes: Vec<u8>) {
            prop_assert!(read_response(&bytes, Hash::default(), [0; 8]).is_err());
        }
    }
}
