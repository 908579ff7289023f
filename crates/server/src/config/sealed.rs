//! The patch as it is stored: the secrets of subscriptions are sealed in it, `{"sealed": "…"}` where the text would be.

use serde_json::{Map, Value, json};

use crate::secrets::{SealError, SealingKey};

const SEALED: &str = "sealed";
const SECRET: &str = "secret";

pub(super) fn seal(patch: &mut Map<String, Value>, key: &SealingKey) -> Result<(), SealError> {
    for (name, webhook) in webhooks(patch) {
        if let Some(secret) = webhook.get_mut(SECRET)
            && let Some(text) = secret.as_str()
        {
            *secret = json!({ SEALED: key.seal(&bound_to(name), text)? });
        }
    }
    Ok(())
}

/// What earlier versions stored is plain, and sealed with the next change. A secret that cannot be opened is left out, and
/// the server's own signs instead.
pub fn opened(mut patch: Map<String, Value>, key: &SealingKey) -> Map<String, Value> {
    for (name, webhook) in webhooks(&mut patch) {
        let Some(fields) = webhook.as_object_mut() else { continue };
        let Some(sealed) = fields.get(SECRET).and_then(|secret| secret.get(SEALED)?.as_str()) else { continue };
        match key.open(&bound_to(name), sealed) {
            Ok(text) => drop(fields.insert(SECRET.to_owned(), Value::String(text))),
            Err(error) => {
                tracing::error!(target: "runyard::config", "the secret of webhook {name} is lost: {error}");
                fields.remove(SECRET);
            }
        }
    }
    patch
}

/// A value that was sealed for one subscription is not opened for another.
fn bound_to(webhook: &str) -> String {
    format!("webhooks.{webhook}.secret")
}

fn webhooks(patch: &mut Map<String, Value>) -> impl Iterator<Item = (&String, &mut Value)> {
    patch.get_mut("webhooks").and_then(Value::as_object_mut).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_sealed_and_everything_else_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let key = SealingKey::at(dir.path().join("secrets.key"));
        let value = json!({
            "limits": {"maxQueued": 5},
            "webhooks": {"a": {"url": "https://a/", "secret": "whsec_canary"}, "b": {"secret": null}, "c": null},
        });
        let plain = value.as_object().expect("an object").clone();
        let mut stored = plain.clone();
        seal(&mut stored, &key).expect("sealed");
        assert!(!Value::from(stored.clone()).to_string().contains("canary"));
        assert_eq!(stored["webhooks"]["a"]["url"], "https://a/");
        assert_eq!(opened(stored.clone(), &key), plain);
        assert_eq!(opened(plain.clone(), &key), plain, "as it was once stored");
        let moved = stored["webhooks"]["a"].clone();
        stored["webhooks"]["b"] = moved;
        let opened = opened(stored, &key);
        assert_eq!((&opened["webhooks"]["b"], &opened["limits"]), (&json!({"url": "https://a/"}), &plain["limits"]));
    }
}
