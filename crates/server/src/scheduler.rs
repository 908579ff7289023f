//! The thread that owns the tick loop, and the embedded worker beside it.
//!
//! ```text
//! inbox ─► tick (one commit) ─► starts and stops to the worker ─► happenings to observers ─► answers
//!   ▲                                                              │
//!   └──────────────────────────── reports ─────────────────────────┘
//! ```
//!
//! Crash-only: when a tick fails, everything memory believed is dropped and read again; whoever waited for an answer is
//! told that the outcome is unknown; the worker presents what it holds and repeats the ends that were not acknowledged.

mod embedded;
mod hands;

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use runyard_core::event::{Admit, Answer, Command, Event, Happening, Refusal, Rest, WorkerSpec};
use runyard_core::flow::Resources;
use runyard_core::ids::{TaskId, Ticket};
use runyard_core::name::Name;
use runyard_core::now::Now;
use runyard_core::worker::Vitals;
use runyard_exec::guard::Guard;
use runyard_exec::process::supervise::SupervisorProgram;
use runyard_exec::{Kind, RemoteUploads, Secrets};
use runyard_store::store::{self, Purge, Store};
use runyard_store::yard::{Ticked, Yard};
use runyard_worker::{DockerDefaultsNow, MayRun, ProcessDefaultsNow, Worker, WorkerOptions};
use tokio::sync::watch;

use crate::clock::{Clock, wall_ms};
use crate::desk::Desk;
use crate::feed::Commit;
use crate::handle::Handle;
use crate::nodes::{OutpostLink, Tenure};
pub(crate) use embedded::{Offer, known_worker_id, worker_id, worker_spec};
pub(crate) use hands::{Crew, Hands, Nobody, Orders, Told, carry_out, end};

/// Events handled in one tick; what is left waits for the next, which follows at once.
const EVENTS_PER_TICK: usize = 2048;
/// Retention looks for old rows this often, and goes on at once while it finds any and nothing else is to do.
const PURGE_EVERY: Duration = Duration::from_secs(60);
/// Between two chunks of retention under load: a thousand rows each, so more than a busy server ends in that time.
const PURGE_PAUSE_BUSY: Duration = Duration::from_millis(20);
const RECOVER_PAUSE_MIN: Duration = Duration::from_millis(50);
const RECOVER_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Behind the end of a lease, when it is sure to be over.
const LEASE_MARGIN: Duration = Duration::from_millis(1);
/// After a load that failed for another reason than another node.
const LOAD_PAUSE: Duration = Duration::from_millis(500);
/// Beyond the worker's own grace, for reports of what it stopped.
const STOP_MARGIN: Duration = Duration::from_secs(6);

/// Told what one commit made visible, on the scheduler's thread: it must be quick.
pub trait Observer: Send {
    fn committed(&self, happenings: &[Happening], n_events: usize, took: Duration);
    /// Memory was dropped and read again: commits may have happened that were never told.
    fn recovered(&self);
    fn purged(&self, tasks: &[TaskId]);
}

/// Opens the store for one term of the scheduler.
pub type OpenStore = Box<dyn FnMut() -> store::Result<Box<dyn Store + Send>> + Send>;

/// Without it a term does not begin.
pub type Prepare = Box<dyn FnMut() -> store::Result<()> + Send>;

/// A store that is open already, for the only term there is.
pub fn once(store: impl Store + Send + 'static) -> OpenStore {
    let mut store = Some(store);
    Box::new(move || Ok(Box::new(store.take().expect("a store of one's own has one term"))))
}

pub struct SchedulerOptions {
    pub store: OpenStore,
    /// By what right it runs.
    pub tenure: Tenure,
    /// Called when a term begins, before anything is served: what other nodes changed is read again.
    pub prepare: Prepare,
    /// As it is when a term begins.
    pub config: Box<dyn Fn() -> Arc<runyard_core::config::Config> + Send>,
    /// Read anew for each chunk, so that a reload takes effect.
    pub purge: Box<dyn Fn() -> Purge + Send>,
    pub data_dir: PathBuf,
    pub grace_ms: u64,
    pub supervisor: Option<SupervisorProgram>,
    pub process_defaults: ProcessDefaultsNow,
    pub docker_defaults: DockerDefaultsNow,
    pub may_run: MayRun,
    pub guard: Option<Arc<Guard>>,
    pub secrets: Option<Arc<dyn Secrets>>,
    /// Where uploads are that are not on this disk.
    pub uploads: Option<Arc<dyn RemoteUploads>>,
    pub capacity: Resources,
    /// How often the embedded worker says that it is there; read anew each time, so that a reload takes effect.
    pub heartbeat: Box<dyn Fn() -> Duration + Send>,
    /// How its machine is doing.
    pub vitals: Box<dyn FnMut() -> Vitals + Send>,
    /// Where workers on other machines find what is for them.
    pub desk: Arc<Desk>,
    pub observer: Box<dyn Observer>,
}

