//! The line of a session: order, modes, cap and drop. `G4.n` is goclaw's list of cases.

use serde_json::{Value, json};

use crate::batches::peak;
use crate::chat::{Chat, said};
use crate::scene::{Scene, header, is, n, problem, text};

/// G4.6, G4.27: without a window each message is a run of its own; they run one at a time, in order, and all succeed.
#[test]
fn messages_of_a_session_run_one_at_a_time_in_order() {
    let scene = Scene::new();
    for mode in ["queue", "followup"] {
        let chat = Chat::with(&scene, mode, json!({"mode": mode}));
        let held = chat.hold();
        let ids: Vec<String> = ["one", "two", "three"].map(|message| chat.say(message)).into();
        assert!(ids.iter().all(|id| scene.state(id) == "waiting"), "{ids:?}");
        assert_eq!(chat.counts(), (1, 3, 0));
        chat.release(&held);
        assert_eq!(ids.iter().map(|id| chat.heard(id)).collect::<Vec<_>>(), ["one\n", "two\n", "three\n"]);
        assert_eq!(started(&scene, &ids, &ids[2]), [0, 1, 2]);
        let events = scene.events_until(|event| is(event, "task.completed", &ids[2]));
        assert_eq!(peak(&events, &mut |event| event["session"] == mode), 1);
        assert_eq!((chat.counts(), n(&chat.view()["messages"])), ((0, 0, 0), 4));
    }
}

/// G4.7: sessions do not wait for each other.
#[test]
fn two_sessions_run_at_the_same_time() {
    let scene = Scene::new();
    let (one, other) = (Chat::new(&scene, "one"), Chat::new(&scene, "other"));
    let (first, second) = (one.hold(), other.hold());
    assert_eq!((scene.state(&first), scene.state(&second)), ("running".into(), "running".into()));
}

/// Design 6: rank and tier do not reorder a line, also where they would reorder the lane.
#[test]
fn rank_and_tier_do_not_reorder_a_line() {
    let scene = Scene::new();
    let chat = Chat::new(&scene, "s");
    let held = chat.hold();
    let ids: Vec<String> = [("low", 9), ("normal", 5), ("critical", -5)]
        .map(|(tier, rank)| text(&chat.submit(json!({"kind": "noop", "priority": tier, "rank": rank}))["id"]))
        .into();
    chat.release(&held);
    assert_eq!(started(&scene, &ids, &ids[2]), [0, 1, 2]);
}

/// G4.8: at the cap the message that has waited longest makes room; that is recorded, as its end and as an event.
#[test]
fn the_oldest_is_dropped_when_the_line_is_full() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"cap": 2}));
    let held = chat.hold();
    let [one, two, three] = ["one", "two", "three"].map(|message| chat.say(message));
    let dropped = scene.ends_as("cancelled", &one);
    assert!(text(&dropped["reason"]).starts_with("dropped"), "{dropped:#}");
    assert_eq!(n(&dropped["attempts"]), 0);
    chat.release(&held);
    assert_eq!((chat.heard(&two), chat.heard(&three)), ("two\n".into(), "three\n".into()));
    let events = scene.events_until(|event| is(event, "task.cancelled", &one));
    let kinds: Vec<&str> = events
        .iter()
        .filter(|event| event["task"] == one.as_str())
        .filter_map(|event| event["type"].as_str())
        .collect();
    assert_eq!(kinds, ["task.created", "task.dropped", "task.cancelled"]);
}

/// G4.9: with drop `new` the one that comes is refused, with both numbers; the refusal is recorded without its payload.
#[test]
fn the_newest_is_refused_when_the_line_is_full() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"cap": 2, "drop": "new"}));
    let held = chat.hold();
    let ids = ["one", "two"].map(|message| chat.say(message));
    let answer = chat.send(said("three"));
    let refusal = problem(429, &answer);
    assert_eq!((refusal["code"].as_str(), n(&refusal["waiting"]), n(&refusal["cap"])), (Some("session_full"), 2, 2));
    assert!(header(&answer, "retry-after").is_some(), "{}", answer.head);
    let recorded = scene.task(&text(&refusal["taskId"]));
    assert_eq!((recorded["state"].as_str(), recorded.get("payload")), (Some("rejected"), None), "{recorded:#}");
    assert_eq!(recorded["session"], "s");
    chat.release(&held);
    assert_eq!(ids.map(|id| chat.heard(&id)), ["one\n", "two\n"]);
}

/// The issue: `summarize` hands one line for each dropped message to the next run.
#[test]
fn the_next_run_is_told_of_what_was_dropped() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"cap": 1, "drop": "summarize"}));
    let held = chat.hold();
    let long = format!("two {}\nmore", "x".repeat(300));
    let ids = ["one", &long, "three", "four"].map(|message| chat.say(message));
    for id in &ids[..3] {
        assert!(text(&scene.ends_as("cancelled", id)["reason"]).starts_with("dropped"));
    }
    chat.release(&held);
    let heard = chat.heard(&ids[3]);
    let lines: Vec<&str> = heard.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2], lines[3]), (4, "dropped: one", "dropped: three", "four"), "{heard}");
    assert!(lines[1].starts_with("dropped: two xxx") && lines[1].chars().count() <= "dropped: ".len() + 160, "{heard}");
    assert_eq!(chat.heard(&chat.say("five")), "five\n", "each is told once");
}

