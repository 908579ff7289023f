//! A process that outlives the server: each runs under a small supervisor of its own, as containers run under a shim.
//!
//! ```text
//!   server                                        supervisor (`runyard supervise --run DIR`)
//!     │ writes runs/<task>-<attempt>/job.json         │
//!     │ starts it ─────────────────────────────────► locks supervisor.json, writes who it is
//!     │                                               │ makes running/task_<id>.json, then starts the command
//!     │ ◄── control.sock: log grew, progress ──────── │ heartbeats
//!     │ ─── control.sock: lines of input ───────────► │
//!     │ ─── SIGTERM: stop ──────────────────────────► │ asks, waits, kills the whole tree
//!     │                                               │ writes exit.json, removes the lease file, ends
//!     │ ◄── (its end, seen by a pidfd) ──────────────
//!     │ reads exit.json, reports; when the report is committed, keeps it beside the log and removes the directory
//! ```
//!
//! The values of secrets, which are in no file, come with the start: see [`crate::secret`]. What the run says is cleared
//! of them by the supervisor, so that it does not matter which server listens.
//!
//! The supervisor is the state machine of [`super`], run to its end in a process of its own; nothing of it is written
//! twice. A server that comes back looks through `runs/` ([`survey`]): who still holds the lock is adopted, who left an
//! exit record is reported, and what is left of the rest is killed. The lock is what two of them cannot both have: a
//! supervisor that was started a moment before its server died, and comes late, finds its directory gone and ends
//! without having started anything.
//!
//! The lease file is a mirror for people and scripts; what the server believes is the lock and the record in the run's
//! own directory, and the store.

mod client;
mod control;
mod exit_record;
mod facts;
mod hung;
mod identity;
pub(crate) mod lease;
mod log;
mod run_dir;
mod stage;
mod started;
mod supervisor;
mod survey;

pub use client::SupervisorProgram;
pub(crate) use client::{Fresh, Supervised};
pub use facts::{ExitFacts, RunFacts, keep_exit, run_facts};
pub use lease::{Lease, LeaseMetadata, LeaseState, lease_schema};
pub use log::LogLine;
pub use stage::{Command, Stage, stage};
pub use supervisor::{Error, supervise};
pub(super) use survey::clear_leases;
pub use survey::{EndedRun, Survey, Survivor, Unreadable, rehearse, survey};
