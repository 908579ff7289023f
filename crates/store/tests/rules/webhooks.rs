//! Who is told of what: a row of the outbox in the commit that made it happen.

use runyard_core::event::{Event, HappeningKind, Subject};
use runyard_core::ids::TaskId;
use runyard_core::outbox::{Delivery, DeliveryChange, DeliveryState, Hook, Progress, Recipient, Try};
use runyard_core::task::{Class, Phase};
use runyard_store::memory::FailCommit;

use super::bed::{Bed, DAY, HOUR, New, SECOND, batch, message, task};

fn hook(name: &str, events: &[HappeningKind]) -> Hook {
    let events = events.iter().fold(0, |bits, kind| bits | kind.bit());
    Hook { name: name.into(), events, agents: Vec::new(), lanes: Vec::new(), kinds: Vec::new() }
}

/// What is told, and about which task.
fn told(bed: &Bed) -> Vec<(HappeningKind, TaskId)> {
    let about = |delivery: &Delivery| match &delivery.happening.subject {
        Subject::Task(facts) => facts.task,
        Subject::Batch(batch) => TaskId(batch.id.0),
        other => panic!("{other:?}"),
    };
    bed.outbox().iter().map(|delivery| (delivery.happening.kind, about(delivery))).collect()
}

fn recipients(bed: &Bed) -> Vec<Recipient> {
    bed.outbox().iter().map(|delivery| delivery.progress.to).collect()
}

#[test]
fn whoever_asked_is_told_of_the_end_and_of_nothing_before() {
    let mut bed = Bed::new();
    let ids = bed.submit_n(3, &task("a").calls_back().max_retries(0));
    let quiet = bed.submit(task("a"));
    assert!(told(&bed).is_empty());
    bed.advance_ms(SECOND);
    bed.complete(ids[0]);
    bed.fail(ids[1], Class::Task);
    bed.cancel(ids[2]);
    assert_eq!(told(&bed).len(), 2, "one that is being stopped has not ended");
    bed.confirm_stop(ids[2]);
    bed.complete(quiet);
    let kinds = [HappeningKind::TaskCompleted, HappeningKind::TaskFailed, HappeningKind::TaskCancelled];
    assert_eq!(told(&bed), kinds.into_iter().zip(ids).collect::<Vec<_>>());
    let at_ms = bed.wall_ms();
    assert!(bed.outbox().iter().all(|delivery| delivery.progress == Progress::new(Recipient::Own, at_ms)));
}

#[test]
fn a_retry_is_no_end() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").calls_back());
    bed.fail(id, Class::Task);
    bed.crash();
    assert!(told(&bed).is_empty());
    bed.advance_ms(10 * SECOND);
    bed.complete(id);
    assert_eq!(told(&bed), [(HappeningKind::TaskCompleted, id)]);
}

#[test]
fn every_way_to_end_is_told_once() {
    let mut bed = Bed::new().inflight(0);
    let parent = bed.submit(task("a").calls_back());
    let child = bed.submit(task("a").calls_back().after(&[parent]));
    let late = bed.submit(task("a").calls_back().deadline(bed.after_ms(SECOND)));
    bed.cancel(parent);
    bed.advance_ms(SECOND);
    assert_eq!(bed.states(&[parent, child, late]), [Phase::Cancelled, Phase::Cancelled, Phase::Failed]);
    let mut told = told(&bed);
    told.sort();
    let cancelled = HappeningKind::TaskCancelled;
    assert_eq!(told, [(HappeningKind::TaskFailed, late), (cancelled, parent), (cancelled, child)]);
}

#[test]
fn what_was_never_taken_is_not_told_of() {
    let mut bed = Bed::new().config(|config| config.queued_max = 0);
    assert!(bed.try_submit(task("a").calls_back()).is_err());
    assert_eq!(bed.n_happenings(HappeningKind::TaskRejected), 1);
    assert!(told(&bed).is_empty());
}

#[test]
fn a_batch_is_told_of_when_it_is_finished() {
    let mut bed = Bed::new();
    let (id, tasks) = bed.batch(batch([task("a"), task("a").calls_back()]).calls_back());
    bed.batch(batch([task("a")]));
    bed.complete(tasks[0]);
    assert!(told(&bed).is_empty());
    bed.run_all();
    let expected = [(HappeningKind::TaskCompleted, tasks[1]), (HappeningKind::BatchFinished, TaskId(id.0))];
    assert_eq!(told(&bed), expected);
}

#[test]
fn a_message_exists_exactly_when_its_end_does() {
    for (fail, phase) in [(FailCommit::BeforeApply, None), (FailCommit::AfterApply, Some(Phase::Cancelled))] {
        let mut bed = Bed::new().inflight(0);
        // It ends in the tick that it comes in.
        let past = task("a").calls_back().after(&[TaskId(77)]).dependency_timeout_ms(0);
        let id = bed.fail_commit_of(fail, past);
        assert_eq!(bed.find(id).map(|doc| doc.task.phase()).is_some(), phase.is_some());
        bed.advance_ms(SECOND);
        assert_eq!(told(&bed).len(), usize::from(phase.is_some()));
    }
}

// ── Messages that carry others ──────────────────────────────────────────────────────────────────────────────────────

fn burst() -> New {
    message("s").debounce_ms(200)
}

#[test]
fn a_task_that_carries_messages_calls_everyone_back_who_asked() {
    for (own, merged) in [(true, true), (true, false), (false, true)] {
        let asks = |new: New, is: bool| if is { new.calls_back() } else { new };
        let mut bed = Bed::new();
        let id = bed.submit(asks(burst(), own));
        bed.merge(asks(burst(), merged));
        bed.merge(burst());
        bed.advance_ms(SECOND);
        bed.complete(id);
        assert_eq!(
            (told(&bed), recipients(&bed)),
            (vec![(HappeningKind::TaskCompleted, id)], vec![Recipient::Everyone])
        );
    }
    let mut bed = Bed::new();
    bed.submit(burst());
    bed.merge(burst());
    bed.advance_ms(SECOND);
    bed.run_all();
    assert!(told(&bed).is_empty());
}