/// G4.3 of the facts: the cap counts those that wait, not the one that runs and not the one that could run at once.
#[test]
fn the_cap_counts_who_waits() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"cap": 1, "drop": "new"}));
    let held = chat.hold();
    let waiting = chat.say("waits");
    problem(429, &chat.send(said("too many")));
    chat.release(&held);
    assert_eq!(chat.heard(&waiting), "waits\n");
}

/// G4.10: an interrupt stops what runs and drops what waits; each of them says so.
#[test]
fn an_interrupt_stops_what_runs_and_drops_what_waits() {
    let scene = Scene::new();
    let chat = Chat::new(&scene, "s");
    let held = chat.hold();
    let waiting = chat.say("never mind");
    let newest = text(
        &chat.submit(json!({"kind": "process", "payload": {"argv": ["cat"], "message": "instead"},
        "session": {"key": "s", "mode": "interrupt"}}))["id"],
    );
    assert_eq!(chat.heard(&newest), "instead\n");
    for id in [&held, &waiting] {
        assert_eq!(scene.ends_as("cancelled", id)["reason"], "interrupted by a newer message");
    }
    let events = scene.events_until(|event| is(event, "task.completed", &newest));
    assert!(events.iter().any(|event| is(event, "task.dropped", &waiting)), "{events:#?}");
    assert_eq!(chat.view()["settings"]["mode"], "interrupt", "it sticks");
}

/// The issue: the new run starts only when the old one is confirmed dead: a process that takes its time to end has
/// written its last word before the next one writes its first.
#[test]
fn an_interrupt_never_overlaps() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"mode": "interrupt"}));
    let stamps = scene.home().join("stamps");
    let shell = |name: &str| {
        let file = stamps.display();
        let line = format!(
            "trap 'sleep 0.3; echo {name} ends >> {file}; exit 0' TERM; echo {name} begins >> {file}; \
             while :; do sleep 0.02; done"
        );
        json!({"kind": "process", "payload": {"shell": line}})
    };
    let ids = ["first", "second", "third"].map(|name| {
        let id = text(&chat.submit(shell(name))["id"]);
        let begins = format!("{name} begins");
        crate::support::wait_until(crate::scene::SOON, &begins, || {
            std::fs::read_to_string(&stamps).unwrap_or_default().contains(&begins)
        });
        id
    });
    chat.act("stop");
    ids.iter().for_each(|id| drop(scene.ends_as("cancelled", id)));
    let written = std::fs::read_to_string(&stamps).unwrap();
    let expected = ["first", "second", "third"].map(|name| format!("{name} begins\n{name} ends\n")).concat();
    assert_eq!(written, expected);
    let events = scene.events_until(|event| is(event, "task.cancelled", &ids[2]));
    assert_eq!(peak(&events, &mut |event| event["session"] == "s"), 1);
}

/// The issue: mode `reject` refuses while the session is busy, and records it; an idle session takes the message.
#[test]
fn a_busy_session_may_reject() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"mode": "reject"}));
    let held = chat.hold();
    let refusal = problem(409, &chat.send(said("now?")));
    assert_eq!((refusal["code"].as_str(), refusal["session"].as_str()), (Some("session_busy"), Some("s")));
    assert_eq!(scene.state(&text(&refusal["taskId"])), "rejected");
    chat.release(&held);
    assert_eq!(chat.heard(&chat.say("now")), "now\n");
}

/// Design 6: a task joins when its dependencies and its delay are over, and nobody waits for one that has not joined.
#[test]
fn a_task_joins_when_its_dependencies_are_over() {
    let scene = Scene::new();
    let chat = Chat::new(&scene, "s");
    let parent = scene.blocker();
    let later = text(&chat.submit(json!({"kind": "noop", "dependsOn": [parent]}))["id"]);
    assert_eq!(chat.heard(&chat.say("first")), "first\n");
    assert_eq!(scene.state(&later), "waiting");
    scene.cancel(&parent);
    assert_eq!(scene.end(&later)["state"], "cancelled", "its parent ended badly");
    assert_eq!(chat.heard(&chat.say("next")), "next\n");
}

