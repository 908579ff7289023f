//! Rules of load and commit.

use runyard_core::event::{FirstAnswer, HappeningKind, ParentEnd, Release};
use runyard_core::ids::FlowId;
use runyard_core::now::Now;
use runyard_core::session::{Member, Mode, SessionId, Usage};
use runyard_core::task::{
    Class, Delay, Failure, Lease, OnDependencyFailure, Phase, Policy, Retry, State, Stop, Task, Tier, Wait,
};
use runyard_core::trail::{Step, StepKind};
use runyard_core::write::{CountDelta, CountKey, Edge, FlowRow, Insert, Update, WriteSet};

use super::Harness;
use super::fixture::*;
use crate::store::Error;

pub fn an_empty_store_loads_empty(harness: &mut dyn Harness) {
    let loaded = harness.fresh().load(7).expect("a fresh store loads");
    assert_eq!(loaded.meta.epoch, 1);
    assert_eq!((loaded.meta.next_seq, loaded.meta.next_flow, loaded.meta.salt), (0, 0, 7));
    assert!(loaded.flows.is_empty() && loaded.held.is_empty() && loaded.batches.is_empty());
    assert!(loaded.releases.is_empty() && loaded.counts.is_empty() && loaded.settings.is_empty());
}

pub fn each_load_raises_the_epoch(harness: &mut dyn Harness) {
    let mut store = harness.fresh();
    assert_eq!(store.load(1).expect("it loads").meta.epoch, 1);
    assert_eq!(store.load(1).expect("it loads").meta.epoch, 2);
    let mut store = harness.reopen(store);
    assert_eq!(store.load(1).expect("it loads").meta.epoch, 3);
}

pub fn the_salt_is_given_once(harness: &mut dyn Harness) {
    let mut store = harness.fresh();
    store.load(u64::MAX).expect("it loads");
    let mut store = harness.reopen(store);
    assert_eq!(store.load(2).expect("it loads").meta.salt, u64::MAX);
}

pub fn clocks_and_numbers_are_kept(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.meta.next_seq = 12;
    fixture.meta.next_flow = 13;
    fixture.meta.now = Now { wall_ms: 1_700_000_000_000, steady_ms: 55 };
    fixture.insert([task(1)]);
    let mut store = harness.reopen(fixture.store);
    let meta = store.load(1).expect("it loads").meta;
    assert_eq!((meta.next_seq, meta.next_flow), (12, 13));
    assert_eq!(meta.now, Now { wall_ms: 1_700_000_000_000, steady_ms: 55 });
}

pub fn a_task_comes_back_as_it_was_written(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let mut full = full_task(1);
    full.trail.push(Step { kind: StepKind::Created, detail: 1, attempt: 2, at_ms: 1_700_000_000_000 });
    let insert = Insert { result: Some(blob("result")), key: key("bob").into(), ..insert(full.clone()) };
    fixture.commit(WriteSet { inserts: vec![insert], ..WriteSet::default() });
    let doc = fixture.doc(full.id).expect("it exists");
    assert_eq!(doc.task, full);
    assert_eq!(
        (doc.agent.as_str(), doc.lane.as_str(), doc.kind.as_str(), doc.tier),
        ("bob", "main", "noop", Tier::Normal)
    );
    assert_eq!(doc.spec, Some(blob("spec of 1")));
    assert_eq!(doc.result, Some(blob("result")));
}

pub fn every_state_comes_back_as_it_was_written(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let stops = Stop::ALL.map(|stop| State::Running(Lease { stop: Some(stop), ..lease() }));
    let states = [
        State::Waiting(Wait::Dependencies),
        State::Waiting(Wait::BatchPlace),
        State::Waiting(Wait::Seat),
        State::Scheduled(Delay::Until(9)),
        State::Scheduled(Delay::Backoff(8)),
        State::Scheduled(Delay::Debounce(6)),
        State::Queued { since_ms: 7 },
        State::Assigned(lease()),
        State::Running(lease()),
        State::Completed,
        State::Failed,
        State::Cancelled,
        State::Rejected,
    ];
    let tasks: Vec<Task> =
        states.into_iter().chain(stops).zip(1..).map(|(state, seq)| in_state(state, task(seq))).collect();
    fixture.insert(tasks.clone());
    for task in tasks {
        assert_eq!(fixture.task(task.id), task);
    }
}

pub fn committed_rows_survive_a_reopen(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([task(1)]);
    fixture.update(ended(20, task(1)));
    let fixture = Fixture::new(harness.reopen(fixture.store));
    assert_eq!(fixture.task(id(1)), ended(20, task(1)));
    assert_eq!(fixture.doc(id(1)).and_then(|doc| doc.spec), Some(blob("spec of 1")));
}

