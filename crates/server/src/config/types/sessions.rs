//! `[sessions]`: what a session gets that does not say otherwise.

use std::collections::BTreeMap;

use runyard_wire::{SessionDrop, SessionMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Sessions {
    /// What becomes of a message that comes while its session is busy: `queue`, `followup`, `collect`, `steer`,
    /// `interrupt` or `reject`.
    pub mode: SessionMode,
    /// How many messages may wait in one session, at least 1.
    pub cap: u32,
    /// Who makes room when a session's line is full: `old`, `new` or `summarize`.
    pub drop: SessionDrop,
    /// Messages that come so close together become one run. 0: each is its own.
    pub debounce_ms: u64,
    /// No message is held back for more than this. Not set: five times debounceMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 5000)]
    pub max_wait_ms: Option<u64>,
    /// How many tasks of one session run at once, at least 1.
    pub max_concurrent: u32,
    /// From this share of its model's context window on, a session runs one task at a time.
    pub context_threshold: f64,
    /// Settings of the sessions whose latest message came in this lane.
    pub lanes: BTreeMap<String, SessionSettings>,
    /// Settings of the sessions whose key matches; `*` stands for any number of characters.
    pub patterns: Vec<SessionPattern>,
}

/// What is not set comes from the next wider place.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct SessionSettings {
    /// What becomes of a message that comes while its session is busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = SessionMode::Collect)]
    pub mode: Option<SessionMode>,
    /// How many messages may wait in one session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 10)]
    pub cap: Option<u32>,
    /// Who makes room when a session's line is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = SessionDrop::Old)]
    pub drop: Option<SessionDrop>,
    /// Messages that come so close together become one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 1000)]
    pub debounce_ms: Option<u64>,
    /// No message is held back for more than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 5000)]
    pub max_wait_ms: Option<u64>,
    /// How many tasks of one session run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 3)]
    pub max_concurrent: Option<u32>,
}

// The settings are written out: flattened ones could not refuse unknown keys.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SessionPattern {
    /// Which keys, such as `agent:*:group:*`.
    #[serde(rename = "match")]
    #[schemars(example = "agent:*:group:*")]
    pub key: String,
    /// What becomes of a message that comes while its session is busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = SessionMode::Collect)]
    pub mode: Option<SessionMode>,
    /// How many messages may wait in one session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = 10)]
    pub cap: Option<u32>,
    /// Who makes room when a session's line is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = SessionDrop::Old)]
    pub drop: Option<SessionDrop>,
    /// Messages that come so close together become one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = 1000)]
    pub debounce_ms: Option<u64>,
    /// No message is held back for more than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = 5000)]
    pub max_wait_ms: Option<u64>,
    /// How many tasks of one session run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = 3)]
    pub max_concurrent: Option<u32>,
}

impl Sessions {
    pub fn settings(&self) -> SessionSettings {
        SessionSettings {
            mode: Some(self.mode),
            cap: Some(self.cap),
            drop: Some(self.drop),
            debounce_ms: Some(self.debounce_ms),
            max_wait_ms: self.max_wait_ms,
            max_concurrent: Some(self.max_concurrent),
        }
    }
}

impl SessionPattern {
    pub fn settings(&self) -> SessionSettings {
        SessionSettings {
            mode: self.mode,
            cap: self.cap,
            drop: self.drop,
            debounce_ms: self.debounce_ms,
            max_wait_ms: self.max_wait_ms,
            max_concurrent: self.max_concurrent,
        }
    }
}

impl Default for Sessions {
    fn default() -> Self {
        let core = runyard_core::session::SessionsConfig::default();
        let rules = core.defaults.rules();
        Sessions {
            mode: SessionMode::Queue,
            cap: rules.cap,
            drop: SessionDrop::Old,
            debounce_ms: rules.debounce_ms,
            max_wait_ms: None,
            max_concurrent: rules.max_concurrent,
            context_threshold: f64::from(core.context_milli) / 1000.0,
            lanes: BTreeMap::new(),
            patterns: Vec::new(),
        }
    }
}
