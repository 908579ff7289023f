//! Several servers on one PostgreSQL database: the nodes of one scheduler.
//!
//! One node holds the scheduler lease and runs the tick loop; the others follow. A client may speak to any of them:
//!
//! ```text
//!                    ┌─ reads, events ──► the database
//! client ─► follower ┤
//!                    └─ commands, explain, live logs, worker syncs ──► holder ─► tick ─► the database
//! ```
//!
//! | file | its one idea |
//! |---|---|
//! | `member` | the beat: who holds the lease, and until when this node may believe that it does |
//! | `address` | whether a node is where it says that the others reach it |
//! | `neighbours` | the others: who is there, who is called the same |
//! | `relay` | a request that the holder has to answer, through every change of holder |
//! | `resume` | the output of a task, from where one holder broke off at the next |
//! | `peer` | how nodes call each other, and prove that they are nodes |
//! | `forwarded` | what the node that was asked says of a request: for whom, under which ids, whether again |
//! | `once` | commands that leave nothing behind that a second try would find |
//! | `documents` | keys, secrets, the patch: read again when another node changed them |
//! | `follow` | the event log as the holder writes it, told to those who listen here |
//! | `progress` | how far tasks are, told to those who listen here |
//! | `used` | when keys were last used here, told to the holder |
//! | `outpost` | the worker of a node that follows: it speaks the worker protocol to the holder |
//! | `keeper` | logs and artifacts of ended attempts, kept where every node can read them |
//! | `uploads` | files that were handed in, wherever that was |
//!
//! A holder is never *told* that it lost the lease: it knows from its own clock (`member`), and where it is wrong the
//! database refuses its commit by the epoch. Nothing leaves a tick after the lease, so no other guard is needed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use runyard_store::nodes::Nodes;
use runyard_store::postgres::PgDepot;

mod address;
mod documents;
mod follow;
mod forwarded;
mod keeper;
mod member;
mod neighbours;
mod once;
mod outpost;
mod peer;
mod progress;
mod relay;
mod resume;
mod uploads;
mod used;

pub use address::{SELF, check_address};
pub use documents::{Documents, Error as DocumentError};
pub use follow::{HINT_MAX, follow};
pub use forwarded::{Form, Forwarded, IDS};
pub use keeper::{KeepError, Keeper, keep_artifact};
pub use member::{Member, MemberOptions, Role, Tenure};
pub use neighbours::{role_of, warn_of_namesakes};
pub use once::Once;
pub use outpost::{Outpost, OutpostLink, WORKER};
pub use peer::{Error as PeerError, NODE, Peers};
pub use progress::{Latest, Told, follow as follow_progress, gather as gather_progress};
pub use relay::{Desk, Relay, UNSETTLED, Whole, relay, relay_streamed};
pub use resume::{OutputRelay, relay_output};
pub use uploads::{Error as UploadError, SharedUploads};
pub use used::tell_used;

/// This node and the others.
pub struct Cluster {
    pub member: Arc<Member>,
    pub peers: Peers,
    /// For what may take its time.
    pub nodes: Arc<dyn Nodes>,
    pub depot: Arc<PgDepot>,
    /// Whether the holder, as this node knows it, answers other nodes and takes work.
    pub holder_serves: AtomicBool,
    /// How far tasks are, as far as it is known here.
    pub progress: Latest,
}
