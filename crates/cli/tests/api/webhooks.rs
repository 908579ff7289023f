//! Webhooks: who is told of what, signed how, and what becomes of what nobody takes.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::scene::{Asked, Peer, Reply, SOON, Scene, n, text};
use crate::signatures::{verdicts, verify_with_packages};
use crate::support::wait_until;

/// Receivers of these tests are on loopback.
pub const LOCAL: &str = "[outbound]\nallow = [\"127.0.0.1\"]\n";

pub fn taken(_: usize) -> Reply {
    Reply::json(json!({}))
}

fn body(asked: &Asked) -> Value {
    serde_json::from_str(&asked.body).unwrap()
}

impl Scene {
    pub fn deliveries(&self, query: &str) -> Vec<Value> {
        self.get(&format!("/v1/webhooks/deliveries?{query}"))["items"].as_array().unwrap().clone()
    }

    pub fn until_deliveries(&self, what: &str, n: usize, query: &str) -> Vec<Value> {
        wait_until(SOON, what, || self.deliveries(query).len() == n);
        self.deliveries(query)
    }
}

pub fn until_asked(peer: &Peer, n: usize) -> Vec<Asked> {
    wait_until(SOON, &format!("{n} messages"), || peer.asked().len() >= n);
    peer.asked()
}

#[test]
fn the_end_of_a_task_is_told_to_whoever_submitted_it() {
    let scene = Scene::with(LOCAL);
    let peer = Peer::start(taken);
    let canary = "canary-7f3a";
    let id = scene.submit(json!({
        "kind": "noop", "payload": {"result": {"answer": 42}, "message": canary}, "callbackUrl": peer.url(), "tags": ["t"],
    }));
    let asked = until_asked(&peer, 1).remove(0);
    assert!(asked.head.starts_with("POST / HTTP/1.1"), "{}", asked.head);
    let message = body(&asked);
    assert_eq!((&message["type"], &message["data"]["id"]), (&json!("task.completed"), &json!(id)));
    assert_eq!((&message["data"]["state"], &message["data"]["tags"]), (&json!("completed"), &json!(["t"])));
    assert_eq!(message["data"]["finishedAt"], message["timestamp"]);
    assert!(!asked.body.contains(canary) && message["data"].get("callbackUrl").is_none(), "{message:#}");
    let delivery = scene.until_deliveries("it is delivered", 1, "state=delivered").remove(0);
    assert_eq!((&delivery["task"], &delivery["tries"]), (&json!(id), &json!(1)));
    assert_eq!(asked.header("webhook-id"), Some(text(&delivery["messageId"])));
    assert_eq!(delivery["log"][0]["status"], 200);
    assert!(delivery.get("target").is_none() && delivery.get("webhook").is_none(), "{delivery:#}");
    let shown = scene.get(&format!("/v1/webhooks/deliveries/{}", delivery["id"]));
    assert_eq!(format!("{}/", text(&shown["target"])), peer.url());
    assert_eq!(scene.task(&id)["callbackUrl"], json!(peer.url()));
}

#[test]
fn every_end_is_told_and_every_message_once() {
    let scene = Scene::with(LOCAL);
    let peer = Peer::start(taken);
    let url = peer.url();
    scene.submit(json!({"kind": "noop", "callbackUrl": url}));
    scene.submit(json!({"kind": "noop", "payload": {"fail": "permanent"}, "callbackUrl": url}));
    let slow = scene.submit(json!({"kind": "noop", "payload": {"sleepMs": 600_000}, "callbackUrl": url}));
    scene.until_state(&slow, "running");
    scene.cancel(&slow);
    let (batch, _) = scene.batch(json!({"callbackUrl": url, "tasks": [{"kind": "noop"}, {"kind": "noop"}]}));
    scene.until_deliveries("all are delivered", 4, "state=delivered");
    let mut types: Vec<String> = peer.asked().iter().map(|asked| text(&body(asked)["type"])).collect();
    types.sort();
    assert_eq!(types, ["batch.finished", "task.cancelled", "task.completed", "task.failed"]);
    let finished = scene.deliveries(&format!("batch={batch}")).remove(0);
    assert_eq!(finished["event"], "batch.finished");
    let message = peer.asked().iter().map(body).find(|message| message["type"] == "batch.finished").unwrap();
    assert_eq!((&message["data"]["id"], n(&message["data"]["counts"]["completed"])), (&json!(batch), 2));
}

