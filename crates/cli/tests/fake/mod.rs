//! A server that answers each route with the replies it was given, in order; the last one stays.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub struct Fake {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    replies: VecDeque<(&'static str, Reply)>,
    heads: Vec<String>,
    bodies: Vec<String>,
}

#[derive(Clone)]
pub struct Reply {
    pub status: u16,
    pub kind: &'static str,
    pub body: String,
}

impl Reply {
    pub fn json(status: u16, body: serde_json::Value) -> Reply {
        Reply { status, kind: "application/json", body: body.to_string() }
    }

    pub fn problem(status: u16, body: serde_json::Value) -> Reply {
        Reply { status, kind: "application/problem+json", body: body.to_string() }
    }

    pub fn events(body: &str) -> Reply {
        Reply { status: 200, kind: "text/event-stream", body: body.to_owned() }
    }
}

impl Fake {
    /// Routes are `METHOD /path` without the query, `{id}` for the third segment of the path.
    pub fn start<const N: usize>(replies: [(&'static str, Reply); N]) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(State { replies: replies.into(), heads: vec![], bodies: vec![] }));
        let shared = Arc::clone(&state);
        // Lives until the test's process ends; it holds nothing but its port.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Fake { address, state }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn heads(&self) -> Vec<String> {
        self.state.lock().expect("not poisoned").heads.clone()
    }

    pub fn bodies(&self) -> Vec<String> {
        self.state.lock().expect("not poisoned").bodies.clone()
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    let mut body = vec![0; length.map_or(0, |n| n.trim().parse().expect("a number"))];
    reader.read_exact(&mut body).expect("the whole body");
    let reply = state.lock().expect("not poisoned").take(head, body);
    let Reply { status, kind, body } = reply;
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    // The client may have gone already, which is its own affair.
    let _ = reader.into_inner().write_all(text.as_bytes());
}

impl State {
    fn take(&mut self, head: String, body: Vec<u8>) -> Reply {
        let route = route(&head);
        self.heads.push(head);
        self.bodies.push(String::from_utf8(body).expect("UTF-8"));
        let matching: Vec<usize> = (0..self.replies.len()).filter(|&n| self.replies[n].0 == route).collect();
        match matching[..] {
            [] => Reply::problem(
                404,
                serde_json::json!({"status": 404, "detail": format!("no {route}"), "code": "no_route"}),
            ),
            [only] => self.replies[only].1.clone(),
            [first, ..] => self.replies.remove(first).expect("it was just found").1,
        }
    }
}

fn route(head: &str) -> String {
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let mut segments: Vec<&str> = path.split('/').collect();
    // "", "v1", "tasks", "<id>", …; the words `cancel` of `/v1/tasks/cancel` is no id.
    if segments.len() > 3 && segments[3] != "cancel" {
        segments[3] = "{id}";
    }
    format!("{method} {}", segments.join("/"))
}
