//! `runyard supervise`: one attempt from its start to its end, whether or not a server is there.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::control::Desk;
use super::exit_record::{ExitRecord, Facts};
use super::identity::Identity;
use super::lease::LeaseFile;
use super::log;
use super::run_dir::{Orders, RunDir};
use crate::docker::Containers;
use crate::job::{Job, Kind};
use crate::outcome::{Class, Failure, Outcome};
use crate::places::Places;
use crate::process::{Ended, Processes, own_descendants, system};
use crate::secret::{self, Handed};
use crate::wires::Wires;

/// Beyond an attempt's time and its grace. A server that is there has asked for the stop long before, and knows better
/// why.
const OVERTIME_MARGIN: Duration = Duration::from_secs(5);
/// What still runs then will run for a while.
const SETTLED: Duration = Duration::from_secs(1);
/// The wall clock may be set: a deadline is looked at again so often.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(30);
/// A full disk may get room again; without the record the whole run is lost.
const RECORD_TRIES: u32 = 60;
const RECORD_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} is no directory of a run that is to begin", path.display())]
    NoRun {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("another process supervises {}", path.display())]
    Taken { path: PathBuf },
    #[error("the run in {} has ended", path.display())]
    Ended { path: PathBuf },
    #[error("the secrets of the run were not handed over")]
    Secrets(#[source] io::Error),
    #[error("the supervisor cannot be set up")]
    SetUp(#[source] io::Error),
    #[error("the exit record cannot be written")]
    Record(#[source] io::Error),
}

/// Runs the attempt that is described in the directory, to its end. It needs nothing of what started it: neither its
/// session nor its open files nor its life.
pub fn supervise(run: &Path) -> Result<(), Error> {
    let dir = RunDir::at(run);
    let path = || run.to_owned();
    let no_run = |source| Error::NoRun { path: path(), source };
    let mut lock = dir.lock().map_err(no_run)?.ok_or_else(|| Error::Taken { path: path() })?;
    // At once: who has the lock and has not said who it is cannot be killed when it hangs.
    lock.sign(&Identity::own()).map_err(Error::SetUp)?;
    let orders = dir.orders().map_err(no_run)?;
    if dir.exit_record().map_err(no_run)?.is_some() {
        return Err(Error::Ended { path: path() });
    }
    let places = Places::new(&orders.data_dir).map_err(no_run)?;
    let secrets = take_secrets(&orders.job).map_err(Error::Secrets)?;
    detach().map_err(Error::SetUp)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::SetUp)?;
    let done = runtime.block_on(Supervisor { dir, orders, places, secrets: Arc::new(secrets) }.run());
    // A thread that still looks at something must not hold the end up.
    runtime.shutdown_background();
    done
}

/// What the server has handed over on standard input, for a payload that refers to any. Then the input is closed, and with
/// it the last descriptor of that memory.
fn take_secrets(job: &Job) -> io::Result<Handed> {
    if job.payload.as_deref().is_none_or(|payload| secret::references(payload).is_empty()) {
        return Ok(Handed::default());
    }
    let secrets = Handed::read(io::stdin().lock())?;
    log::hide(secrets.redactor());
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(secrets)
}

/// A session of its own, so that no terminal's signals reach it; and everything that its command starts stays below it,
/// also what leaves its group and session.
fn detach() -> io::Result<()> {
    // Refused when it leads a group already, which is what a shell makes of it that starts it by hand.
    let _ = rustix::process::setsid();
    // The server starts it through /proc/self/exe, and `ps`, `top` and `pgrep` would call it `exe`.
    let _ = rustix::thread::set_name(c"runyard");
    own_descendants()?;
    // It must not keep a file system from being unmounted.
    std::env::set_current_dir("/")
}

struct Supervisor {
    dir: RunDir,
    orders: Orders,
    places: Places,
    secrets: Arc<Handed>,
}

impl Supervisor {
    async fn run(self) -> Result<(), Error> {
        // First of all: from here on a stop is a stop, and not the end of the supervisor.
        let signals = Signals::new().map_err(Error::SetUp)?;
        let began = Instant::now();
        let job = &self.orders.job;
        let (desk, input) = Desk::new(job.takes_input());
        let lease = match LeaseFile::create(&self.places, job) {
            Ok(lease) => lease,
            Err(error) => return self.record(Failure::worker(error.to_string()).into(), Facts::default()).await,
        };
        tracing::info!(task = job.task_text(), attempt = job.attempt, "supervises");
        let desk_open = desk.listen(&self.dir).map_err(Error::SetUp)?;
        let (stop, overtime) = (CancellationToken::new(), Cell::new(None));
        let wires = Wires { input, stop: &stop, signs: &*desk };
        let mut ended = tokio::select! {
            ended = self.run_job(&lease, wires) => ended,
            () = self.attend(signals, &lease, &stop, &overtime, began) => unreachable!("it attends until the run ends"),
        };
        let facts = Facts {
            status: ended.status,
            out_of_memory: ended.out_of_memory,
            not_enforced: std::mem::take(&mut ended.not_enforced),
            used: system::children_usage(),
            wall: began.elapsed(),
            taken: desk.taken(),
            progress: desk.progress(),
        };
        let outcome = self.judge(ended, overtime.get());
        // The desk is open all the time: a record that has to wait for room on a full disk is no reason to be taken for
        // one that hangs.
        let recorded = self.record(outcome, facts).await;
        drop(desk_open);
        lease.remove();
        recorded
    }

    async fn run_job(&self, lease: &LeaseFile, wires: Wires<'_>) -> Ended {
        let (places, job) = (Arc::new(self.places.clone()), &self.orders.job);
        match job.kind {
            Kind::Docker => Containers::new(places, Some(self.secrets.clone())).run_held(job, lease, wires).await,
            Kind::Process | Kind::Http | Kind::Noop => {
                Processes::in_this_thread(places, self.secrets.clone()).run_held(job, lease, wires).await
            }
        }
    }

    /// A stop that this supervisor itself ordered is a failure of the work.
    fn judge(&self, ended: Ended, overtime: Option<Overtime>) -> Outcome {
        match (ended.outcome, overtime) {
            (Outcome::Stopped, Some(overtime)) => {
                Failure::work(Class::Timeout, overtime.message(&self.orders.job)).into()
            }
            (outcome, _) => outcome,
        }
    }

    /// Everything beside the run itself; it does not return.
    async fn attend(
        &self,
        mut signals: Signals,
        lease: &LeaseFile,
        stop: &CancellationToken,
        overtime: &Cell<Option<Overtime>>,
        began: Instant,
    ) {
        let interval = Duration::from_millis(self.orders.heartbeat_ms.max(1));
        let mut beat = tokio::time::interval_at(Instant::now() + interval, interval);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let settled = tokio::time::sleep(SETTLED);
        tokio::pin!(settled);
        let mut is_settled = false;
        let passed = overtime_of(&self.orders.job, began);
        tokio::pin!(passed);
        loop {
            tokio::select! {
                () = signals.stop() => {
                    if !stop.is_cancelled() {
                        tracing::info!("is asked to stop");
                        lease.stopping();
                    }
                    stop.cancel();
                }
                _ = beat.tick() => lease.beat(),
                () = &mut settled, if !is_settled => {
                    is_settled = true;
                    system::forget_program_text();
                }
                why = &mut passed, if !stop.is_cancelled() => {
                    tracing::warn!(?why, "no server has stopped it, and its time is over");
                    overtime.set(Some(why));
                    lease.stopping();
                    stop.cancel();
                }
            }
        }
    }

    async fn record(&self, outcome: Outcome, facts: Facts) -> Result<(), Error> {
        let record = ExitRecord::new(&self.orders.job, outcome, facts);
        let mut n_tries = 0;
        loop {
            n_tries += 1;
            match self.dir.write_exit(&record) {
                Ok(()) => break,
                Err(error) if n_tries == RECORD_TRIES => return Err(Error::Record(error)),
                Err(error) => tracing::warn!(%error, "the exit record cannot be written"),
            }
            tokio::time::sleep(RECORD_PAUSE).await;
        }
        tracing::info!("has ended");
        Ok(())
    }
}

/// Which of its times is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Overtime {
    Attempt,
    Deadline,
}

