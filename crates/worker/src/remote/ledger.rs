//! What has still to be told to the server. Pure bookkeeping: when something is due, what goes into the next letter, and
//! what an answer settles.
//!
//! ```text
//! an attempt:  begun ──► told when due, until an answer
//!              log, progress, signs of life ──► told together, not more often than people can read
//!              ended ──► closing: artifacts are sent ──► closed: told with the last of its log, until an answer
//! ```

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use runyard_core::event::{Event, Held, Report};
use runyard_core::ids::TaskId;
use runyard_exec::Progress;

/// Logs, progress and signs of life of what runs: people read along, and a letter for each line would be too many.
const SOON: Duration = Duration::from_millis(200);
/// Of all logs in one letter; in base64 it is a third more.
const LOG_BYTES_MAX: u64 = 1024 * 1024;
/// Of one log in one letter, so that a chatty one does not keep the others waiting.
const LOG_CHUNK_BYTES_MAX: u64 = 256 * 1024;
/// Of results in one letter; a single one is always taken, and has at most 1 MiB.
const RESULT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Ends in one letter.
const ENDS_MAX: usize = 500;
/// After so many letters that moved nothing of a log, an end is told without the rest of it: a server whose disk is full
/// must still learn that work has ended.
const LOG_REFUSALS_MAX: u32 = 20;

pub(super) type Attempt = (TaskId, u32);

pub(super) fn attempt_of(lease: Held) -> Attempt {
    (lease.task, lease.attempt)
}

#[derive(Default)]
pub(super) struct Ledger {
    started: BTreeMap<Attempt, Held>,
    alive: BTreeMap<Attempt, Held>,
    inputs: BTreeMap<(TaskId, u32, TaskId), Held>,
    progress: BTreeMap<Attempt, (Held, Progress)>,
    logs: BTreeMap<Attempt, Log>,
    ends: BTreeMap<Attempt, End>,
    /// Before this nothing is due that can wait.
    soon_at: Option<Instant>,
    /// The worker shuts down: what it stops is handed back.
    is_leaving: bool,
}

struct Log {
    lease: Held,
    /// How long it is, and how much of it the server has.
    bytes: u64,
    taken: u64,
    n_refusals: u32,
}

struct End {
    lease: Held,
    report: Report,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Fresh,
    /// Its artifacts are being sent.
    Closing,
    Closed,
}

/// When the next letter is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    Now,
    At(Instant),
    Never,
}

/// What one letter tells.
#[derive(Default)]
pub(super) struct Letter {
    pub started: Vec<Held>,
    pub alive: Vec<Held>,
    pub inputs: Vec<(Held, TaskId)>,
    pub progress: Vec<(Held, Progress)>,
    pub logs: Vec<LogPart>,
    pub done: Vec<(Held, Report)>,
}

/// Which part of a log a letter has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LogPart {
    pub lease: Held,
    pub offset: u64,
    pub bytes: u64,
}

impl Letter {
    pub(super) fn is_empty(&self) -> bool {
        self.started.is_empty()
            && self.alive.is_empty()
            && self.inputs.is_empty()
            && self.progress.is_empty()
            && self.logs.is_empty()
            && self.done.is_empty()
    }
}

impl Ledger {
    pub(super) fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Takes in what the worker reports.
    pub(super) fn take(&mut self, event: Event) {
        let Event::Report { task, attempt, token, report, .. } = event else { return };
        let lease = Held { task, attempt, token };
        match report {
            Report::Started => drop(self.started.insert((task, attempt), lease)),
            Report::Alive => drop(self.alive.insert((task, attempt), lease)),
            Report::InputTaken { message } => drop(self.inputs.insert((task, attempt, message), lease)),
            // A stop that the server asked for is a stop whatever is said of it.
            Report::Stopped if self.is_leaving => {
                self.end(lease, Report::NotStarted { reason: "its worker was shut down".into() });
            }
            report => self.end(lease, report),
        }
    }