/// The issue: a retrying head keeps its successors waiting, a cancelled head lets the next go.
#[test]
fn a_retrying_head_keeps_its_successors_waiting_and_a_cancelled_one_lets_them_go() {
    let scene = Scene::new();
    let chat = Chat::new(&scene, "s");
    let failing = json!({"kind": "noop", "payload": {"fail": "task"},
        "retry": {"maxRetries": 5, "backoffMs": 600_000, "maxBackoffMs": 600_000}});
    let head = text(&chat.submit(failing)["id"]);
    let next = chat.say("next");
    scene.until_state(&head, "scheduled");
    assert_eq!(scene.state(&next), "waiting");
    let explained = scene.get(&format!("/v1/tasks/{next}/explain"));
    let gate = &explained["gates"][0];
    assert_eq!(
        (gate["kind"].as_str(), gate["name"].as_str(), &gate["open"]),
        (Some("session"), Some("s"), &json!(false))
    );
    assert_eq!((n(&gate["current"]), n(&gate["limit"])), (1, 1), "{explained:#}");
    scene.cancel(&head);
    assert_eq!(chat.heard(&next), "next\n");
}

/// The issue: order holds through the preemption of the head.
#[test]
fn a_preempted_head_keeps_its_place() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let chat = Chat::new(&scene, "s");
    let head = text(&chat.submit(json!({"kind": "noop", "priority": "low", "payload": {"sleepMs": 500}}))["id"]);
    scene.until_state(&head, "running");
    let next = text(&chat.submit(json!({"kind": "noop", "priority": "high"}))["id"]);
    let critical = scene.submit(json!({"kind": "noop", "priority": "critical"}));
    scene.ends_as("completed", &critical);
    scene.ends_as("completed", &next);
    let events = scene.events_until(|event| is(event, "task.completed", &next));
    assert!(events.iter().any(|event| is(event, "task.preempted", &head)), "{events:#?}");
    let place = |kind: &str, id: &str| events.iter().position(|event| is(event, kind, id)).unwrap();
    assert!(place("task.completed", &head) < place("task.started", &next), "{events:#?}");
}

/// The issue: order holds across `kill -9`, also for those that wait.
#[test]
fn the_order_survives_kill_9() {
    let mut scene = Scene::new();
    let file = scene.home().join("order");
    let note = |word: &str| {
        let line = format!("echo {word} >> {}; sleep 0.05", file.display());
        json!({"kind": "process", "payload": {"shell": line}, "retry": {"backoffMs": 1}})
    };
    let gate = scene.home().join("gate");
    let first = format!("while [ ! -e {} ]; do sleep 0.02; done; echo first >> {}", gate.display(), file.display());
    let chat = Chat::new(&scene, "s");
    let head = text(&chat.submit(json!({"kind": "process", "payload": {"shell": first}}))["id"]);
    scene.until_state(&head, "running");
    let ids = ["second", "third", "fourth"].map(|word| text(&chat.submit(note(word))["id"]));
    for _ in 0..2 {
        scene.server_mut().kill9();
        scene.start_again();
        assert!(ids.iter().all(|id| scene.state(id) == "waiting"));
    }
    std::fs::write(gate, "").unwrap();
    ids.iter().for_each(|id| drop(scene.ends_as("completed", id)));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "first\nsecond\nthird\nfourth\n");
}

/// G4.19, the issue: a task runs with its own lane and agent, even if the session began in another; a full lane holds
/// only those of it.
#[test]
fn each_task_runs_in_its_own_lane_and_for_its_own_agent() {
    let scene = Scene::with("[lanes]\nmain = 30\nteam = 1\n");
    let chat = Chat::new(&scene, "s");
    let elsewhere = scene.submit(json!({"kind": "noop", "lane": "team", "payload": {"sleepMs": 600_000}}));
    scene.until_state(&elsewhere, "running");
    let task = |agent: &str, lane: &str| {
        let shell = "echo $RUNYARD_AGENT $RUNYARD_SESSION";
        let task = json!({"kind": "process", "agent": agent, "lane": lane, "payload": {"shell": shell}});
        text(&chat.submit(task)["id"])
    };
    let (first, second, third) = (task("alice", "main"), task("bob", "team"), task("carol", "main"));
    assert_eq!(chat.heard(&first), "alice s\n");
    scene.until_state(&second, "queued");
    let explained = scene.get(&format!("/v1/tasks/{second}/explain"));
    let closed = explained["gates"].as_array().unwrap().iter().find(|gate| gate["open"] == false).unwrap();
    assert_eq!((closed["kind"].as_str(), closed["name"].as_str()), (Some("lane"), Some("team")));
    assert_eq!(scene.state(&third), "waiting", "nobody passes the head, whatever its lane does");
    scene.cancel(&elsewhere);
    assert_eq!((chat.heard(&second), chat.heard(&third)), ("bob s\n".into(), "carol s\n".into()));
    assert_eq!(scene.task(&second)["lane"], "team");
}

/// The order in which these tasks started, as places in the list.
fn started(scene: &Scene, ids: &[String], last: &str) -> Vec<usize> {
    let events: Vec<Value> = scene.events_until(|event| is(event, "task.completed", last));
    let started = events.iter().filter(|event| event["type"] == "task.started");
    started.filter_map(|event| ids.iter().position(|id| event["task"] == id.as_str())).collect()
}
