//! Ticks in which one message or one act is all that happens to a session: there its outcome is known to the last seat.

use std::collections::{BTreeMap, BTreeSet};

use runyard_core::event::{Event, NewTask, Report};
use runyard_core::ids::TaskId;
use runyard_core::name::Name;
use runyard_core::task::{Delay, Phase, State, Stop, Task, Wait};
use runyard_core::worker::WorkerAct;
use runyard_store::yard::RELEASE_ROWS_MAX;

use crate::foresee::Forecast;
use crate::lineup::{Lineup, Place, Stopped, Verdict};
use crate::oracle::{Applied, Oracle, lane_of};
use crate::sessions::{Followed, is_stale};

/// The one thing that happens to a session in a tick, and what must come of it.
pub(crate) struct Expected {
    pub key: Name,
    pub item: Option<TaskId>,
    pub verdict: Option<Verdict>,
    pub stopped: Stopped,
    lineup: Lineup,
}

impl Oracle {
    /// Where one message or one act is all that happens to a session, its outcome is known to the last seat.
    pub(crate) fn foresee_lines(&self, events: &[Event], forecast: &mut Forecast) {
        let mut named: BTreeMap<&Name, Vec<&Event>> = BTreeMap::new();
        let mut noisy: BTreeSet<&Name> = self.sessions_due().collect();
        for event in events {
            match event {
                Event::Submit(submission) => {
                    let is_single = submission.batch.is_none() && submission.items.len() == 1;
                    for key in submission.items.iter().filter_map(|item| Some(&item.session.as_ref()?.key)) {
                        named.entry(key).or_default().push(event);
                        noisy.extend((!is_single).then_some(key));
                    }
                }
                Event::Session { key, .. } => named.entry(key).or_default().push(event),
                // As quiet as what is said with it.
                Event::Worker { act: WorkerAct::Sync(sync), .. }
                    if !sync.joins && sync.reports.iter().all(|(_, report)| Oracle::is_sign(report)) => {}
                Event::WorkerSeen { .. }
                | Event::Heartbeat { .. }
                | Event::Report { report: Report::Started | Report::Alive, .. } => {}
                Event::Cancel { task, .. } | Event::Change { task, .. } | Event::Report { task, .. } => {
                    let message = match event {
                        Event::Report { report: Report::InputTaken { message }, .. } => Some(message),
                        _ => None,
                    };
                    for task in [task].into_iter().chain(message) {
                        match self.rows.get(task) {
                            Some(row) => noisy.extend(self.session_of(row)),
                            None if self.births.contains_key(task) => return,
                            None => {}
                        }
                    }
                }
                _ => return,
            }
        }
        for (key, events) in named {
            if let ([event], false) = (&events[..], noisy.contains(key))
                && self.is_quiet(key)
            {
                forecast.expected.extend(self.expect(key, event));
            }
        }
    }

    /// Nothing of it is due, nobody waits for others, and one tick is enough for all of it.
    fn is_quiet(&self, key: &Name) -> bool {
        let now = self.now;
        let is_over = |at: Option<u64>| at.is_some_and(|at| at <= now.wall_ms);
        let may_stop = |task: &Task| Stop::ALL.iter().any(|stop| self.may_stop(task, Some(*stop)));
        let is_moving = |task: &Task| match task.state {
            _ if is_over(task.deadline) || task.n_deps_open > 0 || may_stop(task) => true,
            State::Scheduled(Delay::Until(at)) => at <= now.wall_ms,
            State::Scheduled(Delay::Backoff(at) | Delay::Debounce(at)) => at <= now.steady_ms,
            _ => false,
        };
        self.is_rested
            && self.sessions.get(key).is_none_or(|session| !session.is_unsure && session.live.len() < RELEASE_ROWS_MAX)
            && !self.members(key).any(is_moving)
            && !self.workers.values().any(|worker| worker.seen_ms + self.config.worker_offline_ms <= now.steady_ms)
    }

    fn expect(&self, key: &Name, event: &Event) -> Option<Expected> {
        let known = self.sessions.get(key);
        let mut followed = known.map_or_else(Followed::new, |session| session.followed.clone());
        match event {
            Event::Submit(submission) => {
                let item = &submission.items[0];
                let member = item.session.as_ref()?;
                let is_stale = member.sent_at.zip(followed.cutoff).is_some_and(is_stale);
                followed.take(member.settings, &lane_of(&self.config, &item.flow.lane));
                if self.waits(item) && !is_stale {
                    return None;
                }
                let mut lineup = self.lineup(key, &followed);
                let steered = item.steers.filter(|target| {
                    self.rows.get(target).is_some_and(|row| row.phase().is_held() && row.policy.takes_input)
                });
                let verdict = if is_stale { Verdict::Stale } else { lineup.arrive(item, steered) };
                // A debounce that is over at once may be looked at in this tick or in the next.
                let is_due = lineup.places.iter().any(|p| p.is_debouncing && p.debounced_until <= self.now.steady_ms);
                let expected = Expected {
                    key: key.clone(),
                    item: Some(item.id),
                    verdict: Some(verdict),
                    stopped: (0, 0, 0),
                    lineup,
                };
                (!is_due).then_some(expected)
            }
            Event::Session { act, .. } => {
                followed.act(*act, self.now.wall_ms);
                let mut lineup = self.lineup(key, &followed);
                let stopped = lineup.act(*act);
                Some(Expected { key: key.clone(), item: None, verdict: None, stopped, lineup })
            }
            _ => None,
        }
    }

