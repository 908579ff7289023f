//! A directory that is only ever walked by open descriptors, one name at a time and never through a link: whatever lies
//! in it, nothing outside of it is read or written.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, chmodat, fchmod, fstat, mkdirat, open, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::path::InnerPath;

pub(crate) struct Folder {
    fd: OwnedFd,
}

/// What a directory holds.
pub(crate) struct Entry {
    pub name: OsString,
    pub kind: FileType,
}

/// May the owner execute a file?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Executable {
    Yes,
    No,
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Folder {
    /// The path down to it is ours, and trusted.
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        Ok(Folder { fd: open(path, FOLDER, Mode::empty())? })
    }

    fn enter(&self, name: &OsStr) -> io::Result<Folder> {
        Ok(Folder { fd: openat(&self.fd, name, FOLDER, Mode::empty())? })
    }

    /// The directory at the end of this path, which must exist.
    pub(crate) fn descend(&self, path: &InnerPath) -> io::Result<Folder> {
        let start = Folder { fd: self.fd.as_fd().try_clone_to_owned()? };
        path.names().iter().try_fold(start, |folder, name| folder.enter(name))
    }

    /// As [`Self::descend`], making what is missing. `made` hears of each directory before it is made.
    pub(crate) fn descend_making<E: From<io::Error>>(
        &self,
        path: &InnerPath,
        mut made: impl FnMut() -> Result<(), E>,
    ) -> Result<Folder, E> {
        let mut folder = Folder { fd: self.fd.as_fd().try_clone_to_owned()? };
        for name in path.names() {
            folder = match folder.enter(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    made()?;
                    mkdirat(&folder.fd, name, Mode::RWXU).map_err(io::Error::from)?;
                    folder.enter(name)?
                }
                entered => entered?,
            };
        }
        Ok(folder)
    }

    /// A file that was not there before.
    pub(crate) fn create(&self, name: &OsStr, executable: Executable) -> io::Result<File> {
        let mode = match executable {
            Executable::Yes => Mode::RWXU,
            Executable::No => Mode::RUSR | Mode::WUSR,
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.fd, name, flags, mode)?))
    }

    /// A regular file, to be read. Anything else is an error, and is not waited for: opening a pipe would be.
    pub(crate) fn file(&self, path: &InnerPath) -> io::Result<File> {
        let (name, above) = path.split_last().ok_or(Errno::ISDIR)?;
        let folder = self.descend(&above)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&folder.fd, name, flags, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(File::from(file)),
            _ => Err(io::Error::other("it is no regular file")),
        }
    }

    /// Everything in it but itself and its parent; no more than one beyond `n_max`. An entry that goes meanwhile is left
    /// out.
    pub(crate) fn entries(&self, n_max: usize) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            if entries.len() > n_max {
                break;
            }
            let entry = entry?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                entries.extend(self.entry(name, entry.file_type())?);
            }
        }
        Ok(entries)
    }

    /// Its owner may do with it whatever can be done.
    pub(crate) fn unlock(&self) -> io::Result<()> {
        Ok(fchmod(&self.fd, Mode::RWXU)?)
    }

    /// A directory in it, which is unlocked.
    pub(crate) fn enter_unlocked(&self, name: &OsStr) -> io::Result<Folder> {
        let folder = match self.enter(name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.unlock_folder(name)?;
                self.enter(name)?
            }
            entered => entered?,
        };
        folder.unlock()?;
        Ok(folder)
    }

    fn unlock_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(chmodat(&self.fd, name, Mode::RWXU, AtFlags::empty())?)
    }

    pub(crate) fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// It must be empty.
    pub(crate) fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// Who may not write to a directory may not give it another parent either.
    pub(crate) fn move_folder(&self, name: &OsStr, to: &Folder, new_name: &OsStr) -> io::Result<()> {
        match renameat(&self.fd, name, &to.fd, new_name) {
            Err(Errno::ACCESS | Errno::PERM) => {
                self.unlock_folder(name)?;
                Ok(renameat(&self.fd, name, &to.fd, new_name)?)
            }
            moved => Ok(moved?),
        }
    }

    fn entry(&self, name: &CStr, told: FileType) -> io::Result<Option<Entry>> {
        let kind = match told {
            // Some file systems do not tell.
            FileType::Unknown => match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => return Ok(None),
                stat => FileType::from_raw_mode(stat?.st_mode),
            },
            told => told,
        };
        Ok(Some(Entry { name: OsStr::from_bytes(name.to_bytes()).to_owned(), kind }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    fn path(text: &str) -> InnerPath {
        InnerPath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn a_link_is_followed_neither_in_the_middle_nor_at_the_end() {
        let home = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (home.path().join("in"), home.path().join("out"));
        fs::create_dir(&inside).and_then(|()| fs::create_dir(&outside)).expect("directories");
        fs::write(outside.join("secret"), "s").expect("a file");
        symlink(&outside, inside.join("way")).expect("a link");
        symlink(outside.join("secret"), inside.join("file")).expect("a link");
        let folder = Folder::open(&inside).expect("a folder");
        assert!(folder.file(&path("way/secret")).is_err());
        assert!(folder.file(&path("file")).is_err());
        assert!(folder.descend_making::<io::Error>(&path("way/new"), || Ok(())).is_err());
        assert!(folder.create("file".as_ref(), Executable::No).is_err());
        assert!(!outside.join("new").exists());
        assert!(Folder::open(&inside.join("way")).is_err());
    }

    #[test]
    fn what_is_there_is_not_written_over() {
        let home = tempfile::tempdir().expect("a directory");
        let folder = Folder::open(home.path()).expect("a folder");
        folder.create("a".as_ref(), Executable::No).and_then(|mut file| file.write_all(b"1")).expect("a file");
        let again = folder.create("a".as_ref(), Executable::No).expect_err("it is there");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(home.path().join("a")).expect("a file"), b"1");
    }
}