#[test]
fn a_message_for_everyone_is_split_by_who_looks_into_it() {
    let mut bed = Bed::new();
    let id = bed.submit(burst().calls_back());
    bed.merge(burst().calls_back());
    bed.advance_ms(SECOND);
    bed.complete(id);
    let first = bed.outbox().remove(0);
    let progress = Progress { to: Recipient::Own, ..first.progress };
    let others = vec![Recipient::Merged(1), Recipient::Merged(4)];
    let change = DeliveryChange { id: first.id, progress, others, happening: Some(first.happening.clone()) };
    bed.send([Event::Deliveries { ticket: None, changes: vec![change] }]);
    bed.restart();
    assert_eq!(recipients(&bed), [Recipient::Own, Recipient::Merged(1), Recipient::Merged(4)]);
    let outbox = bed.outbox();
    assert!(outbox.iter().all(|delivery| delivery.happening == first.happening));
    assert!(outbox.is_sorted_by(|a, b| a.id < b.id));
}

#[test]
fn dropped_and_interrupted_messages_have_their_own_ends() {
    let mut bed = Bed::new();
    let first = bed.submit(message("s").calls_back());
    let second = bed.submit(message("s").calls_back());
    let newest = bed.submit(message("s").calls_back().with(|new| {
        new.session.as_mut().expect("it has one").as_mode = Some(runyard_core::session::Mode::Interrupt);
    }));
    bed.confirm_stop(first);
    bed.complete(newest);
    let ends = |id| told(&bed).into_iter().filter(|(_, about)| *about == id).count();
    assert_eq!([first, second, newest].map(ends), [1, 1, 1]);
}

// ── Subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_subscription_is_told_of_what_it_asked_for() {
    let (started, completed) = (HappeningKind::TaskStarted, HappeningKind::TaskCompleted);
    let mut bed = Bed::new().config(|config| {
        let narrow = |name: &str| hook(name, &[completed]);
        config.hooks = vec![
            hook("all", &[started, completed, HappeningKind::BatchFinished]),
            Hook { agents: vec!["a".into(), "b".into()], ..narrow("agents") },
            Hook { lanes: vec!["cron".into()], ..narrow("lanes") },
            Hook { kinds: vec!["process".into()], agents: vec!["c".into()], ..narrow("kinds") },
            hook("none", &[HappeningKind::TaskFailed]),
        ];
    });
    let of = |bed: &Bed, name: &str| {
        let all = bed.outbox();
        all.iter()
            .filter(|delivery| delivery.hook.as_deref() == Some(name))
            .map(|d| d.happening.kind)
            .collect::<Vec<_>>()
    };
    bed.submit(task("a").calls_back());
    bed.submit(task("c").lane("cron"));
    bed.submit(task("c").kind("process"));
    bed.run_all();
    assert_eq!(of(&bed, "all"), [started, started, started, completed, completed, completed]);
    assert_eq!(of(&bed, "agents"), [completed]);
    assert_eq!(of(&bed, "lanes"), [completed]);
    assert_eq!(of(&bed, "kinds"), [completed]);
    assert_eq!(of(&bed, "none"), []);
    let n_own = bed.outbox().iter().filter(|delivery| delivery.hook.is_none()).count();
    assert_eq!(n_own, 1, "its submitter is told whatever the subscriptions are");
}

#[test]
fn a_subscription_to_some_tasks_is_told_of_nothing_else() {
    let mut bed = Bed::new().config(|config| {
        let wide = hook("wide", &HappeningKind::ALL);
        config.hooks = vec![Hook { lanes: vec!["main".into()], ..wide.clone() }, wide];
        config.hooks[0].name = "narrow".into();
    });
    bed.batch(batch([task("a")]));
    bed.run_all();
    let finished: Vec<Option<String>> = bed
        .outbox()
        .into_iter()
        .filter(|delivery| delivery.happening.kind == HappeningKind::BatchFinished)
        .map(|delivery| delivery.hook.map(|hook| hook.to_string()))
        .collect();
    assert_eq!(finished, [Some("wide".to_owned())]);
}

// ── What the deliverer says ─────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn progress_is_kept_as_it_is_told() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").calls_back());
    bed.complete(id);
    let first = bed.outbox().remove(0);
    let tries = vec![Try { at_ms: 5, took_ms: 6, status: Some(500), error: "HTTP 500".into() }];
    let state = DeliveryState::Pending { next_at: bed.after_ms(SECOND) };
    let progress = Progress { state, n_tries: 1, tries, ..first.progress.clone() };
    let change = DeliveryChange { id: first.id, progress: progress.clone(), others: Vec::new(), happening: None };
    bed.send([Event::Deliveries { ticket: None, changes: vec![change] }]);
    bed.crash();
    assert_eq!(bed.outbox(), [Delivery { progress, ..first }]);
}

#[test]
fn retention_waits_for_a_message_that_is_not_delivered() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").calls_back());
    bed.complete(id);
    bed.advance_ms(DAY);
    assert!(bed.purge(HOUR).is_empty());
    let first = bed.outbox().remove(0);
    let progress = Progress { state: DeliveryState::GivenUp, ..first.progress };
    let change = DeliveryChange { id: first.id, progress, others: Vec::new(), happening: None };
    bed.send([Event::Deliveries { ticket: None, changes: vec![change] }]);
    assert_eq!(bed.purge(HOUR), [id]);
}
