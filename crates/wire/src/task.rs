//! A task in its forms: as it is asked for, as it is kept, as it is shown.

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::object::object;
use crate::{
    Class, Dependency, Id, Json, Limits, OnDependencyFailure, Place, Priority, Resources, RetryRequest, RetrySpec,
    SessionRequest, TaskSchedule, TaskState, Timestamp,
};

/// One unit of work to be done. Only `kind` is required; in a batch it may come from the batch's defaults.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct TaskRequest {
    /// Which executor runs it: `process`, `http`, `noop`, or any kind that some worker offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The executor's input; each kind has its own form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
    /// Whose work it is: the key of fairness and of limits (default `default`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The pool it runs in (default `main`). A lane that is not configured falls back to `main`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// The ordered stream this task belongs to: a key, or an object with its settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionRequest>,
    /// When the sender sent it. A message sent before its session was last stopped is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// Compared across all agents (default `normal`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Compared only inside one agent, lower first (default 0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<i32>,
    /// Tasks that must end well before this one: ids, or `#name` of a task in the same batch. At most 1000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Dependency>,
    /// What happens when a dependency ends badly (default `cancel`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_dependency_failure: Option<OnDependencyFailure>,
    /// Fails the task when its dependencies have not ended after so many milliseconds (default: never).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dependency_timeout_ms: Option<u64>,
    /// Not before so many milliseconds from now. Excludes `runAt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Not before this moment. Excludes `delayMs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// The task fails if it has not ended by then, waiting and running included (default: none).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// How long each attempt may take, in milliseconds (default 120 000, at most a day).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// When and how often a failed attempt is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryRequest>,
    /// What is reserved on a worker while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// What is enforced while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Which workers it may or should run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Names of configured gates it must pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<String>,
    /// Stop and retry an attempt that gave no sign of life for so many milliseconds (default: never).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_ms: Option<u64>,
    /// May be stopped for a critical task and requeued without losing a retry (default: true for `low`, else false).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// How long the finished task stays readable, in milliseconds (default: the configured retention).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Called when the task has ended. It must be one that the server may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// Anything the submitter wants to find again; at most 16 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// At most 32 words to find the task by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// A name for people; in a batch also what `#name` refers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A repeat with the same agent, key and body gets the first answer again. May also be sent as a header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

object!(TaskRequest);

/// The part of a task that its row does not hold in columns: written once at submit, joined again with the row when
/// the task is shown or started. Small on purpose, because millions of these wait on disk.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Id>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency_timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    #[serde(default, skip_serializing_if = "Place::is_empty")]
    pub place: Place,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The task this one repeats; set by the server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<Id>,
    /// The header it came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Everything a task was submitted with, defaults filled in.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSpec {
    /// Which executor runs it.
    pub kind: String,
    /// The executor's input, as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
    /// Whose work it is.
    pub agent: String,
    /// The lane it asked for; see `laneInForce`.
    pub lane: String,
    /// The key of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// When the sender sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// Compared across all agents.
    pub priority: Priority,
    /// Compared only inside one agent, lower first.
    pub rank: i32,
    /// Tasks that must end well before this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Id>,
    /// What happens when a dependency ends badly.
    pub on_dependency_failure: OnDependencyFailure,
    /// Fails the task when its dependencies have not ended after so many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency_timeout_ms: Option<u64>,
    /// The delay it was submitted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Not before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// The task fails if it has not ended by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// How long each attempt may take, in milliseconds.
    pub timeout_ms: u64,
    /// When and how often a failed attempt is repeated.
    pub retry: RetrySpec,
    /// What is reserved on a worker while it runs.
    #[serde(default)]
    pub resources: Resources,
    /// What is enforced while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Which workers it may or should run on.
    #[serde(default, skip_serializing_if = "Place::is_empty")]
    pub place: Place,
    /// Names of configured gates it must pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<String>,
    /// An attempt without a sign of life for so many milliseconds is stopped and retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_ms: Option<u64>,
    /// May be stopped for a critical task and requeued without losing a retry.
    pub preemptible: bool,
    /// How long the finished task stays readable, in milliseconds; absent is the configured retention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Called when the task has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// What the submitter wants to find again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Words to find the task by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The key it was submitted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// What became of a task so far.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatus {
    /// Its id.
    pub id: Id,
    /// Where it stands.
    pub state: TaskState,
    /// Why it stands there; absent when there is nothing to add to the state.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The lane whose limit it counts in, where that is not the one it asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane_in_force: Option<String>,
    /// Attempts that really began.
    pub attempts: u32,
    /// Repeats its retry policy still allows.
    pub retries_left: u32,
    /// The worker of the latest attempt: its id, or `embedded` for the own one of a server that is no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The batch it was submitted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<Id>,
    /// The task this one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<Id>,
    /// The run of a schedule that it is the task of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<TaskSchedule>,
    /// The `traceparent` it was submitted with, handed on to what it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Messages it carries beyond its own; see `/v1/tasks/{id}/messages`. In the answer to a submit: the message became
    /// a part of this task, as its so many-th.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub merged: u32,
    /// The running task it is handed to as input. It completes when that one takes it, and runs by itself if not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steered_into: Option<Id>,
    /// Tokens its latest attempt says it has used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageView>,
    /// What the work gave back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// The last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
    /// How long the latest attempt ran, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ms: Option<u64>,
    /// How far the running attempt says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// How the command of its latest attempt ended that has ended; only of a process, and only where one task is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitView>,
    /// Of its limits, what the machine cannot enforce, in sentences for people: as the latest attempt found it, or, before
    /// the first, as it is expected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_enforced: Vec<String>,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it last became ready to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Timestamp>,
    /// When the latest attempt was handed to a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned_at: Option<Timestamp>,
    /// When the latest attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Tokens an attempt says it has used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageView {
    /// Tokens read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Tokens written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Tokens in the context at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Tokens that fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
}

