//! Sessions by bookkeeping of its own: their rules from the layers of settings, and what each event makes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runyard_core::config::Config;
use runyard_core::event::{NewTask, SessionAct, StopWhy, Submission};
use runyard_core::ids::TaskId;
use runyard_core::name::{Blob, Name};
use runyard_core::session::{Context, Message, Mode, Overflow, Rules, Session, SessionsConfig, Settings};
use runyard_core::task::{Phase, Task};
use runyard_core::write::{SessionDrop, WriteSet};

use crate::foresee::Forecast;
use crate::oracle::{Applied, Oracle, lane_of};
use crate::schedules::Wish;

/// A session as it was committed, and as it was followed.
pub struct SessionShadow {
    pub row: Session,
    pub(crate) followed: Followed,
    pub live: BTreeSet<TaskId>,
    /// Numbers in line of interrupting messages, while somebody before them has a seat.
    pub(crate) barriers: Vec<u64>,
    /// Whether a message interrupted could not be told.
    pub(crate) is_unsure: bool,
    pub(crate) drops: Vec<TaskId>,
    /// Drops that a run was told of, and how many a reset made forgotten.
    pub(crate) told: BTreeSet<u64>,
    pub(crate) n_forgotten: u64,
}

/// What follows from the events alone, once it is known which messages were taken.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Followed {
    pub(crate) own: Settings,
    pub(crate) lane: Name,
    pub(crate) generation: u32,
    pub(crate) cutoff: Option<u64>,
    pub(crate) context: Option<Context>,
    pub(crate) n_messages: u64,
}

/// Events that a session takes note of, in their order.
pub(crate) enum Step {
    Submit(Submission),
    Act(Name, SessionAct),
    Usage(TaskId, Context),
    Config(Arc<Config>),
    Wish(Box<Wish>),
}

/// One session in one tick.
#[derive(Default)]
pub struct Seen {
    /// In force at the beginning and after each step.
    rules: Vec<Rules>,
    /// For tasks that were made in this tick.
    at_submit: BTreeMap<TaskId, Rules>,
    stops: BTreeSet<&'static str>,
    has_joined: bool,
}

impl Oracle {
    pub fn session_of(&self, task: &Task) -> Option<&Name> {
        self.session_keys.get(&task.member?.session)
    }

    pub(crate) fn members(&self, key: &Name) -> impl Iterator<Item = &Task> {
        let live = self.sessions.get(key).into_iter().flat_map(|session| &session.live);
        live.map(|id| &self.rows[id])
    }

    /// Each setting from the nearest layer that gives it: the session, its patterns from the last, its lane, all.
    pub(crate) fn rules(&self, config: &SessionsConfig, key: &Name, followed: &Followed) -> Rules {
        let mut layers = vec![followed.own];
        let matching = config.patterns.iter().rev().filter(|(pattern, _)| is_like(pattern.as_bytes(), key.as_bytes()));
        layers.extend(matching.map(|(_, settings)| *settings));
        layers.extend(config.lanes.get(&followed.lane));
        layers.push(config.defaults);
        let debounce_ms = layers.iter().find_map(|layer| layer.debounce_ms).unwrap_or(0);
        let is_nearly_full = followed.context.is_some_and(|Context { tokens, window }| {
            window > 0 && tokens as f64 / window as f64 >= f64::from(config.context_milli) / 1000.0
        });
        let max_concurrent = layers.iter().find_map(|layer| layer.max_concurrent).unwrap_or(1);
        Rules {
            mode: layers.iter().find_map(|layer| layer.mode).unwrap_or(Mode::Queue),
            cap: layers.iter().find_map(|layer| layer.cap).unwrap_or(10),
            overflow: layers.iter().find_map(|layer| layer.overflow).unwrap_or(Overflow::Old),
            debounce_ms,
            wait_ms_max: layers.iter().find_map(|layer| layer.wait_ms_max).unwrap_or(5 * debounce_ms),
            max_concurrent: if is_nearly_full { 1 } else { max_concurrent },
        }
    }

    pub(crate) fn rules_now(&self, key: &Name) -> Rules {
        self.rules(&self.config.sessions, key, &self.sessions[key].followed)
    }

