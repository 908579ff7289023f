//! `runyard tick`: one pass of the scheduler over a data directory that has no server, for cron or a timer.
//!
//! ```text
//! lock and store ─► survey: adopt the living, take ends from records, kill what nobody answers for
//!      ─► the worker presents what it holds, and its reports go in
//!      ─► tick until nothing more can start ─► wait until each command runs ─► leave; the supervisors go on
//! ```
//!
//! There is no second scheduler here: the core, the store, the worker and the supervisors are the server's own. What is
//! missing is everything that needs somebody to stay: no HTTP, no in-process kinds, no watch for silence. An end is seen
//! by the next pass, in the record that the supervisor leaves.
//!
//! A rehearsal (`--dry-run`) is the same pass over a copy of the store, with a worker that touches nothing.

mod pass;
mod summary;

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use runyard_core::event::{Event, WorkerSpec};
use runyard_core::ids::WorkerId;
use runyard_exec::Kind;
use runyard_store::sqlite::{self, SqliteStore, copy_quiet};
use runyard_store::store::{self, Store, User};
use runyard_worker::{Rehearsal, Worker, WorkerOptions};
use serde_json::Map;
use tokio::runtime::Handle;

use crate::clock;
use crate::config::{
    Config, Live, Log, Merged, Origin, Sources, to_core, to_docker_defaults, to_process_defaults, to_purge,
};
use crate::ground::{capacity, data_dir, may_run, open_store, sealing_key, supervisor, vault, with_patch};
use crate::logging;
use crate::scheduler::{Offer, known_worker_id, worker_id, worker_spec};
use crate::server::{self, STORE_FILE};
use pass::Pass;
pub use summary::Summary;

#[derive(Clone, Debug)]
pub struct TickOptions {
    /// Created when it does not exist, but for a rehearsal.
    pub data: PathBuf,
    pub config: Option<PathBuf>,
    /// A program that takes `supervise --run DIR`.
    pub supervisor: PathBuf,
    pub mode: Mode,
    /// `RUNYARD_SECTION__KEY` as (name, value) pairs; [`TickOptions::with_process_env`] takes the process's own.
    pub env: Vec<(String, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Act,
    /// Nothing is started, killed or written.
    Rehearse,
}

impl TickOptions {
    pub fn with_process_env(mut self) -> TickOptions {
        self.env = Sources::from_process(None).env;
        self
    }

