//! Sessions, their messages, and what a task's body says of its session. Most sessions see few messages and use none of
//! the rest, so what is rare stands behind a flag here too.

use runyard_core::event::NewMember;
use runyard_core::ids::TaskId;
use runyard_core::name::Name;
use runyard_core::session::{Context, Member, Message, Mode, Overflow, Session, SessionId, Settings, Usage};

use super::{Cut, VERSION, put_since, put_text, put_u128, put_varint};

/// All of a session but its id and its key. `out` is cleared first.
pub fn encode_session_body(session: &Session, out: &mut Vec<u8>) {
    out.clear();
    out.push(VERSION);
    put_session(out, session);
}

pub fn decode_session_body(id: SessionId, key: Name, body: &[u8]) -> Option<Session> {
    let mut cut = Cut::versioned(body)?;
    let session = cut.session(id, key)?;
    cut.end(session)
}

/// All of a message but the task it belongs to and its place there. `out` is cleared first.
pub fn encode_message_body(message: &Message, out: &mut Vec<u8>) {
    out.clear();
    out.push(VERSION);
    out.push(u8::from(message.sent_at.is_some()) | u8::from(message.key.is_some()) << 1);
    put_varint(out, message.at_ms);
    if let Some(at) = message.sent_at {
        put_since(out, message.at_ms, at);
    }
    if let Some(key) = &message.key {
        put_text(out, key);
    }
}

/// Where a message stands: the part of its row that is not in its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessagePlace {
    pub task: TaskId,
    pub task_seq: u64,
    pub n: u32,
}

pub fn decode_message_body(place: MessagePlace, body: &[u8]) -> Option<Message> {
    let mut cut = Cut::versioned(body)?;
    let flags = cut.byte()?;
    let at_ms = cut.varint()?;
    let sent_at = if flags & 1 != 0 { Some(cut.since(at_ms)?) } else { None };
    let key = if flags & 2 != 0 { Some(cut.name()?) } else { None };
    let MessagePlace { task, task_seq, n } = place;
    cut.end(Message { task, task_seq, n, at_ms, sent_at, key })
}

pub(super) fn put_session(out: &mut Vec<u8>, session: &Session) {
    put_varint(out, u64::from(session_flags(session)));
    put_varint(out, session.created_at);
    put_since(out, session.created_at, session.last_at);
    put_text(out, &session.lane);
    let Session { n_live, n_held, n_seated, n_line, n_debouncing, .. } = *session;
    [n_live, n_held, n_seated, n_line, n_debouncing].into_iter().for_each(|n| put_varint(out, u64::from(n)));
    put_varint(out, session.next_line);
    put_since(out, session.id.0, session.live_from);
    put_varint(out, session.n_messages);
    put_settings(out, &session.own);
    if let Some(cutoff) = session.cutoff {
        put_since(out, session.created_at, cutoff);
    }
    if let Some(context) = session.context {
        put_varint(out, context.tokens);
        put_varint(out, context.window);
    }
    if let Some(gatherer) = session.gatherer {
        put_u128(out, gatherer.0);
    }
    if has_stops(session) {
        put_varint(out, u64::from(session.generation));
        put_since(out, session.id.0, session.reset_seq);
        put_since(out, session.id.0, session.stopped_seq);
        put_varint(out, session.stopped_line);
    }
    if has_drops(session) {
        put_varint(out, session.n_dropped);
        put_varint(out, session.n_told);
    }
}

/// In the order of their flags.
fn put_settings(out: &mut Vec<u8>, own: &Settings) {
    if let Some(mode) = own.mode {
        out.push(mode as u8);
    }
    if let Some(cap) = own.cap {
        put_varint(out, u64::from(cap));
    }
    if let Some(overflow) = own.overflow {
        out.push(overflow as u8);
    }
    [own.debounce_ms, own.wait_ms_max].into_iter().flatten().for_each(|ms| put_varint(out, ms));
    if let Some(n) = own.max_concurrent {
        put_varint(out, u64::from(n));
    }
}

fn session_flags(session: &Session) -> u32 {
    let flags = [
        (session.is_draining, IS_DRAINING),
        (session.cutoff.is_some(), HAS_CUTOFF),
        (session.context.is_some(), HAS_CONTEXT),
        (session.gatherer.is_some(), HAS_GATHERER),
        (has_stops(session), HAS_STOPS),
        (has_drops(session), HAS_DROPS),
    ];
    all_set(&flags) | settings_flags(&session.own)
}

