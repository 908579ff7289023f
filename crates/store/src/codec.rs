//! How rows become bytes. Everything that no index and no filter looks at is packed into one blob for each row: binding
//! one blob is several times cheaper than binding thirty columns, and a task's row stays near 100 bytes.
//!
//! Each blob begins with a version byte. Numbers are varints, moments are differences to the row's first moment, and
//! what is usual costs one bit. Reading is total: bytes that make no sense give `None`, never a panic and never a guess.

mod delivery;
mod happening;
mod receipt;
mod release;
mod schedule;
mod session;
mod worker;

use std::borrow::Cow;

use runyard_core::batch::Batch;
use runyard_core::event::FirstAnswer;
use runyard_core::flow::FlowKey;
use runyard_core::ids::{BatchId, FlowId, ScheduleId, TaskId, Token, WorkerId};
use runyard_core::name::Name;
use runyard_core::now::WallMs;
use runyard_core::schedule::Origin;
use runyard_core::task::{
    Class, Delay, Failure, Lease, OnDependencyFailure, Phase, Policy, Retry, State, Stop, Task, Text, Tier, Wait,
};
use runyard_core::trail::Trail;

pub use delivery::{decode_delivery_body, decode_progress, encode_delivery_body, encode_progress};
pub use happening::{decode_happenings, encode_happenings};
pub use release::{ReleaseColumns, decode_release, encode_release};
pub use schedule::{
    RunPlace, cause_code, cause_of, decode_run_body, decode_schedule_body, decode_template, encode_run_body,
    encode_schedule_body, encode_template,
};
pub use session::{MessagePlace, decode_message_body, decode_session_body, encode_message_body, encode_session_body};
use session::{put_member, put_usage};
pub use worker::{decode_worker, encode_worker};

const VERSION: u8 = 1;

/// The part of a task's row that stands in columns of its own, because an index or a guard reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskColumns {
    pub id: TaskId,
    pub seq: u64,
    pub flow: FlowId,
    pub rank: i32,
    pub batch: Option<BatchId>,
    pub attempt: u32,
}

impl TaskColumns {
    pub fn of(task: &Task) -> TaskColumns {
        let Task { id, seq, flow, rank, batch, attempt, .. } = *task;
        TaskColumns { id, seq, flow, rank, batch, attempt }
    }
}

/// All of a task that is not in [`TaskColumns`]. `out` is cleared first.
pub fn encode_task_body(task: &Task, out: &mut Vec<u8>) {
    out.clear();
    out.push(VERSION);
    put_state(out, &task.state);
    put_varint(out, u64::from(task_flags(task)));
    put_varint(out, task.created_at);
    for at in task_moments(task).into_iter().flatten() {
        put_since(out, task.created_at, at);
    }
    put_varint(out, u64::from(task.n_runs));
    if task_counters(task) != [0; 5] {
        task_counters(task).into_iter().for_each(|n| put_varint(out, u64::from(n)));
    }
    if task.policy != USUAL_POLICY {
        put_policy(out, &task.policy);
    }
    if let Some(worker) = task.worker {
        put_u128(out, worker.0);
    }
    if !task.reason.is_empty() {
        put_text(out, &task.reason);
    }
    if let Some(error) = &task.error {
        out.push(error.class as u8);
        put_text(out, &error.message);
    }
    if let Some(member) = &task.member {
        put_member(out, task.seq, member);
    }
    if let Some(target) = task.steers {
        put_u128(out, target.0);
    }
    if let Some(usage) = &task.usage {
        put_usage(out, usage);
    }
    if let Some(Origin { schedule, run }) = task.origin {
        put_u128(out, schedule.0);
        put_varint(out, run);
    }
    if !task.failed_on.is_empty() {
        put_varint(out, task.failed_on.len() as u64);
        task.failed_on.iter().for_each(|worker| put_u128(out, worker.0));
    }
    // Last and without a length: most of the body of a task with a history.
    out.extend_from_slice(task.trail.as_bytes());
}