    fn sources(&self) -> Sources {
        Sources { file: self.config.clone(), env: self.env.clone(), flags: Map::new() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a server runs on {} (pid {pid}); it does by itself what a tick would do", data_dir.display())]
    ServerRuns { data_dir: PathBuf, pid: u32 },
    #[error("another tick is at work on {} (pid {pid})", data_dir.display())]
    TickRuns { data_dir: PathBuf, pid: u32 },
    #[error("a tick works on the store in the data directory, and [store] names a database; a server works on that")]
    SharedStore,
    #[error(transparent)]
    Server(#[from] server::Error),
    #[error("nothing more was done, and nothing of it was lost: {reason}")]
    Tick { reason: String },
}

/// One pass. What it started runs when this returns.
pub async fn tick(options: TickOptions) -> Result<Summary, Error> {
    let sources = options.sources();
    let fixed = Live::load(sources.clone(), Map::new()).map_err(server::Error::Config)?;
    logging::init(&log_of(&fixed.current())).map_err(server::Error::Log)?;
    let is_shared = crate::footing::database(&fixed.current().config).map_err(Error::Server)?.is_some();
    if is_shared {
        return Err(Error::SharedStore);
    }
    match options.mode {
        Mode::Act => act(&options, sources, fixed).await,
        Mode::Rehearse => rehearse(&options, sources, fixed).await,
    }
}

async fn act(options: &TickOptions, sources: Sources, fixed: Live) -> Result<Summary, Error> {
    let data_dir = data_dir(&options.data)?;
    let durability = fixed.current().config.store.durability;
    let store = open_store(&data_dir, durability, User::Tick).await.map_err(|error| told(error, &data_dir))?;
    let reader = store.reader();
    let key = sealing_key(&data_dir);
    let live = Arc::new(with_patch(sources, &*reader, &data_dir, &key, fixed)?);
    let vault = vault(&live, &*reader, &data_dir, key)?;
    let (config, guard) = (live.current().config.clone(), live.guard().clone());
    let (reports, inbox) = mpsc::channel();
    let docker_from = live.clone();
    let worker_options = WorkerOptions {
        id: worker_id(&data_dir).map_err(server::Error::Scheduler)?,
        data_dir,
        grace_ms: config.worker.grace_ms.0,
        supervisor: Some(supervisor(options.supervisor.clone(), &config)),
        may_run: may_run(live.clone()),
        docker_defaults: Arc::new(move || to_docker_defaults(&docker_from.current().config)),
        process_defaults: Arc::new(move || to_process_defaults(&live.current().config)),
        guard: Some(guard),
        secrets: Some(vault),
        uploads: None,
        programs: Default::default(),
        runtime: Handle::current(),
    };
    let link = move |events: Vec<Event>| drop(reports.send(events));
    let hired = tokio::task::spawn_blocking(move || Worker::new(worker_options, link)).await;
    let worker = hired.map_err(|_| server::Error::Thread)?.map_err(|error| server::Error::Scheduler(error.into()))?;
    let hands = worker.clone();
    let passed = tokio::task::spawn_blocking(move || {
        let summary = Summary::of(hands.found(), Mode::Act);
        let mut pass = Pass::open(
            &hands,
            spec(hands.id(), hands.kinds(), &config),
            Box::new(store),
            core_config(&config),
            inbox,
            summary,
        )?;
        pass.run(Duration::from_millis(config.worker.grace_ms.0))?;
        pass.purge(&to_purge(&config), Duration::from_millis(config.uploads.keep_ms), hands.places());
        pass.finish()
    })
    .await;
    // Whatever came of the pass: those that run are let go, and go on.
    worker.shutdown(Duration::ZERO).await;
    let (summary, _store) = passed.map_err(|_| server::Error::Thread)?.map_err(|reason| Error::Tick { reason })?;
    Ok(summary)
}

async fn rehearse(options: &TickOptions, sources: Sources, fixed: Live) -> Result<Summary, Error> {
    let missing = |source| server::Error::Data { path: options.data.clone(), source };
    let data_dir = options.data.canonicalize().map_err(missing)?;
    let rehearsed = tokio::task::spawn_blocking(move || rehearse_here(&data_dir, sources, fixed)).await;
    rehearsed.map_err(|_| server::Error::Thread)?
}

fn rehearse_here(data_dir: &Path, sources: Sources, fixed: Live) -> Result<Summary, Error> {
    let elsewhere = tempfile::tempdir().map_err(|source| server::Error::Data { path: std::env::temp_dir(), source })?;
    let broken = |source| told(server::Error::Store { path: data_dir.to_owned(), source }, data_dir);
    let copy = elsewhere.path().join(STORE_FILE);
    let _quiet = copy_quiet(&data_dir.join(STORE_FILE), &copy).map_err(broken)?;
    let durability = sqlite::Durability::Normal;
    let options = sqlite::Options { durability, user: User::Tick, ..sqlite::Options::default() };
    let store = SqliteStore::open(&copy, options).map_err(broken)?;
    let live = with_patch(sources, &*store.reader(), data_dir, &sealing_key(data_dir), fixed)?;
    let config = live.current().config.clone();
    let (reports, inbox) = mpsc::channel();
    let id = known_worker_id(data_dir).unwrap_or_else(|| WorkerId(clock::new_id()));
    let link = move |events: Vec<Event>| drop(reports.send(events));
    let hands = Rehearsal::new(id, data_dir, link).map_err(|error| server::Error::Scheduler(error.into()))?;
    let summary = Summary::of(hands.found(), Mode::Rehearse);
    let failed = |reason| Error::Tick { reason };
    let kinds = to_docker_defaults(&config).kinds_offered();
    let pass = Pass::open(&hands, spec(id, &kinds, &config), Box::new(store), core_config(&config), inbox, summary);
    let mut pass = pass.map_err(failed)?;
    pass.run(Duration::ZERO).map_err(failed)?;
    Ok(pass.finish().map_err(failed)?.0)
}

/// Only what goes on when nobody stays.
fn spec(id: WorkerId, offered: &[Kind], config: &Config) -> WorkerSpec {
    let kept = [Kind::Process, Kind::Docker];
    let kinds: Vec<Kind> = kept.into_iter().filter(|kind| offered.contains(kind)).collect();
    worker_spec(id, &Offer { node: None, kinds: &kinds, keeps: &kinds, capacity: &capacity(&config.worker) })
}

fn core_config(config: &Config) -> Arc<runyard_core::config::Config> {
    Arc::new(to_core(config))
}

/// Cron mails whatever is printed: unless told otherwise, only what somebody should look at.
fn log_of(merged: &Merged) -> Log {
    let log = merged.config.log.clone();
    match merged.origins.get("log.level") {
        Some(Origin::Default) | None => Log { level: "warn".to_owned(), ..log },
        Some(_) => log,
    }
}

/// Who is in the way, in words for whoever started this.
fn told(error: server::Error, data_dir: &Path) -> Error {
    let server::Error::Store { source: store::Error::Locked { holder: Some(holder), .. }, .. } = &error else {
        return error.into();
    };
    let (data_dir, pid) = (data_dir.to_owned(), holder.pid);
    match holder.user {
        User::Server => Error::ServerRuns { data_dir, pid },
        User::Tick => Error::TickRuns { data_dir, pid },
    }
}
