//! What do schedules cost while none is due, and how long do many take that are due at the same moment?

use std::time::Duration;

use anyhow::{Context, bail};
use runyard_wire::Timestamp;

use super::http::request;
use super::lives::send_batches;
use super::place::Place;
use super::report::{Figure, Report};
use super::server::BenchServer;

/// Of all of them, so many are due in one moment.
const DUE_PART: u64 = 10;
/// Time to make those and to start again, before they are due.
const AHEAD: Duration = Duration::from_secs(40);
const IDLE: Duration = Duration::from_secs(5);
const ALL_MAX: Duration = Duration::from_secs(60);

pub async fn many(place: &Place, n_schedules: u64, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("{n_schedules} schedules …");
    let server = BenchServer::start(&place.join("schedules")).await?;
    let before_mb = server.rss_mb()?;
    let n_due = n_schedules / DUE_PART;
    let took = make(&server, 0, n_schedules - n_due, r#"{"kind":"cron","expr":"0 0 1 1 *"}"#.to_owned()).await?;
    let rate = (n_schedules - n_due) as f64 / took.as_secs_f64();
    report.add(Figure::new("schedules made one at a time, over 4 connections", rate, "schedules/s"));
    let at = Timestamp(now_ms() + AHEAD.as_millis() as u64);
    make(&server, n_schedules - n_due, n_due, format!(r#"{{"kind":"at","at":"{at}"}}"#)).await?;
    let grown_mb = server.rss_mb()?.saturating_sub(before_mb) as f64;
    report.add(Figure::new(
        "  memory gained while they were made: events, caches and the allocator's too",
        grown_mb,
        "MB",
    ));
    // What they cost themselves is what a server with them has more than one without, both just started.
    let server = BenchServer::start(&server.kill().await?).await?;
    let cost_mb = server.rss_mb()?.saturating_sub(before_mb) as f64;
    let what = format!("  memory that {n_schedules} of them take, after a restart");
    report.add(Figure::new(what, cost_mb, "MB").target(60.0, false));
    let used = server.cpu_coarse()?;
    tokio::time::sleep(IDLE).await;
    if now_ms() >= at.as_ms() {
        bail!("the machine is too slow: they were due before all of them were made");
    }
    let percent = server.cpu_coarse()?.saturating_sub(used).as_secs_f64() / IDLE.as_secs_f64() * 100.0;
    report.add(Figure::new("  processor of the server while none is due", percent, "% of a core"));
    let late = fired(&server, n_due, at.as_ms()).await?;
    report.add(Figure::new(format!("  {n_due} due at once: until all are submitted"), late, "s").target(2.0, false));
    server.stop().await
}

async fn make(server: &BenchServer, first: u64, n: u64, timing: String) -> anyhow::Result<Duration> {
    let body = move |at: u64| {
        let name = first + at;
        let body = format!(
            r#"{{"name":"s{name}","schedule":{timing},"task":{{"kind":"noop","agent":"a{}","lane":"main"}}}}"#,
            name % 100
        );
        request("POST", "/v1/schedules", &body).into()
    };
    send_batches(server, n, body).await.context("schedules cannot be made")
}

/// Seconds from the moment they were due until the last of them was a task.
async fn fired(server: &BenchServer, n: u64, due_ms: u64) -> anyhow::Result<f64> {
    let mut connection = server.connect().await?;
    loop {
        let n_fired = server.stat(&mut connection, &["metrics", "submitted"]).await?;
        let late = Duration::from_millis(now_ms().saturating_sub(due_ms));
        if n_fired >= n {
            return Ok(late.as_secs_f64());
        }
        if late > ALL_MAX {
            bail!("after {ALL_MAX:?} {n_fired} of {n} are submitted");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn now_ms() -> u64 {
    jiff::Timestamp::now().as_millisecond().unsigned_abs()
}
