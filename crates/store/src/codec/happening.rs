//! The event log: what happened in one commit, in a few bytes for each line.

use std::borrow::Cow;

use runyard_core::event::{Happening, HappeningKind, Subject, TaskFacts};
use runyard_core::ids::{BatchId, TaskId, WorkerId};
use runyard_core::name::Name;
use runyard_core::session::SessionId;
use runyard_core::task::Tier;

use super::schedule::put_schedule_facts;
use super::session::put_session;
use super::{Cut, VERSION, put_batch, put_since, put_text, put_u128, put_varint};

/// The happenings of one commit. Neighbours mostly speak of one task and one flow, so each says only what differs from
/// the one before it.
pub fn encode_happenings(happenings: &[Happening], out: &mut Vec<u8>) {
    out.clear();
    out.push(VERSION);
    put_varint(out, happenings.len() as u64);
    let mut at_ms = 0;
    let mut before: Option<&TaskFacts> = None;
    for happening in happenings {
        out.push(happening.kind as u8);
        put_since(out, at_ms, happening.at_ms);
        at_ms = happening.at_ms;
        match &happening.subject {
            Subject::Task(facts) => {
                out.push(SUBJECT_TASK);
                put_facts(out, before, facts);
                before = Some(facts);
            }
            Subject::Batch(batch) => {
                out.push(SUBJECT_BATCH);
                put_u128(out, batch.id.0);
                put_batch(out, batch);
            }
            Subject::Worker { worker, name, reason } => {
                out.push(if reason.is_empty() { SUBJECT_WORKER } else { SUBJECT_WORKER_WHY });
                put_u128(out, worker.0);
                put_text(out, name);
                if !reason.is_empty() {
                    put_text(out, reason);
                }
            }
            Subject::Session(session) => {
                out.push(SUBJECT_SESSION);
                put_varint(out, session.id.0);
                put_text(out, &session.key);
                put_session(out, session);
            }
            Subject::Schedule(facts) => {
                out.push(SUBJECT_SCHEDULE);
                put_schedule_facts(out, facts);
            }
            Subject::Config => out.push(SUBJECT_CONFIG),
            Subject::Node { name } => {
                out.push(SUBJECT_NODE);
                put_text(out, name);
            }
        }
    }
}

pub fn decode_happenings(bytes: &[u8]) -> Option<Vec<Happening>> {
    let mut cut = Cut::versioned(bytes)?;
    let len = cut.varint()?;
    let mut happenings: Vec<Happening> = Vec::new();
    let mut at_ms = 0;
    let mut before: Option<usize> = None;
    for index in 0..len {
        let kind = *HappeningKind::ALL.get(usize::from(cut.byte()?))?;
        at_ms = cut.since(at_ms)?;
        let subject = match cut.byte()? {
            SUBJECT_TASK => {
                let earlier = before.and_then(|index| match &happenings[index].subject {
                    Subject::Task(facts) => Some(facts),
                    _ => None,
                });
                let facts = cut.facts(earlier)?;
                before = usize::try_from(index).ok();
                Subject::Task(facts)
            }
            SUBJECT_BATCH => {
                let id = BatchId(cut.u128()?);
                Subject::Batch(Box::new(cut.batch(id)?))
            }
            SUBJECT_WORKER => {
                Subject::Worker { worker: WorkerId(cut.u128()?), name: cut.name()?, reason: Cow::Borrowed("") }
            }
            SUBJECT_WORKER_WHY => {
                Subject::Worker { worker: WorkerId(cut.u128()?), name: cut.name()?, reason: cut.text()? }
            }
            SUBJECT_SESSION => {
                let (id, key) = (SessionId(cut.varint()?), cut.name()?);
                Subject::Session(Box::new(cut.session(id, key)?))
            }
            SUBJECT_SCHEDULE => Subject::Schedule(Box::new(cut.schedule_facts()?)),
            SUBJECT_CONFIG => Subject::Config,
            SUBJECT_NODE => Subject::Node { name: cut.name()? },
            _ => return None,
        };
        happenings.push(Happening { kind, at_ms, subject });
    }
    cut.end(happenings)
}

