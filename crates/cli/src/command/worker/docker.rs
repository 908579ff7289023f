//! What `runyard worker` says of containers: the engine, what they get, and the most they may ask for.

use std::path::PathBuf;

use runyard_exec::docker::SOCKET_DEFAULT;
use runyard_exec::{DockerRules, Limits};
use runyard_worker::{DockerDefaults, DockerOffer};

#[derive(clap::Args)]
#[command(next_help_heading = "Containers (kind docker)")]
pub struct DockerArgs {
    /// The socket of the engine
    #[arg(long, value_name = "PATH", default_value = SOCKET_DEFAULT)]
    docker_socket: PathBuf,
    /// Cores that a container gets which asks for none [default: 2]
    #[arg(long, value_name = "CORES")]
    docker_cpu: Option<f64>,
    /// Memory that a container gets which asks for none, in MiB [default: 512]
    #[arg(long, value_name = "MIB")]
    docker_ram_mb: Option<u32>,
    /// Processes that a container gets which asks for no number [default: 256]
    #[arg(long, value_name = "N")]
    docker_pids: Option<u32>,
    /// The most cores a task may ask for [default: no ceiling]
    #[arg(long, value_name = "CORES")]
    docker_cpu_max: Option<f64>,
    /// The most memory a task may ask for, in MiB [default: no ceiling]
    #[arg(long, value_name = "MIB")]
    docker_ram_mb_max: Option<u32>,
    /// The most processes a task may ask for [default: no ceiling]
    #[arg(long, value_name = "N")]
    docker_pids_max: Option<u32>,
    /// Networks that tasks may name
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "none")]
    docker_networks: Vec<String>,
    /// Tasks may have images fetched
    #[arg(long)]
    docker_pull: bool,
    /// Tasks may have a root file system that they can write to
    #[arg(long)]
    docker_writable_root: bool,
}

impl DockerArgs {
    pub fn defaults(&self, offer: DockerOffer) -> DockerDefaults {
        let own = Limits { cpu: self.docker_cpu, ram_mb: self.docker_ram_mb, pids: self.docker_pids };
        let usual = DockerDefaults::default();
        DockerDefaults {
            offer,
            limits: own.or(usual.limits),
            rules: DockerRules {
                socket: self.docker_socket.clone(),
                cpu_max: self.docker_cpu_max,
                ram_mb_max: self.docker_ram_mb_max,
                pids_max: self.docker_pids_max,
                networks: self.docker_networks.clone(),
                pull: self.docker_pull,
                writable_root: self.docker_writable_root,
            },
            ..usual
        }
    }
}
