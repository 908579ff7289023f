//! Where a server that is measured keeps what it has: a directory of its own, and on PostgreSQL a schema of its own.
//!
//! Schemas and not databases, because whoever may make tables in a database may make them too, and nothing else in it is
//! touched.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::database::Database;

#[derive(Clone)]
pub struct Place {
    dir: PathBuf,
    database: Option<Database>,
}

impl Place {
    /// Below it are those of the servers.
    pub fn new(dir: PathBuf, store: Option<&str>) -> anyhow::Result<Place> {
        let database = store.map(Database::parse).transpose()?;
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Place { dir, database })
    }

    /// That of one server.
    pub fn join(&self, name: impl AsRef<str>) -> Place {
        let name = name.as_ref();
        let database = self.database.as_ref().map(|database| database.with_schema(name));
        Place { dir: self.dir.join(name), database }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn database(&self) -> Option<&Database> {
        self.database.as_ref()
    }

    /// What is there already stays.
    pub async fn make(&self) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.dir)?;
        match &self.database {
            Some(database) => database.make_schema().await,
            None => Ok(()),
        }
    }

    pub async fn remove(&self) -> anyhow::Result<()> {
        std::fs::remove_dir_all(&self.dir)?;
        match &self.database {
            Some(database) => database.drop_schema().await,
            None => Ok(()),
        }
    }

    /// Everything below it, also of servers that failed.
    pub async fn remove_all(&self) -> anyhow::Result<()> {
        std::fs::remove_dir_all(&self.dir)?;
        match &self.database {
            Some(database) => database.drop_all_schemas().await,
            None => Ok(()),
        }
    }

    /// For the server's command line.
    pub fn flags(&self) -> Vec<String> {
        self.database.iter().flat_map(|database| ["--store".to_owned(), database.url().to_owned()]).collect()
    }
}
