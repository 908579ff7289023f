//! `runyard migrate`: the database's schema, brought up to date or only looked at.

use runyard_store::nodes::Nodes;
use runyard_store::postgres::{self, PgNodes};
use serde_json::Map;

use crate::config::{Live, Sources};
use crate::footing::{database, options};
use crate::server::Error;

/// How a database stands to this program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrated {
    /// Steps that were missing.
    pub n_pending: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MigrateMode {
    /// Takes the missing steps.
    Act,
    /// Only counts them.
    Look,
    /// Takes them, and lets the next node make a new key for secrets: nobody has the old one any more.
    GiveUpSecrets,
}

/// `None` where the configuration names no database.
pub async fn migrate(sources: Sources, mode: MigrateMode) -> Result<Option<Migrated>, Error> {
    let live = Live::load(sources, Map::new())?;
    let merged = live.current();
    let Some(url) = database(&merged.config)? else { return Ok(None) };
    let options = options(&merged.config, url, None);
    let work = move || match mode {
        MigrateMode::Look => postgres::check_migrations(&options),
        MigrateMode::Act | MigrateMode::GiveUpSecrets => {
            let n_pending = postgres::check_migrations(&options)?;
            let nodes = PgNodes::open(options)?;
            if mode == MigrateMode::GiveUpSecrets {
                nodes.secret()?;
                nodes.give_up_seal()?;
            }
            Ok(n_pending)
        }
    };
    let done = tokio::task::spawn_blocking(work).await.map_err(|_| Error::Thread)?;
    Ok(Some(Migrated { n_pending: done.map_err(Error::Database)? }))
}
