//! Rows come back from their bytes exactly, and bytes that make no sense are refused and never a panic.

#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use runyard_core::batch::Batch;
use runyard_core::event::{FirstAnswer, Happening, HappeningKind, Subject, TaskFacts};
use runyard_core::ids::{BatchId, FlowId, TaskId, Token, WorkerId};
use runyard_core::name::Name;
use runyard_core::task::{
    Class, Delay, Failure, Lease, OnDependencyFailure, Phase, Policy, Retry, State, Stop, Task, Text, Tier, Wait,
};
use runyard_core::trail::{Step, StepKind, Trail};
use runyard_store::codec::*;
use runyard_store::suite::fixture;

proptest! {
    #[test]
    fn a_task_survives_its_bytes(task in task()) {
        let mut body = Vec::new();
        encode_task_body(&task, &mut body);
        prop_assert_eq!(decode_task_body(TaskColumns::of(&task), &body), Some(task));
    }

    #[test]
    fn a_batch_survives_its_bytes(batch in batch()) {
        prop_assert_eq!(decode_batch(batch.id, &encode_batch(&batch)), Some(batch));
    }

    #[test]
    fn an_answer_survives_its_bytes(answer in answer()) {
        prop_assert_eq!(decode_answer(&encode_answer(&answer)), Some(answer));
    }

    #[test]
    fn happenings_survive_their_bytes(happenings in vec(happening(), 0..12)) {
        let mut bytes = Vec::new();
        encode_happenings(&happenings, &mut bytes);
        prop_assert_eq!(decode_happenings(&bytes), Some(happenings));
    }

    #[test]
    fn a_row_key_survives_its_bytes(agent in name(), lane in name(), kind in name(), tier in tier()) {
        let mut key = fixture::key(&agent);
        (key.lane, key.shape.kind, key.tier) = (lane, kind, tier);
        let mut bytes = Vec::new();
        encode_row_key(&key, &mut bytes);
        let read = decode_row_key(&bytes).map(RowKeyRef::to_owned);
        prop_assert_eq!(read, Some(RowKey::of(&key)));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..200), versioned in any::<bool>()) {
        let mut bytes = bytes;
        if let (true, Some(first)) = (versioned, bytes.first_mut()) {
            *first = 1;
        }
        let _ = decode_task_body(TaskColumns::of(&fixture::task(1)), &bytes);
        let _ = decode_batch(BatchId(1), &bytes);
        let _ = decode_answer(&bytes);
        let _ = decode_happenings(&bytes);
        let _ = decode_row_key(&bytes);
    }

    #[test]
    fn cut_happenings_are_refused(happenings in vec(happening(), 1..5), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        encode_happenings(&happenings, &mut bytes);
        bytes.truncate(cut.index(bytes.len()));
        prop_assert_eq!(decode_happenings(&bytes), None);
    }
}

#[test]
fn a_version_of_the_future_is_refused() {
    let mut body = Vec::new();
    let task = fixture::task(1);
    encode_task_body(&task, &mut body);
    body[0] += 1;
    assert_eq!(decode_task_body(TaskColumns::of(&task), &body), None);
}

#[test]
fn the_usual_task_is_small() {
    let mut body = Vec::new();
    encode_task_body(&fixture::ended(1_700_000_000_500, fixture::task(1)), &mut body);
    assert!(body.len() <= 24, "{} bytes", body.len());
}

fn tier() -> impl Strategy<Value = Tier> {
    prop::sample::select(Tier::ALL.to_vec())
}

fn class() -> impl Strategy<Value = Class> {
    prop::sample::select(Class::ALL.to_vec())
}

fn phase() -> impl Strategy<Value = Phase> {
    prop::sample::select(Phase::ALL.to_vec())
}

fn name() -> impl Strategy<Value = Name> {
    "[a-zä]{1,8}".prop_map(Name::from)
}

fn text() -> impl Strategy<Value = Text> {
    "(|.{0,20})".prop_map(Text::Owned)
}

/// Both ends of the range as often as the middle.
fn moment() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), Just(0), Just(u64::MAX), 1_700_000_000_000..1_800_000_000_000_u64]
}

fn lease() -> impl Strategy<Value = Lease> {
    let stop = of(prop::sample::select(Stop::ALL.to_vec()));
    (any::<u128>(), any::<u64>(), any::<u64>(), moment(), stop).prop_map(|(worker, token, order, since_ms, stop)| {
        Lease { worker: WorkerId(worker), token: Token(token), order, since_ms, stop }
    })
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::Waiting(Wait::Dependencies)),
        Just(State::Waiting(Wait::BatchPlace)),
        moment().prop_map(|at| State::Scheduled(Delay::Until(at))),
        moment().prop_map(|at| State::Scheduled(Delay::Backoff(at))),
        moment().prop_map(|since_ms| State::Queued { since_ms }),
        lease().prop_map(State::Assigned),
        lease().prop_map(State::Running),
        Just(State::Completed),
        Just(State::Failed),
        Just(State::Cancelled),
        Just(State::Rejected),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let retry = (any::<u32>(), any::<u64>(), any::<u32>(), any::<u64>(), any::<u32>(), any::<u8>()).prop_map(
        |(max_retries, backoff_ms, multiplier_milli, backoff_ms_max, jitter_milli, on)| Retry {
            max_retries,
            backoff_ms,
            multiplier_milli,
            backoff_ms_max,
            jitter_milli,
            on,
        },
    );
    let on_failure =
        prop::sample::select(vec![OnDependencyFailure::Cancel, OnDependencyFailure::Fail, OnDependencyFailure::Run]);
    let own = (any::<u64>(), retry, on_failure, any::<bool>(), of(any::<u64>()), of(any::<u64>())).prop_map(
        |(timeout_ms, retry, on_dependency_failure, preemptible, stall_ms, ttl_ms)| Policy {
            timeout_ms,
            retry,
            on_dependency_failure,
            preemptible,
            stall_ms,
            ttl_ms,
        },
    );
    prop_oneof![Just(Policy::default()), own]
}

