//! One pass: the tick loop, driven until there is nothing to wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use runyard_core::config::Config;
use runyard_core::event::{Command, Event, Happening, HappeningKind, Report, Rest, Subject, WorkerSpec};
use runyard_core::ids::TaskId;
use runyard_core::name::Name;
use runyard_core::task::{Class, Stop};
use runyard_core::worker::Vitals;
use runyard_exec::Places;
use runyard_exec::process::supervise::{self, Stage};
use runyard_store::store::{self, Purge, Store};
use runyard_store::yard::Yard;
use runyard_wire::Id;

use super::Summary;
use crate::clock::{Clock, salt, wall_ms};
use crate::observe::remove_files;
use crate::scheduler::{Crew, Hands, Nobody, Told, carry_out, caught, end};

/// How often those that are being started are looked at.
const LOOK: Duration = Duration::from_millis(10);
/// As a server tells it, when a pass takes long: the worker is alive.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Beyond the grace, for the kill and its confirmation.
const STOP_MARGIN: Duration = Duration::from_secs(6);
/// Chunks of retention in one pass. What is left goes with the next one.
const PURGES_MAX: usize = 100;

pub(super) struct Pass<'a, H> {
    hands: &'a H,
    spec: WorkerSpec,
    yard: Yard,
    clock: Clock,
    inbox: Receiver<Vec<Event>>,
    /// Started in this pass, and not known to run yet.
    starting: BTreeMap<TaskId, Starting>,
    /// Started in this pass. How they end is for the next one: else a pass over many short tasks would never be over.
    started: BTreeSet<(TaskId, u32)>,
    stopping: BTreeMap<TaskId, Stopping>,
    /// Whose records say that they were stopped before this pass.
    found_stopped: BTreeSet<TaskId>,
    seen_at: Instant,
    summary: Summary,
}

struct Starting {
    attempt: u32,
    agent: Name,
}

struct Stopping {
    attempt: u32,
    stop: Stop,
    since: Instant,
}

