//! Settings of sessions, from the configuration and their own; how sessions are shown; the throttle. `G4.n` is goclaw's
//! list of cases.

use serde_json::{Value, json};

use crate::chat::{Chat, counts, said};
use crate::scene::{Peer, Reply, SOON, Scene, Stream, header, n, problem, text};
use crate::support::wait_until;

/// The issue: `PUT` replaces a session's own settings as a whole and makes it if it is new; what is not its own comes
/// from the configuration; both are shown.
#[test]
fn settings_are_replaced_as_a_whole() {
    let mut scene = Scene::new();
    let chat = Chat::new(&scene, "s");
    problem(404, &scene.request("GET", "/v1/sessions/s", ""));
    let all = json!({"mode": "collect", "cap": 3, "drop": "summarize", "debounceMs": 200, "maxWaitMs": 900,
        "maxConcurrent": 2});
    let view = chat.set(all.clone());
    assert_eq!((&view["settings"], &view["effective"]), (&all, &all), "{view:#}");
    assert_eq!((counts(&view["counts"]), n(&view["messages"]), n(&view["generation"])), ((0, 0, 0), 0, 0));
    let view = chat.set(json!({"debounceMs": 100}));
    assert_eq!(view["settings"], json!({"debounceMs": 100}));
    let effective = json!({"mode": "queue", "cap": 10, "drop": "old", "debounceMs": 100, "maxWaitMs": 500,
        "maxConcurrent": 1});
    assert_eq!(view["effective"], effective, "a maximum that is not set is five windows");
    scene.restart();
    assert_eq!(scene.get("/v1/sessions/s")["settings"], json!({"debounceMs": 100}));
}

/// The issue: settings given with a message stick to the session, each by itself.
#[test]
fn settings_of_a_message_stick() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"cap": 4}));
    chat.submit(json!({"kind": "noop", "session": {"key": "s", "maxConcurrent": 2}}));
    chat.submit(json!({"kind": "noop"}));
    assert_eq!(chat.view()["settings"], json!({"cap": 4, "maxConcurrent": 2}));
    chat.until_idle();
    let (first, second) = (chat.hold(), chat.hold());
    let third = chat.say("third");
    assert_eq!(
        [&first, &second, &third].map(|id| scene.state(id)),
        ["running".to_owned(), "running".to_owned(), "waiting".to_owned()]
    );
    // A raised limit lets the next one go at once.
    chat.set(json!({"maxConcurrent": 3}));
    assert_eq!(chat.heard(&third), "third\n");
}

/// Design 6: lowering the number returns surplus queued ones to waiting, and lets what runs go on.
#[test]
fn a_lowered_number_returns_queued_ones_to_waiting() {
    let scene = Scene::with("[lanes]\nmain = 1\n");
    let chat = Chat::with(&scene, "s", json!({"maxConcurrent": 3}));
    let held = chat.hold();
    let (second, third) = (chat.say("second"), chat.say("third"));
    assert_eq!((scene.state(&second), scene.state(&third)), ("queued".into(), "queued".into()));
    chat.set(json!({"maxConcurrent": 2}));
    wait_until(SOON, "the last one waits", || scene.state(&third) == "waiting");
    assert_eq!((scene.state(&held), scene.state(&second)), ("running".into(), "queued".into()));
    chat.release(&held);
    assert_eq!((chat.heard(&second), chat.heard(&third)), ("second\n".into(), "third\n".into()));
}

/// G4.25: what makes no sense is refused with its field, by every way it can come, and changes nothing.
#[test]
fn settings_that_make_no_sense_are_refused() {
    let scene = Scene::new();
    for (settings, field) in [
        (json!({"cap": 0}), "cap"),
        (json!({"maxConcurrent": 0}), "maxConcurrent"),
        (json!({"mode": "fifo"}), "mode"),
        (json!({"drop": "all"}), "drop"),
        (json!({"debounceMs": -1}), "debounceMs"),
        (json!({"colour": "red"}), "colour"),
    ] {
        let refusal = scene.problem(400, "PUT", "/v1/sessions/s", settings.clone());
        assert_eq!(refusal["field"], field, "{refusal:#}");
        let mut session = settings;
        session["key"] = json!("s");
        let refusal = scene.problem(400, "POST", "/v1/tasks", json!({"kind": "noop", "session": session}));
        assert_eq!(refusal["field"], format!("session.{field}"), "{refusal:#}");
    }
    for key in ["", "a\nb", &"k".repeat(257)] {
        let refusal = scene.problem(400, "POST", "/v1/tasks", json!({"kind": "noop", "session": key}));
        assert!(text(&refusal["field"]).starts_with("session"), "{refusal:#}");
    }
    let context = scene.problem(400, "PUT", "/v1/sessions/s/context", json!({"contextTokens": 1, "contextWindow": 0}));
    assert_eq!(context["field"], "contextWindow");
    assert_eq!(scene.get("/v1/sessions")["items"], json!([]));
}

