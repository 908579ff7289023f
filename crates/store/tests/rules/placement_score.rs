//! Which of the workers that fit: the score and what moves it, and what a machine says of itself.

use runyard_core::config::Packing;
use runyard_core::event::{Event, Report, WorkerSpec};
use runyard_core::flow::Resources;
use runyard_core::ids::{TaskId, WorkerId};
use runyard_core::task::Phase;
use runyard_core::worker::{Sync, Vitals};

use super::bed::{Bed, FIRST, New, SECOND, labelled, remote, task, vitals};

const A: WorkerId = WorkerId(11);
const B: WorkerId = WorkerId(12);
const C: WorkerId = WorkerId(13);
const D: WorkerId = WorkerId(14);

fn two() -> Bed {
    Bed::remotes([remote(A, 4000, 8192), remote(B, 4000, 8192)])
}

fn place_of(bed: &mut Bed, new: New) -> WorkerId {
    let id = bed.submit(new);
    bed.start_of(id).worker
}

// ── The lowest score ────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn the_lowest_score_wins_and_usage_weighs_twice_what_reserved_cores_do() {
    let mut bed = two();
    bed.says_again(A, vitals(10, 8192));
    bed.says_again(B, vitals(20, 8192));
    assert_eq!(place_of(&mut bed, task("a").cpu(1000)), A, "6 points against 12");
    // A stands at 6 + 7.5 now, B at 12.
    assert_eq!(place_of(&mut bed, task("a").cpu(1000)), B);
    // And B at 12 + 7.5.
    assert_eq!(place_of(&mut bed, task("a").cpu(1000)), A);
}

#[test]
fn a_tie_goes_to_the_most_free_cores_and_then_to_the_lowest_id() {
    let mut bed = Bed::remotes([remote(A, 2000, 8192), remote(C, 8000, 8192), remote(B, 8000, 8192)]);
    assert_eq!(place_of(&mut bed, task("a").ram(1)), B);
}

#[test]
fn reserved_memory_weighs_too() {
    let mut bed = two();
    assert_eq!(place_of(&mut bed, task("a").ram(4096)), A);
    assert_eq!(place_of(&mut bed, task("a").ram(16)), B, "5 points against nothing");
}

#[test]
fn a_preferred_label_is_worth_twenty_points_and_no_more() {
    let ssd = labelled("disk", "ssd", remote(B, 4000, 8192));
    let mut bed = Bed::remotes([remote(A, 4000, 8192), ssd]);
    let wants = task("a").cpu(100).prefer("disk", "ssd");
    bed.says_again(B, vitals(33, 8192));
    assert_eq!(place_of(&mut bed, wants.clone()), B, "19.8 points less 20");
    bed.says_again(B, vitals(35, 8192));
    assert_eq!(place_of(&mut bed, wants), A, "21 points less 20");
}

#[test]
fn an_avoided_label_costs_twenty_points_and_no_more() {
    let spot = labelled("spot", "yes", remote(A, 4000, 8192));
    let mut bed = Bed::remotes([spot, remote(B, 4000, 8192)]);
    let avoids = task("a").cpu(100).avoid("spot", "yes");
    bed.says_again(B, vitals(33, 8192));
    assert_eq!(place_of(&mut bed, avoids.clone()), B);
    bed.says_again(B, vitals(36, 8192));
    assert_eq!(place_of(&mut bed, avoids), A, "there is nobody much better, and it is only a wish");
}

#[test]
fn two_preferred_labels_count_twice() {
    let both = labelled("disk", "ssd", labelled("zone", "z", remote(C, 4000, 8192)));
    let one = labelled("disk", "ssd", remote(B, 4000, 8192));
    let mut bed = Bed::remotes([remote(A, 4000, 8192), one, both]);
    assert_eq!(place_of(&mut bed, task("a").prefer("disk", "ssd").prefer("zone", "z")), C);
}

