//! `runyard bench`: the product's own figures, on the real path.
//!
//! A server process of this very binary, SQLite with synchronous=FULL or the PostgreSQL that is given, requests over
//! loopback HTTP, the no-op kind. The load generator runs on the same machine. Limits are raised by the bench itself and
//! printed with the figures; the raw limit of the machine is measured in the same run, because a figure without it says
//! little on a noisy machine. The placement figures are the core's alone and need no server.

mod database;
mod edge;
mod growth;
mod http;
mod lives;
mod place;
mod placement;
mod processes;
mod raw;
mod report;
mod schedules;
mod server;
mod sessions;

use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::cli::Shared;
use crate::error::{Error, Result};
use crate::exit::Exit;

use self::edge::Load;
use self::place::Place;
use self::report::Report;
use self::server::BenchServer;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// Which figures: raw, submits, batches, lives, latency, growth, agents, sessions, processes, edge,
    /// schedules, placement, or all.
    #[arg(long, value_delimiter = ',', default_value = "raw,submits,batches,lives,latency")]
    only: Vec<String>,
    /// Tasks in each full-life run.
    #[arg(long, default_value_t = 200_000)]
    tasks: u64,
    /// Backlogs for the growth figures.
    #[arg(long, value_delimiter = ',', default_value = "1000,100000,1000000,10000000")]
    queued: Vec<u64>,
    /// Numbers of agents for the agents figures.
    #[arg(long, value_delimiter = ',', default_value = "10,1000,100000")]
    agents: Vec<u64>,
    /// Sessions with one task each, for the sessions figures.
    #[arg(long, default_value_t = 1_000_000)]
    sessions: u64,
    /// Processes alive at once, for the processes figures.
    #[arg(long, default_value_t = 500)]
    processes: u64,
    /// Schedules, for the schedules figures; a tenth of them is due at the same moment.
    #[arg(long, default_value_t = 100_000)]
    schedules: u64,
    /// Workers, for the placement figures.
    #[arg(long, default_value_t = 10_000)]
    workers: u64,
    /// Tasks of a hundred shapes that are queued for them.
    #[arg(long, default_value_t = 1_000_000)]
    waiting: u64,
    /// Tasks placed on a full fleet, for the placement figures.
    #[arg(long, default_value_t = 300_000)]
    placed: u64,
    /// Clients that wait, for the edge figures.
    #[arg(long, default_value_t = 10_000)]
    clients: usize,
    /// Requests in a second beside them, for the edge figures.
    #[arg(long, default_value_t = 1000)]
    rate: u64,
    /// Seconds of that; the overload takes a third of it.
    #[arg(long, default_value_t = 60)]
    edge_seconds: u64,
    /// Measure PostgreSQL instead of SQLite: the address of a database in which this user may make schemas. Those of the
    /// bench are its own, and gone in the end. Not given: SQLite.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Fail when a target is missed.
    #[arg(long)]
    strict: bool,
    /// Seconds for each timed figure.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Also write them, with what was measured and how, to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Where the servers keep their data meanwhile; a disk like the one in production gives honest figures.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    bench(shared, &args).await.map_err(|error| Error::Bench(format!("{error:#}")))?;
    Ok(Exit::Done)
}

async fn bench(shared: &Shared, args: &Args) -> anyhow::Result<()> {
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = dir.join(format!("runyard-bench-{}", std::process::id()));
    let place = Place::new(dir, args.store.as_deref())?;
    let result = measure(args, &place).await;
    // The data is of no use to anyone; a failure to remove it must not hide the figures.
    let _ = place.remove_all().await;
    let report = result?;
    if shared.json {
        println!("{}", serde_json::to_string_pretty(&report.to_json())?);
    } else {
        println!("{}", report.to_table());
    }
    if let Some(path) = &args.write {
        std::fs::write(path, report.to_markdown()).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("written to {}", path.display());
    }
    let missed = report.missed();
    if args.strict && !missed.is_empty() {
        bail!("missed: {}", missed.join(", "));
    }
    Ok(())
}

async fn measure(args: &Args, place: &Place) -> anyhow::Result<Report> {
    let wants = |name: &str| args.only.iter().any(|only| only == name || only == "all");
    let mut report = Report::new(server::LIMITS, raw::store(place).await?);
    if wants("raw") {
        eprintln!("raw limit of this machine …");
        raw::measure(place, &mut report).await?;
    }
    if wants("submits") {
        eprintln!("single submits …");
        let server = BenchServer::start(&place.join("submits")).await?;
        lives::single_submits(&server, args.seconds, &mut report).await?;
        server.stop().await?;
    }
    if wants("batches") {
        eprintln!("batch submits …");
        let server = BenchServer::start(&place.join("batches")).await?;
        lives::batch_submits(&server, args.tasks, &mut report).await?;
        server.stop().await?;
    }
    if wants("lives") {
        eprintln!("full lives …");
        let server = BenchServer::start(&place.join("lives")).await?;
        lives::full_lives(&server, args.tasks, &mut report).await?;
        server.stop().await?;
    }
    if wants("latency") {
        eprintln!("idle latency …");
        let server = BenchServer::start(&place.join("latency")).await?;
        lives::idle_latency(&server, args.seconds, &mut report).await?;
        server.stop().await?;
    }
    if wants("growth") {
        growth::backlogs(place, &args.queued, &mut report).await?;
    }
    if wants("agents") {
        growth::agents(place, &args.agents, args.tasks, &mut report).await?;
    }
    if wants("sessions") {
        sessions::one_task_each(place, args.sessions, &mut report).await?;
    }
    if wants("processes") {
        processes::alive_at_once(place, args.processes, &mut report).await?;
        processes::short_lives(place, args.processes * 2, &mut report).await?;
    }
    if wants("schedules") {
        schedules::many(place, args.schedules, &mut report).await?;
    }
    if wants("placement") {
        let size = placement::Size { workers: args.workers, queued: args.waiting, placed: args.placed };
        placement::measure(&size, &mut report)?;
    }
    if wants("edge") {
        let load = Load { clients: args.clients, per_second: args.rate, seconds: args.edge_seconds };
        edge::measure(place, load, &mut report).await?;
    }
    Ok(report)
}
