//! A simulated worker: it holds tasks as the real one does. A stop is confirmed after a while, or the natural end
//! comes first; what is revoked ends in silence; ends are repeated until they are acknowledged.

use std::collections::BTreeMap;

use runyard_core::event::{Command, Event, Fault, Held, Report, Start, WorkerSpec};
use runyard_core::ids::{TaskId, WorkerId};
use runyard_core::task::Class;
use runyard_core::worker::Vitals;

use crate::generate;
use crate::rng::Rng;

pub struct SimWorker {
    pub spec: WorkerSpec,
    pub link: Link,
    runs: BTreeMap<TaskId, Run>,
    ended: BTreeMap<TaskId, Ended>,
    seen_ms: u64,
    /// Of a worker on another machine: the session of the process that runs now, as far as it knows.
    pub session: u64,
    pub registered: bool,
    /// What the server has for it, and could not hand over.
    pub mail: Vec<Command>,
}

struct Ended {
    lease: Held,
    is_kept: bool,
    report: Report,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// Present, and heard.
    Up,
    /// Nothing gets through in either direction, and nobody was told.
    Silent,
    /// It must present itself (again) before it is given anything.
    Unjoined,
}

struct Run {
    lease: Held,
    start_ms: u64,
    told_started: bool,
    end_ms: u64,
    end: Report,
    stop_ms: Option<u64>,
    given_up: bool,
    next: Option<Box<Start>>,
    watch_silence: bool,
    /// It goes on without the server.
    is_kept: bool,
    /// Messages it takes in, and when.
    inputs: Vec<(u64, TaskId)>,
}

/// How the work itself behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    /// Anything may go wrong.
    Wild,
    /// Everything ends well and soon.
    Calm,
    /// Everything begins at once, ends well, and takes exactly so many milliseconds.
    Even(u64),
}

impl SimWorker {
    pub fn new(spec: WorkerSpec) -> SimWorker {
        SimWorker {
            spec,
            link: Link::Unjoined,
            runs: BTreeMap::new(),
            ended: BTreeMap::new(),
            seen_ms: 0,
            session: 0,
            registered: false,
            mail: Vec::new(),
        }
    }

    pub fn id(&self) -> WorkerId {
        self.spec.id
    }

    /// On another machine: it registers, and says everything in one call.
    pub fn is_remote(&self) -> bool {
        !self.spec.embedded
    }

    /// The machine died: nothing of it is left.
    pub fn lose_everything(&mut self) {
        self.runs.clear();
        self.ended.clear();
        self.link = Link::Unjoined;
        self.registered = false;
        self.mail.clear();
    }

    /// Another process takes over what goes on by itself.
    pub fn restart(&mut self) {
        self.lose_unkept();
        self.registered = false;
        self.mail.clear();
    }

    /// All leases: what runs, what waits for its predecessor's end, and ends that were not acknowledged.
    pub fn held(&self) -> Vec<Held> {
        let running = self.runs.values().filter_map(|run| match (run.given_up, &run.next) {
            (false, _) => Some(run.lease),
            (true, Some(next)) => Some(lease_of(next)),
            (true, None) => None,
        });
        running.chain(self.ended.values().map(|ended| ended.lease)).collect()
    }

    /// The server died and this worker with it, but not what goes on by itself: its lease and its end are found again.
    /// Who waited for its end, and what it was to take in, is forgotten.
    pub fn lose_unkept(&mut self) {
        self.runs.retain(|_, run| run.is_kept);
        for run in self.runs.values_mut() {
            (run.given_up, run.next) = (false, None);
            run.inputs.clear();
        }
        self.ended.retain(|_, ended| ended.is_kept);
        self.link = Link::Unjoined;
    }

    /// Presents itself with what it holds, and repeats what was not acknowledged.
    pub fn join(&mut self, now_ms: u64, inbox: &mut Vec<Event>) {
        self.link = Link::Up;
        self.seen_ms = now_ms;
        inbox.push(Event::WorkerJoined { worker: self.spec.clone(), held: self.held() });
        let started = self.runs.values().filter(|run| !run.given_up && run.told_started);
        let started = started.map(|run| report(self.spec.id, run.lease, Report::Started));
        let ended = self.ended.values().map(|ended| report(self.spec.id, ended.lease, ended.report.clone()));
        inbox.extend(started.chain(ended).collect::<Vec<_>>());
    }

