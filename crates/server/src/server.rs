//! One server from start to stop.
//!
//! It listens first and recovers in the background, so that probes get an answer from the first moment; it stops by
//! ending its streams at once, letting the scheduler hand its work back, and only then closing the door.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use runyard_core::worker::Vitals;
use runyard_exec::{Places, RemoteUploads};
use runyard_store::postgres::is_passing;
use runyard_store::sqlite::Lock;
use runyard_store::store::{self, Reader};
use runyard_worker::machine::Machine;
use serde_json::{Map, Value};
use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::access::{ADMIN_KEY_FILE, KeyError};
use crate::app::{App, keep_used};
use crate::audit::Audit;
use crate::autoscale;
use crate::config::{self, Live, Sources, to_core, to_docker_defaults, to_process_defaults, to_purge, watch_file};
use crate::desk::Desk;
use crate::edge::tls::{self, Tls};
use crate::edge::{self, Doors, Front, RateLimits, Streams};
use crate::feed;
use crate::footing::{Footing, Place, database};
use crate::ground::{self, capacity, data_dir, sealing_key};
use crate::handle::{Handle, Readiness};
use crate::lobby::Lobby;
use crate::logging;
use crate::metrics::Metrics;
use crate::nodes::{self, Cluster, Documents, Keeper, Outpost, PeerError, Role, SharedUploads, Tenure};
use crate::observe::Observers;
use crate::otlp;
use crate::routes::{self, Reception};
use crate::scheduler::{self, OpenStore, Prepare, Scheduler, SchedulerOptions};
use crate::secrets::{SealError, Vault};
use crate::shelf::{Shelf, Stored, make_admin};
use crate::uploads;
use crate::waiters::Waiters;
use crate::webhook::Deliverer;
use crate::workers::Roster;

pub const STORE_FILE: &str = "runyard.db";
/// Tells the command line on the same machine where this server listens.
pub const SERVER_FILE: &str = "server.json";
/// How soon a server whose scheduler cannot start says so.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Messages in flight get two seconds of their own; this is for what goes wrong with that.
const DELIVERER_MAX: Duration = Duration::from_secs(3);
/// How long the first node waits for its key to be stored before it says where that is.
const ADMIN_MAX: Duration = Duration::from_secs(5);
/// How long a node that stops waits for another one to have the lease.
const HAND_OVER_MAX: Duration = Duration::from_secs(3);
/// Beyond the time that work has to end, for telling the new holder of it.
const GOODBYE_MARGIN: Duration = Duration::from_secs(8);
/// Requests in flight get so long after the scheduler has stopped.
const CLOSE_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// Created when it does not exist.
    pub data: PathBuf,
    pub config: Option<PathBuf>,
    /// `--listen`, over everything else that names an address.
    pub listen: Option<String>,
    /// Ask for no key. Refused unless the address is loopback.
    pub no_auth: bool,
    /// A program that takes `supervise --run DIR`, as this one does. Processes then outlive the server; without one they
    /// are its children, and die with it.
    pub supervisor: Option<PathBuf>,
    /// Values as flags give them, in the shape of the configuration file.
    pub flags: Map<String, Value>,
    /// `RUNYARD_SECTION__KEY` as (name, value) pairs; [`ServeOptions::with_process_env`] takes the process's own.
    pub env: Vec<(String, String)>,
}

impl ServeOptions {
    pub fn new(data: impl Into<PathBuf>) -> ServeOptions {
        ServeOptions { data: data.into(), ..ServeOptions::default() }
    }

    pub fn with_process_env(mut self) -> ServeOptions {
        self.env = Sources::from_process(None).env;
        self
    }

