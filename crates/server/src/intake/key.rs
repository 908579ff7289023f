//! Idempotency keys: from the header or the body, never two different ones.

use runyard_core::event::Idempotency;
use runyard_core::name::Name;
use sha2::{Digest, Sha256};

use crate::problem::Invalid;

const KEY_BYTES_MAX: usize = 256;

/// The one key of a request.
pub fn key_of(header: Option<&str>, body: Option<&str>) -> Result<Option<String>, Invalid> {
    let key = match (header, body) {
        (Some(header), Some(body)) if header != body => {
            return Err(Invalid::new("idempotencyKey", "differs from the Idempotency-Key header; send one of them"));
        }
        (header, body) => header.or(body),
    };
    let Some(key) = key else { return Ok(None) };
    if key.is_empty() || key.len() > KEY_BYTES_MAX || key.chars().any(char::is_control) {
        return Err(Invalid::new("idempotencyKey", "must be 1 to 256 bytes without control characters"));
    }
    Ok(Some(key.to_owned()))
}

pub fn idempotency(agent: &Name, key: &str, body: &[u8]) -> Idempotency {
    Idempotency { agent: agent.clone(), key: Name::new(key), hash: hash(body) }
}

/// Stored for days, so it must be the same in every build: eight bytes of SHA-256.
fn hash(body: &[u8]) -> u64 {
    let digest = Sha256::digest(body);
    let first = digest.first_chunk::<8>().expect("a digest has 32 bytes");
    u64::from_be_bytes(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_body_must_agree() {
        assert_eq!(key_of(Some("a"), None), Ok(Some("a".into())));
        assert_eq!(key_of(Some("a"), Some("a")), Ok(Some("a".into())));
        assert_eq!(key_of(None, None), Ok(None));
        assert!(key_of(Some("a"), Some("b")).is_err());
        assert!(key_of(None, Some("")).is_err());
        assert!(key_of(None, Some(&"k".repeat(10_000))).is_err());
    }

    #[test]
    fn another_body_has_another_hash() {
        let agent = Name::new("a");
        assert_eq!(idempotency(&agent, "k", b"x"), idempotency(&agent, "k", b"x"));
        assert_ne!(idempotency(&agent, "k", b"x").hash, idempotency(&agent, "k", b"y").hash);
    }
}
