//! What do sessions cost? As many sessions as tasks, beside the same number of tasks without one: each task then makes its
//! session, takes its seat, gives it back, and leaves a session behind that must cost no memory.

use std::time::Instant;

use super::http::request;
use super::lives::{BATCH, send_batches};
use super::place::Place;
use super::report::{Figure, Report};
use super::server::BenchServer;

/// Run before the clock starts: the first commits of a new file and the first pages of a new process are not what is
/// asked.
const WARM: u64 = 10_000;
const AGENTS: u64 = 10;

pub async fn one_task_each(place: &Place, n_sessions: u64, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("{n_sessions} tasks without a session …");
    let plain = lives(&place.join("plain"), n_sessions, Belong::Nowhere).await?;
    eprintln!("{n_sessions} sessions with one task each …");
    let own = lives(&place.join("sessions"), n_sessions, Belong::OwnSession).await?;
    let name = |what: &str| format!("full life of {n_sessions} tasks {what}, 100 a batch, {AGENTS} agents");
    report.add(Figure::new(name("without a session"), plain.rate, "tasks/s"));
    report.add(Figure::new("  resident memory, at most", plain.rss_peak_mb as f64, "MB"));
    report.add(Figure::new(name("in as many sessions"), own.rate, "tasks/s"));
    report.add(Figure::new("  of the rate without a session", own.rate / plain.rate * 100.0, "%").target(60.0, true));
    report.add(Figure::new("  resident memory, at most", own.rss_peak_mb as f64, "MB").target(500.0, false));
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Belong {
    Nowhere,
    OwnSession,
}

struct Lives {
    rate: f64,
    rss_peak_mb: u64,
}

async fn lives(place: &Place, n_tasks: u64, belong: Belong) -> anyhow::Result<Lives> {
    let server = BenchServer::start(place).await?;
    submit(&server, "warm", WARM, belong).await?;
    server.completed(WARM).await?;
    let began = Instant::now();
    let n_sent = submit(&server, "s", n_tasks, belong).await?;
    let ended = server.completed(WARM + n_sent).await?;
    let rate = n_sent as f64 / (ended - began).as_secs_f64();
    let rss_peak_mb = server.rss_peak_mb()?;
    server.stop().await?;
    Ok(Lives { rate, rss_peak_mb })
}

/// Gives how many were sent: whole batches. No two sessions are the same, so each body is made when it is sent; that costs
/// both runs the same.
async fn submit(server: &BenchServer, prefix: &'static str, n_tasks: u64, belong: Belong) -> anyhow::Result<u64> {
    let n_batches = n_tasks.div_ceil(BATCH);
    send_batches(server, n_batches, move |batch| {
        let items: Vec<String> = (batch * BATCH..(batch + 1) * BATCH).map(|n| item(prefix, n, belong)).collect();
        request("POST", "/v1/batches", &format!(r#"{{"tasks":[{}]}}"#, items.join(","))).into()
    })
    .await?;
    Ok(n_batches * BATCH)
}

fn item(prefix: &str, n: u64, belong: Belong) -> String {
    let session = match belong {
        Belong::Nowhere => String::new(),
        Belong::OwnSession => format!(r#","session":"{prefix}-{n}""#),
    };
    format!(r#"{{"kind":"noop","agent":"agent-{}"{session}}}"#, n % AGENTS)
}
