//! Random but plausible input: configurations, workers, submissions, changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use runyard_core::config::{AgentConfig, Config, GateConfig, LaneConfig, PlacementConfig};
use runyard_core::event::{
    Asked, Change, HappeningKind, Idempotency, NewBatch, NewMember, NewTask, Refusal, SessionAct, Submission,
    SubmitMode, WorkerSpec,
};
use runyard_core::flow::{FlowKey, Place, Resources, Shape};
use runyard_core::ids::{BatchId, TaskId, Ticket, WorkerId};
use runyard_core::name::Name;
use runyard_core::now::Now;
use runyard_core::outbox::Hook;
use runyard_core::session::{Context, Mode, Overflow, SessionsConfig, Settings, Usage};
use runyard_core::task::{Class, OnDependencyFailure, Policy, Retry, Tier};

use crate::rng::Rng;

pub const AGENTS: [&str; 5] = ["ada", "bob", "cyd", "dan", "eve"];
pub const LANES: [&str; 4] = ["main", "side", "slow", "ghost"];
pub const KINDS: [&str; 3] = ["http", "process", "exotic"];
pub const GATES: [&str; 2] = ["api", "db"];
/// Few, so that messages meet in them.
pub const SESSIONS: [&str; 4] = ["chat:1", "chat:2", "team:1", "cron"];

/// What one seed draws from; small worlds meet their limits more often.
#[derive(Clone, Debug)]
pub struct Universe {
    pub n_agents: u64,
    pub n_lanes: u64,
    pub n_kinds: u64,
    /// Windows of a few entries, so that refills and spills happen all the time.
    pub is_tiny: bool,
    pub has_resources: bool,
    pub has_gates: bool,
    pub n_workers: u64,
    pub n_sessions: u64,
    /// Tasks in a hundred that belong to a session.
    pub in_session: u64,
    pub live_max: usize,
    pub n_schedules: u64,
}

impl Universe {
    pub fn draw(rng: &mut Rng) -> Universe {
        Universe {
            n_agents: rng.between(1, 5),
            n_lanes: rng.between(1, 4),
            n_kinds: rng.between(1, 3),
            is_tiny: rng.chance(60),
            has_resources: rng.chance(60),
            has_gates: rng.chance(50),
            n_workers: rng.between(1, 4),
            n_sessions: rng.between(1, 4),
            in_session: *rng.pick(&[0, 20, 60, 90]),
            live_max: *rng.pick(&[8, 20, 40, 80]),
            n_schedules: *rng.pick(&[0, 0, 2, 5]),
        }
    }
}

pub fn config(rng: &mut Rng, universe: &Universe) -> Config {
    let wide = rng.chance(30);
    let mut limit =
        |low: u64, high: u64| (if wide { 4 * rng.between(low, high) } else { rng.between(low, high) }) as u32;
    let (inflight, main, side, slow) = (limit(1, 12), limit(1, 6), limit(0, 4), limit(1, 3));
    let mut lanes = BTreeMap::new();
    lanes.insert(Name::new("main"), LaneConfig { limit: main.max(1), paused: rng.chance(3) });
    for (name, limit) in [("side", side), ("slow", slow)] {
        if rng.chance(70) {
            lanes.insert(Name::new(name), LaneConfig { limit, paused: rng.chance(5) });
        }
    }
    let tiny = |rng: &mut Rng, usual: u32| if universe.is_tiny { rng.below(5) as u32 } else { usual };
    Config {
        queued_max: if rng.chance(10) { rng.between(5, 30) } else { 1_000_000 },
        queued_per_agent_max: if rng.chance(10) { rng.between(3, 15) } else { 100_000 },
        inflight_max: inflight,
        inflight_per_agent_max: rng.chance(30).then(|| rng.between(1, 4) as u32),
        agents: agents(rng),
        lanes,
        kinds: KINDS.iter().filter(|_| rng.chance(25)).map(|kind| (Name::new(kind), 2)).collect(),
        gates: GATES.iter().map(|gate| (Name::new(gate), gate_config(rng))).collect(),
        sessions: sessions_config(rng),
        flows_max: 500_000,
        flows_per_agent_max: if rng.chance(5) { rng.between(2, 6) as u32 } else { 1000 },
        window_max: tiny(rng, 1000),
        dues_max: tiny(rng, 1000).max(1),
        aging_ms: *rng.pick(&[1500, 5000, 600_000]),
        aged_one_in: *rng.pick(&[2, 10]),
        preempted_max: 3,
        lost_max: 3,
        quota_max: *rng.pick(&[2, 100]),
        quota_wait_ms_max: 20_000,
        assign_timeout_ms: 1500,
        worker_offline_ms: 3000,
        worker_cooldown_ms: 2500,
        worker_forget_ms: u64::MAX / 4,
        workers_max: 16,
        placement: PlacementConfig::default(),
        rejections_per_hour_max: *rng.pick(&[2, 1000]),
        retention_ms: 30 * 24 * 3_600_000,
        hooks: if rng.chance(15) { vec![hook()] } else { Vec::new() },
        schedules_max: *rng.pick(&[2, 100, 100]),
        schedules_paused: rng.chance(8),
    }
}