    pub fn start(&mut self, now_ms: u64, start: Start, mood: Mood, rng: &mut Rng) {
        if self.link == Link::Silent {
            return;
        }
        if let Some(run) = self.runs.get_mut(&start.task) {
            if start.attempt > run.lease.attempt {
                run.given_up = true;
                run.stop_ms.get_or_insert(now_ms + rng.below(300));
                run.next = Some(Box::new(start));
            }
            return;
        }
        let run = self.begin(now_ms, &start, mood, rng);
        self.runs.insert(start.task, run);
    }

    fn begin(&self, now_ms: u64, start: &Start, mood: Mood, rng: &mut Rng) -> Run {
        Run { is_kept: self.spec.keeps.contains(&start.kind), ..Run::new(now_ms, start, mood, rng) }
    }

    pub fn stop(&mut self, now_ms: u64, lease: Held, rng: &mut Rng, inbox: &mut Vec<Event>) {
        if self.link == Link::Silent {
            return;
        }
        if let Some(run) = self.runs.get_mut(&lease.task) {
            if run.lease.attempt == lease.attempt {
                run.stop_ms.get_or_insert(now_ms + rng.below(400));
                return;
            }
            run.next.take_if(|next| next.attempt == lease.attempt);
        }
        match self.ended.get(&lease.task) {
            Some(ended) if ended.lease.attempt == lease.attempt => {
                inbox.push(report(self.spec.id, ended.lease, ended.report.clone()));
            }
            _ => inbox.push(report(self.spec.id, lease, Report::Stopped)),
        }
    }

    /// A message for something that runs: taken in after a while, or never.
    pub fn input(&mut self, now_ms: u64, lease: Held, message: TaskId, rng: &mut Rng) {
        let is_taken = self.link != Link::Silent && rng.chance(60);
        let run = self.runs.get_mut(&lease.task).filter(|run| run.lease == lease && !run.given_up);
        if let (Some(run), true) = (run, is_taken) {
            run.inputs.push((now_ms + rng.below(400), message));
        }
    }

    pub fn revoke(&mut self, now_ms: u64, task: TaskId, attempt: u32, rng: &mut Rng) {
        if self.link == Link::Silent {
            return;
        }
        if self.ended.get(&task).is_some_and(|ended| ended.lease.attempt == attempt) {
            self.ended.remove(&task);
        }
        if let Some(run) = self.runs.get_mut(&task) {
            if run.lease.attempt == attempt {
                run.given_up = true;
                run.stop_ms.get_or_insert(now_ms + rng.below(300));
            } else {
                run.next.take_if(|next| next.attempt == attempt);
            }
        }
    }

    pub fn acknowledge(&mut self, lease: Held) {
        if self.ended.get(&lease.task).is_some_and(|ended| ended.lease == lease) {
            self.ended.remove(&lease.task);
        }
    }

