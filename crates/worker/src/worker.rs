//! The worker itself.

use std::collections::HashMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use runyard_core::event::{Event, Fault, Held, Report, Start};
use runyard_core::ids::{TaskId, Token, WorkerId};
use runyard_core::name::Blob;
use runyard_core::session::Usage;
use runyard_core::task::{Class, Stop};
use runyard_exec::guard::Guard;
use runyard_exec::process::LeftoversError;
use runyard_exec::process::supervise::{EndedRun, SupervisorProgram, Survey, Survivor, survey};
use runyard_exec::{
    ExecOptions, Executors, Input, Job, Kind, Outcome, Places, Progress, RemoteUploads, Secrets, Signs, outcome,
};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::defaults::{Defaults, DockerDefaultsNow, MayRun, ProcessDefaultsNow, Programs, Rules};
use crate::found::Found;
use crate::input::Inbox;
use crate::link::Link;
use crate::spec::{Prepared, input_of, prepare};
use crate::table::{Arrival, Finished, Intake, Record, Table, Ties, lease_of};
use crate::watch::{LogFollow, ProgressEvent, Silence, Watch, report_event};

/// Progress events a slow listener may fall behind.
const PROGRESS_BEHIND_MAX: usize = 1024;
/// How often it is looked for containers that nobody answers for. There are none, unless a supervisor was killed in the
/// very moment it asked for one.
const CONTAINER_SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Beyond grace, for the kill and its confirmation; what is not dead then dies with the process.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(5);