    fn end(&mut self, lease: Held, report: Report) {
        let stage = Stage::Fresh;
        self.ends.entry(attempt_of(lease)).or_insert(End { lease, report, stage });
    }

    pub(super) fn log_grew(&mut self, lease: Held, bytes: u64) {
        let log = self.logs.entry(attempt_of(lease)).or_insert(Log { lease, bytes: 0, taken: 0, n_refusals: 0 });
        log.bytes = log.bytes.max(bytes);
    }

    pub(super) fn progress(&mut self, lease: Held, progress: Progress) {
        self.progress.insert(attempt_of(lease), (lease, progress));
    }

    /// Ends that nobody has begun to close; whoever asks does.
    pub(super) fn ends_to_close(&mut self) -> Vec<Held> {
        let fresh = self.ends.values_mut().filter(|end| end.stage == Stage::Fresh);
        let closing = fresh.map(|end| {
            end.stage = Stage::Closing;
            end.lease
        });
        closing.collect()
    }

    /// Its artifacts are sent, and its log does not grow any more.
    pub(super) fn closed(&mut self, lease: Held, log_bytes: u64) {
        self.log_grew(lease, log_bytes);
        if let Some(end) = self.ends.get_mut(&attempt_of(lease)) {
            end.stage = Stage::Closed;
        }
    }

    pub(super) fn due(&self, now: Instant) -> Due {
        let is_closed = |attempt: &Attempt| self.ends.get(attempt).is_some_and(|end| end.stage == Stage::Closed);
        let has_end = self.ends.values().any(|end| end.stage != Stage::Closing);
        if has_end || !self.started.is_empty() || !self.inputs.is_empty() {
            return Due::Now;
        }
        let grown = self.logs.iter().filter(|(_, log)| log.bytes > log.taken).map(|(attempt, _)| attempt);
        let can_wait: Vec<_> = grown.chain(self.alive.keys()).chain(self.progress.keys()).collect();
        match (can_wait.is_empty(), self.soon_at) {
            (true, _) => Due::Never,
            (false, Some(at)) if at > now && !can_wait.into_iter().any(is_closed) => Due::At(at),
            (false, _) => Due::Now,
        }
    }

    /// What is to be told now. Signs of life are told once; everything else until an answer has come.
    pub(super) fn letter(&mut self, now: Instant) -> Letter {
        let mut letter = Letter {
            started: self.started.values().copied().collect(),
            inputs: self.inputs.iter().map(|((_, _, message), lease)| (*lease, *message)).collect(),
            ..Letter::default()
        };
        let takes_all = self.soon_at.is_none_or(|at| at <= now);
        let mut left = LOG_BYTES_MAX;
        // First the last of what has ended: only then its end can be told.
        let (ended, running): (Vec<_>, Vec<_>) =
            self.logs.iter().partition(|(attempt, _)| self.ends.contains_key(*attempt));
        let running = running.into_iter().filter(|_| takes_all);
        for (_, log) in ended.into_iter().chain(running).filter(|(_, log)| log.bytes > log.taken) {
            let bytes = (log.bytes - log.taken).min(LOG_CHUNK_BYTES_MAX).min(left);
            left -= bytes;
            letter.logs.extend((bytes > 0).then_some(LogPart { lease: log.lease, offset: log.taken, bytes }));
        }
        letter.done = self.ends_to_tell(&letter.logs);
        if takes_all {
            letter.alive = std::mem::take(&mut self.alive).into_values().collect();
            letter.progress = self.progress.values().cloned().collect();
            self.soon_at = Some(now + SOON);
        }
        letter
    }

    fn ends_to_tell(&self, parts: &[LogPart]) -> Vec<(Held, Report)> {
        let is_told_whole = |end: &End| {
            let Some(log) = self.logs.get(&attempt_of(end.lease)) else { return true };
            let part = parts.iter().find(|part| part.lease == end.lease).map_or(0, |part| part.bytes);
            log.taken + part >= log.bytes || log.n_refusals >= LOG_REFUSALS_MAX
        };
        let ready = self.ends.values().filter(|end| end.stage == Stage::Closed && is_told_whole(end));
        let mut bytes = 0;
        let fits = ready.take(ENDS_MAX).take_while(|end| {
            let is_first = bytes == 0;
            bytes += result_bytes(&end.report);
            is_first || bytes <= RESULT_BYTES_MAX
        });
        fits.map(|end| (end.lease, end.report.clone())).collect()
    }

