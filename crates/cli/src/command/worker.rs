//! `runyard worker`: runs tasks of a server on this machine.

mod docker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use runyard_exec::Kind;
use runyard_exec::process::supervise::SupervisorProgram;
use runyard_wire::WorkerRequest;
use runyard_worker::remote::{self, Ended, RemoteOptions};
use runyard_worker::{DockerDefaults, DockerOffer, machine};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::serve::own_program;
use crate::cli::Shared;
use crate::error::{Error, Result};
use crate::exit::Exit;
use docker::DockerArgs;

/// As the server's own worker has it.
const SUPERVISOR_HEARTBEAT_MS: u64 = 5_000;
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(clap::Args)]
#[command(after_help = "\
The first start joins with a token (`runyard key create --scope worker` makes one); from then on the worker has a key of
its own, in worker.json of its data directory. Processes go on when the worker ends, and the next start takes them over.
SIGTERM takes nothing new and ends when the rest has ended or --drain-ms is over; a second one ends at once.
A --kind NAME=PROGRAM gets the payload as JSON on its standard input; what it prints is the result.
Exit code 7: another process is this worker now.")]
pub struct Args {
    /// Address of the server, or of several nodes of one, of which the next is asked when one is away [default: --url]
    #[arg(long, value_name = "URL", env = "RUNYARD_SERVER", value_delimiter = ',')]
    server: Vec<String>,
    /// Token to join with
    #[arg(long, value_name = "TOKEN", env = "RUNYARD_WORKER_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// File that holds the token
    #[arg(long, value_name = "FILE", env = "RUNYARD_WORKER_TOKEN_FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Name for people [default: the machine's]
    #[arg(long)]
    name: Option<String>,
    /// Kinds it runs [default: http,process,noop, and docker when its engine answers]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kinds: Vec<String>,
    /// A kind of its own, and the program that runs it
    #[arg(long = "kind", value_name = "NAME=PROGRAM", value_parser = program)]
    programs: Vec<(String, PathBuf)>,
    /// What tasks can ask for in `place`, such as zone=a,disk=ssd
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
    labels: Vec<(String, String)>,
    /// Other resources it has, such as gpu=1
    #[arg(long = "resource", value_name = "NAME=N", value_delimiter = ',', value_parser = resource)]
    resources: Vec<(String, u32)>,
    /// Cores it offers, with fractions [default: all]
    #[arg(long, value_name = "CORES")]
    cpu: Option<f64>,
    /// Memory it offers, in MiB [default: all]
    #[arg(long, value_name = "MIB")]
    ram_mb: Option<u32>,
    /// Tasks at a time [default: half of the cores, at least 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_parallel: Option<u32>,
    /// Where it keeps its identity and its work [default: $XDG_DATA_HOME/runyard-worker or ~/.local/share/runyard-worker]
    #[arg(long, value_name = "DIR", env = "RUNYARD_WORKER_DATA")]
    data_dir: Option<PathBuf>,
    /// How long it waits for its work when it is told to end
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    drain_ms: u64,
    /// Between the request to stop and the kill
    #[arg(long, value_name = "MS", default_value_t = 5_000)]
    grace_ms: u64,
    #[command(flatten)]
    docker: DockerArgs,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let options = args.into_options(shared)?;
    start_log();
    let leave = CancellationToken::new();
    let work = remote::run(options, leave.clone());
    tokio::pin!(work);
    let mut signals = Signals::new()?;
    loop {
        tokio::select! {
            ended = &mut work => {
                return match ended? {
                    Ended::Left => Ok(Exit::Done),
                    Ended::Fenced => Ok(Exit::Fenced),
                };
            }
            () = signals.next() => {
                if leave.is_cancelled() {
                    tracing::warn!("ends at once");
                    return Ok(Exit::Failed);
                }
                leave.cancel();
            }
        }
    }
}