pub struct Scheduler {
    handle: Handle,
    worker: Worker,
    link: OutpostLink,
    n_held: watch::Receiver<usize>,
    grace: Duration,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the embedded worker cannot start")]
    Worker(#[from] runyard_worker::Error),
    #[error("the worker's id in {path} cannot be read or written")]
    WorkerId {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl Scheduler {
    /// Starts the thread. It recovers in the background; `Handle::readiness` says when it serves.
    pub fn spawn(options: SchedulerOptions, handle: Handle) -> Result<Scheduler, Error> {
        let id = worker_id(&options.data_dir)?;
        let link = match options.tenure {
            Tenure::Sole => OutpostLink::sole(handle.clone()),
            Tenure::Lease(_) => OutpostLink::new(handle.clone()),
        };
        let worker_options = WorkerOptions {
            id,
            data_dir: options.data_dir.clone(),
            grace_ms: options.grace_ms,
            supervisor: options.supervisor,
            process_defaults: options.process_defaults,
            docker_defaults: options.docker_defaults,
            may_run: options.may_run,
            guard: options.guard,
            secrets: options.secrets,
            uploads: options.uploads,
            programs: Default::default(),
            runtime: tokio::runtime::Handle::current(),
        };
        let worker = Worker::new(worker_options, link.clone())?;
        let keeps: Vec<Kind> = worker.kinds().iter().copied().filter(|kind| worker.keeps(*kind)).collect();
        let node = options.tenure.node();
        let spec = worker_spec(id, &Offer { node, kinds: worker.kinds(), keeps: &keeps, capacity: &options.capacity });
        let (n_held_sender, n_held) = watch::channel(0);
        let grace = Duration::from_millis(options.grace_ms);
        let thread = Loop {
            handle: handle.clone(),
            worker: worker.clone(),
            desk: options.desk,
            tenure: options.tenure,
            link: link.clone(),
            prepare: options.prepare,
            spec,
            purge: options.purge,
            heartbeat: options.heartbeat,
            vitals: options.vitals,
            observer: options.observer,
            n_held: n_held_sender,
            seen_at: Instant::now(),
            arrives: false,
            purge_at: Instant::now(),
            n_failed: 0,
            alone: Alone::default(),
        };
        let (store, config) = (options.store, options.config);
        let thread = std::thread::Builder::new()
            .name("scheduler".into())
            .spawn(move || thread.run(store, config))
            .expect("the operating system gives one more thread");
        Ok(Scheduler { handle, worker, link, n_held, grace, thread: Mutex::new(Some(thread)) })
    }

    /// Where the worker reports to.
    pub fn link(&self) -> &OutpostLink {
        &self.link
    }

    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Nothing new starts; what runs has `drain` to end; the rest goes back to the queue, uncounted. Processes under a
    /// supervisor go on, and are nobody to wait for.
    pub async fn stop(&self, drain: Duration) {
        self.handle.set_stopping();
        self.handle.tell([Event::Admit { admit: Admit::Draining, ticket: None }]);
        self.settled(drain).await;
        self.handle.tell([Event::Admit { admit: Admit::Stopping, ticket: None }]);
        self.settled(self.grace + STOP_MARGIN).await;
        self.worker.shutdown(Duration::ZERO).await;
        self.end().await;
    }

    /// The loop ends, and nothing else: what the worker runs goes on.
    pub async fn end(&self) {
        self.handle.close();
        let thread = self.thread.lock().expect("no thread panics while it holds this").take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    /// Waits until nothing is held any more, or the time is over.
    async fn settled(&self, limit: Duration) {
        // An answer proves that the event above was handled, so that the number is no older than it.
        let asked = self.handle.ask(|ticket| Event::Explain { ticket, task: TaskId(0) });
        let _ = tokio::time::timeout(Duration::from_secs(5), asked).await;
        let mut n_held = self.n_held.clone();
        let _ = tokio::time::timeout(limit, n_held.wait_for(|&n| n == 0)).await;
    }
}

struct Loop {
    handle: Handle,
    worker: Worker,
    desk: Arc<Desk>,
    tenure: Tenure,
    link: OutpostLink,
    prepare: Prepare,
    spec: WorkerSpec,
    purge: Box<dyn Fn() -> Purge + Send>,
    heartbeat: Box<dyn Fn() -> Duration + Send>,
    vitals: Box<dyn FnMut() -> Vitals + Send>,
    observer: Box<dyn Observer>,
    /// What a stop waits for.
    n_held: watch::Sender<usize>,
    seen_at: Instant,
    /// Its worker's arrival is in the inbox, or in the tick that is being made.
    arrives: bool,
    /// At once: what grew old while the server was down goes first, and a server that never lives a minute purges too.
    purge_at: Instant,
    /// Recoveries since the last tick that went well.
    n_failed: u32,
    alone: Alone,
}

/// After failure upon failure, what the worker repeats at each recovery may itself be what fails. It then gets ticks of
/// its own, so that it takes nobody else's events down with it again and again; in between, the inbox has its turn.
#[derive(Default)]
struct Alone {
    events: VecDeque<Event>,
    is_inboxs_turn: bool,
}

impl Alone {
    /// The worker's arrival comes before anything else; what it repeats, one by one.
    fn set(&mut self, joined: Event, repeated: impl IntoIterator<Item = Event>) {
        self.events.clear();
        self.events.push_back(joined);
        self.events.extend(repeated);
        self.is_inboxs_turn = false;
    }

    fn next(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.is_inboxs_turn) {
            return None;
        }
        let event = self.events.pop_front();
        self.is_inboxs_turn = event.is_some();
        event
    }

    fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

impl Loop {
    /// One term after the other, until it is closed. Of a store that is its own there is only one.
    fn run(mut self, mut store: OpenStore, config: Box<dyn Fn() -> Arc<runyard_core::config::Config> + Send>) {
        let handle = self.handle.clone();
        loop {
            if self.tenure.is_shared() {
                self.handle.set_following();
                self.link.go_away();
            }
            if !self.tenure.await_turn(|| handle.is_closed()) {
                return;
            }
            let opened = self.open(&mut store, &*config);
            match opened {
                Ok((yard, start)) => self.term(yard, start),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "the store cannot be loaded");
                    if !self.tenure.is_shared() {
                        self.handle.close();
                    } else if matches!(error, store::Error::Fenced { .. }) {
                        self.tenure.deposed();
                    } else {
                        std::thread::park_timeout(LOAD_PAUSE);
                    }
                }
            }
            if self.handle.is_closed() {
                return;
            }
        }
    }

    fn open(
        &mut self,
        store: &mut OpenStore,
        config: &dyn Fn() -> Arc<runyard_core::config::Config>,
    ) -> store::Result<(Yard, Now)> {
        // Before anybody can speak to this term: what a worker presents to it must not be dropped.
        self.desk.clear_all();
        let store = store()?;
        let before = config();
        let opened = Yard::open(store, before.clone(), crate::clock::salt(), wall_ms())?;
        if let Some(name) = self.tenure.node() {
            // Only now nobody else can change them any more; and who asks from now on waits for the first tick.
            (self.prepare)()?;
            self.link.come_home();
            self.handle.set_holding();
            let changed = Some(config()).filter(|now| *now != before);
            let configure = changed.map(|config| Event::Configure { ticket: None, config });
            self.handle.tell_first([Event::NodeHolds { name }].into_iter().chain(configure));
        }
        Ok(opened)
    }

    /// Ticks until it is closed, or is not the holder any more.
    fn term(&mut self, mut yard: Yard, start: Now) {
        let clock = Clock::from(start);
        self.n_failed = 0;
        self.observer.recovered();
        self.join();
        let mut events = Vec::new();
        let mut again = true;
        let mut is_ready = false;
        loop {
            let timeout = if again { Duration::ZERO } else { self.timeout(&yard, clock.now()) };
            self.gather(&yard, timeout, &mut events);
            if self.handle.is_closed() {
                return;
            }
            let is_idle = events.is_empty() && !again;
            again = match self.tick(&mut yard, &clock, &mut events) {
                Next::Again => true,
                Next::Wait => false,
                Next::Deposed => return,
            };
            if !is_ready {
                is_ready = true;
                self.handle.set_serving();
            }
            let load = if is_idle && !again { Load::Idle } else { Load::Busy };
            self.purge(&mut yard, clock.now(), load);
        }
    }

    /// The events of the next tick: one that has to be alone, or what is in the inbox.
    fn gather(&mut self, yard: &Yard, timeout: Duration, events: &mut Vec<Event>) {
        if let Some(event) = self.alone.next() {
            events.push(event);
            return;
        }
        let timeout = if self.alone.is_empty() { timeout } else { Duration::ZERO };
        self.handle.drain(EVENTS_PER_TICK, timeout, events);
        self.keep_alive(yard, events);
    }

    fn timeout(&self, yard: &Yard, now: Now) -> Duration {
        let heartbeat = (self.heartbeat)();
        let core = yard.next_timeout(now).map_or(heartbeat, Duration::from_millis);
        let heartbeat = heartbeat.saturating_sub(self.seen_at.elapsed());
        // A holder that is none any more finds out without being asked.
        let lease = self.tenure.until().map_or(heartbeat, |until| until.saturating_duration_since(Instant::now()));
        core.min(heartbeat).min(self.until_purge()).min(lease + LEASE_MARGIN)
    }

    fn until_purge(&self) -> Duration {
        self.purge_at.saturating_duration_since(Instant::now())
    }

    /// Tells that the worker is alive. One that was given up meanwhile (the loop stood still for too long) joins again.
    fn keep_alive(&mut self, yard: &Yard, events: &mut Vec<Event>) {
        if self.seen_at.elapsed() < (self.heartbeat)() {
            return;
        }
        self.seen_at = Instant::now();
        if yard.core().has_worker(self.spec.id) {
            events.push(Event::WorkerSeen { worker: self.spec.id, vitals: (self.vitals)() });
        } else if self.alone.is_empty() && !self.arrives {
            // A second arrival would not present what the tick of the first one hands out, and that would count as lost.
            self.join();
        }
    }

    /// One tick with its effects.
    fn tick(&mut self, yard: &mut Yard, clock: &Clock, events: &mut Vec<Event>) -> Next {
        let n_events = events.len();
        let tickets: Vec<Ticket> = events.iter().filter_map(ticket).collect();
        let told = Told::by(events);
        let began = Instant::now();
        match caught(|| yard.tick(clock.now(), events)) {
            // It is stored, and whoever is the holder now will find it; but nothing of it may leave.
            Ok(_) if !self.tenure.holds() => self.deposed("its lease is over"),
            Err(Failed { fenced: true, reason }) if self.tenure.is_shared() => self.deposed(&reason),
            Ok(ticked) => {
                let took = began.elapsed();
                self.arrives = false;
                // While something suspect is still to come, one good tick does not end the row of failures.
                if self.alone.is_empty() {
                    self.n_failed = 0;
                }
                self.worker.acknowledge_told(told);
                let again = ticked.again;
                // Before the answers: who hears that a stop was handled counts on it.
                self.tell_held(yard);
                self.handle.publish_room(yard.core(), agents_at_limit(&ticked.commands));
                self.let_out(ticked, n_events, took);
                if again { Next::Again } else { Next::Wait }
            }
            Err(Failed { reason, .. }) => {
                tracing::error!(reason, "a tick failed; recovering");
                events.clear();
                self.handle.drop_answers(tickets);
                self.recover(yard, clock)
            }
        }
    }

    fn deposed(&mut self, reason: &str) -> Next {
        tracing::warn!(reason, "this node is not the holder any more");
        self.tenure.deposed();
        Next::Deposed
    }

    /// They are counted one by one, so only when somebody waits for them.
    fn tell_held(&self, yard: &Yard) {
        if yard.core().admission() == Admit::Open {
            return;
        }
        let n_held = yard.core().n_held_unkept();
        self.n_held.send_if_modified(|n| std::mem::replace(n, n_held) != n_held);
    }

    fn let_out(&self, ticked: Ticked, n_events: usize, took: Duration) {
        let not_after = self.tenure.until();
        let crew = Crew { own: self.spec.id, hands: &self.worker, desk: &*self.desk, not_after };
        let answers = carry_out(&crew, ticked.commands);
        if ticked.commit.is_some() {
            self.observer.committed(&ticked.happenings, n_events, took);
        }
        if ticked.n_posted > 0 {
            self.handle.posted().notify_one();
        }
        if let Some(seq) = ticked.commit.filter(|_| !ticked.happenings.is_empty()) {
            self.handle.feed().publish(Commit { seq, happenings: ticked.happenings });
        }
        self.handle.answer(answers);
    }

    fn recover(&mut self, yard: &mut Yard, clock: &Clock) -> Next {
        self.handle.set_recovering();
        loop {
            // The first try is at once. What fails again and again (a full disk, a row that cannot be handled) is not
            // worth a busy processor.
            let pause = RECOVER_PAUSE_MIN * 2u32.pow(self.n_failed.min(10));
            if self.n_failed > 0 {
                std::thread::park_timeout(pause.min(RECOVER_PAUSE_MAX));
            }
            self.n_failed += 1;
            match caught(|| yard.recover(clock.now())) {
                Ok(()) => break,
                Err(Failed { fenced: true, reason }) if self.tenure.is_shared() => return self.deposed(&reason),
                Err(Failed { reason, .. }) => tracing::error!(reason, "the store cannot be reloaded; trying again"),
            }
            if !self.tenure.holds() {
                return self.deposed("its lease ran out while the store could not be reached");
            }
            // Nobody waits without end for a disk that is full: what has gathered is refused, nothing of it is stored.
            self.handle.refuse_waiting();
            if self.handle.is_closed() {
                return Next::Wait;
            }
        }
        self.observer.recovered();
        self.desk.clear_all();
        self.join();
        self.handle.set_serving();
        Next::Again
    }

    fn join(&mut self) {
        (self.arrives, self.seen_at) = (true, Instant::now());
        let joined = self.worker.arrival(&self.spec);
        let repeated = self.worker.unacknowledged();
        if self.n_failed < 2 {
            self.alone = Alone::default();
            self.handle.tell_first(std::iter::once(joined).chain(repeated));
        } else {
            self.alone.set(joined, repeated);
        }
    }

    /// One chunk of retention when its time has come. An idle loop goes on with the next at once; a busy one spreads them.
    fn purge(&mut self, yard: &mut Yard, now: Now, load: Load) {
        if !self.until_purge().is_zero() {
            return;
        }
        let purge = (self.purge)();
        let pause = match yard.store().purge(now, &purge) {
            Ok(purged) => {
                self.observer.purged(&purged.tasks);
                match (purged.rest, load) {
                    (Rest::Done, _) => PURGE_EVERY,
                    (Rest::More, Load::Idle) => Duration::ZERO,
                    (Rest::More, Load::Busy) => PURGE_PAUSE_BUSY,
                }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "retention could not delete old rows");
                PURGE_EVERY
            }
        };
        self.purge_at = Instant::now() + pause;
    }
}

/// How a piece of work for the store came to nothing.
pub(crate) struct Failed {
    /// In one line.
    pub reason: String,
    /// Somebody else writes this store now.
    pub fenced: bool,
}

/// An error, or a panic: after either nothing that memory believed counts any more.
pub(crate) fn caught<T>(work: impl FnOnce() -> store::Result<T>) -> Result<T, Failed> {
    match std::panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => {
            let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
            let reason = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
            Err(Failed { reason, fenced: matches!(error, store::Error::Fenced { .. }) })
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(Failed { reason: format!("panicked: {}", text.unwrap_or("no text")), fenced: false })
        }
    }
}

