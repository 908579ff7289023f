//! Rows come back from their bytes exactly, and bytes that make no sense are refused and never a panic.

#![allow(clippy::unwrap_used)]

#[path = "codec/any.rs"]
mod any;

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use runyard_core::event::{Happening, HappeningKind, Subject, TaskFacts};
use runyard_core::ids::{BatchId, ScheduleId, TaskId, Token, WorkerId};
use runyard_core::schedule::{Run, ScheduleFacts, Timing};
use runyard_core::session::{Session, SessionId};
use runyard_core::task::{Class, Delay, Failure, Lease, OnDependencyFailure, Policy, Retry, State, Stop, Task, Wait};
use runyard_core::trail::{Step, StepKind};
use runyard_cron::Calendar;
use runyard_store::codec::*;
use runyard_store::suite::fixture;

use any::*;

proptest! {
    #[test]
    fn a_task_survives_its_bytes(task in task()) {
        let mut body = Vec::new();
        encode_task_body(&task, &mut body);
        prop_assert_eq!(decode_task_body(TaskColumns::of(&task), &body), Some(task));
    }

    #[test]
    fn a_worker_survives_its_bytes(worker in worker()) {
        let mut bytes = Vec::new();
        encode_worker(&worker, &mut bytes);
        prop_assert_eq!(decode_worker(worker.spec.id, &bytes), Some(worker));
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
    fn a_session_survives_its_bytes(session in session()) {
        let mut body = Vec::new();
        encode_session_body(&session, &mut body);
        prop_assert_eq!(decode_session_body(session.id, session.key.clone(), &body), Some(session));
    }

    #[test]
    fn a_message_survives_its_bytes(message in message()) {
        let mut body = Vec::new();
        encode_message_body(&message, &mut body);
        let place = MessagePlace { task: message.task, task_seq: message.task_seq, n: message.n };
        prop_assert_eq!(decode_message_body(place, &body), Some(message));
    }

    #[test]
    fn a_delivery_survives_its_bytes(happening in happening(), progress in progress()) {
        let mut bytes = Vec::new();
        encode_delivery_body(&happening, &mut bytes);
        prop_assert_eq!(decode_delivery_body(&bytes), Some(happening));
        encode_progress(&progress, &mut bytes);
        prop_assert_eq!(decode_progress(&bytes), Some(progress));
    }

    #[test]
    fn a_schedule_survives_its_bytes(schedule in schedule(), template in template()) {
        let mut bytes = Vec::new();
        encode_template(&template, &mut bytes);
        prop_assert_eq!(decode_template(&bytes), Some(template));
        encode_schedule_body(&schedule, &mut bytes);
        let read = decode_schedule_body(schedule.id, schedule.name.clone(), &bytes);
        prop_assert_eq!(read, Some(schedule));
    }

    #[test]
    fn a_run_survives_its_bytes(run in run()) {
        let mut body = Vec::new();
        encode_run_body(&run, &mut body);
        prop_assert_eq!(cause_of(cause_code(run.cause)), Some(run.cause));
        prop_assert_eq!(decode_run_body(place_of(&run), &body), Some(run));
    }

    #[test]
    fn cut_schedules_are_refused(schedule in schedule(), cut in any::<prop::sample::Index>()) {
        let mut body = Vec::new();
        encode_schedule_body(&schedule, &mut body);
        body.truncate(cut.index(body.len()));
        prop_assert_eq!(decode_schedule_body(schedule.id, schedule.name, &body), None);
    }

    #[test]
    fn cut_progress_is_refused(progress in progress(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        encode_progress(&progress, &mut bytes);
        bytes.truncate(cut.index(bytes.len()));
        prop_assert_eq!(decode_progress(&bytes), None);
    }

    #[test]
    fn cut_sessions_are_refused(session in session(), cut in any::<prop::sample::Index>()) {
        let mut body = Vec::new();
        encode_session_body(&session, &mut body);
        body.truncate(cut.index(body.len()));
        prop_assert_eq!(decode_session_body(session.id, session.key, &body), None);
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
        let _ = decode_delivery_body(&bytes);
        let _ = decode_progress(&bytes);
        let _ = decode_schedule_body(ScheduleId(1), "name".into(), &bytes);
        let _ = decode_template(&bytes);
        let _ = decode_run_body(place_of(&fixture::run(1, 1, 1)), &bytes);
        let _ = decode_session_body(SessionId(1), "key".into(), &bytes);
        let _ = decode_message_body(MessagePlace { task: TaskId(1), task_seq: 1, n: 1 }, &bytes);
    }

    #[test]
    fn cut_happenings_are_refused(happenings in vec(happening(), 1..5), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        encode_happenings(&happenings, &mut bytes);
        bytes.truncate(cut.index(bytes.len()));
        prop_assert_eq!(decode_happenings(&bytes), None);
    }
}

fn place_of(run: &Run) -> RunPlace {
    RunPlace { schedule: run.schedule, n: run.n, scheduled_for: run.scheduled_for, cause: run.cause }
}

/// A span of nothing would be divided by.
#[test]
fn a_schedule_that_makes_no_sense_is_refused() {
    let mut row = fixture::schedule_row(1, 5).schedule;
    row.rules.timing = Timing::Every { every_ms: 0, anchor: 0 };
    let mut body = Vec::new();
    encode_schedule_body(&row, &mut body);
    assert_eq!(decode_schedule_body(row.id, row.name.clone(), &body), None);
}

/// The tz database of another machine, or of another day, may not know it.
#[test]
fn a_schedule_whose_zone_is_not_known_any_more_is_read_as_unreadable_and_written_as_it_was() {
    let mut row = fixture::schedule_row(1, 5).schedule;
    row.rules.timing = Timing::Cron(Arc::new(Calendar::new("@hourly", "Europe/Berlin").unwrap()));
    let (mut body, mut again) = (Vec::new(), Vec::new());
    encode_schedule_body(&row, &mut body);
    let at = body.windows(6).position(|window| window == b"Berlin").unwrap();
    body[at..at + 6].copy_from_slice(b"Nowher");
    let read = decode_schedule_body(row.id, row.name.clone(), &body).unwrap();
    let Timing::Unreadable { expr, zone, why } = &read.rules.timing else { panic!("{read:?}") };
    assert_eq!((&**expr, &**zone), ("@hourly", "Europe/Nowher"));
    assert!(why.contains("Europe/Nowher"), "{why}");
    encode_schedule_body(&read, &mut again);
    assert_eq!(again, body);
}

/// What an earlier version wrote: without the agent.
#[test]
fn facts_of_a_schedule_without_its_agent_are_read() {
    let facts = ScheduleFacts {
        schedule: ScheduleId(7),
        name: "s".into(),
        agent: None,
        run: Some(3),
        task: None,
        scheduled_for: None,
        n_failed: 0,
        reason: "x".into(),
    };
    let subject = Subject::Schedule(Box::new(facts));
    let told = [Happening { kind: HappeningKind::ScheduleFired, at_ms: 1, subject }];
    let mut written = Vec::new();
    encode_happenings(&told, &mut written);
    assert_eq!(written, BEFORE);
    assert_eq!(decode_happenings(BEFORE).as_deref(), Some(&told[..]));
}

const BEFORE: &[u8] = &[1, 1, 24, 2, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 1, 115, 9, 3, 0, 1, 120];

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

#[test]
fn a_usual_member_and_its_session_are_small() {
    let (mut plain, mut body) = (Vec::new(), Vec::new());
    let task = fixture::ended(1_700_000_000_500, fixture::task(101));
    encode_task_body(&task, &mut plain);
    encode_task_body(&fixture::seated(0, task), &mut body);
    // One byte more of flags, one of the member's own, its session, its number in line.
    assert!(body.len() <= plain.len() + 5, "{} bytes more", body.len() - plain.len());
    let session = Session { created_at: 1_700_000_000_000, last_at: 1_700_000_000_500, ..fixture::session(1) };
    encode_session_body(&session, &mut body);
    assert!(body.len() <= 28, "{} bytes", body.len());
}

/// Written by version 0.1, before there were sessions. They must be read for ever, and what has no session is written
/// as it was then.
#[test]
fn bodies_of_the_first_version_are_read_and_written_as_they_were() {
    let lease = Lease { worker: WorkerId(9), token: Token(u64::MAX - 3), order: 4, since_ms: 77, stop: None };
    let in_state = |state, seq| fixture::in_state(state, fixture::task(seq));
    for (task, hex) in [
        (fixture::task(1), "010205000100"),
        (in_state(State::Running(lease), 2), "010400000000000000000000000000000009fcffffffffffffff044d00000200"),
        (fixture::ended(3, fixture::task(3)), "010540030000"),
        (in_state(State::Waiting(Wait::BatchPlace), 4), "010001000400"),
        (in_state(State::Scheduled(Delay::Backoff(8)), 5), "01010108000500"),
        (first_version_task(lease), FIRST_VERSION_TASK),
    ] {
        let mut body = Vec::new();
        encode_task_body(&task, &mut body);
        assert_eq!(to_hex(&body), hex);
        assert_eq!(decode_task_body(TaskColumns::of(&task), &from_hex(hex)), Some(task));
    }
}

#[test]
fn happenings_of_the_first_version_are_read_and_written_as_they_were() {
    let batch = fixture::batch(fixture::batch_id(1));
    let Happening { subject: Subject::Task(facts), .. } =
        fixture::happening(HappeningKind::TaskCreated, &fixture::task(1))
    else {
        panic!("it tells of a task");
    };
    let failed = TaskFacts { class: Some(Class::Lost), reason: "gone".into(), batch: Some(batch.id), ..facts.clone() };
    let worker = Subject::Worker { worker: WorkerId(9), name: "box".into(), reason: "".into() };
    let happenings: Vec<Happening> = [
        (HappeningKind::TaskCreated, Subject::Task(facts)),
        (HappeningKind::TaskFailed, Subject::Task(failed)),
        (HappeningKind::BatchFinished, Subject::Batch(Box::new(batch))),
        (HappeningKind::WorkerJoined, worker),
        (HappeningKind::ConfigChanged, Subject::Config),
    ]
    .into_iter()
    .zip(1..)
    .map(|((kind, subject), at_ms)| Happening { kind, at_ms, subject })
    .collect();
    let mut bytes = Vec::new();
    encode_happenings(&happenings, &mut bytes);
    assert_eq!(to_hex(&bytes), FIRST_VERSION_HAPPENINGS);
    assert_eq!(decode_happenings(&from_hex(FIRST_VERSION_HAPPENINGS)), Some(happenings));
}

const FIRST_VERSION_TASK: &str = "010400000000000000000000000000000009fcffffffffffffff044d02ff7f80d095ffbc31fd9fabfef962\
    80a0b787e905020406080a0c0d0e0f10110409080706052102070302ffffffffffffffffffffffffffffffff1173746f7070696e673a2074696d\
    656f7574030bc3bc6265726c617374657400010280d095ffbc31";

const FIRST_VERSION_HAPPENINGS: &str = "010500020044000000000000000000000000000003e90203616461046d61696e046e6f6f700003\
    0702007b00000000000000000000000000001389000204676f6e65030a02010000000000000000000000000000138901020301000001010a0c02\
    020000000000000000000000000000000903626f780b0203";

/// Every field that the first version knew has a value that its default has not.
fn first_version_task(lease: Lease) -> Task {
    let retry =
        Retry { max_retries: 9, backoff_ms: 8, multiplier_milli: 7, backoff_ms_max: 6, jitter_milli: 5, on: 0b10_0001 };
    let mut task = Task {
        rank: -7,
        batch: Some(fixture::batch_id(1)),
        policy: Policy {
            timeout_ms: 4,
            retry,
            on_dependency_failure: OnDependencyFailure::Run,
            preemptible: true,
            stall_ms: Some(3),
            ttl_ms: Some(2),
            takes_input: false,
            calls_back: false,
        },
        state: State::Running(Lease { stop: Some(Stop::Timeout), ..lease }),
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
        worker: Some(WorkerId(u128::MAX)),
        created_at: 1_700_000_000_000,
        run_at: Some(1),
        deadline: Some(1_800_000_000_000),
        dependency_deadline: Some(1_700_000_000_001),
        queued_at: Some(1_700_000_000_002),
        assigned_at: Some(1_700_000_000_003),
        started_at: Some(1_700_000_000_004),
        finished_at: Some(1_700_000_000_005),
        ..fixture::task(6)
    };
    task.trail.push(Step { kind: StepKind::Created, detail: 1, attempt: 2, at_ms: 1_700_000_000_000 });
    task
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}