/// Told of the ends of one agent's tasks.
fn hook() -> Hook {
    let ends = HappeningKind::ALL.into_iter().filter(|kind| kind.ends_a_task());
    Hook {
        name: Name::new("audit"),
        events: ends.fold(0, |bits, kind| bits | kind.bit()),
        agents: vec![Name::new(AGENTS[0])],
        lanes: Vec::new(),
        kinds: Vec::new(),
    }
}

/// What is left when every fault is over: everything is open, and nothing is paused but the schedules, which would go on
/// without end.
pub fn calm_config(config: &Config) -> Config {
    let mut calm = config.clone();
    calm.schedules_paused = true;
    calm.inflight_max = calm.inflight_max.max(2);
    calm.agents.values_mut().for_each(|agent| {
        agent.paused = false;
        agent.inflight_max = agent.inflight_max.map(|limit| limit.max(1));
    });
    calm.lanes.values_mut().for_each(|lane| {
        lane.paused = false;
        lane.limit = lane.limit.max(1);
    });
    calm.kinds.values_mut().for_each(|limit| *limit = (*limit).max(1));
    calm.gates.values_mut().for_each(|gate| {
        gate.inflight_max = gate.inflight_max.map(|limit| limit.max(1));
        gate.per_minute = gate.per_minute.map(|n| n.max(30));
    });
    calm
}

pub fn sessions_config(rng: &mut Rng) -> SessionsConfig {
    let mut config = SessionsConfig { context_milli: *rng.pick(&[600, 600, 250]), ..SessionsConfig::default() };
    if rng.chance(50) {
        config.defaults = settings(rng);
    }
    for lane in ["main", "side"] {
        if rng.chance(30) {
            config.lanes.insert(Name::new(lane), settings(rng));
        }
    }
    for pattern in ["chat:*", "*:1", "c*n"] {
        if rng.chance(30) {
            config.patterns.push((Name::new(pattern), settings(rng)));
        }
    }
    config
}

/// Each setting is given or not.
pub fn settings(rng: &mut Rng) -> Settings {
    Settings {
        mode: rng.chance(40).then(|| *rng.pick(&Mode::ALL)),
        cap: rng.chance(40).then(|| rng.between(1, 3) as u32),
        overflow: rng.chance(40).then(|| *rng.pick(&Overflow::ALL)),
        debounce_ms: rng.chance(30).then(|| *rng.pick(&[0, 60, 300, 1000])),
        wait_ms_max: rng.chance(20).then(|| *rng.pick(&[0, 100, 400, 2000])),
        max_concurrent: rng.chance(40).then(|| rng.between(1, 3) as u32),
    }
}

pub fn session_key(rng: &mut Rng, universe: &Universe) -> Name {
    Name::new(SESSIONS[rng.below(universe.n_sessions) as usize])
}

pub fn session_act(rng: &mut Rng) -> SessionAct {
    match rng.below(100) {
        0..=34 => SessionAct::Stop,
        35..=49 => SessionAct::StopAll,
        50..=59 => SessionAct::Reset,
        60..=84 => SessionAct::Set(settings(rng)),
        _ => SessionAct::Context(Context { tokens: rng.below(1000), window: *rng.pick(&[0, 1000]) }),
    }
}

