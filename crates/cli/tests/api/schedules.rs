//! Schedules: when they run, what becomes of each run, and what is kept of it. `G4.n` are goclaw's cases.
//!
//! Three of those have no counterpart. G4.65 (an answer that says NO_REPLY is not delivered) is the host's, which reads
//! results and decides what it tells a chat. G4.68 (run only if due): a run by hand is always made, and says `skipped`
//! when it found no place. Of G4.59 (a payload that cannot be read) only the part is left that a row can come to by
//! itself, a time zone that is not known any more: `store/tests/rules/schedules.rs`. G4.66 is an expression: `cron`.

use serde_json::{Value, json};

use crate::scene::{Peer, Reply, SOON, Scene, from_now, ms, n, text};
use crate::support::wait_until;

impl Scene {
    fn schedule(&self, body: Value) -> Value {
        self.expect(201, "POST", "/v1/schedules", body)
    }

    fn shown(&self, schedule: &str) -> Value {
        self.get(&format!("/v1/schedules/{schedule}"))
    }

    /// Newest first.
    fn runs(&self, schedule: &str) -> Vec<Value> {
        self.get(&format!("/v1/schedules/{schedule}/runs"))["items"].as_array().cloned().unwrap_or_default()
    }

    fn act(&self, schedule: &str, act: &str) -> Value {
        self.expect(200, "POST", &format!("/v1/schedules/{schedule}/{act}"), json!({}))
    }

    fn change(&self, schedule: &str, body: Value) -> Value {
        self.expect(200, "PATCH", &format!("/v1/schedules/{schedule}"), body)
    }

    /// Waits until so many runs have ended as this, and gives all.
    fn until_runs(&self, schedule: &str, outcome: &str, n: usize) -> Vec<Value> {
        let is_it = |run: &&Value| run["outcome"] == outcome;
        wait_until(SOON, &format!("{n} runs of {schedule} are {outcome}"), || {
            self.runs(schedule).iter().filter(is_it).count() >= n
        });
        self.runs(schedule)
    }

    /// One run by hand, to its end.
    fn ran(&self, schedule: &str) -> Value {
        let run = self.act(schedule, "run");
        if let Some(task) = run["taskId"].as_str() {
            self.end(task);
        }
        let number = run["run"].clone();
        let closed = || self.runs(schedule).into_iter().find(|run| run["run"] == number && run["outcome"] != "running");
        wait_until(SOON, "the run is closed", || closed().is_some());
        closed().unwrap()
    }
}

fn every(name: &str, every_ms: u64, task: Value) -> Value {
    json!({"name": name, "schedule": {"kind": "every", "everyMs": every_ms}, "task": task})
}

