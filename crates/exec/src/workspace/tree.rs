//! Removes directories, whatever their makers have done to them: locked them, or nested them deeper than a path is long, a
//! stack is deep or a process may have files open.
//!
//! So nothing here descends. A directory that is found inside is emptied, what is in it that is a directory too is moved
//! up to the top, and so on until there is only one level left.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::folder::Folder;

/// Entries that are looked at together.
const CHUNK: usize = 1024;

/// Nothing there is no error. Nothing of the run is alive: what is a directory now stays one.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match open_unlocked(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A file, or a link that somebody has put in its place: it goes, and what it leads to stays.
        Err(error) if is(&error, Errno::NOTDIR) || is(&error, Errno::LOOP) => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(top) => {
            Removal { top, mark: uuid::Uuid::now_v7().simple().to_string(), n_moved: 0 }.run()?;
            fs::remove_dir(path)
        }
    }
}

struct Removal {
    top: Folder,
    /// No name in the directory begins like this.
    mark: String,
    n_moved: u64,
}

impl Removal {
    fn run(mut self) -> io::Result<()> {
        loop {
            let entries = self.top.entries(CHUNK)?;
            if entries.is_empty() {
                return Ok(());
            }
            for entry in entries {
                if entry.kind == FileType::Directory {
                    self.empty(&entry.name)?;
                    self.top.remove_folder(&entry.name)?;
                } else {
                    self.top.remove_file(&entry.name)?;
                }
            }
        }
    }

    /// Of a directory at the top: its files go, its directories come to the top.
    fn empty(&mut self, name: &OsStr) -> io::Result<()> {
        let folder = self.top.enter_unlocked(name)?;
        loop {
            let entries = folder.entries(CHUNK)?;
            if entries.is_empty() {
                return Ok(());
            }
            for entry in entries {
                if entry.kind == FileType::Directory {
                    self.n_moved += 1;
                    let new_name = OsString::from(format!("{}-{}", self.mark, self.n_moved));
                    folder.move_folder(&entry.name, &self.top, &new_name)?;
                } else {
                    folder.remove_file(&entry.name)?;
                }
            }
        }
    }
}

/// A directory without permissions, as some package caches make them, is unlocked first.
fn open_unlocked(path: &Path) -> io::Result<Folder> {
    let folder = match Folder::open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, Permissions::from_mode(0o700))?;
            Folder::open(path)?
        }
        opened => opened?,
    };
    folder.unlock()?;
    Ok(folder)
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_outside_stays_and_what_is_locked_goes() {
        let home = tempfile::tempdir().expect("a directory");
        let (top, outside) = (home.path().join("top"), home.path().join("outside"));
        fs::create_dir_all(top.join("a/b/c")).and_then(|()| fs::create_dir(&outside)).expect("directories");
        fs::write(outside.join("kept"), "x").and_then(|()| fs::write(top.join("a/b/file"), "x")).expect("files");
        symlink(&outside, top.join("a/way")).and_then(|()| symlink(&outside, top.join("way"))).expect("links");
        for locked in ["a/b/c", "a/b", "a"] {
            fs::set_permissions(top.join(locked), Permissions::from_mode(0o000)).expect("locked");
        }
        remove(&top).expect("removed");
        assert!(!top.exists() && outside.join("kept").exists());
        remove(&top).expect("nothing there is no error");
        symlink(&outside, &top).expect("a link");
        remove(&top).expect("removed");
        assert!(!top.exists() && outside.join("kept").exists());
    }

    /// Deeper than any stack, any path, and any number of open files.
    #[test]
    fn no_depth_is_too_deep() {
        let home = tempfile::tempdir().expect("a directory");
        let top = home.path().join("top");
        fs::create_dir(&top).expect("a directory");
        let mut folder = Folder::open(&top).expect("a folder");
        for _ in 0..20_000 {
            let name = super::super::path::InnerPath::parse(b"d").expect("a path");
            folder = folder.descend_making::<io::Error>(&name, || Ok(())).expect("one deeper");
        }
        drop(folder);
        remove(&top).expect("removed");
        assert!(!top.exists());
    }
}