impl Args {
    fn into_options(self, shared: &Shared) -> Result<RemoteOptions> {
        let connection = shared.connection.clone();
        let (servers, certificates) = (self.servers(&connection)?, connection.certificates()?);
        let data_dir = self.data_dir(&connection)?;
        let docker = self.docker.defaults(self.offers_docker());
        let (token, about) = (self.token()?, self.about(&docker)?);
        Ok(RemoteOptions {
            servers,
            certificates,
            token,
            data_dir,
            about,
            programs: self.programs.into_iter().collect(),
            docker,
            supervisor: Some(SupervisorProgram { program: own_program(), heartbeat_ms: SUPERVISOR_HEARTBEAT_MS }),
            grace_ms: self.grace_ms,
            drain: Duration::from_millis(self.drain_ms),
        })
    }

    fn servers(&self, connection: &crate::locate::Connection) -> Result<Vec<reqwest::Url>> {
        let at = |url: &String| crate::locate::Connection { url: Some(url.clone()), ..connection.clone() }.url();
        match self.server.is_empty() {
            true => Ok(vec![connection.url()?]),
            false => self.server.iter().map(at).collect(),
        }
    }

    fn data_dir(&self, connection: &crate::locate::Connection) -> Result<PathBuf> {
        match &self.data_dir {
            Some(dir) => Ok(dir.clone()),
            // Beside a server's, never in it.
            None => {
                let home = crate::locate::Connection { data: None, ..connection.clone() };
                Ok(home.data_dir()?.with_file_name("runyard-worker"))
            }
        }
    }

    fn token(&self) -> Result<Option<String>> {
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => token.clone(),
            (None, None) => return Ok(None),
            (None, Some(path)) => std::fs::read_to_string(path).map_err(|source| Error::File {
                doing: "read the token in",
                path: path.clone(),
                source,
            })?,
        };
        Ok(Some(token.trim().to_owned()).filter(|token| !token.is_empty()))
    }

    fn offers_docker(&self) -> DockerOffer {
        match self.kinds.iter().any(|kind| kind == Kind::Docker.as_str()) {
            true => DockerOffer::Always,
            false if self.kinds.is_empty() => DockerOffer::Auto,
            false => DockerOffer::Never,
        }
    }

    fn about(&self, docker: &DockerDefaults) -> Result<WorkerRequest> {
        let hostname = machine::hostname();
        let name = self.name.clone().or_else(|| hostname.clone());
        let name = name.ok_or_else(|| Error::usage("this machine has no name; give the worker one with --name"))?;
        let (kinds, keeps) = self.kinds(docker)?;
        Ok(WorkerRequest {
            name,
            hostname,
            os: Some(std::env::consts::OS.to_owned()),
            version: Some(VERSION.to_owned()),
            cpus: self.cpu.unwrap_or(machine::n_cores() as f64),
            ram_mb: self.ram_mb.or_else(machine::ram_total_mb).unwrap_or(RAM_MB_UNKNOWN),
            labels: self.labels.iter().cloned().collect(),
            kinds,
            keeps,
            max_parallel: Some(self.max_parallel.unwrap_or(parallel_default())),
            resources: self.resources.iter().cloned().collect::<BTreeMap<_, _>>(),
        })
    }

    /// All, and those that go on without the worker: what runs under a supervisor.
    fn kinds(&self, docker: &DockerDefaults) -> Result<(Vec<String>, Vec<String>)> {
        let mut kinds: Vec<String> = match self.kinds.is_empty() {
            true => docker.kinds_offered().into_iter().map(|kind| kind.as_str().to_owned()).collect(),
            false => self.kinds.clone(),
        };
        if let Some(unknown) = kinds.iter().find(|kind| Kind::parse(kind).is_none()) {
            let known = Kind::ALL.map(Kind::as_str).join(", ");
            return Err(Error::usage(format!(
                "this worker has no executor for kind `{unknown}`: it is none of {known}; \
                 --kind {unknown}=PROGRAM offers a kind of its own"
            )));
        }
        let own = self.programs.iter().map(|(name, _)| name.clone());
        let outlives = |kind: &&String| [Kind::Process, Kind::Docker].iter().any(|other| other.as_str() == *kind);
        let mut keeps: Vec<String> = kinds.iter().filter(outlives).cloned().collect();
        keeps.extend(own.clone());
        kinds.extend(own);
        for list in [&mut kinds, &mut keeps] {
            list.sort();
            list.dedup();
        }
        Ok((kinds, keeps))
    }
}

