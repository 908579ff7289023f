//! Every key there is. The comments here are the documentation: the JSON schema and the commented default file are
//! generated from them.

mod autoscale;
mod docker;
mod lane;
mod process;
mod schedules;
mod sessions;
mod store;
mod workers;

use std::collections::BTreeMap;

use runyard_core::task::Tier;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::edge::{Exec, RateLimit, Secret, ServerLimits, Tls};
use super::outbound::{Outbound, Webhook};
use super::telemetry::Telemetry;

pub use autoscale::Autoscale;
pub use docker::{Docker, DockerEnabled, DockerLimits};
pub use lane::Lane;
pub use process::{Process, ProcessLimits, Sandbox, Uploads, WorkDir};
pub use schedules::Schedules;
pub use sessions::{SessionPattern, SessionSettings, Sessions};
pub use store::{Durability, Nodes, Store};
pub use workers::{Placement, Weights, Workers};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// Where and how the server listens.
    pub server: Server,
    /// What the server writes to its log.
    pub log: Log,
    /// How tasks are stored.
    pub store: Store,
    /// This server as one of several on one PostgreSQL database.
    pub nodes: Nodes,
    /// The worker inside the server.
    pub worker: Worker,
    /// Workers on other machines, and how one is chosen. The server's own has the same heartbeat.
    pub workers: Workers,
    /// Who is told that work finds no worker, or workers no work.
    pub autoscale: Autoscale,
    /// What processes get that do not say otherwise, and how much they may bring and leave. Read at each start.
    pub process: Process,
    /// Containers: on which engine, with which limits, and what tasks may ask for. Read at each start, but for `enabled`;
    /// their working directories are as `[process]` says.
    pub docker: Docker,
    /// Files that are handed in for tasks to come: `PUT /v1/uploads`.
    pub uploads: Uploads,
    /// How much may wait and how much may run.
    pub limits: Limits,
    /// What a task gets that does not say otherwise. `[agents.NAME]` and `[kinds.NAME]` may say it more narrowly: a
    /// task's own value wins, then its agent's, then its kind's, then these.
    pub defaults: Defaults,
    /// How long finished work stays readable.
    pub retention: Retention,
    /// Who is next, and when patience ends. The defaults are right for nearly everyone.
    pub scheduling: Scheduling,
    /// Named pools with a limit on how many of their tasks run at once: `NAME = limit`, or `NAME = { limit, paused }`.
    /// A task of an unknown lane runs in `main`.
    pub lanes: BTreeMap<String, Lane>,
    /// Whose work it is: limits and defaults of single agents.
    pub agents: BTreeMap<String, Agent>,
    /// Limits and defaults of single kinds.
    pub kinds: BTreeMap<String, Kind>,
    /// Gates that tasks name to share a limit, such as the rate of one provider.
    pub gates: BTreeMap<String, Gate>,
    /// What a session gets that does not say otherwise. A session's own settings win, then those of the patterns its key
    /// matches (a later one over an earlier one), then its lane's, then these.
    pub sessions: Sessions,
    /// Tasks at times: see `POST /v1/schedules`.
    pub schedules: Schedules,
    /// What tasks that run programs may run, beyond needing a key with scope `exec`.
    pub exec: Exec,
    /// Secrets that tasks refer to as `secret://NAME`, from the environment or from files. Others are kept with
    /// `runyard secret set`.
    pub secrets: BTreeMap<String, Secret>,
    /// What the server may call on behalf of others.
    pub outbound: Outbound,
    /// Who is told of what happens, beside those who asked with their task (callbackUrl).
    pub webhooks: BTreeMap<String, Webhook>,
    /// Traces of what the server did, for a collector.
    pub telemetry: Telemetry,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Server {
    /// Address and port. Anything but loopback is reachable by others: keys are then the only lock.
    pub listen: String,
    /// How long a stopping server waits for work in progress before it hands the rest back to the queue.
    pub drain_ms: u64,
    /// Further host names under which clients may reach this server, beside loopback and the listen address.
    pub allowed_hosts: Vec<String>,
    /// Addresses or networks of proxies in front of this server. What they say in X-Forwarded-For is believed.
    pub trusted_proxies: Vec<String>,
    /// How often clients may ask. Beyond it: 429, with Retry-After.
    pub rate_limit: RateLimit,
    /// How much a client may hold open, and how slow it may be.
    pub limits: ServerLimits,
    /// HTTPS.
    pub tls: Tls,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Log {
    /// `text` for people, `json` for machines.
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `warn,runyard::task=info`.
    pub level: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Worker {
    /// Cores it offers to tasks that reserve some. Not set: four for each core of the machine, because agents' work
    /// mostly waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 8.0)]
    pub cpu: Option<f64>,
    /// Memory it offers to tasks that reserve some, in MiB. Not set: all of the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 16384)]
    pub ram_mb: Option<u32>,
    /// How long a task that was asked to stop may take before it is killed.
    pub grace_ms: GraceMs,
    /// How often the supervisor of a process says in its lease file that it is alive. One that has missed three and does
    /// not answer is killed with everything it runs, and its task is lost.
    pub heartbeat_ms: HeartbeatMs,
}

/// Its own type only for its own default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct GraceMs(pub u64);

/// Its own type only for its own default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct HeartbeatMs(pub u64);

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Limits {
    /// Tasks that have not started, over all agents. A submit beyond it is answered with 429.
    pub max_queued: u64,
    /// Tasks of one agent that have not started.
    pub max_queued_per_agent: u64,
    /// Tasks that run at once, over everything.
    pub max_inflight: u32,
    /// Tasks of one agent that run at once. Not set: no limit of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 10)]
    pub max_inflight_per_agent: Option<u32>,
    /// Different combinations of agent, lane, tier, kind, resources, place and gates with unfinished tasks.
    pub max_flows: u32,
    /// The same for one agent.
    pub max_flows_per_agent: u32,
    /// Rejections recorded for one agent in an hour; the counters count all of them.
    pub max_rejections_per_hour: u32,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Defaults {
    /// How long one attempt may take.
    pub timeout_ms: u64,
    /// The longest timeoutMs a task may ask for.
    pub timeout_ms_max: u64,
    /// What happens after a failed attempt.
    pub retry: Retry,
}

/// What happens after a failed attempt. What is not set comes from the next wider place.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Retry {
    /// Attempts after the first one: 3 means at most four runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// The wait before the first retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_ms: Option<u64>,
    /// Each further wait is so many times the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiplier: Option<f64>,
    /// The longest wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_backoff_ms: Option<u64>,
    /// The part of the wait that it may vary by, to either side: 0.0 to 1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
    /// Failure classes that are retried: task, timeout, lost, quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Vec<RetryClass>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RetryClass {
    Task,
    Timeout,
    Lost,
    Quota,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Retention {
    /// Finished tasks, with results, logs and files; a task's own ttlMs wins. 30 days.
    pub tasks_ms: u64,
    /// The event log behind `GET /v1/events`. 24 hours.
    pub events_ms: u64,
    /// The event log is also cut at this size. 1 GiB.
    pub events_bytes_max: u64,
    /// Webhook messages that are delivered or given up, with their tries. 7 days.
    pub deliveries_ms: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Scheduling {
    /// A task that has been queued so long competes one tier higher, and one more for each further such time.
    pub aging_ms: u64,
    /// At most one start in so many goes to an aged task.
    pub aged_one_in: u32,
    /// How often one task may be stopped in favour of a critical one.
    pub max_preempted: u32,
    /// How often the worker of one task may vanish before the task fails.
    pub max_lost: u32,
    /// How often one task may be put off by a provider's limit before it fails.
    pub max_quota: u32,
    /// The longest single wait for a provider's limit.
    pub quota_wait_ms_max: u64,
    /// Queued tasks kept in memory beyond the first of each flow; the rest waits in the store.
    pub window_max: u32,
    /// Due times (delays, deadlines) kept in memory for each clock.
    pub dues_max: u32,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Agent {
    /// Tasks of this agent that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 10)]
    pub max_inflight: Option<u32>,
    /// Its share: an agent of weight 2 gets twice the running tasks of one of weight 1. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 2)]
    pub weight: Option<u32>,
    /// The highest priority its tasks get; a higher one asked for is lowered to this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = Priority::High)]
    pub max_priority: Option<Priority>,
    /// Nothing of it starts while this is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = true)]
    pub paused: Option<bool>,
    /// How long one attempt of its tasks may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 120_000)]
    pub timeout_ms: Option<u64>,
    /// What happens after a failed attempt of its tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Kind {
    /// Tasks of this kind that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 10)]
    pub max_inflight: Option<u32>,
    /// How long one attempt of this kind may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 120_000)]
    pub timeout_ms: Option<u64>,
    /// What happens after a failed attempt of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Gate {
    /// Tasks behind this gate that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 10)]
    pub max_inflight: Option<u32>,
    /// Starts in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 60)]
    pub per_minute: Option<u32>,
    /// How many may start at once before the rate binds. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 5)]
    pub burst: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Priority {
    Critical,
    High,
    Normal,
    Low,
}

impl From<Priority> for Tier {
    fn from(priority: Priority) -> Tier {
        match priority {
            Priority::Critical => Tier::Critical,
            Priority::High => Tier::High,
            Priority::Normal => Tier::Normal,
            Priority::Low => Tier::Low,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        let core = runyard_core::config::Config::default();
        let lanes = core.lanes.iter().map(|(name, lane)| (name.to_string(), Lane { limit: lane.limit, paused: false }));
        Config {
            server: Server::default(),
            log: Log { format: LogFormat::Text, level: "info".into() },
            store: Store::default(),
            nodes: Nodes::default(),
            worker: Worker::default(),
            process: Process::default(),
            docker: Docker::default(),
            uploads: Uploads::default(),
            limits: Limits::default(),
            defaults: Defaults::default(),
            retention: Retention::default(),
            scheduling: Scheduling::default(),
            lanes: lanes.collect(),
            agents: BTreeMap::new(),
            kinds: BTreeMap::new(),
            gates: BTreeMap::new(),
            sessions: Sessions::default(),
            schedules: Schedules::default(),
            workers: Workers::default(),
            autoscale: Autoscale::default(),
            exec: Exec::default(),
            secrets: BTreeMap::new(),
            outbound: Outbound::default(),
            webhooks: BTreeMap::new(),
            telemetry: Telemetry::default(),
        }
    }
}

impl Default for Server {
    fn default() -> Self {
        Server {
            listen: "127.0.0.1:7340".into(),
            drain_ms: 10_000,
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            rate_limit: RateLimit::default(),
            limits: ServerLimits::default(),
            tls: Tls::default(),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Config::default().log
    }
}

impl Default for HeartbeatMs {
    fn default() -> Self {
        HeartbeatMs(15_000)
    }
}

impl Default for GraceMs {
    fn default() -> Self {
        GraceMs(5000)
    }
}

impl Default for Limits {
    fn default() -> Self {
        let core = runyard_core::config::Config::default();
        Limits {
            max_queued: core.queued_max,
            max_queued_per_agent: core.queued_per_agent_max,
            max_inflight: core.inflight_max,
            max_inflight_per_agent: core.inflight_per_agent_max,
            max_flows: core.flows_max,
            max_flows_per_agent: core.flows_per_agent_max,
            max_rejections_per_hour: core.rejections_per_hour_max,
        }
    }
}

impl Default for Defaults {
    fn default() -> Self {
        let core = runyard_core::task::Retry::default();
        let retry = Retry {
            max_retries: Some(core.max_retries),
            backoff_ms: Some(core.backoff_ms),
            multiplier: Some(f64::from(core.multiplier_milli) / 1000.0),
            max_backoff_ms: Some(core.backoff_ms_max),
            jitter: Some(f64::from(core.jitter_milli) / 1000.0),
            on: Some(vec![RetryClass::Task, RetryClass::Timeout, RetryClass::Lost, RetryClass::Quota]),
        };
        Defaults { timeout_ms: 120_000, timeout_ms_max: DAY_MS, retry }
    }
}

impl Default for Retention {
    fn default() -> Self {
        let core = runyard_core::config::Config::default();
        Retention {
            tasks_ms: core.retention_ms,
            events_ms: DAY_MS,
            events_bytes_max: 1 << 30,
            deliveries_ms: 7 * DAY_MS,
        }
    }
}

impl Default for Scheduling {
    fn default() -> Self {
        let core = runyard_core::config::Config::default();
        Scheduling {
            aging_ms: core.aging_ms,
            aged_one_in: core.aged_one_in,
            max_preempted: core.preempted_max,
            max_lost: core.lost_max,
            max_quota: core.quota_max,
            quota_wait_ms_max: core.quota_wait_ms_max,
            window_max: core.window_max,
            dues_max: core.dues_max,
        }
    }
}

const DAY_MS: u64 = 24 * 3_600_000;
