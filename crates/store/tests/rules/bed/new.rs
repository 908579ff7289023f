//! What is submitted, and what the bed is set up with, told in as few words as a test needs.

use runyard_core::config::{AgentConfig, GateConfig, LaneConfig};
use runyard_core::event::{Idempotency, NewMember, NewTask, Refusal, SubmitMode, WorkerSpec};
use runyard_core::flow::{FlowKey, Place, Resources, Shape};
use runyard_core::ids::{TaskId, WorkerId};
use runyard_core::name::Name;
use runyard_core::session::{Mode, Overflow, Settings};
use runyard_core::task::{OnDependencyFailure, Policy, Retry, Tier};

use super::{DAY, blob};

#[derive(Clone)]
pub struct New(pub NewTask);

/// A task of this agent with every default, of a kind that needs no resources.
pub fn task(agent: &str) -> New {
    let shape = Shape { kind: "http".into(), resources: Resources::default(), place: Place::default() };
    let flow = FlowKey { agent: agent.into(), lane: "main".into(), tier: Tier::Normal, shape, gates: Vec::new() };
    let policy = Policy { retry: Retry { jitter_milli: 0, ..Retry::default() }, ..Policy::default() };
    New(NewTask { policy, ..NewTask::new(TaskId(0), flow, blob("a task")) })
}

/// A task of agent `a` that belongs to this session.
pub fn message(key: &str) -> New {
    task("a").session(key)
}

impl New {
    pub fn with(mut self, change: impl FnOnce(&mut NewTask)) -> New {
        change(&mut self.0);
        self
    }

    pub fn id(self, id: TaskId) -> New {
        self.with(|new| new.id = id)
    }

    pub fn tier(self, tier: Tier) -> New {
        self.with(|new| new.flow.tier = tier)
    }

    pub fn calls_back(self) -> New {
        self.with(|new| new.policy.calls_back = true)
    }

    pub fn rank(self, rank: i32) -> New {
        self.with(|new| new.rank = rank)
    }

    pub fn lane(self, lane: &str) -> New {
        self.with(|new| new.flow.lane = lane.into())
    }

    pub fn kind(self, kind: &str) -> New {
        self.with(|new| new.flow.shape.kind = kind.into())
    }

    pub fn gate(self, gate: &str) -> New {
        self.with(|new| new.flow.gates.push(gate.into()))
    }

    pub fn cpu(self, cpu_milli: u32) -> New {
        self.with(|new| new.flow.shape.resources.cpu_milli = cpu_milli)
    }

    pub fn ram(self, ram_mb: u32) -> New {
        self.with(|new| new.flow.shape.resources.ram_mb = ram_mb)
    }

    pub fn named(self, name: &str, n: u32) -> New {
        self.with(|new| new.flow.shape.resources.named.push((name.into(), n)))
    }

    pub fn require(self, key: &str, value: &str) -> New {
        self.with(|new| new.flow.shape.place.require.push((key.into(), value.into())))
    }

    pub fn prefer(self, key: &str, value: &str) -> New {
        self.with(|new| new.flow.shape.place.prefer.push((key.into(), value.into())))
    }

    pub fn avoid(self, key: &str, value: &str) -> New {
        self.with(|new| new.flow.shape.place.avoid.push((key.into(), value.into())))
    }

    pub fn after(self, parents: &[TaskId]) -> New {
        self.with(|new| new.depends_on.extend(parents))
    }

    pub fn on_dependency_failure(self, mode: OnDependencyFailure) -> New {
        self.with(|new| new.policy.on_dependency_failure = mode)
    }

    pub fn dependency_timeout_ms(self, ms: u64) -> New {
        self.with(|new| new.dependency_timeout_ms = Some(ms))
    }

    pub fn delay_ms(self, ms: u64) -> New {
        self.with(|new| new.delay_ms = Some(ms))
    }

    pub fn run_at(self, wall_ms: u64) -> New {
        self.with(|new| new.run_at = Some(wall_ms))
    }

    pub fn deadline(self, wall_ms: u64) -> New {
        self.with(|new| new.deadline = Some(wall_ms))
    }

    pub fn timeout_ms(self, ms: u64) -> New {
        self.with(|new| new.policy.timeout_ms = ms)
    }

    /// It may run for as long as the test needs it to.
    pub fn long(self) -> New {
        self.timeout_ms(DAY)
    }

    pub fn stall_ms(self, ms: u64) -> New {
        self.with(|new| new.policy.stall_ms = Some(ms))
    }

    pub fn ttl_ms(self, ms: u64) -> New {
        self.with(|new| new.policy.ttl_ms = Some(ms))
    }

    pub fn preemptible(self) -> New {
        self.with(|new| new.policy.preemptible = true)
    }

