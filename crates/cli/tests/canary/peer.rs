//! Somebody who repeats everything that he is told, and takes messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub struct Peer {
    pub url: String,
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl Peer {
    pub fn start() -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let seen = asked.clone();
        // It holds nothing but its port, and lives until the test's process ends.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = seen.clone();
                std::thread::spawn(move || serve(stream, &seen));
            }
        });
        Peer { url, asked }
    }

    /// Everything that tasks have asked.
    pub fn asked(&self) -> String {
        self.of(|path| !is_hook(path)).concat()
    }

    /// The messages, heads included.
    pub fn hooks(&self) -> Vec<String> {
        self.of(is_hook)
    }

    fn of(&self, is_meant: impl Fn(&str) -> bool) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(path, _)| is_meant(path)).map(|(_, text)| text.clone()).collect()
    }
}

fn is_hook(path: &str) -> bool {
    path == "/hook" || path == "/callback"
}

/// Where nobody listens.
pub fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/", listener.local_addr().unwrap())
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<(String, String)>>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let text = format!("{head}{}", String::from_utf8(body).unwrap());
    let target = head.split(' ').nth(1).unwrap().to_owned();
    let path = target.split('?').next().unwrap().to_owned();
    seen.lock().unwrap().push((path.clone(), text.clone()));
    let _ = reader.into_inner().write_all(reply(&path, &target, &text).as_bytes());
}

fn reply(path: &str, target: &str, asked: &str) -> String {
    let (status, kind, more, body) = match path {
        "/json" => (
            "200 OK",
            "application/json",
            String::new(),
            serde_json::json!({"asked": asked, asked: target}).to_string(),
        ),
        "/events" => {
            let data = serde_json::json!({"text": asked}).to_string();
            ("200 OK", "text/event-stream", String::new(), format!("data: {data}\n\ndata: {target}\n\n"))
        }
        "/moved" => ("302 Found", "text/plain", format!("location: http://example.com{target}\r\n"), asked.to_owned()),
        // So long that only its beginning is quoted.
        "/broken" => ("500 Broken", "text/plain", String::new(), format!("{}{asked}", "x".repeat(1900))),
        "/text" => ("200 OK", "text/plain", format!("x-echo: {target}\r\n"), asked.to_owned()),
        _ => ("204 No Content", "text/plain", String::new(), String::new()),
    };
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{more}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}
