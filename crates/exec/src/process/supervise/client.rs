//! The server's side of a supervised run: start it or adopt it, see it to its end, and believe its exit record.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::control::{self, Talk};
use super::identity::{Identity, Watched};
use super::lease::{self, Found};
use super::run_dir::{Orders, RunDir};
use super::started;
use super::survey::Survivor;
use crate::docker::reclaim;
use crate::job::Job;
use crate::open_files;
use crate::outcome::{Class, Failure, Outcome};
use crate::places::Places;
use crate::process::{LeftoversError, environment, kill_group, leftovers};
use crate::secret::{Handed, NotHanded, Secrets};
use crate::wires::Wires;
use crate::workspace::{FileSpec, Workspaces};

/// A supervisor that has not moved its heartbeat for so many of its intervals hangs.
pub(super) const BEATS_MISSED_MAX: u32 = 3;
/// How often a supervisor that has the lock is asked who it is.
const LOOK: Duration = Duration::from_millis(20);
/// The same for one that has just been started, and takes a few milliseconds.
const LOOK_FRESH: Duration = Duration::from_millis(2);
/// One that is asked to stop before it has said who it is dies of that, or says so at once.
const SIGN_MAX: Duration = Duration::from_secs(1);
/// Between two tries to kill what does not die.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// How supervisors are started.
#[derive(Clone, Debug)]
pub struct SupervisorProgram {
    /// A program that takes `supervise --run DIR`: this one, as a rule.
    pub program: PathBuf,
    pub heartbeat_ms: u64,
}

pub(crate) struct Supervised {
    places: Arc<Places>,
    /// Without one, processes are adopted but not started.
    program: Option<SupervisorProgram>,
    leave: CancellationToken,
    /// Their values are handed to each supervisor that needs some.
    secrets: Option<Arc<dyn Secrets>>,
}

/// What a start needs beside its job.
pub(crate) struct Fresh<'a> {
    pub workspaces: &'a Workspaces,
    pub files: Vec<FileSpec>,
}

/// Why the watch is over.
enum WatchEnd {
    Ended,
    /// Killed, because it gave no sign of life for so long.
    Hung(Duration),
    Left,
}

/// A run with a supervisor.
struct Attached<'a> {
    dir: RunDir,
    job: &'a Job,
    heartbeat: Duration,
    supervisor: Watched,
    /// When it is our own child, and so ours to reap.
    child: Option<Child>,
}

impl Supervised {
    pub(crate) fn new(
        places: Arc<Places>,
        program: Option<SupervisorProgram>,
        secrets: Option<Arc<dyn Secrets>>,
    ) -> Supervised {
        Supervised { places, program, leave: CancellationToken::new(), secrets }
    }

    pub(crate) fn starts(&self) -> bool {
        self.program.is_some()
    }

    /// Every run is let go from now on, and goes on.
    pub(crate) fn leave(&self) {
        self.leave.cancel();
    }

    /// The directory of the run comes first: a worker that dies while the files are staged leaves it unsigned, and the
    /// next one hands the attempt back. With files it has begun from then on: their time is the attempt's own, and may be
    /// longer than a start may take.
    pub(crate) async fn run(&self, job: &Job, fresh: Fresh<'_>, wires: Wires<'_>) -> Outcome {
        let program = self.program.clone().expect("only a worker with a supervisor starts processes under one");
        let heartbeat = Duration::from_millis(program.heartbeat_ms);
        let failed = |error: io::Error| Failure::worker(format!("its supervisor cannot be started: {error}"));
        let secrets = match self.secrets_of(job) {
            Ok(secrets) => secrets,
            Err(failure) => return failure.into(),
        };
        let dir = match self.write_orders(&program, job).await {
            Ok(dir) => dir,
            Err(error) => return failed(error).into(),
        };
        if !fresh.files.is_empty() {
            wires.signs.begun();
        }
        let prepared = fresh.workspaces.prepare(job, fresh.files, wires.signs, self.halted(wires.stop)).await;
        if let Err(outcome) = prepared {
            return outcome;
        }
        match spawn_apart(program, dir.clone(), secrets).await {
            Ok(child) => {
                let supervisor = Identity::of(child.id() as i32).watch();
                let attached = Attached { dir, job, heartbeat, supervisor, child: Some(child) };
                if self.signed(&attached, wires.stop).await {
                    wires.signs.begun();
                }
                self.see_to_end(attached, wires).await
            }
            Err(error) => failed(error).into(),
        }
    }

