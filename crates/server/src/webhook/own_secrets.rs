//! The server's own secret: made at the first start, kept in the store, sealed. What it signs is everything that no
//! subscription signs with its own.

use runyard_core::now::WallMs;
use serde::{Deserialize, Serialize};

use super::sign::{BadSecret, Secret};
use crate::secrets::{SealError, SealingKey};

/// The store's document that holds them.
pub const SETTING: &str = "webhook.secrets";
/// After a change both sign for a day, so that receivers can follow.
const OVERLAP_MS: u64 = 24 * 3_600_000;

/// Newest first.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct OwnSecrets(Vec<OwnSecret>);

#[derive(Clone, Debug, PartialEq)]
struct OwnSecret {
    secret: Secret,
    /// It signs no longer than this.
    until_ms: Option<WallMs>,
}

/// As it is stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    #[serde(flatten)]
    value: StoredValue,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until_ms: Option<WallMs>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum StoredValue {
    Sealed(String),
    /// As earlier versions wrote it.
    Secret(String),
}

impl OwnSecrets {
    /// What cannot be opened is left out, and said: without it the server signs with a new one, which receivers have to be
    /// told, instead of not starting at all.
    pub fn from_json(bytes: &[u8], key: &SealingKey) -> Result<OwnSecrets, serde_json::Error> {
        let stored: Vec<Stored> = serde_json::from_slice(bytes)?;
        Ok(OwnSecrets(stored.into_iter().filter_map(|stored| opened(stored, key)).collect()))
    }

    pub fn to_json(&self, key: &SealingKey) -> Result<Vec<u8>, SealError> {
        let sealed = self.0.iter().map(|own| {
            let value = StoredValue::Sealed(key.seal(SETTING, &own.secret.reveal())?);
            Ok(Stored { value, until_ms: own.until_ms })
        });
        let sealed: Vec<Stored> = sealed.collect::<Result<_, SealError>>()?;
        Ok(serde_json::to_vec(&sealed).expect("sealed secrets are plain data"))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that sign at this moment, newest first, with the end of each that has one.
    pub fn signing(&self, now_ms: WallMs) -> impl Iterator<Item = (&Secret, Option<WallMs>)> {
        self.0
            .iter()
            .map(|own| (&own.secret, own.until_ms))
            .filter(move |(_, until)| until.is_none_or(|at| now_ms < at))
    }

    /// A new one signs from now on; the one before goes on for a day, those before that are gone.
    pub fn rotated(&self, secret: Secret, now_ms: WallMs) -> OwnSecrets {
        let before = self.signing(now_ms).next().map(|(before, _)| before.clone());
        let before = before.map(|secret| OwnSecret { secret, until_ms: Some(now_ms + OVERLAP_MS) });
        OwnSecrets(std::iter::once(OwnSecret { secret, until_ms: None }).chain(before).collect())
    }
}

fn opened(stored: Stored, key: &SealingKey) -> Option<OwnSecret> {
    let text = match stored.value {
        StoredValue::Sealed(sealed) => key.open(SETTING, &sealed),
        StoredValue::Secret(text) => Ok(text),
    };
    let secret = text.map_err(|error| error.to_string());
    let secret = secret.and_then(|text| text.parse().map_err(|error: BadSecret| error.to_string()));
    match secret {
        Ok(secret) => Some(OwnSecret { secret, until_ms: stored.until_ms }),
        Err(error) => {
            tracing::error!(target: "runyard::webhook", "a stored webhook secret is lost: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_secret_signs_for_a_day_after_the_new_one_came() {
        let [first, second, third] = [0, 1, 2].map(|_| Secret::random().expect("random bytes"));
        let [first_text, second_text] = [first.reveal(), second.reveal()];
        let one = OwnSecrets::default().rotated(first.clone(), 1000);
        let two = one.rotated(second.clone(), 2000);
        let signing = |own: &OwnSecrets, at| own.signing(at).map(|(secret, _)| secret.clone()).collect::<Vec<_>>();
        assert_eq!(signing(&one, u64::MAX), std::slice::from_ref(&first));
        assert_eq!(signing(&two, 2000 + OVERLAP_MS - 1), [second.clone(), first]);
        assert_eq!(signing(&two, 2000 + OVERLAP_MS), std::slice::from_ref(&second));
        assert_eq!(signing(&two.rotated(third.clone(), 3000), 3000), [third, second]);

        let dir = tempfile::tempdir().expect("a directory");
        let key = SealingKey::at(dir.path().join("secrets.key"));
        let stored = two.to_json(&key).expect("sealed");
        assert!(!String::from_utf8_lossy(&stored).contains(&second_text), "{}", String::from_utf8_lossy(&stored));
        assert_eq!(OwnSecrets::from_json(&stored, &key).expect("it reads"), two);
        let plain =
            format!(r#"[{{"secret":"{second_text}"}},{{"secret":"{first_text}","untilMs":{}}}]"#, 2000 + OVERLAP_MS);
        assert_eq!(OwnSecrets::from_json(plain.as_bytes(), &key).expect("it reads"), two, "as it was once stored");
        let other = SealingKey::at(dir.path().join("other.key"));
        assert!(OwnSecrets::from_json(&stored, &other).expect("it reads").is_empty());
    }
}