/// Not due while any test runs.
fn rarely(name: &str, task: Value) -> Value {
    every(name, 600_000, task)
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn noop() -> Value {
    json!({"kind": "noop"})
}

fn failing() -> Value {
    json!({"kind": "noop", "payload": {"fail": "task"}, "retry": {"maxRetries": 0}})
}

/// Blocks its run until it is cancelled.
fn endless() -> Value {
    json!({"kind": "noop", "payload": {"sleepMs": 600_000}})
}

/// G4.40: `at` is its own next run, `every` counts from now, an expression of every minute fires within one.
#[test]
fn the_next_run_follows_from_the_kind() {
    let scene = Scene::new();
    let at = from_now(3_600_000);
    let once = scene.schedule(json!({"name": "once", "schedule": {"kind": "at", "at": at}, "task": noop()}));
    assert_eq!(ms(&once["nextRunAt"]), at.parse::<jiff::Timestamp>().unwrap().as_millisecond());
    assert_eq!(once["nextRuns"].as_array().unwrap().len(), 1);
    let five = scene.schedule(every("five", 500_000, noop()));
    assert_eq!(ms(&five["nextRunAt"]) - ms(&five["schedule"]["anchor"]), 500_000);
    assert!(ms(&five["createdAt"]) - ms(&five["schedule"]["anchor"]) < 5000, "{five:#}");
    let expr = json!({"kind": "cron", "expr": "* * * * *"});
    let minute = scene.schedule(json!({"name": "minute", "schedule": expr, "task": noop(), "enabled": false}));
    let minute = scene.act(&text(&minute["id"]), "resume");
    let ahead = ms(&minute["nextRunAt"]) - ms(&minute["updatedAt"]);
    assert!(ahead > 0 && ahead <= 60_000, "{ahead}");
}

/// G4.41: an expression without a zone is read in the configured one.
#[test]
fn the_default_time_zone_is_configured() {
    let scene = Scene::with("[schedules]\ndefaultTz = \"America/Toronto\"\n");
    let expr = json!({"kind": "cron", "expr": "0 9 * * *"});
    let made = scene.schedule(json!({"name": "nine", "schedule": expr, "task": noop()}));
    assert_eq!(made["schedule"]["tz"], "America/Toronto");
    let zone = jiff::tz::TimeZone::get("America/Toronto").unwrap();
    for at in made["nextRuns"].as_array().unwrap() {
        let at = text(at).parse::<jiff::Timestamp>().unwrap().to_zoned(zone.clone());
        assert_eq!((at.hour(), at.minute()), (9, 0), "{at}");
    }
}

/// G4.43, decided otherwise: a run by hand shifts no other.
#[test]
fn a_run_by_hand_shifts_no_other() {
    let scene = Scene::new();
    let before = scene.schedule(rarely("a", noop()));
    let run = scene.ran("a");
    assert_eq!((&run["cause"], &run["outcome"]), (&json!("hand"), &json!("completed")));
    let after = scene.shown("a");
    assert_eq!(after["nextRunAt"], before["nextRunAt"]);
    assert_eq!((n(&after["runs"]), &after["lastRun"]["run"]), (1, &json!(1)));
}

/// G4.46: what is made is enabled, has an id and a next run; the list shows all, or only those asked for.
#[test]
fn a_new_schedule_is_enabled_and_listed() {
    let scene = Scene::new();
    let made = scene.schedule(rarely("a", noop()));
    scene.schedule(with(rarely("b", noop()), json!({"enabled": false})));
    assert!(made["enabled"] == true && made["nextRunAt"].is_string() && made["id"].is_string(), "{made:#}");
    assert_eq!(scene.ids("/v1/schedules").len(), 2);
    assert_eq!(scene.ids("/v1/schedules?enabled=true"), [text(&made["id"])]);
}

/// G4.47: a pause takes the next run away, a resume brings it back, and a second resume changes nothing.
#[test]
fn a_pause_takes_the_next_run_away_and_a_resume_brings_it_back() {
    let scene = Scene::new();
    let made = scene.schedule(rarely("a", noop()));
    let paused = scene.act("a", "pause");
    assert_eq!((&paused["state"], paused.get("nextRunAt")), (&json!("paused"), None));
    assert_eq!(scene.act("a", "pause"), paused, "once is enough");
    let resumed = scene.act("a", "resume");
    assert_eq!(resumed["nextRunAt"], made["nextRunAt"], "the anchor decides");
    assert_eq!(scene.act("a", "resume"), resumed);
}

/// G4.48: one whose time has passed cannot be resumed, and stays paused.
#[test]
fn what_lies_behind_cannot_be_resumed() {
    let scene = Scene::new();
    let at = from_now(1500);
    let once = json!({"name": "a", "schedule": {"kind": "at", "at": at}, "task": noop(), "enabled": false});
    scene.schedule(once);
    let at = at.parse::<jiff::Timestamp>().unwrap();
    wait_until(SOON, "its time has passed", || jiff::Timestamp::now() > at);
    let problem = scene.problem(409, "POST", "/v1/schedules/a/resume", json!({}));
    assert_eq!(problem["code"], "no_future_run");
    let shown = scene.shown("a");
    assert_eq!((&shown["state"], shown.get("nextRunAt")), (&json!("paused"), None));
    let enabled = scene.problem(400, "PATCH", "/v1/schedules/a", json!({"enabled": true}));
    assert_eq!((&enabled["code"], &enabled["field"]), (&json!("no_future_run"), &json!("schedule.at")));
}

/// G4.49, G4.67: a single time is deleted with its run, whose record stays readable.
#[test]
fn a_single_time_goes_with_its_run_and_its_run_stays() {
    let scene = Scene::new();
    let at = json!({"kind": "at", "at": from_now(1200)});
    let made = scene.schedule(json!({"name": "a", "schedule": at, "task": {"kind": "noop", "payload": {"result": 7}}}));
    assert_eq!(made["deleteAfterRun"], true);
    let id = text(&made["id"]);
    let runs = scene.until_runs(&id, "completed", 1);
    assert_eq!((runs.len(), &runs[0]["scheduledFor"]), (1, &made["nextRunAt"]));
    assert_eq!((&runs[0]["cause"], &runs[0]["tail"]), (&json!("time"), &json!("7")));
    wait_until(SOON, "it is gone", || scene.request("GET", &format!("/v1/schedules/{id}"), "").status == 404);
    assert_eq!(scene.runs(&id), runs);
    assert_eq!(scene.problem(404, "GET", "/v1/schedules/a/runs", json!({}))["code"], "not_found", "its name is free");
    let kept = json!({"kind": "at", "at": from_now(1200)});
    let kept = json!({"name": "a", "schedule": kept, "task": noop(), "deleteAfterRun": false});
    let kept = text(&scene.schedule(kept)["id"]);
    scene.until_runs(&kept, "completed", 1);
    wait_until(SOON, "it is done", || scene.shown(&kept)["state"] == "done");
    let again = scene.change(&kept, json!({"schedule": {"at": from_now(600_000)}}));
    assert_eq!((&again["state"], n(&again["runs"])), (&json!("enabled"), 1), "another time begins it anew");
}

/// G4.52, decided otherwise: a single time that passed while the server was down runs late, within the hour, and once.
#[test]
fn a_single_time_that_passed_meanwhile_runs_late() {
    let mut scene = Scene::new();
    let at = from_now(1500);
    let made = scene.schedule(json!({"name": "a", "schedule": {"kind": "at", "at": at}, "task": noop()}));
    scene.server_mut().kill9();
    let at = at.parse::<jiff::Timestamp>().unwrap();
    wait_until(SOON, "its time has passed", || jiff::Timestamp::now() > at);
    scene.start_again();
    let runs = scene.until_runs(&text(&made["id"]), "completed", 1);
    assert_eq!((runs.len(), &runs[0]["scheduledFor"]), (1, &made["nextRunAt"]));
}

/// G4.53: what is due runs, and its record says how it ended.
#[test]
fn each_run_is_recorded_with_its_end() {
    let scene = Scene::new();
    scene.schedule(every("good", 1000, noop()));
    let runs = scene.until_runs("good", "completed", 2);
    scene.act("good", "pause");
    let (second, first) = (&runs[runs.len() - 2], &runs[runs.len() - 1]);
    assert_eq!((n(&first["run"]), n(&second["run"])), (1, 2));
    assert_eq!(ms(&second["scheduledFor"]) - ms(&first["scheduledFor"]), 1000);
    let task = scene.task(&text(&first["taskId"]));
    assert_eq!((&task["state"], &task["schedule"]["run"]), (&json!("completed"), &json!(1)));
    assert_eq!((&first["endedAt"], &first["startedAt"]), (&task["finishedAt"], &task["startedAt"]));
    scene.schedule(rarely("bad", failing()));
    let bad = scene.ran("bad");
    assert_eq!((&bad["outcome"], &bad["class"], n(&bad["attempts"])), (&json!("failed"), &json!("task"), 1));
    assert!(text(&bad["reason"]).contains("told to fail"), "{bad:#}");
    assert_eq!(scene.shown("bad")["lastRun"]["outcome"], "failed");
}

/// G4.54: retries belong to the run: it is one run with several attempts.
#[test]
fn a_run_that_is_retried_is_one_run() {
    let scene = Scene::new();
    let peer = Peer::start(|n| if n < 2 { Reply::text(500, "") } else { Reply::json(json!({})) });
    scene.schedule(rarely("a", peer.task(json!({"retry": {"maxRetries": 2, "backoffMs": 1}}))));
    let run = scene.ran("a");
    assert_eq!((&run["outcome"], n(&run["attempts"])), (&json!("completed"), 3));
    let never = Peer::start(|_| Reply::text(500, "no"));
    scene.schedule(rarely("b", never.task(json!({"retry": {"maxRetries": 2, "backoffMs": 1}}))));
    let run = scene.ran("b");
    assert_eq!((&run["outcome"], n(&run["attempts"]), never.asked().len()), (&json!("failed"), 3, 3));
    assert_eq!((scene.runs("a").len(), scene.runs("b").len()), (1, 1));
}

/// G4.56: of what a task gives, the last 16 KiB are kept.
#[test]
fn the_end_of_a_long_result_is_kept() {
    let scene = Scene::new();
    let long = format!("{}THE END", "x".repeat(20_000));
    scene.schedule(rarely("long", json!({"kind": "noop", "payload": {"result": long}})));
    let tail = text(&scene.ran("long")["tail"]);
    assert_eq!(tail.len(), 16 * 1024);
    assert!(tail.ends_with("xTHE END\""), "{}", &tail[tail.len() - 20..]);
    let short = "x".repeat(16 * 1024 - 2);
    scene.schedule(rarely("short", json!({"kind": "noop", "payload": {"result": short}})));
    assert_eq!(text(&scene.ran("short")["tail"]), format!("\"{short}\""), "what just fits is whole");
}

/// G4.58: what is paused during a run stays paused behind its end.
#[test]
fn what_is_paused_during_a_run_stays_paused() {
    let scene = Scene::new();
    scene.schedule(rarely("a", endless()));
    let run = scene.act("a", "run");
    let task = text(&run["taskId"]);
    scene.until_state(&task, "running");
    assert_eq!(n(&scene.act("a", "pause")["running"]), 1);
    scene.cancel(&task);
    scene.until_runs("a", "cancelled", 1);
    let shown = scene.shown("a");
    assert_eq!((&shown["state"], shown.get("nextRunAt"), n(&shown["running"])), (&json!("paused"), None, 0));
}

/// G4.60: runs come in pages, the latest first; tokens and durations are kept.
#[test]
fn runs_come_in_pages_the_latest_first() {
    let scene = Scene::new();
    let script = "echo '{\"usage\": {\"inputTokens\": 12, \"outputTokens\": 3}}' >> $RUNYARD_REPORT";
    scene.schedule(rarely("a", json!({"kind": "process", "payload": {"shell": script}})));
    let first = scene.ran("a");
    assert_eq!((n(&first["inputTokens"]), n(&first["outputTokens"])), (12, 3), "{first:#}");
    assert_eq!(n(&first["durationMs"]) as i64, ms(&first["endedAt"]) - ms(&first["startedAt"]));
    scene.change("a", json!({"task": {"kind": "noop", "payload": null}}));
    (0..4).for_each(|_| drop(scene.ran("a")));
    let mut pages = Vec::new();
    let mut path = "/v1/schedules/a/runs?limit=2".to_owned();
    loop {
        let page = scene.get(&path);
        pages.push(page["items"].as_array().unwrap().iter().map(|run| n(&run["run"])).collect::<Vec<_>>());
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/v1/schedules/a/runs?limit=2&cursor={cursor}");
    }
    assert_eq!(pages, [vec![5, 4], vec![3, 2], vec![1]]);
}

/// G4.62: a change survives a restart, and so do the runs.
#[test]
fn a_change_survives_a_restart() {
    let mut scene = Scene::new();
    scene.schedule(rarely("a", noop()));
    let run = scene.ran("a");
    let changed = scene.change("a", json!({"name": "b", "schedule": {"kind": "cron", "expr": "@daily"}}));
    scene.restart();
    assert_eq!(scene.shown("b"), changed);
    assert_eq!(scene.runs("b"), [run]);
}

/// G4.71: a run that is stopped is not retried, and says nothing about the next.
#[test]
fn a_stopped_run_is_not_retried() {
    let scene = Scene::new();
    scene.schedule(rarely("a", with(endless(), json!({"retry": {"maxRetries": 3, "backoffMs": 1}}))));
    let run = scene.act("a", "run");
    let task = text(&run["taskId"]);
    scene.until_state(&task, "running");
    scene.cancel(&task);
    let ended = scene.ends_as("cancelled", &task);
    assert_eq!(n(&ended["attempts"]), 1);
    let runs = scene.until_runs("a", "cancelled", 1);
    assert_eq!((runs.len(), n(&scene.shown("a")["consecutiveFailures"])), (1, 0));
}

/// G4.57: a clean stop waits for the run that is at work, and its end is known afterwards. A kind that nobody offers breaks
/// nothing: its run waits.
#[test]
fn a_stop_waits_for_a_run_and_one_of_an_unknown_kind_waits_for_a_worker() {
    let mut scene = Scene::new();
    scene.schedule(rarely("a", json!({"kind": "noop", "payload": {"sleepMs": 700, "result": "whole"}})));
    scene.schedule(rarely("b", json!({"kind": "nobody-offers-this"})));
    let unknown = text(&scene.act("b", "run")["taskId"]);
    let task = text(&scene.act("a", "run")["taskId"]);
    scene.until_state(&task, "running");
    scene.restart();
    let ended = scene.task(&task);
    assert_eq!((&ended["state"], n(&ended["attempts"])), (&json!("completed"), 1), "{ended:#}");
    let runs = scene.until_runs("a", "completed", 1);
    assert_eq!((runs.len(), &runs[0]["taskId"]), (1, &json!(task)));
    assert_eq!(scene.task(&unknown)["state"], "queued");
    assert_eq!(scene.runs("b")[0]["outcome"], "running");
}

/// G4.70: a second server on the same store does not start, and what the first one runs is not touched.
#[test]
fn a_second_server_takes_no_run_away_from_the_first() {
    let scene = Scene::new();
    scene.schedule(rarely("a", endless()));
    let once = json!({"name": "once", "schedule": {"kind": "at", "at": from_now(600_000)}, "task": noop()});
    let once = scene.schedule(once);
    let task = text(&scene.act("a", "run")["taskId"]);
    scene.until_state(&task, "running");
    let before = (scene.runs("a"), scene.shown("a"));
    let mut second = std::process::Command::new(env!("CARGO_BIN_EXE_runyard"));
    let second = second.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(scene.data()).output().unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("cannot open the store"), "{second:?}");
    assert_eq!((scene.runs("a"), scene.shown("a")), before);
    assert_eq!((n(&scene.task(&task)["attempts"]), scene.shown("once")), (1, once));
    scene.cancel(&task);
    scene.until_runs("a", "cancelled", 1);
}

