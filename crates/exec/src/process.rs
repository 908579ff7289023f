//! `process`: one command in a process group of its own, and nothing of it left at the end.
//!
//! ```text
//! Running ── stop asked: SIGTERM to the group ──► Asked ── grace is over: SIGKILL ──► Killed
//!    │                                              │                                   │
//!    │ leader exits                    leader exits ▼                                   │ leader exits
//!    │                           Lingering (others may still clean up)                  │
//!    ▼                                              ▼ group gone, or grace is over      ▼
//!    └────────► kill what is left of the group, reap, confirm that it is dead, read the rest of the output ──► outcome
//! ```
//!
//! The group is killed while its dead leader still holds the process id, so the id cannot belong to somebody else. A
//! process that left the group (`setsid`) is found by the `RUNYARD_WORKDIR` in its environment, at every end: it may have
//! closed its output, so nothing else would tell of it.
//!
//! Each task has a working directory `<data>/work/<task id>`, which is ready when a run begins and is dealt with when it
//! has ended, see [`crate::workspace`]. A `cwd` of the payload is used as it is and never touched; the working directory
//! is there beside it.
//!
//! A process with `input: true` keeps its standard input open: lines are written to it as they are handed over. They are
//! one branch of the watch, so a process that does not read holds up nothing but them. When a stop is asked the input
//! ends, which many programs take as a request to end by itself.

mod cgroup;
mod confine;
pub(crate) mod environment;
pub(crate) mod exit;
mod group;
mod launch;
mod leftovers;
pub(crate) mod pace;
pub(crate) mod printed;
mod proc_table;
pub(crate) mod report;
mod rlimits;
mod sandbox;
pub(crate) mod stdin;
pub mod supervise;
mod system;
pub(crate) mod tail;
pub(crate) mod task_file;
mod tree;

pub use cgroup::kill_group;
pub use confine::not_enforced;
pub use leftovers::{LeftoversError, reap_leftovers};
pub use tree::own_descendants;

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::job::{Job, Signs};
use crate::log::{LogWriter, Stream};
use crate::outcome::{Class, Failure, Outcome};
use crate::payload::{ProcessPayload, Stdin};
use crate::places::Places;
use crate::secret::{Known, Redactor, Revealed, SecretError, Secrets, reveal_for_program};
use crate::wires::Wires;
use group::{Group, LeaderExit};
use launch::{Launched, Launcher, Plan};
use pace::{Look, Pace};
use printed::Printed;
use report::ReportTail;
use stdin::{Feed, Sink};
use supervise::lease::LeaseFile;
use tail::Tail;

/// How long output may stay open after everything that is known of the run is dead.
const DRAIN_MAX: Duration = Duration::from_secs(1);
const CHUNK_BYTES: usize = 32 * 1024;

pub struct Processes {
    places: Arc<Places>,
    launcher: Launcher,
    /// Without any, payloads are run as they are.
    secrets: Option<Arc<dyn Secrets>>,
}

/// A run that is over.
pub(crate) struct Ended {
    pub outcome: Outcome,
    /// Of the command; `None` when it never started, or its status is lost.
    pub status: Option<ExitStatus>,
    /// Of its limits, what could not be kept.
    pub not_enforced: Vec<String>,
    /// Something of it was killed because it was over its limit of memory.
    pub out_of_memory: bool,
}

impl Ended {
    pub(crate) fn unstarted(outcome: Outcome) -> Ended {
        Ended { outcome, status: None, not_enforced: Vec::new(), out_of_memory: false }
    }
}

impl Processes {
    pub fn new(places: Arc<Places>, secrets: Option<Arc<dyn Secrets>>) -> io::Result<Processes> {
        system::keep_files_to_self();
        Ok(Processes { launcher: Launcher::with_thread()?, places, secrets })
    }

    /// For a program that does nothing else, and whose one thread lives as long as it does.
    pub(crate) fn in_this_thread(places: Arc<Places>, secrets: Arc<dyn Secrets>) -> Processes {
        Processes { launcher: Launcher::Here, places, secrets: Some(secrets) }
    }

    /// Runs the job under a lease that is already there and is left there.
    pub(crate) async fn run_held(&self, job: &Job, lease: &LeaseFile, wires: Wires<'_>) -> Ended {
        if wires.stop.is_cancelled() {
            return Ended::unstarted(Outcome::Stopped);
        }
        let ended = self.run_to_end(job, lease, wires).await;
        ended.unwrap_or_else(|failure| Ended::unstarted(failure.into()))
    }

