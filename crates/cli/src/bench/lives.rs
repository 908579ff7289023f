//! The headline figures: submits, batches, whole lives, and the latency of an idle server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::http::request;
use super::report::{Figure, Report};
use super::server::BenchServer;

pub const BATCH: u64 = 100;
const CONNECTIONS: usize = 64;
/// Between two tasks of the idle latency.
pub const IDLE_PAUSE: Duration = Duration::from_millis(10);
/// Enough to keep the tick loop fed; more only queue up in front of it.
pub const BATCH_CONNECTIONS: usize = 8;

pub async fn single_submits(server: &BenchServer, seconds: u64, report: &mut Report) -> anyhow::Result<()> {
    let payload = request("POST", "/v1/tasks", r#"{"kind":"noop","agent":"bench"}"#);
    let until = Instant::now() + Duration::from_secs(seconds);
    let began = Instant::now();
    let mut senders = JoinSet::new();
    for mut connection in server.connections(CONNECTIONS).await? {
        let payload = payload.clone();
        senders.spawn(async move {
            let mut latencies = Vec::new();
            while Instant::now() < until {
                let sent = Instant::now();
                connection.expect(&payload).await?;
                latencies.push(sent.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(sender) = senders.join_next().await {
        latencies.extend(sender??);
    }
    let rate = latencies.len() as f64 / began.elapsed().as_secs_f64();
    latencies.sort_unstable();
    report.add(
        Figure::new("single submits, 64 connections, each answered after its commit", rate, "tasks/s")
            .target(report.targets().submits, true),
    );
    report.add(Figure::new("  p50", ms(percentile(&latencies, 50)), "ms"));
    report.add(Figure::new("  p99", ms(percentile(&latencies, 99)), "ms").target(15.0, false));
    Ok(())
}

pub async fn batch_submits(server: &BenchServer, n_tasks: u64, report: &mut Report) -> anyhow::Result<()> {
    let mut connection = server.connect().await?;
    connection.expect(&request("PUT", "/v1/lanes/backlog", r#"{"limit":20000,"paused":true}"#)).await?;
    let took = submit_batches(server, n_tasks, |_| "bench".into(), "backlog").await?;
    let rate = n_tasks as f64 / took.as_secs_f64();
    report.add(Figure::new("batch submits, 100 a batch, queued behind a paused lane", rate, "tasks/s"));
    Ok(())
}

pub async fn full_lives(server: &BenchServer, n_tasks: u64, report: &mut Report) -> anyhow::Result<()> {
    // One short run first: the first commits of a new file and the first pages of a new process are not what is asked.
    submit_batches(server, 10_000, |_| "warm".into(), "main").await?;
    server.completed(10_000).await?;
    let cpu = server.cpu()?;
    let began = Instant::now();
    submit_batches(server, n_tasks, |n| format!("agent-{}", n % 10), "main").await?;
    let ended = server.completed(10_000 + n_tasks).await?;
    let rate = n_tasks as f64 / (ended - began).as_secs_f64();
    let cpu_us = (server.cpu()? - cpu).as_secs_f64() * 1e6 / n_tasks as f64;
    report.add(
        Figure::new("full life: submitted, started, completed, all durable, 100 a batch, 10 agents", rate, "tasks/s")
            .target(report.targets().lives, true),
    );
    report.add(Figure::new("  server processor time", cpu_us, "µs/task"));
    if let Some(raw) = report.raw_cycles {
        let share = Figure::new("  of the raw limit", rate / raw * 100.0, "%");
        report.add(match report.targets().raw_percent {
            Some(percent) => share.target(percent, true),
            None => share,
        });
    }
    Ok(())
}

/// From the submit's first byte to the first byte of the task's own HTTP request at our listener.
pub async fn idle_latency(server: &BenchServer, seconds: u64, report: &mut Report) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let acceptor = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let arrived = arrived.clone();
            tokio::spawn(async move {
                let mut buffer = [0u8; 4096];
                while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                    let _ = arrived.send((Instant::now(), n));
                    if stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let body = format!(r#"{{"kind":"http","agent":"bench","payload":{{"method":"GET","url":"{url}"}}}}"#);
    let submit = request("POST", "/v1/tasks", &body);
    let mut connection = server.connect().await?;
    let mut latencies = Vec::new();
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        let sent = Instant::now();
        connection.expect(&submit).await?;
        let (at, _) = arrivals.recv().await.context("the listener goes on")?;
        latencies.push(at - sent);
        // Idle means idle: the end of the task is committed before the next one comes.
        tokio::time::sleep(IDLE_PAUSE).await;
    }
    acceptor.abort();
    latencies.sort_unstable();
    let p50 =
        Figure::new("idle: submit to the started task's first request, p50", ms(percentile(&latencies, 50)), "ms");
    report.add(match report.durable_ms {
        Some(durable_ms) => p50.target(1.5 * durable_ms + report.targets().idle_beside_ms, false),
        None => p50,
    });
    report.add(Figure::new("  p99", ms(percentile(&latencies, 99)), "ms"));
    Ok(())
}

/// Submits no-op tasks in batches over a few connections; gives the time until the last was acknowledged.
pub async fn submit_batches(
    server: &BenchServer,
    n_tasks: u64,
    agent: impl Fn(u64) -> String,
    lane: &str,
) -> anyhow::Result<Duration> {
    let n_batches = n_tasks.div_ceil(BATCH);
    // A few hundred different bodies are enough to spread the agents, and building them must not be what is measured.
    let n_bodies = n_batches.min(1000);
    let bodies: Vec<Arc<[u8]>> = (0..n_bodies)
        .map(|batch| request("POST", "/v1/batches", &batch_body(batch, n_bodies, &agent, lane)).into())
        .collect();
    send_batches(server, n_batches, move |batch| bodies[batch as usize % bodies.len()].clone()).await
}

/// Sends so many batches over a few connections; gives the time until the last was acknowledged.
pub async fn send_batches(
    server: &BenchServer,
    n_batches: u64,
    body: impl Fn(u64) -> Arc<[u8]> + Send + Sync + 'static,
) -> anyhow::Result<Duration> {
    let mut senders = JoinSet::new();
    let next = Arc::new(AtomicU64::new(0));
    let body = Arc::new(body);
    let began = Instant::now();
    for mut connection in server.connections(BATCH_CONNECTIONS).await? {
        let (next, body) = (next.clone(), body.clone());
        senders.spawn(async move {
            loop {
                let batch = next.fetch_add(1, Ordering::Relaxed);
                if batch >= n_batches {
                    return anyhow::Ok(());
                }
                connection.expect(&body(batch)).await?;
            }
        });
    }
    while let Some(sender) = senders.join_next().await {
        sender??;
    }
    Ok(began.elapsed())
}

fn batch_body(batch: u64, n_bodies: u64, agent: &impl Fn(u64) -> String, lane: &str) -> String {
    let items: Vec<String> =
        (0..BATCH).map(|item| format!(r#"{{"kind":"noop","agent":"{}"}}"#, agent(item * n_bodies + batch))).collect();
    format!(r#"{{"defaults":{{"lane":"{lane}"}},"tasks":[{}]}}"#, items.join(","))
}

pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
