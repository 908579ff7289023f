//! Messages that become one run: debounce and collect. `G4.n` is goclaw's list of cases.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::chat::{Chat, said};
use crate::scene::{Peer, Reply, SOON, Scene, header, is, ms, n, problem, text};
use crate::support::wait_until;

/// A window that ends only when a test says so.
const LONG: u64 = 600_000;

/// G4.11, G4.26: a burst within the window is one run, which starts after it; each submitter gets the id of the task
/// that carries its message, and each message can be found.
#[test]
fn a_burst_becomes_one_run() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"debounceMs": 1500}));
    let answers = ["one", "two", "three"].map(|message| chat.submit(said(message)));
    let id = text(&answers[0]["id"]);
    assert!(answers.iter().all(|answer| answer["id"] == id.as_str()), "{answers:#?}");
    assert_eq!(answers.map(|answer| answer["merged"].as_u64()), [None, Some(1), Some(2)]);
    assert_eq!((scene.state(&id), chat.counts()), ("scheduled".into(), (0, 0, 1)));
    assert_eq!(chat.heard(&id), "one\ntwo\nthree\n");
    let task = scene.task(&id);
    assert_eq!(n(&task["merged"]), 2);
    assert!(ms(&task["startedAt"]) - ms(&task["createdAt"]) >= 1500, "{task:#}");
    assert_eq!(texts(&scene, &id), ["two", "three"]);
    assert_eq!(n(&chat.view()["messages"]), 3);
    let events = scene.events_until(|event| is(event, "task.completed", &id));
    assert_eq!(events.iter().filter(|event| is(event, "task.merged", &id)).count(), 2);
    assert_eq!(scene.steps(&id).iter().filter(|step| *step == "merged").count(), 2);
}

/// G4.20: messages that keep coming do not put the run off for ever.
#[test]
fn no_message_is_held_back_longer_than_the_maximum() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"debounceMs": 60_000, "maxWaitMs": 1000}));
    let first = chat.submit(said("on and on"));
    let id = text(&first["id"]);
    let began = Instant::now();
    // Each of them alone would put the run off by a minute.
    while chat.say("and on") == id {
        assert!(began.elapsed() < SOON, "it is put off for ever");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let task = scene.end(&id);
    let waited = ms(&task["startedAt"]) - ms(&task["createdAt"]);
    assert!((1000..10_000).contains(&waited), "{waited} ms");
}

/// G4.26, G4.36: texts are joined with a newline, empty ones are skipped, everything else is the last one's.
#[test]
fn the_last_message_says_everything_but_the_text() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"debounceMs": LONG}));
    let task = |message: &str, word: &str, rank: i32| {
        let payload = json!({"shell": "cat; echo $WORD", "env": {"WORD": word}, "message": message});
        json!({"kind": "process", "payload": payload, "rank": rank, "metadata": {"word": word}})
    };
    let id = text(&chat.submit(task("one", "first", 1))["id"]);
    chat.submit(task("", "second", 2));
    let last = json!({"key": "s", "debounceMs": 0});
    let mut task = task("two", "third", 3);
    task["session"] = last;
    assert_eq!(chat.submit(task)["id"], id.as_str());
    assert_eq!(chat.heard(&id), "one\ntwo\nthird\n");
    assert_eq!(n(&scene.task(&id)["rank"]), 3);
}

/// G4.28: the window is a matter of each session: where there is none a message passes at once.
#[test]
fn a_window_is_a_matter_of_the_session() {
    let config = "[[sessions.patterns]]\nmatch = \"agent:debounced:*\"\ndebounceMs = 600000\n";
    let scene = Scene::with(config);
    let instant = Chat::new(&scene, "agent:instant:1");
    let debounced = Chat::new(&scene, "agent:debounced:1");
    assert_eq!(instant.heard(&instant.say("now")), "now\n");
    let id = debounced.say("one");
    assert_eq!((debounced.say("two"), scene.state(&id)), (id.clone(), "scheduled".into()));
    assert_eq!(debounced.counts(), (0, 0, 1));
}