    /// Read anew for each attempt, before anything else is done for it: one that cannot have them never runs.
    fn secrets_of(&self, job: &Job) -> Result<Option<File>, Failure> {
        let (Some(payload), Some(secrets)) = (&job.payload, &self.secrets) else { return Ok(None) };
        Handed::of(payload, &job.agent, &**secrets).map_err(|error| match error {
            NotHanded::Secret(_) | NotHanded::TooLong => Failure::work(Class::Permanent, error.to_string()),
            NotHanded::System(_) => Failure::worker(error.to_string()),
        })
    }

    /// Waits until the supervisor has said who it is: from then on the next server finds it. What has not begun in time is
    /// asked to stop; one that hangs does not hear that, and is not waited for.
    async fn signed(&self, run: &Attached<'_>, stop: &CancellationToken) -> bool {
        let signed = async {
            while run.dir.supervisor().is_none() {
                tokio::time::sleep(LOOK_FRESH).await;
            }
        };
        let hangs = async {
            stop.cancelled().await;
            run.supervisor.signal(Signal::TERM);
            tokio::time::sleep(SIGN_MAX).await;
        };
        tokio::select! {
            biased;
            () = signed => true,
            () = run.supervisor.ended() => false,
            () = self.leave.cancelled() => false,
            () = hangs => false,
        }
    }

    /// What becomes of an attempt that is not ready yet when it is stopped, or left.
    async fn halted(&self, stop: &CancellationToken) -> Outcome {
        tokio::select! {
            biased;
            () = stop.cancelled() => Outcome::Stopped,
            () = self.leave.cancelled() => {
                Outcome::NotStarted { reason: "the server stopped before its files were all there".to_owned() }
            }
        }
    }

    /// Takes over a run that an earlier server started.
    pub(crate) async fn adopt(&self, survivor: Survivor, wires: Wires<'_>) -> Outcome {
        let Survivor { job, dir, heartbeat_ms } = survivor;
        let heartbeat = Duration::from_millis(heartbeat_ms);
        let signed = tokio::select! {
            signed = signed(&dir, heartbeat) => signed,
            () = self.leave.cancelled() => return Outcome::Left,
        };
        match signed {
            Signature::By(identity) => {
                let attached = Attached { dir, job: &job, heartbeat, supervisor: identity.watch(), child: None };
                self.see_to_end(attached, wires).await
            }
            Signature::None(end) => self.unsigned(&dir, &job, end).await,
        }
    }

    /// The end of a run whose supervisor nobody knows. Whether it had begun nobody knows either, so all that may be left
    /// of it is killed.
    async fn unsigned(&self, dir: &RunDir, job: &Job, end: Unsigned) -> Outcome {
        self.sweep(job, None).await;
        match (dir.exit_record(), end) {
            (Ok(Some(record)), _) => record.into_outcome(),
            (_, Unsigned::Ended) => {
                Outcome::NotStarted { reason: "its supervisor ended before it had started anything".to_owned() }
            }
            (_, Unsigned::Killed) => {
                Outcome::Lost { reason: "its supervisor did not say who it is, and was killed".to_owned() }
            }
        }
    }

    /// The outcome is known to those who decide: nothing more is needed of the run but how it ended, for people.
    pub(crate) fn forget(&self, task: u128, attempt: u32) {
        let dir = RunDir::of(&self.places, task, attempt);
        if let Err(error) = dir.retire(&self.places.exit_file(task, attempt)) {
            tracing::warn!(path = %dir.path().display(), %error, "the directory of a run cannot be removed");
        }
    }