/// G4.25: a configuration that makes no sense stops the start, with the line.
#[test]
fn a_configuration_that_makes_no_sense_is_refused_with_its_line() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("bad.toml");
    for (config, place) in [
        ("[sessions]\ncap = 0\n", "bad.toml:2:"),
        ("[sessions]\nmode = \"fifo\"\n", "bad.toml:2:"),
        ("[sessions]\ncap = 5\n[sessions.lanes.main]\nmaxConcurrent = 0\n", "bad.toml:4:"),
        (
            "[[sessions.patterns]]\nmatch = \"a:*\"\ncap = 1\n[[sessions.patterns]]\nmatch = \"b:*\"\ncap = 0\n",
            "bad.toml:6:",
        ),
        ("[sessions]\ncontextThreshold = -1\n", "bad.toml:2:"),
    ] {
        std::fs::write(&file, config).unwrap();
        let mut serve = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(home.path().join("data")).timeout(SOON);
        let output = serve.arg("--config").arg(&file).assert().failure().get_output().stderr.clone();
        let error = String::from_utf8(output).unwrap();
        assert!(error.contains(place), "{config:?} gave {error}");
    }
}

/// The issue: defaults come from the configuration, per lane and per pattern of the key; a change of it holds at once.
#[test]
fn defaults_come_from_lane_and_pattern() {
    let scene = Scene::with(
        "[sessions]\ncap = 20\nmaxConcurrent = 2\n\
         [sessions.lanes.cron]\ncap = 5\nmode = \"reject\"\n\
         [[sessions.patterns]]\nmatch = \"agent:*:group:*\"\nmaxConcurrent = 3\nmode = \"collect\"\n\
         [[sessions.patterns]]\nmatch = \"*:vip\"\nmaxConcurrent = 4\n",
    );
    let effective = |key: &str, lane: &str| {
        let id = scene.submit(json!({"kind": "noop", "lane": lane, "session": key}));
        scene.end(&id);
        let rules = scene.get(&format!("/v1/sessions/{key}"))["effective"].clone();
        (text(&rules["mode"]), n(&rules["cap"]), n(&rules["maxConcurrent"]))
    };
    assert_eq!(effective("plain", "main"), ("queue".into(), 20, 2));
    assert_eq!(effective("nightly", "cron"), ("reject".into(), 5, 2));
    assert_eq!(effective("agent:x:group:7", "main"), ("collect".into(), 20, 3));
    assert_eq!(effective("agent:x:group:7", "cron"), ("collect".into(), 5, 3));
    assert_eq!(
        effective("agent:x:group:vip", "main"),
        ("collect".into(), 20, 4),
        "a later match counts over an earlier"
    );
    scene.expect(200, "PATCH", "/v1/config", json!({"sessions": {"cap": 30}}));
    assert_eq!(n(&scene.get("/v1/sessions/plain")["effective"]["cap"]), 30);
}

/// G4.36: a window of a session's own counts over the configured one: 0 turns it off, absent inherits it.
#[test]
fn a_session_overrides_the_configured_window() {
    let scene = Scene::with("[sessions]\ndebounceMs = 250\n");
    let chat = Chat::new(&scene, "s");
    let window = |settings: Value| n(&chat.set(settings)["effective"]["debounceMs"]);
    let windows = [json!({}), json!({"debounceMs": 500}), json!({"debounceMs": 0})].map(window);
    assert_eq!(windows, [250, 500, 0]);
    let answer = chat.submit(said("at once"));
    assert_ne!(answer["state"], "scheduled", "{answer:#}");
}

/// A raised default lets those go that waited for it.
#[test]
fn a_raised_default_lets_the_next_go() {
    let scene = Scene::new();
    let chat = Chat::new(&scene, "s");
    chat.hold();
    let second = chat.say("second");
    assert_eq!(scene.state(&second), "waiting");
    scene.expect(200, "PATCH", "/v1/config", json!({"sessions": {"maxConcurrent": 2}}));
    assert_eq!(chat.heard(&second), "second\n");
}

