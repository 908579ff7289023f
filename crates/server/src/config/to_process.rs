//! The part of the configuration that holds for processes and containers.

use runyard_exec::{DockerRules, WorkspaceRules};
use runyard_worker::{DockerDefaults, DockerOffer, ProcessDefaults};

use super::types::{Config, Docker, DockerEnabled, Process, Sandbox, WorkDir};

pub fn to_process_defaults(config: &Config) -> ProcessDefaults {
    let Process { sandbox, limits, .. } = &config.process;
    ProcessDefaults {
        sandbox: to_sandbox(*sandbox),
        limits: runyard_exec::Limits { cpu: limits.cpu, ram_mb: limits.ram_mb, pids: limits.pids },
        output_bytes: limits.output_bytes,
        workspace: workspace(&config.process),
    }
}

pub fn to_docker_defaults(config: &Config) -> DockerDefaults {
    let Docker { enabled, socket, limits, cpu_max, ram_mb_max, pids_max, networks, pull, writable_root } =
        config.docker.clone();
    DockerDefaults {
        offer: match enabled {
            DockerEnabled::Auto => DockerOffer::Auto,
            DockerEnabled::Always => DockerOffer::Always,
            DockerEnabled::Never => DockerOffer::Never,
        },
        limits: runyard_exec::Limits { cpu: Some(limits.cpu), ram_mb: Some(limits.ram_mb), pids: Some(limits.pids) },
        output_bytes: limits.output_bytes,
        workspace: workspace(&config.process),
        rules: DockerRules { socket, cpu_max, ram_mb_max, pids_max, networks, pull, writable_root },
    }
}

pub fn to_sandbox(sandbox: Sandbox) -> runyard_exec::Sandbox {
    match sandbox {
        Sandbox::None => runyard_exec::Sandbox::None,
        Sandbox::Bubblewrap => runyard_exec::Sandbox::Bubblewrap,
    }
}

fn workspace(process: &Process) -> WorkspaceRules {
    WorkspaceRules {
        work_dir: match process.work_dir {
            WorkDir::Remove => runyard_exec::WorkDir::Remove,
            WorkDir::Keep => runyard_exec::WorkDir::Keep,
            WorkDir::KeepOnFailure => runyard_exec::WorkDir::KeepOnFailure,
        },
        files_bytes_max: process.files_bytes_max,
        files_max: process.files_max,
        artifacts_bytes_max: process.artifacts_bytes_max,
        artifacts_max: process.artifacts_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_both_sides_agree() {
        assert_eq!(to_process_defaults(&Config::default()), ProcessDefaults::default());
        assert_eq!(to_docker_defaults(&Config::default()), DockerDefaults::default());
    }
}
