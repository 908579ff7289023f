//! Ten times as many submits as the yard can work off, with a queue that fills up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::super::http::request;
use super::super::lives::{ms, percentile};
use super::super::place::Place;
use super::super::report::{Figure, Report};
use super::super::server::BenchServer;
use super::Load;
use super::open_loop::{Answered, Plan, offer};

/// Tasks so long: a place in the lane also waits for the commit between two of them, and that shall not be what is
/// measured. The lane is as wide as the rate of the other figures needs: 1000 in a second are 500 at a time.
const TASK_MS: u64 = 500;
const TIMES: u64 = 10;
const PEAK_CONNECTIONS: usize = 64;
const CONNECTIONS: usize = 512;
/// What was accepted has ended by then: the queue holds two seconds of work.
const ENDED_MAX: Duration = Duration::from_secs(60);
/// Of the requirements.
const P99_MS_MAX: f64 = 50.0;
const GOODPUT_PERCENT_MIN: f64 = 80.0;

pub async fn ten_times(place: &Place, load: Load, report: &mut Report) -> anyhow::Result<()> {
    let seconds = load.seconds.div_ceil(3);
    let width = (load.per_second * TASK_MS / 1000).max(1);
    // Just below what it can do, so that nothing piles up.
    let below = width * 1000 / TASK_MS * 9 / 10;
    // Two seconds of its work.
    let queued_max = width * 2000 / TASK_MS;
    eprintln!("tasks of {TASK_MS} ms in a lane of {width}, {TIMES} times too many for {seconds} s …");
    let server = BenchServer::start_with(place, &config(width, queued_max)).await?;
    let peak = Run::of(&server, Plan { per_second: below, seconds, n_connections: PEAK_CONNECTIONS }).await?;
    if peak.n_refused > 0 {
        bail!("{} submits were refused below the peak", peak.n_refused);
    }
    report.add(Figure::new(
        format!("{below} submits/s of tasks of {TASK_MS} ms in a lane of {width}: completed"),
        peak.per_second,
        "tasks/s",
    ));
    let offered = (peak.per_second * TIMES as f64) as u64;
    let over = Run::of(&server, Plan { per_second: offered, seconds, n_connections: CONNECTIONS }).await?;
    if over.n_refused == 0 {
        bail!("nothing was refused: {offered} submits/s were no overload");
    }
    report.add(Figure::new(
        format!("{offered} submits/s for {seconds} s, at most {queued_max} queued: completed"),
        over.per_second,
        "tasks/s",
    ));
    over.add_to(report, peak.per_second);
    report.add(Figure::new("  resident memory, at most", server.rss_peak_mb()? as f64, "MB"));
    server.stop().await
}

fn config(width: u64, queued_max: u64) -> String {
    format!(
        "[limits]\nmaxQueued = {queued_max}\nmaxQueuedPerAgent = {queued_max}\n\n[lanes]\nmain = {width}\n\n\
         [worker]\ncpu = 20000\nramMb = 20000000\n\n[log]\nlevel = \"warn\"\n"
    )
}

struct Run {
    /// Completed while it was offered.
    per_second: f64,
    n_refused: usize,
    n_other: usize,
    n_unfinished: u64,
    refused_p99: Duration,
    accepted_p99: Duration,
}

impl Run {
    async fn of(server: &BenchServer, plan: Plan) -> anyhow::Result<Run> {
        let body = format!(r#"{{"kind":"noop","agent":"bench","payload":{{"sleepMs":{TASK_MS}}}}}"#);
        let submit: Arc<[u8]> = request("POST", "/v1/tasks", &body).into();
        let before = completed(server).await?;
        let began = Instant::now();
        let answers = offer(server, plan, move |_| submit.clone()).await?;
        let per_second = (completed(server).await? - before) as f64 / began.elapsed().as_secs_f64();
        let accepted = times_of(&answers, |answer| answer.status == 201);
        let refused = times_of(&answers, |answer| answer.status == 429 && answer.says_when);
        let n_unfinished = unfinished(server, before + accepted.len() as u64).await?;
        Ok(Run {
            per_second,
            n_refused: refused.len(),
            n_other: answers.len() - accepted.len() - refused.len(),
            n_unfinished,
            refused_p99: percentile(&refused, 99),
            accepted_p99: percentile(&accepted, 99),
        })
    }

    fn add_to(&self, report: &mut Report, peak_per_second: f64) {
        let goodput = self.per_second / peak_per_second * 100.0;
        report.add(Figure::new("  of the peak", goodput, "%").target(GOODPUT_PERCENT_MIN, true));
        report.add(Figure::new("  refused with 429 and Retry-After", self.n_refused as f64, "submits"));
        report.add(Figure::new("  p99 of these", ms(self.refused_p99), "ms").target(P99_MS_MAX, false));
        report.add(Figure::new("  p99 of what was accepted", ms(self.accepted_p99), "ms"));
        report.add(Figure::new("  other answers, or none", self.n_other as f64, "").target(0.0, false));
        report.add(Figure::new("  accepted and not completed", self.n_unfinished as f64, "").target(0.0, false));
    }
}

fn times_of(answers: &[Answered], of: impl Fn(&&Answered) -> bool) -> Vec<Duration> {
    let mut times: Vec<_> = answers.iter().filter(of).map(|answer| answer.after).collect();
    times.sort_unstable();
    times
}

async fn completed(server: &BenchServer) -> anyhow::Result<u64> {
    server.stat(&mut server.connect().await?, &["metrics", "completed"]).await
}

/// How many of so many do not complete.
async fn unfinished(server: &BenchServer, n: u64) -> anyhow::Result<u64> {
    if tokio::time::timeout(ENDED_MAX, server.completed(n)).await.is_ok_and(|completed| completed.is_ok()) {
        return Ok(0);
    }
    Ok(n - completed(server).await?)
}