fn trail() -> impl Strategy<Value = Trail> {
    let step = (prop::sample::select(StepKind::ALL.to_vec()), any::<u8>(), any::<u32>(), 0..2_000_000_000_000_u64);
    vec(step, 0..20).prop_map(|mut steps| {
        steps.sort_by_key(|step| step.3);
        let mut trail = Trail::default();
        for (kind, detail, attempt, at_ms) in steps {
            trail.push(Step { kind, detail, attempt, at_ms });
        }
        trail
    })
}

fn task() -> impl Strategy<Value = Task> {
    let columns = (any::<u128>(), any::<u64>(), any::<u64>(), any::<i32>(), of(any::<u128>()), any::<u32>());
    let counters = (prop_oneof![Just([0; 6]), any::<[u32; 6]>()], any::<[bool; 2]>());
    let error = of((class(), text()).prop_map(|(class, message)| Box::new(Failure { class, message })));
    let texts = (text(), error, of(any::<u128>()), trail());
    let moments = (moment(), prop::array::uniform7(of(moment())));
    (columns, policy(), state(), counters, texts, moments).prop_map(
        |(columns, policy, state, (counters, flags), (reason, error, worker, trail), (created_at, moments))| {
            let (id, seq, flow, rank, batch, attempt) = columns;
            Task {
                id: TaskId(id),
                seq,
                flow: FlowId(flow),
                rank,
                batch: batch.map(BatchId),
                policy,
                state,
                reason,
                attempt,
                n_runs: counters[0],
                retries_used: counters[1],
                n_lost: counters[2],
                n_quota: counters[3],
                n_preempted: counters[4],
                n_deps_open: counters[5],
                has_children: flags[0],
                has_place: flags[1],
                error,
                worker: worker.map(WorkerId),
                created_at,
                run_at: moments[0],
                deadline: moments[1],
                dependency_deadline: moments[2],
                queued_at: moments[3],
                assigned_at: moments[4],
                started_at: moments[5],
                finished_at: moments[6],
                trail,
            }
        },
    )
}

fn batch() -> impl Strategy<Value = Batch> {
    (any::<u128>(), of(any::<u32>()), any::<[u32; 6]>(), moment(), of(moment())).prop_map(
        |(id, parallelism, n, created_at, finished_at)| Batch {
            id: BatchId(id),
            parallelism,
            n_total: n[0],
            n_completed: n[1],
            n_failed: n[2],
            n_cancelled: n[3],
            n_places: n[4],
            n_waiting: n[5],
            created_at,
            finished_at,
        },
    )
}

fn answer() -> impl Strategy<Value = FirstAnswer> {
    let tasks = vec((any::<u128>().prop_map(TaskId), phase()), 0..5);
    prop_oneof![
        (any::<u128>(), phase()).prop_map(|(id, phase)| FirstAnswer::Task { id: TaskId(id), phase }),
        (any::<u128>(), tasks).prop_map(|(id, tasks)| FirstAnswer::Batch { id: BatchId(id), tasks }),
    ]
}

/// Few different values, so that neighbours are often alike.
fn facts() -> impl Strategy<Value = TaskFacts> {
    let names = ("[ab]", "[ab]", "[ab]", tier());
    let rest = (of(0..2_u128), any::<u32>(), of(class()), text(), of(any::<u64>()));
    (0..3_u128, names, rest).prop_map(
        |(task, (agent, lane, kind, tier), (batch, attempt, class, reason, elapsed_ms))| TaskFacts {
            task: TaskId(task),
            agent: agent.into(),
            lane: lane.into(),
            kind: kind.into(),
            tier,
            batch: batch.map(BatchId),
            attempt,
            class,
            reason,
            elapsed_ms,
        },
    )
}

fn happening() -> impl Strategy<Value = Happening> {
    let subject = prop_oneof![
        5 => facts().prop_map(Subject::Task),
        1 => batch().prop_map(|batch| Subject::Batch(Box::new(batch))),
        1 => (any::<u128>(), name()).prop_map(|(worker, name)| Subject::Worker { worker: WorkerId(worker), name }),
        1 => Just(Subject::Config),
    ];
    (prop::sample::select(HappeningKind::ALL.to_vec()), moment(), subject)
        .prop_map(|(kind, at_ms, subject)| Happening { kind, at_ms, subject })
}
