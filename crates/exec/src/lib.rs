//! Executors: `http`, `process`, `docker` and `noop`, each an explicit state machine from start to confirmed end.
//!
//! An executor never decides. It knows no retry, no timeout and no deadline: the scheduler asks for a stop, and the
//! executor answers with exactly one [`Outcome`] when nothing of the run is alive any more. What it must not know: the
//! store, the scheduler's state, other tasks.

pub mod docker;
pub mod executor;
pub mod guard;
pub mod http;
pub mod input;
pub mod job;
pub mod limits;
pub mod log;
pub mod noop;
pub mod open_files;
pub mod outcome;
pub mod payload;
pub mod places;
pub mod process;
pub mod result;
pub mod said;
pub mod secret;
pub mod usage;
mod wires;
pub mod workspace;

pub use docker::DockerRules;
pub use executor::{ExecOptions, Executors};
pub use guard::{Blocked, Guard};
pub use input::{Input, InputLine, InputSender, NotTaken, input};
pub use job::{Job, Kind, Progress, Signs};
pub use limits::Limits;
pub use outcome::{Class, Fault, Outcome};
pub use payload::{PayloadError, Sandbox, takes_input, uploads_named, validate_payload};
pub use places::Places;
pub use said::follow_up_payload;
pub use secret::{SecretError, Secrets};
pub use usage::Usage;
pub use workspace::{RemoteUploads, WorkDir, WorkspaceRules};