/// Of a machine that does not say how much memory it has.
const RAM_MB_UNKNOWN: u32 = 4096;

fn parallel_default() -> u32 {
    u32::try_from(machine::n_cores() / 2).unwrap_or(u32::MAX).max(1)
}

/// To standard error, as the server does; RUST_LOG says how much.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = log.with_ansi(crate::out::stderr_is_terminal()).try_init();
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Signals> {
        let on = |kind| signal(kind).map_err(|error| Error::usage(format!("signals cannot be heard: {error}")));
        Ok(Signals { terminate: on(SignalKind::terminate())?, interrupt: on(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn pair(text: &str) -> std::result::Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

fn resource(text: &str) -> std::result::Result<(String, u32), String> {
    let (name, amount) = pair(text)?;
    let amount = amount.parse().map_err(|_| format!("`{amount}` is not a whole number"))?;
    Ok((name, amount))
}

/// Its path is made absolute: it is run in another directory.
fn program(text: &str) -> std::result::Result<(String, PathBuf), String> {
    let (name, path) = pair(text)?;
    // A bare name is looked for in PATH, as a shell would.
    if !path.contains('/') {
        return Ok((name, PathBuf::from(path)));
    }
    let path = PathBuf::from(&path).canonicalize().map_err(|error| format!("`{path}` cannot be run: {error}"))?;
    Ok((name, path))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        args: Args,
    }

    fn about(flags: &[&str]) -> std::result::Result<WorkerRequest, String> {
        let words = [&["worker", "--name", "w"][..], flags].concat();
        let probe = Probe::try_parse_from(words).map_err(|error| error.to_string())?;
        let docker = DockerDefaults { offer: DockerOffer::Never, ..Default::default() };
        probe.args.about(&docker).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_say_what_it_offers() {
        let flags = ["--labels", "zone=a,disk=ssd", "--resource", "gpu=1", "--cpu", "1.5", "--kinds", "noop,process"];
        let offer = about(&[&flags[..], &["--kind", "resize=sh", "--max-parallel", "3"]].concat()).unwrap();
        assert_eq!(offer.labels.len(), 2);
        assert_eq!((offer.cpus, offer.max_parallel, offer.resources["gpu"]), (1.5, Some(3), 1));
        assert_eq!(offer.kinds, ["noop", "process", "resize"]);
        assert_eq!(offer.keeps, ["process", "resize"], "what runs under a supervisor goes on without the worker");
    }

    #[test]
    fn unless_told_otherwise_it_offers_its_machine_and_half_as_many_tasks_as_cores() {
        let offer = about(&[]).unwrap();
        let cores = machine::n_cores();
        assert_eq!(offer.cpus, cores as f64);
        assert_eq!(offer.max_parallel, Some((cores as u32 / 2).max(1)));
        assert_eq!(offer.kinds, ["http", "noop", "process"], "no engine answers");
    }

    #[test]
    fn what_is_wrong_with_a_flag_is_said() {
        assert!(about(&["--kinds", "telepathy"]).unwrap_err().contains("--kind telepathy=PROGRAM"));
        assert!(about(&["--labels", "zone"]).unwrap_err().contains("`zone` is not KEY=VALUE"));
        assert!(about(&["--resource", "gpu=many"]).unwrap_err().contains("`many` is not a whole number"));
        assert!(about(&["--kind", "x=./not/there"]).unwrap_err().contains("cannot be run"));
        assert!(about(&["--max-parallel", "0"]).is_err());
    }
}
