//! The configuration in force, and the one way it changes: merge everything again, publish it, have the scheduler commit.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use runyard_core::event::Event;
use runyard_core::name::{Blob, Name};
use runyard_exec::Guard as OutboundGuard;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use super::env;
use super::error::Error;
use super::file;
use super::layers::{Layers, Merged, Origin, merge, merge_patch, normalized};
use super::sealed;
use super::to_core::to_core;
use super::types::Config;
use crate::handle::{Handle, Unavailable};
use crate::secrets::{SealError, SealingKey};

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

/// One value that is another one now; null where there is none.
#[derive(Clone, PartialEq, Debug)]
pub struct Changed {
    /// Such as `limits.maxQueued`.
    pub path: String,
    pub before: Value,
    pub after: Value,
}

/// Their paths, for people.
pub fn paths(changed: &[Changed]) -> String {
    changed.iter().map(|change| change.path.as_str()).collect::<Vec<_>>().join(", ")
}

pub struct Live {
    sources: Sources,
    current: ArcSwap<Merged>,
    /// Follows `current`.
    guard: Arc<OutboundGuard>,
    /// Seals what is secret in the stored patch.
    key: Option<Arc<SealingKey>>,
    /// What `current` was merged from. Held over a whole change, so that two changes never interleave.
    layers: Mutex<Layers>,
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    Invalid(#[from] Error),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Live {
    pub fn load(sources: Sources, patch: Map<String, Value>) -> Result<Live, Error> {
        let layers = Layers { patch, ..sources.layers()? };
        let merged = merge(&layers)?;
        let guard = Arc::new(OutboundGuard::default());
        merged.config.outbound.apply(&guard);
        Ok(Live { sources, current: ArcSwap::from_pointee(merged), guard, key: None, layers: Mutex::new(layers) })
    }

    pub fn sealing_with(self, key: Arc<SealingKey>) -> Live {
        Live { key: Some(key), ..self }
    }

    pub fn current(&self) -> Guard<Arc<Merged>> {
        self.current.load()
    }

    /// Where the server may connect to, as the configuration in force says.
    pub fn guard(&self) -> &Arc<OutboundGuard> {
        &self.guard
    }

    pub fn file(&self) -> Option<&PathBuf> {
        self.sources.file.as_ref()
    }

    /// Reads file and environment again. Gives the keys that changed; none means that nothing was touched.
    ///
    /// As [`Live::patch`], to be run to its end: dropped half-way, memory and store could disagree.
    pub async fn reload(&self, handle: &Handle) -> Result<Vec<Changed>, ChangeError> {
        let mut layers = self.layers.lock().await;
        let next = Layers { patch: layers.patch.clone(), ..self.sources.layers()? };
        let merged = merge(&next)?;
        if merged == **self.current.load() {
            return Ok(Vec::new());
        }
        let configure = handle.ask(configure(&merged.config));
        let commit = async {
            match configure.await {
                // It counts here at once, and for the scheduler when this node has it.
                Err(Unavailable::NotHolder) => Ok(()),
                configured => configured.map(drop),
            }
        };
        let changed = self.publish(merged, commit).await?;
        *layers = next;
        Ok(changed)
    }

    /// Lays `change` over the stored patch (RFC 7396: `null` takes an override back) and keeps it over restarts.
    pub async fn patch(&self, handle: &Handle, change: &Map<String, Value>) -> Result<Vec<Changed>, ChangeError> {
        refuse_fixed(change)?;
        let mut layers = self.layers.lock().await;
        let mut patch = normalized(&layers.patch);
        merge_patch(&mut patch, &normalized(change));
        let next = Layers { patch, ..layers.clone() };
        let merged = merge(&next)?;
        let (name, value) = (Name::new(PATCH_SETTING), self.patch_blob(&next.patch)?);
        let remember = handle.ask(|ticket| Event::Remember { ticket: Some(ticket), name, value });
        let configure = handle.ask(configure(&merged.config));
        // Both are in the inbox before either is waited for: one tick, one commit.
        let commit = async {
            let (remembered, configured) = tokio::join!(remember, configure);
            remembered.and(configured).map(drop)
        };
        let changed = self.publish(merged, commit).await?;
        *layers = next;
        Ok(changed)
    }

    /// The patch as another node has stored it. What does not fit this node's file is refused whole.
    pub fn replace_patch(&self, patch: Map<String, Value>) -> Result<(), Error> {
        let mut layers = self.layers.blocking_lock();
        let next = Layers { patch, ..layers.clone() };
        let merged = merge(&next)?;
        merged.config.outbound.apply(&self.guard);
        self.current.store(Arc::new(merged));
        *layers = next;
        Ok(())
    }

    fn patch_blob(&self, patch: &Map<String, Value>) -> Result<Blob, ChangeError> {
        let mut patch = patch.clone();
        if let Some(key) = &self.key {
            sealed::seal(&mut patch, key)?;
        }
        Ok(serde_json::to_vec(&patch).expect("a patch is plain JSON").into())
    }

    /// Shown before it is committed: whoever hears of `config.changed` must find the new values. Taken back when the
    /// commit fails.
    async fn publish(
        &self,
        merged: Merged,
        commit: impl Future<Output = Result<(), Unavailable>>,
    ) -> Result<Vec<Changed>, ChangeError> {
        let merged = Arc::new(merged);
        let before = self.current.swap(merged.clone());
        merged.config.outbound.apply(&self.guard);
        if let Err(error) = commit.await {
            before.config.outbound.apply(&self.guard);
            self.current.store(before);
            return Err(error.into());
        }
        let mut changed = Vec::new();
        differences("", &before.values, &merged.values, &mut changed);
        Ok(changed)
    }
}

fn configure(config: &Config) -> impl FnOnce(runyard_core::ids::Ticket) -> Event + use<> {
    let config = Arc::new(to_core(config));
    move |ticket| Event::Configure { ticket: Some(ticket), config }
}

/// What is read once at the start cannot be patched: a patch that seems to work and does not is worse than a refusal.
fn refuse_fixed(change: &Map<String, Value>) -> Result<(), Error> {
    let fixed = ["store", "nodes", "worker", "log"].into_iter().find(|section| change.contains_key(*section));
    let of_server = |key: &str| change.get("server").and_then(|server| server.get(key)).is_some();
    let listen = of_server("listen").then_some("server.listen");
    match fixed.or(listen).or(of_server("tls").then_some("server.tls")) {
        None => Ok(()),
        Some(field) => Err(Error::Value {
            field: field.to_owned(),
            origin: Origin::Patch,
            message: "is read at the start only: set it in the file, the environment or by flag, and restart".into(),
        }),
    }
}

fn differences(prefix: &str, before: &Value, after: &Value, changed: &mut Vec<Changed>) {
    if before == after {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        changed.push(Changed { path: prefix.to_owned(), before: before.clone(), after: after.clone() });
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
    use runyard_store::store::Store;
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_name_the_leaves() {
        let mut changed = Vec::new();
        let before = json!({ "limits": { "a": 1, "b": 2 }, "lanes": { "x": { "limit": 1 } } });
        let after = json!({ "limits": { "a": 1, "b": 3 }, "lanes": {} });
        differences("", &before, &after, &mut changed);
        let change = |path: &str, before, after| Changed { path: path.into(), before, after };
        let expected = [change("lanes.x", json!({ "limit": 1 }), Value::Null), change("limits.b", json!(2), json!(3))];
        assert_eq!(changed, expected);
        assert_eq!(paths(&changed), "lanes.x, limits.b");
    }

    #[test]
    fn what_is_read_at_the_start_cannot_be_patched() {
        let change = json!({ "server": { "listen": "127.0.0.1:1" } });
        let error = refuse_fixed(change.as_object().expect("an object")).expect_err("refused");
        assert_eq!(error.field(), Some("server.listen"));
    }

    #[tokio::test]
    async fn a_bad_file_is_refused_whole_and_the_old_one_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("runyard.toml");
        std::fs::write(&path, "[lanes]\nmain = 3\nown = 4\n").expect("written");
        let live = Live::load(Sources { file: Some(path.clone()), ..Sources::default() }, Map::new()).expect("valid");
        let handle = Handle::new(runyard_store::memory::MemoryStore::default().reader());
        std::fs::write(&path, "[lanes]\nown = 5\nmain = \"three\"\n").expect("written");
        let error = live.reload(&handle).await.expect_err("refused");
        assert!(error.to_string().contains("runyard.toml:3:8:"), "{error}");
        let config = &live.current().config;
        assert_eq!((config.lanes["main"].limit, config.lanes["own"].limit), (3, 4));
    }
}
