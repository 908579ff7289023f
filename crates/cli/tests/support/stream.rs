//! An answer that is read while it is written: event streams, and logs that are followed.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;

use serde_json::Value;

use super::Server;

/// Dropping it closes the connection.
pub struct Stream {
    reader: BufReader<TcpStream>,
    /// What is left of the chunk that is being read.
    chunk: usize,
    has_ended: bool,
    pub head: String,
}

impl Stream {
    pub fn open(server: &Server, path: &str, headers: &[(&str, &str)]) -> Stream {
        Stream::over(server.open("GET", path, headers, b"").unwrap(), path)
    }

    /// What is answered to a request that has been sent.
    pub fn over(answer: TcpStream, path: &str) -> Stream {
        let mut reader = BufReader::new(answer);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "no answer to {path}: {head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.to_ascii_lowercase().contains("transfer-encoding: chunked"), "{head}");
        Stream { reader, chunk: 0, has_ended: false, head }
    }

    /// The next line without its end; `None` when the stream is over.
    pub fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            match self.byte() {
                Some(b'\n') => return Some(String::from_utf8(line).unwrap()),
                Some(byte) => line.push(byte),
                None if line.is_empty() => return None,
                None => return Some(String::from_utf8(line).unwrap()),
            }
        }
    }

    /// The fields of the next event that has data, as (name, id, data); `None` when the stream is over.
    pub fn sse(&mut self) -> Option<(String, Option<String>, Value)> {
        let (mut name, mut id, mut data) = (String::new(), None, String::new());
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("event", value)) => name = value.to_owned(),
                Some(("id", value)) => id = Some(value.to_owned()),
                Some(("data", value)) => data.push_str(value),
                _ if line.is_empty() && !data.is_empty() => {
                    return Some((name, id, serde_json::from_str(&data).unwrap()));
                }
                _ => {}
            }
        }
    }

    /// The data of the next event.
    pub fn next_event(&mut self) -> Value {
        self.sse().expect("the stream goes on").2
    }

    /// Whether the last chunk has come. A stream that is over without it was broken off.
    #[allow(dead_code, reason = "each test file uses its own part")]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn byte(&mut self) -> Option<u8> {
        if self.chunk == 0 {
            let mut size = String::new();
            // Behind each chunk but the first there is an empty line.
            while size.trim().is_empty() {
                size.clear();
                if self.reader.read_line(&mut size).unwrap_or(0) == 0 {
                    return None;
                }
            }
            self.chunk = usize::from_str_radix(size.trim(), 16).unwrap();
            if self.chunk == 0 {
                self.has_ended = true;
                return None;
            }
        }
        let mut byte = [0];
        self.reader.read_exact(&mut byte).ok()?;
        self.chunk -= 1;
        Some(byte[0])
    }
}
