//! Supervisors as the process table shows them, by the words they were started with: also those that have not yet said
//! who they are, which nothing in the directory of a run leads to.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::identity::Identity;
use crate::process::proc_table;

pub(super) struct Started {
    pub supervisor: Identity,
    pub run: PathBuf,
}

/// All of them, of whichever data directory.
pub(super) fn all() -> Vec<Started> {
    proc_table::pids().into_iter().filter_map(look).collect()
}

/// Who was started for this run and is alive.
pub(super) fn of_run(run: &Path) -> Option<Identity> {
    all().into_iter().find(|started| started.run == run).map(|started| started.supervisor)
}

fn look(pid: i32) -> Option<Started> {
    // Before its words are read: whoever gets the pid afterwards is somebody else.
    let supervisor = Identity::of(pid);
    let run = run_of(&proc_table::arguments(pid))?.to_owned();
    Some(Started { supervisor, run })
}

fn run_of(arguments: &[OsString]) -> Option<&Path> {
    match arguments {
        [_, supervise, flag, run] if supervise == "supervise" && flag == "--run" => Some(Path::new(run)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_supervisor_is_known_by_its_words() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(run_of(&words("runyard supervise --run /d/runs/a-1")), Some(Path::new("/d/runs/a-1")));
        for other in ["runyard", "runyard serve", "runyard supervise --run", "sh supervise --run /a b", "vi --run x y"]
        {
            assert_eq!(run_of(&words(other)), None, "{other}");
        }
    }

    #[test]
    fn it_is_found_as_long_as_it_is_alive() {
        let root = tempfile::tempdir().expect("a directory");
        let run = root.path().join("x-1");
        assert!(of_run(&run).is_none());
        // A shell that waits, under the words of a supervisor: the first of them is its script.
        let script = root.path().join("supervise");
        std::fs::write(&script, "read line").expect("written");
        let mut command = Command::new("sh");
        command.current_dir(root.path()).arg0("runyard").args(["supervise", "--run"]).arg(&run).stdin(Stdio::piped());
        let mut child = command.spawn().expect("sh can be started");
        let found = loop {
            if let Some(found) = of_run(&run) {
                break found;
            }
        };
        assert_eq!(found.pid, child.id() as i32);
        child.kill().expect("killed");
        child.wait().expect("waited for");
        assert!(of_run(&run).is_none());
    }
}