pub fn decode_task_body(columns: TaskColumns, body: &[u8]) -> Option<Task> {
    let mut cut = Cut::versioned(body)?;
    let state = cut.state()?;
    let flags = u32::try_from(cut.varint()?).ok()?;
    let has = |flag: u32| flags & flag != 0;
    let created_at = cut.varint()?;
    let mut moment = |flag: u32| if has(flag) { cut.since(created_at).map(Some) } else { Some(None) };
    let run_at = moment(HAS_RUN_AT)?;
    let deadline = moment(HAS_DEADLINE)?;
    let dependency_deadline = moment(HAS_DEPENDENCY_DEADLINE)?;
    let queued_at = moment(HAS_QUEUED_AT)?;
    let assigned_at = moment(HAS_ASSIGNED_AT)?;
    let started_at = moment(HAS_STARTED_AT)?;
    let finished_at = moment(HAS_FINISHED_AT)?;
    let n_runs = cut.u32()?;
    let counters = if has(HAS_COUNTERS) { cut.counters()? } else { [0; 5] };
    let [retries_used, n_lost, n_quota, n_preempted, n_deps_open] = counters;
    let policy = if has(HAS_POLICY) { cut.policy()? } else { USUAL_POLICY };
    let worker = if has(HAS_WORKER) { Some(WorkerId(cut.u128()?)) } else { None };
    let reason = if has(HAS_REASON) { cut.text()? } else { Cow::Borrowed("") };
    let error = if has(HAS_ERROR) { Some(Box::new(cut.failure()?)) } else { None };
    let member = if has(HAS_MEMBER) { Some(cut.member(columns.seq)?) } else { None };
    let steers = if has(HAS_STEERS) { Some(TaskId(cut.u128()?)) } else { None };
    let usage = if has(HAS_USAGE) { Some(Box::new(cut.usage()?)) } else { None };
    let origin = if has(HAS_ORIGIN) { Some(cut.origin()?) } else { None };
    let failed_on = if has(HAS_FAILED_ON) { cut.workers()? } else { Vec::new() };
    let trail = Trail::from_bytes(cut.0);
    let TaskColumns { id, seq, flow, rank, batch, attempt } = columns;
    Some(Task {
        id,
        seq,
        flow,
        rank,
        batch,
        member,
        steers,
        origin,
        policy,
        state,
        reason,
        attempt,
        n_runs,
        retries_used,
        n_lost,
        n_quota,
        n_preempted,
        n_deps_open,
        has_children: has(HAS_CHILDREN),
        has_place: has(HAS_PLACE),
        error,
        usage,
        worker,
        failed_on,
        created_at,
        run_at,
        deadline,
        dependency_deadline,
        queued_at,
        assigned_at,
        started_at,
        finished_at,
        trail,
    })
}

/// The copy of a flow's key that stays in a task's row when the flow is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowKey {
    pub agent: Name,
    pub lane: Name,
    pub kind: Name,
    pub tier: Tier,
}

impl RowKey {
    pub fn of(key: &FlowKey) -> RowKey {
        let (agent, lane, kind, tier) = crate::store::row_key(key);
        RowKey { agent: agent.clone(), lane: lane.clone(), kind: kind.clone(), tier }
    }
}

pub fn encode_row_key(key: &FlowKey, out: &mut Vec<u8>) {
    out.clear();
    let (agent, lane, kind, tier) = crate::store::row_key(key);
    out.push(tier as u8);
    [agent, lane, kind].into_iter().for_each(|name| put_text(out, name));
}

/// [`RowKey`] without its own memory, for filters that look at many rows and keep few.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowKeyRef<'a> {
    pub agent: &'a str,
    pub lane: &'a str,
    pub kind: &'a str,
    pub tier: Tier,
}

impl RowKeyRef<'_> {
    pub fn to_owned(self) -> RowKey {
        RowKey { agent: self.agent.into(), lane: self.lane.into(), kind: self.kind.into(), tier: self.tier }
    }
}

pub fn decode_row_key(bytes: &[u8]) -> Option<RowKeyRef<'_>> {
    let mut cut = Cut(bytes);
    let tier = Tier::from_code(cut.byte()?)?;
    let key = RowKeyRef { tier, agent: cut.str()?, lane: cut.str()?, kind: cut.str()? };
    cut.end(key)
}

pub fn encode_batch(batch: &Batch) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_batch(&mut out, batch);
    out
}

pub fn decode_batch(id: BatchId, bytes: &[u8]) -> Option<Batch> {
    let mut cut = Cut::versioned(bytes)?;
    let batch = cut.batch(id)?;
    cut.end(batch)
}

