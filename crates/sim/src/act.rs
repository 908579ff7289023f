//! What chance does to the world: time, requests, messages that come twice or too late, and faults.

use std::sync::Arc;

use runyard_core::config::Config;
use runyard_core::event::{Admit, Event, Held, Report};
use runyard_core::hash::mix;
use runyard_core::ids::{TaskId, Token};
use runyard_core::name::Name;
use runyard_store::memory::FailCommit;

use crate::generate::{self, Pool};
use crate::worker::{Link, report};
use crate::world::World;

impl World {
    pub(crate) fn time(&mut self) {
        let ms = match self.rng.below(100) {
            0..=39 => 0,
            40..=79 => self.rng.below(60),
            80..=94 => self.rng.below(600),
            95..=98 => self.rng.below(4000),
            // To the very moment it asked to be woken at.
            _ => self.wake_ms.map_or(1, |wake_ms| wake_ms.saturating_sub(self.steady_ms).min(60_000)),
        };
        self.pass(ms);
        match self.rng.below(400) {
            // Mostly by a little; so that schedules miss some moments, or many.
            0 => {
                let most_ms = *self.rng.pick(&[20_000, 20_000, 20_000, 20_000, 300_000, 6_000_000]);
                self.wall_ahead_ms += self.rng.below(most_ms);
            }
            1 => self.wall_ahead_ms = self.wall_ahead_ms.saturating_sub(self.rng.below(20_000)),
            _ => {}
        }
    }

    pub(crate) fn act(&mut self) {
        match self.rng.below(100) {
            0..=44 => self.submit(),
            45..=59 => self.cancel(),
            60..=67 => self.change(),
            68..=71 => self.heartbeat(),
            72..=79 => self.stale_report(),
            80..=84 if self.rng.chance(30) => self.reconfigure(),
            85 if self.rng.chance(30) => self.admit(),
            86..=90 if !self.inbox.is_empty() => {
                let at = self.rng.below(self.inbox.len() as u64) as usize;
                let event = self.inbox[at].clone();
                match event {
                    Event::Report { .. } | Event::WorkerSeen { .. } => self.inbox.push(event),
                    _ => self.repeat_call(&event),
                }
            }
            91..=93 => self.shuffle(),
            94 if self.rng.chance(40) => self.manage_worker(),
            94 => self.deliver(),
            80..=85 if self.universe.n_schedules > 0 => self.schedule_act(),
            95..=99 if self.universe.in_session > 0 => self.session_act(),
            _ => {}
        }
    }

    fn submit(&mut self) {
        if self.oracle.live.len() + self.inbox.len() > self.universe.live_max {
            return;
        }
        let ticket = self.ticket();
        // Ids are made by the server: nobody can name a parent that was not answered yet.
        let parents: Vec<TaskId> = self.known.iter().filter(|id| self.oracle.rows.contains_key(id)).copied().collect();
        let held: Vec<(TaskId, Option<Name>)> =
            self.oracle.held.keys().map(|id| (*id, self.oracle.session_of(&self.oracle.rows[id]).cloned())).collect();
        let pool = Pool { now: self.now(), ticket: ticket.0, parents: &parents, held: &held, keys: &self.keys };
        let submission = generate::submission(&mut self.rng, &self.universe, &pool);
        self.known.extend(submission.items.iter().map(|item| item.id));
        let surplus = self.known.len().saturating_sub(60);
        self.known.drain(..surplus);
        let keys = submission.items.iter().filter_map(|item| item.idempotency.clone());
        self.keys.extend(keys.chain(submission.idempotency.clone()));
        let surplus = self.keys.len().saturating_sub(6);
        self.keys.drain(..surplus);
        self.inbox.push(Event::Submit(submission));
    }

    fn some_task(&mut self) -> Option<TaskId> {
        if self.rng.one_in(40) {
            return Some(TaskId(self.rng.id()));
        }
        let live = self.oracle.live.len() as u64;
        if live > 0 && self.rng.chance(60) {
            let at = self.rng.below(live) as usize;
            return self.oracle.live.iter().nth(at).copied();
        }
        (!self.known.is_empty()).then(|| *self.rng.pick(&self.known))
    }

    fn cancel(&mut self) {
        if self.rng.chance(60) {
            return;
        }
        if let Some(task) = self.some_task() {
            let ticket = self.ticket();
            self.inbox.push(Event::Cancel { ticket, task, reason: "asked for".into() });
        }
    }

    fn change(&mut self) {
        let now = self.now();
        if let Some(task) = self.some_task() {
            let change = generate::change(&mut self.rng, now);
            let ticket = self.ticket();
            self.inbox.push(Event::Change { ticket, task, change });
        }
    }