pub fn an_update_with_a_stale_guard_changes_nothing(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([task(1), task(2)]);
    for from in [(Phase::Running, 0), (Phase::Queued, 1)] {
        let updates = vec![update(ended(5, task(2)), (Phase::Queued, 0)), update(ended(5, task(1)), from)];
        let refused = fixture.try_commit(WriteSet { updates, ..WriteSet::default() });
        assert!(matches!(refused, Err(Error::Conflict { task: Some(task), .. }) if task == id(1)), "{refused:?}");
        assert_eq!(fixture.task(id(1)), task(1));
        assert_eq!(fixture.task(id(2)), task(2), "the rest of a refused commit is not written either");
    }
}

pub fn an_update_of_no_row_is_a_conflict(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let updates = vec![update(task(1), (Phase::Queued, 0))];
    assert_conflict(fixture.try_commit(WriteSet { updates, ..WriteSet::default() }));
    assert!(fixture.doc(id(1)).is_none());
}

pub fn a_second_insert_is_a_conflict(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([task(1)]);
    let same_seq = Task { id: id(2), ..task(1) };
    let same_id = Task { id: id(1), ..task(2) };
    for second in [same_seq, same_id] {
        assert_conflict(fixture.try_commit(WriteSet { inserts: vec![insert(second)], ..WriteSet::default() }));
    }
    assert_eq!(fixture.task(id(1)), task(1));
    let twice = WriteSet { inserts: vec![insert(task(3)), insert(task(3))], ..WriteSet::default() };
    assert_conflict(fixture.try_commit(twice));
    assert!(fixture.doc(id(3)).is_none());
}

pub fn an_edge_to_no_child_is_a_conflict(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let edges_added = vec![Edge { parent: id(1), child: id(2) }];
    assert_conflict(fixture.try_commit(WriteSet { edges_added, ..WriteSet::default() }));
}

pub fn a_second_batch_is_a_conflict(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let writes = || WriteSet { batches_added: vec![(batch(batch_id(1)), blob("spec"))], ..WriteSet::default() };
    fixture.commit(writes());
    assert_conflict(fixture.try_commit(writes()));
}

pub fn a_second_key_is_a_conflict(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let answer = FirstAnswer::Task { id: id(1), phase: Phase::Queued };
    let writes = || WriteSet { idempotency_added: vec![idempotency("k", answer.clone(), 1)], ..WriteSet::default() };
    fixture.commit(writes());
    assert_conflict(fixture.try_commit(writes()));
}

pub fn a_change_of_no_batch_is_a_conflict(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let batches_put = vec![batch(batch_id(1))];
    assert_conflict(fixture.try_commit(WriteSet { batches_put, ..WriteSet::default() }));
}

pub fn a_failed_commit_leaves_no_trace(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([task(1)]);
    let before = fixture.meta;
    fixture.meta.next_seq = 99;
    let release = Release::Parent { parent: id(1), ended: ParentEnd::Well };
    let refused = fixture.try_commit(WriteSet {
        inserts: vec![insert(task(2))],
        updates: vec![update(ended(9, task(1)), (Phase::Failed, 3))],
        edges_added: vec![Edge { parent: id(1), child: id(2) }],
        releases_added: vec![release],
        flows_put: vec![flow(1, 1)],
        batches_added: vec![(batch(batch_id(1)), blob("spec"))],
        idempotency_added: vec![idempotency("k", FirstAnswer::Task { id: id(2), phase: Phase::Queued }, 1)],
        counts: vec![(count_key("ada"), CountDelta { queued: 1, ..CountDelta::default() })],
        rates: vec![("gate".into(), 5)],
        settings: vec![("patch".into(), blob("{}"))],
        happenings: vec![happening(HappeningKind::TaskCreated, &task(2))],
        ..WriteSet::default()
    });
    assert_conflict(refused);
    assert!(fixture.doc(id(2)).is_none());
    let reader = fixture.reader();
    assert!(reader.batch(batch_id(1)).expect("it reads").is_none());
    assert_eq!(reader.happenings_range().expect("it reads"), None);
    let loaded = fixture.store.load(1).expect("it loads");
    assert_eq!(loaded.meta.next_seq, before.next_seq);
    assert!(loaded.flows.is_empty() && loaded.releases.is_empty() && loaded.counts.is_empty());
    assert!(loaded.rates.is_empty() && loaded.settings.is_empty());
    let released = fixture.store.released(&release, 10).expect("it reads");
    assert!(released.is_empty());
}

pub fn an_old_epoch_is_fenced(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.store.load(1).expect("a later holder loads");
    let refused = fixture.try_commit(WriteSet { inserts: vec![insert(task(1))], ..WriteSet::default() });
    assert!(matches!(refused, Err(Error::Fenced { ours: 1, theirs: 2 })), "{refused:?}");
    assert!(fixture.doc(id(1)).is_none());
}