#[test]
fn everyone_whose_message_was_merged_is_called_back() {
    let scene = Scene::with(LOCAL);
    let (first, second) = (Peer::start(taken), Peer::start(taken));
    let say = |text: &str, url: Option<String>| {
        scene.submit(json!({
            "kind": "noop", "payload": {"message": text}, "session": {"key": "chat", "debounceMs": 300},
            "callbackUrl": url,
        }))
    };
    let id = say("one", None);
    for (text, peer) in [("two", &first), ("three", &second), ("four", &first)] {
        assert_eq!(say(text, Some(peer.url())), id);
    }
    let delivered = scene.until_deliveries("both are called", 2, "state=delivered");
    assert_eq!((first.asked().len(), second.asked().len()), (1, 1), "one call for each place");
    let mut merged: Vec<u64> = delivered.iter().map(|delivery| n(&delivery["mergedMessage"])).collect();
    merged.sort();
    assert_eq!(merged, [1, 2]);
    assert_eq!(body(&second.asked()[0])["data"]["id"], json!(id));
}

#[test]
fn a_subscription_is_told_of_what_it_asked_for_with_its_own_secret() {
    let peer = Peer::start(taken);
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let scene = Scene::with(LOCAL);
    let hook =
        json!({"url": peer.url(), "events": ["task.started", "task.completed"], "agents": ["ada"], "secret": secret});
    let shown = scene.expect(200, "PATCH", "/v1/config", json!({"webhooks": {"audit": hook}}));
    assert_eq!(shown["values"]["webhooks"]["audit"]["secret"], "***");
    assert!(!scene.get("/v1/config").to_string().contains(secret));
    scene.submit(json!({"kind": "noop", "agent": "bob"}));
    let id = scene.submit(json!({"kind": "noop", "agent": "ada", "payload": {"sleepMs": 20}}));
    let asked = until_asked(&peer, 2);
    let types: Vec<String> = asked.iter().map(|asked| text(&body(asked)["type"])).collect();
    assert!(types.contains(&"task.started".to_owned()) && types.contains(&"task.completed".to_owned()), "{types:?}");
    let started = asked.iter().map(body).find(|message| message["type"] == "task.started").unwrap();
    assert_eq!((&started["data"]["task"], &started["data"]["agent"]), (&json!(id), &json!("ada")));
    verify_with_packages(&asked[0], secret);
    let servers = text(&scene.get("/v1/webhooks/secret")["secrets"][0]["secret"]);
    assert!(verdicts(&asked[0], &servers).iter().all(|(is_valid, _)| !is_valid), "it has a secret of its own");
    let delivered = scene.until_deliveries("both", 2, "state=delivered&webhook=audit");
    assert!(delivered.iter().all(|delivery| delivery["webhook"] == "audit"));
    // A subscription that is taken back is told of nothing more.
    scene.expect(200, "PATCH", "/v1/config", json!({"webhooks": null}));
    scene.end(&scene.submit(json!({"kind": "noop", "agent": "ada"})));
    assert_eq!(scene.deliveries("").len(), 2);
}

