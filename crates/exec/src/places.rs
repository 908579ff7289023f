//! Where things lie in the data directory. Nothing else in the workspace spells these paths.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::job::task_text;
use crate::workspace::Uploads;

/// What a program may want to know of its task.
pub(crate) const TASK_FILE: &str = "task.json";
/// What a program tells of its task.
pub(crate) const REPORT_FILE: &str = ".runyard-report.jsonl";
const KEPT: &str = "kept";
/// Files of ours in every working directory.
pub(crate) const OWN_NAMES: [&str; 2] = [TASK_FILE, REPORT_FILE];

#[derive(Clone, Debug)]
pub struct Places {
    data_dir: PathBuf,
}

impl Places {
    /// The directory must exist. It is resolved, because processes are recognised later by this very path in their
    /// environment, whichever way the server was started.
    pub fn new(data_dir: &Path) -> io::Result<Places> {
        Ok(Places { data_dir: data_dir.canonicalize()? })
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// All working directories, each named for its task.
    pub fn work_root(&self) -> PathBuf {
        self.data_dir.join("work")
    }

    pub fn work_dir(&self, task: u128) -> PathBuf {
        self.work_root().join(task_text(task))
    }

    /// The file a process appends its report to.
    pub fn report_file(&self, task: u128) -> PathBuf {
        self.work_dir(task).join(REPORT_FILE)
    }

    /// Beside a working directory that outlives its run.
    pub(crate) fn kept_mark(&self, task: u128) -> PathBuf {
        self.work_dir(task).with_extension(KEPT)
    }

    pub(crate) fn artifacts_root(&self) -> PathBuf {
        self.data_dir.join("artifacts")
    }

    pub(crate) fn logs_root(&self) -> PathBuf {
        self.data_dir.join("logs")
    }

    /// What was collected of a task, spread as the logs are.
    pub fn artifacts_dir(&self, task: u128) -> PathBuf {
        self.artifacts_root().join(spread(task)).join(task_text(task))
    }

    /// What is being collected.
    pub(crate) fn artifacts_draft(&self, task: u128) -> PathBuf {
        self.artifacts_dir(task).with_extension("new")
    }

    pub fn uploads(&self) -> Uploads {
        Uploads::at(self.data_dir.join("uploads"))
    }

    /// The number that containers of this directory are known by.
    pub(crate) fn container_owner_file(&self) -> PathBuf {
        self.data_dir.join("container-owner")
    }

    /// What the supervisors of attempts need and leave behind, a directory for each.
    pub fn runs_root(&self) -> PathBuf {
        self.data_dir.join("runs")
    }

    pub fn run_dir(&self, task: u128, attempt: u32) -> PathBuf {
        self.runs_root().join(format!("{}-{attempt}", task_text(task)))
    }

    /// Lease files: who runs now.
    pub fn running_root(&self) -> PathBuf {
        self.data_dir.join("running")
    }

    pub fn running_file(&self, task: u128) -> PathBuf {
        self.running_root().join(format!("task_{}.json", task_text(task)))
    }

    pub fn log_file(&self, task: u128, attempt: u32) -> PathBuf {
        self.logs_root().join(spread(task)).join(format!("{}.{attempt}.log", task_text(task)))
    }

    /// How an attempt ended, once that is known to those who decide.
    pub fn exit_file(&self, task: u128, attempt: u32) -> PathBuf {
        self.log_file(task, attempt).with_extension("exit.json")
    }

    /// Deletes what is kept of one attempt, for retention. False when nothing of it was there.
    pub fn remove_attempt(&self, task: u128, attempt: u32) -> bool {
        let files = [self.log_file(task, attempt), self.exit_file(task, attempt)];
        files.map(|file| std::fs::remove_file(file).is_ok()).contains(&true)
    }
}

/// By the last two digits: the first ones are a time, and would put a whole day in one directory.
fn spread(task: u128) -> String {
    format!("{:02x}", task & 0xff)
}

/// Is this a working directory that outlives its run?
pub(crate) fn is_kept(work_dir: &Path) -> bool {
    work_dir.with_extension(KEPT).exists()
}

/// Creates a directory, and those above it, that only this user can enter.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
