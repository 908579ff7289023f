//! Every way a task can go, and that there is no other.

use runyard_core::event::{CancelAnswer, HappeningKind, Report, Start};
use runyard_core::ids::{TaskId, Token, WorkerId};
use runyard_core::task::{Class, Phase, Task};

use super::bed::{Bed, HOUR, SECOND, task};

/// pinchtab 24, 27
#[test]
fn a_task_goes_from_queued_over_assigned_and_running_to_completed_and_is_stamped_on_the_way() {
    let mut bed = Bed::new().idle_workers().inflight(0);
    let t0 = bed.wall_ms();
    let id = bed.submit(task("a"));
    assert_eq!(bed.state(id), Phase::Queued);
    bed.advance_ms(10);
    bed.reconfigure(|config| config.inflight_max = 1);
    assert_eq!(bed.state(id), Phase::Assigned);
    bed.advance_ms(10);
    bed.begin(id);
    assert_eq!(bed.state(id), Phase::Running);
    bed.advance_ms(10);
    bed.complete(id);
    let task = bed.task(id);
    assert_eq!(task.phase(), Phase::Completed);
    assert_eq!((task.created_at, task.queued_at), (t0, Some(t0)));
    assert_eq!((task.assigned_at, task.started_at, task.finished_at), (Some(t0 + 10), Some(t0 + 20), Some(t0 + 30)));
    assert_eq!((task.attempt, task.n_runs), (1, 1));
    assert_eq!(bed.doc(id).result.as_deref(), Some(&b"done"[..]));
    use HappeningKind::{TaskCompleted, TaskCreated, TaskQueued, TaskStarted};
    assert_eq!(bed.happenings_of(id), [TaskCreated, TaskQueued, TaskStarted, TaskCompleted]);
}

/// pinchtab 24
#[test]
fn a_start_that_is_reported_with_its_end_is_both() {
    let mut bed = Bed::new().idle_workers();
    let id = bed.submit(task("a"));
    bed.complete(id);
    let task = bed.task(id);
    assert_eq!((task.phase(), task.n_runs), (Phase::Completed, 1));
    assert!(task.started_at.is_some());
    use HappeningKind::{TaskCompleted, TaskCreated, TaskQueued, TaskStarted};
    assert_eq!(bed.happenings_of(id), [TaskCreated, TaskQueued, TaskStarted, TaskCompleted]);
}

#[test]
fn a_failure_that_is_reported_with_its_start_tells_of_both() {
    let mut bed = Bed::new().idle_workers();
    let id = bed.submit(task("a").max_retries(0));
    bed.fail(id, Class::Task);
    use HappeningKind::{TaskCreated, TaskFailed, TaskQueued, TaskStarted};
    assert_eq!(bed.happenings_of(id), [TaskCreated, TaskQueued, TaskStarted, TaskFailed]);
}

#[test]
fn a_repeated_start_report_counts_once() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.begin(id);
    bed.begin(id);
    assert_eq!(bed.task(id).n_runs, 1);
    assert_eq!(bed.happenings_of(id).iter().filter(|kind| **kind == HappeningKind::TaskStarted).count(), 1);
}

/// Every report a worker can make, for an attempt that is not live.
fn every_report_changes_nothing(bed: &mut Bed, start: &Start) {
    let id = start.task;
    let before = (bed.task(id), bed.counts(None), bed.happenings().len(), bed.n_held());
    let reports = [
        Report::Started,
        Report::Alive,
        Report::Completed { result: None, usage: None },
        Report::Failed {
            class: Class::Task,
            message: "late".into(),
            retry_after_ms: None,
            result: None,
            usage: None,
            fault: runyard_core::event::Fault::Work,
        },
        Report::Stopped,
        Report::NotStarted { reason: "late".into() },
    ];
    for report in reports {
        bed.take_revokes();
        bed.report_as(start, report.clone());
        assert_eq!(bed.take_revokes(), [(id, start.attempt)], "{report:?}: its worker is told that it holds nothing");
        let after = (bed.task(id), bed.counts(None), bed.happenings().len(), bed.n_held());
        assert_eq!(after, before, "{report:?}");
    }
}

/// pinchtab 25
#[test]
fn no_report_moves_a_task_that_nobody_holds() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.fail(id, Class::Task);
    assert_eq!(bed.state(id), Phase::Scheduled);
    let start = bed.start_of(id);
    every_report_changes_nothing(&mut bed, &start);

    bed.reconfigure(|config| config.inflight_max = 0);
    bed.advance_ms(SECOND);
    assert_eq!(bed.state(id), Phase::Queued);
    every_report_changes_nothing(&mut bed, &start);
}