    async fn write_orders(&self, program: &SupervisorProgram, job: &Job) -> io::Result<RunDir> {
        let dir = RunDir::of(&self.places, job.task, job.attempt);
        let (heartbeat_ms, data_dir) = (program.heartbeat_ms, self.places.data_dir().to_owned());
        let orders = Orders { job: job.clone(), heartbeat_ms, data_dir };
        let written = tokio::task::spawn_blocking(move || dir.create(&orders).map(|()| dir));
        written.await.map_err(io::Error::other)?
    }

    async fn see_to_end(&self, mut run: Attached<'_>, wires: Wires<'_>) -> Outcome {
        let Wires { input, stop, signs } = wires;
        let log_file = self.places.log_file(run.job.task, run.job.attempt);
        let dir = run.dir.clone();
        let mut talk = Talk::new(&dir, log_file, input, signs);
        let end = self.watch(&run, &mut talk, stop).await;
        if matches!(end, WatchEnd::Left) {
            return Outcome::Left;
        }
        if let Some(child) = &mut run.child {
            // It has ended, so this does not wait.
            let _ = child.wait();
        }
        match run.dir.exit_record() {
            Ok(Some(record)) => {
                talk.finish(record.taken(), record.progress());
                record.into_outcome()
            }
            other => {
                let reason = run.reason(end, other.err());
                tracing::warn!(task = run.job.task_text(), attempt = run.job.attempt, reason, "a supervisor is gone");
                self.sweep(run.job, Some(run.supervisor.pid())).await;
                talk.finish(std::iter::empty(), None);
                // Killed on its way, before it could hear that it was to stop: that stop is done.
                if stop.is_cancelled() { Outcome::Stopped } else { Outcome::Lost { reason } }
            }
        }
    }

    async fn watch(&self, run: &Attached<'_>, talk: &mut Talk<'_>, stop: &CancellationToken) -> WatchEnd {
        let talking = talk.run();
        tokio::pin!(talking);
        let mut look = tokio::time::interval(run.heartbeat.max(Duration::from_millis(1)));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pulse = Pulse::new(self.places.running_file(run.job.task));
        let mut is_asked = false;
        loop {
            tokio::select! {
                () = run.supervisor.ended() => return WatchEnd::Ended,
                () = self.leave.cancelled() => return WatchEnd::Left,
                () = stop.cancelled(), if !is_asked => {
                    is_asked = true;
                    run.supervisor.signal(Signal::TERM);
                }
                _ = look.tick() => {
                    let still_for = pulse.look();
                    if still_for > run.heartbeat * BEATS_MISSED_MAX {
                        // On a full disk a heartbeat cannot be written, and nobody should die of that.
                        if control::answers(&run.dir).await {
                            pulse.moved();
                            continue;
                        }
                        run.supervisor.kill_tree();
                        run.supervisor.ended().await;
                        return WatchEnd::Hung(still_for);
                    }
                }
                () = &mut talking => unreachable!("it talks until the run ends"),
            }
        }
    }

    /// Until nothing of the run is alive. There is no bound: the lease is held as long as something runs.
    async fn sweep(&self, job: &Job, supervisor_pid: Option<i32>) {
        while let Err(error) = self.kill_remains(job).await {
            tracing::warn!(task = job.task_text(), %error, "what a dead supervisor left behind does not die");
            tokio::time::sleep(SWEEP_PAUSE).await;
        }
        let lease = self.places.running_file(job.task);
        if let Err(error) = lease::remove_of(&lease, supervisor_pid) {
            tracing::warn!(path = %lease.display(), %error, "a lease file cannot be removed");
        }
    }
}