    pub(crate) fn sources(&self) -> Sources {
        let mut flags = self.flags.clone();
        if let Some(listen) = &self.listen {
            let server = flags.entry("server").or_insert_with(|| Value::Object(Map::new()));
            server["listen"] = Value::String(listen.clone());
        }
        Sources { file: self.config.clone(), env: self.env.clone(), flags }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the configuration is not valid")]
    Config(#[from] config::Error),
    #[error(transparent)]
    Log(#[from] logging::Error),
    #[error("--no-auth works on loopback only, and {listen} is not: anybody who reaches it could run programs here")]
    NoAuthInPublic { listen: SocketAddr },
    #[error("cannot serve HTTPS")]
    Tls(#[from] tls::Error),
    #[error("cannot listen on {listen}")]
    Listen {
        listen: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot use the data directory {}", path.display())]
    Data {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot open the store in {}", path.display())]
    Store {
        path: PathBuf,
        #[source]
        source: store::Error,
    },
    #[error("cannot use the database")]
    Database(#[source] store::Error),
    #[error("the address of the database cannot be read from {}", path.display())]
    UrlFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("it was stopped before it had started")]
    Stopped,
    #[error("the key that the other nodes seal secrets with cannot be used here")]
    SealingKey(#[source] SealError),
    #[error(transparent)]
    Peers(#[from] PeerError),
    #[error("the stored keys cannot be read")]
    StoredKeys(#[source] serde_json::Error),
    #[error("the stored secrets cannot be read")]
    StoredVault(#[source] serde_json::Error),
    #[error("the stored webhook secrets cannot be read")]
    StoredSecrets(#[source] serde_json::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Scheduler(#[from] scheduler::Error),
    #[error("signals cannot be received")]
    Signals(#[source] io::Error),
    #[error("a thread of the server ended early")]
    Thread,
    #[error("the scheduler could not load its store and gave up; the log says why")]
    GaveUp,
}

impl Error {
    /// What waiting may mend, of what can keep a server from its store.
    pub(crate) fn passing(&self) -> Option<&store::Error> {
        match self {
            Error::Database(error) | Error::Store { source: error, .. } if is_passing(error) => Some(error),
            _ => None,
        }
    }
}

pub struct Server {
    pub addr: SocketAddr,
    pub url: String,
    pub data_dir: PathBuf,
    /// Where the admin key is, unless none is asked for.
    pub key_file: Option<PathBuf>,
    app: Arc<App>,
    scheduler: Scheduler,
    deliverer: JoinHandle<()>,
    telemetry: JoinHandle<()>,
    close: CancellationToken,
    serving: JoinHandle<io::Result<()>>,
    outpost: Option<RunningOutpost>,
    _lock: Option<Lock>,
}

/// A node's worker, speaking to other nodes when there is somebody to speak to.
struct RunningOutpost {
    leave: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start(options: ServeOptions) -> Result<Server, Error> {
        Server::start_unless(options, CancellationToken::new()).await
    }

    /// A start that waits for its database, or for other nodes, waits until it is told to stop.
    pub async fn start_unless(options: ServeOptions, stop: CancellationToken) -> Result<Server, Error> {
        let mut lobby = Lobby::new(stop);
        let started = Server::start_through(options, &mut lobby).await;
        if started.is_err() {
            lobby.leave().await;
        }
        started
    }

    async fn start_through(options: ServeOptions, lobby: &mut Lobby) -> Result<Server, Error> {
        let data_dir = data_dir(&options.data)?;
        let sources = options.sources();
        let fixed = Arc::new(Live::load(sources.clone(), Map::new())?);
        let (listener, addr) = listen(&fixed.current().config.server.listen).await?;
        if options.no_auth && !addr.ip().is_loopback() {
            return Err(Error::NoAuthInPublic { listen: addr });
        }
        let tls = Tls::load(&fixed.current().config.server.tls)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let key = sealing_key(&data_dir);
        let metrics = Arc::new(Metrics::default());
        let front = Front {
            router: routes::lobby_router(Reception { waits: lobby.waits(), config: fixed.clone(), listen: addr }),
            config: fixed.clone(),
            doors: Doors::new(metrics.connections.clone(), runyard_exec::open_files::raise()),
            metrics: metrics.clone(),
            tls: tls.clone(),
            close: lobby.close_token(),
        };
        match database(&fixed.current().config)? {
            Some(_) => lobby.open(listener.clone(), front.clone()),
            None => lobby.stay_shut(),
        }
        let footing = Footing::find(
            &data_dir,
            &fixed.current().config.clone(),
            Place { addr, scheme, no_auth: options.no_auth },
            &key,
            lobby,
        )
        .await?;
        let Footing { store, reader, tenure, cluster, lock } = footing;
        // The store's lock is held: nobody else is at work here.
        uploads::clear_parts(&data_dir);
        let handle = patient(Handle::new(reader.clone()), &tenure, &fixed);
        let shelf = Shelf {
            sources,
            no_auth: options.no_auth,
            reader: reader.clone(),
            data_dir: data_dir.clone(),
            key: key.clone(),
            handle: handle.clone(),
            cluster: cluster.clone(),
        };
        let Stored { live, roster, keys, webhooks, vault } = shelf.read(lobby).await?;
        let waiters = Arc::new(Waiters::default());
        let files = cluster.as_ref().map(|cluster| shared_files(cluster, &data_dir)).transpose()?;
        let (keeper, shared_uploads) = files.unzip();
        let observers = Observers::new(metrics.clone(), waiters.clone(), roster.clone(), keeper.clone(), &data_dir)
            .map_err(|source| Error::Data { path: data_dir.clone(), source })?;
        let documents = Documents {
            keys: keys.clone(),
            live: live.clone(),
            vault: vault.clone(),
            webhooks: webhooks.clone(),
            roster: roster.clone(),
            key,
        };
        let desk = Arc::new(Desk::new(handle.clone()));
        let runs = Runs {
            supervisor: options.supervisor.clone(),
            secrets: vault.clone(),
            uploads: shared_uploads.clone(),
            desk: desk.clone(),
            roster: roster.clone(),
        };
        let scheme_url = url_of(addr, scheme);
        // Before there is anybody who commits: the first of it is logged too.
        logging::spawn_task_log(handle.feed().commits());
        let commits = handle.feed().commits();
        let terms = Terms { store, tenure, prepare: refreshed(documents.clone(), reader.clone()) };
        let scheduler = spawn_scheduler(terms, &live, &data_dir, runs, observers, handle.clone()).await?;
        let streams = Streams::new(metrics.streams.clone());
        let app = Arc::new(App {
            handle,
            config: live,
            keys,
            metrics,
            waiters,
            worker: scheduler.worker().clone(),
            roster,
            desk,
            webhooks,
            documents,
            cluster: cluster.clone(),
            keeper,
            shared_uploads,
            data_dir: data_dir.clone(),
            listen: addr,
            audit: Audit::open(&data_dir, cluster.as_deref())
                .map_err(|source| Error::Data { path: data_dir.clone(), source })?,
            vault,
            rates: RateLimits::default(),
            streams,
            bodies: Arc::default(),
            stop: CancellationToken::new(),
        });
        let close = CancellationToken::new();
        let router = routes::router(app.clone());
        let front = Front { router, config: app.config.clone(), close: close.clone(), ..front };
        lobby.close().await;
        let serving = tokio::spawn(edge::serve(listener, front));
        spawn_watchers(&app, tls.clone());
        let deliverer = tokio::spawn(Deliverer::run(app.clone()));
        let outpost = match cluster {
            Some(cluster) => Some(spawn_node(&app, cluster, &scheduler).await),
            None => None,
        };
        let telemetry = otlp::spawn(app.clone(), commits, close.clone());
        let url = scheme_url;
        write_server_file(&data_dir, &url).map_err(|source| Error::Data { path: data_dir.clone(), source })?;
        let key_file = (!options.no_auth).then(|| data_dir.join(ADMIN_KEY_FILE));
        Ok(Server {
            addr,
            url,
            data_dir,
            key_file,
            app,
            scheduler,
            deliverer,
            telemetry,
            close,
            serving,
            outpost,
            _lock: lock,
        })
    }

    #[cfg(test)]
    pub(crate) fn app(&self) -> &Arc<App> {
        &self.app
    }

    pub fn handle(&self) -> &Handle {
        &self.app.handle
    }

    /// Its name and where the others reach it, for a server that is one of several.
    pub fn node(&self) -> Option<String> {
        let card = self.app.cluster.as_ref()?.member.card();
        Some(format!("{} at {}", card.name, card.url))
    }

    /// Returns when the scheduler has recovered and takes work. False when it stopped instead.
    pub async fn ready(&self) -> bool {
        let mut readiness = self.app.handle.readiness();
        let known = readiness.wait_for(|state| *state != Readiness::Recovering).await;
        known.is_ok_and(|state| *state != Readiness::Stopping)
    }

    /// Streams end at once, what runs has `drain` to end, the rest goes back to the queue; then the door closes.
    pub async fn shutdown(mut self, drain: Duration) {
        self.app.handle.set_stopping();
        self.app.stop.cancel();
        // While there is somebody to write down what it has sent; a store that does not answer must not hold the exit up.
        if tokio::time::timeout(DELIVERER_MAX, &mut self.deliverer).await.is_err() {
            self.deliverer.abort();
        }
        match self.app.cluster.clone() {
            None => self.scheduler.stop(drain).await,
            Some(cluster) => self.leave_cluster(cluster, drain).await,
        }
        self.close.cancel();
        if tokio::time::timeout(DELIVERER_MAX, &mut self.telemetry).await.is_err() {
            self.telemetry.abort();
        }
        if tokio::time::timeout(CLOSE_MAX, &mut self.serving).await.is_err() {
            self.serving.abort();
        }
        let _ = std::fs::remove_file(self.data_dir.join(SERVER_FILE));
    }

    /// Where there is another node, it gets the lease at once, and what runs here is its work from then on. Else this is the
    /// stop of a server that is alone.
    async fn leave_cluster(&mut self, cluster: Arc<Cluster>, drain: Duration) {
        let member = cluster.member.clone();
        let asked = member.clone();
        if tokio::task::spawn_blocking(move || asked.has_others()).await.unwrap_or(false) {
            self.scheduler.end().await;
            self.scheduler.link().go_away();
            let leaving = member.clone();
            let _ = tokio::task::spawn_blocking(move || leaving.hand_over()).await;
            let mut roles = member.roles();
            let followed = roles.wait_for(|role| matches!(role, Role::Follower { .. }));
            let _ = tokio::time::timeout(HAND_OVER_MAX, followed).await;
        } else {
            self.scheduler.stop(drain).await;
        }
        if let Some(RunningOutpost { leave, mut task }) = self.outpost.take() {
            leave.cancel();
            if tokio::time::timeout(drain + GOODBYE_MARGIN, &mut task).await.is_err() {
                task.abort();
            }
        }
        let _ = tokio::task::spawn_blocking(move || member.leave()).await;
    }

    /// Returns only if the scheduler gave up: without it nothing here can be served.
    pub async fn gave_up(&self) -> Error {
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            look.tick().await;
            if self.app.handle.is_closed() {
                return Error::GaveUp;
            }
        }
    }

    pub fn drain_time(&self) -> Duration {
        Duration::from_millis(self.app.config.current().config.server.drain_ms)
    }
}

/// Without a shutdown it stops as a crash would: what ran is lost and retried at the next start.
impl Drop for Server {
    fn drop(&mut self) {
        self.app.stop.cancel();
        self.close.cancel();
        self.app.handle.close();
    }
}

/// Connections that wait to be accepted; the kernel takes as many as `net.core.somaxconn` allows of them. A thousand, as is
/// usual, are fewer than the workers and dashboards that come back in one moment after a restart: the rest is cut off.
const BACKLOG: i32 = 65_535;

async fn listen(listen: &str) -> Result<(Arc<TcpListener>, SocketAddr), Error> {
    let refused = |source| Error::Listen { listen: listen.to_owned(), source };
    let listener = TcpListener::bind(listen).await.map_err(refused)?;
    SockRef::from(&listener).listen(BACKLOG).map_err(refused)?;
    let addr = listener.local_addr().map_err(refused)?;
    Ok((Arc::new(listener), addr))
}

/// What processes and requests are run with.
struct Runs {
    supervisor: Option<PathBuf>,
    secrets: Arc<Vault>,
    uploads: Option<SharedUploads>,
    desk: Arc<Desk>,
    roster: Arc<Roster>,
}

/// How often, and by what right, the scheduler runs.
struct Terms {
    store: OpenStore,
    tenure: Tenure,
    prepare: Prepare,
}

/// What other nodes changed while they held the lease is read again when this one gets it.
fn refreshed(documents: Documents, reader: Arc<dyn Reader>) -> Prepare {
    Box::new(move || match documents.refresh(&*reader) {
        // A key that was revoked elsewhere must not be good here: better no holder than one that does not know.
        Err(nodes::DocumentError::Store(error)) => Err(error),
        Err(error) => {
            tracing::error!(target: "runyard::nodes", error = &error as &dyn std::error::Error,
                "not all that other nodes changed is in force here");
            Ok(())
        }
        Ok(()) => Ok(()),
    })
}

/// A database that can be reached and takes no writes must not hold clients up for longer than one that is away.
fn patient(handle: Handle, tenure: &Tenure, live: &Live) -> Handle {
    match tenure.is_shared() {
        true => handle.patient_for(Duration::from_millis(live.current().config.nodes.wait_ms)),
        false => handle,
    }
}

/// What nodes have in common of their files.
fn shared_files(cluster: &Cluster, data_dir: &Path) -> Result<(Arc<Keeper>, SharedUploads), Error> {
    let places = Places::new(data_dir).map_err(|source| Error::Data { path: data_dir.to_owned(), source })?;
    let keeper = Arc::new(Keeper::start(cluster.depot.clone(), places.clone()));
    Ok((keeper, SharedUploads::new(cluster.depot.clone(), places)))
}

/// What only a node does: it follows while another is the holder, and so does its worker.
async fn spawn_node(app: &Arc<App>, cluster: Arc<Cluster>, scheduler: &Scheduler) -> RunningOutpost {
    tokio::spawn(nodes::follow(app.clone(), cluster.clone()));
    tokio::spawn(nodes::check_address(app.clone(), cluster.clone()));
    tokio::spawn(nodes::gather_progress(app.clone(), cluster.clone()));
    tokio::spawn(nodes::follow_progress(app.clone(), cluster.clone()));
    tokio::spawn(nodes::tell_used(app.clone(), cluster.clone()));
    tokio::spawn(nodes::warn_of_namesakes(cluster.clone(), app.config.current().config.nodes.ttl_ms));
    let making = tokio::spawn(make_admin(app.clone()));
    if cluster.member.role() == Role::Holder {
        // Who starts the first node looks for its key next.
        let _ = tokio::time::timeout(ADMIN_MAX, making).await;
    }
    let config = app.config.current();
    let outpost = Outpost {
        link: scheduler.link().clone(),
        worker: scheduler.worker().clone(),
        capacity: capacity(&config.config.worker),
        drain: Duration::from_millis(config.config.server.drain_ms),
    };
    let leave = CancellationToken::new();
    let task = tokio::spawn(outpost.run(cluster, leave.clone()));
    RunningOutpost { leave, task }
}

async fn spawn_scheduler(
    terms: Terms,
    live: &Arc<Live>,
    data_dir: &Path,
    runs: Runs,
    observers: Observers,
    handle: Handle,
) -> Result<Scheduler, Error> {
    let merged = live.current();
    let config = &merged.config;
    let (purge_from, defaults_from, docker_from) = (live.clone(), live.clone(), live.clone());
    let (heartbeat_from, config_from) = (live.clone(), live.clone());
    let options = SchedulerOptions {
        store: terms.store,
        tenure: terms.tenure,
        prepare: terms.prepare,
        config: Box::new(move || Arc::new(to_core(&config_from.current().config))),
        purge: Box::new(move || to_purge(&purge_from.current().config)),
        data_dir: data_dir.to_owned(),
        grace_ms: config.worker.grace_ms.0,
        process_defaults: Arc::new(move || to_process_defaults(&defaults_from.current().config)),
        docker_defaults: Arc::new(move || to_docker_defaults(&docker_from.current().config)),
        may_run: ground::may_run(live.clone()),
        supervisor: runs.supervisor.map(|program| ground::supervisor(program, config)),
        guard: Some(live.guard().clone()),
        secrets: Some(runs.secrets),
        uploads: runs.uploads.map(|uploads| Arc::new(uploads) as Arc<dyn RemoteUploads>),
        capacity: capacity(&config.worker),
        heartbeat: Box::new(move || Duration::from_millis(heartbeat_from.current().config.workers.heartbeat_ms)),
        vitals: vitals_of_machine(data_dir, runs.roster),
        desk: runs.desk,
        observer: Box::new(observers),
    };
    drop(merged);
    // It looks for the processes of an earlier run, and waits for those to die that nobody answers for.
    let spawned = tokio::task::spawn_blocking(move || Scheduler::spawn(options, handle)).await;
    Ok(spawned.map_err(|_| Error::Thread)??)
}

fn spawn_watchers(app: &Arc<App>, tls: Option<Tls>) {
    let feed = app.handle.feed();
    tokio::spawn(feed::tell(feed.clone(), feed.commits(), app.worker.subscribe_progress(), app.stop.clone()));
    tokio::spawn(watch_file(app.config.clone(), app.handle.clone(), app.audit.clone(), app.stop.clone()));
    if let Some(tls) = tls {
        tokio::spawn(tls.watch(app.stop.clone()));
    }
    tokio::spawn(keep_used(app.clone()));
    tokio::spawn(uploads::sweep(app.clone()));
    tokio::spawn(autoscale::watch(app.clone()));
}

/// A server that listens everywhere is reached here by loopback.
pub(crate) fn url_of(addr: SocketAddr, scheme: &str) -> String {
    match addr.ip() {
        ip if ip.is_unspecified() => format!("{scheme}://127.0.0.1:{}", addr.port()),
        _ => format!("{scheme}://{addr}"),
    }
}

fn write_server_file(data_dir: &Path, url: &str) -> io::Result<()> {
    let (path, fresh) = (data_dir.join(SERVER_FILE), data_dir.join("server.json.new"));
    let text = serde_json::json!({ "url": url, "pid": std::process::id() }).to_string();
    std::fs::write(&fresh, text + "\n")?;
    std::fs::rename(fresh, path)
}

/// How this machine is doing, for the embedded worker's heartbeat and for whoever looks at it.
fn vitals_of_machine(data_dir: &Path, roster: Arc<Roster>) -> Box<dyn FnMut() -> Vitals + Send> {
    let mut machine = Machine::new(data_dir);
    Box::new(move || {
        let sample = machine.look();
        let vitals = Vitals {
            cpu_usage_milli: sample.cpu_usage.map(|percent| (percent * 1000.0) as u32),
            ram_free_mb: sample.ram_free_mb,
            ..Vitals::default()
        };
        roster.note_here(sample.into());
        vitals
    })
}
