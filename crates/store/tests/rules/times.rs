//! Not before, not after, not longer than: delays, deadlines, timeouts, silence, retention.

use runyard_core::event::{HappeningKind, HeartbeatAnswer};
use runyard_core::ids::TaskId;
use runyard_core::task::{Class, Phase, Stop};

use super::bed::{Bed, DAY, HOUR, MINUTE, SECOND, task};

#[test]
fn a_delayed_task_starts_at_its_moment_and_not_before() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").delay_ms(5 * SECOND));
    assert_eq!(bed.state(id), Phase::Scheduled);
    bed.advance_ms(5 * SECOND - 1);
    assert_eq!(bed.state(id), Phase::Scheduled);
    bed.advance_ms(1);
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn a_run_at_in_the_past_is_now() {
    let mut bed = Bed::new();
    let past = bed.wall_ms() - HOUR;
    let id = bed.submit(task("a").run_at(past));
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn a_delay_survives_a_restart() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").delay_ms(5 * SECOND));
    bed.crash();
    bed.advance_ms(5 * SECOND - 1);
    assert_eq!(bed.state(id), Phase::Scheduled);
    bed.advance_ms(1);
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn of_many_delayed_tasks_each_starts_at_its_own_moment_though_memory_holds_few() {
    let mut bed = Bed::new().config(|config| config.dues_max = 4);
    // Later ones first, so that the earliest must push its way into memory.
    let ids: Vec<_> = (1..=50).rev().map(|n| (n, bed.submit(task("a").delay_ms(n * SECOND)))).collect();
    for now in 1..=50 {
        bed.advance_ms(SECOND);
        for &(n, id) in &ids {
            assert_eq!(bed.state(id) == Phase::Scheduled, n > now, "the one for second {n} at second {now}");
        }
        let held = bed.held_in_start_order()[0];
        bed.complete(held);
    }
}

/// pinchtab 20
#[test]
fn a_queued_task_fails_at_its_deadline_and_others_stay() {
    let mut bed = Bed::new().inflight(0);
    let (soon, later) = (bed.after_ms(SECOND), bed.after_ms(HOUR));
    let expired = bed.submit(task("a").deadline(soon));
    let future = bed.submit(task("a").deadline(later));
    bed.advance_ms(SECOND - 1);
    assert_eq!(bed.state(expired), Phase::Queued);
    bed.advance_ms(1);
    assert_eq!(bed.states(&[expired, future]), [Phase::Failed, Phase::Queued]);
    let task = bed.task(expired);
    let error = task.error.unwrap();
    assert_eq!((error.class, error.message.as_ref()), (Class::Deadline, "deadline exceeded while queued"));
    assert_eq!((task.finished_at, task.n_runs), (Some(soon), 0));
    let counts = bed.counts(None);
    assert_eq!((counts.queued, counts.failed, counts.expired), (1, 1, 1));
}

#[test]
fn a_task_past_its_deadline_is_not_picked_though_its_turn_to_expire_has_not_come() {
    let mut bed = Bed::new().inflight(1).config(|config| config.dues_max = 2);
    let blocker = bed.submit(task("x"));
    let deadline = bed.after_ms(SECOND);
    // The head of the queue is the last of those that are due, and memory holds only two dues.
    let ids: Vec<_> = (0..10).map(|n| bed.submit(task("a").rank(-n).deadline(deadline))).collect();
    let end = bed.complete_event(blocker);
    bed.send_after_ms(SECOND, end);
    assert_eq!(bed.states(&ids), [Phase::Failed; 10]);
    assert_eq!(bed.started(), [blocker]);
}

#[test]
fn waiting_and_scheduled_tasks_fail_at_their_deadline_too() {
    let mut bed = Bed::new();
    let deadline = bed.after_ms(SECOND);
    let parent = bed.submit(task("a"));
    let waiting = bed.submit(task("a").after(&[parent]).deadline(deadline));
    let scheduled = bed.submit(task("a").delay_ms(HOUR).deadline(deadline));
    bed.advance_ms(SECOND);
    assert_eq!(bed.states(&[waiting, scheduled]), [Phase::Failed; 2]);
    assert_eq!((bed.class(waiting), bed.class(scheduled)), (Some(Class::Deadline), Some(Class::Deadline)));
}

#[test]
fn a_task_whose_time_comes_at_its_deadline_does_not_start() {
    let mut bed = Bed::new();
    let deadline = bed.after_ms(SECOND);
    let id = bed.submit(task("a").delay_ms(SECOND).deadline(deadline));
    bed.advance_ms(SECOND);
    assert_eq!((bed.state(id), bed.n_starts_of(id)), (Phase::Failed, 0));
}

#[test]
fn a_running_task_is_stopped_at_its_deadline_and_fails_when_it_is_dead() {
    let mut bed = Bed::new();
    let deadline = bed.after_ms(SECOND);
    let id = bed.submit(task("a").deadline(deadline));
    bed.advance_ms(SECOND - 1);
    assert_eq!(bed.take_stops(), []);
    bed.advance_ms(1);
    assert_eq!(bed.take_stops(), [(id, Stop::Deadline)]);
    assert_eq!((bed.state(id), bed.task(id).reason.as_ref()), (Phase::Running, "stopping: deadline"));
    bed.confirm_stop(id);
    assert_eq!((bed.state(id), bed.class(id)), (Phase::Failed, Some(Class::Deadline)));
    bed.advance_ms(MINUTE);
    assert_eq!((bed.n_starts_of(id), bed.counts(None).expired), (1, 1), "a deadline is never retried");
}

#[test]
fn an_assigned_task_is_stopped_at_its_deadline() {
    let mut bed = Bed::new().idle_workers();
    let deadline = bed.after_ms(SECOND);
    let id = bed.submit(task("a").deadline(deadline));
    bed.advance_ms(SECOND);
    assert_eq!(bed.take_stops(), [(id, Stop::Deadline)]);
    bed.confirm_stop(id);
    assert_eq!((bed.state(id), bed.class(id)), (Phase::Failed, Some(Class::Deadline)));
}

#[test]
fn a_task_in_its_backoff_fails_at_its_deadline() {
    let mut bed = Bed::new();
    let deadline = bed.after_ms(1500);
    let id = bed.submit(task("a").deadline(deadline));
    bed.fail(id, Class::Task);
    assert_eq!(bed.state(id), Phase::Scheduled);
    bed.reconfigure(|config| config.inflight_max = 0);
    bed.advance_ms(1499);
    assert_eq!(bed.state(id), Phase::Queued);
    bed.advance_ms(1);
    assert_eq!((bed.state(id), bed.class(id)), (Phase::Failed, Some(Class::Deadline)));
}

#[test]
fn a_deadline_that_passed_while_the_server_was_down_ends_the_task_at_its_start() {
    let mut bed = Bed::new().inflight(0);
    let deadline = bed.after_ms(SECOND);
    let id = bed.submit(task("a").deadline(deadline));
    let later = bed.after_ms(HOUR);
    bed.set_wall_clock(later);
    bed.reconfigure(|config| config.inflight_max = 1);
    bed.crash();
    assert_eq!((bed.state(id), bed.n_starts_of(id)), (Phase::Failed, 0));
}

#[test]
fn a_wall_clock_that_is_set_back_does_not_move_time_back() {
    let mut bed = Bed::new().inflight(0);
    let deadline = bed.after_ms(10 * SECOND);
    let id = bed.submit(task("a").deadline(deadline));
    bed.advance_ms(9 * SECOND);
    let t = bed.wall_ms();
    bed.set_wall_clock(t - HOUR);
    let second = bed.submit(task("a"));
    assert_eq!(bed.task(second).created_at, t, "the greatest time seen counts");
    bed.set_wall_clock(deadline);
    assert_eq!(bed.state(id), Phase::Failed);
}

#[test]
fn a_timeout_is_for_each_attempt_and_is_retried() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").timeout_ms(2 * SECOND).max_retries(1));
    bed.advance_ms(2 * SECOND - 1);
    assert_eq!(bed.take_stops(), []);
    bed.advance_ms(1);
    assert_eq!(bed.take_stops(), [(id, Stop::Timeout)]);
    bed.confirm_stop(id);
    assert_eq!((bed.state(id), bed.class(id)), (Phase::Scheduled, Some(Class::Timeout)));
    bed.advance_ms(SECOND);
    assert_eq!(bed.state(id), Phase::Running);
    bed.advance_ms(2 * SECOND - 1);
    assert_eq!(bed.take_stops(), []);
    bed.advance_ms(1);
    bed.confirm_stop(id);
    let task = bed.task(id);
    assert_eq!((task.phase(), task.n_runs), (Phase::Failed, 2));
    assert_eq!(task.error.unwrap().message, "timed out after 2000 ms");
}

