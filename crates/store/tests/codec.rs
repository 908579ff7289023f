//! Rows come back from their bytes exactly, and bytes that make no sense are refused and never a panic.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use runyard_core::batch::Batch;
use runyard_core::event::{FirstAnswer, Happening, HappeningKind, NewMember, Subject, TaskFacts};
use runyard_core::flow::Resources;
use runyard_core::ids::{BatchId, FlowId, ScheduleId, TaskId, Token, WorkerId};
use runyard_core::name::Name;
use runyard_core::outbox::{DeliveryState, Progress, Recipient, Try};
use runyard_core::schedule::{
    CatchUp, Cause, Origin, Outcome, Overlap, Rules, Run, Schedule, ScheduleFacts, Standing, Template, Timing,
};
use runyard_core::session::{Context, Member, Message, Mode, Overflow, Session, SessionId, Settings, Usage};
use runyard_core::task::{
    Class, Delay, Failure, Lease, OnDependencyFailure, Phase, Policy, Retry, State, Stop, Task, Text, Tier, Wait,
};
use runyard_core::trail::{Step, StepKind, Trail};
use runyard_core::worker::{WorkerRow, WorkerSpec};
use runyard_cron::Calendar;
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
        Just(State::Waiting(Wait::Seat)),
        moment().prop_map(|at| State::Scheduled(Delay::Until(at))),
        moment().prop_map(|at| State::Scheduled(Delay::Backoff(at))),
        moment().prop_map(|at| State::Scheduled(Delay::Debounce(at))),
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
    let own = (any::<u64>(), retry, on_failure, any::<[bool; 3]>(), of(any::<u64>()), of(any::<u64>())).prop_map(
        |(timeout_ms, retry, on_dependency_failure, [preemptible, takes_input, calls_back], stall_ms, ttl_ms)| Policy {
            timeout_ms,
            retry,
            on_dependency_failure,
            preemptible,
            stall_ms,
            ttl_ms,
            takes_input,
            calls_back,
        },
    );
    prop_oneof![Just(Policy::default()), own]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop::sample::select(Mode::ALL.to_vec())
}

/// Zero as often as not: it is what a flag stands for.
fn count() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), any::<u64>()]
}

fn member() -> impl Strategy<Value = Member> {
    let counts = prop::array::uniform7(count());
    (any::<u64>(), any::<[bool; 2]>(), prop_oneof![Just(0), any::<u32>()], counts, of(mode())).prop_map(
        |(session, [seated, gathers], n_merged, counts, as_mode)| {
            let [line, merged_bytes, debounced_until, gathers_until, from, to, _] = counts;
            Member {
                session: SessionId(session),
                line,
                seated,
                gathers,
                n_merged,
                merged_bytes,
                debounced_until,
                gathers_until,
                told: (from, to),
                as_mode,
            }
        },
    )
}