fn settings_flags(own: &Settings) -> u32 {
    all_set(&[
        (own.mode.is_some(), OWN_MODE),
        (own.cap.is_some(), OWN_CAP),
        (own.overflow.is_some(), OWN_OVERFLOW),
        (own.debounce_ms.is_some(), OWN_DEBOUNCE),
        (own.wait_ms_max.is_some(), OWN_WAIT_MAX),
        (own.max_concurrent.is_some(), OWN_MAX_CONCURRENT),
    ])
}

fn all_set(flags: &[(bool, u32)]) -> u32 {
    flags.iter().filter(|(is, _)| *is).fold(0, |flags, (_, flag)| flags | flag)
}

fn has_stops(session: &Session) -> bool {
    session.generation != 0 || [session.reset_seq, session.stopped_seq, session.stopped_line] != [0; 3]
}

fn has_drops(session: &Session) -> bool {
    (session.n_dropped, session.n_told) != (0, 0)
}

/// The session's id as its distance to the task's own number: a session is often made by its first task.
pub(super) fn put_member(out: &mut Vec<u8>, seq: u64, member: &Member) {
    let merged = (member.n_merged, member.merged_bytes) != (0, 0);
    let debounces = (member.debounced_until, member.gathers_until) != (0, 0);
    let told = member.told != (0, 0);
    out.push(
        u8::from(member.seated)
            | u8::from(merged) << 1
            | u8::from(debounces) << 2
            | u8::from(told) << 3
            | u8::from(member.as_mode.is_some()) << 4
            | u8::from(member.gathers) << 5,
    );
    put_since(out, seq, member.session.0);
    put_varint(out, member.line);
    if merged {
        put_varint(out, u64::from(member.n_merged));
        put_varint(out, member.merged_bytes);
    }
    if debounces {
        put_varint(out, member.debounced_until);
        put_since(out, member.debounced_until, member.gathers_until);
    }
    if told {
        put_varint(out, member.told.0);
        put_since(out, member.told.0, member.told.1);
    }
    if let Some(mode) = member.as_mode {
        out.push(mode as u8);
    }
}

/// What a task that is not there yet will say of its session.
pub(super) fn put_new_member(out: &mut Vec<u8>, member: &NewMember) {
    put_text(out, &member.key);
    put_varint(out, u64::from(settings_flags(&member.settings)));
    put_settings(out, &member.settings);
    out.push(u8::from(member.as_mode.is_some()) | u8::from(member.sent_at.is_some()) << 1);
    if let Some(mode) = member.as_mode {
        out.push(mode as u8);
    }
    if let Some(at) = member.sent_at {
        put_varint(out, at);
    }
}

pub(super) fn put_usage(out: &mut Vec<u8>, usage: &Usage) {
    let tokens = [usage.input_tokens, usage.output_tokens, usage.context_tokens, usage.context_window];
    out.push(tokens.iter().enumerate().fold(0, |flags, (bit, n)| flags | u8::from(n.is_some()) << bit));
    tokens.into_iter().flatten().for_each(|n| put_varint(out, n));
}

