//! Why does this task wait? Each gate that is closed, with its numbers and who holds it.

use runyard_core::event::WorkerSpec;
use runyard_core::flow::Resources;
use runyard_core::ids::TaskId;
use runyard_core::task::{Class, Phase, Tier};

use super::bed::{Bed, FIRST, HOUR, MINUTE, SECOND, agent, batch, lane, named_gate, task, worker};

#[test]
fn the_global_gate_says_how_many_run_and_who_they_are() {
    let mut bed = Bed::new().inflight(2);
    let t0 = bed.wall_ms();
    let held = bed.submit_n(2, &task("a"));
    bed.advance_ms(SECOND);
    let id = bed.submit(task("b"));
    assert_eq!(bed.closed(id), [("global", String::new())]);
    let gate = bed.closed_gate(id, "global");
    assert_eq!((gate.current, gate.limit, gate.since_ms), (Some(2), Some(2), Some(t0)));
    let mut holders = gate.holders.clone();
    holders.sort_unstable();
    assert_eq!(holders, held);
}

#[test]
fn at_most_twenty_holders_are_named() {
    let mut bed = Bed::new().inflight(25);
    bed.submit_n(25, &task("a"));
    let id = bed.submit(task("b"));
    let gate = bed.closed_gate(id, "global");
    assert_eq!((gate.current, gate.holders.len()), (Some(25), 20));
}

#[test]
fn the_agents_gate_is_its_own() {
    let mut bed = Bed::new().config(|config| {
        config.agents.insert("a".into(), agent(Some(1), 1));
    });
    let held = bed.submit(task("a"));
    bed.submit(task("b"));
    let id = bed.submit(task("a"));
    assert_eq!(bed.closed(id), [("agent", "a".to_owned())]);
    let gate = bed.closed_gate(id, "agent");
    assert_eq!((gate.current, gate.limit, gate.holders), (Some(1), Some(1), vec![held]));
}

#[test]
fn the_lane_kind_and_named_gates_say_their_names() {
    let mut bed = Bed::new().config(|config| {
        config.lanes.insert("x".into(), lane(1));
        config.kinds.insert("process".into(), 1);
        config.gates.insert("api".into(), named_gate(Some(1), None, 0));
    });
    let new = task("a").lane("x").kind("process").gate("api");
    let held = bed.submit(new.clone());
    let id = bed.submit(new);
    let expected = [("lane", "x"), ("kind", "process"), ("gate", "api")];
    assert_eq!(bed.closed(id), expected.map(|(kind, name)| (kind, name.to_owned())));
    for (kind, _) in expected {
        let gate = bed.closed_gate(id, kind);
        assert_eq!((gate.current, gate.limit, gate.holders), (Some(1), Some(1), vec![held]));
        assert_eq!(gate.detail, "full");
    }
}

#[test]
fn open_gates_are_listed_too_in_the_order_they_are_checked() {
    let mut bed = Bed::new().inflight(0).config(|config| {
        config.gates.insert("api".into(), named_gate(Some(1), None, 0));
    });
    let id = bed.submit(task("a").gate("api"));
    let kinds: Vec<&str> = bed.explain(id).gates.iter().map(|gate| gate.kind).collect();
    assert_eq!(kinds, ["global", "agent", "lane", "kind", "gate", "worker"]);
    assert_eq!(bed.explain(id).closed().count(), 1);
}

#[test]
fn a_rate_says_when_it_opens() {
    let mut bed = Bed::new().config(|config| {
        config.gates.insert("api".into(), named_gate(None, Some(1), 1));
    });
    bed.submit(task("a").gate("api"));
    bed.advance_ms(SECOND);
    let id = bed.submit(task("a").gate("api"));
    let gate = bed.closed_gate(id, "gate");
    assert_eq!((gate.detail.as_ref(), gate.opens_at_ms), ("rate used up", Some(bed.after_ms(MINUTE - SECOND))));
}

#[test]
fn a_pause_says_that_it_is_one() {
    let mut bed = Bed::new();
    bed.pause_agent("a", true);
    bed.pause_lane("team", true);
    let id = bed.submit(task("a").lane("team"));
    assert_eq!(bed.closed(id), [("agent", "a".to_owned()), ("lane", "team".to_owned())]);
    assert_eq!(bed.closed_gate(id, "agent").detail, "paused");
    assert_eq!(bed.closed_gate(id, "lane").detail, "paused");
}

#[test]
fn no_room_says_so_by_groups_of_workers() {
    let mut bed = Bed::new();
    bed.worker_gone(FIRST);
    let capacity = Resources { cpu_milli: 1000, ram_mb: 1024, named: Vec::new() };
    bed.join(WorkerSpec { capacity: capacity.clone(), ..worker(FIRST) });
    bed.join(WorkerSpec { capacity, kinds: vec!["tab".into()], ..worker(runyard_core::ids::WorkerId(2)) });
    let held = bed.submit(task("a").cpu(1000));
    let id = bed.submit(task("a").cpu(1000));
    let gate = bed.closed_gate(id, "worker");
    assert_eq!(gate.holders, [held]);
    assert_eq!(gate.detail, "1 does not offer the kind, 1 has no room now");
}

