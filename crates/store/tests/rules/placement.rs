//! Room on workers: what fits where, and the worker that is kept for a task too big to squeeze in.

use runyard_core::event::WorkerSpec;
use runyard_core::flow::Resources;
use runyard_core::ids::WorkerId;
use runyard_core::task::{Class, Phase, Tier};
use runyard_core::worker::WorkerStatus;

use super::bed::{Bed, FIRST, SECOND, remote, task, vitals, worker};

const SECOND_WORKER: WorkerId = WorkerId(2);

fn bed_with(workers: impl IntoIterator<Item = WorkerSpec>) -> Bed {
    let mut bed = Bed::new();
    bed.worker_gone(FIRST);
    workers.into_iter().for_each(|worker| bed.join(worker));
    bed
}

#[test]
fn a_worker_is_given_no_more_than_it_has() {
    let mut bed = bed_with([remote(FIRST, 2000, 1024)]);
    let first = bed.submit(task("a").cpu(1500));
    let second = bed.submit(task("a").cpu(1500));
    let small = bed.submit(task("a").cpu(500));
    assert_eq!(bed.states(&[first, second, small]), [Phase::Running, Phase::Queued, Phase::Running]);
    bed.complete(first);
    assert_eq!(bed.state(second), Phase::Running);
}

#[test]
fn memory_counts_as_cores_do() {
    let mut bed = bed_with([remote(FIRST, 2000, 1024)]);
    let first = bed.submit(task("a").ram(1024));
    let second = bed.submit(task("a").ram(1));
    let nothing = bed.submit(task("a"));
    assert_eq!(bed.states(&[first, second, nothing]), [Phase::Running, Phase::Queued, Phase::Running]);
}

#[test]
fn a_named_resource_is_reserved_like_any_other() {
    let gpus = Resources { cpu_milli: 8000, ram_mb: 1024, named: vec![("gpu".into(), 1)] };
    let mut bed = bed_with([WorkerSpec { capacity: gpus, ..worker(FIRST) }]);
    let first = bed.submit(task("a").named("gpu", 1));
    let second = bed.submit(task("a").named("gpu", 1));
    assert_eq!(bed.states(&[first, second]), [Phase::Running, Phase::Queued]);
    bed.complete(first);
    assert_eq!(bed.state(second), Phase::Running);
}

#[test]
fn a_worker_runs_no_more_in_parallel_than_it_says() {
    let mut bed = bed_with([WorkerSpec { parallel_max: Some(2), ..worker(FIRST) }]);
    bed.submit_n(5, &task("a"));
    assert_eq!(bed.n_held(), 2);
}

#[test]
fn labels_that_are_required_decide_where_a_task_runs() {
    let labelled = WorkerSpec { labels: vec![("zone".into(), "b".into())], ..worker(SECOND_WORKER) };
    let mut bed = bed_with([worker(FIRST), labelled]);
    let id = bed.submit(task("a").require("zone", "b"));
    assert_eq!(bed.start_of(id).worker, SECOND_WORKER);
    let nowhere = bed.submit(task("a").require("zone", "c"));
    assert_eq!(bed.state(nowhere), Phase::Queued);
    assert!(bed.closed_gate(nowhere, "worker").detail.contains("lacks a required label"));
}

#[test]
fn labels_that_are_preferred_or_avoided_decide_between_workers_that_fit() {
    let labelled = WorkerSpec { labels: vec![("disk".into(), "fast".into())], ..worker(SECOND_WORKER) };
    let mut bed = bed_with([worker(FIRST), labelled]);
    let prefers = bed.submit(task("a").prefer("disk", "fast"));
    let avoids = bed.submit(task("a").avoid("disk", "fast"));
    assert_eq!((bed.start_of(prefers).worker, bed.start_of(avoids).worker), (SECOND_WORKER, FIRST));
}

#[test]
fn work_is_spread_to_the_worker_with_most_room() {
    let mut bed = bed_with([remote(FIRST, 4000, 1024), remote(SECOND_WORKER, 4000, 1024)]);
    let ids = bed.submit_n(4, &task("a").cpu(1000));
    let workers: Vec<WorkerId> = ids.iter().map(|&id| bed.start_of(id).worker).collect();
    assert_eq!(workers, [FIRST, SECOND_WORKER, FIRST, SECOND_WORKER]);
}

