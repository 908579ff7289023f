//! Stop, stop all, reset, interrupt: what runs is asked at once, the rest is in the store and is stopped by a release.

use std::ops::Range;

use crate::config::LANE_MAIN;
use crate::core::{Core, answer};
use crate::event::{Answer, Command, HappeningKind, Release, SessionAct, SessionAnswer, StopWhy, Subject};
use crate::ids::{TaskId, Ticket};
use crate::name::Name;
use crate::now::Now;
use crate::planted::Bug;
use crate::session::{Session, SessionId};
use crate::task::{Stop, Task};

impl Core {
    /// Everyone who has joined before this message is stopped; it starts when they are gone.
    pub(super) fn interrupt(&mut self, id: SessionId) {
        let overlaps = self.has_bug(Bug::InterruptOverlaps);
        let session = self.touch_session(id);
        session.is_draining = session.n_seated > 0 && !overlaps;
        session.stopped_line = session.next_line;
        let from = session.live_from;
        let before = self.meta.next_seq;
        self.add_release(Release::SessionStop { session: id, before, from, why: StopWhy::Interrupt });
    }

    /// Stops the members in memory within this range; the store's have just been read.
    pub(crate) fn stop_members(
        &mut self,
        now: Now,
        id: SessionId,
        range: Range<u64>,
        why: StopWhy,
        out: &mut Vec<Command>,
    ) {
        let stopped_line = self.session(id).stopped_line;
        let members: Vec<TaskId> = self.sessions[&id].members.range(range).collect();
        for task in members {
            let Task { member, state, .. } = &self.entry(task).task;
            let line = member.map_or(0, |member| member.line);
            let spares_unjoined = why == StopWhy::Interrupt || self.has_bug(Bug::UnjoinedSpared);
            let is_meant = !spares_unjoined || (line > 0 && line < stopped_line);
            if !is_meant || state.phase().is_terminal() {
                continue;
            }
            match (state.phase().is_held(), why) {
                (true, _) => self.cancel_held(now, task, why.as_str(), out),
                (false, StopWhy::Interrupt) => self.drop_member(now, task, why.as_str()),
                (false, _) => self.cancel(now, task, why.as_str()),
            }
        }
    }

    /// It was stopped with its session, before the release that says so came to it.
    pub(crate) fn is_stopped(&self, id: TaskId) -> bool {
        let task = &self.entry(id).task;
        task.member.is_some_and(|member| {
            let session = self.session(member.session);
            task.seq < session.stopped_seq || (member.line > 0 && member.line < session.stopped_line)
        })
    }

    pub(crate) fn stop_waiting(&mut self, now: Now, id: TaskId) {
        let task = &self.entry(id).task;
        let session = self.session(task.session().expect("only a member is stopped with its session"));
        if task.seq < session.reset_seq {
            self.cancel(now, id, StopWhy::Reset.as_str());
        } else if task.seq < session.stopped_seq {
            self.cancel(now, id, StopWhy::StopAll.as_str());
        } else {
            self.drop_member(now, id, StopWhy::Interrupt.as_str());
        }
    }

    pub(crate) fn on_session(&mut self, now: Now, ticket: Ticket, key: Name, act: SessionAct, out: &mut Vec<Command>) {
        let result = match act {
            SessionAct::Stop => SessionAnswer::Stopped { task: self.stop_oldest(now, &key, out) },
            SessionAct::StopAll => self.stop_all(now, &key, StopWhy::StopAll, out),
            SessionAct::Reset => self.stop_all(now, &key, StopWhy::Reset, out),
            SessionAct::Set(settings) => self.change_session(now, &key, |session| session.own = settings),
            SessionAct::Context(context) => self.change_session(now, &key, |session| session.context = Some(context)),
        };
        answer(out, ticket, Answer::Session(result));
    }

    fn change_session(&mut self, now: Now, key: &Name, change: impl FnOnce(&mut Session)) -> SessionAnswer {
        let id = self.session_for(now, key, &Name::new(LANE_MAIN));
        let session = self.touch_session(id);
        change(session);
        session.last_at = now.wall_ms;
        self.review(id);
        let row = Box::new(self.session(id).clone());
        self.happen(now, HappeningKind::SessionChanged, Subject::Session(row.clone()));
        SessionAnswer::Row(row)
    }

    fn stop_oldest(&mut self, now: Now, key: &Name, out: &mut Vec<Command>) -> Option<TaskId> {
        let &id = self.session_by_key.get(key)?;
        let is_stopping = |task| self.entry(task).task.stop() == Some(Stop::Cancel);
        let oldest = self.sessions[&id].held.values().find(|&task| !is_stopping(task))?;
        self.cancel_held(now, oldest, "stopped", out);
        let row = Box::new(self.session(id).clone());
        self.happen(now, HappeningKind::SessionStopped, Subject::Session(row));
        Some(oldest)
    }

    fn stop_all(&mut self, now: Now, key: &Name, why: StopWhy, out: &mut Vec<Command>) -> SessionAnswer {
        let id = self.session_for(now, key, &Name::new(LANE_MAIN));
        let before = self.meta.next_seq;
        let forgets_cutoff = self.has_bug(Bug::CutoffForgotten);
        let session = self.touch_session(id);
        let (running, waiting, debouncing) = (session.n_held, session.n_waiting(), session.n_debouncing);
        if !forgets_cutoff {
            session.cutoff = Some(now.wall_ms);
        }
        session.stopped_seq = before;
        session.stopped_line = session.next_line;
        session.gatherer = None;
        session.last_at = now.wall_ms;
        let mut kind = HappeningKind::SessionStopped;
        if why == StopWhy::Reset {
            session.generation += 1;
            session.reset_seq = before;
            session.context = None;
            session.n_told = session.n_dropped;
            kind = HappeningKind::SessionReset;
        }
        let (from, n_live, row) = (session.live_from, session.n_live, Box::new(session.clone()));
        // What runs is in memory and is asked at once; the rest is in the store.
        let held: Vec<TaskId> = self.sessions[&id].held.values().collect();
        held.into_iter().for_each(|task| self.cancel_held(now, task, why.as_str(), out));
        if n_live > 0 {
            self.add_release(Release::SessionStop { session: id, before, from, why });
        }
        self.happen(now, kind, Subject::Session(row.clone()));
        SessionAnswer::StoppedAll { running, waiting, debouncing, session: row }
    }
}