#[test]
fn a_worker_that_fits_better_is_found_among_those_told_apart_by_other_tasks() {
    let mut bed = Bed::remotes([labelled("zone", "a", remote(A, 4000, 8192)), remote(B, 4000, 8192)]);
    let plain = task("a").cpu(1000).long();
    assert_eq!(place_of(&mut bed, plain.clone()), A);
    // A shape that speaks of zones tells the two apart; who does not care must not notice.
    assert_eq!(place_of(&mut bed, task("a").cpu(1000).require("zone", "a").long()), A);
    assert_eq!(bed.places(&[TaskId(1), TaskId(2)]), [A, A]);
    assert_eq!(place_of(&mut bed, plain.clone()), B);
    assert_eq!(place_of(&mut bed, plain.clone()), B);
    assert_eq!(place_of(&mut bed, plain), A, "both have two: the lowest id");
}

/// Workers that were there before anybody spoke of what tells them apart.
#[test]
fn a_new_shape_finds_its_points_and_places_among_workers_that_were_there_before() {
    let ssd = labelled("disk", "ssd", remote(C, 4000, 8192));
    let far = labelled("zone", "y", remote(D, 4000, 8192));
    let gpu = WorkerSpec {
        capacity: Resources { cpu_milli: 4000, ram_mb: 8192, named: vec![("gpu".into(), 1)] },
        ..remote(B, 4000, 8192)
    };
    let mut bed = Bed::remotes([remote(A, 4000, 8192), gpu, ssd, far]);
    bed.submit(task("a").cpu(100).require("disk", "ssd").long());
    assert_eq!(place_of(&mut bed, task("a").cpu(200).prefer("disk", "ssd").long()), C, "a class that exists already");
    assert_eq!(place_of(&mut bed, task("a").cpu(100).named("gpu", 1).long()), B);
    let ids = bed.submit_n(4, &spread());
    assert_eq!(bed.places(&ids).into_iter().filter(|&worker| worker == D).count(), 2, "half of them in zone y");
}

#[test]
fn what_labels_are_worth_is_compared_and_not_the_bare_score() {
    let ssd = labelled("disk", "ssd", remote(B, 4000, 8192));
    let mut bed = Bed::remotes([remote(A, 4000, 8192), ssd]);
    let plain = task("a").cpu(1).long();
    bed.submit(plain);
    bed.says_again(B, vitals(10, 8192));
    assert_eq!(place_of(&mut bed, task("a").cpu(10).prefer("disk", "ssd")), B, "6 points less 20 against 0.0075");
}

#[test]
fn binpack_fills_one_worker_before_it_begins_the_next() {
    let mut bed = two().config(|config| config.placement.packing = Packing::Binpack);
    let ids = bed.submit_n(6, &task("a").cpu(1000).long());
    assert_eq!(bed.places(&ids), [A, A, A, A, B, B]);
    bed.complete(ids[0]);
    bed.complete(ids[1]);
    bed.complete(ids[4]);
    assert_eq!(place_of(&mut bed, task("a").cpu(1000)), A, "two thirds full against a quarter");
}

#[test]
fn weights_are_configured_and_a_reload_changes_who_is_best() {
    let mut bed = two();
    bed.says_again(A, vitals(40, 8192));
    bed.says_again(B, vitals(0, 8192));
    let held = bed.submit_n(2, &task("a").cpu(1000).long());
    assert_eq!(bed.places(&held), [B, B]);
    bed.reconfigure(|config| config.placement.cpu_usage_weight = 0);
    assert_eq!(place_of(&mut bed, task("a").cpu(1000)), A, "usage counts for nothing now");
    bed.reconfigure(|config| {
        config.placement.cpu_usage_weight = 600;
        config.placement.reserved_cpu_weight = 3000;
    });
    assert_eq!(place_of(&mut bed, task("a").cpu(1000)), A, "99 points against 150");
    bed.reconfigure(|config| config.placement.packing = Packing::Binpack);
    assert_eq!(place_of(&mut bed, task("a").cpu(1000)), A, "174 points against 150: the fullest");
}

