//! The nodes of one scheduler.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Id, Timestamp};

/// One server of several on one database.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    pub id: Id,
    pub name: String,
    /// Where the other nodes reach it.
    pub url: String,
    pub role: NodeRole,
    /// It is the one that answers.
    pub is_self: bool,
    pub started_at: Timestamp,
    /// Since it was last heard of. A node that is well says something four times a second.
    pub silent_ms: u64,
    pub version: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeRole {
    /// It has the scheduler.
    Holder,
    /// It serves reads, and passes everything else on to the holder.
    Follower,
    /// Nothing was heard of it for 10 s, or for three terms of the lease where those are longer: it is gone, or cannot reach
    /// the database. It is forgotten after a day.
    Away,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePage {
    /// By name. Empty for a server with a store of its own.
    pub items: Vec<NodeView>,
    /// Rises with each change of holder.
    pub epoch: u64,
}
