//! What was collected of a task: `artifacts/<xx>/<task>/`, with a table of contents beside the files.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::path::InnerPath;
use crate::places::Places;

/// The table of contents.
pub(super) const INDEX: &str = "index.json";
pub(super) const FILES: &str = "files";

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifacts {
    /// Whose they are: the task's last attempt that left any. 0 where an earlier version wrote the table.
    #[serde(default)]
    pub attempt: u32,
    pub items: Vec<Artifact>,
    pub left_out: Vec<LeftOut>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Artifact {
    /// As it was in the working directory.
    pub path: String,
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: String,
}

/// What a pattern meant, and was not collected.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeftOut {
    pub path: String,
    pub reason: String,
}

impl Artifacts {
    /// Empty for a task that has none.
    pub fn of(places: &Places, task: u128) -> io::Result<Artifacts> {
        match fs::read(places.artifacts_dir(task).join(INDEX)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Artifacts::default()),
            bytes => Ok(serde_json::from_slice(&bytes?)?),
        }
    }

    /// Opens one of them; `None` when there is none of this path. What is asked for is only compared with the paths in
    /// the table: it is never a path of its own.
    pub fn open(places: &Places, task: u128, path: &str) -> io::Result<Option<(Artifact, File)>> {
        let known = Artifacts::of(places, task)?.items.into_iter().find(|artifact| artifact.path == path);
        let Some((artifact, inner)) = known.and_then(|known| InnerPath::of_text(&known.path).map(|path| (known, path)))
        else {
            return Ok(None);
        };
        match Folder::open(&places.artifacts_dir(task).join(FILES)).and_then(|folder| folder.file(&inner)) {
            // Replaced by a later attempt since the table was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => Ok(Some((artifact, file?))),
        }
    }
}

/// Everything that was kept of a task's files; for retention.
pub fn remove_files(places: &Places, task: u128) -> io::Result<()> {
    super::tree::remove(&places.artifacts_dir(task))?;
    super::tree::remove(&places.artifacts_draft(task))?;
    super::tree::remove(&places.work_dir(task))?;
    remove_file(&places.kept_mark(task))
}

/// What was collected of a task is with somebody else.
pub fn remove_artifacts(places: &Places, task: u128) -> io::Result<()> {
    super::tree::remove(&places.artifacts_dir(task))
}

pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
