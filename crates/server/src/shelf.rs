//! What a server reads from its store before it serves: configuration, keys, secrets, workers. And the first key of all,
//! where there is none yet.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use runyard_store::store::Reader;
use runyard_wire::Id;
use serde_json::Map;

use crate::access::{ADMIN_KEY_FILE, KeyRing, NewKey, Scope, write_key_file};
use crate::app::{App, KeyMode, Keys, remember};
use crate::clock;
use crate::config::{Live, Sources};
use crate::ground::{self, vault, with_patch};
use crate::handle::{Handle, Readiness};
use crate::lobby::Lobby;
use crate::nodes::Cluster;
use crate::secrets::{SealingKey, Vault};
use crate::server::Error;
use crate::webhook::{self, OwnSecrets, Webhooks};
use crate::workers::Roster;

/// Between two tries to make the first key.
const TRY_EVERY: Duration = Duration::from_millis(500);

/// Where everything is that a server reads from its store before it serves.
pub(crate) struct Shelf {
    pub sources: Sources,
    pub no_auth: bool,
    pub reader: Arc<dyn Reader>,
    pub data_dir: PathBuf,
    pub key: Arc<SealingKey>,
    pub handle: Handle,
    pub cluster: Option<Arc<Cluster>>,
}

pub(crate) struct Stored {
    pub live: Arc<Live>,
    pub roster: Arc<Roster>,
    pub keys: Arc<Keys>,
    pub webhooks: Arc<Webhooks>,
    pub vault: Arc<Vault>,
}

impl Shelf {
    /// A database that goes away meanwhile is waited for.
    pub async fn read(self, lobby: &mut Lobby) -> Result<Stored, Error> {
        let shelf = Arc::new(self);
        loop {
            let reading = shelf.clone();
            match lobby.run(move || reading.read_now()).await {
                Ok(stored) => return Ok(stored),
                Err(error) => lobby.wait_out(error).await?,
            }
        }
    }

    /// The file is read once more: the start may have waited for long.
    fn read_now(&self) -> Result<Stored, Error> {
        let Shelf { sources, no_auth, reader, data_dir, key, handle, cluster } = self;
        let fixed = Live::load(sources.clone(), Map::new())?;
        let live = Arc::new(with_patch(sources.clone(), &**reader, data_dir, key, fixed)?);
        let rows = reader.workers().map_err(|source| Error::Store { path: data_dir.clone(), source })?;
        let mode = if *no_auth { KeyMode::Off } else { KeyMode::Required };
        let owner = if cluster.is_some() { Owner::Nodes } else { Owner::Alone };
        let keys = Arc::new(keys(mode, &**reader, data_dir, handle, owner)?);
        let webhooks = Arc::new(webhooks(&**reader, data_dir, handle, key.clone())?);
        let vault = vault(&live, &**reader, data_dir, key.clone())?;
        Ok(Stored { live, roster: Arc::new(Roster::of(rows)), keys, webhooks, vault })
    }
}

/// Whose the store is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Alone,
    Nodes,
}

/// A new admin key, in the ring and in its file.
fn add_admin(ring: &mut KeyRing, data_dir: &Path) -> Result<(), Error> {
    let new = NewKey {
        id: Id(clock::new_id()).to_string(),
        name: "admin".into(),
        scopes: vec![Scope::Admin],
        agents: None,
        created_at_ms: clock::wall_ms(),
    };
    let (_, text) = ring.add(new)?;
    let path = data_dir.join(ADMIN_KEY_FILE);
    write_key_file(&path, &text).map_err(|source| Error::Data { path, source })
}

/// The first node that holds the lease makes the first key, for all of them.
pub(crate) async fn make_admin(app: Arc<App>) {
    let mut readiness = app.handle.readiness();
    while readiness.wait_for(|readiness| *readiness == Readiness::Ready).await.is_ok() {
        let mut ring = KeyRing::clone(&app.keys.ring());
        if ring.has_admin() || !app.keys.are_asked_for() {
            return;
        }
        let made = match add_admin(&mut ring, &app.data_dir) {
            Ok(()) => remember(&app.handle, &ring).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match made {
            Ok(()) => return app.keys.replace(ring),
            Err(error) => tracing::error!(target: "runyard::access", "the admin key could not be made: {error}"),
        }
        tokio::time::sleep(TRY_EVERY).await;
    }
}

/// The stored keys, with an admin key made where there is none.
fn keys(mode: KeyMode, reader: &dyn Reader, data_dir: &Path, handle: &Handle, owner: Owner) -> Result<Keys, Error> {
    if mode == KeyMode::Off {
        return Ok(Keys::new(mode, stored_keys(reader, data_dir)?));
    }
    let mut ring = stored_keys(reader, data_dir)?;
    // Where there are several nodes, the one that holds the lease makes it when it serves.
    if !ring.has_admin() && owner == Owner::Alone {
        // The file before the store: after a crash in between the next start makes another key, and nobody has lost one.
        add_admin(&mut ring, data_dir)?;
        tokio::spawn(keep_keys(handle.clone(), ring.clone()));
    }
    Ok(Keys::new(mode, ring))
}

/// What webhooks are signed with; where there is nothing yet, the deliverer makes it.
fn webhooks(reader: &dyn Reader, data_dir: &Path, handle: &Handle, key: Arc<SealingKey>) -> Result<Webhooks, Error> {
    let stored =
        reader.setting(webhook::SETTING).map_err(|source| Error::Store { path: data_dir.to_owned(), source })?;
    let secrets = stored.map_or(Ok(OwnSecrets::default()), |bytes| OwnSecrets::from_json(&bytes, &key));
    let secrets = secrets.map_err(Error::StoredSecrets)?;
    Ok(Webhooks::new(secrets, key, handle.posted().clone()))
}

fn stored_keys(reader: &dyn Reader, data_dir: &Path) -> Result<KeyRing, Error> {
    let read = ground::stored_keys(reader).map_err(|source| Error::Store { path: data_dir.to_owned(), source });
    read?.map_err(Error::StoredKeys)
}

/// The scheduler may still be recovering, so this is not waited for.
async fn keep_keys(handle: Handle, ring: KeyRing) {
    if let Err(error) = remember(&handle, &ring).await {
        tracing::error!(target: "runyard::access", "the admin key could not be stored: {error}");
    }
}
