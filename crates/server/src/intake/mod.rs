//! From a request to what the scheduler takes: every rule is checked here, every default filled in here, and nothing
//! behind this module looks at a request again.

mod batch;
mod exec;
mod fields;
mod key;
mod patch;
mod schedule;
mod session;
mod task;

pub use batch::{ITEMS_MAX, PreparedBatch, StoredBatch, prepare_batch};
pub use exec::{check_allowed, check_lists};
pub use fields::{CPU_LIMIT_MIN, CPU_MAX, DEPENDENCIES_MAX, MS_MAX, TAGS_MAX, labels, limits, runs_a_program, tier};
pub use key::{idempotency, key_of};
pub use patch::{patched, touches_times};
pub use schedule::{check_future, no_future, prepare_schedule, timing};
pub use session::{SESSION_KEY_BYTES_MAX, session_key, session_settings};
pub use task::{AGENT_DEFAULT, Prepared, Resolved, ids_only, prepare};

use crate::access::Caller;
use crate::config::Config;
use crate::secrets::Vault;
use crate::uploads::KnownUploads;
use runyard_core::now::WallMs;

/// What a request is judged by.
#[derive(Clone, Copy)]
pub struct Intake<'a> {
    pub config: &'a Config,
    pub caller: &'a Caller,
    /// Those that a payload may name.
    pub uploads: &'a KnownUploads,
    pub now_ms: WallMs,
    /// Where the secrets are that tasks refer to.
    pub vault: Option<&'a Vault>,
    /// What the request belongs to.
    pub traceparent: Option<&'a str>,
}