/// G4.29: only messages of one agent, lane and kind merge; others stand behind them, in order.
#[test]
fn messages_of_different_agents_lanes_or_kinds_do_not_merge() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"mode": "collect"}));
    let held = chat.hold();
    let task = |agent: &str, lane: &str, message: &str| {
        let mut task = said(message);
        (task["agent"], task["lane"]) = (json!(agent), json!(lane));
        text(&chat.submit(task)["id"])
    };
    let first = task("a", "main", "one");
    let second = task("b", "main", "two");
    let third = task("b", "team", "three");
    let fourth = text(&chat.submit(json!({"kind": "noop", "agent": "b", "lane": "team"}))["id"]);
    // Only the last in line gathers: an earlier one would let a message pass those between.
    let fifth = task("a", "main", "four");
    assert_eq!(task("a", "main", "five"), fifth);
    let mut ids = vec![first, second, third, fourth, fifth.clone()];
    ids.dedup();
    assert_eq!(ids.len(), 5);
    chat.release(&held);
    assert_eq!([&ids[0], &ids[1], &ids[2]].map(|id| chat.heard(id)), ["one\n", "two\n", "three\n"]);
    assert_eq!(chat.heard(&fifth), "four\nfive\n");
}

/// G4.30, G4.31: media of all messages arrive in the order they came, with the texts, once.
#[test]
fn media_are_put_one_behind_the_other() {
    let scene = Scene::new();
    let peer = Peer::start(|_| Reply::json(json!({})));
    let chat = Chat::with(&scene, "s", json!({"debounceMs": LONG}));
    let task = |more: Value| {
        let mut payload = json!({"url": peer.url()});
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"kind": "http", "payload": payload})
    };
    let id = text(&chat.submit(task(json!({"message": "one", "media": [{"file": "a.png"}]})))["id"]);
    chat.submit(task(json!({"media": ["b.png", 3]})));
    let mut last = task(json!({"message": "two"}));
    last["session"] = json!({"key": "s", "debounceMs": 0});
    assert_eq!(chat.submit(last)["id"], id.as_str());
    scene.ends_as("completed", &id);
    let asked = peer.asked();
    assert_eq!(asked.len(), 1);
    let body: Value = serde_json::from_str(&asked[0].body).unwrap();
    assert_eq!(body, json!({"message": "one\ntwo", "media": [{"file": "a.png"}, "b.png", 3]}));
}

/// G4.32: a message without a window joins what is held back and sends it off at once, once.
#[test]
fn a_message_without_a_window_sends_off_what_was_held_back() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"debounceMs": LONG}));
    let id = chat.say("held back");
    let mut now = said("go");
    now["session"] = json!({"key": "s", "debounceMs": 0});
    assert_eq!(chat.submit(now)["id"], id.as_str());
    assert_eq!(chat.heard(&id), "held back\ngo\n");
    assert_eq!(scene.ids("/v1/tasks?session=s").len(), 1);
}

/// G4.33, G4.35: the merged messages are listed once each with their keys; a message that is delivered again gets the
/// first answer and is not merged a second time.
#[test]
fn a_message_that_is_delivered_again_is_not_merged_again() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"debounceMs": LONG}));
    let keyed = |key: &str, message: &str| {
        let mut task = said(message);
        (task["idempotencyKey"], task["sentAt"]) = (json!(key), json!("2026-01-02T03:04:05.000Z"));
        chat.send(task)
    };
    let id = text(&keyed("k1", "one").json()["id"]);
    for _ in 0..2 {
        let answer = keyed("k2", "two");
        assert_eq!((answer.status, answer.json()["id"].as_str()), (201, Some(id.as_str())), "{}", answer.body);
    }
    let again = keyed("k1", "one");
    assert_eq!(
        (again.json()["id"].as_str(), header(&again, "idempotent-replayed").as_deref()),
        (Some(&*id), Some("true"))
    );
    problem(422, &keyed("k2", "something else"));
    let messages = &scene.get(&format!("/v1/tasks/{id}/messages"))["items"];
    assert_eq!(messages.as_array().map(Vec::len), Some(1), "{messages:#}");
    let merged = &messages[0];
    assert_eq!((n(&merged["n"]), merged["idempotencyKey"].as_str()), (1, Some("k2")));
    assert_eq!((&merged["sentAt"], &merged["payload"]["message"]), (&json!("2026-01-02T03:04:05.000Z"), &json!("two")));
    assert!(merged["at"].is_string(), "{merged:#}");
}

/// G4.34 in our terms: media have no window of their own; a window that a message asks for is what counts.
#[test]
fn media_wait_no_longer_than_texts() {
    let scene = Scene::new();
    let media = |session: Value| json!({"kind": "noop", "payload": {"media": ["a.png"]}, "session": session});
    let chat = Chat::new(&scene, "s");
    let at_once = text(&chat.submit(media(json!("s")))["id"]);
    scene.ends_as("completed", &at_once);
    let later = text(&chat.submit(media(json!({"key": "s", "debounceMs": 500})))["id"]);
    let task = scene.ends_as("completed", &later);
    assert!(ms(&task["startedAt"]) - ms(&task["createdAt"]) >= 500, "{task:#}");
}