    // ── Commits ─────────────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn apply_sessions(&mut self, writes: &WriteSet) -> BTreeMap<Name, u64> {
        let mut before = BTreeMap::new();
        for row in &writes.sessions_added {
            before.insert(row.key.clone(), 1);
            let shadow = SessionShadow {
                row: row.clone(),
                followed: Followed::new(),
                live: BTreeSet::new(),
                barriers: Vec::new(),
                is_unsure: false,
                drops: Vec::new(),
                told: BTreeSet::new(),
                n_forgotten: 0,
            };
            assert!(self.sessions.insert(row.key.clone(), shadow).is_none(), "session {} is new", row.key);
            self.session_keys.insert(row.id, row.key.clone());
        }
        for row in &writes.sessions_put {
            let shadow = self.sessions.get_mut(&row.key).expect("a changed session is known");
            assert_eq!(row.id, shadow.row.id, "a session keeps its id");
            before.insert(row.key.clone(), shadow.row.next_line);
            shadow.row = row.clone();
        }
        before
    }

    pub(crate) fn apply_messages(&mut self, messages: &[(Message, Blob)], drops: &[SessionDrop]) {
        for (message, spec) in messages {
            let carrier = &self.rows[&message.task];
            assert_eq!(carrier.seq, message.task_seq, "the carrier of {message:?}");
            let stored = self.messages.entry(message.task).or_default();
            stored.push(spec.clone());
            assert_eq!(message.n as usize, stored.len(), "messages of {:?} are numbered", message.task);
        }
        for drop in drops {
            let key = &self.session_keys[&drop.session];
            let shadow = self.sessions.get_mut(key).expect("the session of a drop is known");
            assert_eq!(drop.n as usize, shadow.drops.len(), "drops of session {key} are numbered");
            shadow.drops.push(drop.task);
        }
    }

    /// Goes through the events of a tick that was committed, in their order, and says what each made of its session.
    pub(crate) fn follow(&mut self, forecast: &Forecast, applied: &Applied) -> BTreeMap<Name, Seen> {
        let mut seen: BTreeMap<Name, Seen> = BTreeMap::new();
        let mut config = forecast.config_before.clone();
        self.open_book();
        let keys: Vec<Name> = self.sessions.keys().cloned().collect();
        for key in &keys {
            self.note_rules(&config, key, &mut seen);
        }
        // What the last tick did not come to is done in this one.
        for (key, (stops, has_joined)) in std::mem::take(&mut self.unrested).into_iter().filter(|_| !self.is_rested) {
            let seen = seen.entry(key).or_default();
            (seen.stops, seen.has_joined) = (stops, has_joined);
        }
        let mut made: BTreeSet<TaskId> = BTreeSet::new();
        for step in &forecast.steps {
            match step {
                Step::Submit(submission) => self.follow_submit(submission, applied, &config, &mut made, &mut seen),
                Step::Act(key, act) => {
                    let Some(session) = self.sessions.get_mut(key) else {
                        assert_eq!(*act, SessionAct::Stop, "an act makes session {key}");
                        continue;
                    };
                    session.followed.act(*act, self.now.wall_ms);
                    if *act == SessionAct::Reset {
                        let new = applied.drops.iter().filter(|drop| drop.session == session.row.id).count();
                        session.n_forgotten = (session.drops.len() - new) as u64;
                    }
                    let why = match act {
                        SessionAct::StopAll => StopWhy::StopAll,
                        SessionAct::Reset => StopWhy::Reset,
                        _ => {
                            self.note_rules(&config, key, &mut seen);
                            continue;
                        }
                    };
                    self.note_rules(&config, key, &mut seen);
                    seen.entry(key.clone()).or_default().stops.insert(why.as_str());
                    self.note_stopped(key, applied, &made);
                }
                Step::Usage(task, context) => {
                    let Some(key) = self.session_of(&self.rows[task]).cloned() else { continue };
                    let session = self.sessions.get_mut(&key).expect("the session of a task is known");
                    if self.generations[task] == session.followed.generation {
                        session.followed.context = Some(*context);
                        self.note_rules(&config, &key, &mut seen);
                    }
                }
                Step::Config(new) => {
                    config = new.clone();
                    for key in &keys {
                        self.note_rules(&config, key, &mut seen);
                    }
                }
                Step::Wish(wish) => {
                    if let Some(item) = self.follow_wish(wish, applied) {
                        self.follow_item(&item, applied, &config, &mut made, &mut seen);
                    }
                }
            }
        }
        for item in self.follow_due(applied) {
            self.follow_item(&item, applied, &config, &mut made, &mut seen);
        }
        self.note_joins(applied, &mut seen);
        let left = seen.iter().map(|(key, seen)| (key.clone(), (seen.stops.clone(), seen.has_joined)));
        self.unrested = left.collect();
        seen
    }

    fn note_rules(&self, config: &Config, key: &Name, seen: &mut BTreeMap<Name, Seen>) {
        if let Some(session) = self.sessions.get(key) {
            let rules = self.rules(&config.sessions, key, &session.followed);
            seen.entry(key.clone()).or_default().rules.push(rules);
        }
    }

    fn follow_submit(
        &mut self,
        submission: &Submission,
        applied: &Applied,
        config: &Config,
        made: &mut BTreeSet<TaskId>,
        seen: &mut BTreeMap<Name, Seen>,
    ) {
        for item in &submission.items {
            self.follow_item(item, applied, config, made, seen);
        }
    }

    fn follow_item(
        &mut self,
        item: &NewTask,
        applied: &Applied,
        config: &Config,
        made: &mut BTreeSet<TaskId>,
        seen: &mut BTreeMap<Name, Seen>,
    ) {
        let Some(member) = item.session.as_ref().filter(|_| self.was_taken(item, applied)) else { return };
        let session = self.sessions.get_mut(&member.key).expect("a message makes its session");
        let followed = &mut session.followed;
        let is_stale = member.sent_at.zip(followed.cutoff).is_some_and(is_stale);
        assert!(!is_stale, "{:?} was sent before {:?} and is taken", item.id, followed.cutoff);
        followed.take(member.settings, &lane_of(config, &item.flow.lane));
        followed.n_messages += 1;
        self.generations.insert(item.id, followed.generation);
        made.insert(item.id);
        self.note_rules(config, &member.key, seen);
        let rules = self.rules(&config.sessions, &member.key, &self.sessions[&member.key].followed);
        seen.entry(member.key.clone()).or_default().at_submit.insert(item.id, rules);
    }

    /// It became a task, or a part of one.
    pub(crate) fn was_taken(&self, item: &NewTask, applied: &Applied) -> bool {
        let is_task = applied.created.contains(&item.id) && self.rows[&item.id].phase() != Phase::Rejected;
        is_task || applied.messages.iter().any(|(_, spec)| *spec == item.spec)
    }

    fn note_joins(&mut self, applied: &Applied, seen: &mut BTreeMap<Name, Seen>) {
        let mut n_given: BTreeMap<Name, u64> = applied.sessions.clone();
        n_given.iter_mut().for_each(|(key, before)| *before = self.sessions[key].row.next_line - *before);
        for (id, old) in &applied.changed {
            let row = &self.rows[id];
            let Some(member) = row.member.filter(|member| has_joined(old.as_ref(), member.line)) else { continue };
            let key = self.session_keys[&member.session].clone();
            let seen = seen.get_mut(&key).expect("a session that somebody joins has rules");
            seen.has_joined = true;
            *n_given.get_mut(&key).expect("who joins takes a number from the row") -= 1;
            let modes = self.modes_of(row, old.is_none(), seen);
            let session = self.sessions.get_mut(&key).expect("the session of a task is known");
            if modes.iter().all(|mode| *mode == Mode::Interrupt) {
                session.barriers.push(member.line);
            }
            if modes.contains(&Mode::Interrupt) {
                seen.stops.insert(StopWhy::Interrupt.as_str());
                session.is_unsure |= modes.iter().any(|mode| *mode != Mode::Interrupt);
            }
            let wait_ms = seen.rules.iter().map(|rules| rules.wait_ms_max).max().unwrap_or(0);
            self.gathers_until.insert(*id, self.now.steady_ms + wait_ms);
        }
        // Somebody joined whose time was moved in the same tick: what he did on the way cannot be told.
        for (key, _) in n_given.into_iter().filter(|(_, n)| *n > 0) {
            let session = self.sessions.get_mut(&key).expect("its row was written");
            session.is_unsure = true;
            let seen = seen.entry(key).or_default();
            seen.has_joined = true;
            seen.stops.insert(StopWhy::Interrupt.as_str());
        }
    }

    /// The modes that may have been in force when it joined.
    fn modes_of(&self, row: &Task, is_new: bool, seen: &Seen) -> Vec<Mode> {
        if let Some(mode) = row.member.and_then(|member| member.as_mode) {
            return vec![mode];
        }
        let waits_for_nothing = self.births.get(&row.id).is_some_and(|birth| !self.waits(birth));
        match seen.at_submit.get(&row.id).filter(|_| is_new && waits_for_nothing) {
            Some(rules) => vec![rules.mode],
            None => seen.rules.iter().map(|rules| rules.mode).collect(),
        }
    }

    /// Whoever was there when the whole session was stopped never starts, and has ended when everything is done.
    fn note_stopped(&mut self, key: &Name, applied: &Applied, made: &BTreeSet<TaskId>) {
        let was_there = |id: &TaskId| !applied.created.contains(id) || made.contains(id);
        let stopped: Vec<TaskId> = self.sessions[key].live.iter().copied().filter(was_there).collect();
        self.stopped.extend(stopped);
    }

    /// The session has a right to end this one: it was stopped, interrupted, full or busy in this tick.
    pub(crate) fn may_end(&self, row: &Task, seen: &BTreeMap<Name, Seen>) -> bool {
        let Some(seen) = self.session_of(row).and_then(|key| seen.get(key)) else { return false };
        let reason = row.reason.as_ref();
        seen.stops.contains(reason)
            || (reason.starts_with("dropped: ") && (seen.has_joined || row.member.is_some_and(|m| m.line == 0)))
            || (reason == "session is busy" && self.modes_of(row, false, seen).contains(&Mode::Reject))
    }

    /// Asked to stop by its session.
    pub(crate) fn may_be_stopped(&self, row: &Task, seen: &BTreeMap<Name, Seen>) -> bool {
        let key = self.session_of(row);
        key.and_then(|key| seen.get(key)).is_some_and(|seen| !seen.stops.is_empty())
    }
}