pub fn encode_answer(answer: &FirstAnswer) -> Vec<u8> {
    let mut out = vec![VERSION];
    match answer {
        FirstAnswer::Task { id, phase } => {
            out.push(0);
            put_u128(&mut out, id.0);
            out.push(*phase as u8);
        }
        FirstAnswer::Batch { id, tasks } => {
            out.push(1);
            put_u128(&mut out, id.0);
            put_varint(&mut out, tasks.len() as u64);
            for (task, phase) in tasks {
                put_u128(&mut out, task.0);
                out.push(*phase as u8);
            }
        }
        FirstAnswer::Command(receipt) => {
            out.push(2);
            receipt::put(&mut out, receipt);
        }
    }
    out
}

pub fn decode_answer(bytes: &[u8]) -> Option<FirstAnswer> {
    let mut cut = Cut::versioned(bytes)?;
    let answer = match cut.byte()? {
        0 => FirstAnswer::Task { id: TaskId(cut.u128()?), phase: cut.phase()? },
        1 => {
            let id = BatchId(cut.u128()?);
            let len = cut.varint()?;
            let tasks = (0..len).map(|_| Some((TaskId(cut.u128()?), cut.phase()?))).collect::<Option<_>>()?;
            FirstAnswer::Batch { id, tasks }
        }
        2 => FirstAnswer::Command(receipt::cut(&mut cut)?),
        _ => return None,
    };
    cut.end(answer)
}

fn put_state(out: &mut Vec<u8>, state: &State) {
    out.push(state.phase() as u8);
    match *state {
        State::Waiting(wait) => out.push(wait as u8),
        State::Scheduled(Delay::Until(at)) => {
            out.push(0);
            put_varint(out, at);
        }
        State::Scheduled(Delay::Backoff(at)) => {
            out.push(1);
            put_varint(out, at);
        }
        State::Scheduled(Delay::Debounce(at)) => {
            out.push(2);
            put_varint(out, at);
        }
        State::Queued { since_ms } => put_varint(out, since_ms),
        State::Assigned(lease) | State::Running(lease) => {
            put_u128(out, lease.worker.0);
            out.extend_from_slice(&lease.token.0.to_le_bytes());
            put_varint(out, lease.order);
            put_varint(out, lease.since_ms);
            out.push(lease.stop.map_or(0, |stop| stop as u8 + 1));
        }
        State::Completed | State::Failed | State::Cancelled | State::Rejected => {}
    }
}

fn task_flags(task: &Task) -> u32 {
    let moments = task_moments(task);
    let moment_flags = [
        HAS_RUN_AT,
        HAS_DEADLINE,
        HAS_DEPENDENCY_DEADLINE,
        HAS_QUEUED_AT,
        HAS_ASSIGNED_AT,
        HAS_STARTED_AT,
        HAS_FINISHED_AT,
    ];
    let others = [
        (task.has_children, HAS_CHILDREN),
        (task.has_place, HAS_PLACE),
        (task.error.is_some(), HAS_ERROR),
        (task.worker.is_some(), HAS_WORKER),
        (!task.reason.is_empty(), HAS_REASON),
        (task_counters(task) != [0; 5], HAS_COUNTERS),
        (task.policy != USUAL_POLICY, HAS_POLICY),
        (task.member.is_some(), HAS_MEMBER),
        (task.steers.is_some(), HAS_STEERS),
        (task.usage.is_some(), HAS_USAGE),
        (task.origin.is_some(), HAS_ORIGIN),
        (!task.failed_on.is_empty(), HAS_FAILED_ON),
    ];
    let moments = moments.iter().zip(moment_flags).map(|(at, flag)| (at.is_some(), flag));
    moments.chain(others).filter(|(is, _)| *is).fold(0, |flags, (_, flag)| flags | flag)
}

fn task_moments(task: &Task) -> [Option<WallMs>; 7] {
    [
        task.run_at,
        task.deadline,
        task.dependency_deadline,
        task.queued_at,
        task.assigned_at,
        task.started_at,
        task.finished_at,
    ]
}

fn task_counters(task: &Task) -> [u32; 5] {
    [task.retries_used, task.n_lost, task.n_quota, task.n_preempted, task.n_deps_open]
}

