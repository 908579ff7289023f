//! The worker and its server, speaking.

mod exchange;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use runyard_core::ids::WorkerId;
use runyard_exec::Places;
use runyard_wire::{SyncAnswer, Token, WorkerRegistered};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::carried::CarriedSecrets;
use super::client::{CallError, Client};
use super::desk::{Desk, DeskLink, spawn_progress};
use super::files::{self, UploadsOfServer};
use super::identity::{Identity, Lodging};
use super::ledger::{Due, Letter};
use super::{Ended, Error, RemoteOptions};
use crate::defaults::DockerDefaultsNow;
use crate::machine::{Machine, Sample};
use crate::worker::{Worker, WorkerOptions};
use exchange::Orders;

/// A sync waits no longer than this, whatever the server's heartbeat is.
const WAIT_MS_MAX: u64 = 30_000;
/// Between two looks at the machine: a shorter one measures noise.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// To tell the last ends to a server that may be away.
const GOODBYE_MAX: Duration = Duration::from_secs(5);
/// Kept working directories, and whatever else was left behind.
const KEEP_FILES: Duration = Duration::from_secs(7 * 86_400);
const TIDY_EVERY: Duration = Duration::from_secs(3600);
/// An order stays in every answer until it is carried out: a stop that takes its grace, a line that nobody reads. So an answer
/// that says nothing new comes at once, and the next question is put off for this long.
const NOTHING_NEW_PAUSE: Duration = Duration::from_millis(200);
const LEAVING: &str = "it is shutting down";

/// A worker that has a server, and a place of its own to remember who it is there.
pub(super) struct RemoteWorker {
    options: RemoteOptions,
    lodging: Lodging,
    speaker: Speaker,
}

/// One end of a conversation.
pub(super) struct Speaker {
    client: Arc<Client>,
    /// What cannot go on without the worker has so long to end when it is told to leave.
    drain: Duration,
    worker: Worker,
    desk: Arc<Desk>,
    secrets: Arc<CarriedSecrets>,
    machine: Machine,
    sample: Sample,
    looked_at: Option<Instant>,
    wait_ms: u64,
    /// Written by this process, whatever became of them.
    n_syncs: u64,
    /// What the last answer ordered; a sync that could wait is not sent before this moment.
    ordered: Orders,
    rest_until: Option<Instant>,
    is_leaving: bool,
}

/// Why a conversation is over.
pub(super) enum Over {
    Fenced,
    Unknown(String),
    SaidGoodbye,
}

/// A sync on its way, and what it tells.
struct Call {
    letter: Arc<Letter>,
    answer: BoxFuture<'static, Result<SyncAnswer, CallError>>,
    /// It stays at the server until there is something to do.
    waits: bool,
}

impl RemoteWorker {
    /// Finds out who it is, joins if it must, and takes over what an earlier process left. `None` when it is told to leave
    /// before it has joined.
    pub(super) async fn begin(
        options: RemoteOptions,
        leave: &CancellationToken,
    ) -> Result<Option<RemoteWorker>, Error> {
        let lodging = Lodging::take(&options.data_dir)?;
        let client = Arc::new(Client::new(&options.servers, options.certificates.clone()).map_err(Error::Http)?);
        let identity = match lodging.identity(&options.servers)? {
            Some(identity) => identity,
            None => {
                let token = options.token.as_deref().ok_or(Error::NoToken)?;
                match join(&client, token, &options, &lodging, leave).await? {
                    Some(identity) => identity,
                    None => return Ok(None),
                }
            }
        };
        let id = WorkerId(identity.id.0);
        client.be(Some(identity));
        let (desk, secrets) = (Arc::new(Desk::default()), Arc::new(CarriedSecrets::default()));
        let worker = make_worker(id, &options, &lodging, &client, &secrets, &desk)?;
        let speaker = Speaker::new(client, worker, desk, secrets, options.drain);
        speaker.present_found();
        Ok(Some(RemoteWorker { options, lodging, speaker }))
    }

    pub(super) async fn serve(mut self, leave: &CancellationToken) -> Result<Ended, Error> {
        let aside = [spawn_progress(&self.speaker.worker, &self.speaker.desk), spawn_tidying(&self.speaker.worker)];
        let ended = self.serve_until_over(leave).await;
        aside.iter().for_each(JoinHandle::abort);
        ended
    }

    async fn serve_until_over(&mut self, leave: &CancellationToken) -> Result<Ended, Error> {
        loop {
            let over = match self.register(leave).await {
                Ok(Some(registered)) => {
                    tracing::info!(worker = %registered.id, session = %registered.session, "registered");
                    self.speaker.pace(registered.heartbeat_ms);
                    self.speaker.speak(registered.session, leave).await
                }
                Ok(None) => Over::SaidGoodbye,
                Err(CallError::Unknown(why)) => Over::Unknown(why),
                Err(CallError::Fenced) => Over::Fenced,
                Err(error) => return Err(Error::Refused(error.to_string())),
            };
            match over {
                Over::SaidGoodbye => return Ok(Ended::Left),
                Over::Fenced => {
                    tracing::error!("another process is this worker now: everything here is stopped");
                    self.speaker.worker.revoke_all();
                    self.speaker.worker.settled().await;
                    return Ok(Ended::Fenced);
                }
                Over::Unknown(why) => {
                    if !self.join_anew(why, leave).await? {
                        return Ok(Ended::Left);
                    }
                }
            }
        }
    }

