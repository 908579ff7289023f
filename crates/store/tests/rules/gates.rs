//! Everything of limited capacity: it holds back who needs it, and nobody else.

use runyard_core::event::Admit;
use runyard_core::task::{Phase, Tier};

use super::bed::{Bed, MINUTE, SECOND, agent, lane, named_gate, task};

/// browseros 20
#[test]
fn never_more_than_the_global_limit_run_at_once() {
    let mut bed = Bed::new().inflight(3);
    let ids = bed.submit_n(20, &task("a"));
    for n in 0..20 {
        assert_eq!(bed.n_held(), 3.min(20 - n));
        let first = bed.held_in_start_order()[0];
        bed.complete(first);
    }
    assert_eq!(bed.states(&ids), [Phase::Completed; 20]);
}

/// pinchtab 18
#[test]
fn an_agents_second_task_waits_for_its_first_at_a_limit_of_one() {
    let mut bed = Bed::new().config(|config| config.inflight_per_agent_max = Some(1));
    let first = bed.submit(task("a"));
    let second = bed.submit(task("a"));
    let other = bed.submit(task("b"));
    assert_eq!(bed.states(&[first, second, other]), [Phase::Running, Phase::Queued, Phase::Running]);
    bed.complete(first);
    assert_eq!(bed.state(second), Phase::Running);
}

#[test]
fn an_agents_own_limit_goes_before_the_one_for_all() {
    let mut bed = Bed::new().config(|config| {
        config.inflight_per_agent_max = Some(1);
        config.agents.insert("a".into(), agent(Some(2), 1));
    });
    bed.submit_n(3, &task("a"));
    bed.submit_n(3, &task("b"));
    assert_eq!((bed.counts(Some("a")).running, bed.counts(Some("b")).running), (2, 1));
}

#[test]
fn a_task_that_is_handed_out_and_not_begun_counts_in_every_limit() {
    let mut bed = Bed::new().inflight(1).idle_workers();
    let first = bed.submit(task("a"));
    let second = bed.submit(task("a"));
    assert_eq!(bed.states(&[first, second]), [Phase::Assigned, Phase::Queued]);
}

#[test]
fn a_lane_runs_as_many_as_it_says_and_others_are_free() {
    let mut bed = Bed::new().config(|config| {
        config.lanes.insert("slow".into(), lane(2));
    });
    bed.submit_n(5, &task("a").lane("slow"));
    let other = bed.submit(task("a"));
    assert_eq!(bed.n_held(), 3);
    assert_eq!(bed.state(other), Phase::Running);
}

#[test]
fn an_unknown_lane_is_the_main_one() {
    let mut bed = Bed::new().config(|config| {
        config.lanes.insert("main".into(), lane(1));
    });
    let main = bed.submit(task("a"));
    let unknown = bed.submit(task("b").lane("nowhere"));
    assert_eq!(bed.states(&[main, unknown]), [Phase::Running, Phase::Queued]);
    assert_eq!(&*bed.doc(unknown).lane, "nowhere", "the task says what it was submitted with");
    assert_eq!(bed.closed(unknown), [("lane", "main".to_owned())]);
    bed.complete(main);
    assert_eq!(bed.state(unknown), Phase::Running);
}

#[test]
fn a_kind_runs_as_many_as_it_says() {
    let mut bed = Bed::new().config(|config| {
        config.kinds.insert("process".into(), 1);
    });
    bed.submit_n(3, &task("a").kind("process"));
    let other = bed.submit(task("a").kind("http"));
    assert_eq!(bed.n_held(), 2);
    assert_eq!(bed.state(other), Phase::Running);
}

#[test]
fn a_named_gate_counts_over_agents_lanes_and_kinds() {
    let mut bed = Bed::new().config(|config| {
        config.gates.insert("api".into(), named_gate(Some(2), None, 0));
    });
    let held = [bed.submit(task("a").gate("api")), bed.submit(task("b").gate("api").lane("team"))];
    let third = bed.submit(task("c").gate("api").kind("process"));
    let without = bed.submit(task("c"));
    assert_eq!(bed.states(&[third, without]), [Phase::Queued, Phase::Running]);
    bed.complete(held[1]);
    assert_eq!(bed.state(third), Phase::Running);
}

#[test]
fn a_task_passes_all_of_its_named_gates() {
    let mut bed = Bed::new().config(|config| {
        config.gates.insert("api".into(), named_gate(Some(1), None, 0));
        config.gates.insert("db".into(), named_gate(Some(1), None, 0));
    });
    let api = bed.submit(task("a").gate("api"));
    let db = bed.submit(task("a").gate("db"));
    let both = bed.submit(task("a").gate("api").gate("db"));
    assert_eq!(bed.closed(both), [("gate", "api".to_owned()), ("gate", "db".to_owned())]);
    bed.complete(api);
    assert_eq!(bed.closed(both), [("gate", "db".to_owned())]);
    bed.complete(db);
    assert_eq!(bed.state(both), Phase::Running);
}

