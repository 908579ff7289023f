//! A steady load beside a crowd that waits.

use std::sync::Arc;

use super::super::http::request;
use super::super::lives::{ms, percentile};
use super::super::place::Place;
use super::super::report::{Figure, Report};
use super::super::server::{BenchServer, CONFIG};
use super::Load;
use super::crowd::Crowd;
use super::open_loop::{Plan, offer};

const CONNECTIONS: usize = 128;
/// Of the requirements: no error, this much memory, this long.
const RSS_MB_MAX: f64 = 600.0;
const P99_MS_MAX: f64 = 100.0;

pub async fn beside_a_crowd(place: &Place, load: Load, report: &mut Report) -> anyhow::Result<()> {
    let Load { clients, per_second, seconds } = load;
    eprintln!("{clients} clients that wait, {per_second} requests/s for {seconds} s …");
    let server = BenchServer::start_with(place, CONFIG).await?;
    let crowd = Crowd::gather(&server, clients).await?;
    report.add(Figure::new(format!("{clients} clients wait: resident memory"), server.rss_mb()? as f64, "MB"));
    let cpu = server.cpu_coarse()?;
    let plan = Plan { per_second, seconds, n_connections: CONNECTIONS };
    let answers = offer(&server, plan, mix(&crowd.tasks)).await?;
    let cpu = server.cpu_coarse()?.saturating_sub(cpu).as_secs_f64() / seconds as f64 * 100.0;
    let n_lost = crowd.release(&server).await?;
    let n_failed = answers.iter().filter(|answer| !matches!(answer.status, 200..300)).count();
    let mut times: Vec<_> = answers.iter().map(|answer| answer.after).collect();
    times.sort_unstable();
    let what = format!("  and {per_second} requests/s for {seconds} s: p50 from the moment each was due");
    report.add(Figure::new(what, ms(percentile(&times, 50)), "ms"));
    report.add(Figure::new("  p99", ms(percentile(&times, 99)), "ms").target(P99_MS_MAX, false));
    report.add(Figure::new("  requests that failed", n_failed as f64, "").target(0.0, false));
    report.add(Figure::new("  clients cut off, or told nothing", n_lost as f64, "").target(0.0, false));
    let rss = server.rss_peak_mb()? as f64;
    report.add(Figure::new("  resident memory, at most", rss, "MB").target(RSS_MB_MAX, false));
    report.add(Figure::new("  processor of the server", cpu, "% of a core"));
    server.stop().await
}

/// Of ten requests four look at a task, three submit one, two list, one asks for the statistics.
fn mix(tasks: &[String]) -> impl Fn(u64) -> Arc<[u8]> + Send + Sync + 'static {
    let looks: Vec<Arc<[u8]>> =
        tasks.iter().take(1000).map(|id| request("GET", &format!("/v1/tasks/{id}"), "").into()).collect();
    let submit: Arc<[u8]> = request("POST", "/v1/tasks", r#"{"kind":"noop","agent":"bench"}"#).into();
    let list: Arc<[u8]> = request("GET", "/v1/tasks?agent=bench&limit=20", "").into();
    let stats: Arc<[u8]> = request("GET", "/v1/stats", "").into();
    move |n| match n % 10 {
        0 | 3 | 6 => submit.clone(),
        1 | 5 => list.clone(),
        9 => stats.clone(),
        _ => looks[n as usize % looks.len()].clone(),
    }
}
