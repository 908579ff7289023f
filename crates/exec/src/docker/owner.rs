//! Whose containers they are. Several workers may use one engine, and none may touch what another one runs.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

use sha2::{Digest, Sha256};

use crate::places::Places;

/// Of the digest, in hexadecimal digits: enough that no two data directories have the same.
const DIGITS: usize = 24;

/// Made of a number that the data directory keeps, and of its path: a copy of the directory is another owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner(String);

impl Owner {
    /// Makes one where there is none yet. Before the first container: whoever finds no owner need not look for any.
    pub(crate) fn of(places: &Places) -> io::Result<Owner> {
        match Owner::known(places)? {
            Some(owner) => Ok(owner),
            None => {
                let path = places.container_owner_file();
                let draft = path.with_extension(format!("{}.new", std::process::id()));
                let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
                writeln!(file, "{}", uuid::Uuid::now_v7().simple())?;
                file.sync_all()?;
                // A link appears whole, and only where nothing is: of two that come at the same time one wins.
                let linked = fs::hard_link(&draft, &path);
                fs::remove_file(&draft)?;
                match linked {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => Owner::known(places)?.ok_or_else(|| io::ErrorKind::NotFound.into()),
                }
            }
        }
    }

    /// `None` when no container was ever started from here.
    pub(crate) fn known(places: &Places) -> io::Result<Option<Owner>> {
        let number = match fs::read(places.container_owner_file()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            number => number?,
        };
        let mut digest = Sha256::new();
        digest.update(number.trim_ascii());
        digest.update([0]);
        digest.update(places.data_dir().as_os_str().as_bytes());
        let text: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Some(Owner(text[..DIGITS].to_owned())))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_stays_and_a_copy_of_its_directory_is_another() {
        let root = tempfile::tempdir().expect("a directory");
        let places = |name: &str| {
            let _ = fs::create_dir(root.path().join(name));
            Places::new(&root.path().join(name)).expect("places")
        };
        let (here, copy) = (places("here"), places("copy"));
        assert_eq!(Owner::known(&here).expect("read"), None);
        let owner = Owner::of(&here).expect("an owner");
        assert_eq!((Owner::of(&here).expect("an owner"), owner.as_str().len()), (owner.clone(), DIGITS));
        fs::copy(here.container_owner_file(), copy.container_owner_file()).expect("copied");
        assert_ne!(Owner::of(&copy).expect("an owner"), owner);
        assert_eq!(fs::read_dir(root.path().join("here")).expect("a directory").count(), 1, "no draft stays");
    }
}
