//! What every handler can reach.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use runyard_core::event::Event;
use runyard_core::ids::{TaskId, WorkerId};
use runyard_core::name::{Blob, Name};
use runyard_store::postgres::{Known, OfAttempt};
use runyard_store::store::{self, Reader};
use runyard_worker::{LogFollow, Progress, Worker};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::access::{self, Actor, Caller, KeyError, KeyRing, USED_SETTING, Used};
use crate::audit::{Audit, Entry};
use crate::clock;
use crate::config::{Live, paths};
use crate::desk::Desk;
use crate::edge::{Bodies, RateLimits, StreamPass, Streams};
use crate::handle::Handle;
use crate::metrics::Metrics;
use crate::nodes::{Cluster, Documents, Keeper, SharedUploads};
use crate::problem::Error;
use crate::secrets::Vault;
use crate::waiters::Waiters;
use crate::webhook::Webhooks;
use crate::workers::Roster;

/// The name of the worker inside a server that has no name itself.
pub const WORKER_EMBEDDED: &str = "embedded";

pub struct App {
    pub handle: Handle,
    pub config: Arc<Live>,
    pub keys: Arc<Keys>,
    pub metrics: Arc<Metrics>,
    pub waiters: Arc<Waiters>,
    pub worker: Worker,
    /// Workers on other machines: who they are,
    pub roster: Arc<Roster>,
    /// and what lies ready for them.
    pub desk: Arc<Desk>,
    pub webhooks: Arc<Webhooks>,
    /// What of all this another node may change.
    pub documents: Documents,
    /// Where this server is one of several nodes.
    pub cluster: Option<Arc<Cluster>>,
    /// There: what brings its files to the others,
    pub keeper: Option<Arc<Keeper>>,
    /// and what was handed in, at any of them.
    pub shared_uploads: Option<SharedUploads>,
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    pub audit: Audit,
    pub vault: Arc<Vault>,
    pub rates: RateLimits,
    pub streams: Arc<Streams>,
    pub bodies: Arc<Bodies>,
    /// Ends every open stream and every long poll.
    pub stop: CancellationToken,
}

impl App {
    /// Reads wait for the disk, so they leave the threads that serve requests.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Reader) -> store::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let reader = self.handle.reader().clone();
        let read = tokio::task::spawn_blocking(move || read(&*reader)).await;
        Ok(read.map_err(|_| Error::Internal("a read ended without an answer".into()))??)
    }

    /// Whether orders may still be given here.
    pub fn holds(&self) -> bool {
        self.cluster.as_ref().is_none_or(|cluster| cluster.member.holds())
    }

    /// The log of an ended attempt is brought here where the database has more of it: its file is on another node's disk, or
    /// the lease was elsewhere when the attempt ended, and what came here is only its beginning.
    pub async fn bring_log(&self, task: TaskId, attempt: u32) {
        let Some(cluster) = self.cluster.clone() else { return };
        let path = self.worker.places().log_file(task.0, attempt);
        let bring = move || -> Option<()> {
            let of = OfAttempt { task, attempt };
            let bytes_here = std::fs::metadata(&path).map_or(0, |about| about.len());
            let known = cluster.depot.known(&[of]).ok()?;
            if !matches!(known[..], [Known::Ended { log_bytes: Some(kept), .. }] if kept > bytes_here) {
                return None;
            }
            let log = cluster.depot.log(of).ok()??;
            std::fs::create_dir_all(path.parent()?).ok()?;
            let draft = path.with_extension("brought");
            std::fs::write(&draft, log).and_then(|()| std::fs::rename(&draft, &path)).ok()
        };
        let _ = tokio::task::spawn_blocking(bring).await;
    }

    /// Patches the configuration.
    pub async fn patch_config(
        self: &Arc<Self>,
        actor: &Actor,
        entry: Entry,
        change: Map<String, Value>,
    ) -> Result<(), Error> {
        let (app, actor) = (self.clone(), actor.clone());
        to_its_end(async move {
            let changed = app.config.patch(&app.handle, &change).await?;
            tracing::info!(target: "runyard::config", changed = %paths(&changed), "configuration patched");
            app.audit.record(&actor, entry.changed(&changed)).await;
            Ok(())
        })
        .await
    }

    /// For an answer that stays open.
    pub fn stream(&self, caller: &Caller) -> Result<StreamPass, Error> {
        let pass = self.streams.enter(caller, self.config.current().config.server.limits.streams)?;
        // Looked at again once it is counted: a key that is revoked later finds the stream and ends it.
        match &caller.actor.key {
            Some(key) if !self.keys.ring().has(&key.id) => Err(Error::UnknownKey),
            _ => Ok(pass),
        }
    }

    /// Changes the keys. Streams of one that is revoked end with it.
    pub async fn change_keys<T: Send + 'static>(
        self: &Arc<Self>,
        actor: &Actor,
        handle: Handle,
        change: impl FnOnce(&mut KeyRing) -> Result<T, KeyError> + Send + 'static,
        entry: impl FnOnce(&T) -> Entry + Send + 'static,
    ) -> Result<T, Error> {
        let (app, actor) = (self.clone(), actor.clone());
        to_its_end(async move {
            let outcome = app.keys.change(&handle, change).await?;
            let ring = app.keys.ring();
            app.streams.keep(|key| ring.has(key));
            app.audit.record(&actor, entry(&outcome)).await;
            Ok(outcome)
        })
        .await
    }

    /// The growing log of a task's current attempt, wherever it runs.
    pub fn follow_log(&self, task: TaskId) -> Option<LogFollow> {
        self.worker.follow_log(task).or_else(|| self.desk.follow_log(task, self.worker.places()))
    }

    /// What an attempt that runs last said of itself, wherever it runs.
    pub fn progress(&self, task: TaskId, attempt: u32) -> Option<Progress> {
        let told = || self.cluster.as_ref()?.progress.of(task, attempt);
        self.worker.progress(task).or_else(|| self.desk.progress(task)).or_else(told)
    }

    pub fn note_progress(&self, task: TaskId, progress: Progress) {
        match self.desk.note_progress(task, &progress) {
            Some(event) => self.worker.tell_progress(event),
            None => self.worker.note_progress(task, progress),
        }
    }

    /// Several nodes call a worker the same: by its id, also where it is their own.
    pub fn worker_name(&self, id: WorkerId) -> String {
        match self.cluster {
            None if id == self.worker.id() => WORKER_EMBEDDED.to_owned(),
            _ => runyard_wire::Id(id.0).to_string(),
        }
    }
}

