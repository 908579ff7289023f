//! What several nodes on one database agree through: who is here, and which of them holds the scheduler lease.
//!
//! ```text
//!            lease free or over                 load: the epoch rises
//! following ────────────────────► lease taken ───────────────────────► holding ──► leave: the lease is free at once
//!     ▲                                │                                  │
//!     └──── somebody else has it ◄─────┴──── not renewed in time, fenced ─┘
//! ```
//!
//! The lease says who *should* write; the epoch in every commit says who *can*. A holder that was stopped, cut off or
//! merely slow finds at its next commit that the epoch is over, and nothing of that commit is there. The lease is
//! measured by the database's clock alone; a holder counts its own time from before it asked, so it always believes
//! that the lease ends earlier than it does.

use crate::store::Result;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u128);

/// What a node says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeCard {
    pub id: NodeId,
    /// For people.
    pub name: String,
    /// Where the other nodes reach it.
    pub url: String,
    pub version: String,
}

/// A node as the others see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeRow {
    pub card: NodeCard,
    pub started_at_ms: u64,
    /// Since it was last heard of, by the database's clock.
    pub silent_ms: u64,
    pub is_holder: bool,
}

/// All nodes, and the number of the scheduler's term.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeList {
    /// Rises each time that one of them takes the store over.
    pub epoch: u64,
    pub nodes: Vec<NodeRow>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bid {
    /// Takes the lease if it is free or over, keeps it if it is ours.
    Hold,
    /// Only says that it is here.
    Follow,
}

/// How things stand after a beat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Who has the lease now. A lease that is over is nobody's.
    pub holder: Option<Lease>,
    /// The last commit in the event log.
    pub log_seq: u64,
    /// Rises with each commit that changed a setting.
    pub settings_version: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    pub node: NodeId,
    pub url: String,
    /// The store's epoch as it was when this was asked.
    pub epoch: u64,
    /// How long it still lasts.
    pub left_ms: u64,
}

/// One change that somebody made, as the edge wrote it down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditRow {
    pub n: u64,
    pub body: Vec<u8>,
}

/// Which key the secrets in a database are sealed with. The key itself is never there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SealedWith {
    /// Nobody has said so far.
    Unsaid,
    /// The key with this mark.
    Key(Vec<u8>),
    /// One that is lost: the next node may make another.
    GivenUp,
}

/// Shared by whoever has to do with other nodes: many callers, each call blocks for one round trip.
pub trait Nodes: Send + Sync {
    /// What nodes of this database prove to each other that they are; made by the first one.
    fn secret(&self) -> Result<[u8; 32]>;

    /// Says that this node is here.
    fn beat(&self, node: &NodeCard, bid: Bid, ttl_ms: u64) -> Result<Standing>;

    /// Gives the lease back if it is this node's, and takes the node off the list.
    fn leave(&self, node: NodeId) -> Result<()>;

    /// Those heard of within the last day, by name. Earlier ones are forgotten.
    fn all(&self) -> Result<NodeList>;

    /// Writes down a change behind all others. The oldest go when there are too many.
    fn write_audit(&self, entry: &[u8]) -> Result<()>;

    /// The latest changes first, those before number `before`.
    fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRow>>;
}