    /// An answer has come: what the letter told is stored. `taken` says how much of each log is.
    pub(super) fn delivered(&mut self, letter: &Letter, taken: &[(Attempt, u64)]) {
        for lease in &letter.started {
            self.started.remove(&attempt_of(*lease));
        }
        for (lease, message) in &letter.inputs {
            self.inputs.remove(&(lease.task, lease.attempt, *message));
        }
        for (lease, progress) in &letter.progress {
            if self.progress.get(&attempt_of(*lease)).is_some_and(|(_, now)| now == progress) {
                self.progress.remove(&attempt_of(*lease));
            }
        }
        for part in &letter.logs {
            let attempt = attempt_of(part.lease);
            let Some(log) = self.logs.get_mut(&attempt) else { continue };
            // The server may have had more of it than we knew, or less.
            let now = taken.iter().find(|(of, _)| *of == attempt).map_or(part.offset, |(_, offset)| *offset);
            log.n_refusals = if now > part.offset { 0 } else { log.n_refusals + 1 };
            log.taken = now.min(log.bytes);
        }
        for (lease, _) in &letter.done {
            self.forget(attempt_of(*lease));
        }
    }

    /// Nothing more is to be told of this attempt.
    pub(super) fn forget(&mut self, attempt: Attempt) {
        self.started.remove(&attempt);
        self.alive.remove(&attempt);
        self.inputs.retain(|(task, number, _), _| (*task, *number) != attempt);
        self.progress.remove(&attempt);
        self.logs.remove(&attempt);
        self.ends.remove(&attempt);
    }

    pub(super) fn clear(&mut self) {
        *self = Ledger { is_leaving: self.is_leaving, ..Ledger::default() };
    }

    /// Is everything told that a server must know?
    pub(super) fn is_settled(&self) -> bool {
        self.started.is_empty() && self.inputs.is_empty() && self.ends.is_empty()
    }
}

