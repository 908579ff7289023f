//! Limits: how much may start. tinyscheduler's "T-slots".

use crate::field::{Field, counts, n, sleeper, with};
use serde_json::{Value, json};

fn sleepers(agents: &[&str]) -> Vec<Value> {
    agents.iter().map(|agent| sleeper(agent)).collect()
}

/// tinyscheduler 1: 2 and none running leaves 2, 1 running leaves 1, more running than the limit leaves 0.
#[test]
fn what_runs_counts_against_the_limit_of_its_agent() {
    let field = Field::new("[agents.ada]\nmaxInflight = 2\n");
    field.submit(&sleepers(&["ada"; 6]));
    assert_eq!(counts(&field.tick(), ["started", "queued"]), [2, 4]);
    field.configure("[agents.ada]\nmaxInflight = 3\n");
    assert_eq!(counts(&field.tick(), ["adopted", "started", "queued"]), [2, 1, 3]);
    field.configure("[agents.ada]\nmaxInflight = 1\n");
    assert_eq!(counts(&field.tick(), ["adopted", "started", "queued"]), [3, 0, 3]);
    assert_eq!(field.leases().len(), 3, "a lowered limit stops nothing");
}

/// tinyscheduler 1, answered differently: an agent without a limit has none there, and no limit of its own here
/// (design 4).
#[test]
fn an_agent_without_a_limit_has_no_limit_of_its_own() {
    let field = Field::new("");
    field.submit(&sleepers(&["ada"; 5]));
    assert_eq!(counts(&field.tick(), ["started", "queued"]), [5, 0]);
}

/// tinyscheduler 2, answered differently: there a task of a pool goes to the agent with the most free slots. Here a task
/// has its agent from the beginning, and the agent with the fewest running tasks is served first (design 5).
#[test]
fn the_agent_that_runs_least_is_served_first() {
    let field = Field::new("[lanes]\nmain = 2\n");
    field.submit(&sleepers(&["ada"]));
    assert_eq!(n(&field.tick()["started"]), 1);
    field.submit(&sleepers(&["ada", "ada", "bob", "cleo"]));
    assert_eq!(counts(&field.tick(), ["started", "queued"]), [1, 3]);
    assert_eq!(field.agents(), ["ada", "bob"], "of two that run nothing, who came first");
    assert_eq!(n(&field.tick()["started"]), 0, "no room for anybody");
}

/// tinyscheduler 2: ties have a winner that is always the same.
#[test]
fn among_equals_the_same_one_always_wins() {
    let winners = (0..3).map(|_| {
        let field = Field::new("[lanes]\nmain = 1\n");
        field.submit(&sleepers(&["dora", "cleo", "bob", "ada"]));
        assert_eq!(n(&field.tick()["started"]), 1);
        field.agents()
    });
    let winners: Vec<_> = winners.collect();
    assert_eq!(winners, [["dora"], ["dora"], ["dora"]]);
}

/// tinyscheduler 3: one has room for 1 and one for 2; exactly 3 of many start.
#[test]
fn no_more_start_than_there_is_room_for_in_all() {
    let field = Field::new("[agents]\nada.maxInflight = 1\nbob.maxInflight = 2\n");
    field.submit(&sleepers(&["ada", "bob", "ada", "bob", "ada", "bob", "bob"]));
    assert_eq!(counts(&field.tick(), ["started", "queued"]), [3, 4]);
    assert_eq!(field.agents(), ["ada", "bob", "bob"]);
}

/// tinyscheduler 4: one runs 1 of 3, the other 0 of 2; of four that may start each gets two.
#[test]
fn what_may_start_is_shared_evenly() {
    let field = Field::new("[agents]\nada.maxInflight = 3\nbob.maxInflight = 2\n[lanes]\nmain = 5\n");
    field.submit(&sleepers(&["ada"]));
    assert_eq!(n(&field.tick()["started"]), 1);
    field.submit(&sleepers(&["ada", "ada", "ada", "ada", "bob", "bob", "bob", "bob"]));
    assert_eq!(n(&field.tick()["started"]), 4);
    assert_eq!(field.agents(), ["ada", "ada", "ada", "bob", "bob"]);
}

/// tinyscheduler 5: everybody is full, nothing starts. (There is no source to be asked: the store is the source.)
#[test]
fn nothing_starts_when_everybody_is_full() {
    let field = Field::new("[agents]\nada.maxInflight = 1\nbob.maxInflight = 1\n");
    field.submit(&sleepers(&["ada", "bob", "ada", "bob"]));
    assert_eq!(n(&field.tick()["started"]), 2);
    for _ in 0..2 {
        assert_eq!(counts(&field.tick(), ["started", "adopted", "queued"]), [0, 2, 2]);
    }
}

/// tinyscheduler 6: lanes do not share their room.
#[test]
fn a_full_lane_does_not_hold_another_one_up() {
    let field = Field::new("[lanes]\ndev = 1\nqa = 2\n");
    let lane = |lane: &str| with(sleeper("ada"), json!({"lane": lane}));
    let ids = field.submit(&[lane("dev"), lane("dev"), lane("qa"), lane("qa"), lane("qa")]);
    assert_eq!(n(&field.tick()["started"]), 3);
    assert_eq!(field.running(&ids), [0, 2, 3]);
}

/// tinyscheduler 7: tasks for anybody and a task for one of them all start. Here every task names its agent, and who
/// names none is the agent `default`.
#[test]
fn tasks_of_no_agent_in_particular_start_beside_those_of_one() {
    let field = Field::new("[lanes]\ndev = 3\n[agents.ada]\nmaxInflight = 1\n");
    let nobody = json!({"kind": "process", "lane": "dev", "payload": {"shell": "exec sleep 1000"}});
    field.submit(&[nobody.clone(), nobody, with(sleeper("ada"), json!({"lane": "dev"}))]);
    assert_eq!(counts(&field.tick(), ["started", "queued"]), [3, 0]);
    assert_eq!(field.agents(), ["ada", "default", "default"]);
}

/// tinyscheduler 8: an agent at 2 of 2 with three more gets none of them, and one each time one of its own ends.
#[test]
fn a_full_agent_gets_nothing_until_one_of_its_own_ends() {
    let field = Field::new("[agents.ada]\nmaxInflight = 2\n");
    let mut bodies = vec![field.until("ada", "go"), sleeper("ada")];
    bodies.extend(sleepers(&["ada"; 3]));
    let ids = field.submit(&bodies);
    assert_eq!(n(&field.tick()["started"]), 2);
    assert_eq!(n(&field.tick()["started"]), 0);
    field.let_end("go", &[&ids[0]]);
    assert_eq!(counts(&field.tick(), ["finished", "adopted", "started", "queued"]), [1, 1, 1, 2]);
    assert_eq!(field.running(&ids), [1, 2]);
}
