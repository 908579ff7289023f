//! Reading tasks, waiting for them, changing them, submitting them again, asking why they wait.

use serde_json::json;

use crate::scene::{SOON, Scene, from_now, header, ms, n, problem, text};
use crate::support::wait_until;

/// A4.31: an id nobody knows is 404. A4.30: a known one shows what was submitted.
#[test]
fn a_known_id_shows_the_task_and_an_unknown_one_is_404() {
    let scene = Scene::new();
    let id = scene.submit(json!({"kind": "noop", "agent": "a", "name": "first", "tags": ["x"]}));
    let task = scene.end(&id);
    assert_eq!((text(&task["id"]), task["agent"].as_str(), task["name"].as_str()), (id, Some("a"), Some("first")));
    problem(404, &scene.request("GET", "/v1/tasks/01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11", ""));
}

/// A4.32–A4.34, B4.15: lists are newest first and filter by agent, states, lane, kind, tier, batch and time.
#[test]
fn lists_are_newest_first_and_filtered() {
    let scene = Scene::new();
    let first = scene.submit(json!({"kind": "noop", "agent": "a"}));
    let second = scene.submit(json!({"kind": "noop", "agent": "b", "priority": "high"}));
    let failed = json!({"kind": "noop", "agent": "b", "lane": "cron", "payload": {"fail": "permanent"}});
    let third = scene.submit(failed);
    let (batch, members) = scene.batch(json!({"tasks": [{"kind": "noop", "agent": "c"}]}));
    for id in [&first, &second, &third, &members[0]] {
        scene.end(id);
    }
    let all = scene.ids("/v1/tasks");
    assert_eq!(all, [&members[0], &third, &second, &first].map(String::clone));
    let ids = |query: &str| scene.ids(&format!("/v1/tasks?{query}"));
    assert_eq!(ids("agent=b"), [third.clone(), second.clone()]);
    assert_eq!(ids("state=completed").len(), 3);
    assert_eq!(ids("state=completed,%20failed").len(), 4);
    assert_eq!(ids("agent=b&state=completed"), [second.as_str()]);
    assert_eq!(ids("priority=high"), [second.as_str()]);
    assert_eq!(ids("lane=cron"), [third]);
    assert_eq!(ids(&format!("batch={batch}")), members);
    assert_eq!(ids("kind=http"), Vec::<String>::new());
    let created = text(&scene.task(&second)["createdAt"]);
    assert!(!ids(&format!("createdBefore={created}")).contains(&members[0]));
    assert_eq!(ids(&format!("createdAfter={}", from_now(60_000))), Vec::<String>::new());
}

/// B4.15, B4.16: pages follow a cursor without gap or repeat, also while tasks arrive; a limit of 0 or 1001 is refused.
#[test]
fn pages_follow_a_cursor_without_gap_or_repeat() {
    let scene = Scene::new();
    let (_, ids) = scene.batch(json!({"defaults": {"kind": "noop"}, "tasks": vec![json!({}); 25]}));
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = scene.get(&format!("/v1/tasks?limit=10{cursor}"));
        seen.extend(page["items"].as_array().unwrap().iter().map(|task| text(&task["id"])));
        scene.noop(json!({}));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ids.into_iter().rev().collect::<Vec<_>>());
    for limit in ["0", "1001", "-1", "many"] {
        let refusal = problem(400, &scene.request("GET", &format!("/v1/tasks?limit={limit}"), ""));
        assert_eq!(refusal["field"], "limit");
    }
}

/// The issue: `wait` answers at the end, or says that the time was up.
#[test]
fn wait_answers_at_the_end_or_says_that_it_did_not_come() {
    let scene = Scene::new();
    let blocker = scene.blocker();
    let early = scene.request("GET", &format!("/v1/tasks/{blocker}/wait?timeoutMs=20"), "");
    assert_eq!((early.status, early.json()["state"].as_str()), (200, Some("running")));
    assert_eq!(header(&early, "wait-timed-out").as_deref(), Some("true"));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| scene.request("GET", &format!("/v1/tasks/{blocker}/wait"), ""));
        scene.cancel(&blocker);
        let answer = waiting.join().unwrap();
        assert_eq!(answer.json()["state"], "cancelled");
        assert_eq!(header(&answer, "wait-timed-out"), None);
    });
}