/// On a task of its own, because a client that hangs up must not leave a change half done, nor one without its line in the
/// audit log.
pub async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(change).await.map_err(|_| Error::Internal("the change ended without an answer".into()))?
}

/// The keys in force, or none where the server was told to ask for none.
pub struct Keys {
    mode: KeyMode,
    ring: ArcSwap<KeyRing>,
    /// One change at a time: each writes the whole document.
    changing: Mutex<()>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyMode {
    Required,
    /// `--no-auth`, on loopback only.
    Off,
}

impl Keys {
    pub fn new(mode: KeyMode, ring: KeyRing) -> Keys {
        Keys { mode, ring: ArcSwap::from_pointee(ring), changing: Mutex::new(()) }
    }

    pub fn are_asked_for(&self) -> bool {
        self.mode == KeyMode::Required
    }

    pub fn caller(&self, presented: Option<&str>) -> Result<Caller, Error> {
        if self.mode == KeyMode::Off {
            return Ok(Caller::unchecked());
        }
        let presented = presented.ok_or(Error::NoKey)?;
        let ring = self.ring.load();
        let key = ring.find(presented).ok_or(Error::UnknownKey)?;
        key.last_used.mark(clock::wall_ms());
        Ok(key.caller())
    }

    /// As another node has changed it.
    pub fn replace(&self, ring: KeyRing) {
        // What was used here meanwhile is stored nowhere yet.
        ring.mark(&self.ring.load().used());
        self.ring.store(Arc::new(ring));
    }

    pub fn ring(&self) -> Arc<KeyRing> {
        self.ring.load_full()
    }

    /// Changes the ring, durably, before anybody can use the change.
    async fn change<T>(
        &self,
        handle: &Handle,
        change: impl FnOnce(&mut KeyRing) -> Result<T, KeyError>,
    ) -> Result<T, Error> {
        let _alone = self.changing.lock().await;
        let mut ring = KeyRing::clone(&self.ring.load());
        let outcome = change(&mut ring)?;
        remember(handle, &ring).await?;
        self.ring.store(Arc::new(ring));
        Ok(outcome)
    }
}

/// How often the uses of keys are stored, if there were any.
const USED_EVERY: Duration = Duration::from_secs(60);

/// Keeps when keys were last used, until the server stops.
pub async fn keep_used(app: Arc<App>) {
    let mut stored = app.keys.ring().used();
    let mut every = tokio::time::interval(USED_EVERY);
    loop {
        let is_last = tokio::select! {
            _ = every.tick() => false,
            () = app.stop.cancelled() => true,
        };
        let used = app.keys.ring().used();
        if used != stored && remember_used(&app.handle, &used).await.is_ok() {
            stored = used;
        }
        if is_last {
            return;
        }
    }
}

async fn remember_used(handle: &Handle, used: &Used) -> Result<(), Error> {
    let value: Blob = serde_json::to_vec(used).expect("moments are plain data").into();
    let name = Name::new(USED_SETTING);
    handle.ask(|ticket| Event::Remember { ticket: Some(ticket), name, value }).await?;
    Ok(())
}

pub async fn remember(handle: &Handle, ring: &KeyRing) -> Result<(), Error> {
    let value: Blob = ring.to_json().into();
    let name = Name::new(access::SETTING);
    handle.ask(|ticket| Event::Remember { ticket: Some(ticket), name, value }).await?;
    Ok(())
}
