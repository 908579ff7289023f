//! A worker against a server that is written out here, so that it can do what a real one does only by accident: lose an
//! answer, forget a worker, repeat itself.

#![allow(clippy::unwrap_used)]

#[path = "remote/post.rs"]
mod post;

use std::time::Duration;

use post::{Post, Reply};
use runyard_worker::remote::{self, Ended, Error, RemoteOptions};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(30);

struct Bench {
    post: Post,
    leave: CancellationToken,
    worker: JoinHandle<Result<Ended, Error>>,
    home: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench::with_token(Some("join"))
    }

    fn with_token(token: Option<&str>) -> Bench {
        let (post, home, leave) = (Post::open(), tempfile::tempdir().unwrap(), CancellationToken::new());
        let worker = tokio::spawn(remote::run(options(&post, &home, token), leave.clone()));
        Bench { post, leave, worker, home }
    }

    /// The first letter for which this holds.
    async fn letter(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        let found = self.post.letter(is_it);
        tokio::time::timeout(SOON, found).await.expect("such a letter comes")
    }

    async fn ended(self) -> Result<Ended, Error> {
        tokio::time::timeout(SOON, self.worker).await.expect("it ends").unwrap()
    }
}

fn options(post: &Post, home: &tempfile::TempDir, token: Option<&str>) -> RemoteOptions {
    RemoteOptions {
        servers: vec![post.url().parse().unwrap()],
        certificates: Vec::new(),
        token: token.map(str::to_owned),
        data_dir: home.path().to_owned(),
        about: serde_json::from_value(json!({"name": "w", "cpus": 1, "ramMb": 1, "kinds": ["noop", "process"]}))
            .unwrap(),
        docker: runyard_worker::DockerDefaults { offer: runyard_worker::DockerOffer::Never, ..Default::default() },
        programs: Default::default(),
        supervisor: None,
        grace_ms: 1000,
        drain: Duration::ZERO,
    }
}

fn task(n: u32) -> String {
    format!("00000000-0000-7000-8000-{n:012}")
}

fn lease(n: u32) -> Value {
    json!({"task": task(n), "attempt": 1, "token": "18446744073709551615"})
}

fn start(n: u32, kind: &str, payload: Value) -> Value {
    let mut order = lease(n);
    let more = json!({"kind": kind, "agent": "a", "timeoutMs": 60000, "watchSilence": false, "payload": payload});
    order.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    order
}