#[test]
fn the_memory_weight_is_configured_too() {
    let mut bed = two().config(|config| config.placement.reserved_ram_weight = 0);
    assert_eq!(place_of(&mut bed, task("a").ram(8000)), A);
    assert_eq!(place_of(&mut bed, task("a").ram(16)), A, "memory weighs nothing, and the lowest id wins");
}

// ── Spreading ───────────────────────────────────────────────────────────────────────────────────────────────────────

fn zones() -> Bed {
    let zone = |id, zone: &str| labelled("zone", zone, remote(id, 8000, 8192));
    Bed::remotes([zone(A, "x"), zone(B, "x"), zone(C, "x"), zone(D, "y")])
}

fn spread() -> New {
    task("a").cpu(500).long().with(|new| new.flow.shape.place.spread_by = Some("zone".into()))
}

#[test]
fn tasks_are_spread_evenly_over_the_values_of_a_label() {
    let mut bed = zones();
    let ids = bed.submit_n(6, &spread());
    let in_y = bed.places(&ids).into_iter().filter(|&worker| worker == D).count();
    assert_eq!(in_y, 3, "zone y has one worker of four, and half of the tasks");
    let plain = bed.submit_n(4, &task("a").cpu(500).long());
    assert!(!bed.places(&plain).contains(&D), "who is not spread goes where there is most room");
}

#[test]
fn an_end_evens_the_spread_out_again_also_after_a_restart() {
    let mut bed = zones();
    let ids = bed.submit_n(4, &spread());
    let in_y: Vec<TaskId> = ids.iter().copied().filter(|&id| bed.start_of(id).worker == D).collect();
    assert_eq!(in_y.len(), 2);
    in_y.iter().for_each(|&id| bed.complete(id));
    bed.restart();
    let next = bed.submit_n(2, &spread());
    assert_eq!(bed.places(&next), [D, D]);
}

#[test]
fn each_flow_is_spread_by_itself() {
    let mut bed = zones();
    bed.submit(spread());
    let other = spread().with(|new| new.flow.agent = "b".into());
    let others = bed.submit_n(2, &other);
    let in_y = bed.places(&others).into_iter().filter(|&worker| worker == D).count();
    assert_eq!(in_y, 1);
}

#[test]
fn a_worker_without_the_label_is_a_value_of_its_own() {
    let mut bed = Bed::remotes([labelled("zone", "x", remote(A, 8000, 8192)), remote(B, 8000, 8192)]);
    let ids = bed.submit_n(4, &spread());
    assert_eq!(bed.places(&ids).into_iter().filter(|&worker| worker == B).count(), 2);
}

// ── What the machine says ───────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_machine_above_the_guard_gets_nothing_that_needs_its_processor_or_memory() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    bed.says_again(A, vitals(91, 8192));
    let [cpu, ram, neither] = [task("a").cpu(1), task("a").ram(1), task("a")].map(|new| bed.submit(new));
    assert_eq!(bed.states(&[cpu, ram, neither]), [Phase::Queued, Phase::Queued, Phase::Running]);
    assert_eq!(bed.closed_gate(cpu, "worker").detail, "1 is too busy: its CPU usage is above the guard");
    bed.says(A, vitals(90, 8192));
    assert_eq!(bed.states(&[cpu, ram]), [Phase::Running, Phase::Running]);
}

