//! A command that was stored while nobody could hear of it.

use serde_json::{Value, json};

use crate::beside_others;
use crate::cluster::{Cluster, Record, SOON, Transaction};
use crate::support::{Answer, wait_until};

struct Asked<'a> {
    path: &'a str,
    body: Value,
    /// Whoever writes this table waits.
    locked: &'a str,
    /// Says `t` when it was done.
    stored: &'a str,
}

/// Asks a node that follows, without a key: it is the node that must see to it that this is done once. The holder sends its
/// whole transaction, its end too, before it waits for an answer; so the database goes on with it also when the holder
/// stands still, and only the rows say that it was made.
fn unheard(cluster: &mut Cluster, asked: &Asked) -> Answer {
    let (sleeper, answer) = stored_asleep(cluster, asked);
    cluster.nodes[sleeper].thaw();
    cluster.nodes[sleeper].until_ready();
    answer
}

/// Gives who sleeps, and what another one answered.
fn stored_asleep(cluster: &mut Cluster, asked: &Asked) -> (usize, Answer) {
    let (sleeper, [one, _]) = (cluster.holder(), cluster.followers());
    let lock = format!("BEGIN; LOCK TABLE {} IN SHARE MODE; SELECT 'locked';", asked.locked);
    let lock = Transaction::begin(cluster.url(), &lock);
    let (client, path, body) = (cluster.nodes[one].client(), asked.path.to_owned(), asked.body.to_string());
    let asking = std::thread::spawn(move || client.try_send("POST", &path, &[], body.as_bytes()).unwrap());
    wait_until(SOON, "the transaction is under way", || cluster.sql(WAITING) == "1");
    cluster.nodes[sleeper].freeze();
    lock.end();
    wait_until(SOON, "it is stored", || cluster.sql(asked.stored) == "t");
    assert_eq!(cluster.holder_seen_by(one), Some(sleeper), "by nobody else");
    let answer = asking.join().unwrap();
    assert_ne!(cluster.holder_seen_by(one), Some(sleeper), "another one answered");
    (sleeper, answer)
}

const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// For later. Each kind of command is given once before, so that its statements are prepared, and a transaction is all that
/// is left to be sent.
fn later() -> Value {
    json!({"kind": "noop", "delayMs": 600_000})
}

#[test]
fn a_submit_that_was_stored_unheard_is_found_by_the_next_holder_and_not_done_twice() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let earlier = cluster.submit(0, later());
    let asked = Asked { path: "/v1/tasks", body: later(), locked: "tasks", stored: "SELECT count(*) = 2 FROM tasks" };
    let answer = unheard(&mut cluster, &asked);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(cluster.get(0, &format!("/v1/tasks/{id}"))["state"], "scheduled");
    let record = Record::read(&cluster, 0);
    let last = record.entries.last().unwrap().task.clone();
    record.nobody_else_ran(&[earlier, id, last], |_| false);
}

#[test]
fn a_message_that_was_merged_unheard_is_merged_once() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let session = json!({"key": "room", "debounceMs": 600_000, "maxWaitMs": 600_000});
    let message = |text: &str| json!({"kind": "noop", "session": session, "payload": {"message": text}});
    let carrier = cluster.submit(0, message("first"));
    assert_eq!(cluster.submit(0, message("second")), carrier);
    let stored = "SELECT count(*) = 2 FROM messages";
    let answer =
        unheard(&mut cluster, &Asked { path: "/v1/tasks", body: message("third"), locked: "messages", stored });
    assert_eq!((answer.status, answer.json()["id"].as_str()), (201, Some(&*carrier)), "{}", answer.body);
    assert_eq!(cluster.sql(stored), "t", "it is there once");
}