fn names(letter: &Value, field: &str, n: u32) -> bool {
    letter[field].as_array().is_some_and(|items| items.iter().any(|item| item["task"] == task(n).as_str()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_begun_held_told_and_forgotten() {
    let bench = Bench::new();
    bench.post.mail(json!({"start": [start(1, "noop", json!({"sleepMs": 50}))]}));
    let begun = bench.letter(|letter| names(letter, "started", 1)).await;
    assert!(names(&begun, "held", 1) && begun["waitMs"] == 0, "{begun:#}");
    let done = bench.letter(|letter| names(letter, "done", 1)).await;
    assert!(names(&done, "held", 1), "held until it is acknowledged: {done:#}");
    assert_eq!(done["done"][0]["outcome"]["state"], "completed");
    assert_eq!(done["done"][0]["token"], "18446744073709551615");
    bench.post.forget_letters();
    bench.letter(|letter| letter["held"].is_null() && letter["waitMs"] != 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_got_lost_loses_nothing() {
    let bench = Bench::new();
    bench.post.reply_when(|letter| names(letter, "done", 1), Reply::HangUp, 3);
    bench.post.mail(json!({"start": [start(1, "noop", Value::Null)]}));
    bench.post.until_replied(Reply::HangUp, 3).await;
    bench.post.mail(json!({"start": [start(2, "noop", Value::Null)]}));
    bench.letter(|letter| names(letter, "done", 2)).await;
    let n_told = bench.post.letters().iter().filter(|letter| names(letter, "done", 1)).count();
    assert_eq!(n_told, 4, "three times in vain, and then no more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_repeated_runs_once() {
    let bench = Bench::new();
    let order = start(
        1,
        "process",
        json!({"shell": "echo x >> $OUT; sleep 0.2", "env": {"OUT": bench.home.path().join("out")}}),
    );
    bench.post.mail(json!({"start": [order.clone()]}));
    bench.post.mail(json!({"start": [order.clone(), order]}));
    bench.letter(|letter| names(letter, "done", 1)).await;
    bench.post.forget_letters();
    bench.letter(|letter| letter["held"].is_null() && letter["waitMs"] != 0).await;
    assert_eq!(std::fs::read_to_string(bench.home.path().join("out")).unwrap(), "x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_for_what_is_not_here_is_answered_at_once() {
    let bench = Bench::new();
    let mut order = lease(7);
    order["reason"] = json!("cancel");
    bench.post.mail(json!({"stop": [order]}));
    let done = bench.letter(|letter| names(letter, "done", 7)).await;
    assert_eq!(done["done"][0]["outcome"]["state"], "stopped", "{done:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_revoked_is_stopped_and_nothing_is_said_of_it() {
    let bench = Bench::new();
    bench.post.mail(json!({"start": [start(1, "process", json!({"shell": "exec sleep 1000"}))]}));
    bench.letter(|letter| names(letter, "started", 1)).await;
    bench.post.mail(json!({"revoked": [{"task": task(1), "attempt": 1}]}));
    bench.post.forget_letters();
    bench.letter(|letter| letter["held"].is_null() && letter["waitMs"] != 0).await;
    bench.post.mail(json!({"start": [start(2, "noop", Value::Null)]}));
    bench.letter(|letter| names(letter, "done", 2)).await;
    assert!(!bench.post.letters().iter().any(|letter| names(letter, "done", 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_report_is_not_repeated() {
    let bench = Bench::new();
    let refused = json!({"refused": [{"task": task(1), "attempt": 1, "status": 409, "code": "stale_lease"}]});
    bench.post.reply_when(|letter| names(letter, "started", 1), Reply::With(200, refused), 1);
    bench.post.mail(json!({"start": [start(1, "process", json!({"shell": "exec sleep 1000"}))]}));
    bench.letter(|letter| names(letter, "started", 1)).await;
    bench.post.forget_letters();
    let next = bench.letter(|letter| letter["waitMs"] != 0).await;
    assert!(next["held"].is_null() && next["done"].is_null(), "{next:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_sent_in_parts_and_its_last_part_comes_with_the_end_at_the_latest() {
    let bench = Bench::new();
    bench.post.mail(json!({"start": [start(1, "process", json!({"shell": "seq 40000"}))]}));
    bench.letter(|letter| names(letter, "done", 1)).await;
    let log = bench.post.log_of(&task(1));
    assert_eq!(log.lines().count(), 40_000);
    assert!(log.ends_with(" O 40000\n"), "{:?}", &log[log.len() - 60..]);
    let n_parts = bench.post.letters().iter().filter(|letter| names(letter, "logs", 1)).count();
    assert!(n_parts > 1, "{n_parts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_worker_stops_what_it_runs_and_ends() {
    let bench = Bench::new();
    let pid_file = bench.home.path().join("pid");
    let shell = json!({"shell": "echo $$ > $OUT; exec sleep 1000", "env": {"OUT": pid_file}});
    bench.post.mail(json!({"start": [start(1, "process", shell)]}));
    bench.letter(|letter| names(letter, "started", 1)).await;
    while !std::fs::read_to_string(&pid_file).is_ok_and(|pid| pid.ends_with('\n')) {
        tokio::task::yield_now().await;
    }
    let pid = std::fs::read_to_string(&pid_file).unwrap();
    let fenced = json!({"status": 409, "code": "fenced", "detail": "another process"});
    bench.post.reply_when(|_| true, Reply::With(409, fenced), 1);
    bench.post.mail(json!({}));
    assert_eq!(bench.ended().await.unwrap(), Ended::Fenced);
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_not_known_any_more_joins_anew_if_it_can() {
    let bench = Bench::new();
    bench.letter(|_| true).await;
    let gone = json!({"status": 404, "code": "worker_not_found", "detail": "it was removed"});
    bench.post.reply_when(|_| true, Reply::With(404, gone), 1);
    bench.post.mail(json!({}));
    bench.post.until_joined(2).await;
    bench.post.forget_letters();
    bench.letter(|_| true).await;
    assert_eq!(bench.post.tokens(), ["join", "join"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_joined_needs_no_token_and_who_has_not_needs_one() {
    let bench = Bench::new();
    bench.letter(|_| true).await;
    bench.leave.cancel();
    let Bench { post, worker, home, .. } = bench;
    assert_eq!(worker.await.unwrap().unwrap(), Ended::Left);
    let leave = CancellationToken::new();
    let again = tokio::spawn(remote::run(options(&post, &home, None), leave.clone()));
    post.forget_letters();
    tokio::time::timeout(SOON, post.letter(|_| true)).await.expect("it speaks");
    leave.cancel();
    assert_eq!(again.await.unwrap().unwrap(), Ended::Left);
    let stranger = Bench::with_token(None);
    assert!(matches!(stranger.ended().await, Err(Error::NoToken)));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_leaves_takes_nothing_hands_back_and_says_goodbye_last() {
    let bench = Bench::new();
    bench.post.mail(json!({"start": [start(1, "noop", json!({"sleepMs": 600_000}))]}));
    bench.letter(|letter| names(letter, "started", 1)).await;
    bench.leave.cancel();
    let post = bench.post.clone();
    assert_eq!(bench.ended().await.unwrap(), Ended::Left);
    let letters = post.letters();
    let done = letters.iter().find(|letter| names(letter, "done", 1)).expect("it is told");
    assert_eq!(done["done"][0]["outcome"]["state"], "notStarted", "{done:#}");
    let last = letters.last().unwrap();
    assert_eq!((&last["leaving"], &last["want"]), (&json!(true), &json!(0)), "{last:#}");
    assert!(last["held"].is_null() && letters.iter().filter(|letter| letter["leaving"] == true).count() == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_waited_for() {
    let bench = Bench::new();
    bench.letter(|_| true).await;
    let busy = json!({"status": 503, "code": "recovering", "detail": "wait"});
    bench.post.reply_when(|_| true, Reply::With(503, busy), 3);
    bench.post.mail(json!({}));
    bench.post.until_replied_with(503, 3).await;
    bench.post.mail(json!({"start": [start(1, "noop", Value::Null)]}));
    bench.letter(|letter| names(letter, "done", 1)).await;
}
