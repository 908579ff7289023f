//! Crash-only: whatever happens, a new scheduler goes on from what the store holds.

use runyard_core::event::{Admit, Held, Report, WorkerSpec};
use runyard_core::ids::WorkerId;
use runyard_core::task::{Class, Phase, Stop};
use runyard_store::memory::FailCommit;

use super::bed::{Bed, FIRST, MINUTE, SECOND, task, worker};

#[test]
fn what_ran_at_a_crash_is_lost_counted_and_runs_again_at_once() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    let old = bed.start_of(id);
    bed.crash();
    let task = bed.task(id);
    assert_eq!((task.phase(), task.n_lost, task.retries_used, task.attempt), (Phase::Running, 1, 0, 2));
    bed.report_as(&old, Report::Completed { result: None, usage: None });
    assert_eq!(bed.state(id), Phase::Running, "the old run's word counts for nothing");
}

#[test]
fn what_was_assigned_and_not_started_at_a_crash_costs_nothing() {
    let mut bed = Bed::new().idle_workers();
    let id = bed.submit(task("a"));
    for _ in 0..5 {
        bed.crash();
    }
    let task = bed.task(id);
    assert_eq!((task.phase(), task.n_lost, task.retries_used, task.n_runs), (Phase::Assigned, 0, 0, 0));
}

#[test]
fn queued_work_survives_a_crash_in_its_order() {
    let mut bed = Bed::new().inflight(0);
    let ids: Vec<_> = [3, 1, 2].into_iter().map(|rank| bed.submit(task("a").rank(rank))).collect();
    bed.crash();
    bed.reconfigure(|config| config.inflight_max = 1);
    assert_eq!(bed.run_all(), [ids[1], ids[2], ids[0]]);
}

#[test]
fn a_lost_task_goes_back_to_its_old_place() {
    let mut bed = Bed::new().inflight(1);
    let ids = bed.submit_n(3, &task("a"));
    bed.crash();
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Queued, Phase::Queued]);
}

#[test]
fn a_stop_for_a_cancel_survives_a_crash_and_ends_cancelled() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.cancel(id);
    bed.crash();
    assert_eq!((bed.state(id), bed.task(id).reason.as_ref()), (Phase::Cancelled, "asked by a test"));
    assert_eq!((bed.n_starts_of(id), bed.n_finals_of(id)), (1, 1));
}

#[test]
fn a_stop_that_was_under_way_is_asked_for_again_when_its_worker_comes_back_with_it() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.cancel(id);
    bed.take_stops();
    bed.restart();
    assert_eq!(bed.take_stops(), [(id, Stop::Cancel)]);
    bed.confirm_stop(id);
    assert_eq!(bed.state(id), Phase::Cancelled);
}

#[test]
fn what_a_worker_presents_goes_on() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.restart();
    let task = bed.task(id);
    assert_eq!((task.phase(), task.attempt, task.n_lost), (Phase::Running, 1, 0));
    bed.complete(id);
    assert_eq!(bed.state(id), Phase::Completed);
}

#[test]
fn a_worker_has_one_term_to_come_back_in() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.reopen();
    bed.silence(FIRST);
    bed.advance_ms(30 * SECOND - 1);
    assert_eq!(bed.state(id), Phase::Running);
    bed.advance_ms(1);
    assert_eq!((bed.state(id), bed.task(id).n_lost), (Phase::Queued, 1));
}

#[test]
fn leases_of_absent_workers_count_in_every_limit() {
    let mut bed = Bed::new().inflight(1);
    bed.submit(task("a"));
    let next = bed.submit(task("b"));
    bed.reopen();
    bed.join(worker(WorkerId(2)));
    assert_eq!(bed.state(next), Phase::Queued);
}

#[test]
fn a_silent_worker_is_lost_with_its_leases_after_thirty_seconds() {
    let mut bed = Bed::new();
    let ids = bed.submit_n(2, &task("a"));
    bed.silence(FIRST);
    bed.advance_ms(29 * SECOND);
    assert_eq!(bed.states(&ids), [Phase::Running; 2]);
    bed.advance_ms(SECOND + 10 * SECOND);
    assert_eq!(bed.states(&ids), [Phase::Queued; 2]);
    assert_eq!(bed.task(ids[0]).n_lost, 1);
    assert_eq!(bed.take_revokes().len(), 2);
}

#[test]
fn a_worker_is_told_of_leases_it_no_longer_holds() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    let start = bed.start_of(id);
    bed.complete(id);
    bed.take_revokes();
    let held = Held { task: id, attempt: start.attempt, token: start.token };
    bed.join_holding(worker(FIRST), vec![held]);
    assert_eq!(bed.take_revokes(), [(id, 1)]);
}