fn usage() -> impl Strategy<Value = Usage> {
    prop::array::uniform4(of(any::<u64>())).prop_map(|tokens| {
        let [input_tokens, output_tokens, context_tokens, context_window] = tokens;
        Usage { input_tokens, output_tokens, context_tokens, context_window }
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let overflow = of(prop::sample::select(Overflow::ALL.to_vec()));
    let numbers = (of(any::<u32>()), of(any::<u32>()), of(any::<u64>()), of(any::<u64>()));
    (of(mode()), overflow, numbers).prop_map(|(mode, overflow, (cap, max_concurrent, debounce_ms, wait_ms_max))| {
        Settings { mode, cap, overflow, debounce_ms, wait_ms_max, max_concurrent }
    })
}

fn session() -> impl Strategy<Value = Session> {
    let names = (any::<u64>(), "(|.{0,20})", name(), settings());
    let numbers = (any::<[u32; 5]>(), prop_oneof![Just(0), any::<u32>()], prop::array::uniform8(count()));
    let context = of((any::<u64>(), any::<u64>()).prop_map(|(tokens, window)| Context { tokens, window }));
    let rest = (any::<bool>(), of(moment()), context, of(any::<u128>()), moment(), moment());
    (names, numbers, rest).prop_map(|((id, key, lane, own), (n, generation, counts), rest)| {
        let (is_draining, cutoff, context, gatherer, created_at, last_at) = rest;
        Session {
            id: SessionId(id),
            key: key.into(),
            own,
            lane,
            generation,
            reset_seq: counts[0],
            stopped_seq: counts[1],
            stopped_line: counts[2],
            is_draining,
            cutoff,
            context,
            n_live: n[0],
            n_held: n[1],
            n_seated: n[2],
            n_line: n[3],
            n_debouncing: n[4],
            next_line: counts[3],
            gatherer: gatherer.map(TaskId),
            n_dropped: counts[4],
            n_told: counts[5],
            live_from: counts[6],
            n_messages: counts[7],
            created_at,
            last_at,
        }
    })
}

fn message() -> impl Strategy<Value = Message> {
    let place = (any::<u128>(), any::<u64>(), any::<u32>());
    (place, moment(), of(moment()), of(name())).prop_map(|((task, task_seq, n), at_ms, sent_at, key)| Message {
        task: TaskId(task),
        task_seq,
        n,
        at_ms,
        sent_at,
        key,
    })
}

fn origin() -> impl Strategy<Value = Origin> {
    (any::<u128>(), any::<u64>()).prop_map(|(schedule, run)| Origin { schedule: ScheduleId(schedule), run })
}

fn timing() -> impl Strategy<Value = Timing> {
    let exprs = vec!["@hourly", "*/5 * * * * *", "0 3 L * MON#2", "30 2 29 2 *", "  0 0 15W * ?"];
    let zones = vec!["UTC", "Europe/Berlin", "Pacific/Apia", "America/Argentina/Buenos_Aires"];
    let calendar = (prop::sample::select(exprs), prop::sample::select(zones));
    prop_oneof![
        moment().prop_map(Timing::At),
        (1..=u64::MAX, moment()).prop_map(|(every_ms, anchor)| Timing::Every { every_ms, anchor }),
        calendar.prop_map(|(expr, zone)| Timing::Cron(Arc::new(Calendar::new(expr, zone).unwrap()))),
    ]
}

fn rules() -> impl Strategy<Value = Rules> {
    let overlap = prop::sample::select(vec![Overlap::Skip, Overlap::Queue, Overlap::Replace, Overlap::Allow]);
    let all = (any::<u32>(), any::<u64>()).prop_map(|(limit, expiry_ms)| CatchUp::All { limit, expiry_ms });
    let catch_up = prop_oneof![Just(CatchUp::Skip), Just(CatchUp::One), all];
    let limits = (prop::array::uniform3(of(moment())), prop::array::uniform2(of(any::<u32>())));
    (timing(), overlap, catch_up, prop::array::uniform2(count()), limits, any::<bool>()).prop_map(
        |(timing, overlap, catch_up, [stagger_ms, jitter_ms], (limits, after), delete_after_run)| Rules {
            timing,
            overlap,
            catch_up,
            stagger_ms,
            jitter_ms,
            from: limits[0],
            until: limits[1],
            runs_max: limits[2],
            delete_after_run,
            alert_after: after[0],
            pause_after: after[1],
        },
    )
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let standing = prop_oneof![
        Just(Standing::Enabled),
        text().prop_map(|reason| Standing::Paused { reason }),
        text().prop_map(|why| Standing::Done { why }),
    ];
    let numbers = (any::<[u32; 3]>(), count(), prop::array::uniform3(moment()), of(moment()), any::<bool>());
    (any::<u128>(), "(|.{0,20})", rules(), standing, numbers).prop_map(|(id, name, rules, standing, numbers)| {
        let ([revision, n_live, n_failed_in_row], n_runs, [done_to, created_at, changed_at], next_for, is_alerted) =
            numbers;
        Schedule {
            id: ScheduleId(id),
            name: name.into(),
            rules,
            standing,
            revision,
            next_for,
            done_to,
            n_runs,
            n_live,
            n_failed_in_row,
            is_alerted,
            created_at,
            changed_at,
        }
    })
}

fn template() -> impl Strategy<Value = Template> {
    let member = (name(), settings(), of(mode()), of(moment()))
        .prop_map(|(key, settings, as_mode, sent_at)| NewMember { key, settings, as_mode, sent_at });
    (name(), any::<i32>(), policy(), of(member), vec(any::<u8>(), 0..40)).prop_map(
        |(agent, rank, policy, session, spec)| Template {
            flow: fixture::key(&agent),
            rank,
            policy,
            session,
            spec: spec.into(),
        },
    )
}

fn run() -> impl Strategy<Value = Run> {
    let cause = prop::sample::select(vec![Cause::Time, Cause::CatchUp, Cause::Hand]);
    let outcome = prop_oneof![
        prop::sample::select(vec![
            Outcome::Live,
            Outcome::Completed,
            Outcome::Failed,
            Outcome::Cancelled,
            Outcome::Skipped,
        ]),
        any::<u32>().prop_map(|n| Outcome::Missed { n }),
    ];
    let place = (any::<u128>(), any::<u64>(), name(), moment(), cause);
    let moments = (moment(), of(moment()), of(moment()));
    let tail = of(vec(any::<u8>(), 0..40));
    let rest = (of(any::<u128>()), any::<u32>(), of(class()), text(), of(usage()), tail);
    (place, outcome, moments, rest).prop_map(
        |((schedule, n, name, scheduled_for, cause), outcome, (created_at, started_at, ended_at), rest)| {
            let (task, attempts, class, reason, usage, tail) = rest;
            Run {
                schedule: ScheduleId(schedule),
                n,
                name,
                scheduled_for,
                cause,
                task: task.map(TaskId),
                outcome,
                created_at,
                started_at,
                ended_at,
                attempts,
                class,
                reason,
                usage,
                tail: tail.map(Into::into),
            }
        },
    )
}

fn schedule_facts() -> impl Strategy<Value = ScheduleFacts> {
    let moments = (of(any::<u64>()), of(any::<u128>()), of(moment()));
    (any::<u128>(), (name(), of(name())), moments, any::<u32>(), text()).prop_map(
        |(schedule, (name, agent), (run, task, scheduled_for), n_failed, reason)| ScheduleFacts {
            schedule: ScheduleId(schedule),
            name,
            agent,
            run,
            task: task.map(TaskId),
            scheduled_for,
            n_failed,
            reason,
        },
    )
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
    let texts = (text(), error, of(any::<u128>()), vec(any::<u128>(), 0..4), trail());
    let of_session = (of(member()), of(any::<u128>()), of(usage().prop_map(Box::new)), of(origin()));
    let moments = (moment(), prop::array::uniform7(of(moment())));
    (columns, policy(), state(), counters, texts, moments, of_session).prop_map(
        |(columns, policy, state, (counters, flags), texts, (created_at, moments), (member, steers, usage, origin))| {
            let (reason, error, worker, failed_on, trail) = texts;
            let (id, seq, flow, rank, batch, attempt) = columns;
            Task {
                id: TaskId(id),
                seq,
                flow: FlowId(flow),
                rank,
                batch: batch.map(BatchId),
                member,
                steers: steers.map(TaskId),
                origin,
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
                usage,
                worker: worker.map(WorkerId),
                failed_on: failed_on.into_iter().map(WorkerId).collect(),
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

fn worker() -> impl Strategy<Value = WorkerRow> {
    let resources = (any::<u32>(), any::<u32>(), vec((name(), any::<u32>()), 0..3));
    let offers = (vec(name(), 0..3), vec(name(), 0..3), resources, of(0..u32::MAX), vec((name(), name()), 0..3));
    let rest = (any::<u64>(), any::<bool>(), moment(), vec(any::<u8>(), 0..30));
    (any::<u128>(), name(), offers, rest).prop_map(|(id, name, offers, (session, draining, registered_at, about))| {
        let (kinds, keeps, (cpu_milli, ram_mb, named), parallel_max, labels) = offers;
        let (id, capacity) = (WorkerId(id), Resources { cpu_milli, ram_mb, named });
        let spec = WorkerSpec { id, name, kinds, keeps, capacity, parallel_max, labels, embedded: false };
        WorkerRow { spec, session, draining, registered_at, about: about.into() }
    })
}

fn batch() -> impl Strategy<Value = Batch> {
    (any::<u128>(), of(any::<u32>()), any::<bool>(), any::<[u32; 6]>(), moment(), of(moment())).prop_map(
        |(id, parallelism, calls_back, n, created_at, finished_at)| Batch {
            id: BatchId(id),
            parallelism,
            calls_back,
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

fn progress() -> impl Strategy<Value = Progress> {
    let to = prop_oneof![Just(Recipient::Everyone), Just(Recipient::Own), any::<u32>().prop_map(Recipient::Merged),];
    let state = prop_oneof![
        moment().prop_map(|next_at| DeliveryState::Pending { next_at }),
        Just(DeliveryState::Delivered),
        Just(DeliveryState::GivenUp),
    ];
    let one = (moment(), any::<u64>(), of(any::<u16>()), text()).prop_map(|(at_ms, took_ms, status, error)| Try {
        at_ms,
        took_ms,
        status,
        error,
    });
    (to, state, moment(), any::<u32>(), vec(one, 0..4)).prop_map(|(to, state, since_ms, n_tries, tries)| Progress {
        to,
        state,
        since_ms,
        n_tries,
        tries,
    })
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
    let rest = (of(0..2_u128), of("(|[ab])"), any::<u32>(), of(class()), text(), of(any::<u64>()));
    (0..3_u128, names, rest).prop_map(
        |(task, (agent, lane, kind, tier), (batch, session, attempt, class, reason, elapsed_ms))| TaskFacts {
            task: TaskId(task),
            agent: agent.into(),
            lane: lane.into(),
            kind: kind.into(),
            tier,
            batch: batch.map(BatchId),
            session: session.map(Name::from),
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
        1 => (any::<u128>(), name(), text()).prop_map(|(worker, name, reason)| Subject::Worker {
            worker: WorkerId(worker),
            name,
            reason,
        }),
        1 => session().prop_map(|session| Subject::Session(Box::new(session))),
        1 => schedule_facts().prop_map(|facts| Subject::Schedule(Box::new(facts))),
        1 => Just(Subject::Config),
    ];
    (prop::sample::select(HappeningKind::ALL.to_vec()), moment(), subject)
        .prop_map(|(kind, at_ms, subject)| Happening { kind, at_ms, subject })
}
