//! A load generator that costs little beside the server it loads: prepared request bytes, keep-alive connections, and
//! no more of each answer read than its status and length need.

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Room for each read. A connection that waits for its first answer has none, because thousands of them do.
const READ_BYTES: usize = 8 * 1024;

pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

pub struct Response {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Response {
    /// By its name in lower case, as this server writes them.
    pub fn has_header(&self, name: &str) -> bool {
        self.head.lines().any(|line| line.split_once(':').is_some_and(|(own, _)| own == name))
    }
}

impl Connection {
    pub async fn open(address: &str) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Connection::over(stream))
    }

    pub fn over(stream: TcpStream) -> Connection {
        Connection { stream, buffer: Vec::new() }
    }

    pub async fn send(&mut self, request: &[u8]) -> anyhow::Result<Response> {
        self.stream.write_all(request).await?;
        self.receive().await
    }

    /// The answer to a request that has been sent.
    pub async fn receive(&mut self) -> anyhow::Result<Response> {
        let head_end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more().await?;
        };
        let head = std::str::from_utf8(&self.buffer[..head_end]).context("an HTTP head is text")?.to_owned();
        let status = head.get(9..12).and_then(|code| code.parse().ok()).context("an answer begins with its status")?;
        let length: usize = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(|n| n.trim().to_owned()))
            .and_then(|n| n.parse().ok())
            .context("an answer has a length")?;
        while self.buffer.len() < head_end + length {
            self.read_more().await?;
        }
        let body = self.buffer[head_end..head_end + length].to_vec();
        self.buffer.drain(..head_end + length);
        Ok(Response { status, head, body })
    }

    /// As `send`, for requests that must succeed.
    pub async fn expect(&mut self, request: &[u8]) -> anyhow::Result<Vec<u8>> {
        let response = self.send(request).await?;
        if response.status >= 300 {
            bail!("the server answered {}: {}", response.status, String::from_utf8_lossy(&response.body));
        }
        Ok(response.body)
    }

    async fn read_more(&mut self) -> anyhow::Result<()> {
        self.buffer.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => bail!("the server closed the connection"),
            _ => Ok(()),
        }
    }
}

pub fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
