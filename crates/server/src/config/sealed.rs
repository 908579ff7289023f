//! The patch as it is stored: the secrets of subscriptions and the headers for a collector are sealed in it,
//! `{"sealed": "…"}` where the text would be.

use serde_json::{Map, Value, json};

use crate::secrets::{SealError, SealingKey};

const SEALED: &str = "sealed";
const SECRET: &str = "secret";
const HEADERS: &str = "telemetry.otlpHeaders";
/// In the place of a secret that cannot be opened, with what is stored of it: it signs nothing, and is whole again as soon as
/// its key is.
const LOST: &str = "sealed:";

pub(super) fn seal(patch: &mut Map<String, Value>, key: &SealingKey) -> Result<(), SealError> {
    for (name, webhook) in webhooks(patch) {
        if let Some(secret) = webhook.get_mut(SECRET) {
            seal_text(secret, &bound_to(name), key)?;
        }
    }
    headers(patch).into_iter().flatten().try_for_each(|header| seal_text(header, HEADERS, key))
}

fn seal_text(value: &mut Value, name: &str, key: &SealingKey) -> Result<(), SealError> {
    let Some(text) = value.as_str() else { return Ok(()) };
    let sealed = match text.strip_prefix(LOST) {
        Some(sealed) => sealed.to_owned(),
        None => key.seal(name, text)?,
    };
    *value = json!({ SEALED: sealed });
    Ok(())
}

/// Is this what stands for a secret that cannot be opened?
pub fn is_lost(secret: &str) -> bool {
    secret.starts_with(LOST)
}

/// What earlier versions stored is plain, and sealed with the next change. A subscription whose secret cannot be opened
/// waits for it: no other may sign in its place. A header that cannot be opened is left out.
pub fn opened(mut patch: Map<String, Value>, key: &SealingKey) -> Map<String, Value> {
    for (name, webhook) in webhooks(&mut patch) {
        let Some(secret) = webhook.get_mut(SECRET) else { continue };
        let Some(sealed) = sealed_text(secret) else { continue };
        *secret = match key.open(&bound_to(name), &sealed) {
            Ok(text) => Value::String(text),
            Err(error) => {
                tracing::error!(target: "runyard::config", "the secret of webhook {name} cannot be opened, its messages wait: {error}");
                Value::String(format!("{LOST}{sealed}"))
            }
        };
    }
    if let Some(headers) = headers(&mut patch) {
        headers.retain_mut(|header| match sealed_text(header).map(|sealed| key.open(HEADERS, &sealed)) {
            None => true,
            Some(Ok(text)) => {
                *header = Value::String(text);
                true
            }
            Some(Err(error)) => {
                tracing::error!(target: "runyard::config", "a header of {HEADERS} is lost: {error}");
                false
            }
        });
    }
    patch
}

fn sealed_text(value: &Value) -> Option<String> {
    value.get(SEALED)?.as_str().map(str::to_owned)
}

/// A value that was sealed for one subscription is not opened for another.
fn bound_to(webhook: &str) -> String {
    format!("webhooks.{webhook}.secret")
}

fn webhooks(patch: &mut Map<String, Value>) -> impl Iterator<Item = (&String, &mut Value)> {
    patch.get_mut("webhooks").and_then(Value::as_object_mut).into_iter().flatten()
}

fn headers(patch: &mut Map<String, Value>) -> Option<&mut Vec<Value>> {
    patch.get_mut("telemetry")?.get_mut("otlpHeaders")?.as_array_mut()
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
            "telemetry": {"otlpHeaders": ["x-key: canary", "x-other: canary"]},
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
        let lost = opened(stored.clone(), &key);
        let secret = lost["webhooks"]["b"]["secret"].as_str().expect("a text");
        assert!(is_lost(secret) && lost["limits"] == plain["limits"], "{lost:?}");
        let mut again = lost;
        again["telemetry"] = stored["telemetry"].clone();
        again["webhooks"]["a"] = stored["webhooks"]["a"].clone();
        seal(&mut again, &key).expect("sealed");
        assert_eq!(again, stored, "what cannot be opened is kept as it is");
        let other = SealingKey::at(dir.path().join("other.key"));
        assert_eq!(opened(stored, &other)["telemetry"], json!({"otlpHeaders": []}));
    }
}