/// Why a task or an attempt failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorView {
    /// What kind of failure; it decides whether it is retried.
    pub class: Class,
    /// For people.
    pub message: String,
}

/// How a command ended, and what it took.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExitView {
    /// Of which attempt.
    pub attempt: u32,
    /// What it exited with; absent when a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What ended it, such as `SIGKILL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Something of it was killed because it was over its limit of memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// Of the command and everything it started. Of a container nobody tells: 0.
    pub cpu_seconds: f64,
    /// Of the largest of its processes. Of a container: 0.
    pub peak_rss_bytes: u64,
    /// How long it ran, in milliseconds.
    pub wall_ms: u64,
    /// When it ended.
    pub ended_at: Timestamp,
}

/// How far a running attempt says it is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The part that is done, 0.0 to 1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// What it is doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A task: what it was submitted with, defaults filled in, and what became of it so far. One flat object.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct TaskView {
    #[serde(flatten)]
    pub status: TaskStatus,
    #[serde(flatten)]
    pub spec: TaskSpec,
}

/// By hand: serde's flatten buffers values and cannot keep payload and result as raw text. Each part picks its own
/// fields out of the same text instead.
impl<'de> Deserialize<'de> for TaskView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TaskView, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let status = serde_json::from_str(text.get()).map_err(de::Error::custom)?;
        let spec = serde_json::from_str(text.get()).map_err(de::Error::custom)?;
        Ok(TaskView { status, spec })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ListPage, parse};
    use serde_json::json;

    fn full_request() -> serde_json::Value {
        json!({
            "kind": "process", "payload": {"argv": ["echo", "hi"]}, "agent": "a", "lane": "cron",
            "session": {"key": "s", "mode": "collect", "cap": 2, "drop": "new", "debounceMs": 3,
                "maxWaitMs": 4, "maxConcurrent": 5}, "sentAt": "2026-01-01T00:00:00.000Z", "priority": "high", "rank": -3,
            "dependsOn": ["01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11", "#build"], "onDependencyFailure": "run",
            "dependencyTimeoutMs": 5, "delayMs": 1, "runAt": "2026-01-01T00:00:00.000Z",
            "deadline": "2026-01-01T00:00:00.000Z", "timeoutMs": 7,
            "retry": {"maxRetries": 1, "backoffMs": 2, "multiplier": 1.5, "maxBackoffMs": 9, "jitter": 0.5, "on": ["task"]},
            "resources": {"cpu": 0.5, "ramMb": 64, "gpu": 1, "licence": 2},
            "limits": {"cpu": 1.0, "ramMb": 1, "pids": 2, "outputBytes": 3},
            "place": {"require": {"zone": "a"}, "prefer": {"disk": "fast"}, "avoid": {"spot": "yes"}, "spreadBy": "zone"},
            "gates": ["api"], "stallMs": 4, "preemptible": true, "ttlMs": 6, "callbackUrl": "http://localhost/",
            "metadata": {"k": 1}, "tags": ["t"], "name": "n", "idempotencyKey": "key"
        })
    }

    #[test]
    fn a_request_survives_its_json_with_every_field() {
        let body = full_request();
        let request: TaskRequest = parse(body.to_string().as_bytes()).unwrap();
        assert_eq!(serde_json::to_value(&request).unwrap(), body);
        assert_eq!(request.depends_on[1], Dependency::Name("build".into()));
    }

    #[test]
    fn a_small_request_stays_small() {
        let request: TaskRequest = parse(br#"{"kind":"noop"}"#).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"kind":"noop"}"#);
    }

    #[test]
    fn a_payload_keeps_its_bytes() {
        let payload = r#"{"b" : 1.00, "a":[1e3,  "\u0041"]}"#;
        let request: TaskRequest = parse(format!(r#"{{"payload":{payload},"kind":"x"}}"#).as_bytes()).unwrap();
        assert_eq!(request.payload.as_ref().unwrap().as_str(), payload);
        let stored = StoredSpec { payload: request.payload, ..StoredSpec::default() };
        assert_eq!(serde_json::to_string(&stored).unwrap(), format!(r#"{{"payload":{payload}}}"#));
    }

    #[test]
    fn a_view_is_one_flat_object_and_survives_its_json() {
        let spec = TaskSpec {
            kind: "http".into(),
            payload: Some(Json::from_text(r#"{"n": 1.0}"#.into()).unwrap()),
            agent: "a".into(),
            lane: "main".into(),
            session: Some("s".into()),
            sent_at: None,
            priority: Priority::Low,
            rank: 2,
            depends_on: vec![Id(1)],
            on_dependency_failure: OnDependencyFailure::Cancel,
            dependency_timeout_ms: None,
            delay_ms: None,
            run_at: None,
            deadline: Some(Timestamp(1_763_243_731_042)),
            timeout_ms: 120_000,
            retry: RetrySpec {
                max_retries: 3,
                backoff_ms: 1000,
                multiplier: 2.0,
                max_backoff_ms: 60_000,
                jitter: 0.25,
                on: vec![Class::Task, Class::Lost],
            },
            resources: Resources { cpu: Some(1.0), named: [("licence".into(), 1)].into(), ..Resources::default() },
            limits: None,
            place: Place::default(),
            gates: vec!["api".into()],
            stall_ms: None,
            preemptible: true,
            ttl_ms: None,
            callback_url: None,
            metadata: None,
            tags: vec![],
            name: Some("n".into()),
            idempotency_key: None,
        };
        let status = TaskStatus {
            id: Id(7),
            state: TaskState::Failed,
            reason: "gave up".into(),
            lane_in_force: None,
            attempts: 4,
            retries_left: 0,
            worker: Some("embedded".into()),
            batch_id: None,
            retry_of: None,
            schedule: None,
            traceparent: None,
            merged: 2,
            steered_into: Some(Id(3)),
            usage: Some(UsageView { input_tokens: Some(1), context_window: Some(9), ..UsageView::default() }),
            result: Some(Json::from_text("[1,  2]".into()).unwrap()),
            error: Some(ErrorView { class: Class::Task, message: "exit 1".into() }),
            execution_ms: Some(12),
            progress: Some(Progress { fraction: Some(0.5), message: None }),
            exit: Some(ExitView {
                attempt: 4,
                exit_code: None,
                signal: Some("SIGKILL".into()),
                out_of_memory: false,
                cpu_seconds: 0.25,
                peak_rss_bytes: 4096,
                wall_ms: 12,
                ended_at: Timestamp(5),
            }),
            not_enforced: Vec::new(),
            created_at: Timestamp(1),
            queued_at: Some(Timestamp(2)),
            assigned_at: Some(Timestamp(3)),
            started_at: Some(Timestamp(4)),
            finished_at: Some(Timestamp(5)),
        };
        let page = ListPage { items: vec![TaskView { status, spec }], next_cursor: Some("9".into()) };
        let text = serde_json::to_string(&page).unwrap();
        assert!(text.contains(r#""result":[1,  2]"#), "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["items"][0]["state"], "failed");
        assert_eq!(value["items"][0]["timeoutMs"], 120_000);
        assert_eq!(serde_json::from_str::<ListPage<TaskView>>(&text).unwrap(), page);
    }
}