#[test]
fn what_is_refused_is_tried_again_with_the_same_id_and_a_new_signature_time() {
    let scene = Scene::with(LOCAL);
    // Retry-After is honoured: the schedule's own first wait would be five seconds.
    let peer = Peer::start(|n| match n {
        0 => Reply::With(503, "retry-after: 1\r\n", String::new()),
        _ => Reply::json(json!({})),
    });
    scene.submit(json!({"kind": "noop", "callbackUrl": peer.url()}));
    let asked = until_asked(&peer, 2);
    assert_eq!(asked[0].header("webhook-id"), asked[1].header("webhook-id"));
    assert_ne!(asked[0].header("webhook-timestamp"), asked[1].header("webhook-timestamp"));
    assert_eq!(asked[0].body, asked[1].body);
    let delivery = scene.until_deliveries("it is delivered", 1, "state=delivered").remove(0);
    let statuses: Vec<u64> = delivery["log"].as_array().unwrap().iter().map(|tried| n(&tried["status"])).collect();
    assert_eq!((statuses, n(&delivery["tries"])), (vec![503, 200], 2));
}

#[test]
fn gone_ends_it_a_redirect_is_a_failure_and_a_replay_begins_anew() {
    let scene = Scene::with(LOCAL);
    let elsewhere = Peer::start(taken);
    let location = format!("location: {}\r\n", elsewhere.url()).leak();
    let gone = Peer::start(|n| if n == 0 { Reply::text(410, "") } else { Reply::json(json!({})) });
    let moved = Peer::start(|_| Reply::With(302, location, String::new()));
    let ended = scene.submit(json!({"kind": "noop", "callbackUrl": gone.url()}));
    let redirected = scene.submit(json!({"kind": "noop", "callbackUrl": moved.url()}));
    let given_up = scene.until_deliveries("410 ends it", 1, "state=given_up").remove(0);
    assert_eq!((&given_up["task"], &given_up["log"][0]["status"]), (&json!(ended), &json!(410)));
    wait_until(SOON, "the redirect is seen", || !moved.asked().is_empty());
    let pending = scene.until_deliveries("it is tried again", 1, "state=pending").remove(0);
    assert_eq!(pending["task"], json!(redirected));
    wait_until(SOON, "its failure is told", || {
        let shown = scene.get(&format!("/v1/webhooks/deliveries/{}", pending["id"]));
        shown["log"][0]["error"].as_str().is_some_and(|error| error.contains("redirects are not followed"))
    });
    assert!(elsewhere.asked().is_empty());
    let path = |delivery: &Value| format!("/v1/webhooks/deliveries/{}/replay", delivery["id"]);
    assert_eq!(scene.problem(409, "POST", &path(&pending), json!({}))["code"], "still_pending");
    assert_eq!(scene.expect(200, "POST", &path(&given_up), json!({}))["id"], given_up["id"]);
    scene.until_deliveries("the replay is taken", 1, "state=delivered");
    let asked = gone.asked();
    assert_eq!(asked[0].header("webhook-id"), asked[1].header("webhook-id"));
    scene.problem(404, "POST", "/v1/webhooks/deliveries/99999/replay", json!({}));
    scene.problem(400, "GET", "/v1/webhooks/deliveries/x", json!({}));
    scene.problem(400, "GET", "/v1/webhooks/deliveries?state=lost", json!({}));
}

#[test]
fn an_address_that_is_not_allowed_any_more_is_not_called() {
    let scene = Scene::with("");
    let peer = Peer::start(taken);
    scene.problem(400, "POST", "/v1/tasks", json!({"kind": "noop", "callbackUrl": peer.url()}));
    // A name is looked up when it is called, and then judged.
    let url = peer.url().replace("127.0.0.1", "localhost");
    let id = scene.submit(json!({"kind": "noop", "callbackUrl": url}));
    wait_until(SOON, "it was tried", || {
        !scene.deliveries("")[..].is_empty() && n(&scene.deliveries("")[0]["tries"]) == 1
    });
    let delivery = scene.deliveries("").remove(0);
    let error = text(&delivery["log"][0]["error"]);
    assert!(error.contains("is loopback, not a public address"), "{error}");
    assert_eq!((&delivery["state"], &delivery["task"]), (&json!("pending"), &json!(id)));
    assert!(peer.asked().is_empty());
}