/// G4.16, the issue: sessions are listed with their counts, by prefix and by whether they are busy, in pages.
#[test]
fn sessions_are_listed_with_their_counts() {
    let scene = Scene::new();
    let busy = Chat::new(&scene, "agent:agent-123:scope1");
    let held = busy.hold();
    busy.say("waits");
    for key in ["agent:agent-123:scope2", "agent:other:scope1"] {
        scene.end(&scene.submit(json!({"kind": "noop", "session": key})));
    }
    let keys = |query: &str| -> Vec<String> {
        scene.get(&format!("/v1/sessions?{query}"))["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| text(&it["key"]))
            .collect()
    };
    assert_eq!(keys(""), ["agent:other:scope1", "agent:agent-123:scope2", "agent:agent-123:scope1"]);
    assert_eq!(keys("prefix=agent:agent-123:"), ["agent:agent-123:scope2", "agent:agent-123:scope1"]);
    assert_eq!(keys("prefix=agent:agent-123:&busy=true"), ["agent:agent-123:scope1"]);
    assert_eq!(keys("prefix=agent:other:&busy=true"), [""; 0]);
    let page = scene.get("/v1/sessions?limit=2");
    let next = keys(&format!("limit=2&cursor={}", text(&page["nextCursor"])));
    assert_eq!((page["items"].as_array().map(Vec::len), next), (Some(2), vec!["agent:agent-123:scope1".to_owned()]));
    assert_eq!(busy.counts(), (1, 1, 0));
    busy.act("stopall");
    scene.end(&held);
    busy.until_idle();
    assert_eq!(keys("busy=true"), [""; 0]);
}

/// A key may hold any character; in a path it is percent-encoded.
#[test]
fn a_key_may_hold_any_character() {
    let scene = Scene::new();
    let key = "чат/7 ?&#%:🙂";
    scene.end(&scene.submit(json!({"kind": "noop", "session": key})));
    let path: String = key.bytes().map(|byte| format!("%{byte:02X}")).collect();
    assert_eq!(scene.get(&format!("/v1/sessions/{path}"))["key"], key);
    assert_eq!(scene.expect(200, "PUT", &format!("/v1/sessions/{path}"), json!({"cap": 2}))["key"], key);
    assert_eq!(scene.ids(&format!("/v1/tasks?session={path}")).len(), 1);
}

/// The issue: tasks and events can be asked for by session, and a session's tasks can be cancelled by filter.
#[test]
fn tasks_and_events_are_filtered_by_session() {
    let scene = Scene::new();
    let (one, other) = (Chat::new(&scene, "one"), Chat::new(&scene, "other"));
    let (first, second) = (one.hold(), other.hold());
    let third = one.say("waits");
    assert_eq!(scene.ids("/v1/tasks?session=one"), [third.clone(), first.clone()]);
    assert_eq!(scene.ids("/v1/tasks?session=one&state=waiting"), [third.as_str()]);
    assert_eq!(scene.ids("/v1/tasks?session=none").len(), 0);
    let answer = scene.expect(200, "POST", "/v1/tasks/cancel", json!({"session": "one"}));
    assert_eq!(n(&answer["matched"]), 2, "{answer:#}");
    scene.ends_as("cancelled", &first);
    scene.ends_as("cancelled", &third);
    assert_eq!(scene.state(&second), "running");
    let mut events = Stream::open(&scene, "/v1/events?after=0-0&session=one", &[]);
    let mut n_cancelled = 0;
    while n_cancelled < 2 {
        let event = events.next_event();
        assert_eq!(event["session"], "one", "{event:#}");
        n_cancelled += usize::from(event["type"] == "task.cancelled");
    }
}

/// G4.12, the issue: from 60 % of its context window on a session starts one task at a time; what is told by `PUT` counts
/// at once.
#[test]
fn a_nearly_full_context_throttles() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"maxConcurrent": 5}));
    let told = |tokens: u64| {
        let context = json!({"contextTokens": tokens, "contextWindow": 1000});
        n(&scene.expect(200, "PUT", "/v1/sessions/s/context", context)["effective"]["maxConcurrent"])
    };
    assert_eq!(n(&chat.view()["effective"]["maxConcurrent"]), 5);
    assert_eq!([500, 599, 600, 800].map(told), [5, 5, 1, 1]);
    assert_eq!(chat.view()["context"], json!({"contextTokens": 800, "contextWindow": 1000}));
    let held = chat.hold();
    let second = chat.say("second");
    assert_eq!(scene.state(&second), "waiting");
    assert_eq!(told(100), 5);
    assert_eq!(chat.heard(&second), "second\n");
    assert_eq!(scene.state(&held), "running");
}