#[test]
fn the_timeout_runs_from_the_start_and_not_from_the_handing_out() {
    let mut bed = Bed::new().idle_workers();
    let id = bed.submit(task("a").timeout_ms(2 * SECOND));
    bed.advance_ms(10 * SECOND);
    bed.begin(id);
    bed.advance_ms(2 * SECOND - 1);
    assert_eq!(bed.take_stops(), []);
    bed.advance_ms(1);
    assert_eq!(bed.take_stops(), [(id, Stop::Timeout)]);
}

#[test]
fn a_timeout_goes_on_over_a_restart_of_the_scheduler() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").timeout_ms(20 * SECOND));
    bed.advance_ms(15 * SECOND);
    bed.restart();
    bed.advance_ms(5 * SECOND - 1);
    assert_eq!(bed.take_stops(), []);
    bed.advance_ms(1);
    assert_eq!(bed.take_stops(), [(id, Stop::Timeout)]);
}

#[test]
fn silence_is_told_stopped_and_retried() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").stall_ms(5 * SECOND));
    bed.advance_ms(4 * SECOND);
    bed.alive(id);
    bed.advance_ms(5 * SECOND - 1);
    assert_eq!(bed.take_stops(), []);
    bed.advance_ms(1);
    assert_eq!(bed.take_stops(), [(id, Stop::Stalled)]);
    assert_eq!(bed.n_happenings(HappeningKind::TaskStalled), 1);
    bed.confirm_stop(id);
    assert_eq!((bed.state(id), bed.task(id).retries_used), (Phase::Scheduled, 1));
}

