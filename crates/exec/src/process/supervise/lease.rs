//! `running/task_<id>.json`: who runs a task now, in a file a person can read.
//!
//! Made before the command starts, by nobody while a living process has one for the same task; rewritten as a whole with
//! every heartbeat; removed at the end, after the exit record is there.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use crate::job::{Job, Kind};
use crate::payload::{DockerPayload, ProcessPayload};
use crate::places::{Places, create_private_dir};

/// Of a command line, in characters.
const RECIPE_CHARS_MAX: usize = 200;

/// The lease of a running task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "running/task_<id>.json")]
pub struct Lease {
    pub task_id: String,
    /// Whose work it is.
    pub agent: String,
    /// The process that answers for the task: its supervisor. SIGTERM to it stops the task and everything it started.
    pub pid: i32,
    /// The command, as one would type it; cut when it is long.
    pub recipe: String,
    #[schemars(extend("format" = "date-time"))]
    pub started_at: String,
    /// When the supervisor was last known to be alive. It says so every few seconds.
    #[schemars(extend("format" = "date-time"))]
    pub heartbeat: String,
    pub host: String,
    #[serde(default)]
    pub state: LeaseState,
    #[serde(default)]
    pub metadata: LeaseMetadata,
    pub attempt: u32,
    /// A pid means nothing after a restart of the machine.
    pub boot_id: String,
    /// When the process with this pid was started, in clock ticks since boot: field 22 of `/proc/<pid>/stat`.
    pub process_start: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LeaseState {
    /// The command is about to be started.
    Starting,
    #[default]
    Running,
    /// It was asked to stop, and gets its grace.
    Stopping,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LeaseMetadata {
    /// The command itself; the leader of its process group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_pid: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The container that the command runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_dir: Option<PathBuf>,
    /// Of its limits, what could not be kept, in sentences for people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_enforced: Vec<String>,
}

/// The JSON schema of a lease file.
pub fn lease_schema() -> serde_json::Value {
    serde_json::to_value(schemars::schema_for!(Lease)).expect("a schema is plain JSON")
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaseError {
    #[error("process {pid} runs this task already: see {}", path.display())]
    Held { path: PathBuf, pid: i32 },
    #[error("the lease file {} cannot be written: {source}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Lease {
    fn new(places: &Places, job: &Job) -> Lease {
        let own = Identity::own();
        let now = now_text();
        let metadata = LeaseMetadata {
            session: job.session.as_deref().map(str::to_owned),
            log: Some(places.log_file(job.task, job.attempt)),
            work_dir: Some(places.work_dir(job.task)),
            ..LeaseMetadata::default()
        };
        Lease {
            task_id: job.task_text(),
            agent: job.agent.to_string(),
            pid: own.pid,
            recipe: recipe(job),
            started_at: now.clone(),
            heartbeat: now,
            host: own.host,
            state: LeaseState::Starting,
            metadata,
            attempt: job.attempt,
            boot_id: own.boot_id,
            process_start: own.process_start,
        }
    }

    pub(crate) fn holder(&self) -> Identity {
        self.process(self.pid, self.process_start)
    }

    pub(crate) fn command(&self) -> Option<Identity> {
        Some(self.process(self.metadata.command_pid?, self.metadata.command_start?))
    }

    fn process(&self, pid: i32, process_start: u64) -> Identity {
        Identity { pid, process_start, host: self.host.clone(), boot_id: self.boot_id.clone() }
    }
}

/// One's own lease, while one runs.
pub(crate) struct LeaseFile {
    path: PathBuf,
    lease: Mutex<Lease>,
}

impl LeaseFile {
    pub(crate) fn create(places: &Places, job: &Job) -> Result<LeaseFile, LeaseError> {
        let path = places.running_file(job.task);
        let lease = Lease::new(places, job);
        match create(&path, &lease) {
            Ok(()) => Ok(LeaseFile { path, lease: Mutex::new(lease) }),
            Err(Refused::Held { pid }) => Err(LeaseError::Held { path, pid }),
            Err(Refused::Io(source)) => Err(LeaseError::Io { path, source }),
        }
    }

    pub(crate) fn command_started(&self, pid: i32, not_enforced: &[String]) {
        let start = Identity::of(pid).process_start;
        self.rewrite(|lease| {
            lease.state = LeaseState::Running;
            lease.metadata.command_pid = Some(pid);
            lease.metadata.command_start = Some(start);
            lease.metadata.not_enforced = not_enforced.to_vec();
        });
    }

    /// Its process is the engine's, which may count in another way: its number would mean somebody else here.
    pub(crate) fn container_started(&self, id: &str, not_enforced: &[String]) {
        self.rewrite(|lease| {
            lease.state = LeaseState::Running;
            lease.metadata.container = Some(id.to_owned());
            lease.metadata.not_enforced = not_enforced.to_vec();
        });
    }

    pub(crate) fn stopping(&self) {
        self.rewrite(|lease| lease.state = LeaseState::Stopping);
    }

    pub(crate) fn beat(&self) {
        self.rewrite(|_| {});
    }

    pub(crate) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a lease file cannot be removed");
        }
    }

    /// Every change is a sign of life too. One that cannot be written is logged: the work goes on without its mirror.
    fn rewrite(&self, change: impl FnOnce(&mut Lease)) {
        let mut lease = self.lock();
        change(&mut lease);
        lease.heartbeat = now_text();
        if let Err(error) = replace(&self.path, &lease) {
            tracing::warn!(path = %self.path.display(), %error, "a lease file cannot be written");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().expect("no thread panics while it holds the lease")
    }
}

/// What stands in a lease file.
pub(crate) enum Found {
    Nothing,
    Lease(Box<Lease>),
    Unreadable(io::Error),
}

pub(crate) fn read(path: &Path) -> Found {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Nothing,
        // Opening a pipe would wait for its writer.
        Ok(metadata) if !metadata.is_file() => return Found::Unreadable(io::Error::other("it is no file")),
        _ => {}
    }
    match fs::read(path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)) {
        Ok(lease) => Found::Lease(Box::new(lease)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Nothing,
        Err(error) => Found::Unreadable(error),
    }
}

/// Renames what nobody can read, so that it is in nobody's way and a person can look at it. Gives where it is now.
pub(crate) fn set_aside(path: &Path, why: &io::Error) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let free = (1u32..).map(|n| path.with_file_name(format!("{name}.bad-{n}"))).find(|path| !path.exists());
    let aside = free.expect("not every number is taken");
    match fs::rename(path, &aside) {
        Ok(()) => {
            tracing::warn!(path = %path.display(), aside = %aside.display(), error = %why, "an unreadable lease file is set aside");
            aside
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "an unreadable lease file cannot be set aside");
            path.to_owned()
        }
    }
}

