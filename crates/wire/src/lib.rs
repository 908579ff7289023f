//! The JSON types of REST `/v1`: what a request may say and what an answer looks like. No logic beyond reading and
//! writing JSON, so that server and clients can share them without sharing anything else.
//!
//! Doc comments here are the descriptions of the OpenAPI document.

#![forbid(unsafe_code)]

mod id;
mod json;
mod node;
mod object;
mod parse;
mod timestamp;
mod words;

mod parts;
mod task;

mod action;
mod batch;
mod control;
mod event;
mod explain;
mod file;
mod problem;
mod schedule;
mod secret;
mod session;
mod stats;
mod webhook;
mod worker;

pub use action::{
    CancelAnswer, CancelFilter, CancelManyAnswer, CancelRequest, ChangeRequest, HeartbeatRequest, ListPage,
};
pub use batch::{BatchAnswer, BatchCounts, BatchItem, BatchRequest, BatchState, BatchView};
pub use control::{
    AgentPut, AgentView, AuditActor, AuditView, BackupRequest, BackupView, ConfigPatch, ConfigView, DrainRequest,
    DrainView, HealthView, KeyCreated, KeyRequest, KeyView, LanePut, LaneView, Scope, VersionView,
};
pub use event::{EventView, LogLine, LogStream, StepView};
pub use explain::{ExplainView, GateView, PlaceInLine};
pub use file::{ArtifactView, ArtifactsView, LeftOutView, UploadView};
pub use id::{BadId, Id};
pub use json::Json;
pub use node::{NodePage, NodeRole, NodeView};
pub use parse::{ParseError, parse};
pub use parts::{Dependency, Limits, Place, Resources, RetryRequest, RetrySpec};
pub use problem::{PROBLEM_CONTENT_TYPE, Problem};
pub use schedule::{
    CatchUp, Overlap, PauseRequest, PreviewRequest, PreviewView, RunCause, RunOutcome, RunView, ScheduleKind,
    SchedulePatch, ScheduleRequest, ScheduleState, ScheduleTiming, ScheduleView, TaskSchedule,
};
pub use secret::{SecretPut, SecretSource, SecretView};
pub use session::{
    InputAnswer, InputRequest, MessageView, SessionContext, SessionCounts, SessionRequest, SessionRules,
    SessionSettings, SessionStopAllAnswer, SessionStopAnswer, SessionView,
};
pub use stats::{AgentMetrics, Counts, LimitsView, MetricsView, QueueView, ScheduleStats, StatsView};
pub use task::{ErrorView, ExitView, Progress, StoredSpec, TaskRequest, TaskSpec, TaskStatus, TaskView, UsageView};
pub use timestamp::{BadTimestamp, Timestamp};
pub use webhook::{DeliveryState, DeliveryTry, DeliveryView, WebhookSecret, WebhookSecrets};
pub use words::{BatchMode, Class, OnDependencyFailure, Priority, SessionDrop, SessionMode, TaskState};
pub use worker::{
    Amounts, FaultOf, GpuMetrics, HeldLease, InputOrder, InputTaken, LeaseRef, LogChunk, LogTaken, MachineMetrics,
    ProgressNote, RefusedReport, SecretValues, StartOrder, StopOrder, SyncAnswer, SyncRequest, Token, WorkDone,
    WorkEnd, WorkExit, WorkOutcome, WorkerCounts, WorkerPage, WorkerRegistered, WorkerRequest, WorkerStatus,
    WorkerView,
};

#[cfg(test)]
mod tests {
    use super::*;
    use utoipa::{PartialSchema, ToSchema};

    #[test]
    fn schemas_say_what_json_really_looks_like() {
        let schema = |schema| serde_json::to_value::<utoipa::openapi::RefOr<utoipa::openapi::Schema>>(schema).unwrap();
        assert_eq!(schema(Id::schema())["format"], "uuid");
        assert_eq!(schema(Timestamp::schema())["format"], "date-time");
        let request = schema(TaskRequest::schema());
        assert_eq!(request["additionalProperties"], false);
        assert!(request["properties"]["timeoutMs"]["description"].is_string(), "{request}");
        assert_eq!(schema(Dependency::schema())["type"], "string");
        assert_eq!(ListPage::<TaskView>::name(), "ListPage");
    }
}
