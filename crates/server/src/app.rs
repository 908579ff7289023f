//! What every handler can reach.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use runyard_core::event::Event;
use runyard_core::ids::WorkerId;
use runyard_core::name::{Blob, Name};
use runyard_store::store::{self, Reader};
use runyard_worker::Worker;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::access::{self, Caller, KeyError, KeyRing};
use crate::config::Live;
use crate::handle::Handle;
use crate::metrics::Metrics;
use crate::problem::Error;
use crate::waiters::Waiters;

/// The name of the worker inside the server.
pub const WORKER_EMBEDDED: &str = "embedded";

pub struct App {
    pub handle: Handle,
    pub config: Arc<Live>,
    pub keys: Keys,
    pub metrics: Arc<Metrics>,
    pub waiters: Arc<Waiters>,
    pub worker: Worker,
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
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

    /// Patches the configuration. On a task of its own, because a client that hangs up must not leave it half done.
    pub async fn patch_config(self: &Arc<Self>, change: Map<String, Value>) -> Result<(), Error> {
        let app = self.clone();
        let patch = tokio::spawn(async move { app.config.patch(&app.handle, &change).await });
        let changed = patch.await.map_err(|_| Error::Internal("the change ended without an answer".into()))??;
        tracing::info!(target: "runyard::config", changed = %changed.join(", "), "configuration patched");
        Ok(())
    }

    /// Changes the keys, to its end, as [`App::patch_config`] does.
    pub async fn change_keys<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut KeyRing) -> Result<T, KeyError> + Send + 'static,
    ) -> Result<T, Error> {
        let app = self.clone();
        let change = tokio::spawn(async move { app.keys.change(&app.handle, change).await });
        change.await.map_err(|_| Error::Internal("the change ended without an answer".into()))?
    }

    pub fn worker_name(&self, id: WorkerId) -> String {
        if id == self.worker.id() { WORKER_EMBEDDED.to_owned() } else { runyard_wire::Id(id.0).to_string() }
    }
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

    pub fn caller(&self, presented: Option<&str>) -> Result<Caller, Error> {
        if self.mode == KeyMode::Off {
            return Ok(Caller::unchecked());
        }
        let presented = presented.ok_or(Error::NoKey)?;
        self.ring.load().caller(presented).ok_or(Error::UnknownKey)
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

pub async fn remember(handle: &Handle, ring: &KeyRing) -> Result<(), Error> {
    let value: Blob = ring.to_json().into();
    let name = Name::new(access::SETTING);
    handle.ask(|ticket| Event::Remember { ticket: Some(ticket), name, value }).await?;
    Ok(())
}
