//! Which control groups this machine has, and where in them this process is.
//!
//! Version 1 has a hierarchy for each controller, version 2 one for all; a machine may have both, each controller in one
//! of them.

use std::path::{Path, PathBuf};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    One,
    Two,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hierarchy {
    pub(super) version: Version,
    /// Of version 1. Those of version 2 depend on the place in it.
    pub(super) controllers: Vec<String>,
    pub(super) mount: PathBuf,
    /// The directory of the group that this process is in.
    pub(super) own: PathBuf,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Machine {
    hierarchies: Vec<Hierarchy>,
}

impl Machine {
    /// What is there now: a process may have been moved since the last look.
    pub(super) fn look() -> Machine {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Machine::parse(&text("/proc/self/mountinfo"), &text("/proc/self/cgroup"))
    }

    fn parse(mounts: &str, memberships: &str) -> Machine {
        let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
        let hierarchy = |line: &str| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            mounts.iter().find_map(|mount| mount.hierarchy(controllers, Path::new(path)))
        };
        Machine { hierarchies: memberships.lines().filter_map(hierarchy).collect() }
    }

    pub(super) fn of_controller(&self, controller: &str) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|one| one.controllers.iter().any(|name| name == controller))
    }

    pub(super) fn unified(&self) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|one| one.version == Version::Two)
    }

    pub(super) fn hierarchies(&self) -> &[Hierarchy] {
        &self.hierarchies
    }
}

/// A line of `mountinfo` that mounts control groups.
struct Mount<'a> {
    version: Version,
    /// The group that is seen at the mount point; not `/` inside a container that shows only its own part.
    root: &'a Path,
    point: &'a Path,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Mount<'a>> {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup" => Version::One,
            "cgroup2" => Version::Two,
            _ => return None,
        };
        let mut place = place.split(' ').skip(3);
        let (root, point) = (Path::new(place.next()?), Path::new(place.next()?));
        Some(Mount { version, root, point, options: kind.nth(1)? })
    }

    /// `controllers` as `/proc/self/cgroup` names them: none for version 2.
    fn hierarchy(&self, controllers: &str, path: &Path) -> Option<Hierarchy> {
        let is_ours = match self.version {
            Version::Two => controllers.is_empty(),
            Version::One => !controllers.is_empty() && controllers.split(',').all(|name| self.has_option(name)),
        };
        if !is_ours {
            return None;
        }
        let own = self.point.join(path.strip_prefix(self.root).ok()?);
        let controllers = controllers.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Some(Hierarchy { version: self.version, controllers, mount: self.point.to_owned(), own })
    }

    fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_both_versions_is_understood() {
        let mounts = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
        let machine = Machine::parse(mounts, "4:memory:/a/b\n1:cpu,cpuacct:/\n9:name=systemd:/\n0::/s\n");
        let own =
            |controller| machine.of_controller(controller).map(|one| one.own.to_str().expect("a text").to_owned());
        assert_eq!(own("memory").as_deref(), Some("/sys/fs/cgroup/memory/a/b"));
        assert_eq!(own("cpu").as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct/"));
        assert_eq!((own("pids"), own("name=systemd")), (None, None));
        assert_eq!(machine.unified().map(|one| one.own.clone()), Some("/sys/fs/cgroup/unified/s".into()));
    }

    #[test]
    fn a_container_sees_only_its_part() {
        let mounts = "41 31 0:38 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n";
        let own = |path: &str| Machine::parse(mounts, &format!("0::{path}\n")).unified().map(|one| one.own.clone());
        assert_eq!(own("/docker/abc/x"), Some("/sys/fs/cgroup/x".into()));
        assert_eq!(own("/elsewhere"), None);
    }

    #[test]
    fn no_control_groups_are_no_error() {
        assert_eq!(Machine::parse("", "0::/\n"), Machine::default());
    }
}