    /// This process is the one that is heard from now on. `None` when it is to leave first.
    async fn register(&self, leave: &CancellationToken) -> Result<Option<WorkerRegistered>, CallError> {
        let mut backoff = Backoff::new();
        loop {
            let error = match self.speaker.client.register(&self.options.about).await {
                Ok(registered) => return Ok(Some(registered)),
                Err(error @ CallError::Away(_)) => error,
                Err(error) => return Err(error),
            };
            tracing::warn!(servers = %self.options.named(), %error, "the server is not there; what runs goes on");
            tokio::select! {
                () = backoff.pause() => {}
                () = leave.cancelled() => {
                    self.speaker.worker.shutdown(self.options.drain).await;
                    return Ok(None);
                }
            }
        }
    }

    /// It was removed: nothing it has is its own any more. False when it is to leave first.
    async fn join_anew(&mut self, why: String, leave: &CancellationToken) -> Result<bool, Error> {
        tracing::warn!(why, "the server does not know this worker any more: everything here is stopped");
        self.speaker.worker.revoke_all();
        self.speaker.desk.lock().clear();
        let Some(token) = self.options.token.clone() else {
            self.speaker.worker.settled().await;
            return Err(Error::Removed { why });
        };
        self.lodging.forget()?;
        let identity = join(&self.speaker.client, &token, &self.options, &self.lodging, leave).await?;
        let has_joined = identity.is_some();
        self.speaker.client.be(identity);
        Ok(has_joined)
    }
}

impl Speaker {
    pub(super) fn new(
        client: Arc<Client>,
        worker: Worker,
        desk: Arc<Desk>,
        secrets: Arc<CarriedSecrets>,
        drain: Duration,
    ) -> Speaker {
        let machine = Machine::new(worker.places().data_dir());
        Speaker {
            client,
            drain,
            worker,
            desk,
            secrets,
            machine,
            sample: Sample::default(),
            looked_at: None,
            wait_ms: 0,
            n_syncs: 0,
            ordered: Orders::default(),
            rest_until: None,
            is_leaving: false,
        }
    }

    /// What happened before the conversation is reported as if it had happened just now.
    pub(super) fn present_found(&self) {
        let mut ledger = self.desk.lock();
        self.worker.unacknowledged().into_iter().for_each(|event| ledger.take(event));
        for lease in self.worker.held() {
            let log = self.worker.places().log_file(lease.task.0, lease.attempt);
            ledger.log_grew(lease, files::length(&log));
        }
    }

    /// The server says how often it wants to hear something.
    pub(super) fn pace(&mut self, heartbeat_ms: u64) {
        self.wait_ms = heartbeat_ms.min(WAIT_MS_MAX);
    }

    pub(super) async fn speak(&mut self, session: Token, leave: &CancellationToken) -> Over {
        let mut backoff = Backoff::new();
        let (mut older, mut call): (Option<Call>, Option<Call>) = (None, None);
        let mut leaving: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = None;
        loop {
            self.close_ended();
            if call.is_none() && !self.rests() {
                call = Some(self.write(session).await);
            }
            let rest_until = self.rest_until.filter(|_| call.is_none());
            let waits = call.as_ref().is_some_and(|call| call.waits);
            let desk = self.desk.clone();
            let heard = tokio::select! {
                answer = answer_of(&mut older) => older.take().map(|call| (call, answer)),
                answer = answer_of(&mut call) => {
                    older = None;
                    call.take().map(|call| (call, answer))
                }
                () = rest(rest_until) => {
                    self.rest_until = None;
                    None
                }
                // The one that waits is answered as soon as the next one is there.
                () = desk.is_due(), if waits || rest_until.is_some() => {
                    older = call.take();
                    None
                }
                () = leave.cancelled(), if leaving.is_none() => {
                    tracing::info!("takes nothing new, and leaves when its work has ended");
                    self.is_leaving = true;
                    self.desk.lock().leave();
                    let (worker, drain) = (self.worker.clone(), self.drain);
                    leaving = Some(Box::pin(async move { worker.shutdown(drain).await }));
                    older = call.take();
                    None
                }
                () = ended(&mut leaving) => {
                    drop((older, call));
                    return self.say_goodbye(session).await;
                }
            };
            match heard {
                None => {}
                Some((call, Ok(answer))) => {
                    backoff.reset();
                    self.hear(&call.letter, answer).await;
                }
                Some((_, Err(CallError::Fenced))) => return Over::Fenced,
                Some((_, Err(CallError::Unknown(why)))) => return Over::Unknown(why),
                Some((_, Err(error))) => {
                    if backoff.n_tries().is_multiple_of(10) {
                        tracing::warn!(%error, "the server is not there; what runs goes on");
                    }
                    (older, call) = (None, None);
                    tokio::select! {
                        () = backoff.pause() => {}
                        () = leave.cancelled(), if leaving.is_none() => {}
                        () = ended(&mut leaving) => return self.say_goodbye(session).await,
                    }
                }
            }
        }
    }