#[test]
fn a_cancel_that_was_stored_unheard_is_answered_as_it_would_have_been() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let [first, id] = [(); 2].map(|()| cluster.submit(0, later()));
    cluster.expect(0, 200, "POST", &format!("/v1/tasks/{first}/cancel"), json!({}));
    let path = format!("/v1/tasks/{id}/cancel");
    let stored = "SELECT count(*) = 0 FROM tasks";
    let answer = unheard(&mut cluster, &Asked { path: &path, body: json!({}), locked: "tasks", stored });
    assert_eq!(answer.status, 200, "it ended by this cancel, and by no other: {}", answer.body);
    cluster.ends_as(0, "cancelled", &id);
    Record::read(&cluster, 0).each_ended_once(&[id]);
}

#[test]
fn a_key_that_was_made_unheard_is_there_once_and_its_answer_works() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let body = |name: &str| json!({"name": name, "scopes": ["read"]});
    cluster.expect(0, 201, "POST", "/v1/keys", body("earlier"));
    let stored = "SELECT bool_or(position(convert_to('unheard', 'UTF8') IN value) > 0) FROM settings";
    let asked = Asked { path: "/v1/keys", body: body("unheard"), locked: "settings", stored };
    let answer = unheard(&mut cluster, &asked);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let keys = cluster.get(cluster.holder(), "/v1/keys");
    let n_made = keys["items"].as_array().unwrap().iter().filter(|key| key["name"] == "unheard").count();
    assert_eq!(n_made, 1, "{keys:#}");
    let client = cluster.nodes[cluster.holder()].client().with_key(answer.json()["key"].as_str().unwrap());
    assert_eq!(client.try_send("GET", "/v1/tasks", &[], b"").unwrap().status, 200);
}

/// The commit that starts it was made while the holder slept. When it wakes it hears of it, and it is too late.
#[test]
fn what_was_to_start_is_not_started_by_a_holder_that_hears_of_it_too_late() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let marks = cluster.folder("marks");
    let shell = format!("echo x >> {}/$RUNYARD_TASK_ID.$RUNYARD_ATTEMPT; echo $RUNYARD_ATTEMPT", marks.display());
    let body = json!({"kind": "process", "payload": {"shell": shell}});
    let others = workers_of_followers(&cluster);
    others.iter().for_each(|id| drop(cluster.expect(0, 200, "POST", &format!("/v1/workers/{id}/drain"), json!({}))));
    let earlier = cluster.submit(0, body.clone());
    cluster.ends_as(0, "completed", &earlier);
    let stored = "SELECT count(*) = 1 FROM tasks";
    let asked = Asked { path: "/v1/tasks", body: body.clone(), locked: "tasks", stored };
    let (sleeper, answer) = stored_asleep(&mut cluster, &asked);
    let (id, now) = (answer.json()["id"].as_str().unwrap().to_owned(), cluster.holder());
    others.iter().for_each(|id| drop(cluster.expect(now, 200, "POST", &format!("/v1/workers/{id}/resume"), json!({}))));
    let task = cluster.ends_as(now, "completed", &id);
    cluster.nodes[sleeper].thaw();
    cluster.nodes[sleeper].until_ready();
    // Whatever it was about to do, it did before it took this.
    let next = cluster.submit(sleeper, body);
    cluster.ends_as(sleeper, "completed", &next);
    let names = std::fs::read_dir(&marks).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let ran: Vec<String> = names.filter(|name| name.starts_with(&id)).collect();
    let attempt = task["result"]["stdout"].as_str().unwrap().trim();
    assert_eq!(ran, [format!("{id}.{attempt}")], "{task:#}");
    assert_ne!(attempt, "1", "the first one was the sleeper's: {task:#}");
}

/// When all of them are there.
fn workers_of_followers(cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    wait_until(SOON, "every node has its worker there", || {
        let view = cluster.get(0, "/v1/workers");
        let others = view["items"].as_array().unwrap().iter().filter(|worker| worker["embedded"] == false);
        found = others.map(|worker| worker["id"].as_str().unwrap().to_owned()).collect();
        found.len() == 2
    });
    found
}
