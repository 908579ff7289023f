//! Schedules over HTTP: what may be asked for, what is answered, and who may.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Reply, Request, Yard};
use serde_json::{Value, json};

/// A schedule that is not due while any test runs.
fn yearly(name: &str) -> Value {
    json!({"name": name, "schedule": {"kind": "cron", "expr": "0 0 1 1 *"}, "task": {"kind": "noop"}})
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn made(yard: &Yard, body: Value) -> Value {
    let reply = yard.post("/v1/schedules", body).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.json()
}

async fn patch(yard: &Yard, schedule: &str, body: Value) -> Reply {
    yard.request("PATCH", &format!("/v1/schedules/{schedule}")).json(&body).send().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_up_schedule_says_that_it_needs_more_runs_and_statistics_count_schedules() {
    let yard = Yard::new().await;
    made(&yard, with(yearly("a"), json!({"maxRuns": 1}))).await;
    made(&yard, yearly("b")).await;
    assert_eq!(yard.post("/v1/schedules/a/run", Value::Null).await.status, 200);
    let paused = yard.post("/v1/schedules/a/pause", json!({})).await;
    assert_eq!(paused.status, 200, "{paused:?}");
    let refused = patch(&yard, "a", json!({"enabled": true})).await;
    let problem = refused.problem();
    assert_eq!((refused.status, &problem["field"]), (400, &json!("maxRuns")), "{refused:?}");
    assert!(problem["detail"].as_str().unwrap().contains("it has had 1 runs and may have 1"), "{problem}");
    let stats = yard.get("/v1/stats").await.json()["schedules"].clone();
    assert_eq!(stats, json!({"total": 2, "enabled": 1, "fired": 1, "skipped": 0, "missed": 0}));
    assert_eq!(patch(&yard, "a", json!({"enabled": true, "maxRuns": 2})).await.status, 200);
    assert_eq!(yard.get("/v1/stats").await.json()["schedules"]["enabled"], 2);
}

/// goclaw 39, 63 and 69
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named_and_nothing_is_stored() {
    let yard = Yard::new().await;
    let timing = |timing: Value| with(yearly("x"), json!({"schedule": timing}));
    let task = |task: Value| with(yearly("x"), json!({"task": task}));
    let upload = "01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11";
    let table = [
        (json!({"schedule": {"kind": "at"}, "task": {}}), "invalid", "name", "missing"),
        (with(yearly("x"), json!({"name": "My Invalid Name!"})), "invalid", "name", "a name is"),
        (with(yearly("x"), json!({"name": upload})), "invalid", "name", "looks like an id"),
        (with(yearly("x"), json!({"name": "preview"})), "invalid", "name", "not free"),
        (json!({"name": "x", "schedule": {"kind": "at"}}), "invalid", "task", "missing"),
        (with(yearly("x"), json!({"often": 1})), "invalid", "often", "unknown field"),
        (timing(json!({"kind": "at"})), "invalid", "schedule.at", "is required"),
        (timing(json!({"kind": "at", "at": "2001-01-01T00:00:00Z"})), "no_future_run", "schedule.at", "already past"),
        (timing(json!({"kind": "every"})), "invalid", "schedule.everyMs", "is required"),
        (timing(json!({"kind": "every", "everyMs": 0})), "invalid", "schedule.everyMs", "from 1000"),
        (timing(json!({"kind": "every", "everyMs": 999})), "invalid", "schedule.everyMs", "from 1000"),
        (timing(json!({"kind": "every", "everyMs": -5})), "invalid", "schedule.everyMs", "-5"),
        (timing(json!({"kind": "every", "everyMs": 5000, "tz": "UTC"})), "invalid", "schedule.tz", "kind `cron`"),
        (timing(json!({"kind": "weekly"})), "invalid", "schedule.kind", "weekly"),
        (timing(json!({"kind": "cron", "expr": ""})), "invalid_expression", "schedule.expr", "column 1"),
        (timing(json!({"kind": "cron", "expr": "bad cron"})), "invalid_expression", "schedule.expr", "column 1"),
        (timing(json!({"kind": "cron", "expr": "0 25 * * *"})), "invalid_expression", "schedule.expr", "column 3"),
        (timing(json!({"kind": "cron", "expr": "0 0 30 2 *"})), "invalid_expression", "schedule.expr", "no such day"),
        (
            timing(json!({"kind": "cron", "expr": "@daily", "tz": "Mars/Olympus"})),
            "unknown_time_zone",
            "schedule.tz",
            "Mars/Olympus",
        ),
        (with(yearly("x"), json!({"endAt": "2001-01-01T00:00:00Z"})), "no_future_run", "endAt", "no run lies before"),
        (
            with(yearly("x"), json!({"startAt": "2100-01-01T00:00:00Z", "endAt": "2099-01-01T00:00:00Z"})),
            "invalid",
            "endAt",
            "before startAt",
        ),
        (with(yearly("x"), json!({"maxRuns": 0})), "invalid", "maxRuns", "at least 1"),
        (with(yearly("x"), json!({"alertAfter": 0})), "invalid", "alertAfter", "at least 1"),
        (with(yearly("x"), json!({"disableAfter": 0})), "invalid", "disableAfter", "at least 1"),
        (with(yearly("x"), json!({"jitterMs": 86_400_001u64})), "invalid", "jitterMs", "from 0 to"),
        (with(yearly("x"), json!({"overlap": "both"})), "invalid", "overlap", "both"),
        (with(yearly("x"), json!({"catchUp": "all"})), "invalid", "catchUp", "all"),
        (with(yearly("x"), json!({"catchUp": {"limit": 0, "expiryMs": 1}})), "invalid", "catchUp.limit", "1 to 100"),
        (with(yearly("x"), json!({"catchUp": {"limit": 1, "expiryMs": 0}})), "invalid", "catchUp.expiryMs", "from 1"),
        (task(json!({})), "invalid", "task.kind", "is required"),
        (task(json!({"kind": "noop", "prio": 1})), "invalid", "task.prio", "unknown field"),
        (task(json!({"kind": "noop", "runAt": "2100-01-01T00:00:00Z"})), "invalid", "task.runAt", "every run"),
        (task(json!({"kind": "noop", "delayMs": 1})), "invalid", "task.delayMs", "every run"),
        (task(json!({"kind": "noop", "deadline": "2100-01-01T00:00:00Z"})), "invalid", "task.deadline", "every run"),
        (task(json!({"kind": "noop", "dependsOn": [upload]})), "invalid", "task.dependsOn", "every run"),
        (task(json!({"kind": "noop", "idempotencyKey": "k"})), "invalid", "task.idempotencyKey", "every run"),
        (task(json!({"kind": "noop", "sentAt": "2026-01-01T00:00:00Z"})), "invalid", "task.sentAt", "every run"),
        (task(json!({"kind": "noop", "gates": ["g"]})), "unknown_gate", "task.gates[0]", "no gate"),
        (task(json!({"kind": "process", "payload": {}})), "invalid", "task.payload.argv", "argv"),
    ];
    for (body, code, field, text) in table {
        let problem = yard.post("/v1/schedules", body.clone()).await.problem();
        let facts = (problem["status"].as_u64(), problem["code"].as_str(), problem["field"].as_str());
        assert_eq!(facts, (Some(400), Some(code), Some(field)), "{body}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(text), "{body}: {problem}");
    }
    assert_eq!(yard.get("/v1/schedules").await.json()["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_shown_with_every_default() {
    let yard = Yard::new().await;
    let reply = yard.post("/v1/schedules", yearly("new-year")).await;
    let schedule = reply.json();
    let id = schedule["id"].as_str().unwrap();
    assert_eq!(reply.header("location"), Some(format!("/v1/schedules/{id}").as_str()));
    assert_eq!(schedule["description"], "at 00:00, on day 1 of the month, in January, in UTC");
    assert_eq!(schedule["schedule"], json!({"kind": "cron", "expr": "0 0 1 1 *", "tz": "UTC"}));
    assert_eq!(schedule["task"], json!({"kind": "noop", "agent": "default", "lane": "cron"}));
    for (field, value) in [
        ("state", json!("enabled")),
        ("enabled", json!(true)),
        ("overlap", json!("skip")),
        ("catchUp", json!("skip")),
        ("jitterMs", json!(0)),
        ("staggerMs", json!(0)),
        ("exact", json!(false)),
        ("deleteAfterRun", json!(false)),
        ("runs", json!(0)),
        ("running", json!(0)),
        ("consecutiveFailures", json!(0)),
        ("revision", json!(1)),
    ] {
        assert_eq!(schedule[field], value, "{field}");
    }
    let next = schedule["nextRuns"].as_array().unwrap();
    assert_eq!((next.len(), &next[0]), (5, &schedule["nextRunAt"]));
    assert!(next.iter().all(|at| at.as_str().unwrap().ends_with("-01-01T00:00:00.000Z")), "{schedule}");
    for by in [id, "new-year"] {
        assert_eq!(yard.get(&format!("/v1/schedules/{by}")).await.json(), schedule, "{by}");
    }
    assert_eq!(yard.get("/v1/schedules").await.json()["items"], json!([schedule]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fires_on_the_hour_is_spread_over_five_minutes_unless_it_is_exact() {
    let yard = Yard::new().await;
    let hourly = |name: &str| with(yearly(name), json!({"schedule": {"kind": "cron", "expr": "@hourly"}}));
    let mut staggers = Vec::new();
    for n in 0..8 {
        let schedule = made(&yard, hourly(&format!("h{n}"))).await;
        let stagger = schedule["staggerMs"].as_u64().unwrap();
        assert!(stagger < 300_000, "{schedule}");
        let at = schedule["nextRunAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
        assert_eq!(at as u64 % 3_600_000, stagger);
        staggers.push(stagger);
    }
    staggers.sort_unstable();
    staggers.dedup();
    assert!(staggers.len() > 4, "{staggers:?}");
    let exact = made(&yard, with(hourly("exact"), json!({"exact": true}))).await;
    assert_eq!(exact["staggerMs"], 0);
    let patched = patch(&yard, "h0", json!({"exact": true})).await.json();
    assert_eq!(patched["staggerMs"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_laid_over_field_by_field() {
    let yard = Yard::new().await;
    let first =
        with(yearly("a"), json!({"maxRuns": 9, "schedule": {"kind": "cron", "expr": "@yearly", "tz": "Asia/Tokyo"}}));
    let first = made(&yard, first).await;
    let change = json!({"name": "b", "schedule": {"expr": "0 9 1 1 *"}, "task": {"agent": "bot"}, "maxRuns": null, "overlap": "queue"});
    let second = patch(&yard, "a", change).await.json();
    assert_eq!((&second["id"], &second["name"], &second["revision"]), (&first["id"], &json!("b"), &json!(2)));
    assert_eq!(second["schedule"], json!({"kind": "cron", "expr": "0 9 1 1 *", "tz": "Asia/Tokyo"}));
    assert_eq!(second["task"], json!({"kind": "noop", "agent": "bot", "lane": "cron"}));
    assert_eq!((second.get("maxRuns"), &second["overlap"]), (None, &json!("queue")));
    assert!(second["nextRunAt"].as_str().unwrap().ends_with("-01-01T00:00:00.000Z"), "nine o'clock in Tokyo: {second}");
    assert_eq!(yard.get("/v1/schedules/a").await.status, 404);
    made(&yard, yearly("c")).await;
    let taken = patch(&yard, "b", json!({"name": "c"})).await.problem();
    assert_eq!(
        (&taken["status"], &taken["code"], &taken["field"]),
        (&json!(409), &json!("name_taken"), &json!("name"))
    );
    let wrong = patch(&yard, "b", json!({"schedule": {"expr": "0 0 30 2 *"}})).await.problem();
    assert_eq!((&wrong["status"], &wrong["field"]), (&json!(400), &json!("schedule.expr")));
    assert_eq!(yard.get("/v1/schedules/b").await.json(), second, "what is refused changes nothing");
    assert_eq!(yard.post("/v1/schedules", yearly("b")).await.problem()["code"], "name_taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_window_moves_the_next_run() {
    let yard = Yard::new().await;
    let first = made(&yard, yearly("a")).await;
    let same = patch(&yard, "a", json!({"endAt": "2099-01-01T00:00:00Z"})).await.json();
    assert_eq!(same["nextRunAt"], first["nextRunAt"]);
    let later = patch(&yard, "a", json!({"startAt": "2090-06-01T00:00:00Z"})).await.json();
    assert_eq!(later["nextRunAt"], "2091-01-01T00:00:00.000Z", "{later}");
    assert_eq!(later["nextRuns"].as_array().unwrap().len(), 5);
    let never = patch(&yard, "a", json!({"endAt": "2090-12-31T00:00:00Z"})).await.problem();
    assert_eq!((&never["code"], &never["field"]), (&json!("no_future_run"), &json!("endAt")));
    let back = patch(&yard, "a", json!({"startAt": null, "endAt": null})).await.json();
    assert_eq!(back["nextRunAt"], first["nextRunAt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_one_stays_paused_when_it_is_changed() {
    let yard = Yard::new().await;
    made(&yard, yearly("a")).await;
    let paused = yard.post("/v1/schedules/a/pause", json!({"reason": "on holiday"})).await.json();
    assert_eq!((&paused["state"], &paused["reason"]), (&json!("paused"), &json!("on holiday")));
    assert_eq!((paused.get("nextRunAt"), &paused["nextRuns"]), (None, &json!([])));
    let changed = patch(&yard, "a", json!({"task": {"agent": "bot"}})).await.json();
    assert_eq!((&changed["state"], &changed["reason"]), (&json!("paused"), &json!("on holiday")));
    let enabled = patch(&yard, "a", json!({"enabled": true})).await.json();
    assert_eq!((&enabled["state"], enabled.get("reason")), (&json!("enabled"), None));
    assert!(enabled["nextRunAt"].is_string());
    let off = made(&yard, with(yearly("off"), json!({"enabled": false}))).await;
    assert_eq!((&off["state"], off.get("nextRunAt")), (&json!("paused"), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paged_and_filtered() {
    let yard = Yard::new().await;
    for n in 0..5 {
        let agent = if n % 2 == 0 { "even" } else { "odd" };
        made(
            &yard,
            with(yearly(&format!("s{n}")), json!({"task": {"kind": "noop", "agent": agent}, "enabled": n < 3})),
        )
        .await;
    }
    let names = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    let first = yard.get("/v1/schedules?limit=2").await.json();
    assert_eq!(names(&first), ["s4", "s3"]);
    let cursor = first["nextCursor"].as_str().unwrap();
    assert_eq!(names(&yard.get(&format!("/v1/schedules?cursor={cursor}")).await.json()), ["s2", "s1", "s0"]);
    assert_eq!(names(&yard.get("/v1/schedules?enabled=false").await.json()), ["s4", "s3"]);
    assert_eq!(names(&yard.get("/v1/schedules?agent=odd&enabled=true").await.json()), ["s1"]);
    assert_eq!(yard.get("/v1/schedules?cursor=7").await.problem()["field"], "cursor");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_stores_nothing() {
    let yard = Yard::with(json!({"schedules": {"defaultTz": "America/Toronto"}})).await;
    let body = json!({"schedule": {"kind": "cron", "expr": "0 9 * * *"}, "count": 3});
    let preview = yard.post("/v1/schedules/preview", body).await.json();
    assert_eq!(preview["description"], "at 09:00, in America/Toronto");
    let zone = jiff::tz::TimeZone::get("America/Toronto").unwrap();
    let runs = preview["nextRuns"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for at in runs {
        let at = at.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().to_zoned(zone.clone());
        assert_eq!((at.hour(), at.minute()), (9, 0), "{at}");
    }
    let every = json!({"schedule": {"kind": "every", "everyMs": 90_000}});
    assert_eq!(yard.post("/v1/schedules/preview", every).await.json()["description"], "every 1 minute 30 seconds");
    let many = json!({"schedule": {"kind": "cron", "expr": "@daily"}, "count": 101});
    assert_eq!(yard.post("/v1/schedules/preview", many).await.problem()["field"], "count");
    assert_eq!(yard.get("/v1/schedules").await.json()["items"], json!([]));
}

/// Goclaw 50, and the rest of what can be done to one.
/// goclaw 50
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_schedule_is_not_found() {
    let yard = Yard::new().await;
    for schedule in ["nobody", "01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11"] {
        for (method, part) in [
            ("GET", ""),
            ("DELETE", ""),
            ("PATCH", ""),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("POST", "/run"),
            ("GET", "/runs"),
        ] {
            let request = yard.request(method, &format!("/v1/schedules/{schedule}{part}"));
            let request = if method == "PATCH" { request.json(&json!({"maxRuns": 1})) } else { request };
            let problem = request.send().await.problem();
            assert_eq!((&problem["status"], &problem["code"]), (&json!(404), &json!("not_found")), "{method} {part}");
        }
    }
}

/// Goclaw 61: bound keys see and touch their agents' schedules only.
/// goclaw 61
#[tokio::test(flavor = "multi_thread")]
async fn a_bound_key_has_the_schedules_of_its_agents() {
    let yard = Yard::new().await;
    let key =
        yard.post("/v1/keys", json!({"name": "b", "scopes": ["read", "submit"], "agents": ["mine"]})).await.json();
    let key = key["key"].as_str().unwrap().to_owned();
    let ask = async |method: &str, path: &str, body: Value| {
        let request = Request::new(&yard.addr, method, path).header("X-API-Key", &key);
        let request = if body.is_null() { request } else { request.json(&body) };
        request.send().await
    };
    let other = made(&yard, with(yearly("other"), json!({"task": {"kind": "noop", "agent": "other"}}))).await;
    let own = with(yearly("own"), json!({"task": {"kind": "noop", "agent": "mine"}}));
    let own = ask("POST", "/v1/schedules", own).await;
    assert_eq!(own.status, 201, "its own session is no one else's: {own:?}");
    let listed = ask("GET", "/v1/schedules", Value::Null).await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(ask("GET", "/v1/schedules/other", Value::Null).await.problem()["code"], "foreign_agent");
    let run = ask("POST", "/v1/schedules/own/run", Value::Null).await.json();
    assert_eq!(ask("DELETE", "/v1/schedules/own", Value::Null).await.status, 204);
    let id = own.json()["id"].as_str().unwrap().to_owned();
    let runs = ask("GET", &format!("/v1/schedules/{id}/runs"), Value::Null).await.json();
    assert_eq!(runs["items"][0]["taskId"], run["taskId"], "the runs of a deleted one are still its own");
    yard.post("/v1/schedules/other/run", Value::Null).await;
    assert_eq!(yard.request("DELETE", "/v1/schedules/other").status().await, 204);
    let foreign = format!("/v1/schedules/{}/runs", other["id"].as_str().unwrap());
    assert_eq!(ask("GET", &foreign, Value::Null).await.problem()["code"], "foreign_agent");
    let moved = with(yearly("moved"), json!({"task": {"kind": "noop", "agent": "other"}}));
    assert_eq!(ask("POST", "/v1/schedules", moved).await.problem()["code"], "foreign_agent");
}

/// Goclaw 64, in our terms: who may not run programs may stop a schedule that does, but not start, enable or change it.
/// goclaw 64: who may not run it may stop it, and nothing else
#[tokio::test(flavor = "multi_thread")]
async fn without_exec_a_schedule_of_programs_can_only_be_stopped() {
    let yard = Yard::new().await;
    let key = yard.post("/v1/keys", json!({"name": "s", "scopes": ["read", "submit"]})).await.json();
    let key = key["key"].as_str().unwrap().to_owned();
    let ask = async |method: &str, path: &str, body: Value| {
        let request = Request::new(&yard.addr, method, path).header("X-API-Key", &key).json(&body);
        request.send().await
    };
    let program = with(yearly("p"), json!({"task": {"kind": "process", "payload": {"argv": ["true"]}}}));
    assert_eq!(ask("POST", "/v1/schedules", program.clone()).await.problem()["code"], "missing_scope");
    made(&yard, program).await;
    assert_eq!(ask("POST", "/v1/schedules/p/run", json!({})).await.problem()["scope"], "exec");
    assert_eq!(ask("PATCH", "/v1/schedules/p", json!({"maxRuns": 1})).await.problem()["scope"], "exec");
    assert_eq!(ask("POST", "/v1/schedules/p/pause", json!({})).await.json()["state"], "paused");
    assert_eq!(ask("POST", "/v1/schedules/p/resume", json!({})).await.problem()["scope"], "exec");
    assert_eq!(ask("DELETE", "/v1/schedules/p", json!({})).await.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_has_a_line_and_retries_of_its_own() {
    let yard = Yard::with(json!({"kinds": {"http": {"retry": {"maxRetries": 7}}}})).await;
    let schedule = made(&yard, yearly("a")).await;
    let run = yard.post("/v1/schedules/a/run", Value::Null).await.json();
    let task = yard.ended(&run["taskId"]).await;
    let session = format!("cron/{}", schedule["id"].as_str().unwrap());
    assert_eq!((task["session"].as_str(), &task["lane"]), (Some(session.as_str()), &json!("cron")));
    assert_eq!(task["schedule"], json!({"id": schedule["id"], "run": 1}));
    let retry = &task["retry"];
    assert_eq!((&retry["maxRetries"], &retry["backoffMs"]), (&json!(3), &json!(2000)), "{retry}");
    assert_eq!((&retry["maxBackoffMs"], &retry["jitter"]), (&json!(30_000), &json!(0.25)), "{retry}");
    let call = json!({"kind": "http", "payload": {"url": "http://127.0.0.1:9/"}, "session": "s", "retry": {"backoffMs": 1, "jitter": 0}});
    made(&yard, with(yearly("b"), json!({"task": call}))).await;
    let run = yard.post("/v1/schedules/b/run", Value::Null).await.json();
    let task = yard.get(&format!("/v1/tasks/{}", run["taskId"].as_str().unwrap())).await.json();
    assert_eq!((&task["session"], &task["retry"]["maxRetries"]), (&json!("s"), &json!(7)), "{task}");
    assert_eq!((&task["retry"]["backoffMs"], &task["retry"]["maxBackoffMs"]), (&json!(1), &json!(30_000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_told_and_written_down() {
    let yard = Yard::new().await;
    let mut events = yard.events("?types=schedule.*", None).await;
    let secret = json!({"task": {"kind": "noop", "payload": {"message": "canary"}}});
    let schedule = made(&yard, with(yearly("a"), secret)).await;
    patch(&yard, "a", json!({"maxRuns": 5})).await;
    yard.post("/v1/schedules/a/pause", json!({"reason": "why"})).await;
    yard.post("/v1/schedules/a/resume", Value::Null).await;
    let run = yard.post("/v1/schedules/a/run", Value::Null).await.json();
    assert_eq!(yard.request("DELETE", "/v1/schedules/a").status().await, 204);
    for kind in ["created", "changed", "paused", "resumed", "fired", "deleted"] {
        let event = events.next().await.unwrap();
        assert_eq!(event.event, format!("schedule.{kind}"));
        assert_eq!((&event.data["schedule"], &event.data["data"]["name"]), (&schedule["id"], &json!("a")));
        match kind {
            "paused" => assert_eq!(event.data["reason"], "why"),
            "fired" => {
                assert_eq!((&event.data["task"], &event.data["data"]["run"]), (&run["taskId"], &json!(1)));
                assert_eq!(event.data["data"]["scheduledFor"], run["scheduledFor"]);
            }
            _ => {}
        }
    }
    let audit = yard.get("/v1/audit").await;
    let items = audit.json()["items"].clone();
    let actions: Vec<&str> = items.as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    let expected =
        ["deleted", "run", "resumed", "paused", "changed", "created"].map(|action| format!("schedule.{action}"));
    assert_eq!(actions, expected);
    assert!(items.as_array().unwrap().iter().all(|entry| entry["subject"] == "a"), "{items}");
    assert!(!audit.body.contains("canary"), "payloads are not written down: {audit:?}");
    let mut one = yard.events(&format!("?schedule={}", schedule["id"].as_str().unwrap()), Some("0-0")).await;
    assert_eq!(one.next().await.unwrap().event, "schedule.created");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_not_more_than_the_limit() {
    let yard = Yard::with(json!({"schedules": {"max": 1}})).await;
    made(&yard, yearly("a")).await;
    let problem = yard.post("/v1/schedules", yearly("b")).await.problem();
    assert_eq!((&problem["code"], &problem["limit"]), (&json!("too_many_schedules"), &json!(1)));
    assert_eq!(yard.request("DELETE", "/v1/schedules/a").status().await, 204);
    made(&yard, yearly("b")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_section_of_schedules_is_checked() {
    let yard = Yard::new().await;
    for (field, value) in [("defaultTz", json!("Mars/Olympus")), ("keepRuns", json!(0)), ("max", json!(-1))] {
        let patch = yard.request("PATCH", "/v1/config").json(&json!({"schedules": {field: value}})).send().await;
        let problem = patch.problem();
        assert_eq!(problem["field"], format!("schedules.{field}"), "{problem}");
    }
}
