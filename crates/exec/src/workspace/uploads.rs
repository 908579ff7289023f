//! Files that are handed in before a task names them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use uuid::Uuid;

use crate::job::task_text;
use crate::places::create_private_dir;

/// What an upload is called until it is whole.
const PART: &str = ".part-";

/// One file for each, named for its id. When a file was last changed says when it was last needed.
#[derive(Clone, Debug)]
pub struct Uploads {
    root: PathBuf,
}

/// A whole upload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upload {
    pub id: u128,
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: String,
}

/// An upload on its way. Dropped, it leaves nothing.
pub struct Incoming {
    root: PathBuf,
    file: NamedTempFile,
    hash: Sha256,
    n_bytes: u64,
}

impl Uploads {
    pub(crate) fn at(root: PathBuf) -> Uploads {
        Uploads { root }
    }

    fn path(&self, id: u128) -> PathBuf {
        self.root.join(task_text(id))
    }

    pub fn begin(&self) -> io::Result<Incoming> {
        create_private_dir(&self.root)?;
        let file = tempfile::Builder::new().prefix(PART).tempfile_in(&self.root)?;
        Ok(Incoming { root: self.root.clone(), file, hash: Sha256::new(), n_bytes: 0 })
    }

    /// Somebody needs it: it stays for another while. An upload that is not there is `NotFound`.
    pub fn touch(&self, id: u128) -> io::Result<()> {
        self.open(id).map(drop)
    }

    pub fn open(&self, id: u128) -> io::Result<File> {
        let file = File::options().read(true).write(true).open(self.path(id))?;
        file.set_modified(SystemTime::now())?;
        Ok(file)
    }

    /// Removes what nobody has needed for so long. Gives how many there were.
    pub fn remove_unneeded(&self, keep: Duration) -> io::Result<usize> {
        let now = SystemTime::now();
        // A clock that was set back makes a file young, not old.
        let is_old = |path: &PathBuf| {
            let changed = fs::metadata(path).and_then(|metadata| metadata.modified()).unwrap_or(now);
            now.duration_since(changed).is_ok_and(|age| age > keep)
        };
        self.remove_if(is_old)
    }

    /// Removes what was on its way when an earlier server died. To be called before anything can be.
    pub fn remove_parts(&self) -> io::Result<usize> {
        self.remove_if(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PART)))
    }

    fn remove_if(&self, is_meant: impl Fn(&PathBuf) -> bool) -> io::Result<usize> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        let mut n_removed = 0;
        for path in entries.flatten().map(|entry| entry.path()).filter(is_meant) {
            match fs::remove_file(&path) {
                Ok(()) => n_removed += 1,
                // Another hand was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(n_removed)
    }
}

impl Incoming {
    pub fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.file.write_all(chunk)?;
        self.hash.update(chunk);
        self.n_bytes += chunk.len() as u64;
        Ok(())
    }

    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// As [`Self::finish`], for one that has an id already: a copy of what a server has. Whoever was faster brought the
    /// same.
    pub fn finish_as(self, id: u128) -> io::Result<()> {
        self.file.persist(self.root.join(task_text(id))).map_err(|refused| refused.error)?;
        Ok(())
    }

    /// The file itself, its length and its hash, for who keeps it elsewhere.
    pub(super) fn into_parts(self) -> (NamedTempFile, u64, String) {
        (self.file, self.n_bytes, super::hex(&self.hash.finalize()))
    }

    /// Whole, and there after a power loss: a task that names it is too.
    pub fn finish(self) -> io::Result<Upload> {
        let id = Uuid::now_v7().as_u128();
        self.file.as_file().sync_all()?;
        self.file.persist_noclobber(self.root.join(task_text(id))).map_err(|refused| refused.error)?;
        File::open(&self.root)?.sync_all()?;
        Ok(Upload { id, bytes: self.n_bytes, sha256: super::hex(&self.hash.finalize()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uploads() -> (tempfile::TempDir, Uploads) {
        let dir = tempfile::tempdir().expect("a directory");
        let uploads = Uploads::at(dir.path().join("uploads"));
        (dir, uploads)
    }

    fn n_files(uploads: &Uploads) -> usize {
        fs::read_dir(&uploads.root).map_or(0, Iterator::count)
    }

    fn put(uploads: &Uploads, content: &[u8]) -> Upload {
        let mut incoming = uploads.begin().expect("a file");
        incoming.write(content).expect("written");
        incoming.finish().expect("whole")
    }

    #[test]
    fn an_upload_that_is_given_up_leaves_nothing() {
        let (_dir, uploads) = uploads();
        let mut incoming = uploads.begin().expect("a file");
        incoming.write(b"half").expect("written");
        assert_eq!(n_files(&uploads), 1);
        drop(incoming);
        assert_eq!(n_files(&uploads), 0);
    }

    #[test]
    fn what_a_dead_server_left_half_done_goes_and_whole_ones_stay() {
        let (_dir, uploads) = uploads();
        assert_eq!(uploads.remove_parts().expect("nothing to do"), 0);
        let whole = put(&uploads, b"abc");
        let (_, part) = uploads.begin().expect("a file").file.keep().expect("kept");
        assert_eq!(uploads.remove_parts().expect("removed"), 1);
        assert!(!part.exists() && uploads.touch(whole.id).is_ok());
    }

    #[test]
    fn an_upload_stays_as_long_as_it_is_needed() {
        let (_dir, uploads) = uploads();
        let (old, fresh) = (put(&uploads, b"old"), put(&uploads, b"fresh"));
        let day = Duration::from_secs(86_400);
        let long_ago = SystemTime::now() - 8 * day;
        for upload in [&old, &fresh] {
            let file = File::options().write(true).open(uploads.path(upload.id)).expect("a file");
            file.set_modified(long_ago).expect("a time");
        }
        uploads.touch(fresh.id).expect("it is there");
        assert_eq!(uploads.remove_unneeded(7 * day).expect("removed"), 1);
        assert_eq!(uploads.touch(old.id).expect_err("it is gone").kind(), io::ErrorKind::NotFound);
        assert!(uploads.touch(fresh.id).is_ok());
    }

    #[test]
    fn its_sum_is_that_of_its_content() {
        let (_dir, uploads) = uploads();
        let upload = put(&uploads, b"abc");
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((upload.bytes, upload.sha256.as_str()), (3, expected));
    }
}