pub fn usage(rng: &mut Rng) -> Option<Usage> {
    rng.chance(25).then(|| Usage {
        input_tokens: Some(rng.below(1000)),
        output_tokens: None,
        context_tokens: rng.chance(80).then(|| rng.below(1000)),
        context_window: rng.chance(90).then_some(1000),
    })
}

fn agents(rng: &mut Rng) -> BTreeMap<Name, AgentConfig> {
    let mut agents = BTreeMap::new();
    for name in AGENTS {
        if rng.chance(40) {
            let inflight_max = rng.chance(40).then(|| rng.between(0, 3) as u32);
            let weight = rng.between(1, 4) as u32;
            agents.insert(Name::new(name), AgentConfig { inflight_max, weight, paused: rng.chance(4) });
        }
    }
    agents
}

fn gate_config(rng: &mut Rng) -> GateConfig {
    GateConfig {
        inflight_max: rng.chance(50).then(|| rng.between(0, 3) as u32),
        per_minute: rng.chance(50).then(|| *rng.pick(&[0, 20, 60, 600])),
        burst: rng.below(4) as u32,
    }
}

pub fn workers(rng: &mut Rng, universe: &Universe) -> Vec<WorkerSpec> {
    (0..universe.n_workers).map(|n| worker(rng, n)).collect()
}

fn worker(rng: &mut Rng, n: u64) -> WorkerSpec {
    let embedded = n == 0;
    let kinds: Vec<Name> = KINDS.iter().filter(|_| embedded || rng.chance(70)).map(|kind| Name::new(kind)).collect();
    let gpu = (!embedded && rng.chance(50)).then(|| (Name::new("gpu"), 1));
    let cpu_milli = *rng.pick(&[2000, 4000, 8000]);
    WorkerSpec {
        id: WorkerId(u128::from(n) + 1),
        name: Name::from(format!("w{n}")),
        kinds,
        keeps: KINDS[..1].iter().filter(|_| embedded || rng.chance(30)).map(|kind| Name::new(kind)).collect(),
        capacity: Resources { cpu_milli, ram_mb: 4096, named: gpu.into_iter().collect() },
        parallel_max: (!embedded && rng.chance(50)).then(|| rng.between(1, 4) as u32),
        labels: if n == 1 { vec![(Name::new("zone"), Name::new("a"))] } else { Vec::new() },
        embedded,
    }
}

/// A worker that takes whatever the universe can ask for.
pub fn calm_worker() -> WorkerSpec {
    WorkerSpec {
        id: WorkerId(99),
        name: Name::new("calm"),
        kinds: KINDS.iter().map(|kind| Name::new(kind)).collect(),
        keeps: Vec::new(),
        capacity: Resources { cpu_milli: 16_000, ram_mb: 16_384, named: vec![(Name::new("gpu"), 2)] },
        parallel_max: None,
        labels: vec![(Name::new("zone"), Name::new("a"))],
        embedded: true,
    }
}

pub fn flow_key(rng: &mut Rng, universe: &Universe) -> FlowKey {
    let gates: Vec<Name> = match universe.has_gates && rng.chance(40) {
        true => GATES.iter().filter(|_| rng.chance(60)).map(|gate| Name::new(gate)).collect(),
        false => Vec::new(),
    };
    FlowKey {
        agent: Name::new(AGENTS[rng.below(universe.n_agents) as usize]),
        lane: Name::new(LANES[rng.below(universe.n_lanes) as usize]),
        tier: *rng.pick(&[Tier::Critical, Tier::High, Tier::Normal, Tier::Normal, Tier::Low]),
        shape: Shape {
            kind: Name::new(KINDS[rng.below(universe.n_kinds) as usize]),
            resources: if universe.has_resources { resources(rng) } else { Resources::default() },
            place: place(rng),
        },
        gates,
    }
}

fn resources(rng: &mut Rng) -> Resources {
    let cpu_milli = *rng.pick(&[0, 0, 0, 500, 1000, 2000, 4000]);
    let named = rng.chance(5).then(|| (Name::new("gpu"), 1)).into_iter().collect();
    Resources { cpu_milli, ram_mb: if cpu_milli > 0 { 256 } else { 0 }, named }
}

fn place(rng: &mut Rng) -> Place {
    let zone = || vec![(Name::new("zone"), Name::new("a"))];
    match rng.below(30) {
        0 => Place { require: zone(), ..Place::default() },
        1 => Place { prefer: zone(), ..Place::default() },
        2 => Place { avoid: zone(), ..Place::default() },
        _ => Place::default(),
    }
}

