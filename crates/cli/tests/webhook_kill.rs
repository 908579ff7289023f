//! A final message survives `kill -9` at any moment of its delivery.
//!
//! The real binary is killed again and again while it delivers, and started anew on the same data. In the end every task
//! whose submit it acknowledged has been told of, under one id, by a receiver that remembers: at least once each, and
//! never under two ids.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use support::{Server, wait_until};

const CLIENTS: u64 = 3;
const CONFIG: &str = "[outbound]\nallow = [\"127.0.0.1\"]\n";

#[test]
fn no_final_message_is_lost_by_kill_9() {
    let n_kills: u64 = std::env::var("RUNYARD_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let receiver = Receiver::start();
    let accepted: Mutex<BTreeSet<String>> = Mutex::default();
    for kill in 0..n_kills {
        let mut server = Server::start_with(&data, &["--no-auth"], CONFIG);
        load_until_killed(&mut server, kill, &receiver, &accepted);
    }
    receiver.is_calm.store(true, Ordering::Relaxed);
    let server = Server::start_with(&data, &["--no-auth"], CONFIG);
    let accepted = accepted.into_inner().unwrap();
    assert!(accepted.len() as u64 >= n_kills, "the server was under load: {} tasks", accepted.len());
    let told = || receiver.told.lock().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    wait_until(Duration::from_secs(120), "every accepted task is told of", || accepted.is_subset(&told()));
    let pending = || server.get("/v1/webhooks/deliveries?state=pending")["items"].as_array().unwrap().len();
    wait_until(Duration::from_secs(60), "nothing is left to be told", || pending() == 0);
    let told = receiver.told.lock().unwrap();
    let n_messages: usize = told.values().map(|ids| ids.values().sum::<usize>()).sum();
    eprintln!(
        "{n_kills} kills, {} tasks acknowledged, {} told of in {n_messages} messages",
        accepted.len(),
        told.len()
    );
    for (task, ids) in told.iter() {
        assert_eq!(ids.len(), 1, "task {task} has one final message, whatever happens: {ids:?}");
        let state = server.state(task);
        let id = ids.keys().next().unwrap();
        assert!(id.ends_with(&format!("task_{state}")), "{task} is {state} and was told of as {id}");
    }
    assert_eq!(server.get("/v1/webhooks/deliveries?state=given_up")["items"], json!([]));
}

fn load_until_killed(server: &mut Server, kill: u64, receiver: &Receiver, accepted: &Mutex<BTreeSet<String>>) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (is_over, server) = (&is_over, &*server);
            scope.spawn(move || {
                for n in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let id = submit_one(server, client, n, &receiver.url);
                    accepted.lock().unwrap().extend(id);
                }
            });
        }
        // 20 to 180 ms, spread without a random number so that a failure can be looked at again.
        std::thread::park_timeout(Duration::from_millis(20 + kill * 37 % 160));
        let status = std::process::Command::new("kill").args(["-9", &server.pid().to_string()]).status().unwrap();
        assert!(status.success());
        is_over.store(true, Ordering::Relaxed);
    });
    server.kill9();
}

/// Gives the id that the server acknowledged.
fn submit_one(server: &Server, client: u64, n: u64, url: &str) -> Option<String> {
    let payload = match n % 4 {
        0 => json!({"fail": "permanent"}),
        1 => json!({"sleepMs": 20}),
        _ => json!({}),
    };
    let task = json!({"kind": "noop", "agent": format!("agent-{client}"), "payload": payload, "callbackUrl": url});
    let answer =
        server.try_request("POST", "/v1/tasks", &[], &task.to_string()).filter(|answer| answer.status == 201)?;
    let view: Value = serde_json::from_str(&answer.body).ok()?;
    view["id"].as_str().map(str::to_owned)
}

/// Takes messages, slowly and not always, and remembers which ids it has seen for which task.
struct Receiver {
    url: String,
    told: Arc<Mutex<BTreeMap<String, BTreeMap<String, usize>>>>,
    /// From now on it takes everything at once.
    is_calm: Arc<AtomicBool>,
}

impl Receiver {
    fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (told, is_calm) = (Arc::<Mutex<_>>::default(), Arc::new(AtomicBool::new(false)));
        let (seen, calm, n) = (told.clone(), is_calm.clone(), AtomicU64::new(0));
        // It holds nothing but its port, and lives until the test's process ends.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, n) = (seen.clone(), n.fetch_add(1, Ordering::Relaxed));
                let is_moody = !calm.load(Ordering::Relaxed);
                std::thread::spawn(move || take(stream, &seen, n, is_moody));
            }
        });
        Receiver { url, told, is_calm }
    }
}

/// While it is moody, one in eight is put off, and one in five takes its time: long enough for a kill to come between
/// the message and the answer to it.
fn take(
    stream: TcpStream,
    seen: &Mutex<BTreeMap<String, BTreeMap<String, usize>>>,
    n: u64,
    is_moody: bool,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let header = |name: &str| {
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let mut body = vec![0; header("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let refuses = is_moody && n.is_multiple_of(8);
    if !refuses {
        let message: Value = serde_json::from_slice(&body).ok()?;
        let (task, id) = (message["data"]["id"].as_str()?.to_owned(), header("webhook-id")?);
        *seen.lock().unwrap().entry(task).or_default().entry(id).or_default() += 1;
    }
    if is_moody && n.is_multiple_of(5) {
        std::thread::park_timeout(Duration::from_millis(60));
    }
    let status = if refuses { "503 Busy\r\nretry-after: 1" } else { "204 Taken" };
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    reader.into_inner().write_all(answer.as_bytes()).ok()
}
