//! Cancel is final, in every state.

use runyard_core::event::{CancelAnswer, Event};
use runyard_core::ids::{TaskId, Ticket};
use runyard_core::task::{Class, Phase, Stop};

use super::bed::{Bed, HOUR, MINUTE, SECOND, batch, task};

/// pinchtab 35, browseros 38
#[test]
fn a_queued_task_ends_at_once_never_runs_and_stays_readable() {
    let mut bed = Bed::new().inflight(0);
    let id = bed.submit(task("a"));
    assert_eq!(bed.cancel(id), CancelAnswer::Ended);
    bed.reconfigure(|config| config.inflight_max = 10);
    let task = bed.task(id);
    assert_eq!((task.phase(), task.reason.as_ref(), task.started_at), (Phase::Cancelled, "asked by a test", None));
    assert_eq!(bed.n_starts_of(id), 0);
}

#[test]
fn a_task_that_waits_for_others_ends_at_once() {
    let mut bed = Bed::new();
    let parent = bed.submit(task("a"));
    let child = bed.submit(task("a").after(&[parent]));
    assert_eq!(bed.cancel(child), CancelAnswer::Ended);
    bed.complete(parent);
    assert_eq!((bed.state(child), bed.n_starts_of(child)), (Phase::Cancelled, 0));
}

#[test]
fn a_task_that_waits_for_its_batch_ends_at_once() {
    let mut bed = Bed::new();
    let (id, tasks) = bed.batch(batch([task("a"), task("a"), task("a")]).parallelism(1));
    assert_eq!(bed.state(tasks[1]), Phase::Waiting);
    assert_eq!(bed.cancel(tasks[1]), CancelAnswer::Ended);
    bed.complete(tasks[0]);
    assert_eq!(bed.states(&tasks), [Phase::Completed, Phase::Cancelled, Phase::Running]);
    assert_eq!(bed.batch_row(id).n_waiting, 0);
}

#[test]
fn a_scheduled_task_ends_at_once() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").delay_ms(HOUR));
    assert_eq!(bed.cancel(id), CancelAnswer::Ended);
    bed.advance_ms(2 * HOUR);
    assert_eq!((bed.state(id), bed.n_starts_of(id)), (Phase::Cancelled, 0));
}

#[test]
fn a_task_in_its_backoff_ends_at_once_and_its_timer_does_not_revive_it() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.fail(id, Class::Task);
    assert_eq!(bed.cancel(id), CancelAnswer::Ended);
    bed.advance_ms(MINUTE);
    assert_eq!((bed.state(id), bed.n_starts_of(id)), (Phase::Cancelled, 1));
}

#[test]
fn an_assigned_task_is_stopped_and_ends_cancelled() {
    let mut bed = Bed::new().idle_workers();
    let id = bed.submit(task("a"));
    assert_eq!(bed.cancel(id), CancelAnswer::Stopping);
    assert_eq!(bed.take_stops(), [(id, Stop::Cancel)]);
    assert_eq!(bed.state(id), Phase::Assigned);
    bed.confirm_stop(id);
    assert_eq!((bed.state(id), bed.task(id).n_runs), (Phase::Cancelled, 0));
}

/// pinchtab 39
#[test]
fn a_running_task_keeps_its_slot_until_it_is_dead_and_frees_it_once() {
    let mut bed = Bed::new().inflight(1);
    let id = bed.submit(task("a"));
    let next = bed.submit_n(2, &task("b"));
    assert_eq!(bed.cancel(id), CancelAnswer::Stopping);
    assert_eq!(bed.take_stops(), [(id, Stop::Cancel)]);
    assert!(bed.task(id).reason.starts_with("stopping: cancel"));
    assert_eq!((bed.state(id), bed.n_held()), (Phase::Running, 1));
    bed.advance_ms(5 * SECOND);
    assert_eq!(bed.states(&next), [Phase::Queued; 2]);
    bed.confirm_stop(id);
    bed.confirm_stop(id);
    assert_eq!(bed.states(&next), [Phase::Running, Phase::Queued]);
    assert_eq!((bed.state(id), bed.n_held()), (Phase::Cancelled, 1));
    bed.advance_ms(300);
    assert_eq!(bed.n_held(), 1);
}

/// pinchtab 38
#[test]
fn the_cancel_of_a_queued_task_leaves_the_running_one_its_slot() {
    let mut bed = Bed::new().inflight(1);
    let running = bed.submit(task("a"));
    let queued = bed.submit(task("a"));
    bed.cancel(queued);
    assert_eq!((bed.state(running), bed.n_held()), (Phase::Running, 1));
    let counts = bed.counts(None);
    assert_eq!((counts.running, counts.queued), (1, 0));
}

#[test]
fn once_answered_the_end_is_cancelled_though_the_work_ended_well_meanwhile() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.cancel(id);
    bed.complete(id);
    assert_eq!((bed.state(id), bed.task(id).reason.as_ref()), (Phase::Cancelled, "asked by a test"));
}