pub fn policy(rng: &mut Rng, tier: Tier) -> Policy {
    let classes = [Class::Task, Class::Timeout, Class::Lost, Class::Quota];
    let on = match rng.chance(80) {
        true => Retry::default().on,
        false => classes.iter().filter(|_| rng.chance(50)).map(|class| class.bit()).sum(),
    };
    Policy {
        timeout_ms: *rng.pick(&[500, 2000, 20_000]),
        retry: Retry {
            max_retries: rng.below(4) as u32,
            backoff_ms: *rng.pick(&[0, 50, 1000]),
            multiplier_milli: *rng.pick(&[1000, 2000]),
            backoff_ms_max: 10_000,
            jitter_milli: *rng.pick(&[0, 250, 1000]),
            on,
        },
        on_dependency_failure: *rng.pick(&[
            OnDependencyFailure::Cancel,
            OnDependencyFailure::Fail,
            OnDependencyFailure::Run,
        ]),
        preemptible: tier == Tier::Low || rng.chance(30),
        stall_ms: rng.chance(10).then(|| rng.between(300, 3000)),
        ttl_ms: None,
        takes_input: rng.chance(40),
        calls_back: rng.chance(30),
    }
}

/// Ids, keys and parents to draw from.
pub struct Pool<'a> {
    pub now: Now,
    pub ticket: u64,
    pub parents: &'a [TaskId],
    /// What runs, with the key of its session.
    pub held: &'a [(TaskId, Option<Name>)],
    pub keys: &'a [Idempotency],
}

pub fn submission(rng: &mut Rng, universe: &Universe, pool: &Pool<'_>) -> Submission {
    let ticket = Ticket(pool.ticket);
    if rng.chance(70) {
        let item = item(rng, universe, pool, &[]);
        let idempotency = key(rng, pool, &item.flow.agent, item.id.0 as u64);
        return Submission {
            ticket,
            batch: None,
            mode: SubmitMode::All,
            items: vec![item],
            idempotency,
            asked: Asked::Once,
        };
    }
    let n_items = rng.between(1, 8);
    let mut items: Vec<NewTask> = Vec::new();
    for _ in 0..n_items {
        let siblings: Vec<TaskId> = items.iter().map(|item| item.id).collect();
        let mut next = item(rng, universe, pool, &siblings);
        next.idempotency = key(rng, pool, &next.flow.agent, next.id.0 as u64);
        items.push(next);
    }
    let mode = if rng.chance(50) { SubmitMode::All } else { SubmitMode::Partial };
    if mode == SubmitMode::Partial && rng.chance(20) {
        let at = rng.below(n_items) as usize;
        let refusal =
            Refusal::Invalid { code: "invalid".into(), field: "kind".into(), message: "refused by the edge".into() };
        items[at].refused = Some(refusal);
    }
    let parallelism = rng.chance(60).then(|| rng.between(1, 3) as u32);
    let batch =
        NewBatch { id: BatchId(rng.id()), parallelism, calls_back: rng.chance(40), spec: b"batch".as_slice().into() };
    let agent = items[0].flow.agent.clone();
    let idempotency = key(rng, pool, &agent, batch.id.0 as u64);
    Submission { ticket, batch: Some(batch), mode, items, idempotency, asked: Asked::Once }
}