    async fn run_to_end(&self, job: &Job, lease: &LeaseFile, wires: Wires<'_>) -> Result<Ended, Failure> {
        let Wires { input, stop, signs } = wires;
        let mut payload = ProcessPayload::of(job)?;
        let redactor = self.reveal(job, &mut payload)?;
        let (stdin, unsaid) = (payload.stdin.clone(), payload.unsaid);
        let mut launched = self.launcher.launch(Plan::new(&self.places, job, payload)?).await?;
        let not_enforced = std::mem::take(&mut launched.not_enforced);
        lease.command_started(launched.group.pid(), &not_enforced);
        // Dropping what was launched kills it.
        let unwatched = |error| Failure::worker(format!("the process cannot be watched: {error}"));
        let pipe = launched.stdin.take().map(pipe::Sender::from_owned_fd).transpose().map_err(unwatched)?;
        let feed = Feed::new(pipe.map(|pipe| Box::pin(pipe) as Sink), stdin, input);
        let mut run = Run::new(&self.places, job, signs, launched, &redactor).map_err(unwatched)?;
        if let Some(field) = unsaid {
            run.log.note(&format!("payload.{field} is not handed over, because stdin is given beside it"));
        }
        not_enforced.iter().for_each(|sentence| run.log.note(sentence));
        let ending = run.watch(feed, job.grace, stop).await;
        let status = run.end(&self.places, job.task).await;
        let (exit, out_of_memory) = (status.as_ref().ok().copied(), run.group.out_of_memory().is_some());
        let outcome = redactor.outcome(run.outcome(ending, status));
        Ok(Ended { status: exit, outcome, not_enforced, out_of_memory })
    }

    /// Puts the values of secrets where the process gets them, which is nowhere but its environment and its input: a
    /// command line is there for all users of the machine to see.
    fn reveal(&self, job: &Job, payload: &mut ProcessPayload) -> Result<Redactor, Failure> {
        let Some(secrets) = &self.secrets else { return Ok(Redactor::default()) };
        let refused = |error: SecretError| Failure::work(Class::Permanent, error.to_string());
        if let (Some(_), Some(json)) = (&job.program, &job.payload) {
            // It is JSON that the program reads, so the values are written as JSON.
            let Revealed { payload: json, redactor } =
                reveal_for_program(json, &job.agent, &**secrets).map_err(refused)?;
            payload.stdin = Stdin::Text(json.get().to_owned());
            return Ok(redactor);
        }
        let mut known = Known::new(&job.agent, &**secrets);
        let mut place = |text: &mut String| known.text(text).map(|revealed| *text = revealed);
        let stdin = match &mut payload.stdin {
            Stdin::Text(text) | Stdin::Open(text) => Some(text),
            Stdin::Nothing => None,
        };
        let placed: Result<(), SecretError> = payload.env.values_mut().chain(stdin).try_for_each(&mut place);
        placed.map_err(refused)?;
        Ok(known.redactor())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// Asked to stop; at `kill_at` it is made to.
    Asked {
        kill_at: Instant,
    },
    /// Asked to stop, and the leader is gone; others of the group may still clean up.
    Lingering {
        kill_at: Instant,
    },
    Killed,
}

impl Phase {
    fn kill_at(self) -> Option<Instant> {
        match self {
            Phase::Asked { kill_at } | Phase::Lingering { kill_at } => Some(kill_at),
            Phase::Running | Phase::Killed => None,
        }
    }
}

/// Why the watch is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    OfItself,
    Asked,
}

struct Run<'a> {
    signs: &'a dyn Signs,
    watch_silence: bool,
    group: Group,
    leader_exit: LeaderExit,
    stdout: Output,
    stderr: Output,
    log: LogWriter,
    report: ReportTail,
    /// Of a program whose output is its result.
    printed: Option<Printed>,
}

/// One of the two streams of output.
struct Output {
    stream: Stream,
    pipe: pipe::Receiver,
    chunk: Vec<u8>,
    is_open: bool,
    tail: Tail,
}

