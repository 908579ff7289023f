//! Clients that open an event stream and never read from it, while many events pass.

use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::super::http::{find, request};
use super::super::lives::submit_batches;
use super::super::place::Place;
use super::super::report::{Figure, Report};
use super::super::server::BenchServer;

const CLIENTS: usize = 100;
/// What two sockets hold is of the kernel; the less of it, the sooner the server notices.
const BUFFER_BYTES: u32 = 4096;
/// A task has four events of more than 300 bytes.
const TASKS_PER_CLIENT: u64 = 10;
const HEARD_MAX: Duration = Duration::from_secs(120);
/// As for a server without such clients.
const RSS_MB_MAX: f64 = 300.0;

/// `n_clients` are those of the other figures: the more there were, the more is told here.
pub async fn while_events_pass(place: &Place, n_clients: usize, report: &mut Report) -> anyhow::Result<()> {
    let n_tasks = n_clients as u64 * TASKS_PER_CLIENT;
    eprintln!("{CLIENTS} clients that never read, {n_tasks} tasks …");
    let server = BenchServer::start(place).await?;
    let mut unread = Vec::new();
    for _ in 0..CLIENTS {
        unread.push(subscribe(&server.address, Some(BUFFER_BYTES)).await?);
    }
    let reads = tokio::spawn(read_all(subscribe(&server.address, None).await?, n_tasks));
    submit_batches(&server, n_tasks, |n| format!("agent-{}", n % 10), "main").await?;
    server.completed(n_tasks).await?;
    let n_bytes = tokio::time::timeout(HEARD_MAX, reads).await.context("one that reads does not get all")???;
    let name = format!("{CLIENTS} clients never read their events, one does: what it was sent");
    report.add(Figure::new(name, n_bytes as f64 / 1e6, "MB"));
    let rss = server.rss_peak_mb()? as f64;
    report.add(Figure::new("  resident memory, at most", rss, "MB").target(RSS_MB_MAX, false));
    server.stop().await
}

async fn subscribe(address: &str, buffer_bytes: Option<u32>) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if let Some(bytes) = buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    let mut stream = socket.connect(address.parse()?).await?;
    stream.write_all(&request("GET", "/v1/events", "")).await?;
    // From the first byte on it is a stream.
    stream.read_exact(&mut [0]).await?;
    Ok(stream)
}

/// Until so many tasks have completed; gives the bytes that came.
async fn read_all(mut stream: TcpStream, n_tasks: u64) -> anyhow::Result<u64> {
    const END: &[u8] = b"event: task.completed";
    let (mut seen, mut n_bytes, mut n_ended) = (Vec::with_capacity(1 << 16), 0, 0);
    while n_ended < n_tasks {
        n_bytes += stream.read_buf(&mut seen).await? as u64;
        let mut looked = 0;
        while let Some(at) = find(&seen[looked..], END) {
            looked += at + END.len();
            n_ended += 1;
        }
        // A name that is cut in two is whole with what comes next.
        seen.drain(..looked.max(seen.len().saturating_sub(END.len())));
    }
    Ok(n_bytes)
}