fn put_facts(out: &mut Vec<u8>, before: Option<&TaskFacts>, facts: &TaskFacts) {
    let same_task = before.is_some_and(|before| before.task == facts.task);
    let same_key = before.is_some_and(|before| {
        before.agent == facts.agent
            && before.lane == facts.lane
            && before.kind == facts.kind
            && before.tier == facts.tier
    });
    let same_batch = match before {
        Some(before) => before.batch == facts.batch,
        None => facts.batch.is_none(),
    };
    out.push(
        u8::from(same_task)
            | u8::from(same_key) << 1
            | u8::from(same_batch) << 2
            | u8::from(facts.batch.is_some()) << 3
            | u8::from(facts.class.is_some()) << 4
            | u8::from(!facts.reason.is_empty()) << 5
            | u8::from(facts.elapsed_ms.is_some()) << 6
            | u8::from(facts.session.is_some()) << 7,
    );
    if !same_task {
        put_u128(out, facts.task.0);
    }
    if !same_key {
        out.push(facts.tier as u8);
        [&facts.agent, &facts.lane, &facts.kind].into_iter().for_each(|name| put_text(out, name));
    }
    if let (false, Some(batch)) = (same_batch, facts.batch) {
        put_u128(out, batch.0);
    }
    put_varint(out, u64::from(facts.attempt));
    if let Some(class) = facts.class {
        out.push(class as u8);
    }
    if !facts.reason.is_empty() {
        put_text(out, &facts.reason);
    }
    if let Some(elapsed_ms) = facts.elapsed_ms {
        put_varint(out, elapsed_ms);
    }
    if let Some(session) = &facts.session {
        put_session_key(out, before.and_then(|before| before.session.as_ref()), session);
    }
}

/// 0 when it is the key of the one before, else the key with its length plus one.
fn put_session_key(out: &mut Vec<u8>, before: Option<&Name>, key: &Name) {
    if before == Some(key) {
        out.push(0);
    } else {
        put_varint(out, key.len() as u64 + 1);
        out.extend_from_slice(key.as_bytes());
    }
}

impl Cut<'_> {
    fn facts(&mut self, before: Option<&TaskFacts>) -> Option<TaskFacts> {
        let flags = self.byte()?;
        let has = |bit: u8| flags & (1 << bit) != 0;
        let task = if has(0) { before?.task } else { TaskId(self.u128()?) };
        let (tier, agent, lane, kind) = if has(1) {
            let before = before?;
            (before.tier, before.agent.clone(), before.lane.clone(), before.kind.clone())
        } else {
            (Tier::from_code(self.byte()?)?, self.name()?, self.name()?, self.name()?)
        };
        let batch = match (has(2), has(3)) {
            (_, false) => None,
            (true, true) => before?.batch,
            (false, true) => Some(BatchId(self.u128()?)),
        };
        let attempt = self.u32()?;
        let class = if has(4) { Some(self.class()?) } else { None };
        let reason = if has(5) { self.text()? } else { Cow::Borrowed("") };
        let elapsed_ms = if has(6) { Some(self.varint()?) } else { None };
        let session = if has(7) { Some(self.session_key(before)?) } else { None };
        Some(TaskFacts { task, agent, lane, kind, tier, batch, session, attempt, class, reason, elapsed_ms })
    }

    fn session_key(&mut self, before: Option<&TaskFacts>) -> Option<Name> {
        match self.varint()? {
            0 => before?.session.clone(),
            len => self.str_of(len - 1).map(Name::new),
        }
    }
}

const SUBJECT_TASK: u8 = 0;
const SUBJECT_BATCH: u8 = 1;
const SUBJECT_WORKER: u8 = 2;
const SUBJECT_CONFIG: u8 = 3;
const SUBJECT_SESSION: u8 = 4;
const SUBJECT_SCHEDULE: u8 = 5;
const SUBJECT_WORKER_WHY: u8 = 6;
const SUBJECT_NODE: u8 = 7;