impl Overtime {
    fn message(self, job: &Job) -> String {
        match self {
            Overtime::Attempt => format!("timed out after {} ms, while no server ran", job.timeout_ms),
            Overtime::Deadline => "the deadline passed while no server ran".to_owned(),
        }
    }
}

/// Returns when no server has stopped the run though its time is over.
async fn overtime_of(job: &Job, began: Instant) -> Overtime {
    let beyond = job.grace + OVERTIME_MARGIN;
    let attempt_max = Duration::from_millis(job.timeout_ms).saturating_add(beyond);
    let beyond_ms = u64::try_from(beyond.as_millis()).unwrap_or(u64::MAX);
    loop {
        let attempt_left = attempt_max.saturating_sub(began.elapsed());
        let deadline_left = job.deadline.map(|at_ms| until(at_ms.saturating_add(beyond_ms)));
        if attempt_left.is_zero() {
            return Overtime::Attempt;
        }
        if deadline_left.is_some_and(|left| left.is_zero()) {
            return Overtime::Deadline;
        }
        let left = deadline_left.map_or(attempt_left, |left| left.min(attempt_left));
        tokio::time::sleep(left.min(LOOK_AT_CLOCK)).await;
    }
}

/// From now to a moment of the wall clock; zero when it is over.
fn until(at_ms: u64) -> Duration {
    let now_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    Duration::from_millis(at_ms.saturating_sub(now_ms))
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// The end of a session is none of its business. Caught and not ignored: what is ignored, the command would inherit.
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn stop(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => {}
            }
        }
    }
}
