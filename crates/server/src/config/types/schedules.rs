//! `[schedules]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Schedules {
    /// True: no schedule runs. What is due meanwhile is missed, and treated by each schedule's catchUp afterwards.
    pub paused: bool,
    /// The time zone of cron expressions that do not name one: an IANA name such as `Europe/Berlin`. It is written into
    /// a schedule when that is made, so a change here moves none.
    pub default_tz: String,
    /// How many schedules there may be.
    pub max: u64,
    /// Runs that are kept of each schedule, the latest ones.
    pub keep_runs: u64,
    /// How long an ended run is kept. 30 days.
    pub keep_runs_ms: u64,
}

impl Default for Schedules {
    fn default() -> Self {
        let core = runyard_core::config::Config::default();
        Schedules {
            paused: core.schedules_paused,
            default_tz: "UTC".into(),
            max: core.schedules_max,
            keep_runs: 200,
            keep_runs_ms: 30 * 24 * 3_600_000,
        }
    }
}
