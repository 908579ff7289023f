//! What is left of tasks on this disk, on a machine whose tasks are kept elsewhere: to be handed on, or to go.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::artifacts::{INDEX, remove_files};
use crate::job::task_of_text;
use crate::places::Places;

/// Removes logs, exit records, artifacts and kept working directories that have not changed since. Gives how many there
/// were.
pub fn remove_old(places: &Places, before: SystemTime, is_held: impl Fn(u128) -> bool) -> io::Result<usize> {
    let mut n_removed = 0;
    let is_meant = |entry: &DirEntry| {
        let is_old = entry.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|at| at < before);
        task_of(entry).filter(|task| is_old && !is_held(*task))
    };
    for entry in spread_entries(&places.logs_root())? {
        if is_meant(&entry).is_some() {
            fs::remove_file(entry.path())?;
            n_removed += 1;
        }
    }
    for entry in spread_entries(&places.artifacts_root())?.into_iter().chain(entries(&places.work_root())?) {
        if let Some(task) = is_meant(&entry) {
            remove_files(places, task)?;
            n_removed += 1;
        }
    }
    Ok(n_removed)
}

/// A log that lies here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogHere {
    pub task: u128,
    pub attempt: u32,
    pub bytes: u64,
    pub changed_at: SystemTime,
}

/// Artifacts that lie here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArtifactsHere {
    pub task: u128,
    pub changed_at: SystemTime,
}

pub fn logs_here(places: &Places) -> io::Result<Vec<LogHere>> {
    let log = |entry: DirEntry| {
        let name = entry.file_name();
        let attempt = name.to_str()?.strip_suffix(".log")?.split('.').nth(1)?.parse().ok()?;
        let about = entry.metadata().ok()?;
        Some(LogHere { task: task_of(&entry)?, attempt, bytes: about.len(), changed_at: about.modified().ok()? })
    };
    Ok(spread_entries(&places.logs_root())?.into_iter().filter_map(log).collect())
}

pub fn artifacts_here(places: &Places) -> io::Result<Vec<ArtifactsHere>> {
    let artifacts = |entry: DirEntry| {
        // What is still being collected is beside it, with an ending.
        let path = Some(entry.path()).filter(|path| path.extension().is_none())?;
        let changed_at = fs::metadata(path.join(INDEX)).ok()?.modified().ok()?;
        Some(ArtifactsHere { task: task_of(&entry)?, changed_at })
    };
    Ok(spread_entries(&places.artifacts_root())?.into_iter().filter_map(artifacts).collect())
}

/// Whatever stands behind the task's id in the name.
fn task_of(entry: &DirEntry) -> Option<u128> {
    let name = entry.file_name();
    task_of_text(name.to_str()?.split('.').next()?)
}

fn spread_entries(root: &Path) -> io::Result<Vec<DirEntry>> {
    let folders: Vec<PathBuf> = entries(root)?.into_iter().map(|entry| entry.path()).collect();
    let mut found = Vec::new();
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        found.extend(entries(folder)?);
    }
    Ok(found)
}

fn entries(dir: &Path) -> io::Result<Vec<DirEntry>> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_old_and_held_by_nobody_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        let places = Places::new(dir.path()).expect("places");
        let (done, held) = (0x17, 0x1234_5678_u128);
        for task in [done, held] {
            for file in [places.log_file(task, 1), places.exit_file(task, 1), places.work_dir(task).join("kept.txt")] {
                fs::create_dir_all(file.parent().expect("a folder")).expect("made");
                fs::write(file, "x").expect("written");
            }
            fs::create_dir_all(places.artifacts_dir(task)).expect("made");
        }
        let is_held = |task| task == held;
        let (past, future) = (SystemTime::UNIX_EPOCH, SystemTime::now() + Duration::from_secs(60));
        assert_eq!(remove_old(&places, past, is_held).expect("nothing is that old"), 0);
        assert_eq!(remove_old(&places, future, is_held).expect("removed"), 3);
        assert!(!places.log_file(done, 1).exists() && !places.work_dir(done).exists());
        assert!(places.log_file(held, 1).exists() && places.work_dir(held).exists());
        assert!(places.artifacts_dir(held).exists() && !places.artifacts_dir(done).exists());
    }

    #[test]
    fn what_lies_here_is_listed_when_it_is_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let places = Places::new(dir.path()).expect("places");
        assert_eq!(logs_here(&places).expect("nothing"), []);
        let files = [
            places.log_file(0x17, 12),
            places.exit_file(0x17, 12),
            places.artifacts_dir(0x18).join(INDEX),
            places.artifacts_draft(0x19).join(INDEX),
        ];
        for file in files {
            fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            fs::write(file, "abc").expect("written");
        }
        let logs = logs_here(&places).expect("read");
        assert_eq!(logs.iter().map(|log| (log.task, log.attempt, log.bytes)).collect::<Vec<_>>(), [(0x17, 12, 3)]);
        let artifacts = artifacts_here(&places).expect("read");
        assert_eq!(artifacts.iter().map(|here| here.task).collect::<Vec<_>>(), [0x18]);
    }
}
