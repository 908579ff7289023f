//! How a run goes or went, for whoever shows it: from the files it leaves, and nothing else.

use super::exit_record::ExitRecord;
use super::lease::{self, Found, LeaseState};
use super::run_dir::{RunDir, read};
use crate::places::{Places, create_private_dir};

/// Attempts before the latest that are looked at: one that was lost, or has only begun, has left no record.
const LOOK_BACK: u32 = 2;

#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunFacts {
    /// Of the latest attempt that has one.
    pub exit: Option<ExitFacts>,
    /// What could not be kept of the limits of the latest attempt, in sentences; `None` when it has not tried yet.
    pub not_enforced: Option<Vec<String>>,
}

/// How a command ended, and what it took.
#[derive(Clone, PartialEq, Debug)]
pub struct ExitFacts {
    pub attempt: u32,
    /// `None` when a signal ended it.
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    /// Something of it was killed because it was over its limit of memory.
    pub out_of_memory: bool,
    pub cpu_seconds: f64,
    pub peak_rss_bytes: u64,
    pub wall_ms: u64,
    /// RFC 3339.
    pub ended_at: String,
}

/// It reads a few small files. `attempt` is the latest one; zero before the first.
pub fn run_facts(places: &Places, task: u128, attempt: u32) -> RunFacts {
    let from = attempt.saturating_sub(LOOK_BACK).max(1);
    let mut records = (from..=attempt).rev().filter_map(|attempt| record_of(places, task, attempt));
    let record = records.next();
    let tried = record.as_ref().filter(|record| record.is_of(attempt)).map(ExitRecord::not_enforced);
    RunFacts { not_enforced: of_lease(places, task, attempt).or(tried), exit: record.map(ExitRecord::into_facts) }
}

/// What a worker on another machine tells of an exit is kept as if it had been here.
pub fn keep_exit(places: &Places, task: u128, facts: ExitFacts) -> std::io::Result<()> {
    let path = places.exit_file(task, facts.attempt);
    path.parent().map_or(Ok(()), create_private_dir)?;
    let record = ExitRecord::told(task, facts);
    std::fs::write(path, serde_json::to_vec(&record).map_err(std::io::Error::from)?)
}

/// From where it is until it is acknowledged, else from where it is kept.
fn record_of(places: &Places, task: u128, attempt: u32) -> Option<ExitRecord> {
    let dir = RunDir::of(places, task, attempt);
    let record = dir.exit_record().ok().flatten().or_else(|| read(&places.exit_file(task, attempt)).ok());
    record.filter(ExitRecord::has_run)
}

fn of_lease(places: &Places, task: u128, attempt: u32) -> Option<Vec<String>> {
    match lease::read(&places.running_file(task)) {
        Found::Lease(lease) if lease.attempt == attempt && lease.state != LeaseState::Starting => {
            Some(lease.metadata.not_enforced)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use super::super::exit_record::{Facts, tests::job};
    use super::super::lease::LeaseFile;
    use super::super::run_dir::Orders;
    use super::*;
    use crate::job::Job;
    use crate::outcome::Outcome;

    struct Bed {
        places: Places,
        _root: tempfile::TempDir,
    }

    impl Bed {
        fn new() -> Bed {
            let root = tempfile::tempdir().expect("a directory");
            Bed { places: Places::new(root.path()).expect("places"), _root: root }
        }

        fn run(&self, attempt: u32) -> (Job, RunDir) {
            let job = Job { attempt, ..job() };
            let dir = RunDir::of(&self.places, job.task, attempt);
            let data_dir = self.places.data_dir().to_owned();
            dir.create(&Orders { job: job.clone(), heartbeat_ms: 1, data_dir }).expect("a directory of a run");
            (job, dir)
        }

        fn end(&self, attempt: u32, facts: Facts) -> RunDir {
            let (job, dir) = self.run(attempt);
            dir.write_exit(&ExitRecord::new(&job, Outcome::Stopped, facts)).expect("a record");
            dir
        }

        fn facts(&self, attempt: u32) -> RunFacts {
            run_facts(&self.places, job().task, attempt)
        }
    }

    fn signalled() -> Facts {
        let not_enforced = vec!["limits.cpu is not enforced: no".to_owned()];
        Facts {
            status: Some(ExitStatus::from_raw(9)),
            wall: Duration::from_millis(1500),
            not_enforced,
            ..Facts::default()
        }
    }

    #[test]
    fn a_record_is_known_before_and_after_its_end_is_acknowledged() {
        let bed = Bed::new();
        let dir = bed.end(1, signalled());
        let known = bed.facts(1);
        let exit = known.exit.as_ref().expect("an exit");
        assert_eq!((exit.attempt, exit.exit_code, exit.signal.as_deref()), (1, None, Some("SIGKILL")));
        assert_eq!((exit.wall_ms, known.not_enforced.as_deref().map(<[String]>::len)), (1500, Some(1)));
        dir.retire(&bed.places.exit_file(job().task, 1)).expect("retired");
        assert!(!dir.path().exists());
        assert_eq!(bed.facts(1), known);
        assert!(bed.places.remove_attempt(job().task, 1) && !bed.places.remove_attempt(job().task, 1));
        assert_eq!(bed.facts(1), RunFacts::default());
    }

    #[test]
    fn an_attempt_without_a_record_leaves_the_exit_of_the_one_before() {
        let bed = Bed::new();
        assert_eq!(bed.facts(0), RunFacts::default());
        bed.end(1, signalled());
        bed.end(2, Facts::default());
        let facts = bed.facts(2);
        assert_eq!(facts.exit.map(|exit| exit.attempt), Some(1), "the second never ran");
        assert_eq!(facts.not_enforced, None, "what the first could not keep is not said of the second");
        assert_eq!(bed.facts(1 + LOOK_BACK + 1).exit, None);
    }

    #[test]
    fn while_it_runs_its_lease_says_what_is_not_kept() {
        let bed = Bed::new();
        let (job, _) = bed.run(2);
        let lease = LeaseFile::create(&bed.places, &job).expect("a lease");
        assert_eq!(bed.facts(2).not_enforced, None, "it has not started");
        lease.command_started(1, &["limits.pids is not enforced: no".to_owned()]);
        assert_eq!(bed.facts(2).not_enforced.map(|said| said.len()), Some(1));
        assert_eq!(bed.facts(3).not_enforced, None, "it is the lease of another attempt");
    }
}