fn item(rng: &mut Rng, universe: &Universe, pool: &Pool<'_>, siblings: &[TaskId]) -> NewTask {
    let mut flow = flow_key(rng, universe);
    let id = TaskId(rng.id());
    let mut depends_on: Vec<TaskId> = Vec::new();
    let has_parents = rng.chance(if siblings.is_empty() { 15 } else { 40 });
    for _ in 0..if has_parents { rng.between(1, 3) } else { 0 } {
        let parents = if !siblings.is_empty() && rng.chance(80) { siblings } else { pool.parents };
        if !parents.is_empty() {
            depends_on.push(*rng.pick(parents));
        }
    }
    // A parent nobody knows is waited for; only a timeout or the deadline ends that.
    let is_orphan = rng.one_in(60);
    if is_orphan {
        depends_on.push(TaskId(rng.id()));
    }
    let dependency_timeout_ms = (is_orphan || rng.chance(10)).then(|| rng.between(100, 20_000));
    let deadline = rng.chance(15).then(|| pool.now.wall_ms + rng.between(1, 8000));
    let session = rng.chance(universe.in_session).then(|| member(rng, universe, pool.now));
    if let Some(member) = session.as_ref().filter(|_| rng.chance(70)) {
        flow = flow_of_session(universe, &member.key);
        // Most messages come to be answered, not to wait for others.
        depends_on.truncate(usize::from(rng.chance(20)));
    }
    let run_at = rng.chance(5).then(|| (pool.now.wall_ms + rng.below(6000)).saturating_sub(1000));
    let mut item = NewTask {
        id,
        rank: if rng.chance(30) { rng.below(7) as i32 - 3 } else { 0 },
        policy: policy(rng, flow.tier),
        run_at,
        delay_ms: (run_at.is_none() && rng.chance(8)).then(|| rng.below(5000)),
        deadline,
        dependency_timeout_ms,
        depends_on,
        session,
        steers: None,
        origin: None,
        spec: Arc::from(id.0.to_le_bytes().as_slice()),
        refused: None,
        idempotency: None,
        flow,
    };
    if universe.in_session > 0 && siblings.is_empty() && !pool.held.is_empty() && rng.chance(8) {
        steer(&mut item, rng.pick(pool.held));
    }
    item
}

fn member(rng: &mut Rng, universe: &Universe, now: Now) -> NewMember {
    NewMember {
        key: session_key(rng, universe),
        settings: if rng.chance(20) { settings(rng) } else { Settings::default() },
        as_mode: rng.chance(15).then(|| *rng.pick(&Mode::ALL)),
        sent_at: rng.chance(30).then(|| {
            let sent_at = (now.wall_ms + 300).saturating_sub(rng.below(2000));
            if rng.chance(30) { sent_at / 1000 * 1000 } else { sent_at }
        }),
    }
}

/// Where most messages of a session go: only those of one agent, lane and kind merge.
fn flow_of_session(universe: &Universe, key: &Name) -> FlowKey {
    let n = SESSIONS.iter().position(|other| *other == key.as_str()).unwrap_or(0) as u64;
    let shape = Shape { kind: Name::new("http"), resources: Resources::default(), place: Place::default() };
    FlowKey {
        agent: Name::new(AGENTS[(n % universe.n_agents) as usize]),
        lane: Name::new("main"),
        tier: Tier::Normal,
        shape,
        gates: Vec::new(),
    }
}

/// A message for a running task, as the API makes it: a follow-up in the same session, or one that waits for its end.
fn steer(item: &mut NewTask, (target, key): &(TaskId, Option<Name>)) {
    item.steers = Some(*target);
    item.session = key.clone().map(|key| NewMember {
        key,
        settings: Settings::default(),
        as_mode: Some(Mode::Followup),
        sent_at: None,
    });
    if item.session.is_none() {
        item.depends_on = vec![*target];
        item.policy.on_dependency_failure = OnDependencyFailure::Run;
    }
}

/// Mostly none, sometimes a new one, sometimes one that was used before: with the same body, or with another.
fn key(rng: &mut Rng, pool: &Pool<'_>, agent: &Name, hash: u64) -> Option<Idempotency> {
    match rng.below(20) {
        0 => Some(Idempotency { agent: agent.clone(), key: Name::from(format!("k{hash}")), hash }),
        1 if !pool.keys.is_empty() => Some(rng.pick(pool.keys).clone()),
        2 if !pool.keys.is_empty() && rng.chance(30) => Some(Idempotency { hash, ..rng.pick(pool.keys).clone() }),
        _ => None,
    }
}

pub fn change(rng: &mut Rng, now: Now) -> Change {
    let wall_ms = now.wall_ms;
    Change {
        tier: rng.chance(40).then(|| *rng.pick(&Tier::ALL)),
        rank: rng.chance(40).then(|| rng.below(9) as i32 - 4),
        deadline: rng.chance(30).then(|| rng.chance(70).then(|| wall_ms + rng.below(5000))),
        run_at: rng.chance(25).then(|| (wall_ms + rng.below(4000)).saturating_sub(1000)),
    }
}
