//! Signatures as Standard Webhooks has them: `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const PREFIX: &str = "whsec_";
/// What the specification asks for.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The key behind `whsec_…`. Never shown by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("must be whsec_ and the base64 of 24 to 64 bytes, or several of them with a space between")]
pub struct BadSecret;

impl Secret {
    /// 256 random bits.
    pub fn random() -> Result<Secret, getrandom::Error> {
        let mut bytes = vec![0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Secret(bytes))
    }

    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whsec_…")
    }
}

impl FromStr for Secret {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Secret, BadSecret> {
        let encoded = text.strip_prefix(PREFIX).ok_or(BadSecret)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| BadSecret)?;
        if BYTES.contains(&bytes.len()) { Ok(Secret(bytes)) } else { Err(BadSecret) }
    }
}

/// The secrets of one subscription: more than one while it changes from one to the other.
pub fn secrets_of(text: &str) -> Result<Vec<Secret>, BadSecret> {
    let secrets: Vec<Secret> = text.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    if secrets.is_empty() { Err(BadSecret) } else { Ok(secrets) }
}

/// The value of `webhook-signature`: one for each secret, any of which a receiver may know.
pub fn signatures(secrets: &[Secret], id: &str, timestamp: u64, body: &[u8]) -> String {
    secrets.iter().map(|secret| secret.sign(id, timestamp, body)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's own libraries.
    #[test]
    fn the_published_example_has_its_signature() {
        let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().expect("a secret");
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", br#"{"test": 2432232314}"#);
        let signed = signatures(&[secret], id, 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn several_secrets_give_several_signatures() {
        let both = secrets_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
        let both = both.expect("two secrets");
        let signed = signatures(&both, "a", 1, b"b");
        let parts: Vec<&str> = signed.split(' ').collect();
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[1], signatures(&both[1..], "a", 1, b"b"));
        assert_ne!(parts[0], parts[1]);
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        for text in ["", " ", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_short", "whsec_***", "whsec_AAAA"] {
            assert_eq!(secrets_of(text), Err(BadSecret), "{text}");
        }
        let secret = Secret::random().expect("random bytes");
        assert_eq!(secret.reveal().parse(), Ok(secret.clone()));
        assert_eq!(format!("{secret:?}"), "whsec_…");
    }
}
