//! Who changed what: one line of JSON for each change, in files beside the store that only grow.
//!
//! A change is written here after it is in force and before it is answered. The files are rotated: a full one becomes
//! `audit.log.1`, and the oldest is dropped. They are read from the end, so the latest changes cost the least.

mod files;

use std::path::Path;
use std::sync::Arc;

use runyard_wire::{AuditActor, AuditView, Timestamp};
use serde_json::{Map, Value};

use crate::access::Actor;
use crate::clock;
use crate::config::{Changed, shown_url};
use files::Files;

#[derive(Clone)]
pub struct Audit {
    files: Arc<Files>,
}

/// What is told of one change.
pub struct Entry {
    /// Such as `key.created`.
    pub action: &'static str,
    /// What was changed, where it has a name.
    pub subject: Option<String>,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

impl Entry {
    pub fn new(action: &'static str) -> Entry {
        Entry { action, subject: None, before: None, after: None }
    }

    pub fn of(self, subject: impl Into<String>) -> Entry {
        Entry { subject: Some(subject.into()), ..self }
    }

    pub fn before(self, before: Value) -> Entry {
        Entry { before: Some(before), ..self }
    }

    pub fn after(self, after: Value) -> Entry {
        Entry { after: Some(after), ..self }
    }

    /// Only the values that differ, by their path.
    pub fn changed(self, changed: &[Changed]) -> Entry {
        let side = |of: fn(&Changed) -> &Value| {
            let present = changed.iter().filter(|change| !of(change).is_null());
            Value::Object(Map::from_iter(present.map(|change| (change.path.clone(), shown(&change.path, of(change))))))
        };
        self.before(side(|change| &change.before)).after(side(|change| &change.after))
    }
}

/// Whoever may read the audit log is not thereby told secrets.
fn shown(path: &str, value: &Value) -> Value {
    match value {
        _ if is_secret(path) => Value::from(HIDDEN),
        Value::String(url) if path.rsplit('.').next() == Some("url") => Value::from(shown_url(url)),
        Value::Object(inner) => inner.iter().map(|(key, value)| (key.clone(), shown(key, value))).collect(),
        Value::Array(items) => items.iter().map(|item| shown("", item)).collect(),
        _ => value.clone(),
    }
}

pub const HIDDEN: &str = "(hidden)";

/// Is this the path of a value that nobody is shown?
pub fn is_secret(path: &str) -> bool {
    // Headers of a collector: mostly keys.
    path.rsplit('.').next().unwrap_or(path).to_ascii_lowercase().contains("secret") || path.contains("otlpHeaders")
}

impl Audit {
    pub fn open(data_dir: &Path) -> std::io::Result<Audit> {
        Ok(Audit { files: Arc::new(Files::open(data_dir)?) })
    }

    /// A change that cannot be written down is still in force, so this does not fail: it complains.
    pub async fn record(&self, actor: &Actor, entry: Entry) {
        let by = AuditActor {
            key: actor.key.as_ref().and_then(|key| key.id.parse().ok()),
            name: actor.key.as_ref().map(|key| key.name.clone()),
            address: actor.address.map(|address| address.to_string()),
        };
        self.write(by, entry).await;
    }

    /// A change that no request asked for.
    pub async fn record_own(&self, cause: &str, entry: Entry) {
        self.write(AuditActor { name: Some(cause.to_owned()), ..AuditActor::default() }, entry).await;
    }

    async fn write(&self, by: AuditActor, entry: Entry) {
        let Entry { action, subject, before, after } = entry;
        let view =
            AuditView { n: 0, at: Timestamp(clock::wall_ms()), by, action: action.into(), subject, before, after };
        let files = self.files.clone();
        let written = tokio::task::spawn_blocking(move || files.append(view)).await;
        if let Ok(Err(error)) = written {
            tracing::error!(target: "runyard::audit", %error, action, "a change could not be written to the audit log");
        }
    }

    /// Latest first, those before number `before`. True when there are older ones.
    pub async fn list(&self, before: Option<u64>, limit: usize) -> std::io::Result<(Vec<AuditView>, bool)> {
        let files = self.files.clone();
        let read = tokio::task::spawn_blocking(move || files.latest(before, limit)).await;
        read.map_err(std::io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_hidden_wherever_they_are() {
        let changed = [
            Changed { path: "limits.maxQueued".into(), before: json!(1), after: json!(2) },
            Changed { path: "webhooks.a.secret".into(), before: json!("whsec_old"), after: json!("whsec_new") },
            Changed {
                path: "webhooks.b".into(),
                before: Value::Null,
                after: json!({"secret": "whsec_b", "url": "https://h/?t=x"}),
            },
            Changed { path: "webhooks.c.url".into(), before: json!("https://h/x"), after: json!("https://h/y") },
        ];
        let entry = Entry::new("config.patched").changed(&changed);
        assert_eq!(
            entry.before,
            Some(json!({"limits.maxQueued": 1, "webhooks.a.secret": HIDDEN, "webhooks.c.url": "https://h/…"}))
        );
        let after = entry.after.unwrap();
        assert_eq!(after["webhooks.b"], json!({"secret": HIDDEN, "url": "https://h/…"}));
        assert!(!after.to_string().contains("whsec"));
    }
}