#[test]
fn the_guard_is_configured() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    bed.says_again(A, vitals(60, 8192));
    bed.reconfigure(|config| config.placement.cpu_usage_milli_max = 50_000);
    let id = bed.submit(task("a").cpu(1000));
    assert_eq!(bed.state(id), Phase::Queued);
    bed.reconfigure(|config| config.placement.cpu_usage_milli_max = 60_000);
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn the_server_s_own_worker_has_no_guard_and_shares_its_memory_with_the_server() {
    let mut bed = Bed::new();
    for _ in 0..2 {
        bed.send([Event::WorkerSeen { worker: FIRST, vitals: vitals(100, 1) }]);
    }
    let id = bed.submit(task("a").cpu(1000).ram(1000));
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn the_first_cpu_sample_of_a_fresh_process_is_noise() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    bed.says(A, vitals(100, 8192));
    let first = bed.submit(task("a").cpu(1000).long());
    assert_eq!(bed.state(first), Phase::Running);
    bed.says(A, vitals(100, 8192));
    let second = bed.submit(task("a").cpu(1000));
    assert_eq!(bed.state(second), Phase::Queued, "the second one counts");
    bed.register(remote(A, 4000, 8192));
    bed.present(A, &[first]);
    bed.says(A, vitals(100, 8192));
    assert_eq!(bed.state(second), Phase::Running, "a new process begins anew");
}

#[test]
fn a_heartbeat_without_a_measurement_takes_none_back() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    bed.says_again(A, vitals(95, 100));
    bed.says(A, Vitals::default());
    assert_eq!(bed.view(A).vitals.cpu_usage_milli, Some(95_000));
    let id = bed.submit(task("a").cpu(1));
    assert_eq!(bed.state(id), Phase::Queued);
}

#[test]
fn no_more_memory_is_given_than_the_machine_reports_as_free() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    bed.says(A, vitals(0, 1000));
    let ids = bed.submit_n(3, &task("a").ram(400).long());
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Queued], "placed since the report counts");
    assert_eq!(bed.closed_gate(ids[2], "worker").detail, "1 reports too little free memory");
    assert_eq!(bed.view(A).free.ram_mb, 200);
    bed.says(A, vitals(0, 399));
    assert_eq!(bed.state(ids[2]), Phase::Queued, "the next report knows of both");
    bed.says(A, vitals(0, 400));
    assert_eq!(bed.state(ids[2]), Phase::Running);
}

#[test]
fn what_ends_before_the_next_report_gives_its_memory_back() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    bed.says(A, vitals(0, 1000));
    let first = bed.submit(task("a").ram(1000));
    let second = bed.submit(task("a").ram(1000));
    assert_eq!(bed.states(&[first, second]), [Phase::Running, Phase::Queued]);
    bed.complete(first);
    assert_eq!(bed.state(second), Phase::Running);
    // What the report knew of is not free before the next one says so.
    bed.says(A, vitals(0, 10));
    bed.complete(second);
    let third = bed.submit(task("a").ram(100));
    assert_eq!((bed.state(third), bed.view(A).free.ram_mb), (Phase::Queued, 10));
}

#[test]
fn a_report_of_much_memory_makes_nothing_free_that_is_reserved() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let first = bed.submit(task("a").ram(8000).long());
    bed.says(A, vitals(0, 8192));
    let second = bed.submit(task("a").ram(1000));
    assert_eq!(bed.states(&[first, second]), [Phase::Running, Phase::Queued]);
    assert_eq!(bed.view(A).free.ram_mb, 192);
}

#[test]
fn a_worker_takes_as_many_more_as_it_wants() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let ids = bed.submit_n(1, &task("a").long());
    let want = |n| Vitals { want: Some(n), ..Vitals::default() };
    bed.says(A, want(2));
    let more = bed.submit_n(4, &task("a").long());
    assert_eq!(bed.states(&more), [Phase::Running, Phase::Running, Phase::Queued, Phase::Queued]);
    assert_eq!(bed.closed_gate(more[2], "worker").detail, "1 runs as many as it may in parallel");
    bed.says(A, want(0));
    bed.complete(ids[0]);
    assert_eq!(bed.state(more[2]), Phase::Running, "it holds no more than when it said so");
    bed.says(A, Vitals::default());
    assert_eq!(bed.state(more[3]), Phase::Running, "who says nothing takes what fits");
}

#[test]
fn what_a_worker_wants_does_not_lift_its_declared_parallelism() {
    let two = WorkerSpec { parallel_max: Some(2), ..remote(A, 4000, 8192) };
    let mut bed = Bed::remotes([two]);
    bed.says(A, Vitals { want: Some(10), ..Vitals::default() });
    bed.submit_n(4, &task("a"));
    assert_eq!(bed.n_held(), 2);
}

