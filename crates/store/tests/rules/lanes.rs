//! Lanes: named pools with a limit each. A name nobody configured is the main one.

use runyard_core::task::Phase;

use super::bed::{Bed, task};

/// goclaw 1
#[test]
fn a_lane_of_two_runs_two_of_six_together_and_never_more() {
    let mut bed = Bed::new().with_lane("pair", 2);
    let ids = bed.submit_n(6, &task("a").lane("pair"));
    for n in 0..6 {
        assert_eq!(bed.n_held(), 2.min(6 - n));
        let first = bed.held_in_start_order()[0];
        bed.complete(first);
    }
    assert_eq!(bed.states(&ids), [Phase::Completed; 6]);
}

/// goclaw 2
#[test]
fn a_lane_says_its_name_its_limit_and_how_many_run_in_it() {
    let mut bed = Bed::new().inflight(2).with_lane("slow", 3);
    let others = bed.submit_n(2, &task("b"));
    let ids = bed.submit_n(2, &task("a").lane("slow"));
    let gate = |bed: &mut Bed| {
        let gates = bed.explain(ids[1]).gates;
        let lane = gates.into_iter().find(|gate| gate.kind == "lane").expect("every task passes a lane");
        (lane.name.to_string(), lane.current, lane.limit, lane.open)
    };
    assert_eq!(gate(&mut bed), ("slow".to_owned(), Some(0), Some(3), true));
    bed.complete(others[0]);
    assert_eq!(gate(&mut bed), ("slow".to_owned(), Some(1), Some(3), true));
}

/// goclaw 3
#[test]
fn a_lane_nobody_configured_is_main() {
    let mut bed = Bed::new().with_lane("main", 1);
    let main = bed.submit(task("a"));
    let ids = [bed.submit(task("a").lane("nonexistent")), bed.submit(task("a").lane("subagent"))];
    assert_eq!(bed.states(&ids), [Phase::Queued, Phase::Running]);
    bed.complete(main);
    assert_eq!(bed.state(ids[0]), Phase::Running);
}

/// goclaw 4
#[test]
fn asking_for_a_lane_again_does_not_change_its_limit() {
    let mut bed = Bed::new().with_lane("custom", 8);
    bed.submit_n(16, &task("a").lane("custom"));
    assert_eq!(bed.n_held(), 8);
    bed.submit_n(16, &task("b").lane("custom"));
    assert_eq!(bed.n_held(), 8);
}

/// goclaw 5
#[test]
fn what_is_cancelled_before_a_full_lane_has_room_never_runs() {
    let mut bed = Bed::new().with_lane("one", 1);
    let running = bed.submit(task("a").lane("one"));
    let waiting = bed.submit(task("a").lane("one"));
    bed.cancel(waiting);
    bed.complete(running);
    assert_eq!((bed.state(waiting), bed.n_starts_of(waiting)), (Phase::Cancelled, 0));
    // Nor one that comes and is cancelled in the same moment.
    let [id] = bed.ids();
    let events = [bed.submit_event(task("a").lane("one").id(id)), bed.cancel_event(id)];
    bed.send(events);
    assert_eq!((bed.state(id), bed.n_starts_of(id), bed.n_held()), (Phase::Cancelled, 0, 0));
}
