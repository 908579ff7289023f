//! The server under load: another process of this binary, with its own data directory and raised limits.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;
use tokio::process::{Child, Command};

use super::http::{Connection, request};
use super::place::Place;

/// Raised so that what is measured is the work and not the default limits.
pub const LIMITS: &str = "limits.maxQueued 20000000, limits.maxQueuedPerAgent 20000000, limits.maxInflight 20000, \
lanes.main 20000, lanes.backlog 20000, worker.cpu 20000, worker.ramMb 20000000, log.level warn";

pub const CONFIG: &str = r#"
[limits]
maxQueued = 20000000
maxQueuedPerAgent = 20000000
maxInflight = 20000

[lanes]
main = 20000
backlog = 20000

[worker]
cpu = 20000
ramMb = 20000000

[log]
level = "warn"
"#;

/// How long a server may take to say that it is ready, backlog and all.
const READY_MAX: Duration = Duration::from_secs(120);

/// Of `/proc/<pid>/stat`, on every Linux.
const TICK: Duration = Duration::from_millis(10);

pub struct BenchServer {
    child: Child,
    pub address: String,
    place: Place,
}

impl BenchServer {
    pub async fn start(place: &Place) -> anyhow::Result<BenchServer> {
        BenchServer::start_with(place, CONFIG).await
    }

    pub async fn start_with(place: &Place, text: &str) -> anyhow::Result<BenchServer> {
        place.make().await?;
        let config = place.dir().join("bench.toml");
        std::fs::write(&config, text)?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let child = Command::new(std::env::current_exe()?)
            .args(["serve", "--no-auth", "--listen", &address, "--data"])
            .arg(place.dir())
            .arg("--config")
            .arg(&config)
            .args(place.flags())
            .stdout(Stdio::null())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the server to be measured")?;
        let server = BenchServer { child, address, place: place.clone() };
        server.ready().await?;
        Ok(server)
    }

    async fn ready(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            if let Ok(mut connection) = Connection::open(&self.address).await
                && connection.send(&request("GET", "/readyz", "")).await.is_ok_and(|answer| answer.status == 200)
            {
                return Ok(());
            }
            if began.elapsed() > READY_MAX {
                bail!("the server did not become ready in {READY_MAX:?}");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(&self.address).await
    }

    pub async fn connections(&self, n: usize) -> anyhow::Result<Vec<Connection>> {
        let mut all = Vec::with_capacity(n);
        for _ in 0..n {
            all.push(self.connect().await?);
        }
        Ok(all)
    }

    /// A number from `/v1/stats`, by its path.
    pub async fn stat(&self, connection: &mut Connection, path: &[&str]) -> anyhow::Result<u64> {
        let body = connection.expect(&request("GET", "/v1/stats", "")).await?;
        let stats: Value = serde_json::from_slice(&body)?;
        let found = path.iter().try_fold(&stats, |value, key| value.get(key)).and_then(Value::as_u64);
        found.with_context(|| format!("/v1/stats has no number {path:?}"))
    }

    /// Waits until so many tasks have completed, and gives the moment it saw that.
    pub async fn completed(&self, n: u64) -> anyhow::Result<Instant> {
        let mut connection = self.connect().await?;
        loop {
            if self.stat(&mut connection, &["metrics", "completed"]).await? >= n {
                return Ok(Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Resident memory in MB.
    pub fn rss_mb(&self) -> anyhow::Result<u64> {
        self.memory_mb("VmRSS:")
    }

    /// The most it ever was.
    pub fn rss_peak_mb(&self) -> anyhow::Result<u64> {
        self.memory_mb("VmHWM:")
    }

    fn memory_mb(&self, name: &str) -> anyhow::Result<u64> {
        Ok(memory_kb_of(self.pid()?, name)? / 1024)
    }

    pub fn cpu(&self) -> anyhow::Result<Duration> {
        cpu_of(self.pid()?)
    }

    /// As [`Self::cpu`], with that of threads that have ended, and no finer than a clock tick: for a server that idles
    /// over seconds, and whose pool threads end of that.
    pub fn cpu_coarse(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()?))?;
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().skip(11).take(2));
        let ticks = fields.context("the kernel tells of every process")?.map(str::parse::<u64>).sum::<Result<u64, _>>();
        Ok(TICK * u32::try_from(ticks?)?)
    }

    pub fn data(&self) -> &Path {
        self.place.dir()
    }

    fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("the server is running")
    }

    /// Gives where its data is, for the next one.
    pub async fn kill(mut self) -> anyhow::Result<Place> {
        self.child.kill().await?;
        Ok(self.place)
    }

    /// Ends the server and removes its data.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.kill().await?.remove().await
    }
}

/// What the kernel says under this name of a process.
pub fn memory_kb_of(pid: u32, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with(name));
    let kb = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kb| kb.parse().ok());
    kb.with_context(|| format!("the kernel does not tell {name}"))
}

/// Processor time used so far by all threads of a process, in the scheduler's nanoseconds: ticks are too coarse here.
pub fn cpu_of(pid: u32) -> anyhow::Result<Duration> {
    let mut total_ns = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that ends meanwhile takes what it used with it: little, and only pool threads come and go.
        let Ok(stat) = std::fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        total_ns += stat.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(total_ns))
}