impl<'a, H: Hands> Pass<'a, H> {
    pub(super) fn open(
        hands: &'a H,
        spec: WorkerSpec,
        store: Box<dyn Store + Send>,
        config: Arc<Config>,
        inbox: Receiver<Vec<Event>>,
        summary: Summary,
    ) -> Result<Pass<'a, H>, String> {
        let (yard, now) = caught(|| Yard::open(store, config, salt(), wall_ms())).map_err(|failed| failed.reason)?;
        Ok(Pass {
            hands,
            spec,
            yard,
            clock: Clock::from(now),
            inbox,
            starting: BTreeMap::new(),
            started: BTreeSet::new(),
            stopping: BTreeMap::new(),
            found_stopped: BTreeSet::new(),
            seen_at: Instant::now(),
            summary,
        })
    }

    /// Until nothing more can start, and everything that was asked for has come to be.
    pub(super) fn run(&mut self, grace: Duration) -> Result<(), String> {
        let mut events = vec![self.hands.arrival(&self.spec)];
        events.extend(self.hands.unacknowledged());
        self.found_stopped = events.iter().filter_map(stopped).collect();
        loop {
            while self.tick(&mut events)? {
                self.gather(&mut events);
            }
            if !self.wait(grace + STOP_MARGIN, &mut events) {
                return Ok(());
            }
        }
    }

    /// What there is to say, and the store, which nobody else may open before the worker has left.
    pub(super) fn finish(mut self) -> Result<(Summary, Yard), String> {
        let counts = caught(|| self.yard.store().reader().counts()).map_err(|failed| failed.reason)?;
        let sum = |of: fn(&runyard_core::write::CountDelta) -> i64| {
            u64::try_from(counts.iter().map(|(_, counts)| of(counts)).sum::<i64>()).unwrap_or(0)
        };
        self.summary.blocked = sum(|counts| counts.waiting);
        self.summary.queued = sum(|counts| counts.queued);
        self.summary.scheduled = sum(|counts| counts.scheduled);
        Ok((self.summary, self.yard))
    }

    /// Retention, as a server does it.
    pub(super) fn purge(&mut self, purge: &Purge, uploads_keep: Duration, places: &Places) {
        if let Err(error) = self.purge_rows(purge, places) {
            self.summary.error(format!("retention could not delete old rows: {error}"));
        }
        if let Err(error) = places.uploads().remove_unneeded(uploads_keep) {
            self.summary.error(format!("old uploads cannot be removed: {error}"));
        }
    }

    fn purge_rows(&mut self, purge: &Purge, places: &Places) -> store::Result<()> {
        for _ in 0..PURGES_MAX {
            let purged = self.yard.store().purge(self.clock.now(), purge)?;
            purged.tasks.iter().for_each(|task| remove_files(places, *task));
            if purged.rest == Rest::Done {
                break;
            }
        }
        Ok(())
    }

    /// One tick with its effects. True when another can follow at once.
    fn tick(&mut self, events: &mut Vec<Event>) -> Result<bool, String> {
        let told = Told::by(events);
        let now = self.clock.now();
        let ticked = caught(|| self.yard.tick(now, events)).map_err(|failed| failed.reason)?;
        self.hands.acknowledge_told(told);
        ticked.commands.iter().for_each(|command| self.note_command(command));
        ticked.happenings.iter().for_each(|happening| self.note_loss(happening));
        // Nobody has asked anything.
        let crew = Crew { own: self.spec.id, hands: self.hands, desk: &Nobody, not_after: None };
        let _ = carry_out(&crew, ticked.commands);
        Ok(ticked.again)
    }

    fn note_command(&mut self, command: &Command) {
        match command {
            Command::Start(start) => {
                let starting = Starting { attempt: start.attempt, agent: start.agent.clone() };
                self.starting.insert(start.task, starting);
            }
            Command::Stop { task, attempt, stop, .. } => {
                let stopping = Stopping { attempt: *attempt, stop: *stop, since: Instant::now() };
                self.stopping.insert(*task, stopping);
            }
            Command::Answer { .. } | Command::Input { .. } | Command::Revoke { .. } => {}
        }
    }

    fn note_loss(&mut self, happening: &Happening) {
        let Subject::Task(facts) = &happening.subject else { return };
        if facts.class != Some(Class::Lost) {
            return;
        }
        let then = match happening.kind {
            HappeningKind::TaskRetrying => "it goes back to the queue",
            HappeningKind::TaskFailed => "it has failed",
            _ => return,
        };
        self.summary.reclaimed += 1;
        // Its record says that it was stopped, and nobody had asked for it.
        self.summary.finished -= usize::from(self.found_stopped.remove(&facts.task));
        self.summary.messages.push(format!("{}: {}; {then}", named(facts.task, &facts.agent), facts.reason));
    }

    /// Waits until there is something for the next tick. False when nothing is to be waited for.
    fn wait(&mut self, stop_max: Duration, events: &mut Vec<Event>) -> bool {
        loop {
            self.gather(events);
            self.look_at_starts();
            self.give_up_stops(stop_max);
            self.keep_alive(events);
            let is_due = self.yard.next_timeout(self.clock.now()) == Some(0);
            if !events.is_empty() {
                return true;
            }
            if self.starting.is_empty() && self.stopping.is_empty() {
                return false;
            }
            if is_due {
                return true;
            }
            match self.inbox.recv_timeout(LOOK) {
                Ok(reports) => reports.into_iter().for_each(|event| self.accept(event, events)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    fn gather(&mut self, events: &mut Vec<Event>) {
        while let Ok(reports) = self.inbox.try_recv() {
            reports.into_iter().for_each(|event| self.accept(event, events));
        }
    }

    fn accept(&mut self, event: Event, events: &mut Vec<Event>) {
        let is_news = match (&event, end(&event)) {
            (Event::Report { report, .. }, Some((task, attempt))) => self.is_news(task, attempt, report),
            _ => true,
        };
        if is_news {
            events.push(event);
        }
    }

    /// Is this end for this pass? What has run and ended meanwhile is not: its record is there for the next one.
    fn is_news(&mut self, task: TaskId, attempt: u32, report: &Report) -> bool {
        if let Some(stopping) = self.stopping.remove(&task) {
            // What this pass itself was about to start is none of those that were found.
            let was_found = self.starting.remove(&task).is_none() && !self.started.contains(&(task, attempt));
            if was_found && stopping.attempt == attempt {
                self.count_stopped(&stopping, task);
            }
            return true;
        }
        if let Some(starting) = self.starting.remove(&task) {
            return self.has_failed_to_start(task, &starting, report);
        }
        if self.started.contains(&(task, attempt)) {
            return false;
        }
        // It was alive a moment ago.
        self.summary.adopted = self.summary.adopted.saturating_sub(1);
        self.summary.finished += usize::from(!is_loss(report));
        true
    }

    fn has_failed_to_start(&mut self, task: TaskId, starting: &Starting, report: &Report) -> bool {
        let has_run = match self.hands.stage(task, starting.attempt) {
            Stage::Running | Stage::Ended(supervise::Command::Ran) => true,
            // The next pass finds that its supervisor is dead.
            Stage::Supervised => is_loss(report),
            Stage::Ahead | Stage::Ended(supervise::Command::NeverStarted) => false,
        };
        if has_run {
            self.count_started(task, starting.attempt);
        } else if let Report::Failed { message, .. } = report {
            self.summary.error(format!("{}: {message}", named(task, &starting.agent)));
        }
        !has_run
    }

    fn count_started(&mut self, task: TaskId, attempt: u32) {
        self.summary.started += 1;
        self.started.insert((task, attempt));
    }

    fn count_stopped(&mut self, stopping: &Stopping, task: TaskId) {
        self.summary.adopted = self.summary.adopted.saturating_sub(1);
        match stopping.stop {
            Stop::Timeout | Stop::Deadline | Stop::Stalled => {
                self.summary.reclaimed += 1;
                self.summary.messages.push(format!("task {}: its time was over, and it was stopped", Id(task.0)));
            }
            Stop::Cancel | Stop::Preempted | Stop::Shutdown | Stop::NotStarted => self.summary.finished += 1,
        }
    }

    fn look_at_starts(&mut self) {
        let runs = |(task, starting): (&TaskId, &Starting)| {
            let is_running = self.hands.stage(*task, starting.attempt) == Stage::Running;
            is_running.then_some((*task, starting.attempt))
        };
        let running: Vec<(TaskId, u32)> = self.starting.iter().filter_map(runs).collect();
        for (task, attempt) in running {
            self.starting.remove(&task);
            self.count_started(task, attempt);
        }
    }

    /// The supervisor has been told, and goes on trying without us.
    fn give_up_stops(&mut self, stop_max: Duration) {
        let late: Vec<TaskId> =
            self.stopping.iter().filter(|(_, stop)| stop.since.elapsed() > stop_max).map(|(task, _)| *task).collect();
        for task in late {
            self.stopping.remove(&task);
            self.summary.error(format!("task {} was asked to stop, and still runs", Id(task.0)));
        }
    }

    fn keep_alive(&mut self, events: &mut Vec<Event>) {
        if self.seen_at.elapsed() >= HEARTBEAT {
            self.seen_at = Instant::now();
            events.push(Event::WorkerSeen { worker: self.spec.id, vitals: Vitals::default() });
        }
    }
}

fn stopped(event: &Event) -> Option<TaskId> {
    match event {
        Event::Report { task, report: Report::Stopped, .. } => Some(*task),
        _ => None,
    }
}

fn is_loss(report: &Report) -> bool {
    matches!(report, Report::Failed { class: Class::Lost, .. })
}

fn named(task: TaskId, agent: &Name) -> String {
    format!("task {} of {agent}", Id(task.0))
}