#[test]
fn a_worker_that_says_it_is_unhealthy_gets_nothing_until_it_says_so_no_more() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let running = bed.submit(task("a").long());
    bed.says(A, Vitals { trouble: Some("the disk is full".into()), ..Vitals::default() });
    let id = bed.submit(task("a"));
    assert_eq!(bed.states(&[running, id]), [Phase::Running, Phase::Queued]);
    assert_eq!(bed.closed_gate(id, "worker").detail, "1 says that it is unhealthy");
    assert_eq!(bed.status(A).1, "the disk is full");
    bed.says(A, Vitals::default());
    assert_eq!(bed.state(id), Phase::Running);
}

// ── Capacity ────────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn five_one_core_jobs_on_a_worker_that_runs_two_in_parallel_never_hold_more_than_two() {
    let spec = WorkerSpec { parallel_max: Some(2), ..remote(A, 4000, 8192) };
    let mut bed = Bed::remotes([spec]);
    let ids = bed.submit_n(5, &task("a").cpu(1000).ram(256));
    let mut n_done = 0;
    while n_done < 5 {
        let view = bed.view(A);
        let n = (5 - n_done).min(2) as u32;
        assert_eq!((view.held.len() as u32, view.reserved.cpu_milli, view.reserved.ram_mb), (n, n * 1000, n * 256));
        bed.complete(view.held[0]);
        n_done += 1;
    }
    assert!(bed.states(&ids).iter().all(|&state| state == Phase::Completed));
    assert_eq!((bed.view(A).reserved.cpu_milli, bed.view(A).reserved.ram_mb), (0, 0));
}

#[test]
fn an_eight_core_job_waits_with_its_reason_until_a_worker_of_that_size_is_there() {
    let mut bed = two();
    let id = bed.submit(task("a").cpu(8000));
    assert_eq!(bed.closed_gate(id, "worker").detail, "2 is too small");
    bed.advance_ms(60 * SECOND);
    assert_eq!(bed.state(id), Phase::Queued);
    bed.come(remote(C, 8000, 8192));
    assert_eq!((bed.state(id), bed.start_of(id).worker), (Phase::Running, C));
}

#[test]
fn reservations_are_given_back_once_however_an_attempt_ends() {
    let gpu = Resources { cpu_milli: 4000, ram_mb: 8192, named: vec![("gpu".into(), 2)] };
    let mut bed = Bed::remotes([WorkerSpec { capacity: gpu, ..remote(A, 0, 0) }]);
    let new = task("a").cpu(1000).ram(100).named("gpu", 1).long().max_retries(0);
    let [done, failed, cancelled, handed_back] = std::array::from_fn(|_| new.clone());
    let (done, failed) = (bed.submit(done), bed.submit(failed));
    assert_eq!(bed.view(A).reserved.named, [("gpu".into(), 2)]);
    let (cancelled, handed_back) = (bed.submit(cancelled), bed.submit(handed_back));
    let lease = bed.lease_of(done);
    let report = || Report::Completed { result: None, usage: None };
    let sync = Sync { reports: vec![(lease, report()), (lease, report())], ..bed.sync_of(A) };
    assert_eq!(bed.sync(A, sync), Ok(vec![(done, 1)]), "the second of the two is late");
    bed.fail(failed, runyard_core::task::Class::Task);
    assert_eq!(bed.view(A).free.named, [("gpu".into(), 0)]);
    bed.cancel(cancelled);
    assert_eq!(bed.view(A).reserved.cpu_milli, 2000, "one that stops still holds its place");
    bed.confirm_stop(cancelled);
    bed.complete(handed_back);
    let view = bed.view(A);
    assert_eq!((view.reserved.cpu_milli, view.reserved.ram_mb, view.free.ram_mb), (0, 0, 8192));
    assert_eq!(view.free.named, [("gpu".into(), 2)]);
}
