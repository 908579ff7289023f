//! What earlier servers on this data directory left: runs that go on, runs that have ended, and remains.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::exit_record::{ExitRecord, Facts};
use super::hung::{self, Hung};
use super::identity::Identity;
use super::lease::{self, Found};
use super::run_dir::{Lock, RunDir};
use super::started::{self, Started};
use crate::job::Job;
use crate::outcome::Outcome;
use crate::places::Places;
use crate::process::kill_group;
use crate::process::leftovers::{self, LeftoversError};

/// Taken at start, before anything is started.
#[derive(Debug, Default)]
pub struct Survey {
    pub live: Vec<Survivor>,
    pub ended: Vec<EndedRun>,
    /// Processes, and containers, of runs that nobody answers for any more.
    pub n_killed: usize,
    /// Tasks of which there was the directory of a run, or a lease file.
    pub n_scanned: usize,
    pub unreadable: Vec<Unreadable>,
}

/// A run with a supervisor that is alive.
#[derive(Debug)]
pub struct Survivor {
    pub job: Job,
    pub(super) dir: RunDir,
    pub(super) heartbeat_ms: u64,
}

/// A run that ended while no server was there to see it.
#[derive(Debug)]
pub struct EndedRun {
    pub job: Job,
    pub outcome: Outcome,
    /// Messages it took as input; the server may not have heard of them.
    pub taken: Vec<u128>,
}

/// What nobody can make sense of, and a person should look at.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be read: {error}", path.display())]
pub struct Unreadable {
    /// Where it is now: a lease file is set aside, the directory of a run is given up.
    pub path: PathBuf,
    pub error: String,
}

impl EndedRun {
    fn of(job: Job, record: ExitRecord) -> EndedRun {
        let taken = record.taken().collect();
        EndedRun { job, outcome: record.into_outcome(), taken }
    }
}

/// What a directory of a run tells.
enum State {
    Live(Survivor),
    Ended(EndedRun),
    /// Its supervisor died in the middle.
    Dead(Job, Identity, Held),
    /// Nobody ever began with it.
    Unbegun(Job, Held),
    /// There is not even something to begin with.
    Nothing,
    Unreadable(io::Error),
}

/// Kept until the run is dealt with, so that no late supervisor begins in it. Nothing in a rehearsal.
type Held = Option<Lock>;

/// Is something done about what is found?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Act,
    Rehearse,
}

/// Finds out, and kills and removes what is of no use. It blocks: for a few milliseconds, when there is nothing to kill.
pub fn survey(places: &Places) -> Result<Survey, LeftoversError> {
    let (mut survey, mut dead) = look_through(places, Mode::Act)?;
    for hung in part_hung(places, &mut survey.live) {
        let reason = format!("{}, and was killed", hung.reason());
        hung.kill();
        // It may have come to its end in that very moment.
        match look(hung.survivor.dir.path(), Mode::Act) {
            State::Ended(ended) => survey.ended.push(ended),
            State::Dead(job, _, lock) => dead.push((job, reason, lock)),
            // It hung before it had said who it is, and so before it had begun.
            State::Unbegun(job, _lock) => survey.ended.push(unbegun(&hung.survivor.dir, job, Mode::Act)),
            _ => {
                tracing::warn!(task = hung.survivor.job.task_text(), reason, "a supervisor that hangs does not die");
                survey.live.push(hung.survivor);
            }
        }
    }
    survey.n_killed += kill_strays(places, &survey.live);
    for (job, ..) in &dead {
        survey.n_killed += kill_group(places, job.task, job.attempt)?;
    }
    let live: BTreeSet<u128> = survey.live.iter().map(|survivor| survivor.job.task).collect();
    let ended = survey.ended.iter().map(|run| run.job.task).chain(dead.iter().map(|(job, ..)| job.task)).collect();
    let reaped = leftovers::reap(places, &live, &ended)?;
    survey.n_killed += reaped.n_killed;
    survey.unreadable.extend(reaped.unreadable);
    survey.ended.extend(dead.into_iter().map(|(job, reason, _lock)| lost(job, reason)));
    Ok(survey)
}