fn put_policy(out: &mut Vec<u8>, policy: &Policy) {
    let retry = &policy.retry;
    put_varint(out, policy.timeout_ms);
    put_varint(out, u64::from(retry.max_retries));
    put_varint(out, retry.backoff_ms);
    put_varint(out, u64::from(retry.multiplier_milli));
    put_varint(out, retry.backoff_ms_max);
    put_varint(out, u64::from(retry.jitter_milli));
    out.push(retry.on);
    out.push(policy.on_dependency_failure as u8);
    out.push(
        u8::from(policy.preemptible)
            | u8::from(policy.stall_ms.is_some()) << 1
            | u8::from(policy.ttl_ms.is_some()) << 2
            | u8::from(policy.takes_input) << 3
            | u8::from(policy.calls_back) << 4,
    );
    [policy.stall_ms, policy.ttl_ms].into_iter().flatten().for_each(|ms| put_varint(out, ms));
}

fn put_batch(out: &mut Vec<u8>, batch: &Batch) {
    out.push(
        u8::from(batch.parallelism.is_some())
            | u8::from(batch.finished_at.is_some()) << 1
            | u8::from(batch.calls_back) << 2,
    );
    if let Some(parallelism) = batch.parallelism {
        put_varint(out, u64::from(parallelism));
    }
    let Batch { n_total, n_completed, n_failed, n_cancelled, n_places, n_waiting, .. } = *batch;
    for n in [n_total, n_completed, n_failed, n_cancelled, n_places, n_waiting] {
        put_varint(out, u64::from(n));
    }
    put_varint(out, batch.created_at);
    if let Some(at) = batch.finished_at {
        put_since(out, batch.created_at, at);
    }
}

fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// A moment as its difference to an earlier one; exact for any two moments, short for near ones.
fn put_since(out: &mut Vec<u8>, since: u64, at: u64) {
    let difference = at.wrapping_sub(since) as i64;
    put_varint(out, (difference << 1 ^ difference >> 63) as u64);
}

