//! A command that was stored while nobody could hear of it.

use serde_json::{Value, json};

use crate::beside_others;
use crate::cluster::{Cluster, Record, SOON, Transaction};
use crate::support::{Answer, wait_until};

struct Asked<'a> {
    method: &'a str,
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
    let (client, method, path) = (cluster.nodes[one].client(), asked.method.to_owned(), asked.path.to_owned());
    let body = if asked.body.is_null() { String::new() } else { asked.body.to_string() };
    let asking = std::thread::spawn(move || client.try_send(&method, &path, &[], body.as_bytes()).unwrap());
    wait_until(SOON, "the transaction is under way", || cluster.sql(WAITING) == "1");
    cluster.nodes[sleeper].freeze();
    lock.end();
    wait_until(SOON, "it is stored", || cluster.sql(asked.stored) == "t");
    assert_eq!(cluster.holder_seen_by(one), Some(sleeper), "by nobody else");
    let answer = asking.join().unwrap();
    assert_ne!(cluster.holder_seen_by(one), Some(sleeper), "another one answered");
    (sleeper, answer)
}

/// For a table: who writes the audit log may wait for another lock.
const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'relation'";

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
    let asked = Asked {
        method: "POST",
        path: "/v1/tasks",
        body: later(),
        locked: "tasks",
        stored: "SELECT count(*) = 2 FROM tasks",
    };
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
    let answer = unheard(
        &mut cluster,
        &Asked { method: "POST", path: "/v1/tasks", body: message("third"), locked: "messages", stored },
    );
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
    let answer =
        unheard(&mut cluster, &Asked { method: "POST", path: &path, body: json!({}), locked: "tasks", stored });
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
    let asked = Asked { method: "POST", path: "/v1/keys", body: body("unheard"), locked: "settings", stored };
    let answer = unheard(&mut cluster, &asked);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let keys = cluster.get(cluster.holder(), "/v1/keys");
    let n_made = keys["items"].as_array().unwrap().iter().filter(|key| key["name"] == "unheard").count();
    assert_eq!(n_made, 1, "{keys:#}");
    let client = cluster.nodes[cluster.holder()].client().with_key(answer.json()["key"].as_str().unwrap());
    assert_eq!(client.try_send("GET", "/v1/tasks", &[], b"").unwrap().status, 200);
}

/// Of each kind there are two: one is removed before, so that its statements are prepared.
#[test]
fn a_delete_that_was_done_unheard_is_answered_as_done() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let [_, schedule] = ["earlier", "late"].map(|name| {
        let asked =
            json!({"name": name, "schedule": {"kind": "every", "everyMs": 86_400_000}, "task": {"kind": "noop"}});
        cluster.expect(0, 201, "POST", "/v1/schedules", asked)["id"].as_str().unwrap().to_owned()
    });
    let [first_key, key] = ["earlier", "late"].map(|name| {
        let made = cluster.expect(0, 201, "POST", "/v1/keys", json!({"name": name, "scopes": ["read"]}));
        made["id"].as_str().unwrap().to_owned()
    });
    for name in ["EARLIER", "LATE"] {
        cluster.expect(0, 204, "PUT", &format!("/v1/secrets/{name}"), json!({"value": "long enough"}));
    }
    let [first_worker, worker] = ["earlier", "late"].map(|name| {
        let asked = json!({"name": name, "cpus": 1.0, "ramMb": 100, "kinds": ["noop"]});
        cluster.expect(0, 201, "POST", "/v1/workers", asked)["id"].as_str().unwrap().to_owned()
    });
    let in_settings = |text: &str| {
        format!(
            "SELECT NOT bool_or(position(convert_to('{text}', 'UTF8') IN value) > 0) FROM settings WHERE name <> 'keys.used'"
        )
    };
    let table = [
        (
            "/v1/schedules/earlier".to_owned(),
            "/v1/schedules/late".to_owned(),
            "schedules",
            204,
            format!("SELECT count(*) = 0 FROM schedules WHERE id = '{schedule}'"),
        ),
        (format!("/v1/keys/{first_key}"), format!("/v1/keys/{key}"), "settings", 204, in_settings(&key)),
        ("/v1/secrets/EARLIER".to_owned(), "/v1/secrets/LATE".to_owned(), "settings", 204, in_settings("LATE")),
        (
            format!("/v1/workers/{first_worker}"),
            format!("/v1/workers/{worker}"),
            "workers",
            200,
            format!("SELECT count(*) = 0 FROM workers WHERE id = '{worker}'"),
        ),
    ];
    for (earlier, path, locked, status, stored) in table {
        let answer = cluster.request(0, "DELETE", &earlier, "");
        assert_eq!(answer.status, status, "{earlier}: {}", answer.body);
        let asked = Asked { method: "DELETE", path: &path, body: Value::Null, locked, stored: &stored };
        let answer = unheard(&mut cluster, &asked);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        let again = cluster.request(0, "DELETE", &path, "");
        assert_eq!(again.status, 404, "who asks of himself is told that it is gone: {}", again.body);
        if path.contains("workers") {
            assert_eq!(answer.json()["name"], "late", "as it was: {}", answer.body);
        }
    }
}