/// What the loop does after a tick.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Another can follow at once.
    Again,
    Wait,
    /// The term is over.
    Deposed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Idle,
    Busy,
}

/// Agents that were refused something for their own limit on the queue.
pub(crate) fn agents_at_limit(commands: &[Command]) -> impl Iterator<Item = Name> {
    commands.iter().filter_map(|command| match command {
        Command::Answer { answer: Answer::Refused(Refusal::QueueFull { agent, .. }), .. } => agent.clone(),
        _ => None,
    })
}

fn ticket(event: &Event) -> Option<Ticket> {
    match event {
        Event::Submit(submission) => Some(submission.ticket),
        Event::Cancel { ticket, .. }
        | Event::Change { ticket, .. }
        | Event::Heartbeat { ticket, .. }
        | Event::Explain { ticket, .. }
        | Event::Session { ticket, .. }
        | Event::Schedule { ticket, .. }
        | Event::Worker { ticket, .. }
        | Event::Workers { ticket, .. }
        | Event::Once { ticket, .. }
        | Event::WasDone { ticket, .. }
        | Event::Demand { ticket } => Some(*ticket),
        Event::Configure { ticket, .. }
        | Event::Remember { ticket, .. }
        | Event::Deliveries { ticket, .. }
        | Event::Admit { ticket, .. } => *ticket,
        _ => None,
    }
}

#[cfg(test)]
mod tests;