/// The issue: in mode `collect` what comes during a run becomes one follow-up, without any window.
#[test]
fn what_comes_during_a_run_is_collected_into_one() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"mode": "collect"}));
    let held = chat.hold();
    let ids = ["one", "two", "three"].map(|message| chat.say(message));
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(chat.counts(), (1, 1, 0));
    chat.release(&held);
    assert_eq!(chat.heard(&ids[0]), "one\ntwo\nthree\n");
    assert_eq!(chat.heard(&chat.say("four")), "four\n", "an idle session runs a message at once");
}

/// Collected messages survive `kill -9`, and the run that follows has them all.
#[test]
fn collected_messages_survive_kill_9() {
    let mut scene = Scene::new();
    let ids = {
        let chat = Chat::with(&scene, "s", json!({"mode": "collect"}));
        chat.hold();
        ["one", "two", "three"].map(|message| chat.say(message))
    };
    scene.server_mut().kill9();
    scene.start_again();
    let chat = Chat::new(&scene, "s");
    assert_eq!(chat.say("four"), ids[0], "it still gathers");
    wait_until(SOON, "the lost head runs again", || chat.counts().0 == 1);
    chat.act("stop");
    assert_eq!(chat.heard(&ids[0]), "one\ntwo\nthree\nfour\n");
}

/// G4.36: who is cancelled while it is held back takes its messages along; the next message begins anew.
#[test]
fn a_cancelled_carrier_takes_its_messages_along() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"debounceMs": LONG}));
    let id = chat.say("one");
    assert_eq!(chat.say("two"), id);
    assert_eq!(scene.cancel(&id).status, 200);
    assert_eq!(chat.counts(), (0, 0, 0));
    let mut anew = said("three");
    anew["session"] = json!({"key": "s", "debounceMs": 0});
    let anew = text(&chat.submit(anew)["id"]);
    assert_ne!(anew, id);
    assert_eq!(chat.heard(&anew), "three\n");
    assert_eq!((texts(&scene, &id), n(&scene.task(&id)["attempts"])), (vec!["two".to_owned()], 0));
}

/// G4.38: messages that come at the same time from many sides are all carried, each once, and sessions do not mix.
#[test]
fn messages_from_many_sides_are_all_carried_once() {
    const SENDERS: usize = 4;
    const EACH: usize = 25;
    let scene = Scene::new();
    let settings = json!({"mode": "collect", "cap": 1000});
    let chats = ["left", "right"].map(|key| Chat::with(&scene, key, settings.clone()));
    let mut carriers: Vec<(usize, String)> = Vec::new();
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let chats = &chats;
                scope.spawn(move || {
                    let say = |n: usize| (n % 2, chats[n % 2].say(&format!("{sender}-{n}")));
                    (0..EACH).map(say).collect::<Vec<_>>()
                })
            })
            .collect();
        senders.into_iter().for_each(|sender| carriers.extend(sender.join().unwrap()));
    });
    carriers.sort();
    carriers.dedup();
    for (side, chat) in chats.iter().enumerate() {
        let ids = carriers.iter().filter(|(at, _)| *at == side);
        let heard: String = ids.map(|(_, id)| chat.heard(id)).collect();
        let mut heard: Vec<&str> = heard.lines().collect();
        let of_one = |sender| (0..EACH).filter(|n| n % 2 == side).map(move |n| format!("{sender}-{n}"));
        let mut sent: Vec<String> = (0..SENDERS).flat_map(of_one).collect();
        heard.sort_unstable();
        sent.sort();
        assert_eq!(heard, sent);
    }
}

/// Design 6: a task with dependencies, or of a batch, is somebody's by name and stays itself.
#[test]
fn tasks_that_others_may_name_do_not_merge() {
    let scene = Scene::new();
    let chat = Chat::with(&scene, "s", json!({"mode": "collect"}));
    let held = chat.hold();
    let mut item = said("item");
    item["session"] = json!("s");
    let (_, ids) = scene.batch(json!({"tasks": [item, item]}));
    assert_ne!(ids[0], ids[1]);
    let single = chat.say("single");
    assert!(!ids.contains(&single), "what is in a batch does not gather either");
    chat.release(&held);
    assert_eq!([&ids[0], &ids[1], &single].map(|id| chat.heard(id)), ["item\n", "item\n", "single\n"]);
}

/// The texts of the messages that were merged into a task.
fn texts(scene: &Scene, id: &str) -> Vec<String> {
    let page = scene.get(&format!("/v1/tasks/{id}/messages"));
    page["items"].as_array().unwrap().iter().map(|item| text(&item["payload"]["message"])).collect()
}