enum Refused {
    Held { pid: i32 },
    Io(io::Error),
}

/// A link to a finished draft appears whole, and only where nothing is.
fn create(path: &Path, lease: &Lease) -> Result<(), Refused> {
    let folder = path.parent().expect("a lease file is in a folder");
    create_private_dir(folder).map_err(Refused::Io)?;
    let draft = write_draft(path, lease).map_err(Refused::Io)?;
    let linked = link(&draft, path, lease.pid);
    let _ = fs::remove_file(draft);
    linked
}

fn link(draft: &Path, path: &Path, own_pid: i32) -> Result<(), Refused> {
    loop {
        match fs::hard_link(draft, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => return linked.map_err(Refused::Io),
        }
        match read(path) {
            Found::Lease(other) if other.pid != own_pid && other.holder().is_alive() => {
                return Err(Refused::Held { pid: other.pid });
            }
            // Whoever made it is dead, or it is this process, which has ended that run.
            Found::Lease(_) => remove_if_there(path).map_err(Refused::Io)?,
            Found::Unreadable(why) => drop(set_aside(path, &why)),
            Found::Nothing => {}
        }
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whole or not at all. It is not synced: a power loss ends the process too.
fn replace(path: &Path, lease: &Lease) -> io::Result<()> {
    fs::rename(write_draft(path, lease)?, path)
}

fn write_draft(path: &Path, lease: &Lease) -> io::Result<PathBuf> {
    let mut bytes = serde_json::to_vec_pretty(lease)?;
    bytes.push(b'\n');
    let draft = draft_of(path, lease.pid);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(&bytes)?;
    Ok(draft)
}

fn draft_of(path: &Path, pid: i32) -> PathBuf {
    path.with_extension(format!("json.{pid}.tmp"))
}

/// The lease file that this was to become; `None` when it is no draft.
pub(crate) fn file_of_draft(draft: &Path) -> Option<PathBuf> {
    let name = draft.file_name()?.to_str()?;
    let (lease_file, _pid) = name.strip_suffix(".tmp")?.rsplit_once('.')?;
    (lease_file.starts_with("task_") && lease_file.ends_with(".json")).then(|| draft.with_file_name(lease_file))
}

/// What a supervisor that is dead had in hand.
pub(crate) fn remove_of(path: &Path, pid: Option<i32>) -> io::Result<()> {
    pid.map_or(Ok(()), |pid| remove_if_there(&draft_of(path, pid)))?;
    remove_if_there(path)
}

/// What would start it by hand. A payload that cannot be read is never started.
fn recipe(job: &Job) -> String {
    let line = match job.kind {
        Kind::Docker => docker_line(job),
        Kind::Process | Kind::Http | Kind::Noop => process_line(job),
    };
    let line = line.unwrap_or_default();
    match line.chars().count() <= RECIPE_CHARS_MAX {
        true => line,
        false => line.chars().take(RECIPE_CHARS_MAX - 1).chain(['…']).collect(),
    }
}

fn process_line(job: &Job) -> Option<String> {
    let payload = ProcessPayload::of(job).ok()?;
    Some(match payload.argv.as_slice() {
        [shell, flag, line] if shell == "sh" && flag == "-c" => line.clone(),
        argv => argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    })
}

/// As far as a person needs it to know which it is.
fn docker_line(job: &Job) -> Option<String> {
    let DockerPayload { image, entrypoint, command, .. } = DockerPayload::parse(job.payload.as_deref()).ok()?;
    let words = ["docker".to_owned(), "run".to_owned(), image].into_iter();
    let words = words.chain(entrypoint.into_iter().flatten()).chain(command.into_iter().flatten());
    Some(words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" "))
}

fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./=:,@%+".contains(char);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn now_text() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_known_by_its_name() {
        let path = Path::new("/data/running/task_0a-1.json");
        assert_eq!(file_of_draft(&draft_of(path, 77)), Some(path.to_owned()));
        for other in ["task_0a-1.json", "task_0a-1.json.bad-1", "task_0a-1.tmp", "notes.json.1.tmp"] {
            assert_eq!(file_of_draft(&path.with_file_name(other)), None, "{other}");
        }
    }
}
