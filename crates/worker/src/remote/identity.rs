//! Who a worker is over restarts, and that it is there only once: its data directory is one process's own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use reqwest::Url;
use runyard_wire::Id;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::Error;

const IDENTITY_FILE: &str = "worker.json";
const LOCK_FILE: &str = "worker.lock";
/// A server's directory, which has a worker of its own in it.
const STORE_FILE: &str = "runyard.db";

/// As the server gave it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// Whose worker it is: its key goes to no other.
    pub server: String,
    pub id: Id,
    pub key: String,
}

/// A data directory that no other worker uses as long as this lives.
pub(super) struct Lodging {
    dir: PathBuf,
    _lock: File,
}

impl Lodging {
    pub(super) fn take(dir: &Path) -> Result<Lodging, Error> {
        let unusable = |source| Error::Data { path: dir.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(unusable)?;
        let dir = dir.canonicalize().map_err(unusable)?;
        if dir.join(STORE_FILE).exists() {
            return Err(Error::ServersOwn { path: dir });
        }
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).clone();
        let lock = options.open(dir.join(LOCK_FILE)).map_err(unusable)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lodging { dir, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::InUse { path: dir }),
            Err(error) => Err(Error::Data { path: dir, source: error.into() }),
        }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// `None` for a worker that has not joined yet.
    pub(super) fn identity(&self, servers: &[Url]) -> Result<Option<Identity>, Error> {
        let path = self.dir.join(IDENTITY_FILE);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|source| Error::Data { path: path.clone(), source })?,
        };
        let known: Identity =
            serde_json::from_slice(&bytes).map_err(|error| Error::Data { path: path.clone(), source: error.into() })?;
        match servers.iter().any(|server| server.as_str() == known.server) {
            true => Ok(Some(known)),
            false => Err(Error::OtherServer { path, server: known.server }),
        }
    }

    /// Whole or not at all, and there after a power loss: a worker that forgets its name leaves its tasks to nobody.
    pub(super) fn keep(&self, identity: &Identity) -> Result<(), Error> {
        let path = self.dir.join(IDENTITY_FILE);
        let write = || -> io::Result<()> {
            let draft = path.with_extension("json.tmp");
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(&serde_json::to_vec_pretty(identity)?)?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(&self.dir)?.sync_all()
        };
        write().map_err(|source| Error::Data { path: path.clone(), source })
    }

    pub(super) fn forget(&self) -> Result<(), Error> {
        let path = self.dir.join(IDENTITY_FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::Data { path, source: error }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn at(servers: &[&str]) -> Vec<Url> {
        servers.iter().map(|server| server.parse().expect("a URL")).collect()
    }

    fn identity() -> Identity {
        Identity { server: "http://one/".into(), id: Id(7), key: "ryw_x".into() }
    }

    #[test]
    fn an_identity_is_kept_for_its_account_and_its_server_only() {
        let root = tempfile::tempdir().expect("a directory");
        let lodging = Lodging::take(&root.path().join("data")).expect("free");
        assert!(lodging.identity(&at(&["http://one/"])).expect("readable").is_none());
        lodging.keep(&identity()).expect("kept");
        assert!(lodging.identity(&at(&["http://one/"])).expect("readable") == Some(identity()));
        assert!(
            lodging.identity(&at(&["http://two/", "http://one/"])).expect("readable").is_some(),
            "one of its nodes"
        );
        let refused = lodging.identity(&at(&["http://two/"])).err().expect("another server");
        assert!(refused.to_string().contains("http://one/"), "{refused}");
        let mode = fs::metadata(lodging.dir().join(IDENTITY_FILE)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        lodging.forget().expect("forgotten");
        lodging.forget().expect("there is nothing to forget");
        assert!(lodging.identity(&at(&["http://two/"])).expect("readable").is_none());
    }

    #[test]
    fn two_processes_never_share_a_directory_nor_does_one_with_a_server() {
        let root = tempfile::tempdir().expect("a directory");
        let first = Lodging::take(root.path()).expect("free");
        assert!(matches!(Lodging::take(root.path()), Err(Error::InUse { .. })));
        drop(first);
        Lodging::take(root.path()).expect("free again");
        fs::write(root.path().join(STORE_FILE), "").expect("written");
        assert!(matches!(Lodging::take(root.path()), Err(Error::ServersOwn { .. })));
    }
}
