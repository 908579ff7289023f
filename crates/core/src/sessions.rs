//! Sessions at work: who joins the line, who is seated next, who is merged, dropped, handed over or stopped.
//!
//! What a message does to a busy session is decided at once; what that frees or drops is a release, because the
//! members it concerns are in the store. Memory may hold some of them, and newer: whoever looks at the line reads the
//! store's part first and then goes by what is in memory.

mod arrival;
mod line;
mod steer;
mod stops;

use crate::core::{Core, SessionEntry};
use crate::event::{NewMember, Release, Rest};
use crate::flows::lane_in_force;
use crate::ids::TaskId;
use crate::name::Name;
use crate::now::Now;
use crate::planted::Bug;
use crate::session::{Member, Rules, Session, SessionId, Usage};
use crate::task::{Delay, State, Task};

impl Core {
    pub(crate) fn member_loaded(&mut self, task: &Task) {
        let Some(member) = task.member.filter(|_| !task.phase().is_terminal()) else { return };
        let entry = self.sessions.get_mut(&member.session).expect("the session of a live task is loaded before it");
        entry.members.insert(task.seq, task.id);
        if member.in_line() {
            entry.line.insert(member.line, task.id);
        }
        if let Some(lease) = task.state.lease() {
            entry.held.insert(lease.order, task.id);
        }
    }

    pub(crate) fn member_forgotten(&mut self, task: &Task) {
        let Some(member) = task.member else { return };
        let Some(entry) = self.sessions.get_mut(&member.session) else { return };
        entry.members.remove(task.seq);
        entry.line.remove(member.line);
        self.note_session(member.session);
    }

    fn touch_session(&mut self, id: SessionId) -> &mut Session {
        self.note_session(id);
        let entry = self.sessions.get_mut(&id).expect("the session of a task in memory is in memory");
        entry.dirty = true;
        &mut entry.session
    }

    /// Looked at when the tick ends: written if it was changed, forgotten if none of its members stays in memory.
    pub(crate) fn note_session(&mut self, id: SessionId) {
        let entry = self.sessions.get_mut(&id).expect("a session that is spoken of is in memory");
        if !std::mem::replace(&mut entry.touched, true) {
            self.tick.touched_sessions.push(id);
        }
    }

    fn session(&self, id: SessionId) -> &Session {
        &self.sessions[&id].session
    }

    pub(crate) fn session_rules(&self, id: SessionId) -> Rules {
        let session = self.session(id);
        let mut rules = match self.has_bug(Bug::ThrottleIgnored) {
            true => self.config.sessions.rules(&session.key, &session.lane, session.own),
            false => session.rules(&self.config.sessions),
        };
        rules.max_concurrent += u32::from(self.has_bug(Bug::OneSeatMore));
        rules
    }

    fn session_row(&self, key: &Name) -> Option<&Session> {
        self.session_by_key.get(key).map(|&id| self.session(id))
    }

    /// The session of this key, made when there is none.
    fn session_for(&mut self, now: Now, key: &Name, lane: &Name) -> SessionId {
        if let Some(&id) = self.session_by_key.get(key) {
            return id;
        }
        self.meta.next_seq += 1;
        let id = SessionId(self.meta.next_seq);
        let session = Session::new(id, key.clone(), lane.clone(), now.wall_ms);
        self.session_by_key.insert(key.clone(), id);
        self.sessions.insert(id, Box::new(SessionEntry::new(session, true)));
        self.note_session(id);
        id
    }

    /// A message was taken: the session knows of it, and its settings stick. Who sits may be another matter then.
    pub(crate) fn note_message(&mut self, now: Now, member: &NewMember, lane: &Name) -> SessionId {
        let lane = lane_in_force(&self.config, lane);
        let id = self.session_for(now, &member.key, &lane);
        let session = self.touch_session(id);
        session.own = member.settings.over(session.own);
        session.lane = lane;
        session.n_messages += 1;
        session.last_at = now.wall_ms;
        self.review(id);
        id
    }

    /// A new task is a member from its creation on, whenever it joins.
    pub(crate) fn enrol(&mut self, now: Now, id: TaskId, member: &NewMember, lane: &Name, gathers: bool) {
        let session_id = self.session_for(now, &member.key, lane);
        let seq = self.entry(id).task.seq;
        self.entry_mut(id).task.member = Some(Member { as_mode: member.as_mode, gathers, ..Member::new(session_id) });
        let session = self.touch_session(session_id);
        session.n_live += 1;
        if session.n_live == 1 {
            session.live_from = seq;
        }
        self.sessions.get_mut(&session_id).expect("it was just touched").members.insert(seq, id);
    }

    /// The row's counts of what runs and what debounces follow the state.
    pub(crate) fn count_member(&mut self, id: TaskId, from: State, to: State) {
        let Some(session_id) = self.entry(id).task.session() else { return };
        let is_debounced = |state: State| matches!(state, State::Scheduled(Delay::Debounce(_)));
        let (was_debounced, is_debounced) = (is_debounced(from), is_debounced(to));
        let (was_held, is_held) = (from.phase().is_held(), to.phase().is_held());
        if was_debounced != is_debounced || was_held != is_held {
            let session = self.touch_session(session_id);
            session.n_debouncing = session.n_debouncing + u32::from(is_debounced) - u32::from(was_debounced);
            session.n_held = session.n_held + u32::from(is_held) - u32::from(was_held);
        }
        let held = &mut self.sessions.get_mut(&session_id).expect("the session of a task in memory").held;
        match (from.lease(), to.lease()) {
            (None, Some(lease)) => held.insert(lease.order, id),
            (Some(lease), None) => held.remove(lease.order),
            _ => {}
        }
        if was_held && !is_held {
            // Fewer may be seated than when it started; and whoever was handed to it may have to go on by himself.
            self.review(session_id);
        }
    }

    /// The rules may have changed: more may sit, or fewer.
    pub(crate) fn review(&mut self, id: SessionId) {
        let rules = self.session_rules(id);
        let session = self.session(id);
        let (n_line, n_free, n_seated) = (session.n_line, session.n_free(&rules), session.n_seated);
        if n_line > 0 && n_free > 0 {
            self.add_release(Release::SessionSeat { session: id });
        }
        if n_seated > rules.max_concurrent && !self.has_bug(Bug::SurplusSeated) {
            self.add_release(Release::SessionShrink { session: id });
        }
    }

    pub(crate) fn on_sessions_reviewed(&mut self, after: SessionId, sessions: &[SessionId], rest: Rest) {
        sessions.iter().for_each(|&id| self.review(id));
        self.release_done(Release::SessionReview { after }, true);
        if let (Rest::More, Some(&last)) = (rest, sessions.last()) {
            self.add_release(Release::SessionReview { after: last });
        }
    }

    /// What a run says of its context counts for its session, unless the session was reset since.
    pub(crate) fn on_usage(&mut self, id: TaskId, usage: &Usage) {
        let task = &mut self.entry_mut(id).task;
        task.usage = Some(Box::new(*usage));
        let seq = task.seq;
        let Some((session_id, context)) = task.session().zip(usage.context()) else { return };
        if seq >= self.session(session_id).reset_seq || self.has_bug(Bug::OldGenerationHeard) {
            self.touch_session(session_id).context = Some(context);
            self.review(session_id);
        }
    }
}
