//! The control groups of one attempt: what it may use, and a name for everything it has started.
//!
//! The groups lie below the one that this process is in, so that what limits the server limits its tasks too:
//! `<own group>/runyard/<task>-<attempt>-<data directory>`, in each hierarchy that is needed. A process is born into the group of the
//! thread that forks it, so the thread that launches goes in, forks, and goes out again: the command is inside before its
//! first instruction, and no program has to be started in between. Version 2 moves whole processes only, which a
//! supervisor may do to itself and a server with many tasks may not: outside of a supervisor version 2 is not used.
//!
//! While the launcher is inside, the limits hold for it too, and have room for it until it is out.
//!
//! In version 2 a controller works only where the group above hands it down, and a group that has processes cannot. So
//! the groups are made beside this process instead of below it where that folder is delegated, as systemd does with
//! `Delegate=yes` and `DelegateSubgroup=`.

mod machine;
mod place;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::leftovers::LeftoversError;
use super::{proc_table, tree};
use crate::limits::Limits;
use crate::places::Places;
use machine::{Hierarchy, Machine, Version};
use place::{Place, write};

/// Holds the groups of all attempts.
const FOLDER: &str = "runyard";
/// In the directory of a run: where its groups are, a path on each line.
const RECORD: &str = "cgroups";
/// The folder goes when the last group in it does, which may be between its making and the group's.
const RACES_MAX: u32 = 100;
const DEATH_MAX: Duration = Duration::from_secs(10);
/// A supervisor is a tenth of it.
const LAUNCHER_BYTES: u64 = 64 * 1024 * 1024;
const LOOK: Duration = Duration::from_millis(5);

/// Nothing in it: this machine has none, or lets nobody make one.
#[derive(Debug, Default)]
pub(super) struct ControlGroup {
    parts: Vec<Part>,
}

/// A group in one hierarchy, and what it is there for.
#[derive(Debug)]
struct Part {
    place: Place,
    /// The others die with it, but only here is it done at one blow.
    kills: bool,
    limits: Vec<Limit>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Limit {
    Cpu(f64),
    RamBytes(u64),
    Pids(u32),
}

/// A limit that the control groups of this machine do not enforce.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Unmet {
    pub(super) limit: Limit,
    pub(super) reason: String,
}

/// Who goes into a group to fork there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mover {
    Thread,
    Process,
}

impl Mover {
    pub(super) fn here() -> Mover {
        if tree::owns_descendants() { Mover::Process } else { Mover::Thread }
    }
}

impl ControlGroup {
    /// As much of it as this machine allows.
    pub(super) fn create(name: &str, limits: &Limits, mover: Mover) -> (ControlGroup, Vec<Unmet>) {
        let mut making = Making { machine: Machine::look(), name, mover, group: ControlGroup::default() };
        making.add_kill();
        let cpu = limits.cpu.map(Limit::Cpu);
        let ram = limits.ram_bytes().map(Limit::RamBytes);
        let wanted = [cpu, ram, limits.pids.map(Limit::Pids)].into_iter().flatten();
        let unmet = wanted.filter_map(|limit| Some(Unmet { limit, reason: making.add(limit).err()? })).collect();
        (making.group, unmet)
    }

    /// Until the answer is left again, what this thread starts is born inside. A group that does not let it in is given up.
    pub(super) fn enter(&mut self) -> (Inside, Vec<Unmet>) {
        let (mut inside, mut unmet) = (Inside { entered: Vec::new() }, Vec::new());
        self.parts.retain(|part| match part.place.enter() {
            Ok(()) => {
                inside.entered.push(part.place.clone());
                true
            }
            Err(error) => {
                let reason = at(&part.place.dir, &error).to_string();
                unmet.extend(part.limits.iter().map(|limit| Unmet { limit: *limit, reason: reason.clone() }));
                let _ = part.place.remove();
                false
            }
        });
        (inside, unmet)
    }

