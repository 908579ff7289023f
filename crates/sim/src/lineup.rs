//! The oracle's own model of one session's line: who joins, merges, is seated, dropped or stopped when one thing
//! happens to a session and nothing else does.

use runyard_core::event::{NewTask, SessionAct};
use runyard_core::ids::TaskId;
use runyard_core::name::Name;
use runyard_core::session::{Mode, Overflow, Rules};

#[derive(Clone, Debug)]
pub(crate) struct Lineup {
    pub rules: Rules,
    pub now_ms: u64,
    pub next_line: u64,
    /// An interrupted run has not ended yet.
    pub is_draining: bool,
    pub gatherer: Option<TaskId>,
    pub places: Vec<Place>,
}

/// One live member.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub id: TaskId,
    /// 0 before it has joined.
    pub line: u64,
    pub seated: bool,
    pub held: bool,
    /// It has a seat, and neither runs nor waits for a retry.
    pub returns: bool,
    pub is_debouncing: bool,
    /// Asked to stop for a cancel, and for whatever.
    pub is_cancelled: bool,
    pub is_stopping: bool,
    pub takes_input: bool,
    /// Start order.
    pub turn: u64,
    pub debounced_until: u64,
    pub gathers_until: u64,
    pub steers: Option<TaskId>,
    /// Agent, lane and kind.
    pub kin: (Name, Name, Name),
    pub n_merged: u32,
    pub merged_bytes: u64,
    pub has_ended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Stale,
    Busy,
    Full,
    Merged { carrier: TaskId, n: u32 },
    Stands,
}

/// How many a stop of the whole session finds: running, waiting, debouncing.
pub(crate) type Stopped = (u32, u32, u32);

impl Lineup {
    fn n(&self, is_meant: impl Fn(&Place) -> bool) -> u32 {
        self.places.iter().filter(|place| !place.has_ended && is_meant(place)).count() as u32
    }

    fn n_line(&self) -> u32 {
        self.n(Place::in_line)
    }

    pub fn n_free(&self) -> u32 {
        let n_seated = self.n(|place| place.seated);
        match self.is_draining && n_seated > 0 {
            true => 0,
            false => self.rules.max_concurrent.saturating_sub(n_seated),
        }
    }

    /// A message that waits for nothing.
    pub fn arrive(&mut self, item: &NewTask, steered: Option<TaskId>) -> Verdict {
        let as_mode = item.session.as_ref().and_then(|member| member.as_mode);
        let mode = as_mode.unwrap_or(self.rules.mode);
        let (n_line, n_free) = (self.n_line(), self.n_free());
        if mode == Mode::Reject && n_line >= n_free {
            return Verdict::Busy;
        }
        if mode == Mode::Interrupt {
            self.interrupt();
            self.join(item, None, 0);
            self.rest();
            return Verdict::Stands;
        }
        let is_full = self.rules.overflow == Overflow::New && n_line >= self.rules.cap + n_free;
        let target = self.takes_input().filter(|_| mode == Mode::Steer && !is_full);
        if target.is_none()
            && item.steers.is_none()
            && mode != Mode::Reject
            && let Some(carrier) = self.carrier(item, mode)
        {
            let n = self.merge(carrier, item);
            self.rest();
            return Verdict::Merged { carrier, n };
        }
        if is_full {
            return Verdict::Full;
        }
        let is_plain = target.is_none() && item.steers.is_none();
        let debounce_ms = if is_plain { self.rules.debounce_ms.min(self.rules.wait_ms_max) } else { 0 };
        self.join(item, target.or(steered), debounce_ms);
        if is_plain && (debounce_ms > 0 || mode == Mode::Collect) {
            self.gatherer = Some(item.id);
        }
        let is_over = self.n_line() > self.rules.cap + self.n_free() && self.rules.overflow != Overflow::New;
        self.rest();
        while is_over && self.n_line() > self.rules.cap + self.n_free() {
            let first = self.first().expect("a line that is too long has a first");
            self.end(first);
        }
        Verdict::Stands
    }

    pub fn act(&mut self, act: SessionAct) -> Stopped {
        let found = (
            self.n(|place| place.held),
            self.n(|place| !place.held && !place.is_debouncing),
            self.n(|place| place.is_debouncing),
        );
        match act {
            SessionAct::Set(_) | SessionAct::Context(_) => self.rest(),
            SessionAct::Stop => {
                let running = self.places.iter_mut().filter(|place| place.held && !place.is_cancelled);
                if let Some(oldest) = running.min_by_key(|place| place.turn) {
                    oldest.is_cancelled = true;
                }
            }
            SessionAct::StopAll | SessionAct::Reset => {
                self.stop(|_| true);
                self.gatherer = None;
            }
        }
        found
    }

