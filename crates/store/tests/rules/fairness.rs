//! Who is next: tier, then the agent's load, service and turn, then rank, then submit order. Never chance.

use runyard_core::ids::TaskId;
use runyard_core::task::Tier;

use super::bed::{Bed, SECOND, agent, task};

/// browseros 18
#[test]
fn a_higher_tier_starts_first_whatever_was_submitted_first() {
    let mut bed = Bed::new().inflight(1);
    let first = bed.submit(task("x"));
    let low = bed.submit(task("a").tier(Tier::Low));
    let normal = bed.submit(task("a"));
    let high = bed.submit(task("a").tier(Tier::High));
    let critical = bed.submit(task("a").tier(Tier::Critical));
    let normal_too = bed.submit(task("a"));
    assert_eq!(bed.run_all(), [first, critical, high, normal, normal_too, low]);
}

#[test]
fn tiers_are_compared_across_agents() {
    let mut bed = Bed::new().inflight(1);
    let first = bed.submit(task("x"));
    let normal = bed.submit(task("a"));
    let high = bed.submit(task("b").tier(Tier::High));
    assert_eq!(bed.run_all(), [first, high, normal]);
}

/// pinchtab 13
#[test]
fn a_lower_rank_starts_first_inside_an_agent() {
    let mut bed = Bed::new().inflight(1);
    let first = bed.submit(task("x"));
    let [five, one, minus] = [5, 1, -3].map(|rank| bed.submit(task("a").rank(rank)));
    assert_eq!(bed.run_all(), [first, minus, one, five]);
}

#[test]
fn rank_is_compared_over_all_flows_of_an_agent() {
    let mut bed = Bed::new().inflight(1);
    let first = bed.submit(task("x"));
    let in_main = bed.submit(task("a").rank(2));
    let in_team = bed.submit(task("a").rank(1).lane("team"));
    let in_cron = bed.submit(task("a").rank(3).lane("cron"));
    assert_eq!(bed.run_all(), [first, in_team, in_main, in_cron]);
}

#[test]
fn rank_says_nothing_across_agents() {
    let mut bed = Bed::new().inflight(1);
    let first = bed.submit(task("x"));
    let of_a = bed.submit(task("a").rank(100));
    let of_b = bed.submit(task("b").rank(-100));
    // Neither was served before: the one that was made first stands first.
    assert_eq!(bed.run_all(), [first, of_a, of_b]);
}

/// pinchtab 14, browseros 19
#[test]
fn equal_rank_is_served_in_submit_order() {
    let mut bed = Bed::new().inflight(1);
    let ids = bed.submit_n(20, &task("a").rank(7));
    assert_eq!(bed.run_all(), ids);
}

#[test]
fn submit_order_is_by_sequence_and_not_by_id() {
    let mut bed = Bed::new().inflight(1);
    let first = bed.submit(task("x"));
    let [one, two, three] = bed.ids();
    for id in [three, one, two] {
        bed.submit(task("a").id(id));
    }
    assert_eq!(bed.run_all(), [first, three, one, two]);
}

/// pinchtab 17
#[test]
fn two_free_slots_go_to_two_agents() {
    let mut bed = Bed::new().inflight(0);
    let of_a = bed.submit_n(3, &task("a"));
    let of_b = bed.submit(task("b"));
    bed.reconfigure(|config| config.inflight_max = 2);
    assert_eq!(bed.started(), [of_a[0], of_b]);
}

#[test]
fn the_agent_with_the_fewest_running_tasks_is_next() {
    let mut bed = Bed::new().inflight(4);
    let of_a = bed.submit_n(6, &task("a"));
    let of_b = bed.submit_n(3, &task("b"));
    bed.complete(of_a[0]);
    bed.complete(of_a[1]);
    assert_eq!(&bed.started()[4..], [of_b[0], of_b[1]], "three to none, then two to one");
    bed.complete(of_a[2]);
    assert_eq!(&bed.started()[6..], [of_a[4]], "one to two");
}

#[test]
fn slots_are_shared_by_weight() {
    let mut bed = Bed::new().inflight(0).config(|config| {
        config.agents.insert("heavy".into(), agent(None, 3));
    });
    let heavy = bed.submit_n(10, &task("heavy"));
    let light = bed.submit_n(10, &task("light"));
    bed.reconfigure(|config| config.inflight_max = 8);
    let started = bed.started();
    let n = |ids: &[TaskId]| started.iter().filter(|id| ids.contains(id)).count();
    assert_eq!((n(&heavy), n(&light)), (6, 2));
}

