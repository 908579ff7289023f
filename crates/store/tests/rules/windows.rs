//! Memory holds only the head of each queue. Nobody can tell from the order of starts.

use runyard_core::event::Event;
use runyard_core::ids::TaskId;
use runyard_core::task::{Phase, Tier};

use super::bed::{Bed, batch, task};

/// Submits in batches, because a queue of thousands is what this is about.
fn fill(bed: &mut Bed, n: usize, new: impl Fn(usize) -> super::bed::New) -> Vec<TaskId> {
    let mut ids = Vec::new();
    while ids.len() < n {
        let from = ids.len();
        let to = (from + 1000).min(n);
        ids.extend(bed.batch(batch((from..to).map(&new))).1);
    }
    ids
}

#[test]
fn five_thousand_queued_behind_a_window_of_ten_start_in_order_and_none_is_lost() {
    let mut bed = Bed::new().inflight(0).config(|config| config.window_max = 10);
    let ids = fill(&mut bed, 5000, |_| task("a"));
    bed.reconfigure(|config| config.inflight_max = 7);
    assert_eq!(bed.run_all(), ids);
    assert_eq!(bed.counts(None).completed, 5000);
}

#[test]
fn ranks_are_in_order_behind_a_small_window() {
    let mut bed = Bed::new().inflight(0).config(|config| config.window_max = 10);
    let ranks: Vec<i32> = (0..1000).map(|n| (n * 7919) % 37).collect();
    let ids = fill(&mut bed, 1000, |n| task("a").rank(ranks[n]));
    let mut expected: Vec<usize> = (0..1000).collect();
    expected.sort_by_key(|&n| (ranks[n], n));
    bed.reconfigure(|config| config.inflight_max = 3);
    assert_eq!(bed.run_all(), expected.into_iter().map(|n| ids[n]).collect::<Vec<_>>());
}

#[test]
fn many_flows_share_a_window_smaller_than_their_number() {
    let mut bed = Bed::new().inflight(0).config(|config| config.window_max = 3);
    let ids = fill(&mut bed, 1000, |n| task(&format!("agent-{}", n % 20)));
    bed.reconfigure(|config| config.inflight_max = 4);
    let started = bed.run_all();
    // Everybody has as much running as everybody else, so they take turns.
    assert_eq!(started, ids);
}

#[test]
fn what_comes_in_at_the_front_of_a_full_window_goes_first() {
    let mut bed = Bed::new().inflight(1).config(|config| config.window_max = 4);
    let first = bed.submit(task("x"));
    let ids = bed.submit_n(30, &task("a"));
    let urgent = bed.submit_n(3, &task("a").rank(-1));
    let mut expected = vec![first];
    expected.extend(urgent.iter().chain(&ids));
    assert_eq!(bed.run_all(), expected);
}

#[test]
fn a_queue_longer_than_its_window_is_complete_after_a_restart() {
    let mut bed = Bed::new().inflight(0).config(|config| config.window_max = 10);
    let ids = fill(&mut bed, 2000, |_| task("a"));
    bed.crash();
    bed.reconfigure(|config| config.inflight_max = 1);
    assert_eq!(bed.run_all(), ids);
}

#[test]
fn cancels_all_over_a_long_queue_leave_the_rest_in_order() {
    let mut bed = Bed::new().inflight(0).config(|config| config.window_max = 10);
    let ids = fill(&mut bed, 600, |_| task("a"));
    let (gone, left): (Vec<_>, Vec<_>) = ids.iter().copied().enumerate().partition(|(n, _)| n % 3 == 0);
    for (_, id) in &gone {
        bed.cancel(*id);
    }
    bed.reconfigure(|config| config.inflight_max = 2);
    assert_eq!(bed.run_all(), left.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
    assert!(gone.iter().all(|(_, id)| bed.state(*id) == Phase::Cancelled));
}

#[test]
fn tiers_go_before_windows() {
    let mut bed = Bed::new().inflight(0).config(|config| config.window_max = 2);
    let low = fill(&mut bed, 50, |_| task("a").tier(Tier::Low));
    let high = fill(&mut bed, 50, |_| task("b").tier(Tier::High));
    bed.reconfigure(|config| config.inflight_max = 1);
    assert_eq!(bed.run_all(), [high, low].concat());
}

#[test]
fn deadlines_deep_in_a_queue_fall_due_in_time() {
    let mut bed = Bed::new().inflight(0).config(|config| (config.window_max, config.dues_max) = (5, 5));
    let soon = bed.after_ms(1000);
    let ids = fill(&mut bed, 3000, |n| if n % 2 == 0 { task("a").deadline(soon) } else { task("a") });
    bed.advance_ms(999);
    assert_eq!(bed.counts(None).failed, 0);
    bed.advance_ms(1);
    assert_eq!((bed.counts(None).failed, bed.counts(None).expired, bed.counts(None).queued), (1500, 1500, 1500));
    bed.reconfigure(|config| config.inflight_max = 1);
    assert_eq!(bed.run_all(), ids.iter().copied().skip(1).step_by(2).collect::<Vec<_>>());
}

/// Flows without tasks are dropped beyond a number of them, also when this very tick ended their last one.
#[test]
fn flows_that_went_idle_by_the_thousand_are_forgotten() {
    let mut bed = Bed::new().inflight(5000).config(|config| config.lanes.get_mut("main").unwrap().limit = 5000);
    for round in 0..2 {
        let ids: Vec<TaskId> = (0..1100).map(|n| bed.submit(task(&format!("agent-{round}-{n}")))).collect();
        let ends: Vec<Event> = ids.iter().map(|&id| bed.complete_event(id)).collect();
        bed.send(ends);
        assert!(ids.iter().all(|&id| bed.state(id) == Phase::Completed));
    }
}

/// A refill reads a thousand flows at a time; the next one goes on where it stopped.
#[test]
fn no_flow_is_kept_from_being_read_by_a_thousand_others() {
    let mut bed = Bed::new().inflight(2500).config(|config| {
        config.window_max = 1;
        config.lanes.get_mut("main").unwrap().limit = 2500;
    });
    bed.pause_lane("main", true);
    let agents: Vec<String> = (0..1100).map(|n| format!("agent-{n}")).collect();
    for agent in &agents {
        bed.submit_n(2, &task(agent));
    }
    bed.restart();
    bed.pause_lane("main", false);
    assert_eq!(bed.run_all().len(), 2200);
}
