//! A server of the worker protocol with one pigeonhole, on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::sync::Notify;

#[derive(Clone)]
pub struct Post {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    With(u16, Value),
    /// It is heard, and never answered.
    HangUp,
}

type Rule = (Box<dyn Fn(&Value) -> bool + Send>, Reply, usize);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// For threads that wait with a long poll.
    changed: Condvar,
    /// For tests that wait.
    news: Notify,
}

#[derive(Default)]
struct State {
    letters: Vec<Value>,
    n_letters: usize,
    mail: Vec<Value>,
    rules: Vec<Rule>,
    replied: Vec<Reply>,
    tokens: Vec<String>,
    logs: std::collections::BTreeMap<String, Vec<u8>>,
}

impl Post {
    pub fn open() -> Post {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let post = Post { address: listener.local_addr().unwrap(), shared: Arc::default() };
        let shared = post.shared.clone();
        // It holds nothing but its port, and lives until the test's process ends.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        post
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// For the next answer; it ends a wait.
    pub fn mail(&self, answer: Value) {
        self.shared.lock().mail.push(answer);
        self.shared.changed.notify_all();
    }

    /// The next `n` letters for which this holds get this reply.
    pub fn reply_when(&self, is_it: impl Fn(&Value) -> bool + Send + 'static, reply: Reply, n: usize) {
        self.shared.lock().rules.push((Box::new(is_it), reply, n));
    }

    pub fn letters(&self) -> Vec<Value> {
        self.shared.lock().letters.clone()
    }

    pub fn forget_letters(&self) {
        self.shared.lock().letters.clear();
    }

    pub fn tokens(&self) -> Vec<String> {
        self.shared.lock().tokens.clone()
    }

    pub fn log_of(&self, task: &str) -> String {
        String::from_utf8(self.shared.lock().logs.get(task).cloned().unwrap_or_default()).unwrap()
    }

    pub async fn letter(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        self.until(|state| state.letters.iter().find(|letter| is_it(letter)).cloned()).await
    }

    pub async fn until_joined(&self, n: usize) {
        self.until(|state| (state.tokens.len() >= n).then_some(())).await;
    }

    pub async fn until_replied(&self, reply: Reply, n: usize) {
        self.until(|state| (state.replied.iter().filter(|it| **it == reply).count() >= n).then_some(())).await;
    }

    pub async fn until_replied_with(&self, status: u16, n: usize) {
        let is_it = |reply: &&Reply| matches!(reply, Reply::With(it, _) if *it == status);
        self.until(|state| (state.replied.iter().filter(is_it).count() >= n).then_some(())).await;
    }

    async fn until<T>(&self, look: impl Fn(&State) -> Option<T>) -> T {
        loop {
            let news = self.shared.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if let Some(found) = look(&self.shared.lock()) {
                return found;
            }
            news.await;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn tell(&self) {
        self.changed.notify_all();
        self.news.notify_waiters();
    }
}

fn serve(stream: TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream);
    while let Some((head, body)) = read(&mut reader) {
        let path = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
        let reply = match path.rsplit('/').next() {
            Some("workers") => {
                let token = head.lines().find_map(|line| line.split_once("Bearer ")).unwrap().1.trim().to_owned();
                shared.lock().tokens.push(token);
                Reply::With(201, registered(Some("ryw_key")))
            }
            Some("register") => Reply::With(200, registered(None)),
            Some("sync") => sync(shared, body),
            _ => Reply::With(404, json!({"status": 404, "code": "not_found"})),
        };
        shared.lock().replied.push(reply.clone());
        shared.tell();
        let Reply::With(status, answer) = reply else { return };
        let text = answer.to_string();
        let length = text.len();
        let answer =
            format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{text}");
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn registered(key: Option<&str>) -> Value {
    let id = "00000000-0000-7000-8000-00000000beef";
    let mut answer = json!({"id": id, "session": "3", "heartbeatMs": 5000, "offlineAfterMs": 15000});
    if let Some(key) = key {
        answer["key"] = json!(key);
    }
    answer
}

fn sync(shared: &Shared, letter: Value) -> Reply {
    let wait = Duration::from_millis(letter["waitMs"].as_u64().unwrap());
    let mut state = shared.lock();
    state.n_letters += 1;
    let number = state.n_letters;
    let logged = store_logs(&mut state, &letter);
    state.letters.push(letter.clone());
    drop(state);
    shared.tell();
    let mut state = shared.lock();
    let until = Instant::now() + wait;
    // Until there is mail, time is over, or a newer one is there.
    while state.mail.is_empty() && state.n_letters == number && Instant::now() < until {
        state = shared.changed.wait_timeout(state, until - Instant::now()).unwrap().0;
    }
    if let Some((_, reply, n_left)) = state.rules.iter_mut().find(|(is_it, _, n_left)| *n_left > 0 && is_it(&letter)) {
        *n_left -= 1;
        return match reply.clone() {
            Reply::With(200, answer) => Reply::With(200, whole(answer, logged)),
            reply => reply,
        };
    }
    let mail = if state.n_letters == number && !state.mail.is_empty() { state.mail.remove(0) } else { json!({}) };
    Reply::With(200, whole(mail, logged))
}

fn whole(mut answer: Value, logged: Vec<Value>) -> Value {
    answer["heartbeatMs"] = json!(5000);
    answer["logged"] = json!(logged);
    answer
}

/// As a server does: what is there already is passed over, a gap is not taken.
fn store_logs(state: &mut State, letter: &Value) -> Vec<Value> {
    let chunks = letter["logs"].as_array().cloned().unwrap_or_default();
    let store = |chunk: Value| {
        let log = state.logs.entry(chunk["task"].as_str().unwrap().to_owned()).or_default();
        let offset = chunk["offset"].as_u64().unwrap() as usize;
        let bytes = BASE64_STANDARD.decode(chunk["data"].as_str().unwrap()).unwrap();
        if offset <= log.len() && offset + bytes.len() > log.len() {
            log.extend_from_slice(&bytes[log.len() - offset..]);
        }
        json!({"task": chunk["task"], "attempt": chunk["attempt"], "offset": log.len()})
    };
    chunks.into_iter().map(store).collect()
}

/// `None` when the connection is closed.
fn read(reader: &mut BufReader<TcpStream>) -> Option<(String, Value)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((head, serde_json::from_slice(&body).unwrap_or_default()))
}