    /// Tells how everything ended, if the server is there to hear it, and that this is the last of it.
    async fn say_goodbye(&mut self, session: Token) -> Over {
        let farewell = async {
            let mut backoff = Backoff::new();
            loop {
                self.close_ended();
                let is_last = self.desk.lock().is_settled();
                let (letter, mut request) = self.compose(session).await;
                (request.leaving, request.wait_ms) = (is_last, Some(0));
                match self.client.sync(&request).await {
                    Ok(answer) => self.hear(&letter, answer).await,
                    Err(CallError::Away(_)) => backoff.pause().await,
                    Err(_) => return,
                }
                if is_last {
                    return;
                }
                // What is being closed announces itself.
                if !self.desk.lock().is_settled() {
                    self.desk.clone().is_due().await;
                }
            }
        };
        if tokio::time::timeout(GOODBYE_MAX, farewell).await.is_err() {
            tracing::warn!("the server does not answer: it will find out by itself");
        }
        Over::SaidGoodbye
    }

    /// Is there nothing to tell, and was there nothing new to hear?
    fn rests(&self) -> bool {
        self.rest_until.is_some() && self.desk.lock().due(Instant::now()) != Due::Now
    }

    /// Sends the artifacts of what has ended, beside everything else.
    fn close_ended(&self) {
        for lease in self.desk.lock().ends_to_close() {
            let (client, places, desk) = (self.client.clone(), self.worker.places().clone(), self.desk.clone());
            tokio::spawn(async move {
                let log_bytes = files::close(&client, &places, lease).await;
                desk.tell(|ledger| ledger.closed(lease, log_bytes));
            });
        }
    }
}

async fn join(
    client: &Client,
    token: &str,
    options: &RemoteOptions,
    lodging: &Lodging,
    leave: &CancellationToken,
) -> Result<Option<Identity>, Error> {
    let mut backoff = Backoff::new();
    loop {
        match client.join(token, &options.about).await {
            Ok(joined) => {
                let key = joined.key.ok_or_else(|| Error::Refused("it gave this worker no key".to_owned()))?;
                let identity = Identity { server: options.servers[0].to_string(), id: joined.id, key };
                lodging.keep(&identity)?;
                tracing::info!(worker = %identity.id, servers = %options.named(), "joined");
                return Ok(Some(identity));
            }
            Err(CallError::Away(error)) => {
                tracing::warn!(servers = %options.named(), error, "the server is not there");
            }
            Err(error) => return Err(Error::Refused(error.to_string())),
        }
        tokio::select! {
            () = backoff.pause() => {}
            () = leave.cancelled() => return Ok(None),
        }
    }
}

fn make_worker(
    id: WorkerId,
    options: &RemoteOptions,
    lodging: &Lodging,
    client: &Arc<Client>,
    secrets: &Arc<CarriedSecrets>,
    desk: &Arc<Desk>,
) -> Result<Worker, Error> {
    let places = Places::new(lodging.dir()).map_err(|source| Error::Data { path: lodging.dir().to_owned(), source })?;
    let _ = places.uploads().remove_parts();
    let worker_options = WorkerOptions {
        id,
        data_dir: lodging.dir().to_owned(),
        grace_ms: options.grace_ms,
        supervisor: options.supervisor.clone(),
        process_defaults: Arc::new(Default::default),
        docker_defaults: docker_defaults(options),
        // The server asks its rules before it hands anything out.
        may_run: Arc::new(|_, _| Ok(())),
        guard: None,
        secrets: Some(secrets.clone()),
        uploads: Some(Arc::new(UploadsOfServer { client: client.clone(), places })),
        programs: options.programs.clone(),
        runtime: Handle::current(),
    };
    Ok(Worker::new(worker_options, DeskLink(desk.clone()))?)
}

fn docker_defaults(options: &RemoteOptions) -> DockerDefaultsNow {
    let defaults = options.docker.clone();
    Arc::new(move || defaults.clone())
}

fn spawn_tidying(worker: &Worker) -> JoinHandle<()> {
    let worker = worker.clone();
    tokio::spawn(async move {
        loop {
            let tidying = worker.clone();
            let tidy = move || files::remove_old(tidying.places(), KEEP_FILES, &tidying.held());
            let _ = tokio::task::spawn_blocking(tidy).await;
            tokio::time::sleep(TIDY_EVERY).await;
        }
    })
}

async fn rest(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

/// Never, when there is no call. Gives up nothing when it is not waited for to the end.
async fn answer_of(call: &mut Option<Call>) -> Result<SyncAnswer, CallError> {
    match call {
        Some(call) => (&mut call.answer).await,
        None => std::future::pending().await,
    }
}

async fn ended(future: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>) {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