#[test]
fn overlap_skip_leaves_a_run_out_and_says_so() {
    let scene = Scene::new();
    scene.schedule(rarely("a", endless()));
    let first = text(&scene.act("a", "run")["taskId"]);
    let second = scene.act("a", "run");
    assert_eq!((&second["outcome"], second.get("taskId")), (&json!("skipped"), None));
    assert!(text(&second["reason"]).contains("still at work"), "{second:#}");
    scene.cancel(&first);
    scene.until_runs("a", "cancelled", 1);
    assert_eq!(scene.act("a", "run")["outcome"], "running");
}

#[test]
fn overlap_queue_lets_a_run_wait_for_the_one_before() {
    let scene = Scene::new();
    scene.schedule(with(rarely("a", endless()), json!({"overlap": "queue"})));
    let tasks: Vec<String> = (0..2).map(|_| text(&scene.act("a", "run")["taskId"])).collect();
    scene.until_state(&tasks[0], "running");
    assert_eq!(scene.state(&tasks[1]), "waiting");
    scene.cancel(&tasks[0]);
    scene.until_state(&tasks[1], "running");
}

#[test]
fn overlap_replace_stops_the_one_before_first() {
    let scene = Scene::new();
    scene.schedule(with(rarely("a", endless()), json!({"overlap": "replace"})));
    let first = text(&scene.act("a", "run")["taskId"]);
    scene.until_state(&first, "running");
    let second = text(&scene.act("a", "run")["taskId"]);
    let ended = scene.ends_as("cancelled", &first);
    scene.until_state(&second, "running");
    assert!(ms(&scene.task(&second)["startedAt"]) >= ms(&ended["finishedAt"]), "they do not overlap");
    assert_eq!(scene.until_runs("a", "cancelled", 1)[0]["outcome"], "running");
}