pub fn a_result_stays_until_another_comes(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([task(1)]);
    let mut put = |result: Option<&str>| {
        let update = Update { result: result.map(blob), ..update(task(1), (Phase::Queued, 0)) };
        fixture.commit(WriteSet { updates: vec![update], ..WriteSet::default() });
        fixture.doc(id(1)).and_then(|doc| doc.result)
    };
    assert_eq!(put(None), None);
    assert_eq!(put(Some("one")), Some(blob("one")));
    assert_eq!(put(None), Some(blob("one")));
    assert_eq!(put(Some("two")), Some(blob("two")));
}

pub fn a_new_tier_follows_into_the_row(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([task(1)]);
    let mut critical = key("ada");
    critical.tier = Tier::Critical;
    let moved = in_flow(2, task(1));
    let update = Update { key: Some(critical.into()), ..update(moved.clone(), (Phase::Queued, 0)) };
    fixture.commit(WriteSet { updates: vec![update], ..WriteSet::default() });
    let doc = fixture.doc(id(1)).expect("it exists");
    assert_eq!((doc.tier, doc.task), (Tier::Critical, moved));
}

pub fn counts_add_up(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let mut add = |agent: &str, delta: CountDelta| {
        fixture.commit(WriteSet { counts: vec![(count_key(agent), delta)], ..WriteSet::default() });
    };
    add("bob", CountDelta { queued: 3, submitted: 3, ..CountDelta::default() });
    add("ada", CountDelta { queued: 1, submitted: 1, ..CountDelta::default() });
    add("bob", CountDelta { queued: -2, running: 2, started: 2, ..CountDelta::default() });
    let bob = CountDelta { queued: 1, running: 2, submitted: 3, started: 2, ..CountDelta::default() };
    let ada = CountDelta { queued: 1, submitted: 1, ..CountDelta::default() };
    let expected = vec![(count_key("ada"), ada), (count_key("bob"), bob)];
    assert_eq!(fixture.reader().counts().expect("it reads"), expected);
    let mut store = harness.reopen(fixture.store);
    assert_eq!(store.load(1).expect("it loads").counts, expected);
}

pub fn flows_without_live_tasks_are_not_loaded(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let flows_put = vec![flow(3, 1), flow(1, 0), flow(2, 5)];
    fixture.commit(WriteSet { flows_put, ..WriteSet::default() });
    assert_eq!(fixture.reader().flows().expect("it reads"), 3);
    fixture.commit(WriteSet { flows_put: vec![flow(2, 4)], flows_removed: vec![FlowId(3)], ..WriteSet::default() });
    let mut store = harness.reopen(fixture.store);
    assert_eq!(store.load(1).expect("it loads").flows, vec![flow(2, 4)]);
    assert_eq!(store.reader().flows().expect("it reads"), 1);
}

pub fn load_gives_held_tasks_and_their_batches(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let (running, over) = (batch_id(1), batch_id(2));
    let held = [
        member(running, in_state(State::Running(lease()), task(2))),
        member(over, in_state(State::Assigned(lease()), task(4))),
    ];
    fixture.insert(held.clone().into_iter().chain([task(1), ended(5, task(3)), member(batch_id(3), task(5))]));
    let finished = runyard_core::batch::Batch { finished_at: Some(3), ..batch(over) };
    let batches_added =
        [batch(running), finished, batch(batch_id(3))].map(|batch| (batch, blob("spec"))).into_iter().collect();
    fixture.commit(WriteSet { batches_added, ..WriteSet::default() });
    let loaded = harness.reopen(fixture.store).load(1).expect("it loads");
    assert_eq!(loaded.held, held);
    assert_eq!(loaded.batches, vec![batch(running)]);
}

pub fn releases_are_kept_until_removed(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let releases = [
        Release::Parent { parent: id(1), ended: ParentEnd::Well },
        Release::Parent { parent: id(2), ended: ParentEnd::Badly },
        Release::BatchPlace { batch: batch_id(1) },
    ];
    fixture.commit(WriteSet { releases_added: releases.to_vec(), ..WriteSet::default() });
    fixture.commit(WriteSet { releases_removed: vec![releases[0]], ..WriteSet::default() });
    let loaded = harness.reopen(fixture.store).load(1).expect("it loads");
    assert_eq!(loaded.releases, releases[1..]);
}

pub fn a_release_both_removed_and_added_stays(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let release = Release::BatchPlace { batch: batch_id(1) };
    fixture.commit(WriteSet { releases_added: vec![release], releases_removed: vec![release], ..WriteSet::default() });
    assert_eq!(fixture.store.load(1).expect("it loads").releases, vec![release]);
}