    /// Takes back the room that the launcher had.
    pub(super) fn arm(&self) -> Vec<Unmet> {
        let late = self.parts.iter().flat_map(|part| part.limits.iter().map(move |limit| (&part.place, *limit)));
        let late = late.filter(|(place, limit)| limit.with_launcher(place.version) != *limit);
        let failed = |(place, limit): (&Place, Limit)| {
            let error = limit.set(place).err()?;
            Some(Unmet { limit, reason: at(&place.dir, &error).to_string() })
        };
        late.filter_map(failed).collect()
    }

    /// For whoever has to kill it when this process is gone. Only a supervised run has a directory for it.
    pub(super) fn write_record(&self, run_dir: &Path) {
        let lines: String = self.parts.iter().map(|part| format!("{}\n", part.place.dir.display())).collect();
        match fs::write(run_dir.join(RECORD), lines) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %run_dir.display(), %error, "the control groups of a run cannot be noted");
            }
            _ => {}
        }
    }

    pub(super) fn kill(&self) {
        self.parts.iter().filter(|part| part.kills).for_each(|part| part.place.kill());
    }

    /// More than zombies. Everything is in the part that kills, whatever else it is in.
    pub(super) fn alive(&self) -> Vec<i32> {
        self.parts.iter().filter(|part| part.kills).flat_map(|part| part.place.alive()).collect()
    }

    /// The limit in MiB, if the kernel has killed something to keep it.
    pub(super) fn out_of_memory(&self) -> Option<u64> {
        let mut limits = self.parts.iter().flat_map(|part| part.limits.iter().map(move |limit| (&part.place, limit)));
        limits.find_map(|(place, limit)| match limit {
            Limit::RamBytes(bytes) if place.n_oom_kills() > 0 => Some(bytes / (1024 * 1024)),
            _ => None,
        })
    }

    /// Removes what can be removed at once, and tells whether that was everything.
    pub(super) fn try_remove(&mut self) -> bool {
        self.parts.retain(|part| part.place.try_remove().is_err());
        self.parts.is_empty()
    }

    /// Only when everything in it is dead.
    pub(super) fn remove(&mut self) {
        for part in self.parts.drain(..) {
            if let Err(error) = part.place.remove() {
                tracing::warn!(path = %part.place.dir.display(), %error, "a control group cannot be removed");
            }
        }
    }
}

/// This thread or process is inside until it is left.
#[must_use]
pub(super) struct Inside {
    entered: Vec<Place>,
}

impl Inside {
    /// An error is serious: whoever stays inside dies with it.
    pub(super) fn leave(self) -> io::Result<()> {
        // All of them are left, whatever becomes of one.
        let mut left = self.entered.iter().map(|place| place.leave().map_err(|error| at(&place.home, &error)));
        let first_error = left.by_ref().find_map(Result::err);
        left.for_each(drop);
        first_error.map_or(Ok(()), Err)
    }
}

impl Limit {
    /// As it is while the launcher is inside, with room for it: it must be able to fork, and the kernel must not take it
    /// for what uses too much. Version 1 counts the one thread, and gives it no memory of its own.
    fn with_launcher(self, version: Version) -> Limit {
        match (self, version) {
            (Limit::Pids(n), Version::One) => Limit::Pids(n.saturating_add(1)),
            (Limit::Pids(n), Version::Two) => Limit::Pids(n.saturating_add(own_threads())),
            (Limit::RamBytes(bytes), Version::Two) => Limit::RamBytes(bytes.saturating_add(LAUNCHER_BYTES)),
            (limit, _) => limit,
        }
    }

    fn set(self, place: &Place) -> io::Result<()> {
        match self {
            Limit::Cpu(cores) => place.limit_cpu(cores),
            Limit::RamBytes(bytes) => place.limit_ram(bytes),
            Limit::Pids(n) => place.limit_pids(n),
        }
    }