/// B4.40 as design 7 has it: retry of an ended task submits a copy (201) and leaves the old one; of a live one it is
/// 409, of an unknown one 404.
#[test]
fn retry_copies_an_ended_task_and_refuses_a_live_one() {
    let scene = Scene::new();
    let old = scene.submit(json!({"kind": "noop", "agent": "a", "rank": 7, "timeoutMs": 5000, "metadata": {"k": 1},
        "payload": {"fail": "permanent", "result": {"seen": true}}}));
    let ended = scene.ends_as("failed", &old);
    let copy = scene.expect(201, "POST", &format!("/v1/tasks/{old}/retry"), json!({}));
    let new = text(&copy["id"]);
    assert_ne!(new, old);
    assert_eq!(copy["retryOf"], old.as_str());
    for field in ["kind", "agent", "rank", "timeoutMs", "metadata", "payload", "retry"] {
        assert_eq!(copy[field], ended[field], "{field}");
    }
    scene.ends_as("failed", &new);
    assert_eq!(scene.task(&old), ended, "the old one stays as it ended");
    for end in ["completed", "cancelled"] {
        let id = if end == "completed" { scene.noop(json!({})) } else { scene.blocker() };
        if end == "cancelled" {
            scene.cancel(&id);
        }
        scene.ends_as(end, &id);
        assert_eq!(scene.post(&format!("/v1/tasks/{id}/retry"), "").status, 201);
    }
    let live = scene.noop(json!({"sleepMs": 600_000}));
    let refusal = problem(409, &scene.post(&format!("/v1/tasks/{live}/retry"), ""));
    assert_eq!(refusal["code"], "still_live");
}

/// The issue: priority, rank, deadline and runAt can be changed until the task starts, and not afterwards.
#[test]
fn a_task_can_be_changed_until_it_starts() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let blocker = scene.blocker();
    let (later, sooner) = (scene.noop(json!({})), scene.noop(json!({})));
    let deadline = from_now(600_000);
    let change = json!({"priority": "critical", "rank": -5, "deadline": deadline});
    let changed = scene.expect(200, "PATCH", &format!("/v1/tasks/{sooner}"), change);
    assert_eq!((changed["priority"].as_str(), changed["rank"].as_i64()), (Some("critical"), Some(-5)));
    assert_eq!(ms(&changed["deadline"]), ms(&json!(deadline)));
    let refusal = scene.problem(409, "PATCH", &format!("/v1/tasks/{blocker}"), json!({"rank": 1}));
    assert_eq!(refusal["code"], "already_started");
    scene.cancel(&blocker);
    let (sooner, later) = (scene.end(&sooner), scene.end(&later));
    assert!(ms(&sooner["startedAt"]) <= ms(&later["startedAt"]), "{sooner:#}\n{later:#}");
    let refusal = scene.problem(409, "PATCH", &format!("/v1/tasks/{}", text(&later["id"])), json!({"rank": 1}));
    assert_eq!(refusal["code"], "already_terminal");
    let refusal = scene.problem(400, "PATCH", &format!("/v1/tasks/{blocker}"), json!({"agent": "b"}));
    assert_eq!(refusal["field"], "agent");
}

/// Design 3: `delayMs` and `runAt` are stored states with a time, and hold until it; a changed runAt counts.
#[test]
fn a_delayed_task_is_scheduled_until_its_time() {
    let scene = Scene::new();
    let delayed = scene.submit(json!({"kind": "noop", "delayMs": 150}));
    let far = scene.submit(json!({"kind": "noop", "runAt": from_now(600_000)}));
    assert_eq!(scene.state(&far), "scheduled");
    let task = scene.ends_as("completed", &delayed);
    assert!(ms(&task["startedAt"]) - ms(&task["createdAt"]) >= 150, "{task:#}");
    assert_eq!(scene.state(&far), "scheduled");
    scene.expect(200, "PATCH", &format!("/v1/tasks/{far}"), json!({"runAt": from_now(0)}));
    scene.ends_as("completed", &far);
}

/// A4.20, A3 "deadline" as design 15 has it: a queued task fails at its deadline, at once and not at some scan; a later
/// deadline stays; the failure counts as expired.
#[test]
fn a_queued_task_fails_at_its_deadline() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    scene.blocker();
    let expiring = scene.submit(json!({"kind": "noop", "deadline": from_now(1000)}));
    let future = scene.submit(json!({"kind": "noop", "deadline": from_now(600_000)}));
    let task = scene.ends_as("failed", &expiring);
    assert_eq!(task["error"]["class"], "deadline");
    assert_eq!(n(&task["attempts"]), 0);
    let late_ms = ms(&task["finishedAt"]) - ms(&task["deadline"]);
    assert!((0..2000).contains(&late_ms), "{late_ms} ms late");
    assert_eq!(scene.state(&future), "queued");
    let metrics = &scene.stats()["metrics"];
    assert_eq!((n(&metrics["expired"]), n(&metrics["failed"])), (1, 1));
}

