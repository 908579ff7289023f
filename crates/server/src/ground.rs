//! What a server and a tick both stand on: the data directory, the store in it, and the configuration that lies there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use runyard_core::flow::Resources;
use runyard_exec::process::supervise::SupervisorProgram;
use runyard_store::sqlite::{self, SqliteStore};
use runyard_store::store::{self, Holder, Reader, User};
use runyard_worker::MayRun;
use serde_json::Map;

use crate::access::{self, KeyRing, USED_SETTING};
use crate::config::{self, Config, Durability, Live, PATCH_SETTING, Sources};
use crate::intake;
use crate::secrets::{self, SealingKey, Vault};
use crate::server::{Error, STORE_FILE};

/// A tick is done in less; one that starts a task with large files to fetch may take longer.
const TICK_MAX: Duration = Duration::from_secs(30);

/// Made when it is not there. It is for the server's account only; one that others made looser is made so, or told of where
/// it is not ours to change.
pub(crate) fn data_dir(path: &Path) -> Result<PathBuf, Error> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    let there = made.and_then(|()| path.canonicalize());
    let path = there.map_err(|source| Error::Data { path: path.to_owned(), source })?;
    if let Err(error) = make_private(&path) {
        tracing::warn!(target: "runyard::server", path = %path.display(), %error,
            "other accounts can look into the data directory");
    }
    Ok(path)
}

fn make_private(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let about = std::fs::metadata(dir)?;
    let mode = about.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    // Whoever made it sticky, as /tmp is, shares it on purpose.
    if about.uid() != rustix::process::geteuid().as_raw() || mode & 0o1000 != 0 {
        return Err(std::io::Error::other("it is not the server's own"));
    }
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode & 0o7700))
}

/// A server waits for a tick that is at work.
pub(crate) async fn open_store(data_dir: &Path, durability: Durability, user: User) -> Result<SqliteStore, Error> {
    let path = data_dir.join(STORE_FILE);
    let durability = match durability {
        Durability::Full => sqlite::Durability::Full,
        Durability::Normal => sqlite::Durability::Normal,
    };
    let options = sqlite::Options { durability, user, ..sqlite::Options::default() };
    let began = Instant::now();
    let open = move || loop {
        match SqliteStore::open(&path, options) {
            Err(error) if user == User::Server && is_ticked(&error) && began.elapsed() < TICK_MAX => {}
            opened => return opened,
        }
    };
    let opened = tokio::task::spawn_blocking(open).await;
    opened.map_err(|_| Error::Thread)?.map_err(|source| Error::Store { path: data_dir.to_owned(), source })
}

fn is_ticked(error: &store::Error) -> bool {
    matches!(error, store::Error::Locked { holder: Some(Holder { user: User::Tick, .. }), .. })
}

/// The stored patch is laid over what was read. One that no longer fits (a file changed below it) is left out with a
/// warning: a server that does not start cannot be patched back.
pub(crate) fn with_patch(
    sources: Sources,
    reader: &dyn Reader,
    data_dir: &Path,
    key: &Arc<SealingKey>,
    without: Live,
) -> Result<Live, Error> {
    let stored = reader.setting(PATCH_SETTING).map_err(|source| Error::Store { path: data_dir.to_owned(), source })?;
    let patch = stored.map(|stored| serde_json::from_slice::<Map<_, _>>(&stored));
    let live = match patch.map(|patch| patch.map(|patch| Live::load(sources, config::opened(patch, key)))) {
        None => without,
        Some(Ok(Ok(live))) => live,
        Some(Ok(Err(error))) => {
            tracing::warn!(target: "runyard::config", "the stored patch is left out, it does not fit any more: {error}");
            without
        }
        Some(Err(_)) => {
            tracing::warn!(target: "runyard::config", "the stored patch is left out: it is no JSON object");
            without
        }
    };
    Ok(live.sealing_with(key.clone()))
}

/// The keys in the store, and when each was last used.
pub(crate) fn stored_keys(reader: &dyn Reader) -> store::Result<Result<KeyRing, serde_json::Error>> {
    let stored = reader.setting(access::SETTING)?;
    let used = reader.setting(USED_SETTING)?;
    let ring = stored.map_or(Ok(KeyRing::default()), |bytes| KeyRing::from_json(&bytes));
    Ok(ring.inspect(|ring| ring.recall(used.as_deref())))
}

/// What seals everything secret that the store holds.
pub(crate) fn sealing_key(data_dir: &Path) -> Arc<SealingKey> {
    Arc::new(SealingKey::at(data_dir.join(secrets::KEY_FILE)))
}

/// The secrets of tasks, as the store and the configuration have them.
pub(crate) fn vault(
    live: &Arc<Live>,
    reader: &dyn Reader,
    data_dir: &Path,
    key: Arc<SealingKey>,
) -> Result<Arc<Vault>, Error> {
    let stored =
        reader.setting(secrets::SETTING).map_err(|source| Error::Store { path: data_dir.to_owned(), source })?;
    Vault::open(live.clone(), key, stored.as_deref()).map(Arc::new).map_err(Error::StoredVault)
}

/// `[exec]` as it is at each start.
pub(crate) fn may_run(live: Arc<Live>) -> MayRun {
    Arc::new(move |kind, payload| {
        let allowed = intake::check_allowed(&live.current().config.exec, kind, payload);
        allowed.map_err(|error| format!("it may not run any more: {error}"))
    })
}

pub(crate) fn supervisor(program: PathBuf, config: &Config) -> SupervisorProgram {
    SupervisorProgram { program, heartbeat_ms: config.worker.heartbeat_ms.0 }
}

pub(crate) fn capacity(worker: &config::Worker) -> Resources {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    // Agents' work mostly waits, so a core takes four.
    let cpu = worker.cpu.unwrap_or(4.0 * cores);
    Resources { cpu_milli: (cpu * 1000.0) as u32, ram_mb: worker.ram_mb.unwrap_or_else(ram_mb), named: Vec::new() }
}

/// All of the machine's memory; a machine that does not say gets a modest guess.
fn ram_mb() -> u32 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.and_then(|kib| u32::try_from(kib / 1024).ok()).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_directory_that_was_there_is_private_then_and_so_is_the_store_in_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data");
        std::fs::create_dir(&data).expect("made");
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).expect("changed");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
        let data = data_dir(&data).expect("usable");
        assert_eq!(mode(&data), 0o700);
        let store = open_store(&data, Durability::Full, User::Server).await.expect("opened");
        for file in ["runyard.db", "runyard.db-wal", "runyard.db-shm"] {
            assert_eq!(mode(&data.join(file)), 0o600, "{file}");
        }
        drop(store);
    }

    #[test]
    fn a_directory_that_is_shared_on_purpose_stays_so() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o1777)).expect("changed");
        assert!(make_private(dir.path()).is_err());
        assert_eq!(std::fs::metadata(dir.path()).expect("there").permissions().mode() & 0o7777, 0o1777);
    }
}