impl<'a> Run<'a> {
    fn new(
        places: &Places,
        job: &Job,
        signs: &'a dyn Signs,
        launched: Launched,
        redactor: &Redactor,
    ) -> io::Result<Run<'a>> {
        let Launched { group, stdin: _, stdout, stderr, not_enforced: _ } = launched;
        let mut log = LogWriter::new(places.log_file(job.task, job.attempt), job.output_bytes_max);
        log.redact(redactor.clone());
        Ok(Run {
            signs,
            watch_silence: job.watch_silence,
            leader_exit: LeaderExit::of(&group),
            group,
            stdout: Output::new(Stream::Stdout, stdout, redactor)?,
            stderr: Output::new(Stream::Stderr, stderr, redactor)?,
            log,
            report: ReportTail::new(places.report_file(job.task), redactor.clone()),
            printed: job.program.is_some().then(Printed::default),
        })
    }

    /// Until the process ends of itself, or has been brought to its end.
    async fn watch(&mut self, feed: Feed, grace: Duration, stop: &CancellationToken) -> Ending {
        let mut phase = Phase::Running;
        let mut pace = Pace::new(Instant::now(), self.watch_silence);
        let feed = feed.run(stop, self.signs);
        tokio::pin!(feed);
        let mut is_fed = false;
        loop {
            let kill_at = phase.kill_at();
            tokio::select! {
                () = self.leader_exit.wait(), if !matches!(phase, Phase::Lingering { .. }) => match phase {
                    Phase::Asked { kill_at } => phase = Phase::Lingering { kill_at },
                    Phase::Running => return Ending::OfItself,
                    Phase::Killed | Phase::Lingering { .. } => return Ending::Asked,
                },
                () = self.group.emptied(), if matches!(phase, Phase::Lingering { .. }) => return Ending::Asked,
                () = stop.cancelled(), if phase == Phase::Running => {
                    self.group.ask();
                    phase = Phase::Asked { kill_at: Instant::now() + grace };
                }
                () = sleep_until(kill_at), if kill_at.is_some() => {
                    if matches!(phase, Phase::Lingering { .. }) {
                        return Ending::Asked;
                    }
                    self.group.kill();
                    phase = Phase::Killed;
                }
                () = self.stdout.fill(), if self.stdout.is_open => {
                    self.store_stdout();
                    pace.hurry(Instant::now());
                }
                () = self.stderr.fill(), if self.stderr.is_open => {
                    store(&mut self.stderr, &mut self.log, self.signs);
                    pace.hurry(Instant::now());
                }
                () = &mut feed, if !is_fed => is_fed = true,
                () = tokio::time::sleep_until(pace.at()) => {
                    let look = self.look();
                    pace.looked(Instant::now(), look);
                }
            }
        }
    }

    fn store_stdout(&mut self) {
        if let Some(printed) = &mut self.printed {
            printed.push(&self.stdout.chunk);
        }
        store(&mut self.stdout, &mut self.log, self.signs);
    }

    /// At what nobody tells: an output without a line end, the report, orphans that have ended.
    fn look(&mut self) -> Look {
        let log_bytes = self.log.file_bytes();
        self.log.flush();
        self.signs.log_grew(self.log.file_bytes());
        let reported = self.report.poll(self.signs, &mut self.log);
        self.group.reap_orphans();
        if reported == Look::News || self.log.file_bytes() != log_bytes { Look::News } else { Look::Nothing }
    }

    /// Kills what is left, makes sure that it is dead, and reads what it still had to say.
    async fn end(&mut self, places: &Places, task: u128) -> io::Result<ExitStatus> {
        let status = self.group.kill_and_reap();
        self.group.confirm_dead().await;
        if !self.group.is_proven_dead()
            && let Err(error) = leftovers::sweep_task(places, task).await
        {
            tracing::warn!(%error, "an ended task left processes behind");
        }
        self.drain().await;
        self.report.finish(self.signs, &mut self.log);
        if let Err(error) = self.report.clear() {
            tracing::warn!(%error, "a report with secrets in it cannot be cleared of them");
        }
        self.log.finish();
        self.signs.log_grew(self.log.file_bytes());
        status
    }

    /// Everything of the run is dead, so the output is closed, unless it was handed to a process of somebody else.
    async fn drain(&mut self) {
        let rest = async {
            while self.stdout.is_open || self.stderr.is_open {
                tokio::select! {
                    () = self.stdout.fill(), if self.stdout.is_open => {
                        self.store_stdout();
                    }
                    () = self.stderr.fill(), if self.stderr.is_open => {
                        store(&mut self.stderr, &mut self.log, self.signs);
                    }
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN_MAX, rest).await;
    }

    fn outcome(self, ending: Ending, status: io::Result<ExitStatus>) -> Outcome {
        match (ending, status) {
            (Ending::Asked, _) => Outcome::Stopped,
            (Ending::OfItself, Ok(status)) => {
                let reported = self.report.into_reported();
                let said = exit::Said { stdout: &self.stdout.tail, stderr: &self.stderr.tail, printed: self.printed };
                let outcome = exit::outcome(status, said, reported);
                confine::explain(outcome, &self.group)
            }
            (Ending::OfItself, Err(error)) => Failure::worker(format!("the exit status is lost: {error}")).into(),
        }
    }
}

impl Output {
    fn new(stream: Stream, pipe: OwnedFd, redactor: &Redactor) -> io::Result<Output> {
        let (pipe, tail) = (pipe::Receiver::from_owned_fd(pipe)?, Tail::without(redactor.clone()));
        Ok(Output { stream, pipe, chunk: Vec::with_capacity(CHUNK_BYTES), is_open: true, tail })
    }

    /// Waits for the next chunk. Cancel safe: a read that is given up has taken nothing.
    async fn fill(&mut self) {
        match self.pipe.read_buf(&mut self.chunk).await {
            Ok(n) if n > 0 => {}
            _ => self.is_open = false,
        }
    }
}

fn store(output: &mut Output, log: &mut LogWriter, signs: &dyn Signs) {
    if output.chunk.is_empty() {
        return;
    }
    log.write(output.stream, &output.chunk);
    output.tail.push(&output.chunk);
    output.chunk.clear();
    signs.alive();
    signs.log_grew(log.file_bytes());
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