impl Supervised {
    /// What was in the control groups of the attempt, its container, and what carries its mark.
    async fn kill_remains(&self, job: &Job) -> Result<(), LeftoversError> {
        let (places, task, attempt) = (self.places.clone(), job.task, job.attempt);
        let killed = tokio::task::spawn_blocking(move || kill_group(&places, task, attempt));
        killed.await.map_err(io::Error::other)??;
        reclaim::remove_remains(&self.places, job).await;
        leftovers::sweep_task(&self.places, job.task).await.map(drop)
    }
}

impl Attached<'_> {
    /// In words for a person.
    fn reason(&self, end: WatchEnd, unreadable: Option<io::Error>) -> String {
        let pid = self.supervisor.pid();
        match (end, unreadable) {
            (WatchEnd::Hung(still_for), _) => {
                let seconds = still_for.as_secs();
                format!("its supervisor (pid {pid}) gave no sign of life for {seconds} s, and was killed")
            }
            (_, Some(error)) => format!("the exit record that its supervisor (pid {pid}) left cannot be read: {error}"),
            (_, None) => format!("its supervisor (pid {pid}) was killed or crashed: it left no exit record"),
        }
    }
}

/// How long a heartbeat has not moved, by our own clock: neither a clock that was set nor a machine that slept counts.
struct Pulse {
    lease_file: PathBuf,
    heartbeat: String,
    moved_at: Instant,
}

impl Pulse {
    fn new(lease_file: PathBuf) -> Pulse {
        Pulse { lease_file, heartbeat: String::new(), moved_at: Instant::now() }
    }

    fn look(&mut self) -> Duration {
        match lease::read(&self.lease_file) {
            Found::Lease(lease) if lease.heartbeat != self.heartbeat => {
                self.heartbeat = lease.heartbeat;
                self.moved();
            }
            // The supervisor writes it anew with its next heartbeat.
            Found::Unreadable(why) => drop(lease::set_aside(&self.lease_file, &why)),
            Found::Lease(_) | Found::Nothing => {}
        }
        self.moved_at.elapsed()
    }

    fn moved(&mut self) {
        self.moved_at = Instant::now();
    }
}

/// What the holder of a lock has said.
enum Signature {
    By(Identity),
    None(Unsigned),
}

/// How somebody ended who never said who he is.
enum Unsigned {
    Ended,
    Killed,
}

/// Who has the lock. One who does not say so in time hangs, and is killed.
async fn signed(dir: &RunDir, heartbeat: Duration) -> Signature {
    let hangs_at = Instant::now() + heartbeat * BEATS_MISSED_MAX;
    let mut end = Unsigned::Ended;
    loop {
        if let Some(identity) = dir.supervisor() {
            return Signature::By(identity);
        }
        match dir.lock() {
            Ok(Some(_)) => return Signature::None(end),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Signature::None(end),
            // Somebody has it; or nobody can tell at the moment, which proves nothing.
            Ok(None) | Err(_) => {}
        }
        if Instant::now() >= hangs_at
            && let Some(supervisor) = started::of_run(dir.path())
        {
            supervisor.kill_tree();
            end = Unsigned::Killed;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Not to be given up half-way: a supervisor that is started must be known.
async fn spawn_apart(program: SupervisorProgram, dir: RunDir, secrets: Option<File>) -> io::Result<Child> {
    let spawned = tokio::task::spawn_blocking(move || spawn(&program, &dir, secrets));
    spawned.await.map_err(io::Error::other)?
}

/// With nothing of ours but the few variables its command is to have, the secrets it is to have, and its own log to write
/// to.
fn spawn(program: &SupervisorProgram, dir: &RunDir, secrets: Option<File>) -> io::Result<Child> {
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(dir.supervisor_log())?;
    let mut command = Command::new(&program.program);
    command.arg0("runyard").args(["supervise", "--run"]).arg(dir.path());
    command.env_clear().envs(environment::inherited());
    command.stdin(secrets.map_or_else(Stdio::null, Stdio::from)).stdout(Stdio::null()).stderr(log);
    command.spawn().inspect(|child| open_files::give_as_it_was(Pid::from_child(child)))
}