#[test]
fn a_run_by_hand_that_was_made_unheard_is_made_once() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    // Nobody runs this kind, so nothing but the runs by hand is written.
    let asked = json!({"name": "daily", "schedule": {"kind": "every", "everyMs": 86_400_000}, "overlap": "allow",
                       "task": {"kind": "nobodys"}});
    cluster.expect(0, 201, "POST", "/v1/schedules", asked);
    let path = "/v1/schedules/daily/run";
    cluster.expect(0, 200, "POST", path, Value::Null);
    let stored = "SELECT count(*) = 2 FROM runs";
    let answer = unheard(&mut cluster, &Asked { method: "POST", path, body: Value::Null, locked: "runs", stored });
    assert_eq!(answer.status, 200, "{}", answer.body);
    let runs = cluster.get(0, "/v1/schedules/daily/runs");
    assert_eq!(runs["items"].as_array().unwrap().len(), 2, "{runs:#}");
    assert_eq!(answer.json()["taskId"], runs["items"][0]["taskId"], "{runs:#}");
    assert!(answer.json()["taskId"].is_string(), "{}", answer.body);
    assert_eq!(cluster.get(0, "/v1/tasks")["items"].as_array().unwrap().len(), 2);
}

#[test]
fn a_session_that_was_reset_unheard_is_reset_once_and_says_what_it_stopped() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let member = |key: &str| json!({"kind": "noop", "delayMs": 600_000, "session": key});
    for key in ["warm", "room", "room"] {
        cluster.submit(0, member(key));
    }
    cluster.expect(0, 200, "POST", "/v1/sessions/warm/reset", Value::Null);
    let generation = |cluster: &Cluster| cluster.get(0, "/v1/sessions/room")["generation"].as_u64().unwrap();
    let before = generation(&cluster);
    let stored = "SELECT count(*) = 0 FROM tasks";
    let (path, locked) = ("/v1/sessions/room/reset", "sessions");
    let answer = unheard(&mut cluster, &Asked { method: "POST", path, body: Value::Null, locked, stored });
    assert_eq!(answer.status, 200, "{}", answer.body);
    let told = answer.json();
    let n_stopped = ["running", "waiting", "debouncing"].map(|what| told[what].as_u64().unwrap()).iter().sum::<u64>();
    assert_eq!(n_stopped, 2, "{told:#}");
    assert_eq!(generation(&cluster), before + 1);
}

#[test]
fn a_webhook_secret_that_was_renewed_unheard_leaves_the_one_before_in_force() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let path = "/v1/webhooks/secret/rotate";
    let before = cluster.expect(0, 200, "POST", path, Value::Null)["secrets"][0]["secret"].clone();
    let sum = "SELECT md5(value) FROM settings WHERE name LIKE 'webhook%'";
    let stored = format!("SELECT md5(value) <> '{}' FROM settings WHERE name LIKE 'webhook%'", cluster.sql(sum));
    let asked = Asked { method: "POST", path, body: Value::Null, locked: "settings", stored: &stored };
    let answer = unheard(&mut cluster, &asked);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let told = answer.json();
    assert_eq!(told["secrets"][1]["secret"], before, "who checks with it must not be locked out: {told:#}");
    assert_eq!(cluster.get(0, "/v1/webhooks/secret")["secrets"][0]["secret"], told["secrets"][0]["secret"]);
    let audit = cluster.get(0, "/v1/audit");
    let n_told = audit["items"].as_array().unwrap().iter().filter(|entry| entry["action"] == "webhook.secret_rotated");
    // The holder that slept may hear of its commit when it wakes, and write it down too.
    assert!(n_told.count() >= 2, "also what was done unheard: {audit:#}");
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
    let asked = Asked { method: "POST", path: "/v1/tasks", body: body.clone(), locked: "tasks", stored };
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
    let (mut found, holder) = (Vec::new(), cluster.nodes[cluster.holder()].name());
    wait_until(SOON, "every node has its worker there", || {
        let view = cluster.get(0, "/v1/workers");
        let others = view["items"].as_array().unwrap().iter().filter(|worker| worker["name"] != *holder);
        found = others.map(|worker| worker["id"].as_str().unwrap().to_owned()).collect();
        found.len() == 2
    });
    found
}
