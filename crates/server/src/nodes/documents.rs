//! What the store keeps for the edge (keys, secrets, the patch of the configuration, workers) as this node knows it. The
//! holder changes it; the others read it again when the store says that there is something new, and a node that becomes
//! the holder does so before it serves.

use std::sync::Arc;

use runyard_store::store::Reader;

use crate::app::Keys;
use crate::config::{self, Live, PATCH_SETTING};
use crate::ground::stored_keys;
use crate::secrets::{self, SealingKey, Vault};
use crate::webhook::{self, OwnSecrets, Webhooks};
use crate::workers::Roster;

#[derive(Clone)]
pub struct Documents {
    pub keys: Arc<Keys>,
    pub live: Arc<Live>,
    pub vault: Arc<Vault>,
    pub webhooks: Arc<Webhooks>,
    pub roster: Arc<Roster>,
    pub key: Arc<SealingKey>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the store could not answer")]
    Store(#[from] runyard_store::store::Error),
    #[error("the stored {what} cannot be read")]
    Unreadable {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("the stored patch does not fit this node's configuration")]
    Patch(#[from] config::Error),
}

impl Documents {
    /// All of them, as they are stored now. One that cannot be used keeps the others from nothing: the first error is given
    /// when all have been tried.
    pub fn refresh(&self, reader: &dyn Reader) -> Result<(), Error> {
        let mut outcome = Ok(());
        for read in [Self::read_keys, Self::read_patch, Self::read_secrets, Self::read_webhooks, Self::read_workers] {
            outcome = outcome.and(read(self, reader));
        }
        outcome
    }

    fn read_keys(&self, reader: &dyn Reader) -> Result<(), Error> {
        let ring = stored_keys(reader)?.map_err(unreadable("keys"))?;
        self.keys.replace(ring);
        Ok(())
    }

    fn read_patch(&self, reader: &dyn Reader) -> Result<(), Error> {
        let patch = match reader.setting(PATCH_SETTING)? {
            Some(stored) => serde_json::from_slice(&stored).map_err(unreadable("configuration patch"))?,
            None => Default::default(),
        };
        Ok(self.live.replace_patch(config::opened(patch, &self.key))?)
    }

    fn read_secrets(&self, reader: &dyn Reader) -> Result<(), Error> {
        let stored = reader.setting(secrets::SETTING)?;
        self.vault.replace(stored.as_deref()).map_err(unreadable("secrets"))
    }

    fn read_webhooks(&self, reader: &dyn Reader) -> Result<(), Error> {
        let Some(stored) = reader.setting(webhook::SETTING)? else { return Ok(()) };
        let own = OwnSecrets::from_json(&stored, &self.key).map_err(unreadable("webhook secrets"))?;
        self.webhooks.replace(own);
        Ok(())
    }

    fn read_workers(&self, reader: &dyn Reader) -> Result<(), Error> {
        self.roster.replace(reader.workers()?);
        Ok(())
    }
}

fn unreadable(what: &'static str) -> impl Fn(serde_json::Error) -> Error {
    move |source| Error::Unreadable { what, source }
}
