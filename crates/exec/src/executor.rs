//! The one door: a job in, one outcome out.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::http::Http;
use crate::input::Input;
use crate::job::{Job, Kind, Signs};
use crate::noop;
use crate::outcome::Outcome;
use crate::places::Places;
use crate::process::Processes;
use crate::process::supervise::{Supervised, SupervisorProgram, Survivor};

pub struct ExecOptions {
    /// Must exist: logs, working directories and records of running processes lie in it.
    pub data_dir: PathBuf,
    /// Without one a process is a child of this program, and dies with it.
    pub supervisor: Option<SupervisorProgram>,
}

/// The executors of one worker.
pub struct Executors {
    places: Arc<Places>,
    http: Http,
    processes: Processes,
    supervised: Supervised,
}

impl Executors {
    pub fn new(options: ExecOptions) -> io::Result<Executors> {
        let places = Arc::new(Places::new(&options.data_dir)?);
        Ok(Executors {
            http: Http::new(places.clone()),
            processes: Processes::new(places.clone())?,
            supervised: Supervised::new(places.clone(), options.supervisor),
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
            Kind::Process if self.supervised.starts() => self.supervised.run(&job, input, &stop, signs).await,
            Kind::Process => self.processes.run(&job, input, &stop, signs).await,
            Kind::Noop => noop::run(&job, &stop).await,
        }
    }

    /// As [`Self::run`], for a run that an earlier worker started.
    pub async fn adopt(&self, run: Survivor, input: Input, stop: CancellationToken, signs: &dyn Signs) -> Outcome {
        self.supervised.adopt(run, input, &stop, signs).await
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