/// What [`survey`] would find and do. Nothing is changed: no process is signalled, no file is touched.
pub fn rehearse(places: &Places) -> Result<Survey, LeftoversError> {
    let (mut survey, dead) = look_through(places, Mode::Rehearse)?;
    for hung in part_hung(places, &mut survey.live) {
        let reason = hung.reason();
        survey.ended.push(lost(hung.survivor.job, reason));
    }
    survey.ended.extend(dead.into_iter().map(|(job, reason, _)| lost(job, reason)));
    for path in entries(&places.running_root())?.into_iter().filter(|path| is_lease(path)) {
        if let Found::Unreadable(error) = lease::read(&path) {
            survey.unreadable.push(Unreadable { path, error: error.to_string() });
        }
    }
    Ok(survey)
}

/// Supervisors of runs that are not theirs any more: started by a server that died, and not yet at their lock. They would
/// find it out by themselves, but for one that hangs there.
fn kill_strays(places: &Places, live: &[Survivor]) -> usize {
    let runs = places.runs_root();
    let is_stray = |run: &Path| run.starts_with(&runs) && !live.iter().any(|survivor| survivor.dir.path() == run);
    let strays: Vec<Started> = started::all().into_iter().filter(|started| is_stray(&started.run)).collect();
    strays.iter().for_each(|stray| stray.supervisor.signal(Signal::KILL));
    strays.len()
}

fn part_hung(places: &Places, live: &mut Vec<Survivor>) -> Vec<Hung> {
    let (well, hung) = hung::part(places, std::mem::take(live));
    *live = well;
    hung
}

/// A run whose supervisor is dead: why it is lost, and what keeps others out of it.
type Dead = (Job, String, Held);

fn look_through(places: &Places, mode: Mode) -> io::Result<(Survey, Vec<Dead>)> {
    let mut survey = Survey { n_scanned: n_tasks(places)?, ..Survey::default() };
    let mut dead = Vec::new();
    for path in entries(&places.runs_root())? {
        match look(&path, mode) {
            State::Live(survivor) => survey.live.push(survivor),
            State::Ended(ended) => survey.ended.push(ended),
            State::Dead(job, identity, lock) => dead.push((job, death_of(&identity), lock)),
            State::Unbegun(job, _lock) => survey.ended.push(unbegun(&RunDir::at(&path), job, mode)),
            State::Nothing if mode == Mode::Act => remove(&path),
            State::Nothing => {}
            State::Unreadable(error) => {
                if mode == Mode::Act {
                    tracing::warn!(path = %path.display(), %error, "a run cannot be looked at; it is given up");
                    give_up(&RunDir::at(&path));
                    remove(&path);
                }
                survey.unreadable.push(Unreadable { path, error: error.to_string() });
            }
        }
    }
    Ok((survey, dead))
}

/// A run and its lease file count once.
fn n_tasks(places: &Places) -> io::Result<usize> {
    let runs = entries(&places.runs_root())?
        .into_iter()
        .filter_map(|path| Some(name_of(&path).rsplit_once('-')?.0.to_owned()));
    let leases = entries(&places.running_root())?.into_iter().filter(|path| is_lease(path));
    let leases =
        leases.filter_map(|path| Some(name_of(&path).strip_prefix("task_")?.strip_suffix(".json")?.to_owned()));
    Ok(runs.chain(leases).collect::<BTreeSet<String>>().len())
}

fn look(path: &Path, mode: Mode) -> State {
    let dir = RunDir::at(path);
    let orders = match dir.orders() {
        Ok(orders) => orders,
        // Its server died before it had written them.
        Err(error) if error.kind() == io::ErrorKind::NotFound && dir.supervisor().is_none() => {
            return State::Nothing;
        }
        Err(error) => return State::Unreadable(error),
    };
    if let Some(record) = record_in(&dir) {
        return State::Ended(EndedRun::of(orders.job, record));
    }
    match (holder(&dir, mode), record_in(&dir)) {
        (Ok(Holder::Alive), _) => State::Live(Survivor { job: orders.job, dir, heartbeat_ms: orders.heartbeat_ms }),
        // It came to its end between the two looks.
        (Ok(Holder::Dead(..) | Holder::Nobody(_)), Some(record)) => State::Ended(EndedRun::of(orders.job, record)),
        (Ok(Holder::Dead(identity, lock)), None) => State::Dead(orders.job, identity, lock),
        (Ok(Holder::Nobody(lock)), None) => State::Unbegun(orders.job, lock),
        (Err(error), _) => State::Unreadable(error),
    }
}

fn record_in(dir: &RunDir) -> Option<ExitRecord> {
    dir.exit_record().unwrap_or_else(|error| {
        tracing::warn!(path = %dir.path().display(), %error, "an exit record cannot be read");
        None
    })
}