#[test]
fn overlap_allow_runs_them_side_by_side() {
    let scene = Scene::new();
    scene.schedule(with(rarely("a", endless()), json!({"overlap": "allow"})));
    let tasks: Vec<String> = (0..3).map(|_| text(&scene.act("a", "run")["taskId"])).collect();
    tasks.iter().for_each(|task| scene.until_state(task, "running"));
    assert_eq!(n(&scene.shown("a")["running"]), 3);
}

#[test]
fn the_task_is_told_which_run_it_is() {
    let scene = Scene::new();
    let told = json!({"run": "{{run}}", "for": "{{scheduledFor}}", "at": "{{fireTime}}", "other": "{{what}}"});
    scene.schedule(every("a", 1000, json!({"kind": "noop", "payload": {"result": told}})));
    let runs = scene.until_runs("a", "completed", 2);
    scene.act("a", "pause");
    for run in runs.iter().filter(|run| run["outcome"] == "completed") {
        let result = scene.task(&text(&run["taskId"]))["result"].clone();
        assert_eq!(result["run"], json!(n(&run["run"]).to_string()));
        assert_eq!(ms(&result["for"]), ms(&run["scheduledFor"]));
        assert_eq!((ms(&result["at"]), &result["other"]), (ms(&run["createdAt"]), &json!("{{what}}")));
    }
}

