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

pub struct ExecOptions {
    /// Must exist: logs, working directories and records of running processes lie in it.
    pub data_dir: PathBuf,
}

/// The executors of one worker.
pub struct Executors {
    places: Arc<Places>,
    http: Http,
    processes: Processes,
}

impl Executors {
    pub fn new(options: ExecOptions) -> io::Result<Executors> {
        let places = Arc::new(Places::new(&options.data_dir)?);
        Ok(Executors { http: Http::new(places.clone()), processes: Processes::new(places.clone())?, places })
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
            Kind::Process => self.processes.run(&job, input, &stop, signs).await,
            Kind::Noop => noop::run(&job, &stop).await,
        }
    }
}
