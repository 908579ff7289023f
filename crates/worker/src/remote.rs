//! A worker on another machine than its server: the same [`Worker`] behind another link, the worker protocol.
//!
//! ```text
//!           no identity                      own key
//! start ───────────────► join with a token ─────────► speak: one sync after the other ──► told to leave: drain, goodbye
//!   │   has one                                ▲        │            │
//!   └─────────────────► register again ────────┘        │ unknown    │ fenced
//!                              ▲                        ▼            ▼
//!                              └── join anew ◄── stop everything   stop everything, end
//! ```
//!
//! A sync that has nothing to tell waits at the server for something to do. When there is something to tell meanwhile
//! another one is sent, which does not wait; the server then answers the first at once. What was told is kept until an
//! answer says that it is stored, and said again after any failure, so a lost call loses nothing.
//!
//! Answers are heard in the order of their questions: once a newer one has been heard, an older one is not listened to any
//! more. It could name a start that has begun, ended and been forgotten since.

mod attached;
mod backoff;
mod carried;
mod client;
mod conversation;
mod desk;
mod files;
mod identity;
mod ledger;
mod words;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Certificate, Url};
use runyard_exec::process::supervise::SupervisorProgram;
use runyard_wire::WorkerRequest;
use tokio_util::sync::CancellationToken;

use crate::defaults::DockerDefaults;
use crate::worker;
pub use attached::{Attached, AttachedOptions};
use conversation::RemoteWorker;

pub struct RemoteOptions {
    /// A server, or several that are the nodes of one: when one is away, the next is asked. Never empty.
    pub servers: Vec<Url>,
    /// Trusted beside those of the system.
    pub certificates: Vec<Certificate>,
    /// To join with; not needed by a worker that has joined.
    pub token: Option<String>,
    pub data_dir: PathBuf,
    /// What it says of itself.
    pub about: WorkerRequest,
    /// Kinds of its own.
    pub programs: BTreeMap<String, PathBuf>,
    pub docker: DockerDefaults,
    pub supervisor: Option<SupervisorProgram>,
    pub grace_ms: u64,
    /// What cannot go on without the worker has so long to end when it is told to leave.
    pub drain: Duration,
}

impl RemoteOptions {
    /// Its servers, for people.
    fn named(&self) -> String {
        self.servers.iter().map(Url::as_str).collect::<Vec<_>>().join(", ")
    }
}

/// How a worker came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It was told to leave, and has said goodbye.
    Left,
    /// Another process is this worker now.
    Fenced,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} cannot be used", path.display())]
    Data { path: PathBuf, source: io::Error },
    #[error("another worker uses {}; give each a --data-dir of its own", path.display())]
    InUse { path: PathBuf },
    #[error("{} is a server's data directory, which has a worker of its own; use another --data-dir", path.display())]
    ServersOwn { path: PathBuf },
    #[error("{} is of a worker that belongs to {server}; use that, or another --data-dir", path.display())]
    OtherServer { path: PathBuf, server: String },
    #[error("this worker has not joined yet, and there is no token to join with (--token, --token-file)")]
    NoToken,
    #[error("the server does not know this worker any more ({why}), and there is no token to join with")]
    Removed { why: String },
    #[error("the server does not take this worker: {0}")]
    Refused(String),
    #[error("connections cannot be made")]
    Http(#[source] reqwest::Error),
    #[error(transparent)]
    Worker(#[from] worker::Error),
}

/// Until `leave` is cancelled and everything is handed over, or somebody else is this worker.
pub async fn run(options: RemoteOptions, leave: CancellationToken) -> Result<Ended, Error> {
    match RemoteWorker::begin(options, &leave).await? {
        Some(worker) => worker.serve(&leave).await,
        None => Ok(Ended::Left),
    }
}