    fn controller(self) -> &'static str {
        match self {
            Limit::Cpu(_) => "cpu",
            Limit::RamBytes(_) => "memory",
            Limit::Pids(_) => "pids",
        }
    }
}

/// A group on its way.
struct Making<'a> {
    machine: Machine,
    name: &'a str,
    mover: Mover,
    group: ControlGroup,
}

impl Making<'_> {
    /// Without either version the tree is walked, so nothing is lost. Version 1 comes first where there are both: a thread
    /// moves itself in microseconds, while for a process the kernel waits until no processor forks, some milliseconds
    /// each way.
    fn add_kill(&mut self) {
        let freezer = self.machine.of_controller("freezer");
        let unified = self.machine.unified().filter(|_| self.mover == Mover::Process);
        let hierarchies = [freezer, unified].into_iter().flatten();
        let mut parts = hierarchies.filter_map(|hierarchy| self.part(hierarchy, hierarchy.own.clone(), None).ok());
        if let Some(part) = parts.find(|part| part.place.can_kill()) {
            self.group.parts.push(Part { kills: true, ..part });
        }
    }

    fn add(&mut self, limit: Limit) -> Result<(), String> {
        let controller = limit.controller();
        let part = match (self.machine.of_controller(controller), self.machine.unified()) {
            (Some(hierarchy), _) => self.part(hierarchy, hierarchy.own.clone(), None),
            (None, Some(hierarchy)) if self.mover == Mover::Process => self.part_with(hierarchy, controller),
            (None, Some(_)) => Err("without a supervisor, control groups of version 2 are not used".to_owned()),
            (None, None) => Err(format!("this machine has no control groups with the {controller} controller")),
        }?;
        self.keep(part, limit)
    }

    /// A group may be there for more than one reason.
    fn keep(&mut self, part: Part, limit: Limit) -> Result<(), String> {
        let known = self.group.parts.iter().position(|known| known.place.dir == part.place.dir);
        let at_index = known.unwrap_or_else(|| {
            self.group.parts.push(part);
            self.group.parts.len() - 1
        });
        let part = &mut self.group.parts[at_index];
        let early = limit.with_launcher(part.place.version);
        early.set(&part.place).map_err(|error| at(&part.place.dir, &error).to_string())?;
        part.limits.push(limit);
        Ok(())
    }

    /// In version 2, wherever the controller can be handed down from. The reason is that of the nearest place.
    fn part_with(&self, hierarchy: &Hierarchy, controller: &str) -> Result<Part, String> {
        let here = self.part(hierarchy, hierarchy.own.clone(), Some(controller));
        here.or_else(|reason| {
            let beside = delegated_above(hierarchy).ok_or_else(|| reason.clone())?;
            self.part(hierarchy, beside, Some(controller)).map_err(|_| reason)
        })
    }

    fn part(&self, hierarchy: &Hierarchy, base: PathBuf, controller: Option<&str>) -> Result<Part, String> {
        let dir = make(&base, self.name, controller).map_err(|error| at(&base, &error).to_string())?;
        let place = Place { version: hierarchy.version, dir, home: hierarchy.own.clone() };
        Ok(Part { place, kills: false, limits: Vec::new() })
    }
}

/// The group above this process's own, if what is in it is ours to arrange.
fn delegated_above(hierarchy: &Hierarchy) -> Option<PathBuf> {
    let above = hierarchy.own.parent()?;
    (above.starts_with(&hierarchy.mount) && is_delegated(above)).then(|| above.to_owned())
}

/// Systemd says so with an attribute; to anybody but root it also gives the directory.
fn is_delegated(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let mut value = [0; 8];
    let says_so = ["user.delegate", "trusted.delegate"]
        .iter()
        .any(|name| rustix::fs::getxattr(dir, *name, &mut value).is_ok_and(|n| &value[..n] == b"1"));
    let user = rustix::process::geteuid();
    let is_given = || fs::metadata(dir).is_ok_and(|metadata| !user.is_root() && metadata.uid() == user.as_raw());
    says_so || is_given()
}

