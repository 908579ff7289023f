//! What does a process cost? Many of them alive at once under their supervisors, and as many short ones as can be had.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use super::http::request;
use super::lives::{BATCH, send_batches};
use super::place::Place;
use super::report::{Figure, Report};
use super::server::{BenchServer, cpu_of, memory_kb_of};

/// How long all of them may take to run, or to be stopped.
const ALL_MAX: Duration = Duration::from_secs(120);
/// A supervisor lets go of what only its start has needed when it has run for a second.
const SETTLE: Duration = Duration::from_secs(3);
/// One heartbeat of each of them.
const IDLE: Duration = Duration::from_secs(15);
/// Short ones run so many at a time: two cores are busy with fewer.
const SHORT_AT_ONCE: u64 = 16;
/// Run before the clock starts.
const SHORT_WARM: u64 = 100;

pub async fn alive_at_once(place: &Place, n_processes: u64, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("{n_processes} processes alive at once …");
    let server = BenchServer::start(&place.join("processes")).await?;
    let measured = measure(&server, n_processes, report).await;
    // They would outlive the server, also one that could not be measured.
    cancel_all(&server).await?;
    measured?;
    server.stop().await
}

async fn measure(server: &BenchServer, n_processes: u64, report: &mut Report) -> anyhow::Result<()> {
    let began = Instant::now();
    // A bench that is killed leaves nothing for long: a supervisor keeps the time by itself.
    let task = r#"{"kind":"process","timeoutMs":300000,"payload":{"argv":["sleep","1000"]}}"#;
    let n_processes = submit(server, n_processes, task).await?;
    let supervisors = all_run(server, n_processes).await?;
    report.add(Figure::new(format!("{n_processes} processes: until all run"), began.elapsed().as_secs_f64(), "s"));
    tokio::time::sleep(SETTLE).await;
    memory(&supervisors, report)?;
    report.add(Figure::new("  resident memory of the server", server.rss_mb()? as f64, "MB"));
    let (server_cpu, supervisors_cpu) = (server.cpu_coarse()?, cpu_of_all(&supervisors)?);
    tokio::time::sleep(IDLE).await;
    let percent = |used: Duration| used.as_secs_f64() / IDLE.as_secs_f64() * 100.0;
    let server_percent = percent(server.cpu_coarse()?.saturating_sub(server_cpu));
    report.add(Figure::new("  processor of the server while they idle", server_percent, "% of a core"));
    let supervisors_percent = percent(cpu_of_all(&supervisors)?.saturating_sub(supervisors_cpu));
    report.add(Figure::new("  processor of all supervisors while they idle", supervisors_percent, "% of a core"));
    Ok(())
}

/// Of each, with the pages of the program that all of them share.
fn memory(supervisors: &[u32], report: &mut Report) -> anyhow::Result<()> {
    let kb = supervisors.iter().map(|pid| memory_kb_of(*pid, "VmRSS:")).collect::<anyhow::Result<Vec<u64>>>()?;
    let mb = |kb: f64| kb / 1024.0;
    let mean_kb = kb.iter().sum::<u64>() as f64 / kb.len().max(1) as f64;
    let max_kb = kb.iter().copied().max().unwrap_or(0) as f64;
    report.add(Figure::new("  resident memory of a supervisor, mean", mb(mean_kb), "MB"));
    report.add(Figure::new("  resident memory of a supervisor, at most", mb(max_kb), "MB").target(6.0, false));
    Ok(())
}

fn cpu_of_all(pids: &[u32]) -> anyhow::Result<Duration> {
    pids.iter().map(|pid| cpu_of(*pid)).sum()
}

/// Waits until every command runs, and gives the pids of the supervisors, as the lease files tell.
async fn all_run(server: &BenchServer, n_processes: u64) -> anyhow::Result<Vec<u32>> {
    let began = Instant::now();
    loop {
        let pids = running(&server.data().join("running"));
        if pids.len() as u64 == n_processes {
            return Ok(pids);
        }
        if began.elapsed() > ALL_MAX {
            bail!("after {ALL_MAX:?} {} of {n_processes} processes run", pids.len());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn running(folder: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| running_pid(&entry.path())).collect()
}

/// `None` while its command has not been started, or when the file is being replaced at this moment.
fn running_pid(lease_file: &Path) -> Option<u32> {
    lease_file.extension().filter(|extension| *extension == "json")?;
    let lease: Value = serde_json::from_slice(&std::fs::read(lease_file).ok()?).ok()?;
    lease["metadata"]["command_pid"].as_u64()?;
    lease["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
}

async fn cancel_all(server: &BenchServer) -> anyhow::Result<()> {
    let mut connection = server.connect().await?;
    connection.expect(&request("POST", "/v1/tasks/cancel", r#"{"agent":"bench"}"#)).await?;
    let began = Instant::now();
    while server.stat(&mut connection, &["queue", "totalRunning"]).await? > 0 {
        if began.elapsed() > ALL_MAX {
            bail!("the processes are not stopped after {ALL_MAX:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

pub async fn short_lives(place: &Place, n_processes: u64, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("{n_processes} short processes …");
    let server = BenchServer::start(&place.join("short")).await?;
    let limit = format!(r#"{{"limit":{SHORT_AT_ONCE}}}"#);
    server.connect().await?.expect(&request("PUT", "/v1/lanes/main", &limit)).await?;
    let task = r#"{"kind":"process","payload":{"argv":["true"]}}"#;
    let n_warm = submit(&server, SHORT_WARM, task).await?;
    server.completed(n_warm).await?;
    let began = Instant::now();
    let n_sent = submit(&server, n_processes, task).await?;
    let ended = server.completed(n_warm + n_sent).await?;
    let rate = n_sent as f64 / (ended - began).as_secs_f64();
    let name = format!("full life of a process (true) under its supervisor, {SHORT_AT_ONCE} at a time");
    report.add(Figure::new(name, rate, "tasks/s"));
    server.stop().await
}

/// Gives how many were sent: whole batches.
async fn submit(server: &BenchServer, n_tasks: u64, task: &'static str) -> anyhow::Result<u64> {
    let n_batches = n_tasks.div_ceil(BATCH);
    let tasks = vec![task; BATCH as usize].join(",");
    let body = format!(r#"{{"defaults":{{"agent":"bench"}},"tasks":[{tasks}]}}"#);
    let body: std::sync::Arc<[u8]> = request("POST", "/v1/batches", &body).into();
    send_batches(server, n_batches, move |_| body.clone()).await.context("processes cannot be submitted")?;
    Ok(n_batches * BATCH)
}
