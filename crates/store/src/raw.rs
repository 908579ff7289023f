//! What the drivers' raw limits measure: the product's schema and rows with nothing above them. A benchmark prints it beside
//! its figures, measured in the same run, because machines and their neighbours differ.

use runyard_core::event::{Happening, HappeningKind, Subject, TaskFacts};
use runyard_core::flow::{FlowKey, Place, Resources, Shape};
use runyard_core::ids::{FlowId, TaskId, Token, WorkerId};
use runyard_core::name::Blob;
use runyard_core::now::Now;
use runyard_core::task::{Lease, State, Task, Tier};
use runyard_core::trail::{Step, StepKind, Trail};
use runyard_core::write::{CountDelta, CountKey, FlowRow, Insert, Meta, Update, WriteSet};

use crate::store::{Result, Store};

/// Runs `n_tasks` through a store that was just loaded, `per_commit` rows in each commit. Gives whole lives in a second.
pub fn cycles_per_s(store: &mut dyn Store, mut meta: Meta, n_tasks: usize, per_commit: usize) -> Result<f64> {
    let begin = std::time::Instant::now();
    let mut n_done = 0;
    while n_done < n_tasks {
        let n = per_commit.min(n_tasks - n_done);
        cycle(store, &mut meta, n)?;
        n_done += n;
    }
    Ok(n_done as f64 / begin.elapsed().as_secs_f64())
}

/// Two commits: `n` tasks come in and are handed out at once, then all of them end.
fn cycle(store: &mut dyn Store, meta: &mut Meta, n: usize) -> Result<()> {
    let first = meta.next_seq;
    meta.next_seq += n as u64;
    meta.now.wall_ms += 1;
    let seqs = first..meta.next_seq;
    let spec: Blob = Blob::from(&br#"{"kind":"noop","payload":{}}"#[..]);
    let inserts = seqs.clone().map(|seq| Insert {
        task: task(seq, meta.now),
        key: flow_key().into(),
        spec: Some(spec.clone()),
        result: None,
    });
    let begun = [HappeningKind::TaskCreated, HappeningKind::TaskStarted];
    let moved = CountDelta { submitted: n as i64, started: n as i64, assigned: n as i64, ..CountDelta::default() };
    store.commit(&WriteSet {
        inserts: inserts.collect(),
        happenings: seqs.clone().flat_map(|seq| begun.map(|kind| happening(kind, seq, meta.now))).collect(),
        ..shared_writes(meta, moved, n as u64)
    })?;
    meta.now.wall_ms += 1;
    let updates = seqs.clone().map(|seq| {
        let task = task(seq, meta.now);
        let from = (task.phase(), task.attempt);
        Update { task: ended(task, meta.now), from, key: None, result: Some(Blob::from(&b"null"[..])) }
    });
    let moved = CountDelta { completed: n as i64, assigned: -(n as i64), ..CountDelta::default() };
    store.commit(&WriteSet {
        updates: updates.collect(),
        happenings: seqs.map(|seq| happening(HappeningKind::TaskCompleted, seq, meta.now)).collect(),
        ..shared_writes(meta, moved, 0)
    })?;
    Ok(())
}

/// The rows that a tick touches once, however many tasks it moves.
fn shared_writes(meta: &Meta, moved: CountDelta, n_live: u64) -> WriteSet {
    let key = flow_key();
    let count = CountKey { agent: key.agent.clone(), lane: key.lane.clone() };
    WriteSet {
        flows_put: vec![FlowRow { id: FlowId(1), key, n_queued: 0, n_live }],
        counts: vec![(count, moved)],
        meta: *meta,
        ..WriteSet::default()
    }
}

fn flow_key() -> FlowKey {
    let shape = Shape { kind: "noop".into(), resources: Resources::default(), place: Place::default() };
    FlowKey { agent: "default".into(), lane: "main".into(), tier: Tier::Normal, shape, gates: Vec::new() }
}

/// A task as it stands after it was submitted and handed out in one tick.
fn task(seq: u64, now: Now) -> Task {
    let worker = WorkerId(7);
    let mut trail = Trail::default();
    for kind in [StepKind::Created, StepKind::Queued, StepKind::Assigned] {
        trail.push(Step { kind, detail: 0, attempt: 1, at_ms: now.wall_ms });
    }
    Task {
        state: State::Assigned(Lease { worker, token: Token(seq << 32), order: seq, since_ms: 0, stop: None }),
        attempt: 1,
        worker: Some(worker),
        queued_at: Some(now.wall_ms),
        assigned_at: Some(now.wall_ms),
        trail,
        ..Task::new(id(seq), seq, FlowId(1), now.wall_ms)
    }
}

fn ended(mut task: Task, now: Now) -> Task {
    for kind in [StepKind::Started, StepKind::Completed] {
        task.trail.push(Step { kind, detail: 0, attempt: 1, at_ms: now.wall_ms });
    }
    task.state = State::Completed;
    task.n_runs = 1;
    task.started_at = Some(now.wall_ms);
    task.finished_at = Some(now.wall_ms);
    task
}

/// Ordered by time with a random tail, as real ids are.
fn id(seq: u64) -> TaskId {
    TaskId(u128::from(seq) << 64 | u128::from(runyard_core::hash::mix(seq)))
}

fn happening(kind: HappeningKind, seq: u64, now: Now) -> Happening {
    let FlowKey { agent, lane, tier, shape, .. } = flow_key();
    let facts = TaskFacts {
        task: id(seq),
        agent,
        lane,
        kind: shape.kind,
        tier,
        batch: None,
        session: None,
        attempt: 1,
        class: None,
        reason: "".into(),
        elapsed_ms: None,
    };
    Happening { kind, at_ms: now.wall_ms, subject: Subject::Task(facts) }
}
