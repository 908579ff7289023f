//! Agents, lanes, configuration, drain, keys, and how the server is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::json::nullable;
use crate::object::object;
use crate::{Counts, Id, Priority, Timestamp};

/// An agent that has tasks or settings.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// Its name.
    pub name: String,
    /// How many of its tasks may hold a slot at once; absent: no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_inflight: Option<u32>,
    /// Its share beside other agents (default 1).
    pub weight: u32,
    /// Nothing of it starts while this is true.
    pub paused: bool,
    /// The highest tier its tasks may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_priority: Option<Priority>,
    /// Its tasks by state.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Settings of an agent; what is left out stays, null goes back to the configured value.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct AgentPut {
    /// How many of its tasks may hold a slot at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "nullable")]
    #[schema(value_type = Option<u32>)]
    pub max_inflight: Option<Option<u32>>,
    /// Its share beside other agents, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "nullable")]
    #[schema(value_type = Option<u32>)]
    pub weight: Option<Option<u32>>,
    /// True: nothing of it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// The highest tier its tasks may have.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "nullable")]
    #[schema(value_type = Option<Priority>)]
    pub max_priority: Option<Option<Priority>>,
}

object!(AgentPut);

/// A lane.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaneView {
    /// Its name.
    pub name: String,
    /// How many of its tasks may hold a slot at once.
    pub limit: u32,
    /// Nothing of it starts while this is true.
    pub paused: bool,
    /// Assigned and running.
    pub running: u64,
    /// Ready.
    pub queued: u64,
    /// For dependencies, a turn in a session, a place in a batch, or a time.
    pub waiting: u64,
}

/// Settings of a lane; what is left out stays. A new name makes a new lane and needs a limit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct LanePut {
    /// How many of its tasks may hold a slot at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// True: nothing of it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

object!(LanePut);

/// The configuration in force, and where each value comes from.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigView {
    /// The whole configuration, in the form of the file.
    #[schema(value_type = Object)]
    pub values: serde_json::Value,
    /// For each value, by its path such as `limits.maxQueued`: default, file, env, flag or patch.
    pub origins: BTreeMap<String, String>,
}

/// A JSON merge patch over the configuration: null removes, objects merge, everything else replaces.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub struct ConfigPatch(pub serde_json::Map<String, serde_json::Value>);

/// Turns draining on or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct DrainRequest {
    /// True: accept and start nothing new.
    pub on: bool,
}

object!(DrainRequest);

/// Is the server draining, and what is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainView {
    /// Nothing new is accepted or started.
    pub draining: bool,
    /// Tasks that still hold a slot.
    pub running: u64,
    /// Tasks that stay for later.
    pub queued: u64,
}

/// A new API key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct KeyRequest {
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// The agents whose work it may see and touch; absent: any. Not with scope admin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
}

object!(KeyRequest);

/// What a key may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// See everything.
    Read,
    /// Submit, cancel, retry and change tasks.
    Submit,
    /// Submit tasks that run programs on the machine.
    Exec,
    /// Register workers, and nothing else.
    Worker,
    /// Everything.
    Admin,
}

/// An API key, without its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyView {
    /// Its id.
    pub id: Id,
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// The agents whose work it may see and touch; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When a request last came with it, to the minute; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
}

/// A new API key with its secret, which is shown this once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyCreated {
    /// The secret to send as `Authorization: Bearer`.
    pub key: String,
    #[serde(flatten)]
    pub view: KeyView,
}

/// One change, as the audit log has it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditView {
    /// Its number: one more for each change.
    pub n: u64,
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: AuditActor,
    /// What was done, such as `key.created`.
    pub action: String,
    /// To what, where it has a name or an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// How it was; of the configuration only what has changed. Secrets are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub before: Option<serde_json::Value>,
    /// How it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub after: Option<serde_json::Value>,
}

/// Who made a change.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditActor {
    /// The id of the key; absent where none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Id>,
    /// The name of the key, or what made the server change it by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where the request came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// Where to write a copy of the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct BackupRequest {
    /// A file on the server's machine that does not exist yet; relative paths start in the data directory.
    pub path: String,
}

object!(BackupRequest);

/// A copy of the store that was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupView {
    /// The file, as an absolute path on the server's machine.
    pub path: String,
    /// Its size.
    pub bytes: u64,
}

/// What is running here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionView {
    /// `runyard`.
    pub name: String,
    /// The release.
    pub version: String,
}

/// How the server is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthView {
    /// `ok`, `ready`, `recovering`, `draining` or `stopping`.
    pub status: String,
}