#[test]
fn a_rate_lets_its_burst_start_at_once_and_then_one_an_interval() {
    let mut bed = Bed::new().config(|config| {
        config.gates.insert("api".into(), named_gate(None, Some(60), 3));
    });
    bed.submit_n(6, &task("a").gate("api"));
    assert_eq!(bed.started().len(), 3);
    bed.advance_ms(SECOND - 1);
    assert_eq!(bed.started().len(), 3);
    bed.advance_ms(1);
    assert_eq!(bed.started().len(), 4);
    bed.advance_ms(2 * SECOND);
    assert_eq!(bed.started().len(), 6);
}

#[test]
fn a_rate_counts_starts_and_not_ends() {
    let mut bed = Bed::new().config(|config| {
        config.gates.insert("api".into(), named_gate(None, Some(1), 1));
    });
    let ids = bed.submit_n(2, &task("a").gate("api"));
    bed.complete(ids[0]);
    assert_eq!(bed.state(ids[1]), Phase::Queued);
    bed.advance_ms(MINUTE);
    assert_eq!(bed.state(ids[1]), Phase::Running);
}

#[test]
fn a_rate_that_is_used_up_stays_so_over_a_restart() {
    let mut bed = Bed::new().config(|config| {
        config.gates.insert("api".into(), named_gate(None, Some(1), 1));
    });
    let ids = bed.submit_n(2, &task("a").gate("api"));
    bed.complete(ids[0]);
    bed.restart();
    assert_eq!(bed.state(ids[1]), Phase::Queued);
    bed.advance_ms(MINUTE - 1);
    assert_eq!(bed.state(ids[1]), Phase::Queued);
    bed.advance_ms(1);
    assert_eq!(bed.state(ids[1]), Phase::Running);
}

#[test]
fn a_paused_agent_starts_nothing_and_goes_on_when_resumed() {
    let mut bed = Bed::new();
    let running = bed.submit(task("a"));
    bed.pause_agent("a", true);
    let held_back = bed.submit(task("a"));
    let other = bed.submit(task("b"));
    assert_eq!(bed.states(&[running, held_back, other]), [Phase::Running, Phase::Queued, Phase::Running]);
    bed.pause_agent("a", false);
    assert_eq!(bed.state(held_back), Phase::Running);
}

#[test]
fn a_paused_lane_starts_nothing_and_goes_on_when_resumed() {
    let mut bed = Bed::new();
    bed.pause_lane("team", true);
    let held_back = bed.submit(task("a").lane("team"));
    let other = bed.submit(task("a"));
    assert_eq!(bed.states(&[held_back, other]), [Phase::Queued, Phase::Running]);
    bed.pause_lane("team", false);
    assert_eq!(bed.state(held_back), Phase::Running);
}

#[test]
fn a_closed_gate_never_blocks_a_flow_that_does_not_need_it() {
    let mut bed = Bed::new().config(|config| {
        config.gates.insert("shut".into(), named_gate(Some(0), None, 0));
        config.lanes.insert("closed".into(), lane(0));
        config.kinds.insert("process".into(), 0);
    });
    bed.pause_agent("paused", true);
    let urgent = || task("a").tier(Tier::Critical);
    bed.submit_n(10, &urgent().gate("shut"));
    bed.submit_n(10, &urgent().lane("closed"));
    bed.submit_n(10, &urgent().kind("process"));
    bed.submit_n(10, &task("paused").tier(Tier::Critical));
    let free = bed.submit(task("a").tier(Tier::Low));
    assert_eq!(bed.started(), [free]);
}

#[test]
fn a_slot_that_frees_goes_to_the_best_of_all_who_wait_for_it() {
    let mut bed = Bed::new().config(|config| {
        config.gates.insert("api".into(), named_gate(Some(1), None, 0));
    });
    let first = bed.submit(task("x").gate("api"));
    let normal = bed.submit(task("a").gate("api"));
    let high = bed.submit(task("b").gate("api").tier(Tier::High));
    bed.complete(first);
    assert_eq!(bed.states(&[normal, high]), [Phase::Queued, Phase::Running]);
}

#[test]
fn two_slots_that_free_together_wake_two_flows() {
    let mut bed = Bed::new().config(|config| {
        config.gates.insert("api".into(), named_gate(Some(2), None, 0));
    });
    let first = bed.submit_n(2, &task("x").gate("api"));
    let ids: Vec<_> = ["a", "b", "c"].into_iter().map(|name| bed.submit(task(name).gate("api"))).collect();
    bed.complete(first[0]);
    bed.complete(first[1]);
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running, Phase::Queued]);
}

/// pinchtab 79, as decided otherwise: queued work survives.
#[test]
fn nothing_starts_while_draining_and_what_runs_goes_on() {
    let mut bed = Bed::new().inflight(1);
    let running = bed.submit(task("a"));
    let queued = bed.submit(task("a"));
    bed.admit(Admit::Draining);
    bed.complete(running);
    assert_eq!(bed.states(&[running, queued]), [Phase::Completed, Phase::Queued]);
    assert_eq!(bed.closed_gate(queued, "global").detail, "draining");
    bed.admit(Admit::Open);
    assert_eq!(bed.state(queued), Phase::Running);
}