#[test]
fn it_ends_after_its_last_run() {
    let scene = Scene::new();
    scene.schedule(with(every("a", 1000, noop()), json!({"maxRuns": 2})));
    scene.until_runs("a", "completed", 2);
    wait_until(SOON, "it is done", || scene.shown("a")["state"] == "done");
    let shown = scene.shown("a");
    assert_eq!((n(&shown["runs"]), shown.get("nextRunAt")), (2, None));
    assert_eq!(scene.problem(409, "POST", "/v1/schedules/a/resume", json!({}))["code"], "no_future_run");
    let more = scene.change("a", json!({"maxRuns": 3}));
    assert_eq!((&more["state"], more["nextRuns"].as_array().unwrap().len()), (&json!("enabled"), 1));
}

/// The issue: after N failures its owner is told through the outbox, once; and once that it is well again.
#[test]
fn a_failing_schedule_tells_its_owner_once_and_its_recovery_once() {
    let peer = Peer::start(|_| Reply::json(json!({})));
    let url = peer.url();
    let scene = Scene::with(&format!(
        "[outbound]\nallow = [\"127.0.0.1\"]\n[webhooks.ops]\nurl = \"{url}\"\nevents = [\"schedule.failing\", \"schedule.recovered\"]\n"
    ));
    scene.schedule(with(rarely("a", failing()), json!({"alertAfter": 2})));
    (0..3).for_each(|_| assert_eq!(scene.ran("a")["outcome"], "failed"));
    assert_eq!(n(&scene.shown("a")["consecutiveFailures"]), 3);
    scene.change("a", json!({"task": {"payload": null}}));
    (0..2).for_each(|_| assert_eq!(scene.ran("a")["outcome"], "completed"));
    assert_eq!(n(&scene.shown("a")["consecutiveFailures"]), 0);
    wait_until(SOON, "both are told", || peer.asked().len() >= 2);
    // What was to come has come by the time of a later message.
    scene.change("a", json!({"task": {"payload": {"fail": "task"}}}));
    (0..2).for_each(|_| drop(scene.ran("a")));
    wait_until(SOON, "it fails again", || peer.asked().len() >= 3);
    let told: Vec<Value> = peer.asked().iter().map(|asked| serde_json::from_str(&asked.body).unwrap()).collect();
    let kinds: Vec<String> = told.iter().map(|message| text(&message["type"])).collect();
    assert_eq!(kinds, ["schedule.failing", "schedule.recovered", "schedule.failing"]);
    let first = &told[0]["data"];
    assert_eq!((&first["data"]["name"], n(&first["data"]["consecutiveFailures"])), (&json!("a"), 2), "{first:#}");
    assert!(text(&first["reason"]).contains("told to fail"), "{first:#}");
}