#[test]
fn a_weight_that_changes_counts_from_the_next_start_on() {
    let mut bed = Bed::new().inflight(4);
    bed.submit_n(2, &task("a"));
    bed.submit_n(2, &task("b"));
    let more_a = bed.submit_n(2, &task("a"));
    let more_b = bed.submit_n(2, &task("b"));
    bed.reconfigure(|config| {
        config.agents.insert("b".into(), agent(None, 10));
        config.inflight_max = 6;
    });
    assert_eq!(&bed.started()[4..], more_b, "not {more_a:?}");
}

/// One slot, so every choice is a tie in running tasks.
#[test]
fn a_tie_goes_to_the_agent_with_least_service() {
    let mut bed = Bed::new().inflight(1);
    let a = bed.submit_n(4, &task("a"));
    let b = bed.submit_n(4, &task("b"));
    let mut order = Vec::new();
    for _ in 0..6 {
        let id = bed.held_in_start_order()[0];
        order.push(id);
        // Tasks of a take three times as long, so b gets three starts for each.
        bed.advance_ms(if a.contains(&id) { 3 * SECOND } else { SECOND });
        bed.complete(id);
    }
    assert_eq!(order, [a[0], b[0], b[1], b[2], a[1], b[3]]);
}

#[test]
fn equal_service_goes_to_who_was_served_least_recently() {
    let mut bed = Bed::new().inflight(1);
    let a = bed.submit_n(2, &task("a"));
    let b = bed.submit_n(2, &task("b"));
    let c = bed.submit_n(2, &task("c"));
    // No time passes, so nobody has any service.
    assert_eq!(bed.run_all(), [a[0], b[0], c[0], a[1], b[1], c[1]]);
}

#[test]
fn an_agent_that_was_idle_enters_at_the_least_service_of_the_active_ones() {
    let mut bed = Bed::new().inflight(1);
    let a = bed.submit_n(4, &task("a").long());
    bed.advance_ms(100 * SECOND);
    bed.complete(a[0]);
    let b = bed.submit_n(3, &task("b"));
    let mut order = Vec::new();
    for _ in 0..6 {
        let id = bed.held_in_start_order()[0];
        order.push(id);
        bed.advance_ms(SECOND);
        bed.complete(id);
    }
    // Coming in at nothing, b would have a hundred seconds to catch up and go three times in a row.
    assert_eq!(order, [a[1], b[0], a[2], b[1], a[3], b[2]]);
}

#[test]
fn service_is_not_kept_over_idleness() {
    let mut bed = Bed::new().inflight(1);
    let long = bed.submit(task("a").long());
    bed.advance_ms(100 * SECOND);
    bed.complete(long);
    // Agent a is idle now and its hundred seconds are forgotten: both start from nothing.
    let blocker = bed.submit(task("x"));
    let b = bed.submit_n(2, &task("b"));
    let a = bed.submit_n(2, &task("a"));
    let mut order = Vec::new();
    bed.complete(blocker);
    for _ in 0..4 {
        let id = bed.held_in_start_order()[0];
        order.push(id);
        bed.advance_ms(SECOND);
        bed.complete(id);
    }
    assert_eq!(order, [b[0], a[0], b[1], a[1]]);
}

#[test]
fn service_is_not_kept_over_a_restart() {
    let mut bed = Bed::new().inflight(1);
    let long = bed.submit(task("a").long());
    let a = bed.submit_n(2, &task("a"));
    let b = bed.submit_n(2, &task("b"));
    bed.advance_ms(50 * SECOND);
    bed.reconfigure(|config| config.inflight_max = 0);
    bed.complete(long);
    bed.restart();
    bed.reconfigure(|config| config.inflight_max = 1);
    assert_eq!(bed.run_all(), [a[0], b[0], a[1], b[1]]);
}

/// browseros 20
#[test]
fn a_flood_of_one_agent_does_not_hold_another_back() {
    let mut bed = Bed::new().inflight(2);
    bed.submit_n(200, &task("flood"));
    let small = bed.submit(task("small"));
    let first = bed.held_in_start_order()[0];
    bed.complete(first);
    assert_eq!(bed.n_starts_of(small), 1);
    assert_eq!(bed.n_held(), 2);
}
