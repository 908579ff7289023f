//! `sandbox: "bubblewrap"`: the command sees this machine read-only and can write only to its working directory.
//!
//! | path | inside |
//! |---|---|
//! | `/` | as it is, read-only |
//! | `/tmp`, `/var/tmp`, `/dev/shm` | empty and its own |
//! | `/run` | empty: a socket can be spoken to through a read-only mount |
//! | `/proc` | of its own process ids |
//! | `/dev` | null, zero, full, random, urandom, tty |
//! | the data directory | hidden, with its keys, its store and the other tasks' files |
//! | the working directory | writable |
//!
//! No capability, no way to regain one, no network but the loopback of its own unless it was asked for, a session of its own,
//! and it dies with the process that holds the sandbox.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::outcome::{Class, Failure};

/// The answer to a missing program is of no use to a retry.
const PROGRAM: &str = "bwrap";
/// Where resolvers put what `/etc/resolv.conf` links to.
const RESOLVERS: [&str; 3] = ["/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"];

/// Where everybody may leave something, or listens.
const EMPTIED: [&str; 3] = ["/tmp", "/var/tmp", "/run"];

/// What is different from one run to another.
pub(super) struct Sandbox<'a> {
    pub(super) data_dir: &'a Path,
    pub(super) work_dir: &'a Path,
    pub(super) cwd: &'a Path,
    pub(super) network: bool,
}

impl Sandbox<'_> {
    /// The command line that runs `argv` inside; `path` is where programs are.
    pub(super) fn argv(&self, argv: &[String], path: &OsStr) -> Result<Vec<OsString>, Failure> {
        let program = find(PROGRAM, path).ok_or_else(|| {
            let message = "sandbox `bubblewrap` is not installed on this machine: the program `bwrap` was not found \
                           (Debian package bubblewrap)";
            Failure::work(Class::Permanent, message)
        })?;
        let mut line = vec![program.into_os_string()];
        line.extend(self.options());
        line.push("--".into());
        line.extend(argv.iter().map(OsString::from));
        Ok(line)
    }

    /// Mounts are made in this order, each over what is there.
    fn options(&self) -> Vec<OsString> {
        let mut line: Vec<OsString> = Vec::new();
        let mut add = |words: &[&dyn AsRef<OsStr>]| line.extend(words.iter().map(|word| word.as_ref().to_owned()));
        add(&[&"--ro-bind", &"/", &"/", &"--proc", &"/proc", &"--dev", &"/dev"]);
        let emptied: Vec<&Path> = EMPTIED.iter().map(Path::new).filter(|dir| dir.is_dir()).collect();
        emptied.iter().for_each(|dir| add(&[&"--tmpfs", dir]));
        if self.network {
            RESOLVERS.iter().for_each(|dir| add(&[&"--ro-bind-try", dir, dir]));
        }
        if emptied.iter().any(|dir| self.cwd.starts_with(dir) && self.cwd != *dir) && self.cwd != self.work_dir {
            add(&[&"--ro-bind", &self.cwd, &self.cwd]);
        }
        add(&[&"--tmpfs", &self.data_dir, &"--bind", &self.work_dir, &self.work_dir]);
        // The folder stays writable otherwise, for files that nobody would ever see.
        add(&[&"--remount-ro", &self.data_dir]);
        add(&[&"--chdir", &self.cwd, &"--setenv", &"TMPDIR", &"/tmp"]);
        add(&[&"--unshare-pid", &"--unshare-ipc", &"--unshare-uts", &"--unshare-cgroup-try"]);
        if !self.network {
            add(&[&"--unshare-net"]);
        }
        add(&[&"--cap-drop", &"ALL", &"--new-session", &"--die-with-parent"]);
        line
    }
}

/// As a shell looks for a program.
fn find(program: &str, path: &OsStr) -> Option<PathBuf> {
    let folders = std::env::split_paths(path).collect::<Vec<_>>();
    folders
        .into_iter()
        .map(|folder| folder.join(program))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(network: bool, cwd: &str) -> String {
        let sandbox = Sandbox {
            data_dir: Path::new("/tmp/data"),
            work_dir: Path::new("/tmp/data/work/t"),
            cwd: Path::new(cwd),
            network,
        };
        sandbox.options().join(" ".as_ref()).into_string().expect("a text")
    }

    #[test]
    fn the_network_is_cut_unless_it_is_asked_for() {
        assert!(line(false, "/tmp/data/work/t").contains("--unshare-net"));
        assert!(!line(true, "/tmp/data/work/t").contains("--unshare-net"));
    }

    /// A data directory below /tmp would otherwise vanish with what is in it.
    #[test]
    fn the_working_directory_comes_after_what_hides_it() {
        assert!(!line(false, "/srv/code").contains("--ro-bind /srv"), "it is there with the root");
        let line = line(false, "/tmp/code");
        let at = |part: &str| line.find(part).unwrap_or_else(|| panic!("{part} in {line}"));
        assert!(at("--tmpfs /tmp ") < at("--ro-bind /tmp/code /tmp/code"));
        assert!(at("--ro-bind /tmp/code") < at("--tmpfs /tmp/data "));
        assert!(at("--tmpfs /tmp/data ") < at("--bind /tmp/data/work/t /tmp/data/work/t"));
    }

    #[test]
    fn a_program_is_found_in_the_path_only() {
        assert_eq!(find("sh", "/no/such:/bin".as_ref()), Some("/bin/sh".into()));
        assert_eq!(find("sh", "/no/such".as_ref()), None);
    }

    #[test]
    fn a_machine_without_bubblewrap_says_what_is_missing() {
        let dir = Path::new("/tmp/data");
        let sandbox = Sandbox { data_dir: dir, work_dir: dir, cwd: dir, network: false };
        let failure = sandbox.argv(&["true".to_owned()], "/no/such".as_ref()).expect_err("there is no bwrap");
        assert_eq!(failure.class, Class::Permanent);
        assert!(failure.message.contains("`bwrap` was not found"), "{}", failure.message);
    }
}
