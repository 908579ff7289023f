//! Workers on other machines: who they are, and the one call in which they say and hear everything.

mod sync;
mod token;
mod view;

pub use sync::{
    FaultOf, HeldLease, InputOrder, InputTaken, LeaseRef, LogChunk, LogTaken, ProgressNote, RefusedReport,
    SecretValues, StartOrder, StopOrder, SyncAnswer, SyncRequest, WorkDone, WorkEnd, WorkExit, WorkOutcome,
};
pub use token::Token;
pub use view::{Amounts, WorkerCounts, WorkerPage, WorkerStatus, WorkerView};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Id;
use crate::object::object;

/// A worker says who it is and what it offers, when it joins and each time its process starts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct WorkerRequest {
    /// For people; letters, digits and `._:@-`, at most 64.
    pub name: String,
    /// Of its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Of its machine, such as `linux`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Of its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Cores it offers, with fractions.
    pub cpus: f64,
    /// Memory it offers, in MiB.
    pub ram_mb: u32,
    /// What tasks can ask for in `place`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Kinds of tasks it runs; at least one.
    pub kinds: Vec<String>,
    /// Those of them that go on when its process ends, and are presented again by the next one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keeps: Vec<String>,
    /// It runs no more tasks than this at a time, whatever they need (default: as many as have room).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// Other resources it has, such as `{"gpu": 1}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, u32>,
}

object!(WorkerRequest);

/// What a worker is known by from now on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerRegistered {
    /// Kept by the worker, with its key, over restarts of its process.
    pub id: Id,
    /// Good for this worker's own calls only; shown once, when it joins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// To be said in each sync. Another process that registers under this id gets another one, and this one is fenced.
    pub session: Token,
    /// The worker is to be heard from this often.
    pub heartbeat_ms: u64,
    /// After so long a silence what it holds is lost.
    pub offline_after_ms: u64,
}

/// How a worker's machine is doing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct MachineMetrics {
    /// Percent of all cores that are in use, 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_usage: Option<f64>,
    /// Memory that is not in use, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ram_free_mb: Option<u32>,
    /// Load average over one minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load1: Option<f64>,
    /// Room on the disk of its data directory, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_free_mb: Option<u64>,
    /// Size of that disk, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_total_mb: Option<u64>,
    /// One for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuMetrics>,
}

object!(MachineMetrics);

/// How one GPU is doing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct GpuMetrics {
    /// As its driver calls it.
    pub name: String,
    /// Percent, 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<f64>,
    /// In MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_free_mb: Option<u64>,
}

object!(GpuMetrics);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn an_unknown_field_of_a_request_is_named_and_one_of_an_answer_is_not_minded() {
        let body = br#"{"name":"w","cpus":1,"ramMb":1,"kinds":["noop"],"gpu":1}"#;
        assert!(parse::<WorkerRequest>(body).unwrap_err().message.contains("gpu"));
        let body = br#"{"session":"1","held":[{"task":"01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11","attempt":1,"token":7}]}"#;
        assert_eq!(parse::<SyncRequest>(body).unwrap_err().field, "held[0].token");
        let body = br#"{"session":"1","metrics":{"cpu":1}}"#;
        assert!(parse::<SyncRequest>(body).unwrap_err().message.contains("cpu"));
        let answer: SyncAnswer = serde_json::from_str(r#"{"heartbeatMs":10000,"newer":true}"#).unwrap();
        assert_eq!(answer, SyncAnswer { heartbeat_ms: 10_000, ..SyncAnswer::default() });
    }

    #[test]
    fn a_result_travels_as_it_was_written() {
        let body = br#"{"session":"18446744073709551615","done":[{"task":"01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11",
            "attempt":2,"token":"9","outcome":{"state":"completed","result":{"b":1.0, "a":2}}}]}"#;
        let request: SyncRequest = parse(body).unwrap();
        assert_eq!(request.session, Token(u64::MAX));
        assert_eq!(request.done[0].lease().token, Token(9));
        assert_eq!(request.done[0].outcome.result.as_ref().unwrap().as_str(), r#"{"b":1.0, "a":2}"#);
    }

    #[test]
    fn the_values_of_secrets_are_not_printed() {
        let values = SecretValues([("token".to_owned(), "hunter2".to_owned())].into());
        assert_eq!(format!("{values:?}"), r#"["token"]"#);
    }
}
