//! `runs/<task>-<attempt>/`: all that passes between a server and a supervisor, and outlives both.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::exit_record::ExitRecord;
use super::identity::Identity;
use crate::job::Job;
use crate::places::{Places, create_private_dir};

#[derive(Clone, Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
}

/// `job.json`: what a supervisor has to do. Written by the server before it starts one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Orders {
    pub job: Job,
    pub heartbeat_ms: u64,
    pub data_dir: PathBuf,
}

/// Must a file survive a power loss?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durable {
    Yes,
    No,
}

impl RunDir {
    pub(crate) fn of(places: &Places, task: u128, attempt: u32) -> RunDir {
        RunDir { path: places.run_dir(task, attempt) }
    }

    pub(crate) fn at(path: &Path) -> RunDir {
        RunDir { path: path.to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn supervisor_log(&self) -> PathBuf {
        self.path.join("supervisor.log")
    }

    pub(crate) fn socket_name(&self) -> &'static str {
        "control.sock"
    }

    fn identity_file(&self) -> PathBuf {
        self.path.join("supervisor.json")
    }

    fn job_file(&self) -> PathBuf {
        self.path.join("job.json")
    }

    fn exit_file(&self) -> PathBuf {
        self.path.join("exit.json")
    }

    /// Anew, with the orders in it.
    pub(crate) fn create(&self, orders: &Orders) -> io::Result<()> {
        self.remove()?;
        create_private_dir(&self.path)?;
        write(&self.job_file(), orders, Durable::No)
    }

    pub(crate) fn orders(&self) -> io::Result<Orders> {
        read(&self.job_file())
    }

    /// `None` when there is none.
    pub(crate) fn exit_record(&self) -> io::Result<Option<ExitRecord>> {
        if_there(read(&self.exit_file()))
    }

    /// There before anything else says that the run is over, and there after a power loss.
    pub(crate) fn write_exit(&self, record: &ExitRecord) -> io::Result<()> {
        write(&self.exit_file(), record, Durable::Yes)
    }

    /// `None` while somebody else has it: a supervisor has it as long as it lives. Without the directory there is no
    /// lock to have.
    pub(crate) fn lock(&self) -> io::Result<Option<Lock>> {
        let path = self.identity_file();
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // Whoever had it before may have removed the directory, with this file in it.
        match file.metadata()?.nlink() {
            0 => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(Some(Lock { file })),
        }
    }

    /// The supervisor; `None` before it has said who it is.
    pub(crate) fn supervisor(&self) -> Option<Identity> {
        read(&self.identity_file()).ok()
    }

    /// When it said so; when it took the lock, as long as it has not.
    pub(crate) fn signed_at(&self) -> Option<SystemTime> {
        fs::metadata(self.identity_file()).and_then(|metadata| metadata.modified()).ok()
    }

    /// Removes it; its exit record is kept beside the log of the attempt, as long as that.
    pub(crate) fn retire(&self, kept: &Path) -> io::Result<()> {
        if let Some(folder) = kept.parent() {
            create_private_dir(folder)?;
        }
        if_there(fs::rename(self.exit_file(), kept))?;
        self.remove()
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// Held by a supervisor until it ends, however it ends.
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Says who holds it.
    pub(crate) fn sign(&mut self, identity: &Identity) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(&serde_json::to_vec(identity)?)
    }

    /// Who held it last.
    pub(crate) fn signature(&mut self) -> Option<Identity> {
        let mut bytes = Vec::new();
        self.file.rewind().ok()?;
        self.file.read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

/// `None` for a file that is not there.
fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Whole or not at all.
fn write(path: &Path, value: &impl Serialize, durable: Durable) -> io::Result<()> {
    let draft = path.with_extension("json.tmp");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    if durable == Durable::Yes {
        file.sync_all()?;
    }
    fs::rename(&draft, path)?;
    if let (Durable::Yes, Some(folder)) = (durable, path.parent()) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_the_lock_and_nobody_when_the_directory_is_gone() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = RunDir::at(&root.path().join("x-1"));
        assert_eq!(dir.lock().map(|_| ()).expect_err("no directory").kind(), io::ErrorKind::NotFound);
        fs::create_dir(dir.path()).expect("a directory");
        let mut lock = dir.lock().expect("a lock").expect("it is free");
        assert!(dir.lock().expect("a lock").is_none() && lock.signature().is_none() && dir.supervisor().is_none());
        lock.sign(&Identity::own()).expect("signed");
        assert_eq!((lock.signature(), dir.supervisor()), (Some(Identity::own()), Some(Identity::own())));
        drop(lock);
        let mut lock = dir.lock().expect("a lock").expect("it is free again");
        assert_eq!(lock.signature(), Some(Identity::own()));
        dir.remove().expect("removed");
        drop(lock);
        assert!(dir.lock().is_err());
    }
}