#[test]
fn a_heartbeat_of_the_work_postpones_its_stall() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").stall_ms(5 * SECOND));
    for _ in 0..3 {
        bed.advance_ms(5 * SECOND - 1);
        assert_eq!(bed.heartbeat(id), HeartbeatAnswer::Noted);
    }
    assert_eq!(bed.take_stops(), []);
    bed.advance_ms(5 * SECOND);
    assert_eq!(bed.take_stops(), [(id, Stop::Stalled)]);
    assert_eq!(bed.heartbeat(id), HeartbeatAnswer::Stopping, "it comes too late");
    bed.confirm_stop(id);
    assert_eq!((bed.state(id), bed.class(id)), (Phase::Scheduled, Some(Class::Timeout)));
}

#[test]
fn a_heartbeat_does_not_postpone_a_timeout() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").stall_ms(5 * SECOND).timeout_ms(6 * SECOND));
    bed.advance_ms(4 * SECOND);
    assert_eq!(bed.heartbeat(id), HeartbeatAnswer::Noted);
    bed.advance_ms(2 * SECOND);
    assert_eq!(bed.take_stops(), [(id, Stop::Timeout)]);
}

#[test]
fn only_what_is_held_has_a_heartbeat() {
    let mut bed = Bed::new().inflight(1).idle_workers();
    let held = bed.submit(task("a").stall_ms(5 * SECOND));
    let queued = bed.submit(task("a"));
    assert_eq!(bed.heartbeat(held), HeartbeatAnswer::Noted, "it may be quicker than the report of its start");
    assert_eq!(bed.heartbeat(queued), HeartbeatAnswer::NotRunning(Phase::Queued));
    assert_eq!(bed.heartbeat(TaskId(404)), HeartbeatAnswer::NotFound);
    bed.begin(held);
    bed.advance_ms(5 * SECOND - 1);
    assert_eq!(bed.take_stops(), [], "its silence begins with its start");
    bed.cancel(queued);
    bed.complete(held);
    assert_eq!(bed.heartbeat(held), HeartbeatAnswer::NotRunning(Phase::Completed));
    assert_eq!(bed.heartbeat(queued), HeartbeatAnswer::NotRunning(Phase::Cancelled));
}

/// pinchtab 65, 67
#[test]
fn an_ended_task_is_readable_for_its_time_and_a_live_one_always() {
    let mut bed = Bed::new();
    let old = bed.submit(task("a"));
    bed.complete(old);
    let kept = bed.submit(task("a").ttl_ms(DAY));
    bed.complete(kept);
    let running = bed.submit(task("a").long());
    bed.advance_ms(10 * MINUTE);
    let young = bed.submit(task("a"));
    bed.complete(young);
    bed.advance_ms(MINUTE);
    assert_eq!(bed.purge(5 * MINUTE), [old]);
    assert!(bed.find(old).is_none());
    assert_eq!(bed.states(&[kept, running, young]), [Phase::Completed, Phase::Running, Phase::Completed]);
    assert_eq!(bed.purge(5 * MINUTE), []);
}
