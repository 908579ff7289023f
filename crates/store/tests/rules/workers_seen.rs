//! What can be seen of workers: their views, the work that finds none, and why each group of them does not fit.

use runyard_core::event::{HappeningKind, Subject, WorkerSpec};
use runyard_core::ids::WorkerId;
use runyard_core::task::Phase;
use runyard_core::worker::{Unmet, Vitals, WorkerStatus};

use super::bed::{Bed, FIRST, SECOND, blob, labelled, remote, task, vitals};

const A: WorkerId = WorkerId(11);
const B: WorkerId = WorkerId(12);
const C: WorkerId = WorkerId(13);

// ── Views ───────────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_view_says_who_it_is_what_it_runs_and_what_is_left() {
    let spec = labelled("zone", "a", remote(A, 4000, 8192));
    let mut bed = Bed::remotes([spec.clone()]);
    let t0 = bed.wall_ms();
    let id = bed.submit(task("a").cpu(1500).ram(1000).long());
    bed.advance_ms(SECOND);
    bed.says(A, vitals(20, 2000));
    let view = bed.view(A);
    assert_eq!((view.spec, view.status, &*view.reason), (spec, WorkerStatus::Busy, ""));
    assert_eq!((view.held, view.reserved.cpu_milli, view.reserved.ram_mb), (vec![id], 1500, 1000));
    assert_eq!((view.free.cpu_milli, view.free.ram_mb), (2500, 2000), "memory as the machine says");
    assert_eq!((view.vitals, view.seen_at), (vitals(20, 2000), Some(t0 + SECOND)));
    assert_eq!((view.registered_at, view.about), (Some(t0), blob("from the edge")));
    assert_eq!((view.cooling_until, view.is_kept, view.draining), (None, false, false));
}

#[test]
fn workers_are_listed_by_id_the_server_s_own_among_them() {
    let mut bed = Bed::new();
    bed.come(remote(B, 4000, 8192));
    bed.come(remote(A, 4000, 8192));
    let ids: Vec<WorkerId> = bed.worker_views(None).into_iter().map(|view| view.spec.id).collect();
    assert_eq!(ids, [FIRST, A, B]);
    let own = bed.view(FIRST);
    assert_eq!((own.registered_at, own.about.len(), own.status), (None, 0, WorkerStatus::Idle));
    assert_eq!(bed.find_worker(C), None);
}

#[test]
fn of_several_things_that_are_so_the_worst_is_told() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    assert_eq!(bed.status(A), (WorkerStatus::Idle, String::new()));
    let ids = bed.submit_n(2, &task("a").long().max_retries(0));
    assert_eq!(bed.status(A), (WorkerStatus::Busy, String::new()));
    bed.drain(A);
    assert_eq!(bed.status(A), (WorkerStatus::Draining, "2 still running".to_owned()));
    bed.fail_by_worker(ids[0]);
    assert_eq!(bed.status(A), (WorkerStatus::Unhealthy, "cooling down after a fault".to_owned()));
    bed.says(A, Vitals { trouble: Some("no disk".into()), ..Vitals::default() });
    assert_eq!(bed.status(A), (WorkerStatus::Unhealthy, "no disk".to_owned()));
    bed.leaves(A);
    assert_eq!(bed.status(A), (WorkerStatus::Offline, "said goodbye".to_owned()));
}

#[test]
fn a_worker_kept_for_a_big_task_says_so() {
    let mut bed = Bed::remotes([remote(A, 2000, 8192)]);
    bed.submit(task("a").cpu(1000).long());
    bed.submit(task("b").cpu(2000));
    assert!(!bed.view(A).is_kept);
    bed.advance_ms(30 * SECOND);
    assert!(bed.view(A).is_kept);
    bed.drain(A);
    assert!(!bed.view(A).is_kept, "one that drains is kept for nobody");
}

#[test]
fn what_happens_to_a_worker_is_told_with_its_name_and_reason() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let ids = bed.submit_n(2, &task("a").long());
    bed.fail_by_worker(ids[0]);
    bed.silence(A);
    bed.advance_ms(30 * SECOND);
    let told: Vec<(HappeningKind, String)> = bed
        .happenings()
        .iter()
        .filter_map(|happening| match &happening.subject {
            Subject::Worker { worker, name, reason } if *worker == A => {
                assert_eq!(&**name, "worker-11");
                Some((happening.kind, reason.to_string()))
            }
            _ => None,
        })
        .collect();
    let expected = [
        (HappeningKind::WorkerRegistered, ""),
        (HappeningKind::WorkerJoined, ""),
        (HappeningKind::WorkerCooled, "cooling down for 30000 ms after a fault"),
        (HappeningKind::WorkerLost, "its worker fell silent; 1 of its tasks were taken back"),
    ];
    assert_eq!(told, expected.map(|(kind, reason)| (kind, reason.to_owned())));
}