    /// Mostly of what runs.
    fn heartbeat(&mut self) {
        let n_held = self.oracle.held.len() as u64;
        let task = match n_held > 0 && self.rng.chance(80) {
            true => {
                let at = self.rng.below(n_held) as usize;
                self.oracle.held.keys().nth(at).copied()
            }
            false => self.some_task(),
        };
        if let Some(task) = task {
            let ticket = self.ticket();
            self.inbox.push(Event::Heartbeat { ticket, task });
        }
    }

    fn session_act(&mut self) {
        let ticket = self.ticket();
        let key = generate::session_key(&mut self.rng, &self.universe);
        let act = generate::session_act(&mut self.rng);
        self.inbox.push(Event::Session { ticket, key, act });
    }

    fn stale_report(&mut self) {
        if self.old_leases.is_empty() {
            return;
        }
        let (worker, task, attempt, token) = *self.rng.pick(&self.old_leases);
        let is_held = self.oracle.held.contains_key(&task);
        let lease = match self.rng.below(3) {
            // The old attempt with the token of the new one, or the new one with a wrong token.
            0 if is_held => {
                let token = self.oracle.rows[&task].state.lease().map_or(token, |lease| lease.token);
                (worker, attempt.saturating_sub(1), token)
            }
            1 if is_held => (worker, self.oracle.rows[&task].attempt, Token(mix(token.0))),
            _ => (worker, attempt, token),
        };
        let (worker, attempt, token) = lease;
        let held = Held { task, attempt, token };
        // A lease that lives is reported on by its worker only: this one must not guess right.
        let row = self.oracle.rows.get(&task);
        let is_live =
            row.is_some_and(|row| row.attempt == attempt && row.state.lease().is_some_and(|l| l.token == token));
        if !is_live {
            let end = match self.rng.below(6) {
                0..=2 => Report::Completed { result: None, usage: generate::usage(&mut self.rng) },
                3 if !self.known.is_empty() => Report::InputTaken { message: *self.rng.pick(&self.known) },
                _ => Report::Started,
            };
            self.inbox.push(report(worker, held, end));
        }
    }

    fn reconfigure(&mut self) {
        let mut config = generate::config(&mut self.rng, &self.universe);
        // Most reloads change little.
        if self.rng.chance(60) {
            let old = (*self.oracle.config).clone();
            config = match self.rng.below(6) {
                0 => Config { lanes: config.lanes, ..old },
                1 => Config { agents: config.agents, inflight_per_agent_max: config.inflight_per_agent_max, ..old },
                2 => Config { gates: config.gates, kinds: config.kinds, ..old },
                3 => Config { sessions: config.sessions, ..old },
                4 => Config { schedules_paused: !old.schedules_paused, schedules_max: config.schedules_max, ..old },
                _ => Config { inflight_max: config.inflight_max, ..old },
            };
        }
        let ticket = Some(self.ticket());
        self.inbox.push(Event::Configure { ticket, config: Arc::new(config) });
    }

    fn admit(&mut self) {
        let admit = match self.oracle.admit {
            Admit::Open if self.rng.chance(70) => Admit::Draining,
            Admit::Open => Admit::Stopping,
            _ => Admit::Open,
        };
        let ticket = Some(self.ticket());
        self.inbox.push(Event::Admit { admit, ticket });
    }

    /// Messages overtake each other.
    fn shuffle(&mut self) {
        for n in (1..self.inbox.len()).rev() {
            let other = self.rng.below(n as u64 + 1) as usize;
            self.inbox.swap(n, other);
        }
    }

    pub(crate) fn fault(&mut self) {
        if self.oracle.admit != Admit::Open && self.rng.one_in(20) {
            self.admit();
        }
        match self.rng.below(1000) {
            0..=7 => self.tap.fail_next_commit(FailCommit::BeforeApply),
            8..=13 => self.tap.fail_next_commit(FailCommit::AfterApply),
            14..=16 => self.crash(),
            37..=38 => self.restart(),
            17..=36 => {
                let at = self.rng.below(self.workers.len() as u64) as usize;
                let worker = &mut self.workers[at];
                match (worker.link, self.rng.below(4)) {
                    (Link::Up, 0) => worker.link = Link::Silent,
                    (Link::Up, 1) if worker.is_remote() => {
                        worker.link = Link::Unjoined;
                        self.hand_in(at, Vec::new(), true);
                        if self.rng.chance(50) {
                            self.workers[at].lose_everything();
                        }
                    }
                    (Link::Up, 2) if worker.is_remote() => worker.restart(),
                    (Link::Up, 1) => {
                        let event = Event::WorkerGone { worker: worker.id(), reason: "it said goodbye".into() };
                        worker.link = Link::Unjoined;
                        if self.rng.chance(50) {
                            worker.lose_everything();
                        }
                        self.inbox.push(event);
                    }
                    (Link::Up, 2) => worker.join(self.steady_ms, &mut self.inbox),
                    (Link::Up, _) => worker.lose_everything(),
                    (Link::Silent, _) => worker.link = Link::Unjoined,
                    (Link::Unjoined, _) => {}
                }
            }
            _ => {}
        }
    }
}