#[test]
fn a_kind_nobody_offers_waits_until_a_worker_brings_it() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").kind("tab"));
    assert_eq!(bed.state(id), Phase::Queued);
    assert_eq!(bed.closed_gate(id, "worker").detail, "no worker offers kind tab");
    bed.join(WorkerSpec { kinds: vec!["tab".into()], ..worker(SECOND_WORKER) });
    assert_eq!(bed.start_of(id).worker, SECOND_WORKER);
}

#[test]
fn a_task_too_big_for_every_worker_says_so() {
    let mut bed = bed_with([remote(FIRST, 2000, 1024)]);
    let id = bed.submit(task("a").cpu(4000));
    assert!(bed.closed_gate(id, "worker").detail.contains("is too small"));
}

#[test]
fn small_tasks_pass_a_big_one_until_it_has_waited_thirty_seconds() {
    let mut bed = bed_with([remote(FIRST, 2000, 1024)]);
    let small = bed.submit_n(2, &task("a").cpu(1000));
    let big = bed.submit(task("b").cpu(2000));
    bed.advance_ms(29 * SECOND);
    let passing = bed.submit(task("c").cpu(1000));
    bed.complete(small[0]);
    assert_eq!(bed.states(&[big, passing]), [Phase::Queued, Phase::Running]);

    bed.advance_ms(SECOND);
    let late = bed.submit(task("c").cpu(1000));
    bed.complete(small[1]);
    assert_eq!(bed.states(&[big, late]), [Phase::Queued, Phase::Queued]);
    assert!(bed.closed_gate(late, "worker").detail.contains("is kept for a task that waits for it"));
    bed.complete(passing);
    assert_eq!(bed.states(&[big, late]), [Phase::Running, Phase::Queued]);
    bed.complete(big);
    assert_eq!(bed.state(late), Phase::Running);
}

#[test]
fn a_reserved_worker_still_runs_what_needs_none_of_its_room() {
    let mut bed = bed_with([remote(FIRST, 2000, 1024)]);
    bed.submit(task("a").cpu(1000).long());
    bed.submit(task("b").cpu(2000));
    bed.advance_ms(30 * SECOND);
    let free = bed.submit(task("c"));
    assert_eq!(bed.state(free), Phase::Running);
}

#[test]
fn a_cancelled_task_gives_its_reservation_up() {
    let mut bed = bed_with([remote(FIRST, 2000, 1024)]);
    bed.submit(task("a").cpu(1000).long());
    let big = bed.submit(task("b").cpu(2000));
    bed.advance_ms(30 * SECOND);
    let small = bed.submit(task("c").cpu(1000));
    assert_eq!(bed.state(small), Phase::Queued);
    bed.cancel(big);
    assert_eq!(bed.state(small), Phase::Running);
}

#[test]
fn a_task_that_something_else_holds_back_keeps_no_worker_from_others() {
    let mut bed = bed_with([remote(FIRST, 2000, 1024)]);
    let first = bed.submit(task("a").cpu(1000).long());
    let big = bed.submit(task("b").cpu(2000));
    bed.advance_ms(30 * SECOND);
    let small = bed.submit(task("c").cpu(1000));
    assert_eq!(bed.state(small), Phase::Queued);
    bed.pause_agent("b", true);
    assert_eq!(bed.state(small), Phase::Running);
    bed.pause_agent("b", false);
    bed.complete(first);
    bed.complete(small);
    assert_eq!(bed.state(big), Phase::Running);
}

#[test]
fn each_task_reserves_one_worker_only() {
    let mut bed = bed_with([remote(FIRST, 2000, 1024), remote(SECOND_WORKER, 2000, 1024)]);
    let held = bed.submit_n(2, &task("a").cpu(1000).long());
    bed.submit(task("b").cpu(2000));
    bed.advance_ms(31 * SECOND);
    let small = bed.submit(task("c").cpu(1000));
    assert_eq!(bed.state(small), Phase::Running, "one of two workers is kept, {held:?} run on both");
}

#[test]
fn only_a_fault_of_the_worker_cools_it_down() {
    let mut bed = bed_with([remote(FIRST, 2000, 1024)]);
    let id = bed.submit(task("a"));
    bed.fail(id, Class::Permanent);
    let next = bed.submit(task("a"));
    assert_eq!(bed.state(next), Phase::Running);
    bed.fail_by_worker(next);
    let cooled = bed.submit(task("a"));
    assert_eq!(bed.state(cooled), Phase::Queued);
    assert!(bed.closed_gate(cooled, "worker").detail.contains("cooling"));
    bed.advance_ms(30 * SECOND - 1);
    assert_eq!(bed.state(cooled), Phase::Queued);
    bed.advance_ms(1);
    assert_eq!(bed.state(cooled), Phase::Running);
}