#[test]
fn once_answered_the_end_is_cancelled_though_the_work_failed_meanwhile() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.cancel(id);
    bed.fail(id, Class::Task);
    bed.advance_ms(MINUTE);
    assert_eq!((bed.state(id), bed.n_starts_of(id)), (Phase::Cancelled, 1));
    let counts = bed.counts(None);
    assert_eq!(
        (counts.cancelled, counts.failed, counts.retried),
        (1, 0, 0),
        "a cancelled task is not counted as failed"
    );
}

#[test]
fn a_cancel_overrides_every_other_stop() {
    let mut bed = Bed::new();
    let timed_out = bed.submit(task("a").timeout_ms(SECOND));
    let deadline = bed.after_ms(SECOND);
    let expired = bed.submit(task("a").deadline(deadline));
    let stalled = bed.submit(task("a").stall_ms(SECOND));
    bed.advance_ms(SECOND);
    let mut stops: Vec<Stop> = bed.take_stops().into_iter().map(|(_, stop)| stop).collect();
    stops.sort_unstable_by_key(|stop| *stop as u8);
    assert_eq!(stops, [Stop::Timeout, Stop::Deadline, Stop::Stalled]);
    for id in [timed_out, expired, stalled] {
        assert_eq!(bed.cancel(id), CancelAnswer::Stopping);
        bed.confirm_stop(id);
        assert_eq!(bed.state(id), Phase::Cancelled);
    }
}

#[test]
fn no_other_stop_overrides_a_cancel() {
    let mut bed = Bed::new();
    let deadline = bed.after_ms(2 * SECOND);
    let id = bed.submit(task("a").timeout_ms(SECOND).deadline(deadline));
    bed.cancel(id);
    bed.advance_ms(MINUTE);
    bed.confirm_stop(id);
    assert_eq!(bed.state(id), Phase::Cancelled);
}

#[test]
fn a_second_cancel_of_a_stopping_task_is_answered_like_the_first() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    assert_eq!(bed.cancel(id), CancelAnswer::Stopping);
    assert_eq!(bed.cancel(id), CancelAnswer::Stopping);
    assert_eq!(bed.take_stops().len(), 1, "its worker is asked once");
}

/// pinchtab 19, 37
#[test]
fn the_cancel_of_an_ended_task_is_refused_and_changes_nothing() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.complete(id);
    let before = bed.task(id);
    assert_eq!(bed.cancel(id), CancelAnswer::Terminal(Phase::Completed));
    assert_eq!(bed.task(id), before);

    let queued = bed.submit(task("a").delay_ms(HOUR));
    assert_eq!(bed.cancel(queued), CancelAnswer::Ended);
    assert_eq!(bed.cancel(queued), CancelAnswer::Terminal(Phase::Cancelled));
    assert_eq!(bed.n_finals_of(queued), 1);
}

/// pinchtab 36, browseros 39
#[test]
fn the_cancel_of_an_unknown_task_finds_nothing() {
    let mut bed = Bed::new();
    assert_eq!(bed.cancel(TaskId(404)), CancelAnswer::NotFound);
}

#[test]
fn the_loss_of_the_worker_completes_a_cancel() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.cancel(id);
    bed.worker_gone(super::bed::FIRST);
    assert_eq!(bed.state(id), Phase::Cancelled);
    assert_eq!(bed.task(id).reason, "asked by a test");
}

#[test]
fn a_submit_and_its_cancel_in_one_queue_of_thousands_touch_only_that_task() {
    let mut bed = Bed::new().inflight(0).config(|config| config.window_max = 10);
    let ids = bed.submit_n(500, &task("a"));
    assert_eq!(bed.cancel(ids[400]), CancelAnswer::Ended);
    bed.reconfigure(|config| config.inflight_max = 1);
    let expected: Vec<_> = ids.iter().copied().filter(|id| *id != ids[400]).collect();
    assert_eq!(bed.run_all(), expected);
}

/// browseros 40, as decided otherwise: a retry is a copy, and what ended stays as it ended.
#[test]
fn a_copy_of_a_cancelled_task_is_a_new_task() {
    let mut bed = Bed::new();
    let old = bed.submit(task("a"));
    bed.cancel(old);
    bed.confirm_stop(old);
    let before = bed.task(old);
    let copy = bed.submit(task("a"));
    bed.complete(copy);
    assert_ne!(copy, old);
    assert_eq!(bed.task(old), before);
}

#[test]
fn a_second_cancel_leaves_the_reason_of_the_first() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.begin(id);
    let cancel =
        |n: u64, reason: &'static str| Event::Cancel { ticket: Ticket(u64::MAX - n), task: id, reason: reason.into() };
    bed.send([cancel(0, "first")]);
    bed.send([cancel(1, "")]);
    bed.confirm_stop(id);
    assert_eq!((bed.state(id), &*bed.task(id).reason), (Phase::Cancelled, "first"));
}