    fn join(&mut self, item: &NewTask, steers: Option<TaskId>, debounce_ms: u64) {
        self.places.push(Place {
            id: item.id,
            line: self.next_line,
            seated: false,
            held: false,
            returns: false,
            is_debouncing: debounce_ms > 0,
            is_cancelled: false,
            is_stopping: false,
            takes_input: item.policy.takes_input,
            turn: 0,
            debounced_until: if debounce_ms > 0 { self.now_ms + debounce_ms } else { 0 },
            gathers_until: self.now_ms + self.rules.wait_ms_max,
            steers,
            kin: kin_of(item),
            n_merged: 0,
            merged_bytes: 0,
            has_ended: false,
        });
        self.next_line += 1;
        // Whoever stands behind another closes it.
        self.gatherer = None;
    }

    fn interrupt(&mut self) {
        self.is_draining = self.n(|place| place.seated) > 0;
        self.stop(|place| place.line > 0);
    }

    fn stop(&mut self, is_meant: impl Fn(&Place) -> bool) {
        for place in self.places.iter_mut().filter(|place| is_meant(place)) {
            match place.held {
                true => place.is_cancelled = true,
                false => place.has_ended = true,
            }
        }
    }

    fn end(&mut self, at: usize) {
        self.places[at].has_ended = true;
        if self.gatherer == Some(self.places[at].id) {
            self.gatherer = None;
        }
    }

    /// The running one that takes input and was started first.
    fn takes_input(&self) -> Option<TaskId> {
        let takers = self.places.iter().filter(|place| place.held && place.takes_input && !place.is_stopping);
        takers.min_by_key(|place| place.turn).map(|place| place.id)
    }

    fn carrier(&self, item: &NewTask, mode: Mode) -> Option<TaskId> {
        let last = self.places.iter().filter(|place| place.in_line()).max_by_key(|place| place.line)?;
        let is_open = self.gatherer == Some(last.id) && (last.is_debouncing || mode == Mode::Collect);
        let has_room = last.n_merged < 999 && last.merged_bytes + item.spec.len() as u64 <= 1024 * 1024;
        (is_open && has_room && last.kin == kin_of(item)).then_some(last.id)
    }

    fn merge(&mut self, carrier: TaskId, item: &NewTask) -> u32 {
        let until = self.now_ms + self.rules.debounce_ms;
        let place = self.places.iter_mut().find(|place| place.id == carrier).expect("the carrier stands in line");
        place.n_merged += 1;
        place.merged_bytes += item.spec.len() as u64;
        if place.is_debouncing {
            place.debounced_until = until.min(place.gathers_until);
        }
        place.n_merged
    }

    fn first(&self) -> Option<usize> {
        let line = self.places.iter().enumerate().filter(|(_, place)| !place.has_ended && place.in_line());
        line.min_by_key(|(_, place)| place.line).map(|(at, _)| at)
    }

    /// Surplus seats are given back, the last first; free ones are taken, the first first.
    fn rest(&mut self) {
        while self.n(|place| place.seated) > self.rules.max_concurrent {
            let returns = self.places.iter_mut().filter(|place| place.seated && place.returns);
            let Some(last) = returns.max_by_key(|place| place.line) else { break };
            (last.seated, last.returns) = (false, false);
        }
        while self.n_free() > 0
            && let Some(first) = self.first()
        {
            let Place { id, steers, debounced_until, .. } = self.places[first];
            let is_handed = steers.is_some_and(|target| self.n(|place| place.id == target && place.held) > 0);
            if debounced_until > self.now_ms || is_handed {
                break;
            }
            let place = &mut self.places[first];
            (place.seated, place.returns, place.is_debouncing) = (true, true, false);
            self.is_draining = false;
            if self.gatherer == Some(id) {
                self.gatherer = None;
            }
        }
    }
}

impl Place {
    fn in_line(&self) -> bool {
        self.line > 0 && !self.seated
    }
}

fn kin_of(item: &NewTask) -> (Name, Name, Name) {
    (item.flow.agent.clone(), item.flow.lane.clone(), item.flow.shape.kind.clone())
}