#[test]
fn a_server_that_is_stopped_and_started_goes_on_with_what_is_due() {
    let mut scene = Scene::with(LOCAL);
    let peer = Peer::start(|n| if n == 0 { Reply::text(500, "") } else { Reply::json(json!({})) });
    scene.submit(json!({"kind": "noop", "callbackUrl": peer.url()}));
    wait_until(SOON, "the first try is written", || {
        scene.deliveries("").first().is_some_and(|delivery| n(&delivery["tries"]) == 1)
    });
    let secret = scene.get("/v1/webhooks/secret");
    scene.restart();
    assert_eq!(scene.get("/v1/webhooks/secret"), secret, "the secret is kept");
    scene.until_deliveries("the next server delivers it", 1, "state=delivered");
    assert_eq!(peer.asked().len(), 2);
}

#[test]
fn what_was_delivered_can_be_sent_again_and_only_its_latest_tries_are_kept() {
    let scene = Scene::with(LOCAL);
    let peer = Peer::start(taken);
    scene.submit(json!({"kind": "noop", "callbackUrl": peer.url()}));
    let id = scene.until_deliveries("it is delivered", 1, "state=delivered")[0]["id"].clone();
    let path = format!("/v1/webhooks/deliveries/{id}");
    for n_before in 1..=12 {
        assert_eq!(scene.expect(200, "POST", &format!("{path}/replay"), json!({}))["id"], id);
        until_asked(&peer, n_before + 1);
        scene.until_deliveries("it is delivered again", 1, "state=delivered");
    }
    let ids: std::collections::BTreeSet<_> = peer.asked().iter().map(|asked| asked.header("webhook-id")).collect();
    assert_eq!(ids.len(), 1, "the same message each time");
    let shown = scene.get(&path);
    assert_eq!((n(&shown["tries"]), shown["log"].as_array().unwrap().len()), (1, 10));
}

#[test]
fn deliveries_are_filtered_and_paged() {
    let scene = Scene::with(LOCAL);
    let (peer, gone) = (Peer::start(taken), Peer::start(|_| Reply::text(410, "")));
    let hook = json!({"url": peer.url(), "events": ["task.failed", "config.changed"]});
    scene.expect(200, "PATCH", "/v1/config", json!({"webhooks": {"audit": hook}}));
    let one = scene.submit(json!({"kind": "noop", "callbackUrl": peer.url()}));
    let bad = scene.submit(json!({"kind": "noop", "payload": {"fail": "permanent"}, "callbackUrl": gone.url()}));
    let (batch, _) = scene.batch(json!({"callbackUrl": peer.url(), "tasks": [{"kind": "noop"}]}));
    wait_until(SOON, "all are over", || {
        scene.deliveries(&format!("batch={batch}")).len() == 1
            && scene.deliveries(&format!("task={bad}")).len() == 2
            && scene.deliveries(&format!("task={one}")).len() == 1
            && scene.deliveries("state=pending").is_empty()
    });
    let all: Vec<u64> = scene.deliveries("").iter().map(|delivery| n(&delivery["id"])).collect();
    assert!(all.is_sorted_by(|a, b| a > b), "the latest first: {all:?}");
    let n_of = |query: &str| scene.deliveries(query).len();
    assert_eq!((n_of("state=given_up"), n_of("event=batch.finished"), n_of("event=task.failed")), (1, 1, 2));
    assert_eq!(n_of(&format!("task={bad}&webhook=audit")), 1);
    assert_eq!(n_of(&format!("task={bad}&state=given_up")), 1);
    assert_eq!(n_of("webhook=nobody"), 0);
    let mut paged = Vec::new();
    let mut path = "/v1/webhooks/deliveries?limit=1".to_owned();
    loop {
        let page = scene.get(&path);
        paged.extend(page["items"].as_array().unwrap().iter().map(|delivery| n(&delivery["id"])));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/v1/webhooks/deliveries?limit=1&cursor={cursor}");
    }
    assert_eq!(paged, all);
    scene.problem(400, "GET", "/v1/webhooks/deliveries?event=task.done", json!({}));
    scene.problem(400, "GET", &format!("/v1/webhooks/deliveries?task={one}&batch={batch}"), json!({}));
}