    pub fn max_retries(self, n: u32) -> New {
        self.with(|new| new.policy.retry.max_retries = n)
    }

    pub fn retry(self, change: impl FnOnce(&mut Retry)) -> New {
        self.with(|new| change(&mut new.policy.retry))
    }

    pub fn session(self, key: &str) -> New {
        let member = NewMember { key: key.into(), settings: Settings::default(), as_mode: None, sent_at: None };
        self.with(|new| new.session = Some(member))
    }

    pub fn member(self, change: impl FnOnce(&mut NewMember)) -> New {
        self.with(|new| change(new.session.as_mut().expect("the task belongs to a session")))
    }

    /// Settings that come with the message and stick to its session.
    pub fn mode(self, mode: Mode) -> New {
        self.member(|member| member.settings.mode = Some(mode))
    }

    pub fn cap(self, cap: u32) -> New {
        self.member(|member| member.settings.cap = Some(cap))
    }

    pub fn overflow(self, overflow: Overflow) -> New {
        self.member(|member| member.settings.overflow = Some(overflow))
    }

    pub fn debounce_ms(self, ms: u64) -> New {
        self.member(|member| member.settings.debounce_ms = Some(ms))
    }

    pub fn wait_ms_max(self, ms: u64) -> New {
        self.member(|member| member.settings.wait_ms_max = Some(ms))
    }

    pub fn max_concurrent(self, n: u32) -> New {
        self.member(|member| member.settings.max_concurrent = Some(n))
    }

    /// For this message only.
    pub fn only_as(self, mode: Mode) -> New {
        self.member(|member| member.as_mode = Some(mode))
    }

    pub fn sent_at(self, wall_ms: u64) -> New {
        self.member(|member| member.sent_at = Some(wall_ms))
    }

    /// Its executor hands further messages to it while it runs.
    pub fn takes_input(self) -> New {
        self.with(|new| new.policy.takes_input = true)
    }

    /// It is meant for this running task.
    pub fn steers(self, target: TaskId) -> New {
        self.with(|new| new.steers = Some(target))
    }

    pub fn says(self, words: &str) -> New {
        self.with(|new| new.spec = blob(words))
    }

    /// The key of an item of a batch.
    pub fn key(self, key: &str, hash: u64) -> New {
        self.with(|new| new.idempotency = Some(Idempotency { agent: new.flow.agent.clone(), key: key.into(), hash }))
    }

    /// The edge found it wrong before it came here.
    pub fn invalid(self) -> New {
        let refusal =
            Refusal::Invalid { code: "invalid".into(), field: "payload.url".into(), message: "no url".into() };
        self.with(|new| new.refused = Some(refusal))
    }
}

pub struct NewBatchOf {
    pub mode: SubmitMode,
    pub parallelism: Option<u32>,
    pub key: Option<Idempotency>,
    pub calls_back: bool,
    pub items: Vec<New>,
}

pub fn batch(items: impl IntoIterator<Item = New>) -> NewBatchOf {
    let items = items.into_iter().collect();
    NewBatchOf { mode: SubmitMode::All, parallelism: None, key: None, calls_back: false, items }
}

impl NewBatchOf {
    pub fn calls_back(self) -> NewBatchOf {
        NewBatchOf { calls_back: true, ..self }
    }

    pub fn partial(self) -> NewBatchOf {
        NewBatchOf { mode: SubmitMode::Partial, ..self }
    }

    pub fn parallelism(self, n: u32) -> NewBatchOf {
        NewBatchOf { parallelism: Some(n), ..self }
    }

    pub fn key(self, agent: &str, key: &str, hash: u64) -> NewBatchOf {
        NewBatchOf { key: Some(Idempotency { agent: agent.into(), key: key.into(), hash }), ..self }
    }
}

/// An embedded worker with more room than any test uses.
pub fn worker(id: WorkerId) -> WorkerSpec {
    WorkerSpec {
        id,
        name: Name::from(format!("worker-{}", id.0)),
        kinds: vec!["http".into(), "process".into()],
        keeps: Vec::new(),
        capacity: Resources { cpu_milli: 1_000_000, ram_mb: 1_000_000, named: Vec::new() },
        parallel_max: None,
        labels: Vec::new(),
        embedded: true,
    }
}

pub fn lane(limit: u32) -> LaneConfig {
    LaneConfig { limit, paused: false }
}

pub fn agent(inflight_max: Option<u32>, weight: u32) -> AgentConfig {
    AgentConfig { inflight_max, weight, paused: false }
}

pub fn named_gate(inflight_max: Option<u32>, per_minute: Option<u32>, burst: u32) -> GateConfig {
    GateConfig { inflight_max, per_minute, burst }
}
