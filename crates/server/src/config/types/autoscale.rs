//! `[autoscale]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Autoscale {
    /// Where it is POSTed that work finds no worker, or workers no work. Signed with the server's own webhook secret, and
    /// subject to `[outbound]`. Empty: nothing is sent.
    pub url: String,
    /// A program and its arguments that get the same on standard input, in place of a URL.
    pub command: Vec<String>,
    /// Told when something has found no room for so long.
    pub after_ms: u64,
    /// Told when a worker has had nothing to do for so long. 10 minutes.
    pub idle_after_ms: u64,
    /// The same is not told more often than this, and told again while it lasts.
    pub every_ms: u64,
}

impl Default for Autoscale {
    fn default() -> Self {
        Autoscale {
            url: String::new(),
            command: Vec::new(),
            after_ms: 30_000,
            idle_after_ms: 600_000,
            every_ms: 60_000,
        }
    }
}

impl Autoscale {
    pub fn is_on(&self) -> bool {
        !self.url.is_empty() || !self.command.is_empty()
    }
}