#[test]
fn a_task_stays_until_it_is_told_of_whatever_its_retention() {
    let mut scene = Scene::with(&format!("{LOCAL}\n[retention]\ntasksMs = 1\ndeliveriesMs = 1\n"));
    let is_open = Arc::new(AtomicBool::new(false));
    let opens = is_open.clone();
    let first = Peer::start(taken);
    let second = Peer::start(move |n| match n {
        0 => Reply::With(503, "retry-after: 1\r\n", String::new()),
        _ if opens.load(Ordering::SeqCst) => Reply::json(json!({})),
        _ => Reply::text(404, ""),
    });
    let told = scene.submit(json!({"kind": "noop", "callbackUrl": first.url()}));
    let waiting = scene.submit(json!({"kind": "noop", "callbackUrl": second.url()}));
    until_asked(&first, 1);
    until_asked(&second, 1);
    let status = |scene: &Scene, id: &str| scene.request("GET", &format!("/v1/tasks/{id}"), "").status;
    scene.restart();
    wait_until(SOON, "the first is gone", || status(&scene, &told) == 404);
    wait_until(SOON, "and what was told of it", || scene.deliveries(&format!("task={told}")).is_empty());
    assert_eq!((status(&scene, &waiting), scene.deliveries(&format!("task={waiting}")).len()), (200, 1));
    is_open.store(true, Ordering::SeqCst);
    wait_until(SOON, "it is delivered", || scene.deliveries("state=pending").is_empty());
    scene.restart();
    wait_until(SOON, "the other is gone, too", || status(&scene, &waiting) == 404);
    let last = second.asked().pop().unwrap();
    assert_eq!(body(&last)["data"]["id"], json!(waiting), "it was there to be told of");
}

#[test]
fn the_command_line_lists_shows_replays_and_tells_the_secret() {
    let scene = Scene::with(LOCAL);
    let peer = Peer::start(|n| if n == 0 { Reply::text(410, "") } else { Reply::json(json!({})) });
    let id = scene.submit(json!({"kind": "noop", "callbackUrl": peer.url()}));
    let number = n(&scene.until_deliveries("it is given up", 1, "state=given_up")[0]["id"]).to_string();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runyard"));
        let output =
            command.args(["webhook"]).args(args).env("RUNYARD_URL", format!("http://{}", scene.address)).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let list = run(&["list", "--state", "given-up", "--task", &id]);
    assert!(list.contains("task.completed") && list.contains(&id) && list.contains("410"), "{list}");
    assert!(!run(&["list", "--state", "delivered"]).contains(&id));
    assert!(run(&["show", &number]).contains("HTTP 410 Gone"));
    assert!(run(&["replay", &number]).contains("pending"));
    scene.until_deliveries("the replay is taken", 1, "state=delivered");
    let secret = text(&scene.get("/v1/webhooks/secret")["secrets"][0]["secret"]);
    assert_eq!(run(&["secret"]).trim(), secret);
    assert_eq!(run(&["secret", "--rotate"]).lines().count(), 2);
}

#[test]
fn messages_are_counted() {
    let scene = Scene::with(LOCAL);
    let peer = Peer::start(|n| if n == 0 { Reply::text(410, "") } else { Reply::json(json!({})) });
    scene.submit(json!({"kind": "noop", "callbackUrl": peer.url()}));
    scene.until_deliveries("one is given up", 1, "state=given_up");
    scene.submit(json!({"kind": "noop", "callbackUrl": peer.url()}));
    scene.until_deliveries("one is delivered", 1, "state=delivered");
    let metrics = scene.request("GET", "/metrics", "").body;
    for line in [
        "runyard_webhook_tries_total{outcome=\"taken\"} 1",
        "runyard_webhook_tries_total{outcome=\"failed\"} 1",
        "runyard_webhook_given_up_total 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(!metrics.contains("whsec_"));
}
