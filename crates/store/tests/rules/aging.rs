//! Waiting lifts a flow, for one start in ten, and gives no right to preempt.

use runyard_core::ids::TaskId;
use runyard_core::task::Tier;

use super::bed::{Bed, MINUTE, New, SECOND, task};

/// Completes the held task and submits another urgent one, so that the queue of urgent work never runs dry.
fn feed(bed: &mut Bed, urgent: &New) -> TaskId {
    bed.submit(urgent.clone());
    let held = bed.held_in_start_order()[0];
    bed.complete(held);
    bed.held_in_start_order()[0]
}

fn n_until_started(bed: &mut Bed, urgent: &New, id: TaskId, max: usize) -> Option<usize> {
    (1..=max).find(|_| feed(bed, urgent) == id)
}

#[test]
fn ten_minutes_lift_a_flow_by_one_tier() {
    let mut bed = Bed::new().inflight(1);
    let urgent = task("u").tier(Tier::Normal).long();
    bed.submit_n(2, &urgent);
    let low = bed.submit(task("a").tier(Tier::Low));
    bed.advance_ms(10 * MINUTE - 2 * SECOND);
    assert_eq!(n_until_started(&mut bed, &urgent, low, 30), None);
    bed.advance_ms(2 * SECOND);
    assert!(n_until_started(&mut bed, &urgent, low, 11).is_some());
}

#[test]
fn ten_minutes_do_not_lift_a_flow_by_two_tiers() {
    let mut bed = Bed::new().inflight(1);
    let urgent = task("u").tier(Tier::High).long();
    bed.submit_n(2, &urgent);
    let low = bed.submit(task("a").tier(Tier::Low));
    bed.advance_ms(19 * MINUTE);
    assert_eq!(n_until_started(&mut bed, &urgent, low, 30), None);
    bed.advance_ms(MINUTE);
    assert!(n_until_started(&mut bed, &urgent, low, 11).is_some());
}

#[test]
fn thirty_minutes_lift_the_lowest_to_the_highest() {
    let mut bed = Bed::new().inflight(1);
    let urgent = task("u").tier(Tier::Critical).long();
    bed.submit_n(2, &urgent);
    let low = bed.submit(task("a").tier(Tier::Low));
    bed.advance_ms(30 * MINUTE);
    assert!(n_until_started(&mut bed, &urgent, low, 11).is_some());
}

#[test]
fn an_aged_flow_starts_its_oldest_task_whatever_its_rank() {
    let mut bed = Bed::new().inflight(1);
    let urgent = task("u").long();
    bed.submit_n(2, &urgent);
    let oldest = bed.submit(task("a").tier(Tier::Low).rank(100));
    let better = bed.submit(task("a").tier(Tier::Low).rank(-100));
    bed.advance_ms(10 * MINUTE);
    assert!(n_until_started(&mut bed, &urgent, oldest, 11).is_some());
    assert_eq!(bed.n_starts_of(better), 0);
}

#[test]
fn the_oldest_is_found_though_memory_holds_only_the_head_of_the_queue() {
    let mut bed = Bed::new().inflight(1).config(|config| config.window_max = 3);
    let urgent = task("u").long();
    bed.submit_n(2, &urgent);
    let oldest = bed.submit(task("a").tier(Tier::Low).rank(100));
    let better = bed.submit_n(50, &task("a").tier(Tier::Low).rank(-100));
    bed.advance_ms(10 * MINUTE);
    assert!(n_until_started(&mut bed, &urgent, oldest, 11).is_some());
    assert!(better.iter().all(|&id| bed.n_starts_of(id) == 0));
}

#[test]
fn aged_starts_are_at_most_one_in_ten() {
    let mut bed = Bed::new().inflight(1);
    let urgent = task("u").long();
    bed.submit_n(2, &urgent);
    let aged = bed.submit_n(50, &task("a").tier(Tier::Low));
    bed.advance_ms(10 * MINUTE);
    let order: Vec<TaskId> = (0..100).map(|_| feed(&mut bed, &urgent)).collect();
    let at: Vec<usize> = (0..order.len()).filter(|&n| aged.contains(&order[n])).collect();
    assert!(at.len() >= 9, "one in ten is really served: {at:?}");
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= 10), "{at:?}");
}

#[test]
fn the_longest_wait_does_not_hide_a_shorter_one_that_is_lifted_higher() {
    let mut bed = Bed::new().inflight(1);
    let urgent = task("u").tier(Tier::High).long();
    bed.submit_n(2, &urgent);
    let low = bed.submit(task("a").tier(Tier::Low));
    bed.advance_ms(MINUTE);
    let normal = bed.submit(task("b").tier(Tier::Normal));
    bed.advance_ms(10 * MINUTE);
    // The low one has waited longer and competes as normal; the normal one competes as high, where the work is.
    assert!(n_until_started(&mut bed, &urgent, normal, 11).is_some());
    assert_eq!(bed.n_starts_of(low), 0);
}

#[test]
fn age_gives_no_right_to_preempt() {
    let mut bed = Bed::new().inflight(1);
    let victim = bed.submit(task("v").tier(Tier::Low).preemptible().long());
    let aged = bed.submit(task("a").tier(Tier::High));
    bed.advance_ms(60 * MINUTE);
    assert_eq!(bed.take_stops(), []);
    assert_eq!((bed.n_starts_of(victim), bed.n_starts_of(aged)), (1, 0));
}

#[test]
fn age_does_not_open_a_closed_gate() {
    let mut bed = Bed::new();
    bed.pause_agent("a", true);
    let paused = bed.submit(task("a"));
    bed.advance_ms(60 * MINUTE);
    bed.submit_n(20, &task("b"));
    assert_eq!(bed.n_starts_of(paused), 0);
}