/// Makes `<base>/runyard/<name>`, with the controller handed down to it.
fn make(base: &Path, name: &str, controller: Option<&str>) -> io::Result<PathBuf> {
    let folder = base.join(FOLDER);
    let dir = folder.join(name);
    for _ in 0..RACES_MAX {
        let made = make_dir(&folder).and_then(|()| {
            controller.map_or(Ok(()), |controller| {
                hand_down(base, controller).and_then(|()| hand_down(&folder, controller))
            })?;
            make_dir(&dir)
        });
        match made {
            Err(error) if error.kind() == io::ErrorKind::NotFound && base.exists() => {}
            Err(error) => {
                let _ = fs::remove_dir(&folder);
                return Err(error);
            }
            Ok(()) => return Ok(dir),
        }
    }
    Err(io::Error::other("the folder of the control groups does not stay"))
}

fn make_dir(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn hand_down(dir: &Path, controller: &str) -> io::Result<()> {
    let names = |file| {
        let text = fs::read_to_string(dir.join(file))?;
        io::Result::Ok(text.split_whitespace().any(|name| name == controller))
    };
    if names("cgroup.subtree_control")? {
        return Ok(());
    }
    if !names("cgroup.controllers")? {
        return Err(io::Error::other(format!("there is no {controller} controller to hand down")));
    }
    write(&dir.join("cgroup.subtree_control"), &format!("+{controller}"))
}

fn own_threads() -> u32 {
    fs::read_dir("/proc/self/task").map_or(1, |threads| u32::try_from(threads.count()).unwrap_or(u32::MAX))
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The data directory is in it: a copy of it, served on the same machine, has the same tasks and attempts.
pub(super) fn group_name(places: &Places, task: u128, attempt: u32) -> String {
    let yard = fnv1a(places.data_dir().as_os_str().as_encoded_bytes());
    format!("{}-{attempt}-{yard:08x}", crate::job::task_text(task))
}

/// Small, and the same in every version of this program.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Kills what is in the control groups of an attempt whose supervisor is dead, waits until it is, and removes them.
/// Returns how many processes there were. It blocks.
pub fn kill_group(places: &Places, task: u128, attempt: u32) -> Result<usize, LeftoversError> {
    let places = find(&group_name(places, task, attempt), &places.run_dir(task, attempt).join(RECORD));
    let n_killed = kill_until_dead(&places)?;
    for place in &places {
        place.remove()?;
    }
    Ok(n_killed)
}

/// Where a server that is in the same group would have made it, and where the run says it is.
fn find(name: &str, record: &Path) -> Vec<Place> {
    let machine = Machine::look();
    let usual = machine.hierarchies().iter().flat_map(|hierarchy| {
        let above = hierarchy.own.parent().filter(|above| above.starts_with(&hierarchy.mount));
        [Some(hierarchy.own.as_path()), above].into_iter().flatten().map(|base| base.join(FOLDER).join(name))
    });
    let noted = fs::read_to_string(record).unwrap_or_default();
    let mut dirs: Vec<PathBuf> = usual.chain(noted.lines().map(PathBuf::from)).collect();
    dirs.sort();
    dirs.dedup();
    // A record is believed only as far as it names a group of this very attempt.
    dirs.retain(|dir| dir.ends_with(Path::new(FOLDER).join(name)) && dir.join("cgroup.procs").exists());
    let version = |dir: &Path| if dir.join("cgroup.controllers").exists() { Version::Two } else { Version::One };
    dirs.into_iter().map(|dir| Place { version: version(&dir), home: dir.clone(), dir }).collect()
}

fn kill_until_dead(places: &[Place]) -> Result<usize, LeftoversError> {
    let give_up_at = Instant::now() + DEATH_MAX;
    let mut killed: BTreeMap<i32, Option<u64>> = BTreeMap::new();
    loop {
        let members: Vec<i32> = places.iter().flat_map(Place::alive).collect();
        // A group does not show those any more that are on their way out, and they still have their files and locks.
        let dying = killed.iter().filter(|(pid, start)| start.is_some() && start_of(**pid) == **start);
        let alive: Vec<i32> = members.iter().chain(dying.map(|(pid, _)| pid)).copied().collect();
        if alive.is_empty() {
            return Ok(killed.len());
        }
        if Instant::now() >= give_up_at {
            return Err(LeftoversError::StillAlive { pids: alive });
        }
        for pid in members {
            killed.entry(pid).or_insert_with(|| start_of(pid));
        }
        for place in places {
            match place.can_kill() {
                true => place.kill(),
                false => place.alive().into_iter().filter_map(Pid::from_raw).for_each(|pid| {
                    let _ = kill_process(pid, Signal::KILL);
                }),
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// When a process that is alive was started.
fn start_of(pid: i32) -> Option<u64> {
    proc_table::stat(pid).filter(|stat| stat.is_alive).map(|stat| stat.start)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A process that is put into a group of this hierarchy from outside, as no thread of this test may go there.
    fn killed_in(hierarchy: &Hierarchy) -> io::Result<()> {
        let dir = make(&hierarchy.own, &format!("test-{}", uuid::Uuid::now_v7()), None)?;
        let place = Place { version: hierarchy.version, dir: dir.clone(), home: hierarchy.own.clone() };
        let mut child = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn()?;
        write(&dir.join("cgroup.procs"), &child.id().to_string())?;
        assert_eq!(place.alive(), [child.id() as i32]);
        assert_eq!(kill_until_dead(std::slice::from_ref(&place)).expect("it dies"), 1);
        child.wait()?;
        place.remove()?;
        assert!(!dir.exists());
        Ok(())
    }

    /// By the freezer of version 1, the kill of version 2, or one by one.
    #[test]
    fn every_hierarchy_that_can_be_used_can_be_killed() {
        let machine = Machine::look();
        for hierarchy in machine.hierarchies().iter().filter(|one| !one.controllers.iter().any(|name| name == "cpuset"))
        {
            match killed_in(hierarchy) {
                Err(error) if is_closed(&error) => eprintln!("{}: not ours to use: {error}", hierarchy.own.display()),
                killed => killed.unwrap_or_else(|error| panic!("{}: {error}", hierarchy.own.display())),
            }
        }
    }

    fn is_closed(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    }

    #[test]
    fn a_controller_is_handed_down_once_and_only_where_it_is() {
        let base = tempfile::tempdir().expect("a directory");
        let file = |name: &str| base.path().join(name);
        fs::write(file("cgroup.controllers"), "cpu memory\n").expect("a file");
        fs::write(file("cgroup.subtree_control"), "").expect("a file");
        hand_down(base.path(), "memory").expect("handed down");
        assert_eq!(fs::read_to_string(file("cgroup.subtree_control")).expect("a file"), "+memory");
        fs::write(file("cgroup.subtree_control"), "cpu memory\n").expect("a file");
        hand_down(base.path(), "cpu").expect("it is already");
        assert_eq!(fs::read_to_string(file("cgroup.subtree_control")).expect("a file"), "cpu memory\n");
        let error = hand_down(base.path(), "pids").expect_err("it is not there");
        assert_eq!(error.to_string(), "there is no pids controller to hand down");
    }

    #[test]
    fn the_name_of_a_group_tells_data_directories_apart() {
        let (one, two) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let name = |dir: &Path| group_name(&Places::new(dir).expect("a directory"), 7, 2);
        assert_ne!(name(one.path()), name(two.path()));
        assert_eq!(name(one.path()), name(one.path()));
        assert!(name(one.path()).starts_with("00000000-0000-0000-0000-000000000007-2-"));
    }
}
