//! From a request to what the scheduler takes: every rule is checked here, every default filled in here, and nothing
//! behind this module looks at a request again.

mod batch;
mod fields;
mod key;
mod session;
mod task;

pub use batch::{PreparedBatch, StoredBatch, prepare_batch};
pub use fields::{MS_MAX, limits, tier};
pub use key::{idempotency, key_of};
pub use session::{SESSION_KEY_BYTES_MAX, session_key, session_settings};
pub use task::{Prepared, Resolved, ids_only, prepare};

use crate::access::Caller;
use crate::config::Config;
use runyard_core::now::WallMs;
use runyard_exec::workspace::Uploads;

/// What a request is judged by.
#[derive(Clone, Copy)]
pub struct Intake<'a> {
    pub config: &'a Config,
    pub caller: &'a Caller,
    /// Those that a payload may name.
    pub uploads: &'a Uploads,
    pub now_ms: WallMs,
}
