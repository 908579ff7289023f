//! The one door: a job in, one outcome out.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::guard::Guard;
use crate::http::Http;
use crate::input::Input;
use crate::job::{Job, Kind, Signs};
use crate::noop;
use crate::open_files;
use crate::outcome::{Failure, Outcome};
use crate::payload::ProcessPayload;
use crate::places::Places;
use crate::process::Processes;
use crate::process::supervise::{EndedRun, Fresh, Supervised, SupervisorProgram, Survivor};
use crate::secret::Secrets;
use crate::wires::Wires;
use crate::workspace::Workspaces;

pub struct ExecOptions {
    /// Must exist: logs, working directories and records of running processes lie in it.
    pub data_dir: PathBuf,
    /// Without one a process is a child of this program, and dies with it.
    pub supervisor: Option<SupervisorProgram>,
    /// Where `http` jobs and the addresses of files may connect to; without one, anywhere.
    pub guard: Option<Arc<Guard>>,
    /// The values behind `secret://NAME`; without any, payloads are run as they are.
    pub secrets: Option<Arc<dyn Secrets>>,
}

/// The executors of one worker.
pub struct Executors {
    places: Arc<Places>,
    http: Arc<Http>,
    workspaces: Workspaces,
    processes: Processes,
    supervised: Supervised,
}

impl Executors {
    pub fn new(options: ExecOptions) -> io::Result<Executors> {
        open_files::raise();
        let places = Arc::new(Places::new(&options.data_dir)?);
        let http = Arc::new(Http::new(places.clone(), options.guard, options.secrets.clone()));
        Ok(Executors {
            workspaces: Workspaces::new(places.clone(), http.clone()),
            http,
            processes: Processes::new(places.clone(), options.secrets.clone())?,
            supervised: Supervised::new(places.clone(), options.supervisor, options.secrets),
            places,
        })
    }

    pub fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// Runs the job to its end. Cancelling `stop` asks it to stop; the outcome is then `Stopped`, once nothing of the
    /// run is alive. Dropping the future kills what it started, but without a confirmation. Lines of `input` are taken
    /// by a process that asked for them, until it ends or is asked to stop.
    pub async fn run(&self, job: Job, input: Input, stop: CancellationToken, signs: &dyn Signs) -> Outcome {
        match job.kind {
            Kind::Http => self.http.run(&job, &stop, signs).await,
            Kind::Process => self.run_process(&job, Wires { input, stop: &stop, signs }).await,
            Kind::Noop => noop::run(&job, &stop).await,
        }
    }

    async fn run_process(&self, job: &Job, wires: Wires<'_>) -> Outcome {
        let signs = wires.signs;
        if wires.stop.is_cancelled() {
            return Outcome::Stopped;
        }
        // What can never start needs neither a directory nor a supervisor.
        let files = match ProcessPayload::parse(job.payload.as_deref()) {
            Ok(payload) => payload.files,
            Err(error) => return Failure::from(error).into(),
        };
        let fresh = Fresh { workspaces: &self.workspaces, files };
        let outcome = match self.supervised.starts() {
            true => self.supervised.run(job, fresh, wires).await,
            false => self.run_own_process(job, fresh, wires).await,
        };
        self.workspaces.settle(job, &outcome, signs).await;
        outcome
    }

    /// As a child of this program.
    async fn run_own_process(&self, job: &Job, fresh: Fresh<'_>, wires: Wires<'_>) -> Outcome {
        let halted = async {
            wires.stop.cancelled().await;
            Outcome::Stopped
        };
        match fresh.workspaces.prepare(job, fresh.files, wires.signs, halted).await {
            Ok(()) => self.processes.run(job, wires.input, wires.stop, wires.signs).await,
            Err(outcome) => outcome,
        }
    }

    /// As [`Self::run`], for a run that an earlier worker started.
    pub async fn adopt(&self, run: Survivor, input: Input, stop: CancellationToken, signs: &dyn Signs) -> Outcome {
        let job = run.job.clone();
        let outcome = self.supervised.adopt(run, Wires { input, stop: &stop, signs }).await;
        self.workspaces.settle(&job, &outcome, signs).await;
        outcome
    }

    /// Does what is left to do for a run that ended while no worker was there. It blocks.
    pub fn settle_ended(&self, run: &EndedRun) {
        self.workspaces.settle_now(&run.job, &run.outcome);
    }

    /// Do jobs of this kind go on when this program ends?
    pub fn outlive(&self, kind: Kind) -> bool {
        kind == Kind::Process && self.supervised.starts()
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
