//! Supervisors that are there and do nothing: they hold their lock, so nobody else may touch their run, and neither beat
//! nor answer.
//!
//! A server that has seen a supervisor beat notices when it stops. One that has just come has only the time in the lease
//! file, and that proves little: the machine may have slept, or its clock been set. So an old heartbeat makes a
//! supervisor suspect, no more, and a suspect is asked.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use super::client::BEATS_MISSED_MAX;
use super::control::{ANSWER_MAX, Address};
use super::lease::{self, Found};
use super::run_dir::RunDir;
use super::started;
use super::survey::Survivor;
use crate::places::Places;

/// One that is not dead by then is stuck in the kernel.
const DEATH_MAX: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

/// A supervisor that gives no sign of life.
pub(super) struct Hung {
    pub survivor: Survivor,
    pub still_for: Duration,
}

impl Hung {
    /// In words for a person.
    pub(super) fn reason(&self) -> String {
        let who =
            self.survivor.dir.supervisor().map_or_else(String::new, |identity| format!(" (pid {})", identity.pid));
        let seconds = self.still_for.as_secs();
        format!("its supervisor{who} gave no sign of life for {seconds} s, and did not answer")
    }

    /// Kills it with everything below it, and waits until its lock is free.
    pub(super) fn kill(&self) {
        let dir = &self.survivor.dir;
        if let Some(supervisor) = dir.supervisor().or_else(|| started::of_run(dir.path())) {
            supervisor.kill_tree();
        }
        let give_up_at = Instant::now() + DEATH_MAX;
        while matches!(dir.lock(), Ok(None)) && Instant::now() < give_up_at {
            std::thread::sleep(LOOK);
        }
    }
}

/// Those that hang, apart from the others. All suspects are asked at the same time.
pub(super) fn part(places: &Places, live: Vec<Survivor>) -> (Vec<Survivor>, Vec<Hung>) {
    let asked_at = Instant::now();
    let suspects = live.into_iter().map(|survivor| {
        let still_for = still_for(places, &survivor);
        let question = still_for.and_then(|still_for| Some((still_for, ask(survivor.dir.clone())?)));
        (survivor, question)
    });
    let (mut well, mut hung) = (Vec::new(), Vec::new());
    for (survivor, question) in suspects.collect::<Vec<_>>() {
        match question {
            Some((still_for, answer)) if !has_come(&answer, asked_at) => hung.push(Hung { survivor, still_for }),
            _ => well.push(survivor),
        }
    }
    (well, hung)
}

/// How long its heartbeat has not moved, when that is suspect.
fn still_for(places: &Places, survivor: &Survivor) -> Option<Duration> {
    let job = &survivor.job;
    let beaten_at = match lease::read(&places.running_file(job.task)) {
        Found::Lease(lease) if lease.attempt == job.attempt => {
            SystemTime::from(lease.heartbeat.parse::<jiff::Timestamp>().ok()?)
        }
        // It is set aside, and whether it is written anew shows the next time.
        Found::Unreadable(_) => return None,
        // It has had the time to make one since it said who it is.
        Found::Lease(_) | Found::Nothing => survivor.dir.signed_at()?,
    };
    let interval = Duration::from_millis(survivor.heartbeat_ms);
    match beaten_at.elapsed() {
        Ok(still_for) => (still_for > interval * BEATS_MISSED_MAX).then_some(still_for),
        // The clock was set back; nobody can tell how long it is.
        Err(ahead) => (ahead.duration() > interval).then_some(Duration::ZERO),
    }
}

/// On a thread of its own, because even to connect may take for ever. `None` when there is no thread to be had: who was
/// not asked is not judged.
fn ask(dir: RunDir) -> Option<mpsc::Receiver<()>> {
    let (answer, answered) = mpsc::channel();
    let question = move || {
        let give_up_at = Instant::now() + ANSWER_MAX;
        while Instant::now() < give_up_at {
            if first_word(&dir).is_ok() {
                let _ = answer.send(());
                return;
            }
            std::thread::sleep(LOOK);
        }
    };
    match std::thread::Builder::new().name("runyard-ask".to_owned()).spawn(question) {
        Ok(_) => Some(answered),
        Err(error) => {
            tracing::warn!(%error, "a supervisor cannot be asked whether it is alive");
            None
        }
    }
}

/// A supervisor speaks first.
fn first_word(dir: &RunDir) -> io::Result<()> {
    let address = Address::of(dir)?;
    let mut stream = UnixStream::connect(&address.path)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.read_exact(&mut [0])
}

fn has_come(answer: &mpsc::Receiver<()>, asked_at: Instant) -> bool {
    answer.recv_timeout(ANSWER_MAX.saturating_sub(asked_at.elapsed())).is_ok()
}