#[test]
fn a_fault_requeues_that_attempt_and_not_its_neighbours() {
    let mut bed = bed_with([remote(FIRST, 2000, 1024)]);
    let ids = bed.submit_n(2, &task("a"));
    bed.fail_by_worker(ids[0]);
    assert_eq!(bed.states(&ids), [Phase::Scheduled, Phase::Running]);
}

#[test]
fn the_embedded_worker_is_never_cooled() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a"));
    bed.fail_by_worker(id);
    let next = bed.submit(task("a"));
    assert_eq!(bed.state(next), Phase::Running);
}

/// It registers and syncs as any other does, because the scheduler is in another node's process.
#[test]
fn the_own_worker_of_another_node_is_neither_guarded_nor_cooled_also_after_a_restart() {
    let mut bed = Bed::remotes([WorkerSpec { embedded: true, ..remote(FIRST, 2000, 1024) }]);
    for _ in 0..2 {
        bed.says_again(FIRST, vitals(100, 0));
        let id = bed.submit(task("a").cpu(1000).ram(512));
        assert_eq!(bed.state(id), Phase::Running, "it is busy, and so are servers");
        bed.fail_by_worker(id);
        assert_eq!(bed.view(FIRST).status, WorkerStatus::Idle);
        let next = bed.submit(task("a").cpu(2000));
        assert_eq!(bed.state(next), Phase::Running);
        bed.complete(next);
        bed.cancel(id);
        assert!(bed.demand().idle.is_empty(), "no server is to be scaled away");
        bed.restart();
    }
}

#[test]
fn a_retry_avoids_the_worker_where_it_failed_while_another_fits() {
    let mut bed = bed_with([remote(FIRST, 2000, 1024), remote(SECOND_WORKER, 2000, 1024)]);
    let id = bed.submit(task("a"));
    assert_eq!(bed.start_of(id).worker, FIRST);
    bed.fail(id, Class::Task);
    bed.advance_ms(SECOND);
    assert_eq!(bed.start_of(id).worker, SECOND_WORKER);
    bed.fail(id, Class::Task);
    bed.worker_gone(FIRST);
    bed.advance_ms(2 * SECOND);
    assert_eq!((bed.n_starts_of(id), bed.start_of(id).worker), (3, SECOND_WORKER), "nobody else fits now");
}

/// Two tasks that each need a whole worker, under a stream of small ones: the second gets its turn too.
#[test]
fn a_reservation_that_was_not_to_be_had_is_asked_for_again() {
    let mut bed = bed_with([remote(FIRST, 2000, 1024)]);
    let mut small = bed.submit(task("s").cpu(1000).long());
    let first = bed.submit(task("a").cpu(2000).long());
    let second = bed.submit(task("b").cpu(2000).tier(Tier::Low).long());
    let mut waited_ms = 0;
    while bed.state(second) == Phase::Queued {
        assert!(waited_ms <= 300 * SECOND, "the second big task is starved");
        bed.advance_ms(SECOND);
        waited_ms += SECOND;
        let next = bed.submit(task("s").cpu(1000).long());
        if bed.state(small) == Phase::Running {
            bed.complete(small);
        }
        small = next;
        if bed.state(first) == Phase::Running {
            bed.complete(first);
        }
    }
    assert_eq!(bed.state(first), Phase::Completed);
}

#[test]
fn a_big_task_whose_kept_worker_goes_away_has_another_one_kept_at_once() {
    let goes: [fn(&mut Bed, WorkerId); 4] = [
        Bed::leaves,
        |bed, id| {
            bed.drain(id);
        },
        |bed, id| {
            bed.remove_worker(id);
        },
        |bed, id| {
            bed.register(remote(id, 2000, 1024));
        },
    ];
    for goes in goes {
        let mut bed = Bed::remotes([remote(FIRST, 2000, 1024), remote(SECOND_WORKER, 2000, 1024)]);
        bed.submit_n(2, &task("a").cpu(1000).long());
        let big = bed.submit(task("b").cpu(2000));
        bed.advance_ms(30 * SECOND);
        let kept = [FIRST, SECOND_WORKER].into_iter().find(|&id| bed.view(id).is_kept).expect("one is kept");
        let other = if kept == FIRST { SECOND_WORKER } else { FIRST };
        goes(&mut bed, kept);
        assert!(bed.view(other).is_kept);
        let small = bed.submit(task("c").cpu(1000));
        assert_eq!(bed.states(&[big, small]), [Phase::Queued, Phase::Queued], "small ones do not pass it there either");
    }
}