impl Cut<'_> {
    pub(super) fn session(&mut self, id: SessionId, key: Name) -> Option<Session> {
        let flags = self.u32()?;
        let has = |flag: u32| flags & flag != 0;
        let created_at = self.varint()?;
        let last_at = self.since(created_at)?;
        let lane = self.name()?;
        let [n_live, n_held, n_seated, n_line, n_debouncing] = self.counters()?;
        let next_line = self.varint()?;
        let live_from = self.since(id.0)?;
        let n_messages = self.varint()?;
        let own = self.settings(flags)?;
        let cutoff = if has(HAS_CUTOFF) { Some(self.since(created_at)?) } else { None };
        let context = if has(HAS_CONTEXT) { Some(self.context()?) } else { None };
        let gatherer = if has(HAS_GATHERER) { Some(TaskId(self.u128()?)) } else { None };
        let (generation, [reset_seq, stopped_seq, stopped_line]) =
            if has(HAS_STOPS) { self.stops(id)? } else { (0, [0; 3]) };
        let (n_dropped, n_told) = if has(HAS_DROPS) { (self.varint()?, self.varint()?) } else { (0, 0) };
        Some(Session {
            id,
            key,
            own,
            lane,
            generation,
            reset_seq,
            stopped_seq,
            stopped_line,
            is_draining: has(IS_DRAINING),
            cutoff,
            context,
            n_live,
            n_held,
            n_seated,
            n_line,
            n_debouncing,
            next_line,
            gatherer,
            n_dropped,
            n_told,
            live_from,
            n_messages,
            created_at,
            last_at,
        })
    }

    fn stops(&mut self, id: SessionId) -> Option<(u32, [u64; 3])> {
        Some((self.u32()?, [self.since(id.0)?, self.since(id.0)?, self.varint()?]))
    }

    fn settings(&mut self, flags: u32) -> Option<Settings> {
        let has = |flag: u32| flags & flag != 0;
        let mode = if has(OWN_MODE) { Some(self.mode()?) } else { None };
        let cap = if has(OWN_CAP) { Some(self.u32()?) } else { None };
        let overflow = if has(OWN_OVERFLOW) { Some(Overflow::from_code(self.byte()?)?) } else { None };
        let debounce_ms = if has(OWN_DEBOUNCE) { Some(self.varint()?) } else { None };
        let wait_ms_max = if has(OWN_WAIT_MAX) { Some(self.varint()?) } else { None };
        let max_concurrent = if has(OWN_MAX_CONCURRENT) { Some(self.u32()?) } else { None };
        Some(Settings { mode, cap, overflow, debounce_ms, wait_ms_max, max_concurrent })
    }

    fn context(&mut self) -> Option<Context> {
        Some(Context { tokens: self.varint()?, window: self.varint()? })
    }

    fn mode(&mut self) -> Option<Mode> {
        Mode::from_code(self.byte()?)
    }

    pub(super) fn member(&mut self, seq: u64) -> Option<Member> {
        let flags = self.byte()?;
        let has = |bit: u8| flags & (1 << bit) != 0;
        let session = SessionId(self.since(seq)?);
        let line = self.varint()?;
        let (n_merged, merged_bytes) = if has(1) { (self.u32()?, self.varint()?) } else { (0, 0) };
        let (debounced_until, gathers_until) = if has(2) { self.range()? } else { (0, 0) };
        let told = if has(3) { self.range()? } else { (0, 0) };
        let as_mode = if has(4) { Some(self.mode()?) } else { None };
        Some(Member {
            session,
            line,
            seated: has(0),
            gathers: has(5),
            n_merged,
            merged_bytes,
            debounced_until,
            gathers_until,
            told,
            as_mode,
        })
    }

    pub(super) fn new_member(&mut self) -> Option<NewMember> {
        let key = self.name()?;
        let own = self.u32()?;
        let settings = self.settings(own)?;
        let flags = self.byte()?;
        let as_mode = if flags & 1 != 0 { Some(self.mode()?) } else { None };
        let sent_at = if flags & 2 != 0 { Some(self.varint()?) } else { None };
        Some(NewMember { key, settings, as_mode, sent_at })
    }

    fn range(&mut self) -> Option<(u64, u64)> {
        let from = self.varint()?;
        Some((from, self.since(from)?))
    }

    pub(super) fn usage(&mut self) -> Option<Usage> {
        let flags = self.byte()?;
        let mut tokens = |bit: u8| if flags & (1 << bit) != 0 { self.varint().map(Some) } else { Some(None) };
        Some(Usage {
            input_tokens: tokens(0)?,
            output_tokens: tokens(1)?,
            context_tokens: tokens(2)?,
            context_window: tokens(3)?,
        })
    }
}

const OWN_MODE: u32 = 1;
const OWN_CAP: u32 = 1 << 1;
const OWN_OVERFLOW: u32 = 1 << 2;
const OWN_DEBOUNCE: u32 = 1 << 3;
const OWN_WAIT_MAX: u32 = 1 << 4;
const OWN_MAX_CONCURRENT: u32 = 1 << 5;
const IS_DRAINING: u32 = 1 << 6;
const HAS_CUTOFF: u32 = 1 << 7;
const HAS_CONTEXT: u32 = 1 << 8;
const HAS_GATHERER: u32 = 1 << 9;
const HAS_STOPS: u32 = 1 << 10;
const HAS_DROPS: u32 = 1 << 11;