#[test]
fn a_clean_stop_hands_running_work_back_and_costs_nothing() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.admit(Admit::Stopping);
    assert_eq!(bed.take_stops(), [(id, Stop::Shutdown)]);
    bed.confirm_stop(id);
    let stopped = bed.task(id);
    assert_eq!((stopped.phase(), stopped.n_lost, stopped.retries_used), (Phase::Queued, 0, 0));
    bed.crash();
    assert_eq!((bed.state(id), bed.task(id).n_lost), (Phase::Running, 0));
}

#[test]
fn what_outlives_the_server_is_not_asked_to_stop_and_goes_on_at_its_next_start() {
    let mut bed = Bed::new();
    bed.join(WorkerSpec { keeps: vec!["process".into()], ..worker(FIRST) });
    let (here, kept) = (bed.submit(task("a")), bed.submit(task("a").kind("process")));
    bed.admit(Admit::Stopping);
    assert_eq!(bed.take_stops(), [(here, Stop::Shutdown)]);
    bed.confirm_stop(here);
    assert_eq!((bed.state(kept), bed.n_held()), (Phase::Running, 1));
    bed.restart();
    let task = bed.task(kept);
    assert_eq!((task.phase(), task.attempt, task.n_runs, task.n_lost), (Phase::Running, 1, 1, 0));
    bed.complete(kept);
    assert_eq!(bed.state(kept), Phase::Completed);
}

#[test]
fn a_worker_that_comes_back_while_the_server_stops_keeps_what_it_keeps() {
    let mut bed = Bed::new();
    let keeper = WorkerSpec { keeps: vec!["process".into()], ..worker(FIRST) };
    bed.join(keeper.clone());
    let (here, kept) = (bed.submit(task("a")), bed.submit(task("a").kind("process")));
    let held = [here, kept].map(|id| bed.start_of(id)).map(|start| Held {
        task: start.task,
        attempt: start.attempt,
        token: start.token,
    });
    bed.reopen();
    bed.admit(Admit::Stopping);
    assert_eq!(bed.take_stops(), [], "nobody knows yet what outlives the server");
    bed.join_holding(keeper, held.to_vec());
    assert_eq!(bed.take_stops(), [(here, Stop::Shutdown)]);
}

#[test]
fn a_task_that_takes_its_executor_down_is_parked_the_third_time_even_if_it_never_reported_its_start() {
    let mut bed = Bed::new().idle_workers();
    let id = bed.submit(task("a"));
    for n in 1..=3 {
        assert_eq!((bed.state(id), bed.task(id).n_lost), (Phase::Assigned, n - 1));
        bed.fail(id, Class::Lost);
    }
    let task = bed.task(id);
    assert_eq!((task.phase(), task.n_runs, &*task.reason), (Phase::Failed, 3, "lost 3 times"));
}

#[test]
fn a_failed_commit_lets_nothing_out_and_nothing_in() {
    let mut bed = Bed::new();
    let id = bed.fail_commit_of(FailCommit::BeforeApply, task("a"));
    assert!(bed.find(id).is_none());
    assert_eq!(bed.started(), []);
    bed.submit(task("a"));
    assert_eq!(bed.n_held(), 1);
}

#[test]
fn a_commit_of_unknown_outcome_is_read_back_from_the_store() {
    let mut bed = Bed::new();
    let running = bed.submit(task("a"));
    let id = bed.fail_commit_of(FailCommit::AfterApply, task("a"));
    // It was handed out in the commit nobody heard of: its worker never got it, so it goes out again at no cost.
    let task = bed.task(id);
    assert_eq!((task.phase(), task.retries_used), (Phase::Running, 0));
    assert_eq!((bed.state(running), bed.task(running).attempt), (Phase::Running, 1));
}

#[test]
fn every_accepted_task_has_one_outcome_after_many_crashes() {
    let mut bed = Bed::new().inflight(4).config(|config| config.window_max = 3);
    let ids = bed.submit_n(40, &task("a"));
    let mut n = 0;
    while let Some(&held) = bed.held_in_start_order().first() {
        n += 1;
        match n % 5 {
            0 => bed.crash(),
            1 => bed.fail(held, Class::Task),
            2 => drop(bed.cancel(held)),
            _ => bed.complete(held),
        }
        bed.advance_ms(if bed.held_in_start_order().is_empty() { MINUTE } else { SECOND });
    }
    for &id in &ids {
        assert!(bed.state(id).is_terminal(), "{:?}", bed.task(id));
        assert_eq!(bed.n_finals_of(id), 1);
    }
    let counts = bed.counts(None);
    assert_eq!(counts.completed + counts.failed + counts.cancelled, 40);
    assert_eq!(counts.unstarted() + counts.assigned + counts.running, 0);
}