/// Design 3: a running task past its deadline is stopped and fails, without a retry.
#[test]
fn a_running_task_is_stopped_at_its_deadline() {
    let scene = Scene::new();
    let id = scene.submit(json!({"kind": "noop", "payload": {"sleepMs": 600_000}, "deadline": from_now(1000)}));
    let task = scene.ends_as("failed", &id);
    assert_eq!((task["error"]["class"].as_str(), n(&task["attempts"])), (Some("deadline"), 1));
}

/// Design 14: explain names each closed gate with its numbers and holders, and the place in line.
#[test]
fn explain_names_the_closed_gate_its_holder_and_the_place_in_line() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let blocker = scene.blocker();
    let (ahead, behind) = (scene.noop(json!({})), scene.noop(json!({})));
    let explained = scene.get(&format!("/v1/tasks/{behind}/explain"));
    let gates = explained["gates"].as_array().unwrap();
    let closed: Vec<_> = gates.iter().filter(|gate| gate["open"] == false).collect();
    assert_eq!(closed.len(), 1, "{explained:#}");
    assert_eq!((closed[0]["kind"].as_str(), closed[0]["name"].as_str()), (Some("lane"), Some("main")));
    assert_eq!((n(&closed[0]["current"]), n(&closed[0]["limit"])), (1, 1));
    assert_eq!(closed[0]["holders"], json!([blocker]));
    assert_eq!(n(&explained["place"]["ahead"]), 1);
    assert_eq!(explained["place"]["nextServed"], ahead.as_str());
    assert!(text(&explained["summary"]).contains("lane `main`"), "{explained:#}");
    let running = scene.get(&format!("/v1/tasks/{blocker}/explain"));
    assert_eq!(running["state"], "running");
    scene.cancel(&blocker);
    scene.end(&behind);
    assert!(text(&scene.get(&format!("/v1/tasks/{behind}/explain"))["summary"]).contains("completed"));
}

/// Design 8: a kind that no worker offers waits, and explain says so.
#[test]
fn a_kind_that_nobody_offers_waits_and_says_so() {
    let scene = Scene::new();
    let id = scene.submit(json!({"kind": "dream"}));
    let explained = scene.get(&format!("/v1/tasks/{id}/explain"));
    let gate = explained["gates"].as_array().unwrap().iter().find(|gate| gate["kind"] == "worker").unwrap();
    assert_eq!(gate["open"], false, "{explained:#}");
    assert!(text(&gate["detail"]).contains("no worker offers"), "{explained:#}");
}

/// Design 3: a lane that is not configured falls back to main, and the task says so.
#[test]
fn an_unknown_lane_falls_back_to_main_and_says_so() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let blocker = scene.blocker();
    let id = scene.submit(json!({"kind": "noop", "lane": "nowhere"}));
    let task = scene.task(&id);
    assert_eq!((task["lane"].as_str(), task["laneInForce"].as_str()), (Some("nowhere"), Some("main")));
    assert!(text(&task["reason"]).contains("nowhere"), "{task:#}");
    assert_eq!(task["state"], "queued", "main is full");
    scene.cancel(&blocker);
    scene.ends_as("completed", &id);
}

/// The issue: a task's own history has its steps in order, and outlives a restart.
#[test]
fn a_task_keeps_its_own_history() {
    let mut scene = Scene::new();
    let id =
        scene.submit(json!({"kind": "noop", "payload": {"fail": "task"}, "retry": {"maxRetries": 1, "backoffMs": 1}}));
    scene.ends_as("failed", &id);
    let steps = scene.steps(&id);
    assert_eq!((steps.first().unwrap().as_str(), steps.last().unwrap().as_str()), ("created", "failed"));
    let of = |name: &str| steps.iter().filter(|step| *step == name).count();
    assert_eq!((of("assigned"), of("retrying"), of("failed")), (2, 1, 1), "{steps:?}");
    scene.restart();
    assert_eq!(scene.steps(&id), steps);
    wait_until(SOON, "the task is read after a restart", || scene.state(&id) == "failed");
}