pub fn rates_and_settings_take_their_last_value(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    for (state, text) in [(1, "one"), (u64::MAX, "two")] {
        fixture.commit(WriteSet {
            rates: vec![("gate".into(), state)],
            settings: vec![("patch".into(), blob(text))],
            ..WriteSet::default()
        });
    }
    assert_eq!(fixture.reader().setting("patch").expect("it reads"), Some(blob("two")));
    assert_eq!(fixture.reader().setting("other").expect("it reads"), None);
    let loaded = harness.reopen(fixture.store).load(1).expect("it loads");
    assert_eq!(loaded.rates, vec![("gate".into(), u64::MAX)]);
    assert_eq!(loaded.settings, vec![("patch".into(), blob("two"))]);
}

pub fn happenings_are_numbered_by_commit(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let two = vec![happening(HappeningKind::TaskCreated, &task(1)), happening(HappeningKind::TaskQueued, &task(1))];
    let one = vec![happening(HappeningKind::TaskStarted, &task(2))];
    assert_eq!(fixture.commit(WriteSet { happenings: two.clone(), ..WriteSet::default() }), 1);
    assert_eq!(fixture.commit(WriteSet { rates: vec![("g".into(), 1)], ..WriteSet::default() }), 1);
    assert_eq!(fixture.commit(WriteSet { happenings: one.clone(), ..WriteSet::default() }), 2);
    let reader = fixture.reader();
    assert_eq!(reader.happenings(0, 10).expect("it reads"), vec![(1, two.clone()), (2, one.clone())]);
    assert_eq!(reader.happenings(0, 1).expect("it reads"), vec![(1, two)]);
    assert_eq!(reader.happenings(1, 10).expect("it reads"), vec![(2, one)]);
    assert_eq!(reader.happenings_range().expect("it reads"), Some((1, 2)));
}

pub fn happening_numbers_go_on_after_a_reopen(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let writes =
        || WriteSet { happenings: vec![happening(HappeningKind::TaskCreated, &task(1))], ..WriteSet::default() };
    fixture.meta.now.wall_ms = 10;
    fixture.commit(writes());
    fixture.purge(100, &crate::store::Purge { happenings_ms: 1, ..KEEP });
    assert_eq!(fixture.reader().happenings_range().expect("it reads"), None);
    let mut fixture = Fixture::new(harness.reopen(fixture.store));
    assert_eq!(fixture.commit(writes()), 2, "a number is never used twice, also when the log is empty");
}

/// Every field has a value that its default has not.
fn full_task(seq: u64) -> Task {
    let retry =
        Retry { max_retries: 9, backoff_ms: 8, multiplier_milli: 7, backoff_ms_max: 6, jitter_milli: 5, on: 0b10_0001 };
    let policy = Policy {
        timeout_ms: 4,
        retry,
        on_dependency_failure: OnDependencyFailure::Run,
        preemptible: true,
        stall_ms: Some(3),
        ttl_ms: Some(2),
        takes_input: true,
        calls_back: true,
    };
    Task {
        rank: -7,
        batch: Some(batch_id(1)),
        member: Some(full_member()),
        steers: Some(id(77)),
        policy,
        state: State::Running(Lease { stop: Some(Stop::Timeout), ..lease() }),
        reason: "stopping: timeout".into(),
        attempt: 11,
        n_runs: 12,
        retries_used: 13,
        n_lost: 14,
        n_quota: 15,
        n_preempted: 16,
        n_deps_open: 17,
        has_children: true,
        has_place: true,
        error: Some(Box::new(Failure { class: Class::Quota, message: "überlastet".into() })),
        usage: Some(Box::new(Usage {
            input_tokens: Some(1),
            output_tokens: Some(u64::MAX),
            context_tokens: Some(0),
            context_window: Some(200_000),
        })),
        worker: Some(runyard_core::ids::WorkerId(u128::MAX)),
        created_at: 1_700_000_000_000,
        run_at: Some(1),
        deadline: Some(1_800_000_000_000),
        dependency_deadline: Some(1_700_000_000_001),
        queued_at: Some(1_700_000_000_002),
        assigned_at: Some(1_700_000_000_003),
        started_at: Some(1_700_000_000_004),
        finished_at: Some(1_700_000_000_005),
        ..task(seq)
    }
}

fn full_member() -> Member {
    Member {
        session: SessionId(3),
        line: 4,
        seated: true,
        gathers: true,
        n_merged: 5,
        merged_bytes: 6,
        debounced_until: 7,
        gathers_until: 8,
        told: (9, 10),
        as_mode: Some(Mode::Interrupt),
    }
}

fn flow(id: u64, n_live: u64) -> FlowRow {
    FlowRow { id: FlowId(id), key: key("ada"), n_queued: n_live / 2, n_live }
}

fn count_key(agent: &str) -> CountKey {
    CountKey { agent: agent.into(), lane: "main".into() }
}

fn assert_conflict(outcome: crate::store::Result<u64>) {
    assert!(matches!(outcome, Err(Error::Conflict { .. })), "{outcome:?}");
}