fn result_bytes(report: &Report) -> usize {
    match report {
        Report::Completed { result: Some(result), .. } | Report::Failed { result: Some(result), .. } => result.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use runyard_core::ids::{Token, WorkerId};

    use super::*;

    fn lease(task: u128) -> Held {
        Held { task: TaskId(task), attempt: 1, token: Token(9) }
    }

    fn report(task: u128, report: Report) -> Event {
        let Held { task, attempt, token } = lease(task);
        Event::Report { worker: WorkerId(1), task, attempt, token, report }
    }

    fn completed(result: usize) -> Report {
        Report::Completed { result: Some(vec![b'x'; result].into()), usage: None }
    }

    #[test]
    fn a_start_is_told_at_once_and_until_an_answer_comes() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        assert_eq!(ledger.due(now), Due::Never);
        ledger.take(report(1, Report::Started));
        assert_eq!(ledger.due(now), Due::Now);
        assert_eq!(ledger.letter(now).started, [lease(1)]);
        let again = ledger.letter(now);
        assert_eq!(again.started, [lease(1)]);
        ledger.delivered(&again, &[]);
        assert!(ledger.letter(now).is_empty() && ledger.is_settled());
    }

    #[test]
    fn logs_of_what_runs_are_told_together_and_not_too_often() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.log_grew(lease(1), 10);
        ledger.log_grew(lease(2), 20);
        assert_eq!(ledger.due(now), Due::Now);
        let letter = ledger.letter(now);
        assert_eq!(letter.logs.iter().map(|part| part.bytes).collect::<Vec<_>>(), [10, 20]);
        ledger.delivered(&letter, &[((TaskId(1), 1), 10), ((TaskId(2), 1), 20)]);
        ledger.log_grew(lease(1), 15);
        assert_eq!(ledger.due(now), Due::At(now + SOON));
        assert!(ledger.letter(now).is_empty());
        let part = LogPart { lease: lease(1), offset: 10, bytes: 5 };
        assert_eq!(ledger.letter(now + SOON).logs, [part]);
    }

    #[test]
    fn an_end_waits_for_its_artifacts_and_goes_with_the_last_of_its_log() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.take(report(1, completed(2)));
        assert_eq!(ledger.ends_to_close(), [lease(1)]);
        assert!(ledger.ends_to_close().is_empty(), "it is closed once");
        assert_eq!(ledger.due(now), Due::Never);
        let bytes = LOG_CHUNK_BYTES_MAX + 5;
        ledger.closed(lease(1), bytes);
        let letter = ledger.letter(now);
        assert!(letter.done.is_empty() && letter.logs.len() == 1);
        ledger.delivered(&letter, &[((TaskId(1), 1), LOG_CHUNK_BYTES_MAX)]);
        assert_eq!(ledger.due(now), Due::Now, "what has ended is not paced");
        let letter = ledger.letter(now);
        assert_eq!((letter.done.len(), letter.logs[0].bytes), (1, 5));
        ledger.delivered(&letter, &[((TaskId(1), 1), bytes)]);
        assert!(ledger.is_settled() && ledger.letter(now + SOON).is_empty());
    }

    #[test]
    fn a_server_that_has_more_of_a_log_or_less_is_followed() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.log_grew(lease(1), 100);
        let letter = ledger.letter(now);
        ledger.delivered(&letter, &[((TaskId(1), 1), 60)]);
        let letter = ledger.letter(now + SOON);
        assert_eq!(letter.logs, [LogPart { lease: lease(1), offset: 60, bytes: 40 }]);
        ledger.delivered(&letter, &[((TaskId(1), 1), 20)]);
        assert_eq!(ledger.letter(now + 2 * SOON).logs[0].offset, 20);
    }

    #[test]
    fn an_end_is_told_although_nobody_takes_its_log() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.take(report(1, completed(2)));
        ledger.ends_to_close();
        ledger.closed(lease(1), 2 * LOG_CHUNK_BYTES_MAX);
        for _ in 0..LOG_REFUSALS_MAX {
            let letter = ledger.letter(now);
            assert!(letter.done.is_empty());
            ledger.delivered(&letter, &[]);
        }
        assert_eq!(ledger.letter(now).done.len(), 1);
    }

    #[test]
    fn results_are_spread_over_letters_but_one_always_goes() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        for task in 1..=3 {
            ledger.take(report(task, completed(RESULT_BYTES_MAX - 1)));
            ledger.ends_to_close();
            ledger.closed(lease(task), 0);
        }
        for _ in 0..3 {
            let letter = ledger.letter(now);
            assert_eq!(letter.done.len(), 1);
            ledger.delivered(&letter, &[]);
        }
        assert!(ledger.is_settled());
    }

    #[test]
    fn what_a_leaving_worker_stops_is_handed_back() {
        let mut ledger = Ledger::default();
        ledger.leave();
        ledger.take(report(1, Report::Stopped));
        ledger.ends_to_close();
        ledger.closed(lease(1), 0);
        let letter = ledger.letter(Instant::now());
        assert!(matches!(letter.done[..], [(_, Report::NotStarted { .. })]));
    }

    #[test]
    fn of_an_attempt_that_is_forgotten_nothing_is_told() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.take(report(1, Report::Started));
        ledger.take(report(1, Report::Alive));
        ledger.take(report(1, Report::InputTaken { message: TaskId(5) }));
        ledger.progress(lease(1), Progress::default());
        ledger.log_grew(lease(1), 7);
        ledger.take(report(1, Report::Stopped));
        ledger.forget((TaskId(1), 1));
        assert_eq!(ledger.due(now), Due::Never);
        assert!(ledger.letter(now).is_empty());
        ledger.closed(lease(1), 0);
        assert!(ledger.is_settled(), "a late close does not bring it back");
    }
}