    /// It joins its session later than with its submit.
    pub(crate) fn waits(&self, item: &NewTask) -> bool {
        !item.depends_on.is_empty()
            || item.run_at.is_some_and(|at| at > self.now.wall_ms)
            || item.delay_ms.is_some_and(|ms| ms > 0)
    }

    pub(crate) fn lineup(&self, key: &Name, followed: &Followed) -> Lineup {
        let row = self.sessions.get(key).map(|session| &session.row);
        let barrier = self.sessions.get(key).and_then(|session| session.barriers.iter().max()).copied().unwrap_or(0);
        Lineup {
            rules: self.rules(&self.config.sessions, key, followed),
            now_ms: self.now.steady_ms,
            next_line: row.map_or(1, |row| row.next_line),
            is_draining: self.members(key).filter_map(|task| task.member).any(|m| m.seated && m.line < barrier),
            gatherer: row.and_then(|row| row.gatherer),
            places: self.members(key).map(|task| self.place(task)).collect(),
        }
    }

    fn place(&self, task: &Task) -> Place {
        let member = task.member.expect("a member of a session");
        let flow = self.key_of(task);
        Place {
            id: task.id,
            line: member.line,
            seated: member.seated,
            held: task.phase().is_held(),
            returns: matches!(task.state, State::Queued { .. } | State::Waiting(Wait::BatchPlace)),
            is_debouncing: matches!(task.state, State::Scheduled(Delay::Debounce(_))),
            is_cancelled: task.stop() == Some(Stop::Cancel),
            is_stopping: task.stop().is_some(),
            takes_input: task.policy.takes_input,
            turn: self.turns.get(&task.id).copied().unwrap_or(0),
            debounced_until: member.debounced_until,
            gathers_until: member.gathers_until,
            steers: task.steers,
            kin: (flow.agent.clone(), flow.lane.clone(), flow.shape.kind.clone()),
            n_merged: member.n_merged,
            merged_bytes: member.merged_bytes,
            has_ended: false,
        }
    }

    // ── After the commit ────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn check_expected(&self, expected: &Expected, applied: &Applied) {
        let Expected { key, item, verdict, lineup, .. } = expected;
        let is_taken = item.is_some_and(|id| self.was_taken(&self.births[&id], applied));
        let is_refused = matches!(verdict, Some(Verdict::Stale | Verdict::Busy | Verdict::Full));
        assert!(!(is_taken && is_refused), "{item:?} is taken, and session {key} is {verdict:?}");
        if item.is_some() && !is_taken {
            let changed = applied.changed.iter().find(|(id, old)| {
                let row = &self.rows[id];
                let is_same = old.as_ref().is_some_and(|old| old.member == row.member && !row.phase().is_terminal());
                self.session_of(row) == Some(key) && row.phase() != Phase::Rejected && !is_same
            });
            assert!(changed.is_none(), "a message that was refused changed {:?}", changed.map(|(id, _)| id));
            return;
        }
        if let Some(Verdict::Merged { carrier, n }) = verdict {
            let row = &self.rows[carrier];
            assert_eq!(row.member.map(|member| member.n_merged), Some(*n), "{item:?} is merged into {carrier:?}");
        }
        for place in &lineup.places {
            self.check_place(key, place, lineup);
            if Some(place.id) == *item && !place.has_ended {
                let target = place.steers.filter(|_| !place.seated);
                assert_eq!(self.rows[&place.id].steers, target, "whom {:?} is for", place.id);
            }
        }
        let n_live = lineup.places.iter().filter(|place| !place.has_ended).count();
        if let Some(session) = self.sessions.get(key) {
            assert_eq!(session.live.len(), n_live, "members of session {key}");
            assert_eq!(session.row.gatherer, lineup.gatherer, "who gathers in session {key}");
        }
    }

    fn check_place(&self, key: &Name, place: &Place, lineup: &Lineup) {
        let row = self.rows.get(&place.id).unwrap_or_else(|| panic!("{place:?} of session {key} is not stored"));
        if place.has_ended {
            assert_eq!(row.phase(), Phase::Cancelled, "{place:?} of session {key} under {:?}", lineup.rules);
            return;
        }
        let said = row.member.map(|member| (member.line, member.seated));
        let is_live = !row.phase().is_terminal();
        assert!(
            is_live && said == Some((place.line, place.seated)),
            "in session {key} {place:?} is {:?} {:?} under {:?}",
            row.state,
            row.member,
            lineup.rules
        );
        if place.held {
            assert_eq!(row.stop() == Some(Stop::Cancel), place.is_cancelled, "the stop of {:?}", place.id);
        }
        if place.is_debouncing {
            let until = State::Scheduled(Delay::Debounce(place.debounced_until));
            assert_eq!(row.state, until, "the debounce of {:?} under {:?}", place.id, lineup.rules);
        }
    }
}
