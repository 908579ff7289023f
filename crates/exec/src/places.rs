//! Where things lie in the data directory. Nothing else in the workspace spells these paths.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::job::task_text;

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
        self.work_dir(task).join(".runyard-report.jsonl")
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

    /// Spread by the last two digits: the first ones are a time, and would put a whole day in one directory.
    pub fn log_file(&self, task: u128, attempt: u32) -> PathBuf {
        let folder = format!("{:02x}", task & 0xff);
        self.data_dir.join("logs").join(folder).join(format!("{}.{attempt}.log", task_text(task)))
    }

    /// Deletes the logs of attempts 1 to `attempts`; for retention. A log that was never written is no error.
    pub fn remove_logs(&self, task: u128, attempts: u32) -> io::Result<()> {
        for attempt in 1..=attempts {
            match std::fs::remove_file(self.log_file(task, attempt)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Creates a directory, and those above it, that only this user can enter.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
