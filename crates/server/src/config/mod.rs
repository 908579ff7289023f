//! Configuration: what can be set, where each value came from, and how it changes while the server runs.
//!
//! Four layers over the built-in defaults, later ones winning value by value: the file, `RUNYARD_SECTION__KEY` in the
//! environment, flags, and the patch that `PATCH /v1/config` keeps in the store. Every layer is a JSON tree of the same
//! shape; the merged tree becomes the one typed [`Config`], and each leaf remembers its [`Origin`]. A layer that does not
//! fit is refused whole, with the place that is wrong, and what was in force stays in force.

mod check;
mod edge;
mod env;
mod error;
mod file;
#[cfg(test)]
mod fuzz;
mod layers;
mod live;
mod outbound;
mod schema;
mod sealed;
mod telemetry;
mod to_core;
mod to_process;
mod types;
mod watch;

pub use check::{MULTIPLIER_MAX, NAME_RULE, RETRIES_MAX, name_is_valid};
pub use edge::{Exec, RateLimit, Secret, ServerLimits, Tls};
pub use error::Error;
pub use layers::{Layers, Merged, Origin, merge, merge_patch};
pub use live::{ChangeError, Changed, Live, PATCH_SETTING, Sources, paths};
pub use outbound::{Outbound, Webhook, redacted, shown_url};
pub use schema::{default_file, json_schema};
pub use sealed::{is_lost, opened};
pub use telemetry::Telemetry;
#[cfg(feature = "otlp")]
pub use telemetry::header;
pub use to_core::{mode, overflow, to_core, to_core_sessions, to_purge};
pub use to_process::{to_docker_defaults, to_process_defaults, to_sandbox};
pub use types::*;
pub use watch::{SETTLE, watch_file, watcher};