impl Followed {
    pub(crate) fn new() -> Followed {
        Followed {
            own: Settings::default(),
            lane: Name::new("main"),
            generation: 0,
            cutoff: None,
            context: None,
            n_messages: 0,
        }
    }

    /// What a message gives sticks; the rest stays.
    pub(crate) fn take(&mut self, given: Settings, lane: &Name) {
        let own = &mut self.own;
        own.mode = given.mode.or(own.mode);
        own.cap = given.cap.or(own.cap);
        own.overflow = given.overflow.or(own.overflow);
        own.debounce_ms = given.debounce_ms.or(own.debounce_ms);
        own.wait_ms_max = given.wait_ms_max.or(own.wait_ms_max);
        own.max_concurrent = given.max_concurrent.or(own.max_concurrent);
        self.lane = lane.clone();
    }

    pub(crate) fn act(&mut self, act: SessionAct, wall_ms: u64) {
        match act {
            SessionAct::Stop => {}
            SessionAct::Set(settings) => self.own = settings,
            SessionAct::Context(context) => self.context = Some(context),
            SessionAct::StopAll => self.cutoff = Some(wall_ms),
            SessionAct::Reset => {
                self.cutoff = Some(wall_ms);
                self.generation += 1;
                self.context = None;
            }
        }
    }
}

fn has_joined(old: Option<&Task>, line: u64) -> bool {
    let before = old.and_then(|old| old.member).map_or(0, |member| member.line);
    line > 0 && line != before
}

/// Sent before the cutoff. A sender that knows only the second gets the benefit of the doubt.
pub(crate) fn is_stale((sent_at, cutoff): (u64, u64)) -> bool {
    let unit_ms = if sent_at.is_multiple_of(1000) { 1000 } else { 1 };
    sent_at / unit_ms < cutoff / unit_ms
}

/// `*` is any run of bytes.
fn is_like(pattern: &[u8], key: &[u8]) -> bool {
    match (pattern, key) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=key.len()).any(|n| is_like(rest, &key[n..])),
        ([a, pattern @ ..], [b, key @ ..]) => a == b && is_like(pattern, key),
        _ => false,
    }
}
