//! The configuration in force, and the one way it changes: merge everything again, ask the scheduler, then publish.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use runyard_core::event::Event;
use runyard_core::name::{Blob, Name};
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use super::env;
use super::error::Error;
use super::file;
use super::layers::{Layers, Merged, Origin, merge, merge_patch};
use super::to_core::to_core;
use super::types::Config;
use crate::handle::{Handle, Unavailable};

/// The store's document that holds the patch.
pub const PATCH_SETTING: &str = "config.patch";

/// Where the layers below the patch are read from, again at each reload.
#[derive(Clone, Default, Debug)]
pub struct Sources {
    pub file: Option<PathBuf>,
    pub env: Vec<(String, String)>,
    pub flags: Map<String, Value>,
}

impl Sources {
    /// The environment of this process.
    pub fn from_process(file: Option<PathBuf>) -> Sources {
        // Variables that are no text cannot be ours.
        let env =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Sources { file, env: env.collect(), flags: Map::new() }
    }

    pub fn layers(&self) -> Result<Layers, Error> {
        let file = self.file.as_deref().map_or(Ok(Map::new()), file::read)?;
        let env = env::read(self.env.iter().cloned(), &file)?;
        Ok(Layers { file, env, flags: self.flags.clone(), patch: Map::new() })
    }
}

pub struct Live {
    sources: Sources,
    current: ArcSwap<Merged>,
    /// The stored patch. Held over a whole change, so that two changes never interleave.
    patch: Mutex<Map<String, Value>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    Invalid(#[from] Error),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Live {
    pub fn load(sources: Sources, patch: Map<String, Value>) -> Result<Live, Error> {
        let mut layers = sources.layers()?;
        layers.patch = patch.clone();
        let merged = merge(&layers)?;
        Ok(Live { sources, current: ArcSwap::from_pointee(merged), patch: Mutex::new(patch) })
    }

    pub fn current(&self) -> Guard<Arc<Merged>> {
        self.current.load()
    }

    pub fn file(&self) -> Option<&PathBuf> {
        self.sources.file.as_ref()
    }

    /// Reads file and environment again. Gives the keys that changed; none means that nothing was touched.
    pub async fn reload(&self, handle: &Handle) -> Result<Vec<String>, ChangeError> {
        let patch = self.patch.lock().await;
        let mut layers = self.sources.layers()?;
        layers.patch = patch.clone();
        let merged = merge(&layers)?;
        if merged == **self.current.load() {
            return Ok(Vec::new());
        }
        handle.ask(configure(&merged.config)).await?;
        Ok(self.publish(merged))
    }

    /// Lays `change` over the stored patch (RFC 7396: `null` takes an override back) and keeps it over restarts.
    pub async fn patch(&self, handle: &Handle, change: &Map<String, Value>) -> Result<Vec<String>, ChangeError> {
        let mut stored = self.patch.lock().await;
        refuse_fixed(change)?;
        let mut next = super::layers::normalized(&stored);
        merge_patch(&mut next, &super::layers::normalized(change));
        let mut layers = self.sources.layers()?;
        layers.patch = next.clone();
        let merged = merge(&layers)?;
        let value: Blob = serde_json::to_vec(&next).expect("a patch is plain JSON").into();
        let remember =
            handle.ask(|ticket| Event::Remember { ticket: Some(ticket), name: Name::new(PATCH_SETTING), value });
        // Both are in the inbox before either is waited for: one tick, one commit.
        let (remembered, configured) = tokio::join!(remember, handle.ask(configure(&merged.config)));
        remembered.and(configured)?;
        *stored = next;
        Ok(self.publish(merged))
    }

    fn publish(&self, merged: Merged) -> Vec<String> {
        let before = self.current.swap(Arc::new(merged));
        let after = self.current.load();
        let mut changed = Vec::new();
        differences("", &before.values, &after.values, &mut changed);
        changed
    }
}

fn configure(config: &Config) -> impl FnOnce(runyard_core::ids::Ticket) -> Event + use<> {
    let config = Arc::new(to_core(config));
    move |ticket| Event::Configure { ticket: Some(ticket), config }
}

/// What is read once at the start cannot be patched: a patch that seems to work and does not is worse than a refusal.
fn refuse_fixed(change: &Map<String, Value>) -> Result<(), Error> {
    let fixed = ["store", "worker", "log"].into_iter().find(|section| change.contains_key(*section));
    let listen = change.get("server").and_then(|server| server.get("listen")).map(|_| "server.listen");
    match fixed.or(listen) {
        None => Ok(()),
        Some(field) => Err(Error::Value {
            field: field.to_owned(),
            origin: Origin::Patch,
            message: "is read at the start only: set it in the file, the environment or by flag, and restart".into(),
        }),
    }
}

fn differences(prefix: &str, before: &Value, after: &Value, changed: &mut Vec<String>) {
    if before == after {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        changed.push(prefix.to_owned());
        return;
    };
    let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        differences(&path, old.get(key).unwrap_or(&Value::Null), new.get(key).unwrap_or(&Value::Null), changed);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_name_the_leaves() {
        let mut changed = Vec::new();
        let before = json!({ "limits": { "a": 1, "b": 2 }, "lanes": { "x": { "limit": 1 } } });
        let after = json!({ "limits": { "a": 1, "b": 3 }, "lanes": {} });
        differences("", &before, &after, &mut changed);
        assert_eq!(changed, ["lanes.x", "limits.b"]);
    }

    #[test]
    fn what_is_read_at_the_start_cannot_be_patched() {
        let change = json!({ "server": { "listen": "127.0.0.1:1" } });
        let error = refuse_fixed(change.as_object().expect("an object")).expect_err("refused");
        assert_eq!(error.field(), Some("server.listen"));
    }

    #[test]
    fn a_bad_file_is_refused_and_the_old_one_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("runyard.toml");
        std::fs::write(&path, "[lanes]\nmain = 3\n").expect("written");
        let live = Live::load(Sources { file: Some(path.clone()), ..Sources::default() }, Map::new()).expect("valid");
        std::fs::write(&path, "[lanes]\nmain = \"three\"\n").expect("written");
        assert!(live.sources.layers().is_err());
        assert_eq!(live.current().config.lanes["main"].limit, 3);
    }
}
