//! The part of the configuration that holds for processes.

use runyard_exec::WorkspaceRules;
use runyard_worker::ProcessDefaults;

use super::types::{Config, Process, Sandbox, WorkDir};

pub fn to_process_defaults(config: &Config) -> ProcessDefaults {
    let Process { sandbox, limits, .. } = &config.process;
    ProcessDefaults {
        sandbox: to_sandbox(*sandbox),
        limits: runyard_exec::Limits { cpu: limits.cpu, ram_mb: limits.ram_mb, pids: limits.pids },
        output_bytes: limits.output_bytes,
        workspace: workspace(&config.process),
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
    }
}