/// The issue: the threshold is in the configuration.
#[test]
fn the_threshold_of_the_throttle_is_configured() {
    let scene = Scene::with("[sessions]\nmaxConcurrent = 5\ncontextThreshold = 0.9\n");
    let context = |tokens: u64| json!({"contextTokens": tokens, "contextWindow": 1000});
    let told =
        |tokens| n(&scene.expect(200, "PUT", "/v1/sessions/s/context", context(tokens))["effective"]["maxConcurrent"]);
    assert_eq!([800, 900].map(told), [5, 1]);
}

/// The issue: the throttle also goes by the usage that a run reports, and the task shows it.
#[test]
fn a_run_that_reports_its_usage_throttles_its_session() {
    let mut scene = Scene::new();
    let usage = json!({"inputTokens": 800, "outputTokens": 50, "contextTokens": 700, "contextWindow": 1000});
    let chat = Chat::with(&scene, "s", json!({"maxConcurrent": 5}));
    let shell = format!("echo '{}' >> $RUNYARD_REPORT", json!({"usage": usage}));
    let id = text(&chat.submit(json!({"kind": "process", "payload": {"shell": shell}}))["id"]);
    assert_eq!(scene.ends_as("completed", &id)["usage"], usage);
    let peer = Peer::start(|_| Reply::json(json!({"answer": "hi", "usage": {"contextTokens": 1, "contextWindow": 9}})));
    let other = Chat::new(&scene, "other");
    let called = text(&other.submit(peer.task(json!({})))["id"]);
    assert_eq!(scene.ends_as("completed", &called)["usage"], json!({"contextTokens": 1, "contextWindow": 9}));
    assert_eq!(n(&other.view()["context"]["contextWindow"]), 9);
    let view = chat.view();
    assert_eq!(view["context"], json!({"contextTokens": 700, "contextWindow": 1000}));
    assert_eq!((n(&view["settings"]["maxConcurrent"]), n(&view["effective"]["maxConcurrent"])), (5, 1));
    scene.restart();
    let chat = Chat::new(&scene, "s");
    chat.hold();
    assert_eq!(scene.state(&chat.say("one at a time")), "waiting");
}

/// G4.15, the issue: a draining server refuses messages with 503 and Retry-After, and lets the running one go on.
#[test]
fn a_draining_server_refuses_messages_at_once() {
    let scene = Scene::new();
    let chat = Chat::new(&scene, "s");
    let held = chat.hold();
    let waiting = chat.say("later");
    scene.expect(200, "POST", "/v1/drain", json!({"on": true}));
    let answer = chat.send(said("new"));
    assert_eq!(problem(503, &answer)["code"], "draining");
    assert!(header(&answer, "retry-after").is_some(), "{}", answer.head);
    assert_eq!(scene.state(&held), "running");
    assert_eq!(chat.act("stop")["stopped"], held.as_str(), "stops work meanwhile");
    scene.ends_as("cancelled", &held);
    scene.expect(200, "POST", "/v1/drain", json!({"on": false}));
    assert_eq!(chat.heard(&waiting), "later\n");
}

/// G4.37: who may submit may set and stop sessions, unless it is bound to agents, because a session may hold tasks of
/// others; who may only read may look at them.
#[test]
fn reading_sessions_needs_less_than_changing_them() {
    let scene = Scene::with_flags(&[], "");
    let admin = std::fs::read_to_string(scene.data().join("admin.key")).unwrap();
    let send = |key: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {}", key.trim());
        scene.try_request(method, path, &[("authorization", &bearer)], body).unwrap()
    };
    let key = |body: Value| text(&send(&admin, "POST", "/v1/keys", &body.to_string()).json()["key"]);
    let reader = key(json!({"name": "reader", "scopes": ["read"]}));
    let submitter = key(json!({"name": "submitter", "scopes": ["read", "submit"]}));
    let bound = key(json!({"name": "bound", "scopes": ["submit"], "agents": ["a"]}));
    assert_eq!(send(&submitter, "PUT", "/v1/sessions/s", r#"{"cap": 2}"#).status, 200);
    for path in ["/v1/sessions", "/v1/sessions/s"] {
        assert_eq!(send(&reader, "GET", path, "").status, 200);
    }
    assert_eq!(problem(403, &send(&reader, "PUT", "/v1/sessions/s", r#"{"cap": 3}"#))["code"], "missing_scope");
    assert_eq!(problem(403, &send(&reader, "POST", "/v1/sessions/s/stopall", ""))["code"], "missing_scope");
    assert_eq!(send(&submitter, "POST", "/v1/sessions/s/stopall", "").status, 200);
    assert_eq!(problem(403, &send(&bound, "POST", "/v1/sessions/s/stopall", ""))["code"], "foreign_session");
    assert_eq!(send(&bound, "POST", "/v1/sessions/a%2F7/stopall", "").status, 200);
}