// ── Demand ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Smallest first: its cores, how many there are, how long they have waited, and whether they fit anywhere at all.
fn unmet(bed: &mut Bed) -> Vec<(u32, u64, u64, bool)> {
    let row = |unmet: &Unmet| (unmet.shape.resources.cpu_milli, unmet.n_queued, unmet.waited_ms, unmet.fits_some);
    let mut rows: Vec<_> = bed.demand().unmet.iter().map(row).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn work_that_fits_nowhere_is_counted_by_its_shape_with_how_long_it_has_waited() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    assert_eq!(unmet(&mut bed), []);
    bed.submit_n(2, &task("a").cpu(8000));
    bed.advance_ms(10 * SECOND);
    // Another flow with the same shape: they wait for the same room.
    bed.submit(task("b").cpu(8000));
    let running = bed.submit(task("a").cpu(4000).long());
    bed.submit(task("a").cpu(3000));
    bed.advance_ms(SECOND);
    assert_eq!(unmet(&mut bed), [(3000, 1, SECOND, true), (8000, 3, 11 * SECOND, false)]);
    bed.complete(running);
    assert_eq!(unmet(&mut bed), [(8000, 3, 11 * SECOND, false)]);
    bed.come(remote(B, 16_000, 8192));
    assert_eq!(unmet(&mut bed), [(8000, 1, 11 * SECOND, true)], "two of three run there");
}

#[test]
fn a_task_with_a_worker_kept_for_it_goes_on_waiting() {
    let mut bed = Bed::remotes([remote(A, 2000, 8192)]);
    bed.submit(task("a").cpu(1000).long());
    bed.submit(task("b").cpu(2000));
    bed.advance_ms(40 * SECOND);
    bed.says(A, vitals(1, 8192));
    assert_eq!(unmet(&mut bed), [(2000, 1, 40 * SECOND, true)]);
}

#[test]
fn work_that_something_else_holds_back_is_no_demand_for_workers() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]).inflight(1);
    bed.submit_n(5, &task("a").cpu(1000));
    assert_eq!(unmet(&mut bed), []);
    bed.pause_agent("b", true);
    bed.submit(task("b").cpu(64_000));
    assert_eq!(unmet(&mut bed), []);
}

#[test]
fn workers_without_work_are_named_with_how_long_they_have_been_idle() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192), remote(B, 4000, 8192)]);
    bed.join(super::bed::worker(FIRST));
    bed.advance_ms(5 * SECOND);
    let demand = bed.demand();
    let idle: Vec<(WorkerId, u64)> = demand.idle.iter().map(|idle| (idle.id, idle.idle_ms)).collect();
    assert_eq!((demand.n_workers, idle), (2, vec![(A, 5 * SECOND), (B, 5 * SECOND)]), "the server's own is not one");
    bed.drain(FIRST);
    let ids = bed.submit_n(2, &task("a").cpu(1000).long());
    assert_eq!(bed.demand().idle, []);
    bed.complete(ids[0]);
    bed.advance_ms(SECOND);
    let idle = bed.demand().idle;
    assert_eq!((idle.len(), idle[0].id, idle[0].idle_ms), (1, A, SECOND));
    bed.leaves(A);
    assert_eq!((bed.demand().n_workers, bed.demand().idle.len()), (1, 0));
}

// ── Why each group does not fit ─────────────────────────────────────────────────────────────────────────────────────

#[test]
fn explain_gives_each_group_of_workers_with_its_reason_and_number() {
    let fits = |n: u128| labelled("zone", "a", remote(WorkerId(n), 2000, 4096));
    let ssd = |spec: WorkerSpec| WorkerSpec { parallel_max: Some(1), ..spec };
    let mut bed = Bed::remotes([]);
    // One group after the other, each with another number, so that none can be taken for its neighbour.
    bed.register(fits(100));
    bed.come(fits(101));
    bed.drain(WorkerId(101));
    bed.come(fits(102));
    bed.drain(WorkerId(102));
    bed.come(WorkerSpec { kinds: vec!["tab".into()], ..fits(103) });
    bed.come(remote(WorkerId(104), 2000, 4096));
    bed.come(labelled("zone", "a", remote(WorkerId(105), 500, 4096)));
    bed.come(fits(106));
    let faulty = bed.submit(task("a").max_retries(0).require("zone", "a"));
    bed.fail_by_worker(faulty);
    bed.come(fits(107));
    bed.says(WorkerId(107), Vitals { trouble: Some("no disk".into()), ..Vitals::default() });
    for n in [108, 109] {
        bed.come(ssd(fits(n)));
        let held = bed.submit(task("a").require("zone", "a").long());
        assert_eq!(bed.state(held), Phase::Running);
    }
    for n in [110, 111, 112] {
        bed.come(fits(n));
        let held = bed.submit(task("a").cpu(1500).require("zone", "a").long());
        assert_eq!(bed.start_of(held).worker, WorkerId(n));
    }
    bed.come(fits(113));
    bed.says(WorkerId(113), vitals(0, 100));
    bed.come(fits(114));
    bed.says_again(WorkerId(114), vitals(95, 4096));
    let id = bed.submit(task("a").cpu(1000).ram(200).require("zone", "a"));
    let detail = bed.closed_gate(id, "worker").detail.to_string();
    let mut groups: Vec<&str> = detail.split(", ").collect();
    groups.sort_unstable();
    let mut expected = [
        "1 not there",
        "2 draining",
        "1 does not offer the kind",
        "1 lacks a required label",
        "1 is too small",
        "1 is cooling down after a fault",
        "1 says that it is unhealthy",
        "2 runs as many as it may in parallel",
        "3 has no room now",
        "1 reports too little free memory",
        "1 is too busy: its CPU usage is above the guard",
    ];
    expected.sort_unstable();
    assert_eq!(groups, expected);
}