pub struct WorkerOptions {
    pub id: WorkerId,
    /// Must exist. No other worker may use it.
    pub data_dir: PathBuf,
    /// Between the request to stop and the kill.
    pub grace_ms: u64,
    /// With one, processes outlive the worker; without, they die with it.
    pub supervisor: Option<SupervisorProgram>,
    pub process_defaults: ProcessDefaultsNow,
    pub docker_defaults: DockerDefaultsNow,
    pub may_run: MayRun,
    /// Where `http` tasks and the addresses of files may connect to; without one, anywhere.
    pub guard: Option<Arc<Guard>>,
    /// The values behind `secret://NAME`; without any, payloads are run as they are.
    pub secrets: Option<Arc<dyn Secrets>>,
    /// Where uploads are that are not in the data directory.
    pub uploads: Option<Arc<dyn RemoteUploads>>,
    /// Kinds of its own, each with the program that runs them.
    pub programs: Programs,
    /// Where the runs live; the worker itself may be called from any thread.
    pub runtime: Handle,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the executors cannot be set up")]
    Executors(#[source] io::Error),
    #[error("an earlier run could not be cleaned up")]
    Leftovers(#[from] LeftoversError),
}

#[derive(Clone)]
pub struct Worker {
    shared: Arc<Shared>,
}

struct Shared {
    id: WorkerId,
    link: Arc<dyn Link>,
    executors: Executors,
    grace: Duration,
    rules: Rules,
    /// What it can run, as it was when the worker started.
    kinds: Vec<Kind>,
    runtime: Handle,
    runs: TaskTracker,
    table: Mutex<Table>,
    progress_events: broadcast::Sender<ProgressEvent>,
    found: Found,
}

/// A run that has been told to the scheduler and now has to be set going.
struct Ready {
    lease: Held,
    work: Work,
    input: Input,
    stop: CancellationToken,
    watch: Arc<Watch>,
    not_after: Option<Instant>,
}

enum Work {
    Fresh(Box<Job>),
    /// It was started by an earlier worker, and goes on.
    Adopted(Box<Survivor>),
}

impl Worker {
    /// First of all looks what an earlier worker on this directory left. Runs that go on are held from now on, and those
    /// that have ended meanwhile are reported; what is left of others is killed, so that nothing of an old attempt is
    /// alive when a new one starts. Blocks meanwhile.
    pub fn new(options: WorkerOptions, link: impl Link) -> Result<Worker, Error> {
        let WorkerOptions { data_dir, supervisor, guard, secrets, uploads, .. } = options;
        let exec_options = ExecOptions { data_dir, supervisor, guard, secrets, uploads };
        let executors = Executors::new(exec_options).map_err(Error::Executors)?;
        let docker = (options.docker_defaults)();
        let mut survey = survey(executors.places())?;
        survey.n_killed += executors.reclaim_containers(&survey, &docker.rules.socket);
        let found = Found::of(&mut survey);
        found.log();
        let shared = Shared {
            id: options.id,
            link: Arc::new(link),
            executors,
            grace: Duration::from_millis(options.grace_ms),
            rules: Rules {
                defaults: Defaults { process: options.process_defaults, docker: options.docker_defaults },
                may_run: options.may_run,
                programs: options.programs,
            },
            kinds: docker.kinds_offered(),
            runtime: options.runtime,
            runs: TaskTracker::new(),
            table: Mutex::new(Table::new(options.id)),
            progress_events: broadcast::channel(PROGRESS_BEHIND_MAX).0,
            found,
        };
        let shared = Arc::new(shared);
        let newest = newest_attempts(&survey);
        for run in survey.ended {
            // The directory is the task's, and so the last attempt's; that may well be at work in it.
            if newest.get(&run.job.task) == Some(&run.job.attempt) {
                shared.executors.settle_ended(&run);
            }
            shared.find_ended(run);
        }
        survey.live.into_iter().for_each(|run| Shared::adopt(&shared, run));
        shared.runtime.spawn(sweep_containers(Arc::downgrade(&shared)));
        Ok(Worker { shared })
    }

    /// What an earlier worker had left.
    pub fn found(&self) -> &Found {
        &self.shared.found
    }

    /// What it can run. Whether there is an engine for containers was asked when it started, and is not asked again.
    pub fn kinds(&self) -> &[Kind] {
        &self.shared.kinds
    }

    /// Do tasks of this kind go on when the worker ends?
    pub fn keeps(&self, kind: Kind) -> bool {
        self.shared.executors.outlive(kind)
    }

    pub fn id(&self) -> WorkerId {
        self.shared.id
    }

    /// Starts them all. What can be told at once (that a run has begun, that a no-op has ended) is told in one report.
    pub fn start(&self, starts: Vec<Start>) {
        self.start_before(starts, None);
    }

    /// As [`Self::start`], but what has not begun at `not_after` does not begin at all: by then whoever asked for it may not
    /// be the one to ask any more.
    pub fn start_before(&self, starts: Vec<Start>, not_after: Option<Instant>) {
        let mut events = Vec::with_capacity(starts.len());
        let mut ready = Vec::new();
        let mut table = self.shared.lock();
        for start in starts {
            match table.arrive(start) {
                Arrival::Fresh(start) => ready.extend(self.shared.take(&mut table, &start, &mut events)),
                Arrival::Settled => {}
                Arrival::Answer(event) => events.push(event),
            }
        }
        drop(table);
        self.shared.report(events);
        ready.into_iter().for_each(|ready| Shared::set_going(&self.shared, Ready { not_after, ..ready }));
    }

    /// Asks an attempt to stop. Its end is reported when nothing of it is alive; at once if it is not here.
    pub fn stop(&self, task: TaskId, attempt: u32, token: Token, stop: Stop) {
        tracing::debug!(?task, attempt, stop = stop.as_str(), "stop");
        self.stop_for(Held { task, attempt, token });
    }

    /// As [`Self::stop`], where nobody needs to know why.
    pub fn stop_for(&self, lease: Held) {
        let event = self.shared.lock().stop(lease);
        self.shared.report(event.into_iter().collect());
    }

    /// Hands a message to a running attempt. That it was taken is reported once it is written to where the attempt reads
    /// it; when it cannot be, nothing is reported.
    pub fn input(&self, task: TaskId, attempt: u32, token: Token, message: TaskId, spec: Blob) {
        let text = match input_of(&spec) {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(?task, ?message, %error, "a message cannot be read, and is not handed over");
                return;
            }
        };
        self.hand_in(Held { task, attempt, token }, message, text);
    }

    /// As [`Self::input`], for a message that has been read already.
    pub fn hand_in(&self, lease: Held, message: TaskId, text: String) {
        let event = self.shared.lock().input(lease, message, text);
        self.shared.report(event.into_iter().collect());
    }

    /// This attempt is not ours any more: it is stopped, and nothing is reported of it.
    pub fn revoke(&self, task: TaskId, attempt: u32) {
        let record = self.shared.lock().revoke(task, attempt);
        self.shared.forget(record.into_iter().collect());
    }

    /// Nothing that is here is this worker's any more.
    pub fn revoke_all(&self) {
        self.held().into_iter().for_each(|lease| self.revoke(lease.task, lease.attempt));
    }

    /// All leases: runs that go on, and ends that are not acknowledged. To be presented when the scheduler has reloaded.
    pub fn held(&self) -> Vec<Held> {
        self.shared.lock().held()
    }

    /// The reports that a scheduler which has reloaded may have lost: that a run has begun, which messages it has taken,
    /// how it has ended.
    pub fn unacknowledged(&self) -> Vec<Event> {
        self.shared.lock().unacknowledged()
    }

    /// The reported end of this attempt is committed, and need not be repeated.
    pub fn acknowledge(&self, task: TaskId, attempt: u32) {
        self.acknowledge_all([(task, attempt)]);
    }

    /// As [`Self::acknowledge`], for a whole commit.
    pub fn acknowledge_all(&self, ends: impl IntoIterator<Item = (TaskId, u32)>) {
        let mut table = self.shared.lock();
        let records = ends.into_iter().filter_map(|(task, attempt)| table.acknowledge(task, attempt)).collect();
        drop(table);
        self.shared.forget(records);
    }

    /// It is committed that these attempts have taken these messages: (task, attempt, message).
    pub fn acknowledge_inputs(&self, inputs: impl IntoIterator<Item = (TaskId, u32, TaskId)>) {
        let mut table = self.shared.lock();
        inputs.into_iter().for_each(|(task, attempt, message)| table.acknowledge_input(task, attempt, message));
    }

    pub fn places(&self) -> &Places {
        self.shared.executors.places()
    }

    /// The growing log of a task's current attempt; `None` when it does not run here.
    pub fn follow_log(&self, task: TaskId) -> Option<LogFollow> {
        let table = self.shared.lock();
        let run = table.run(task)?;
        let attempt = run.lease.attempt;
        Some(LogFollow {
            attempt,
            path: self.places().log_file(task.0, attempt),
            bytes: run.watch.log_bytes.subscribe(),
        })
    }

    /// What a running task last said of itself.
    pub fn progress(&self, task: TaskId) -> Option<Progress> {
        self.shared.lock().run(task)?.watch.progress_now()
    }

    /// What a running task says of itself by another way than its report file.
    pub fn note_progress(&self, task: TaskId, progress: Progress) {
        let watch = self.shared.lock().run(task).map(|run| run.watch.clone());
        if let Some(watch) = watch {
            watch.progress(progress);
        }
    }

    /// What a task says of itself that runs elsewhere, for the same listeners.
    pub fn tell_progress(&self, event: ProgressEvent) {
        // An error only says that nobody listens.
        let _ = self.shared.progress_events.send(event);
    }

    pub fn subscribe_progress(&self) -> broadcast::Receiver<ProgressEvent> {
        self.shared.progress_events.subscribe()
    }

    /// Takes nothing new, and lets go of what goes on without it. The rest has `drain` to end; what has not is stopped,
    /// and waited for until it is dead.
    pub async fn shutdown(&self, drain: Duration) {
        self.shared.lock().intake = Intake::Closed;
        self.shared.executors.leave();
        self.shared.runs.close();
        if tokio::time::timeout(drain, self.shared.runs.wait()).await.is_ok() {
            return;
        }
        self.shared.lock().stop_bound();
        self.settled().await;
    }

    /// Takes nothing new, and waits until everything that was asked to stop is dead.
    pub async fn settled(&self) {
        self.shared.lock().intake = Intake::Closed;
        self.shared.runs.close();
        let limit = self.shared.grace + SHUTDOWN_MARGIN;
        if tokio::time::timeout(limit, self.shared.runs.wait()).await.is_err() {
            tracing::warn!(n_running = self.shared.runs.len(), "tasks that do not end are left to die with the worker");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no thread panics while it holds the table")
    }

    fn report(&self, events: Vec<Event>) {
        if !events.is_empty() {
            self.link.report(events);
        }
    }

    /// Takes a fresh start into the table, with the report that goes with it.
    fn take(&self, table: &mut Table, start: &Start, events: &mut Vec<Event>) -> Option<Ready> {
        let lease = lease_of(start);
        let job = match prepare(start, self.grace, &self.rules) {
            Prepared::Run(job) => job,
            Prepared::Ended(report) => {
                events.push(table.end(lease, report));
                return None;
            }
        };
        let ties = if self.executors.outlive(job.kind) { Ties::Loose } else { Ties::Bound };
        let ready = self.begin(table, lease, ties, Work::Fresh(job));
        // What goes on without this worker tells by itself when it can.
        events.extend(ready.watch.has_begun().then(|| report_event(self.id, lease, Report::Started)));
        Some(ready)
    }

    fn begin(&self, table: &mut Table, lease: Held, ties: Ties, work: Work) -> Ready {
        let job = work.job();
        let stop = CancellationToken::new();
        let silence = if job.watch_silence { Silence::Watched } else { Silence::Ignored };
        let (inbox, input) = Inbox::new(job.takes_input());
        let has_begun = ties == Ties::Bound || matches!(work, Work::Adopted(_));
        let watch = Arc::new(self.watch(lease, silence, has_begun, inbox));
        table.begin(lease, stop.clone(), watch.clone(), ties);
        Ready { lease, work, input, stop, watch, not_after: None }
    }

    fn find_ended(self: &Arc<Shared>, run: EndedRun) {
        let lease = held_of(&run.job);
        tracing::info!(task = run.job.task_text(), attempt = lease.attempt, "ended while no server ran");
        let taken = run.taken.into_iter().map(TaskId).collect();
        if let Some(report) = report_of(run.outcome) {
            let older = self.lock().find_ended(lease, taken, report);
            self.forget(older.into_iter().collect());
        }
    }

    fn adopt(shared: &Arc<Shared>, run: Survivor) {
        let lease = held_of(&run.job);
        tracing::info!(task = run.job.task_text(), attempt = lease.attempt, "adopted");
        let ready = shared.begin(&mut shared.lock(), lease, Ties::Loose, Work::Adopted(Box::new(run)));
        Shared::set_going(shared, ready);
    }

    /// The records of these are of no use any more. Files are removed away from whoever calls.
    fn forget(self: &Arc<Shared>, records: Vec<Record>) {
        if records.is_empty() {
            return;
        }
        let shared = self.clone();
        // Among the runs, so that a shutdown waits for it: the next worker must not meet what is known already.
        let removal = move || {
            records.into_iter().for_each(|(task, attempt)| shared.executors.forget(task.0, attempt));
        };
        self.runs.spawn_blocking_on(removal, &self.runtime);
    }

    fn watch(&self, lease: Held, silence: Silence, has_begun: bool, inbox: Inbox) -> Watch {
        Watch {
            worker: self.id,
            lease,
            silence,
            has_begun: AtomicBool::new(has_begun),
            link: self.link.clone(),
            born: Instant::now(),
            tell_alive_at: AtomicU64::new(0),
            inbox,
            log_bytes: watch::channel(0).0,
            progress: Mutex::new(None),
            progress_events: self.progress_events.clone(),
        }
    }

    fn set_going(shared: &Arc<Shared>, ready: Ready) {
        let owned = shared.clone();
        let run = async move {
            let Ready { lease, work, input, stop, watch, not_after } = ready;
            let run = async {
                if not_after.is_some_and(|not_after| Instant::now() > not_after) {
                    return Outcome::NotStarted { reason: "it was ordered too late".into() };
                }
                match work {
                    Work::Fresh(job) => owned.executors.run(*job, input, stop, &*watch).await,
                    Work::Adopted(run) => owned.executors.adopt(*run, input, stop, &*watch).await,
                }
            };
            // A panic in an executor is this worker's fault, and must not leave a lease that never ends.
            let outcome = AssertUnwindSafe(run).catch_unwind().await;
            drop(watch);
            // What was left goes on, and is still held.
            if let Some(report) = outcome.map_or_else(|_| Some(panicked()), report_of) {
                Shared::finish(&owned, lease.task, report);
            }
        };
        shared.runs.spawn_on(run, &shared.runtime);
    }

    fn finish(shared: &Arc<Shared>, task: TaskId, report: Report) {
        let mut table = shared.lock();
        let Finished { event, next, record } = table.finish(task, report);
        let mut events = Vec::from_iter(event);
        let ready = next.and_then(|next| match table.arrive(*next) {
            Arrival::Fresh(start) => shared.take(&mut table, &start, &mut events),
            Arrival::Settled => None,
            Arrival::Answer(event) => {
                events.push(event);
                None
            }
        });
        drop(table);
        shared.report(events);
        shared.forget(record.into_iter().collect());
        if let Some(ready) = ready {
            Shared::set_going(shared, ready);
        }
    }
}

impl Work {
    fn job(&self) -> &Job {
        match self {
            Work::Fresh(job) => job,
            Work::Adopted(run) => &run.job,
        }
    }
}

/// As long as the worker is there.
async fn sweep_containers(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(CONTAINER_SWEEP_EVERY).await;
        let Some(shared) = shared.upgrade() else { return };
        if shared.lock().intake == Intake::Closed {
            return;
        }
        let socket = (shared.rules.defaults.docker)().rules.socket;
        shared.executors.sweep_containers(&socket).await;
    }
}

fn newest_attempts(survey: &Survey) -> HashMap<u128, u32> {
    let live = survey.live.iter().map(|run| &run.job);
    let mut newest = HashMap::new();
    for job in live.chain(survey.ended.iter().map(|run| &run.job)) {
        let attempt = newest.entry(job.task).or_insert(job.attempt);
        *attempt = job.attempt.max(*attempt);
    }
    newest
}

pub(crate) fn held_of(job: &Job) -> Held {
    Held { task: TaskId(job.task), attempt: job.attempt, token: Token(job.token) }
}

/// `None` for a run that goes on.
pub(crate) fn report_of(outcome: Outcome) -> Option<Report> {
    let report = match outcome {
        Outcome::Completed { result, usage } => {
            Report::Completed { result: result.map(Into::into), usage: usage.map(usage_of) }
        }
        Outcome::Stopped => Report::Stopped,
        Outcome::NotStarted { reason } => Report::NotStarted { reason: reason.into() },
        Outcome::Left => return None,
        Outcome::Lost { reason } => Report::Failed {
            class: Class::Lost,
            message: reason.into(),
            retry_after_ms: None,
            result: None,
            usage: None,
            fault: Fault::Work,
        },
        Outcome::Failed(failure) => Report::Failed {
            class: match failure.class {
                outcome::Class::Task => Class::Task,
                outcome::Class::Timeout => Class::Timeout,
                outcome::Class::Quota => Class::Quota,
                outcome::Class::Permanent => Class::Permanent,
            },
            message: failure.message.into(),
            retry_after_ms: failure.retry_after_ms,
            result: failure.result.map(Into::into),
            usage: failure.usage.map(|usage| usage_of(*usage)),
            fault: match failure.fault {
                outcome::Fault::Work => Fault::Work,
                outcome::Fault::Worker => Fault::Worker,
            },
        },
    };
    Some(report)
}

fn panicked() -> Report {
    Report::Failed {
        class: Class::Task,
        message: "the executor panicked".into(),
        retry_after_ms: None,
        result: None,
        usage: None,
        fault: Fault::Worker,
    }
}

fn usage_of(usage: runyard_exec::Usage) -> Usage {
    Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        context_tokens: usage.context_tokens,
        context_window: usage.context_window,
    }
}
