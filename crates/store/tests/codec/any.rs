//! Any row there can be.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use runyard_core::batch::Batch;
use runyard_core::event::{FirstAnswer, Happening, HappeningKind, NewMember, Receipt, Subject, TaskFacts};
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
use runyard_store::suite::fixture;

pub fn tier() -> impl Strategy<Value = Tier> {
    prop::sample::select(Tier::ALL.to_vec())
}

pub fn class() -> impl Strategy<Value = Class> {
    prop::sample::select(Class::ALL.to_vec())
}

pub fn phase() -> impl Strategy<Value = Phase> {
    prop::sample::select(Phase::ALL.to_vec())
}

pub fn name() -> impl Strategy<Value = Name> {
    "[a-zä]{1,8}".prop_map(Name::from)
}

pub fn text() -> impl Strategy<Value = Text> {
    "(|.{0,20})".prop_map(Text::Owned)
}

/// Both ends of the range as often as the middle.
pub fn moment() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), Just(0), Just(u64::MAX), 1_700_000_000_000..1_800_000_000_000_u64]
}

pub fn lease() -> impl Strategy<Value = Lease> {
    let stop = of(prop::sample::select(Stop::ALL.to_vec()));
    (any::<u128>(), any::<u64>(), any::<u64>(), moment(), stop).prop_map(|(worker, token, order, since_ms, stop)| {
        Lease { worker: WorkerId(worker), token: Token(token), order, since_ms, stop }
    })
}

pub fn state() -> impl Strategy<Value = State> {
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

pub fn policy() -> impl Strategy<Value = Policy> {
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

pub fn mode() -> impl Strategy<Value = Mode> {
    prop::sample::select(Mode::ALL.to_vec())
}

/// Zero as often as not: it is what a flag stands for.
pub fn count() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), any::<u64>()]
}

pub fn member() -> impl Strategy<Value = Member> {
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

pub fn usage() -> impl Strategy<Value = Usage> {
    prop::array::uniform4(of(any::<u64>())).prop_map(|tokens| {
        let [input_tokens, output_tokens, context_tokens, context_window] = tokens;
        Usage { input_tokens, output_tokens, context_tokens, context_window }
    })
}

pub fn settings() -> impl Strategy<Value = Settings> {
    let overflow = of(prop::sample::select(Overflow::ALL.to_vec()));
    let numbers = (of(any::<u32>()), of(any::<u32>()), of(any::<u64>()), of(any::<u64>()));
    (of(mode()), overflow, numbers).prop_map(|(mode, overflow, (cap, max_concurrent, debounce_ms, wait_ms_max))| {
        Settings { mode, cap, overflow, debounce_ms, wait_ms_max, max_concurrent }
    })
}

pub fn session() -> impl Strategy<Value = Session> {
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

pub fn message() -> impl Strategy<Value = Message> {
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

pub fn origin() -> impl Strategy<Value = Origin> {
    (any::<u128>(), any::<u64>()).prop_map(|(schedule, run)| Origin { schedule: ScheduleId(schedule), run })
}

pub fn timing() -> impl Strategy<Value = Timing> {
    let exprs = vec!["@hourly", "*/5 * * * * *", "0 3 L * MON#2", "30 2 29 2 *", "  0 0 15W * ?"];
    let zones = vec!["UTC", "Europe/Berlin", "Pacific/Apia", "America/Argentina/Buenos_Aires"];
    let calendar = (prop::sample::select(exprs), prop::sample::select(zones));
    prop_oneof![
        moment().prop_map(Timing::At),
        (1..=u64::MAX, moment()).prop_map(|(every_ms, anchor)| Timing::Every { every_ms, anchor }),
        calendar.prop_map(|(expr, zone)| Timing::Cron(Arc::new(Calendar::new(expr, zone).unwrap()))),
    ]
}

pub fn rules() -> impl Strategy<Value = Rules> {
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

pub fn schedule() -> impl Strategy<Value = Schedule> {
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

pub fn template() -> impl Strategy<Value = Template> {
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

pub fn run() -> impl Strategy<Value = Run> {
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

pub fn schedule_facts() -> impl Strategy<Value = ScheduleFacts> {
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

pub fn trail() -> impl Strategy<Value = Trail> {
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

pub fn task() -> impl Strategy<Value = Task> {
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

pub fn worker() -> impl Strategy<Value = WorkerRow> {
    let resources = (any::<u32>(), any::<u32>(), vec((name(), any::<u32>()), 0..3));
    let offers = (vec(name(), 0..3), vec(name(), 0..3), resources, of(0..u32::MAX), vec((name(), name()), 0..3));
    let rest = (any::<u64>(), any::<[bool; 2]>(), moment(), vec(any::<u8>(), 0..30));
    (any::<u128>(), name(), offers, rest).prop_map(|(id, name, offers, (session, flags, registered_at, about))| {
        let [draining, embedded] = flags;
        let (kinds, keeps, (cpu_milli, ram_mb, named), parallel_max, labels) = offers;
        let (id, capacity) = (WorkerId(id), Resources { cpu_milli, ram_mb, named });
        let spec = WorkerSpec { id, name, kinds, keeps, capacity, parallel_max, labels, embedded };
        WorkerRow { spec, session, draining, registered_at, about: about.into() }
    })
}

pub fn batch() -> impl Strategy<Value = Batch> {
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

pub fn progress() -> impl Strategy<Value = Progress> {
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

fn receipt() -> impl Strategy<Value = Receipt> {
    let id = any::<u128>();
    prop_oneof![
        Just(Receipt::Done),
        (id, any::<u64>()).prop_map(|(id, run)| Receipt::Ran { schedule: ScheduleId(id), run }),
        of(any::<u128>()).prop_map(|task| Receipt::Stopped { task: task.map(TaskId) }),
        (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(running, waiting, debouncing)| Receipt::StoppedAll {
            running,
            waiting,
            debouncing
        }),
        worker().prop_map(|row| Receipt::WorkerRemoved(Box::new(row))),
    ]
}

pub fn answer() -> impl Strategy<Value = FirstAnswer> {
    let tasks = vec((any::<u128>().prop_map(TaskId), phase()), 0..5);
    prop_oneof![
        (any::<u128>(), phase()).prop_map(|(id, phase)| FirstAnswer::Task { id: TaskId(id), phase }),
        (any::<u128>(), tasks).prop_map(|(id, tasks)| FirstAnswer::Batch { id: BatchId(id), tasks }),
        receipt().prop_map(FirstAnswer::Command),
    ]
}

/// Few different values, so that neighbours are often alike.
pub fn facts() -> impl Strategy<Value = TaskFacts> {
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

pub fn happening() -> impl Strategy<Value = Happening> {
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
        1 => name().prop_map(|name| Subject::Node { name }),
    ];
    (prop::sample::select(HappeningKind::ALL.to_vec()), moment(), subject)
        .prop_map(|(kind, at_ms, subject)| Happening { kind, at_ms, subject })
}
