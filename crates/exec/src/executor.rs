//! The one door: a job in, one outcome out.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::docker::live::{Live, LiveRuns};
use crate::docker::{self, Containers, reclaim};
use crate::guard::Guard;
use crate::http::Http;
use crate::input::Input;
use crate::job::{Job, Kind, Signs};
use crate::noop;
use crate::open_files;
use crate::outcome::{Failure, Outcome};
use crate::payload::staging_of;
use crate::places::Places;
use crate::process::Processes;
use crate::process::supervise::lease::LeaseFile;
use crate::process::supervise::{EndedRun, Fresh, Supervised, SupervisorProgram, Survey, Survivor};
use crate::secret::Secrets;
use crate::wires::Wires;
use crate::workspace::{FileSpec, RemoteUploads, Workspaces};

pub struct ExecOptions {
    /// Must exist: logs, working directories and records of running processes lie in it.
    pub data_dir: PathBuf,
    /// Without one a process is a child of this program, and dies with it.
    pub supervisor: Option<SupervisorProgram>,
    /// Where `http` jobs and the addresses of files may connect to; without one, anywhere.
    pub guard: Option<Arc<Guard>>,
    /// The values behind `secret://NAME`; without any, payloads are run as they are.
    pub secrets: Option<Arc<dyn Secrets>>,
    /// Where uploads are that are not here.
    pub uploads: Option<Arc<dyn RemoteUploads>>,
}

/// The executors of one worker.
pub struct Executors {
    places: Arc<Places>,
    http: Arc<Http>,
    workspaces: Workspaces,
    processes: Processes,
    containers: Containers,
    live_containers: LiveRuns,
    supervised: Supervised,
}

impl Executors {
    pub fn new(options: ExecOptions) -> io::Result<Executors> {
        open_files::raise();
        let places = Arc::new(Places::new(&options.data_dir)?);
        let http = Arc::new(Http::new(places.clone(), options.guard, options.secrets.clone()));
        Ok(Executors {
            workspaces: Workspaces::new(places.clone(), http.clone(), options.uploads),
            http,
            processes: Processes::new(places.clone(), options.secrets.clone())?,
            containers: Containers::new(places.clone(), options.secrets.clone()),
            live_containers: LiveRuns::default(),
            supervised: Supervised::new(places.clone(), options.supervisor, options.secrets),
            places,
        })
    }

    pub fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// Runs the job to its end. Cancelling `stop` asks it to stop; the outcome is then `Stopped`, once nothing of the
    /// run is alive. Dropping the future kills what it started, but without a confirmation. Lines of `input` are taken
    /// by a process or a container that asked for them, until it ends or is asked to stop.
    pub async fn run(&self, job: Job, input: Input, stop: CancellationToken, signs: &dyn Signs) -> Outcome {
        match job.kind {
            Kind::Http => self.http.run(&job, &stop, signs).await,
            Kind::Process | Kind::Docker => self.run_program(&job, Wires { input, stop: &stop, signs }).await,
            Kind::Noop => noop::run(&job, &stop).await,
        }
    }

    async fn run_program(&self, job: &Job, wires: Wires<'_>) -> Outcome {
        let signs = wires.signs;
        if wires.stop.is_cancelled() {
            return Outcome::Stopped;
        }
        let files = match startable(job) {
            Ok(files) => files,
            Err(failure) => return failure.into(),
        };
        let live = self.live(job);
        let fresh = Fresh { workspaces: &self.workspaces, files };
        let outcome = match self.supervised.starts() {
            true => self.supervised.run(job, fresh, wires).await,
            false => self.run_own(job, fresh, wires).await,
        };
        end_live(live, &outcome);
        self.workspaces.settle(job, &outcome, signs).await;
        outcome
    }

    /// Without a supervisor: as a child of this program, or watched by it.
    async fn run_own(&self, job: &Job, fresh: Fresh<'_>, wires: Wires<'_>) -> Outcome {
        let halted = async {
            wires.stop.cancelled().await;
            Outcome::Stopped
        };
        if let Err(outcome) = fresh.workspaces.prepare(job, fresh.files, wires.signs, halted).await {
            return outcome;
        }
        let lease = match LeaseFile::create(&self.places, job) {
            Ok(lease) => lease,
            Err(error) => return Failure::worker(error.to_string()).into(),
        };
        let ended = match job.kind {
            Kind::Docker => self.containers.run_held(job, &lease, wires).await,
            _ => self.processes.run_held(job, &lease, wires).await,
        };
        lease.remove();
        ended.outcome
    }

    /// As [`Self::run`], for a run that an earlier worker started.
    pub async fn adopt(&self, run: Survivor, input: Input, stop: CancellationToken, signs: &dyn Signs) -> Outcome {
        let job = run.job.clone();
        let live = self.live(&job);
        let outcome = self.supervised.adopt(run, Wires { input, stop: &stop, signs }).await;
        end_live(live, &outcome);
        self.workspaces.settle(&job, &outcome, signs).await;
        outcome
    }

    /// Does what is left to do for a run that ended while no worker was there. It blocks.
    pub fn settle_ended(&self, run: &EndedRun) {
        self.workspaces.settle_now(&run.job, &run.outcome);
    }

    /// Do jobs of this kind go on when this program ends?
    pub fn outlive(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Process | Kind::Docker) && self.supervised.starts()
    }

    /// Removes the containers of earlier runs that do not go on; how many there were. To be called once, before anything
    /// is started; it blocks.
    pub fn reclaim_containers(&self, survey: &Survey, socket: &Path) -> usize {
        let live = survey.live.iter().map(|run| (run.job.task, run.job.attempt)).collect();
        let rules = survey.ended.iter().filter_map(|run| run.job.docker.as_deref());
        let sockets: BTreeSet<&Path> = rules.map(|rules| &*rules.socket).chain([socket]).collect();
        reclaim::sweep_now(&self.places, &sockets, &live)
    }

    /// The same while runs go on, to be called now and then: what a supervisor asked for in the moment it was killed may
    /// appear when its run has long been dealt with.
    pub async fn sweep_containers(&self, socket: &Path) {
        if let Err(error) = reclaim::sweep(&self.places, socket, |run| self.live_containers.contains(run)).await {
            tracing::debug!(%error, "containers that are left cannot be looked for");
        }
    }

    fn live(&self, job: &Job) -> Option<Live<'_>> {
        (job.kind == Kind::Docker).then(|| self.live_containers.enter((job.task, job.attempt)))
    }

    /// Every run that can go on by itself ends here as [`Outcome::Left`], and does go on.
    pub fn leave(&self) {
        self.supervised.leave();
    }

    /// The outcome of this attempt need not be kept any longer. It removes files.
    pub fn forget(&self, task: u128, attempt: u32) {
        self.supervised.forget(task, attempt);
    }
}

/// The files it needs. What can never start needs neither a directory nor a supervisor.
fn startable(job: &Job) -> Result<Vec<FileSpec>, Failure> {
    let staging = staging_of(job)?;
    if job.kind == Kind::Docker {
        docker::check(job)?;
    }
    Ok(staging.files)
}

fn end_live(live: Option<Live<'_>>, outcome: &Outcome) {
    if let (Some(live), Outcome::Left) = (live, outcome) {
        live.goes_on();
    }
}