#[test]
fn a_schedule_that_fails_too_often_is_paused() {
    let scene = Scene::new();
    scene.schedule(with(rarely("a", failing()), json!({"disableAfter": 2})));
    scene.ran("a");
    assert_eq!(scene.shown("a")["state"], "enabled");
    scene.ran("a");
    let shown = scene.shown("a");
    assert_eq!((&shown["state"], shown.get("nextRunAt")), (&json!("paused"), None));
    assert!(text(&shown["reason"]).contains("failed 2 times"), "{shown:#}");
}

#[test]
fn all_schedules_can_be_paused_at_once() {
    let scene = Scene::with("[schedules]\npaused = true\n");
    let made = scene.schedule(every("a", 1000, noop()));
    assert_eq!((&made["state"], &made["reason"]), (&json!("enabled"), &json!("all schedules are paused")));
    let due = ms(&made["nextRunAt"]);
    wait_until(SOON, "it is due", || jiff::Timestamp::now().as_millisecond() > due + 300);
    assert_eq!(scene.runs("a").len(), 0);
    scene.expect(200, "PATCH", "/v1/config", json!({"schedules": {"paused": false}}));
    let runs = scene.until_runs("a", "completed", 1);
    assert_eq!(ms(&runs.last().unwrap()["scheduledFor"]), due, "late by less than a minute is in time");
}