    /// Lets time pass: heartbeats, starts, signs of life and ends.
    pub fn pass(&mut self, now_ms: u64, mood: Mood, rng: &mut Rng, inbox: &mut Vec<Event>) {
        let is_up = self.link == Link::Up;
        if is_up && self.seen_ms + HEARTBEAT_MS <= now_ms {
            self.seen_ms = now_ms;
            inbox.push(Event::WorkerSeen { worker: self.spec.id, vitals: Vitals::default() });
        }
        let mut over = Vec::new();
        for run in self.runs.values_mut() {
            if !run.told_started && !run.given_up && run.start_ms <= now_ms && run.end_ms > now_ms {
                run.told_started = true;
                if is_up {
                    inbox.push(report(self.spec.id, run.lease, Report::Started));
                }
            }
            if run.watch_silence && run.told_started && is_up && rng.chance(20) {
                inbox.push(report(self.spec.id, run.lease, Report::Alive));
            }
            if is_up && run.told_started && !run.given_up {
                for (_, message) in run.inputs.extract_if(.., |(at_ms, _)| *at_ms <= now_ms) {
                    inbox.push(report(self.spec.id, run.lease, Report::InputTaken { message }));
                }
            }
            if run.end_ms.min(run.stop_ms.unwrap_or(u64::MAX)) <= now_ms {
                over.push(run.lease.task);
            }
        }
        for task in over {
            self.finish(now_ms, task, mood, rng, inbox);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.ended.is_empty()
    }

    /// When something of its own is due next.
    pub fn next_ms(&self) -> Option<u64> {
        self.runs.values().map(|run| run.end_ms.min(run.stop_ms.unwrap_or(u64::MAX))).min()
    }

    fn finish(&mut self, now_ms: u64, task: TaskId, mood: Mood, rng: &mut Rng, inbox: &mut Vec<Event>) {
        let run = self.runs.remove(&task).expect("it was just found");
        if !run.given_up {
            let is_stopped = run.stop_ms.is_some_and(|stop_ms| stop_ms < run.end_ms);
            let end = if is_stopped { Report::Stopped } else { run.end };
            self.ended.insert(task, Ended { lease: run.lease, is_kept: run.is_kept, report: end.clone() });
            if self.link == Link::Up {
                inbox.push(report(self.spec.id, run.lease, end));
            }
        }
        if let Some(next) = run.next {
            let run = self.begin(now_ms, &next, mood, rng);
            self.runs.insert(task, run);
        }
    }
}

impl Run {
    fn new(now_ms: u64, start: &Start, mood: Mood, rng: &mut Rng) -> Run {
        let start_ms = now_ms + if let Mood::Even(_) = mood { 0 } else { rng.below(40) };
        let (end_ms, end) = match mood {
            Mood::Calm => (start_ms + rng.below(100), Report::Completed { result: None, usage: None }),
            Mood::Even(ms) => (start_ms + ms, Report::Completed { result: None, usage: None }),
            Mood::Wild => (start_ms + run_ms(rng), end(rng)),
        };
        // Some never say that they began; their end tells of both.
        let told_started = mood == Mood::Wild && rng.chance(8);
        let start_ms = if mood == Mood::Wild && rng.chance(2) { u64::MAX } else { start_ms };
        let end_ms = if start_ms == u64::MAX { u64::MAX } else { end_ms };
        Run {
            lease: lease_of(start),
            start_ms,
            told_started,
            end_ms,
            end,
            stop_ms: None,
            given_up: false,
            next: None,
            watch_silence: start.watch_silence,
            is_kept: false,
            inputs: Vec::new(),
        }
    }
}

fn run_ms(rng: &mut Rng) -> u64 {
    match rng.below(20) {
        0 => u64::MAX / 2,
        1..=4 => 0,
        5..=12 => rng.below(300),
        _ => rng.below(4000),
    }
}

fn end(rng: &mut Rng) -> Report {
    let failed = |class, rng: &mut Rng| Report::Failed {
        class,
        message: "it did not work".into(),
        retry_after_ms: (class == Class::Quota && rng.chance(50)).then(|| rng.below(3000)),
        result: None,
        usage: generate::usage(rng),
        fault: if rng.chance(10) { Fault::Worker } else { Fault::Work },
    };
    match rng.below(100) {
        0..=54 => {
            let usage = generate::usage(rng);
            Report::Completed { result: rng.chance(30).then(|| b"fine".as_slice().into()), usage }
        }
        55..=74 => failed(Class::Task, rng),
        75..=79 => failed(Class::Timeout, rng),
        80..=86 => failed(Class::Quota, rng),
        87..=90 => failed(Class::Permanent, rng),
        91..=93 => failed(Class::Lost, rng),
        94 => failed(Class::Deadline, rng),
        95..=96 => Report::Stopped,
        _ => Report::NotStarted { reason: "no room after all".into() },
    }
}

pub fn lease_of(start: &Start) -> Held {
    Held { task: start.task, attempt: start.attempt, token: start.token }
}

pub fn report(worker: WorkerId, lease: Held, report: Report) -> Event {
    Event::Report { worker, task: lease.task, attempt: lease.attempt, token: lease.token, report }
}

const HEARTBEAT_MS: u64 = 1000;
