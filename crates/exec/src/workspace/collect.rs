//! Copies what is to be kept out of a working directory.

use std::fs::{self, File};
use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

use super::artifacts::{Artifact, Artifacts, FILES, INDEX};
use super::files::Outputs;
use super::folder::{Executable, Folder};
use super::outputs::{Found, LeftOuts, find};
use super::path::InnerPath;
use super::rules::WorkspaceRules;
use super::tree;
use crate::job::Job;
use crate::places::{Places, create_private_dir};

const CHUNK_BYTES: usize = 64 * 1024;

/// What came of it, and which patterns meant nothing.
pub(super) struct Collected {
    pub artifacts: Artifacts,
    pub unmet: Vec<String>,
}

/// Made beside what an earlier attempt left, and then put in its place. What is copied is a copy: nothing of it changes
/// when the working directory does.
pub(super) fn collect(places: &Places, job: &Job, outputs: &Outputs) -> io::Result<Collected> {
    let root = Folder::open(&places.work_dir(job.task))?;
    let Found { files, left_out, unmet } = find(&root, outputs)?;
    let draft = places.artifacts_draft(job.task);
    tree::remove(&draft)?;
    create_private_dir(&draft.join(FILES))?;
    let into = Folder::open(&draft.join(FILES))?;
    let mut copying = Copying { root, into, rules: &job.workspace, items: Vec::new(), n_bytes: 0, left_out };
    for (text, path) in files {
        copying.add(text, &path)?;
    }
    let left_out = copying.left_out.into_items();
    let artifacts = Artifacts { attempt: job.attempt, items: copying.items, left_out };
    // The working directory goes next: after a power loss this is all there is.
    let mut index = File::create(draft.join(INDEX))?;
    index.write_all(&serde_json::to_vec_pretty(&artifacts)?)?;
    index.sync_all()?;
    let place = places.artifacts_dir(job.task);
    tree::remove(&place)?;
    fs::rename(&draft, &place)?;
    Ok(Collected { artifacts, unmet })
}

struct Copying<'a> {
    root: Folder,
    into: Folder,
    rules: &'a WorkspaceRules,
    items: Vec<Artifact>,
    n_bytes: u64,
    left_out: LeftOuts,
}

impl Copying<'_> {
    /// A file that cannot be read is left out; only a place that cannot be written to is an error.
    fn add(&mut self, text: String, path: &InnerPath) -> io::Result<()> {
        if self.items.len() as u64 >= self.rules.artifacts_max {
            let max = self.rules.artifacts_max;
            self.left_out.add(text, format!("a task may have {max} artifacts (process.artifactsMax)"));
            return Ok(());
        }
        let opened = self.root.file(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (told_bytes, source) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.left_out.add(text, format!("cannot be read: {error}"));
                return Ok(());
            }
        };
        let room = self.rules.artifacts_bytes_max - self.n_bytes;
        if told_bytes > room {
            self.left_out.add(text, self.too_large(told_bytes));
            return Ok(());
        }
        let (name, above) = path.split_last().expect("a file has a name");
        let folder = self.into.descend_making::<io::Error>(&above, || Ok(()))?;
        // No more than there is room for, should it have grown.
        let (bytes, sha256) = copy(source.take(room), folder.create(name, Executable::No)?)?;
        self.n_bytes += bytes;
        self.items.push(Artifact { path: text, bytes, sha256 });
        Ok(())
    }

    fn too_large(&self, bytes: u64) -> String {
        let max = self.rules.artifacts_bytes_max;
        format!("has {bytes} bytes: all artifacts of a task together may have {max} (process.artifactsBytesMax)")
    }
}

fn copy(mut source: impl Read, mut to: File) -> io::Result<(u64, String)> {
    let (mut hash, mut n_bytes) = (Sha256::new(), 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let n = source.read(&mut chunk)?;
        if n == 0 {
            to.sync_all()?;
            return Ok((n_bytes, super::hex(&hash.finalize())));
        }
        hash.update(&chunk[..n]);
        to.write_all(&chunk[..n])?;
        n_bytes += n as u64;
    }
}
