//! What waits for other tasks, and who goes first. tinyscheduler's "T-blocking".

use serde_json::{Value, json};

use crate::field::{Field, counts, n, sleeper, text, with};

impl Field {
    /// Submits each in turn; `#0`, `#1` in `dependsOn` stand for the ids of those before.
    fn submit_chain(&self, bodies: &[Value]) -> Vec<String> {
        let mut server = self.idle_server();
        let mut ids: Vec<String> = Vec::new();
        for body in bodies {
            let named = (0..ids.len())
                .rev()
                .fold(body.to_string(), |body, place| body.replace(&format!("#{place}"), &ids[place]));
            ids.push(server.submit(&named));
        }
        assert!(server.terminate().success());
        ids
    }

    /// With one slot: the order in which they run, each ended by hand.
    fn order(&self, ids: &[String]) -> Vec<usize> {
        let mut order = Vec::new();
        for turn in 0..ids.len() {
            let summary = self.tick();
            assert_eq!(counts(&summary, ["finished", "started"]), [u64::from(turn > 0), 1], "{summary:#}");
            let running = self.running(ids);
            order.extend(&running);
            self.let_end(&format!("go-{}", running[0]), &[&ids[running[0]]]);
        }
        order
    }
}

fn after(place: usize) -> Value {
    with(sleeper("ada"), json!({"dependsOn": [format!("#{place}")]}))
}

const ONE_SLOT: &str = "[lanes]\nmain = 1\n";

/// tinyscheduler 15: of 1, 2 (after 1) and 3 the first and the last start; one is blocked, until what it waits for ends.
#[test]
fn a_task_that_waits_for_another_is_blocked_and_the_others_start() {
    let field = Field::new("");
    let ids = field.submit_chain(&[field.until("ada", "go"), after(0), sleeper("ada")]);
    assert_eq!(counts(&field.tick(), ["started", "blocked"]), [2, 1]);
    assert_eq!(field.running(&ids), [0, 2]);
    assert_eq!(counts(&field.tick(), ["started", "blocked"]), [0, 1]);
    field.let_end("go", &[&ids[0]]);
    assert_eq!(counts(&field.tick(), ["finished", "started", "blocked"]), [1, 1, 0]);
    assert_eq!(field.running(&ids), [1, 2]);
}

/// tinyscheduler 16, answered differently: there who holds others up goes before a higher priority. Here the order is
/// tier, then rank, then who came first (design 5): whoever knows that others wait for a task says so with its priority.
#[test]
fn a_higher_priority_goes_before_a_task_that_others_wait_for() {
    let field = Field::new(ONE_SLOT);
    let ids = field.submit_chain(&[sleeper("ada"), after(0), with(sleeper("ada"), json!({"priority": "high"}))]);
    assert_eq!(counts(&field.tick(), ["started", "blocked", "queued"]), [1, 1, 1]);
    assert_eq!(field.running(&ids), [2]);
}

/// tinyscheduler 17: by priority, then by rank, then by age; how many wait for a task plays no part (see 16).
#[test]
fn priority_then_rank_then_age_decide() {
    let field = Field::new(ONE_SLOT);
    let named = |place: usize, more: Value| with(field.until("ada", &format!("go-{place}")), more);
    let ids = field.submit(&[
        named(0, json!({"rank": 5})),
        named(1, json!({})),
        named(2, json!({})),
        named(3, json!({"rank": -1})),
        named(4, json!({"priority": "high", "rank": 9})),
    ]);
    assert_eq!(field.order(&ids), [4, 3, 1, 2, 0]);
}

/// tinyscheduler 18: what has ended holds nobody up; an id is the same in whatever way it is written. What nobody knows is
/// waited for (design 15).
#[test]
fn only_what_has_not_ended_well_holds_a_task_up() {
    let field = Field::new("");
    let parent = field.submit(&[field.until("ada", "go")]);
    field.tick();
    field.let_end("go", &[&parent[0]]);
    assert_eq!(n(&field.tick()["finished"]), 1);
    let on = |id: &str| with(sleeper("ada"), json!({"dependsOn": [id]}));
    let unknown = "01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11";
    let ids = field.submit(&[on(&parent[0]), on(&parent[0].to_uppercase()), on(unknown)]);
    assert_eq!(counts(&field.tick(), ["started", "blocked"]), [2, 1]);
    assert_eq!(field.running(&ids), [0, 1]);
    let task = field.task(&ids[2]);
    assert_eq!((&task["state"], text(&task["dependsOn"][0])), (&json!("waiting"), unknown.to_owned()));
}

/// tinyscheduler 19, answered differently: there is no switch that turns dependencies off. Who wants none names none, or
/// runs whatever became of the others (`onDependencyFailure`); then the order of the submits counts.
#[test]
fn tasks_that_wait_for_nothing_start_in_the_order_they_came() {
    let field = Field::new(ONE_SLOT);
    let ids = field.submit(&[0, 1, 2].map(|place| field.until("ada", &format!("go-{place}"))));
    assert_eq!(field.order(&ids), [0, 1, 2]);
}

/// tinyscheduler 20: a task that says nothing of priority or dependencies is an ordinary one, and can run.
#[test]
fn a_task_that_says_nothing_is_runnable_and_ordinary() {
    let field = Field::new("");
    let ids = field.submit(&[json!({"kind": "process", "payload": {"shell": "exec sleep 1000"}})]);
    let task = field.task(&ids[0]);
    assert_eq!((&task["state"], &task["priority"], &task["rank"]), (&json!("queued"), &json!("normal"), &json!(0)));
    assert_eq!(counts(&field.tick(), ["started", "blocked"]), [1, 0]);
}

/// tinyscheduler 21: a blocked task takes no room from those behind it, however urgent it is.
#[test]
fn a_blocked_task_at_the_head_does_not_hold_the_next_one_up() {
    let field = Field::new(ONE_SLOT);
    let ids = field.submit_chain(&[
        with(sleeper("ada"), json!({"delayMs": 600_000})),
        with(after(0), json!({"priority": "critical"})),
        with(sleeper("ada"), json!({"priority": "low"})),
    ]);
    assert_eq!(counts(&field.tick(), ["started", "blocked", "scheduled"]), [1, 1, 1]);
    assert_eq!(field.running(&ids), [2]);
}