/// Who answers for a run.
enum Holder {
    Alive,
    Dead(Identity, Held),
    /// Nobody has ever said so.
    Nobody(Held),
}

/// The lock tells for sure, and is taken when it is free. A rehearsal goes by what the last holder said: a supervisor that
/// comes just then must not find its lock taken.
fn holder(dir: &RunDir, mode: Mode) -> io::Result<Holder> {
    if mode == Mode::Rehearse {
        return Ok(match dir.supervisor() {
            Some(identity) if identity.is_alive() => Holder::Alive,
            Some(identity) => Holder::Dead(identity, None),
            None => Holder::Nobody(None),
        });
    }
    let Some(mut lock) = dir.lock()? else { return Ok(Holder::Alive) };
    Ok(match lock.signature() {
        Some(identity) => Holder::Dead(identity, Some(lock)),
        None => Holder::Nobody(Some(lock)),
    })
}

/// Without its orders nobody can tell whose it is: its supervisor is killed, and what it ran is found by its mark.
fn give_up(dir: &RunDir) {
    if let Some(supervisor) = dir.supervisor() {
        supervisor.signal(Signal::KILL);
    }
}

/// In words for a person.
fn death_of(supervisor: &Identity) -> String {
    match supervisor.is_of_this_boot() {
        true => format!(
            "its supervisor (pid {}) was killed or crashed while no server ran: it left no exit record",
            supervisor.pid
        ),
        false if supervisor.is_of_other_host() => {
            format!(
                "it was started when this machine was called {}: nobody can tell whether it still runs",
                supervisor.host
            )
        }
        false => "the machine was restarted while it ran".to_owned(),
    }
}

/// Its supervisor was started and is not yet there, or never was: its server may have died while it staged the files. With
/// a record of its end no supervisor begins any more, however late it comes, and the next server reads the same.
fn unbegun(dir: &RunDir, job: Job, mode: Mode) -> EndedRun {
    let outcome = Outcome::NotStarted { reason: "the server stopped before it was started".to_owned() };
    if mode == Mode::Act
        && let Err(error) = dir.write_exit(&ExitRecord::new(&job, outcome.clone(), Facts::default()))
    {
        tracing::warn!(path = %dir.path().display(), %error, "a run that never began cannot be closed; it is removed");
        remove(dir.path());
    }
    EndedRun { job, outcome, taken: Vec::new() }
}

fn lost(job: Job, reason: String) -> EndedRun {
    EndedRun { job, outcome: Outcome::Lost { reason }, taken: Vec::new() }
}

/// What lease files led to.
#[derive(Default)]
pub(in crate::process) struct Cleared {
    /// Processes that nobody answers for.
    pub commands: Vec<Identity>,
    pub unreadable: Vec<Unreadable>,
}

/// Lease files of everybody but these are read, acted on, and removed.
pub(in crate::process) fn clear_leases(places: &Places, keep: &BTreeSet<u128>) -> io::Result<Cleared> {
    let kept: BTreeSet<PathBuf> = keep.iter().map(|task| places.running_file(*task)).collect();
    let mut cleared = Cleared::default();
    for path in entries(&places.running_root())? {
        // Of one that died while it wrote it.
        if lease::file_of_draft(&path).is_some_and(|lease_file| !kept.contains(&lease_file)) {
            remove(&path);
        }
        if !is_lease(&path) {
            continue;
        }
        match lease::read(&path) {
            Found::Unreadable(why) => {
                let aside = lease::set_aside(&path, &why);
                cleared.unreadable.push(Unreadable { path: aside, error: why.to_string() });
            }
            Found::Lease(_) if kept.contains(&path) => {}
            Found::Lease(lease) => {
                let supervisor = lease.holder();
                // In a server's own process the lease names the server, and that was not this one.
                if supervisor != Identity::own() {
                    supervisor.signal(Signal::KILL);
                }
                cleared.commands.extend(lease.command());
                let _ = fs::remove_file(&path);
            }
            Found::Nothing => {}
        }
    }
    Ok(cleared)
}

/// Neither a draft, nor one that was set aside, nor what somebody else has put there.
fn is_lease(path: &Path) -> bool {
    let name = name_of(path);
    name.starts_with("task_") && name.ends_with(".json")
}

fn name_of(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| entry.map(|entry| entry.path())).collect()
}

/// What cannot be removed is in nobody's way: each attempt makes its own places anew.
fn remove(path: &Path) {
    let removed = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "what an earlier run left behind cannot be removed");
        }
        _ => {}
    }
}
