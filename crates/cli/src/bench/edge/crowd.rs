//! Clients that wait: half of them with a long poll that they renew, half with an event stream.
//!
//! Each waits for a task of its own behind a paused lane, so nothing is to be told to it while the load runs. When the
//! lane opens in the end, everyone has to hear of it: a client that was silently forgotten is an error too.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::http::{Connection, find, request};
use super::super::server::BenchServer;

/// Connecting at once: fewer than the backlog of a listener.
const CONNECTING_MAX: usize = 128;
const BATCH: usize = 100;
/// Agents that their tasks are spread over.
const AGENTS: usize = 100;
/// A poll is renewed when it comes back without news. Not all at the same time: real ones do not either.
const POLL_MS: std::ops::Range<usize> = 10_000..30_000;
/// How long it may take until the last of them has heard.
const HEARD_MAX: Duration = Duration::from_secs(60);

pub struct Crowd {
    clients: JoinSet<anyhow::Result<()>>,
    pub tasks: Vec<String>,
}

impl Crowd {
    /// Returns when all of them are connected and wait.
    pub async fn gather(server: &BenchServer, n_clients: usize) -> anyhow::Result<Crowd> {
        let mut connection = server.connect().await?;
        connection.expect(&request("PUT", "/v1/lanes/idle", r#"{"limit":20000,"paused":true}"#)).await?;
        let tasks = submit(&mut connection, n_clients).await?;
        let (connecting, waiting) = (Arc::new(Semaphore::new(CONNECTING_MAX)), Arc::new(Semaphore::new(0)));
        let mut clients = JoinSet::new();
        for (n, task) in tasks.iter().enumerate() {
            let client = Client::new(n, task, &server.address);
            let (connecting, waiting) = (connecting.clone(), waiting.clone());
            clients.spawn(async move {
                let turn = connecting.acquire_owned().await?;
                let stream = client.connect().await?;
                drop(turn);
                waiting.add_permits(1);
                client.wait(stream).await
            });
        }
        let all = waiting.acquire_many(u32::try_from(n_clients)?);
        tokio::select! {
            all = all => drop(all?),
            Some(early) = clients.join_next() => early?.context("a client did not get in")?,
        }
        Ok(Crowd { clients, tasks })
    }

    /// Opens the lane, and gives the number of those who were cut off before or have not heard of it.
    pub async fn release(mut self, server: &BenchServer) -> anyhow::Result<usize> {
        let mut connection = server.connect().await?;
        connection.expect(&request("PUT", "/v1/lanes/idle", r#"{"limit":20000,"paused":false}"#)).await?;
        let mut n_lost = 0;
        let heard = async {
            while let Some(client) = self.clients.join_next().await {
                if let Err(error) = client? {
                    eprintln!("  a client that waited: {error:#}");
                    n_lost += 1;
                }
            }
            anyhow::Ok(())
        };
        if let Ok(heard) = tokio::time::timeout(HEARD_MAX, heard).await {
            heard?;
        }
        Ok(n_lost + self.clients.len())
    }
}

async fn submit(connection: &mut Connection, n: usize) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::with_capacity(n);
    while ids.len() < n {
        let items: Vec<String> = (ids.len()..n.min(ids.len() + BATCH))
            .map(|n| format!(r#"{{"kind":"noop","lane":"idle","agent":"idle-{}"}}"#, n % AGENTS))
            .collect();
        let body = format!(r#"{{"tasks":[{}]}}"#, items.join(","));
        let answer: Value = serde_json::from_slice(&connection.expect(&request("POST", "/v1/batches", &body)).await?)?;
        let tasks = answer["tasks"].as_array().context("a batch has tasks")?;
        ids.extend(tasks.iter().filter_map(|task| task["id"].as_str()).map(str::to_owned));
    }
    Ok(ids)
}

struct Client {
    address: String,
    request: Vec<u8>,
    waits: Waits,
}

#[derive(Clone, Copy)]
enum Waits {
    Polling,
    /// For an event with this name.
    Streaming(&'static str),
}

impl Client {
    fn new(n: usize, task: &str, address: &str) -> Client {
        let poll_ms = POLL_MS.start + n * 7919 % POLL_MS.len();
        let (path, waits) = match n % 6 {
            0 | 2 | 4 => (format!("/v1/tasks/{task}/wait?timeoutMs={poll_ms}"), Waits::Polling),
            1 => (format!("/v1/events?task={task}"), Waits::Streaming("task.completed")),
            3 => (format!("/v1/events?agent=idle-{}", n % AGENTS), Waits::Streaming("task.completed")),
            _ => ("/v1/events?types=config.changed".to_owned(), Waits::Streaming("config.changed")),
        };
        Client { address: address.to_owned(), request: request("GET", &path, ""), waits }
    }

    /// A stream is one as soon as its head is there; a poll says nothing until it is answered.
    async fn connect(&self) -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).await.context("cannot connect")?;
        stream.write_all(&self.request).await?;
        if let Waits::Streaming(_) = self.waits {
            let mut head = [0; 16];
            stream.read_exact(&mut head).await.context("no answer")?;
            if !head.starts_with(b"HTTP/1.1 200") {
                bail!("refused: {}", String::from_utf8_lossy(&head));
            }
        }
        Ok(stream)
    }

    async fn wait(&self, stream: TcpStream) -> anyhow::Result<()> {
        match self.waits {
            Waits::Streaming(event) => hear(stream, event).await,
            Waits::Polling => self.poll(stream).await,
        }
    }

    async fn poll(&self, stream: TcpStream) -> anyhow::Result<()> {
        let mut connection = Connection::over(stream);
        let mut answer = connection.receive().await?;
        while answer.status == 200 && answer.has_header("wait-timed-out") {
            answer = connection.send(&self.request).await?;
        }
        match answer.status {
            200 => Ok(()),
            status => bail!("a poll was answered {status}: {}", String::from_utf8_lossy(&answer.body)),
        }
    }
}

/// Reads until the event has come.
async fn hear(mut stream: TcpStream, event: &str) -> anyhow::Result<()> {
    let name = format!("event: {event}");
    let mut seen = Vec::new();
    loop {
        if stream.read_buf(&mut seen).await? == 0 {
            bail!("the stream ended before its event");
        }
        if find(&seen, name.as_bytes()).is_some() {
            return Ok(());
        }
        // A name that is cut in two is whole with what comes next.
        let kept = seen.len().saturating_sub(name.len());
        seen.drain(..kept);
    }
}