/// pinchtab 26
#[test]
fn nothing_leaves_a_terminal_state() {
    for end in [Phase::Completed, Phase::Failed, Phase::Cancelled] {
        let mut bed = Bed::new();
        let id = bed.submit(task("a").max_retries(0));
        match end {
            Phase::Completed => bed.complete(id),
            Phase::Failed => bed.fail(id, Class::Task),
            _ => {
                bed.cancel(id);
                bed.confirm_stop(id);
            }
        }
        assert_eq!(bed.state(id), end);
        let start = bed.start_of(id);
        every_report_changes_nothing(&mut bed, &start);
        let before = bed.task(id);
        assert_eq!(bed.cancel(id), CancelAnswer::Terminal(end));
        assert!(bed.change(id, Default::default()).is_err());
        bed.advance_ms(HOUR);
        bed.crash();
        assert_eq!(bed.task(id), before);
        assert_eq!(bed.n_finals_of(id), 1);
    }
}

#[test]
fn a_stale_token_attempt_or_worker_changes_nothing() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    let start = bed.start_of(id);
    every_report_changes_nothing(&mut bed, &Start { token: Token(start.token.0 ^ 1), ..start.clone() });
    every_report_changes_nothing(&mut bed, &Start { worker: WorkerId(99), ..start.clone() });
    every_report_changes_nothing(&mut bed, &Start { attempt: start.attempt + 1, ..start.clone() });
    bed.complete(id);
    assert_eq!(bed.state(id), Phase::Completed);
}

#[test]
fn a_report_of_an_earlier_attempt_changes_nothing_about_the_next() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    let first = bed.start_of(id);
    bed.fail(id, Class::Task);
    bed.advance_ms(SECOND);
    assert_eq!((bed.state(id), bed.start_of(id).attempt), (Phase::Running, 2));
    assert_ne!(bed.start_of(id).token, first.token);
    every_report_changes_nothing(&mut bed, &first);
}

#[test]
fn a_report_of_a_task_nobody_knows_is_refused() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    let start = Start { task: TaskId(999), ..bed.start_of(id) };
    bed.report_as(&start, Report::Completed { result: None, usage: None });
    assert_eq!(bed.take_revokes(), [(TaskId(999), 1)]);
}

#[test]
fn handed_back_before_it_began_it_is_queued_again_at_no_cost() {
    let mut bed = Bed::new().idle_workers();
    let id = bed.submit(task("a"));
    bed.hand_back(id);
    let task = bed.task(id);
    assert_eq!((task.phase(), task.attempt), (Phase::Assigned, 2), "there is room, so it goes out again at once");
    assert_eq!((task.n_runs, task.retries_used, task.n_lost), (0, 0, 0));
}

#[test]
fn not_begun_in_fifteen_seconds_it_is_taken_back_at_no_cost() {
    let mut bed = Bed::new().idle_workers();
    let id = bed.submit(task("a"));
    bed.advance_ms(15 * SECOND - 1);
    assert_eq!(bed.take_stops(), []);
    bed.advance_ms(1);
    assert_eq!(bed.take_stops(), [(id, runyard_core::task::Stop::NotStarted)]);
    bed.confirm_stop(id);
    let task = bed.task(id);
    assert_eq!((task.attempt, task.n_runs, task.retries_used, task.n_lost), (2, 0, 0, 0));
}

#[test]
fn a_worker_that_does_not_answer_to_the_taking_back_is_not_asked_any_more() {
    let mut bed = Bed::new().idle_workers();
    let id = bed.submit(task("a"));
    bed.advance_ms(15 * SECOND);
    bed.take_stops();
    bed.advance_ms(15 * SECOND);
    assert_eq!(bed.take_revokes(), [(id, 1)]);
    let task = bed.task(id);
    assert_eq!((task.attempt, task.n_runs, task.retries_used, task.n_lost), (2, 0, 0, 0));
}

#[test]
fn the_history_of_a_task_is_in_its_row() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.fail(id, Class::Task);
    bed.advance_ms(SECOND);
    bed.complete(id);
    let task: Task = bed.task(id);
    let steps: Vec<&str> = task.trail.steps().map(|step| step.kind.as_str()).collect();
    let run = ["queued", "assigned", "started"];
    let expected = [&["created"][..], &run, &["retrying"], &run, &["completed"]].concat();
    assert_eq!(steps, expected);
}

#[test]
fn each_task_has_exactly_one_final_event() {
    let mut bed = Bed::new();
    let ids = bed.submit_n(12, &task("a").max_retries(1));
    for (n, &id) in ids.iter().enumerate() {
        match n % 4 {
            0 => bed.complete(id),
            1 => {
                bed.fail(id, Class::Task);
                bed.advance_ms(SECOND);
                bed.fail(id, Class::Task);
            }
            2 => {
                bed.cancel(id);
                bed.complete(id);
            }
            _ => bed.fail(id, Class::Permanent),
        }
        bed.advance_ms(SECOND);
    }
    for &id in &ids {
        assert!(bed.state(id).is_terminal());
        assert_eq!(bed.n_finals_of(id), 1, "{:?}", bed.happenings_of(id));
    }
}