#[test]
fn an_unknown_kind_says_that_no_worker_offers_it() {
    let mut bed = Bed::new();
    let id = bed.submit(task("a").kind("goose"));
    assert_eq!(bed.closed(id), [("worker", "goose".to_owned())]);
    assert_eq!(bed.closed_gate(id, "worker").detail, "no worker offers kind goose");
}

#[test]
fn a_time_says_when_it_comes() {
    let mut bed = Bed::new();
    let at = bed.after_ms(HOUR);
    let delayed = bed.submit(task("a").run_at(at));
    let gate = bed.closed_gate(delayed, "time");
    assert_eq!((gate.name.as_ref(), gate.opens_at_ms), ("not before", Some(at)));

    let failing = bed.submit(task("a"));
    bed.fail(failing, Class::Task);
    let gate = bed.closed_gate(failing, "time");
    assert_eq!((gate.name.as_ref(), gate.opens_at_ms), ("backoff", Some(bed.after_ms(SECOND))));
}

#[test]
fn dependencies_say_how_many_are_open() {
    let mut bed = Bed::new();
    let parents = bed.submit_n(3, &task("a"));
    let child = bed.submit(task("a").after(&parents));
    bed.complete(parents[0]);
    let gate = bed.closed_gate(child, "dependencies");
    assert_eq!((gate.current, gate.limit), (Some(2), Some(0)));
}

#[test]
fn a_batch_says_how_many_places_it_has() {
    let mut bed = Bed::new();
    let (_, tasks) = bed.batch(batch((0..3).map(|_| task("a"))).parallelism(2));
    let gate = bed.closed_gate(tasks[2], "batch");
    assert_eq!((gate.current, gate.limit), (Some(2), Some(2)));
    bed.reconfigure(|config| config.inflight_max = 0);
    let again = bed.explain(tasks[2]);
    assert_eq!(again.closed().map(|gate| gate.kind).collect::<Vec<_>>(), ["batch", "global"]);
}

#[test]
fn the_place_in_the_queue_is_the_tasks_own_and_not_the_heads() {
    let mut bed = Bed::new().inflight(0).config(|config| config.window_max = 3);
    let ids = bed.submit_n(30, &task("a"));
    let front = bed.submit(task("a").rank(-1));
    let ahead = |bed: &mut Bed, id| bed.explain(id).ahead.unwrap().n;
    assert_eq!(ahead(&mut bed, front), 0);
    assert_eq!(ahead(&mut bed, ids[0]), 1);
    assert_eq!(ahead(&mut bed, ids[29]), 30);
}

#[test]
fn the_place_is_counted_to_a_thousand() {
    let mut bed = Bed::new().inflight(0);
    bed.batch(batch((0..1000).map(|_| task("a"))));
    let id = bed.submit(task("a"));
    let ahead = bed.explain(id).ahead.unwrap();
    assert_eq!((ahead.n, ahead.at_least), (1000, true));
}

#[test]
fn who_is_served_next_is_named() {
    let mut bed = Bed::new().inflight(1);
    bed.submit(task("x"));
    let low = bed.submit(task("a").tier(Tier::Low));
    let high = bed.submit(task("b").tier(Tier::High));
    assert_eq!(bed.explain(low).next, Some(high));
}

#[test]
fn a_slot_kept_for_a_preemptor_is_a_gate_with_a_reason() {
    let mut bed = Bed::new().inflight(1);
    bed.submit(task("a").tier(Tier::Low).preemptible());
    bed.submit(task("b").tier(Tier::Critical));
    let id = bed.submit(task("c"));
    assert!(bed.closed_gate(id, "global").detail.contains("kept for critical"));
}

#[test]
fn every_waiting_task_has_a_closed_gate() {
    let mut bed = Bed::new().inflight(2).config(|config| config.inflight_per_agent_max = Some(1));
    let ids = bed.submit_n(3, &task("a"));
    bed.submit(task("b"));
    let more = [bed.submit(task("c")), bed.submit(task("a").delay_ms(HOUR)), bed.submit(task("a").after(&ids))];
    for id in ids.into_iter().chain(more) {
        if bed.state(id).is_unstarted() {
            assert!(!bed.closed(id).is_empty(), "{:?}", bed.explain(id));
        }
    }
}

#[test]
fn a_held_or_ended_task_has_no_closed_gates() {
    let mut bed = Bed::new().inflight(1);
    let id = bed.submit(task("a"));
    let explanation = bed.explain(id);
    assert_eq!((explanation.phase, explanation.closed().count()), (Phase::Running, 0));
    bed.complete(id);
    let explanation = bed.explain(id);
    assert_eq!((explanation.phase, explanation.closed().count()), (Phase::Completed, 0));
}

#[test]
fn an_unknown_task_is_not_explained() {
    assert!(Bed::new().try_explain(TaskId(404)).is_none());
}
