//! Does it stay fast as it fills? The same work beside backlogs of different sizes, and over different numbers of agents.

use std::time::{Duration, Instant};

use super::http::request;
use super::lives::submit_batches;
use super::place::Place;
use super::report::{Figure, Report};
use super::server::BenchServer;

/// Tasks started from the backlog for each figure: enough for a figure, few enough to leave the backlog's size alone.
const DRAINED: u64 = 20_000;

pub async fn backlogs(place: &Place, sizes: &[u64], report: &mut Report) -> anyhow::Result<()> {
    let mut first_us = None;
    for &size in sizes {
        eprintln!("backlog of {size} …");
        let place = place.join(format!("backlog-{size}"));
        let server = BenchServer::start(&place).await?;
        pause(&server, true).await?;
        let took = submit_batches(&server, size, |n| format!("agent-{}", n % 10), "backlog").await?;
        let cpu_us = drain(&server, size).await?;
        let first_us = *first_us.get_or_insert(cpu_us);
        report.add(Figure::new(format!("{size} queued: submitted at"), size as f64 / took.as_secs_f64(), "tasks/s"));
        report.add(
            Figure::new("  processor time to start and end one of them", cpu_us, "µs/task")
                .target(2.0 * first_us, false),
        );
        report.add(Figure::new("  resident memory", server.rss_mb()? as f64, "MB").target(300.0, false));
        let place = server.kill().await?;
        let began = Instant::now();
        let server = BenchServer::start(&place).await?;
        report.add(
            Figure::new("  after kill -9, serves again in", began.elapsed().as_secs_f64(), "s").target(2.0, false),
        );
        report.add(Figure::new("  resident memory then", server.rss_mb()? as f64, "MB").target(300.0, false));
        server.stop().await?;
    }
    Ok(())
}

/// Starts and ends a number of the backlog's tasks; gives the processor time one of them cost. A small backlog is
/// drained and filled again several times, so that every size is measured over as many tasks.
async fn drain(server: &BenchServer, size: u64) -> anyhow::Result<f64> {
    let n = DRAINED.min(size);
    let (mut cpu, mut done) = (Duration::ZERO, 0);
    for round in 0..DRAINED / n {
        if round > 0 {
            submit_batches(server, n, |n| format!("agent-{}", n % 10), "backlog").await?;
        }
        let (used, ended) = drain_once(server, n).await?;
        cpu += used;
        done += ended;
    }
    Ok(cpu.as_secs_f64() * 1e6 / done as f64)
}

/// Opens the lane until so many have run.
async fn drain_once(server: &BenchServer, n: u64) -> anyhow::Result<(Duration, u64)> {
    let mut connection = server.connect().await?;
    let before = server.stat(&mut connection, &["metrics", "completed"]).await?;
    let cpu = server.cpu()?;
    pause(server, false).await?;
    while server.stat(&mut connection, &["metrics", "completed"]).await? < before + n {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    pause(server, true).await?;
    let done = server.stat(&mut connection, &["metrics", "completed"]).await? - before;
    Ok((server.cpu()? - cpu, done))
}

async fn pause(server: &BenchServer, paused: bool) -> anyhow::Result<()> {
    // 500 at a time, as a busy fleet would run them: the whole backlog in one tick would measure something else.
    let body = format!(r#"{{"limit":500,"paused":{paused}}}"#);
    server.connect().await?.expect(&request("PUT", "/v1/lanes/backlog", &body)).await?;
    Ok(())
}

pub async fn agents(place: &Place, numbers: &[u64], n_tasks: u64, report: &mut Report) -> anyhow::Result<()> {
    for &n_agents in numbers {
        eprintln!("{n_agents} agents …");
        let place = place.join(format!("agents-{n_agents}"));
        let server = BenchServer::start(&place).await?;
        let began = Instant::now();
        submit_batches(&server, n_tasks, |n| format!("agent-{}", n % n_agents), "main").await?;
        let ended = server.completed(n_tasks).await?;
        let rate = n_tasks as f64 / (ended - began).as_secs_f64();
        report.add(Figure::new(format!("full life over {n_agents} agents"), rate, "tasks/s"));
        report.add(Figure::new("  resident memory", server.rss_mb()? as f64, "MB"));
        server.stop().await?;
    }
    Ok(())
}