fn put_u128(out: &mut Vec<u8>, n: u128) {
    out.extend_from_slice(&n.to_be_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// What is left to read.
struct Cut<'a>(&'a [u8]);

impl<'a> Cut<'a> {
    fn versioned(bytes: &'a [u8]) -> Option<Cut<'a>> {
        let (&version, rest) = bytes.split_first()?;
        (version == VERSION).then_some(Cut(rest))
    }

    /// Gives `value` if nothing is left behind it.
    fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (&array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(array)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    fn u32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_be_bytes)
    }

    fn since(&mut self, since: u64) -> Option<u64> {
        let zigzag = self.varint()?;
        let difference = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        Some(since.wrapping_add(difference as u64))
    }

    fn str(&mut self) -> Option<&'a str> {
        let len = self.varint()?;
        self.str_of(len)
    }

    fn str_of(&mut self, len: u64) -> Option<&'a str> {
        let len = usize::try_from(len).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn name(&mut self) -> Option<Name> {
        self.str().map(Name::new)
    }

    fn text(&mut self) -> Option<Text> {
        self.str().map(|text| Cow::Owned(text.to_owned()))
    }

    fn phase(&mut self) -> Option<Phase> {
        Phase::from_code(self.byte()?)
    }

    fn class(&mut self) -> Option<Class> {
        Class::from_code(self.byte()?)
    }

    fn failure(&mut self) -> Option<Failure> {
        Some(Failure { class: self.class()?, message: self.text()? })
    }

    fn origin(&mut self) -> Option<Origin> {
        Some(Origin { schedule: ScheduleId(self.u128()?), run: self.varint()? })
    }

    fn workers(&mut self) -> Option<Vec<WorkerId>> {
        let len = self.varint()?;
        (0..len).map(|_| self.u128().map(WorkerId)).collect()
    }

    fn counters(&mut self) -> Option<[u32; 5]> {
        Some([self.u32()?, self.u32()?, self.u32()?, self.u32()?, self.u32()?])
    }

    fn state(&mut self) -> Option<State> {
        Some(match self.phase()? {
            Phase::Waiting => State::Waiting(match self.byte()? {
                0 => Wait::Dependencies,
                1 => Wait::BatchPlace,
                2 => Wait::Seat,
                _ => return None,
            }),
            Phase::Scheduled => State::Scheduled(match self.byte()? {
                0 => Delay::Until(self.varint()?),
                1 => Delay::Backoff(self.varint()?),
                2 => Delay::Debounce(self.varint()?),
                _ => return None,
            }),
            Phase::Queued => State::Queued { since_ms: self.varint()? },
            Phase::Assigned => State::Assigned(self.lease()?),
            Phase::Running => State::Running(self.lease()?),
            Phase::Completed => State::Completed,
            Phase::Failed => State::Failed,
            Phase::Cancelled => State::Cancelled,
            Phase::Rejected => State::Rejected,
        })
    }

    fn lease(&mut self) -> Option<Lease> {
        let worker = WorkerId(self.u128()?);
        let token = Token(u64::from_le_bytes(self.array()?));
        let (order, since_ms) = (self.varint()?, self.varint()?);
        let stop = match self.byte()? {
            0 => None,
            code => Some(Stop::from_code(code - 1)?),
        };
        Some(Lease { worker, token, order, since_ms, stop })
    }

    fn policy(&mut self) -> Option<Policy> {
        let timeout_ms = self.varint()?;
        let retry = Retry {
            max_retries: self.u32()?,
            backoff_ms: self.varint()?,
            multiplier_milli: self.u32()?,
            backoff_ms_max: self.varint()?,
            jitter_milli: self.u32()?,
            on: self.byte()?,
        };
        let on_dependency_failure = match self.byte()? {
            0 => OnDependencyFailure::Cancel,
            1 => OnDependencyFailure::Fail,
            2 => OnDependencyFailure::Run,
            _ => return None,
        };
        let flags = self.byte()?;
        let stall_ms = if flags & 2 != 0 { Some(self.varint()?) } else { None };
        let ttl_ms = if flags & 4 != 0 { Some(self.varint()?) } else { None };
        Some(Policy {
            timeout_ms,
            retry,
            on_dependency_failure,
            preemptible: flags & 1 != 0,
            stall_ms,
            ttl_ms,
            takes_input: flags & 8 != 0,
            calls_back: flags & 16 != 0,
        })
    }

    fn batch(&mut self, id: BatchId) -> Option<Batch> {
        let flags = self.byte()?;
        let parallelism = if flags & 1 != 0 { Some(self.u32()?) } else { None };
        let [n_total, n_completed, n_failed, n_cancelled, n_places] = self.counters()?;
        let n_waiting = self.u32()?;
        let created_at = self.varint()?;
        let finished_at = if flags & 2 != 0 { Some(self.since(created_at)?) } else { None };
        Some(Batch {
            id,
            parallelism,
            calls_back: flags & 4 != 0,
            n_total,
            n_completed,
            n_failed,
            n_cancelled,
            n_places,
            n_waiting,
            created_at,
            finished_at,
        })
    }
}

const HAS_RUN_AT: u32 = 1;
const HAS_DEADLINE: u32 = 1 << 1;
const HAS_DEPENDENCY_DEADLINE: u32 = 1 << 2;
const HAS_QUEUED_AT: u32 = 1 << 3;
const HAS_ASSIGNED_AT: u32 = 1 << 4;
const HAS_STARTED_AT: u32 = 1 << 5;
const HAS_FINISHED_AT: u32 = 1 << 6;
const HAS_CHILDREN: u32 = 1 << 7;
const HAS_PLACE: u32 = 1 << 8;
const HAS_ERROR: u32 = 1 << 9;
const HAS_WORKER: u32 = 1 << 10;
const HAS_REASON: u32 = 1 << 11;
const HAS_COUNTERS: u32 = 1 << 12;
const HAS_POLICY: u32 = 1 << 13;
const HAS_MEMBER: u32 = 1 << 14;
const HAS_STEERS: u32 = 1 << 15;
const HAS_USAGE: u32 = 1 << 16;
const HAS_ORIGIN: u32 = 1 << 17;
const HAS_FAILED_ON: u32 = 1 << 18;

/// A policy that costs no bytes. It is part of the format and stays as it is, whatever the defaults become.
const USUAL_POLICY: Policy = Policy {
    timeout_ms: 120_000,
    retry: Retry {
        max_retries: 3,
        backoff_ms: 1000,
        multiplier_milli: 2000,
        backoff_ms_max: 60_000,
        jitter_milli: 250,
        on: 0b1111,
    },
    on_dependency_failure: OnDependencyFailure::Cancel,
    preemptible: false,
    stall_ms: None,
    ttl_ms: None,
    takes_input: false,
    calls_back: false,
};
