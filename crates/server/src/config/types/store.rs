//! `[store]` and `[nodes]`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Store {
    /// `full`: an accepted task survives power loss. `normal`: it survives a crash of the process, and commits are faster.
    pub durability: Durability,
    /// A PostgreSQL database, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, in the place of the SQLite file in the data
    /// directory. Several servers on one database are the nodes of one scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "postgres://runyard@db.internal:5432/runyard?sslmode=verify-full")]
    pub url: Option<String>,
    /// A file that holds that address, so that its password stands in no other place. `url` goes before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "/run/secrets/runyard-store")]
    pub url_file: Option<PathBuf>,
    /// PostgreSQL ends a statement that takes longer, and the scheduler recovers.
    pub statement_timeout_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Durability {
    Full,
    Normal,
}

/// Several servers on one PostgreSQL database. One of them, the holder of the scheduler lease, decides what runs; all of
/// them serve.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Nodes {
    /// Where the other nodes reach this one. Not set: the address it listens on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "http://10.0.0.7:7340")]
    pub advertise: Option<String>,
    /// For people. Not set: the machine's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "node-a")]
    pub name: Option<String>,
    /// A holder that has not renewed its lease for so long is not one any more.
    pub ttl_ms: u64,
    /// How long a command waits through a change of holder before it is answered with 503.
    pub wait_ms: u64,
    /// Certificates (PEM) to trust beside the system's, for nodes that serve HTTPS with one of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "/etc/runyard/ca.pem")]
    pub ca_file: Option<PathBuf>,
}

impl Default for Store {
    fn default() -> Self {
        Store { durability: Durability::Full, url: None, url_file: None, statement_timeout_ms: 30_000 }
    }
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes { advertise: None, name: None, ttl_ms: 5_000, wait_ms: 15_000, ca_file: None }
    }
}