/// The issue: an edit during a run, or at any other moment, fires no moment twice.
#[test]
fn edits_fire_no_moment_twice() {
    let scene = Scene::new();
    scene.schedule(every("a", 1000, noop()));
    for n_runs in 1..=3 {
        scene.until_runs("a", "completed", n_runs);
        (0..5).for_each(|n| drop(scene.change("a", json!({"task": {"name": format!("edit {n}")}}))));
    }
    scene.act("a", "pause");
    let mut moments: Vec<i64> = scene.runs("a").iter().map(|run| ms(&run["scheduledFor"])).collect();
    moments.sort_unstable();
    assert!(moments.windows(2).all(|pair| pair[1] - pair[0] == 1000), "{moments:?}");
}

/// The issue: the run log is kept by number.
#[test]
fn so_many_runs_are_kept() {
    let mut scene = Scene::with("[schedules]\nkeepRuns = 3\n");
    scene.schedule(rarely("a", noop()));
    (0..6).for_each(|_| drop(scene.ran("a")));
    // Retention looks when the server starts.
    scene.restart();
    wait_until(SOON, "the oldest are gone", || scene.runs("a").len() == 3);
    let left: Vec<u64> = scene.runs("a").iter().map(|run| n(&run["run"])).collect();
    assert_eq!(left, [6, 5, 4]);
    assert_eq!(n(&scene.ran("a")["run"]), 7, "numbers go on");
}

#[test]
fn a_draining_server_starts_no_run() {
    let scene = Scene::new();
    scene.schedule(rarely("a", noop()));
    scene.expect(200, "POST", "/v1/drain", json!({"on": true}));
    assert_eq!(scene.problem(503, "POST", "/v1/schedules/a/run", json!({}))["code"], "draining");
    scene.expect(200, "POST", "/v1/drain", json!({"on": false}));
    assert_eq!(scene.ran("a")["outcome"], "completed");
}
