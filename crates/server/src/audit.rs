//! Who changed what: one line of JSON for each change, in files beside the store that only grow.
//!
//! A change is written here after it is in force and before it is answered. The files are rotated: a full one becomes
//! `audit.log.1`, and the oldest is dropped. They are read from the end, so the latest changes cost the least.
//!
//! Where several nodes share a database each entry is also written there, and read from there at every node: the changes are
//! one list, whoever held the lease. A node's own file is then what is left when the database is away.

mod files;

use std::path::Path;
use std::sync::Arc;

use runyard_store::nodes::{AuditRow, Nodes};
use runyard_store::store;
use runyard_wire::{AuditActor, AuditView, Timestamp};
use serde_json::{Map, Value};

use crate::access::Actor;
use crate::clock;
use crate::config::{Changed, shown_url};
use crate::nodes::Cluster;
use files::Files;

#[derive(Clone)]
pub struct Audit {
    files: Arc<Files>,
    shared: Option<Shared>,
}

/// The list of all nodes.
#[derive(Clone)]
struct Shared {
    nodes: Arc<dyn Nodes>,
    /// This one's name.
    node: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the files of the audit log cannot be read")]
    Files(#[from] std::io::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
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
    pub fn open(data_dir: &Path, cluster: Option<&Cluster>) -> std::io::Result<Audit> {
        let shared =
            cluster.map(|cluster| Shared { nodes: cluster.nodes.clone(), node: cluster.member.card().name.clone() });
        Ok(Audit { files: Arc::new(Files::open(data_dir)?), shared })
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

    /// A change that no request asked for. Of several nodes it says which one made it.
    pub async fn record_own(&self, cause: &str, entry: Entry) {
        let name = match &self.shared {
            Some(Shared { node, .. }) => format!("{cause} at {node}"),
            None => cause.to_owned(),
        };
        self.write(AuditActor { name: Some(name), ..AuditActor::default() }, entry).await;
    }

    async fn write(&self, by: AuditActor, entry: Entry) {
        let Entry { action, subject, before, after } = entry;
        let view =
            AuditView { n: 0, at: Timestamp(clock::wall_ms()), by, action: action.into(), subject, before, after };
        let (files, shared) = (self.files.clone(), self.shared.clone());
        let written = tokio::task::spawn_blocking(move || -> Result<(), Error> {
            // Both are tried: one of them may be what is left.
            let stored = shared.map_or(Ok(()), |shared| shared.write(&view));
            files.append(view)?;
            stored
        });
        if let Ok(Err(error)) = written.await {
            tracing::error!(target: "runyard::audit", error = &error as &dyn std::error::Error, action,
                "a change could not be written to the audit log");
        }
    }

    /// Latest first, those before number `before`. True when there are older ones.
    pub async fn list(&self, before: Option<u64>, limit: usize) -> Result<(Vec<AuditView>, bool), Error> {
        let (files, shared) = (self.files.clone(), self.shared.clone());
        let read = tokio::task::spawn_blocking(move || match shared {
            Some(shared) => shared.latest(before, limit),
            None => Ok(files.latest(before, limit)?),
        });
        read.await.map_err(std::io::Error::other)?
    }
}

impl Shared {
    fn write(&self, entry: &AuditView) -> Result<(), Error> {
        Ok(self.nodes.write_audit(&files::line(entry).map_err(std::io::Error::from)?)?)
    }

    fn latest(&self, before: Option<u64>, limit: usize) -> Result<(Vec<AuditView>, bool), Error> {
        let mut rows = self.nodes.audit(before, limit + 1)?;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let read = |row: &AuditRow| Some(AuditView { n: row.n, ..serde_json::from_slice(&row.body).ok()? });
        Ok((rows.iter().filter_map(read).collect(), has_more))
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
