//! Schedules, what their tasks are made of, and their runs. An expression is kept as it was written and read again: bytes
//! that a later program reads otherwise would move moments that people rely on.

use std::sync::Arc;

use runyard_core::flow::FlowKey;
use runyard_core::ids::{ScheduleId, TaskId};
use runyard_core::name::{Blob, Name};
use runyard_core::now::WallMs;
use runyard_core::schedule::{
    CatchUp, Cause, Outcome, Overlap, Rules, Run, Schedule, ScheduleFacts, Standing, Template, Timing,
};
use runyard_cron::Calendar;

use super::session::{put_new_member, put_usage};
use super::{Cut, VERSION, put_policy, put_since, put_text, put_u128, put_varint};

/// All of a schedule but its id and its name. `out` is cleared first.
pub fn encode_schedule_body(schedule: &Schedule, out: &mut Vec<u8>) {
    out.clear();
    out.push(VERSION);
    put_varint(out, schedule.created_at);
    put_since(out, schedule.created_at, schedule.changed_at);
    put_varint(out, u64::from(schedule.revision));
    put_varint(out, schedule.done_to);
    put_varint(out, schedule.n_runs);
    put_varint(out, u64::from(schedule.n_live));
    put_varint(out, u64::from(schedule.n_failed_in_row));
    out.push(u8::from(schedule.is_alerted) | u8::from(schedule.next_for.is_some()) << 1);
    if let Some(at) = schedule.next_for {
        put_varint(out, at);
    }
    match &schedule.standing {
        Standing::Enabled => out.push(0),
        Standing::Paused { reason } => {
            out.push(1);
            put_text(out, reason);
        }
        Standing::Done { why } => {
            out.push(2);
            put_text(out, why);
        }
    }
    put_rules(out, &schedule.rules);
}

pub fn decode_schedule_body(id: ScheduleId, name: Name, body: &[u8]) -> Option<Schedule> {
    let mut cut = Cut::versioned(body)?;
    let created_at = cut.varint()?;
    let changed_at = cut.since(created_at)?;
    let (revision, done_to, n_runs) = (cut.u32()?, cut.varint()?, cut.varint()?);
    let (n_live, n_failed_in_row) = (cut.u32()?, cut.u32()?);
    let flags = cut.byte()?;
    let next_for = if flags & 2 != 0 { Some(cut.varint()?) } else { None };
    let standing = match cut.byte()? {
        0 => Standing::Enabled,
        1 => Standing::Paused { reason: cut.text()? },
        2 => Standing::Done { why: cut.text()? },
        _ => return None,
    };
    let rules = cut.rules()?;
    cut.end(Schedule {
        id,
        name,
        rules,
        standing,
        revision,
        next_for,
        done_to,
        n_runs,
        n_live,
        n_failed_in_row,
        is_alerted: flags & 1 != 0,
        created_at,
        changed_at,
    })
}

/// `out` is cleared first.
pub fn encode_template(template: &Template, out: &mut Vec<u8>) {
    out.clear();
    out.push(VERSION);
    let flow = template.flow.encode();
    put_varint(out, flow.len() as u64);
    out.extend_from_slice(&flow);
    out.extend_from_slice(&template.rank.to_le_bytes());
    put_policy(out, &template.policy);
    out.push(u8::from(template.session.is_some()));
    if let Some(member) = &template.session {
        put_new_member(out, member);
    }
    // Last and without a length.
    out.extend_from_slice(&template.spec);
}

pub fn decode_template(bytes: &[u8]) -> Option<Template> {
    let mut cut = Cut::versioned(bytes)?;
    let len = usize::try_from(cut.varint()?).ok()?;
    let (flow, rest) = cut.0.split_at_checked(len)?;
    cut.0 = rest;
    let flow = FlowKey::decode(flow)?;
    let rank = i32::from_le_bytes(cut.array()?);
    let policy = cut.policy()?;
    let session = match cut.byte()? {
        0 => None,
        1 => Some(cut.new_member()?),
        _ => return None,
    };
    Some(Template { flow, rank, policy, session, spec: cut.0.into() })
}

/// The part of a run's row that stands in columns of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunPlace {
    pub schedule: ScheduleId,
    pub n: u64,
    pub scheduled_for: WallMs,
    pub cause: Cause,
}

/// All of a run that is not in [`RunPlace`]. `out` is cleared first.
pub fn encode_run_body(run: &Run, out: &mut Vec<u8>) {
    out.clear();
    out.push(VERSION);
    out.push(run_flags(run));
    put_text(out, &run.name);
    match run.outcome {
        Outcome::Live => out.push(0),
        Outcome::Completed => out.push(1),
        Outcome::Failed => out.push(2),
        Outcome::Cancelled => out.push(3),
        Outcome::Skipped => out.push(4),
        Outcome::Missed { n } => {
            out.push(5);
            put_varint(out, u64::from(n));
        }
    }
    put_varint(out, run.created_at);
    [run.started_at, run.ended_at].into_iter().flatten().for_each(|at| put_since(out, run.created_at, at));
    put_varint(out, u64::from(run.attempts));
    if let Some(task) = run.task {
        put_u128(out, task.0);
    }
    if let Some(class) = run.class {
        out.push(class as u8);
    }
    if !run.reason.is_empty() {
        put_text(out, &run.reason);
    }
    if let Some(usage) = &run.usage {
        put_usage(out, usage);
    }
    // Last and without a length.
    if let Some(tail) = &run.tail {
        out.extend_from_slice(tail);
    }
}

pub fn decode_run_body(place: RunPlace, body: &[u8]) -> Option<Run> {
    let mut cut = Cut::versioned(body)?;
    let flags = cut.byte()?;
    let has = |flag: u8| flags & flag != 0;
    let name = cut.name()?;
    let outcome = cut.outcome()?;
    let created_at = cut.varint()?;
    let started_at = if has(HAS_STARTED) { Some(cut.since(created_at)?) } else { None };
    let ended_at = if has(HAS_ENDED) { Some(cut.since(created_at)?) } else { None };
    let attempts = cut.u32()?;
    let task = if has(HAS_TASK) { Some(TaskId(cut.u128()?)) } else { None };
    let class = if has(HAS_CLASS) { Some(cut.class()?) } else { None };
    let reason = if has(HAS_REASON) { cut.text()? } else { "".into() };
    let usage = if has(HAS_USAGE) { Some(cut.usage()?) } else { None };
    let tail = has(HAS_TAIL).then(|| Blob::from(std::mem::take(&mut cut.0)));
    let RunPlace { schedule, n, scheduled_for, cause } = place;
    cut.end(Run {
        schedule,
        n,
        name,
        scheduled_for,
        cause,
        task,
        outcome,
        created_at,
        started_at,
        ended_at,
        attempts,
        class,
        reason,
        usage,
        tail,
    })
}

pub fn cause_of(code: u8) -> Option<Cause> {
    [Cause::Time, Cause::CatchUp, Cause::Hand].into_iter().find(|cause| cause_code(*cause) == code)
}

pub fn cause_code(cause: Cause) -> u8 {
    match cause {
        Cause::Time => 0,
        Cause::CatchUp => 1,
        Cause::Hand => 2,
    }
}

fn run_flags(run: &Run) -> u8 {
    let flags = [
        (run.started_at.is_some(), HAS_STARTED),
        (run.ended_at.is_some(), HAS_ENDED),
        (run.task.is_some(), HAS_TASK),
        (run.class.is_some(), HAS_CLASS),
        (!run.reason.is_empty(), HAS_REASON),
        (run.usage.is_some(), HAS_USAGE),
        (run.tail.is_some(), HAS_TAIL),
    ];
    flags.into_iter().filter(|(is, _)| *is).fold(0, |flags, (_, flag)| flags | flag)
}

fn put_rules(out: &mut Vec<u8>, rules: &Rules) {
    match &rules.timing {
        Timing::At(at) => {
            out.push(0);
            put_varint(out, *at);
        }
        Timing::Every { every_ms, anchor } => {
            out.push(1);
            put_varint(out, *every_ms);
            put_varint(out, *anchor);
        }
        Timing::Cron(calendar) => {
            out.push(2);
            put_text(out, calendar.expr().as_str());
            put_text(out, calendar.zone_name());
        }
        Timing::Unreadable { expr, zone, .. } => {
            out.push(2);
            put_text(out, expr);
            put_text(out, zone);
        }
    }
    out.push(match rules.overlap {
        Overlap::Skip => 0,
        Overlap::Queue => 1,
        Overlap::Replace => 2,
        Overlap::Allow => 3,
    });
    match rules.catch_up {
        CatchUp::Skip => out.push(0),
        CatchUp::One => out.push(1),
        CatchUp::All { limit, expiry_ms } => {
            out.push(2);
            put_varint(out, u64::from(limit));
            put_varint(out, expiry_ms);
        }
    }
    put_varint(out, rules.stagger_ms);
    put_varint(out, rules.jitter_ms);
    let limits = rule_limits(rules);
    let flags = limits.iter().enumerate().fold(0, |flags, (bit, limit)| flags | u8::from(limit.is_some()) << bit);
    out.push(flags | u8::from(rules.delete_after_run) << limits.len());
    limits.into_iter().flatten().for_each(|limit| put_varint(out, limit));
}

fn rule_limits(rules: &Rules) -> [Option<u64>; 5] {
    let [alert_after, pause_after] = [rules.alert_after, rules.pause_after].map(|after| after.map(u64::from));
    [rules.from, rules.until, rules.runs_max, alert_after, pause_after]
}

pub(super) fn put_schedule_facts(out: &mut Vec<u8>, facts: &ScheduleFacts) {
    put_u128(out, facts.schedule.0);
    put_text(out, &facts.name);
    out.push(
        u8::from(facts.run.is_some())
            | u8::from(facts.task.is_some()) << 1
            | u8::from(facts.scheduled_for.is_some()) << 2
            | u8::from(!facts.reason.is_empty()) << 3
            | u8::from(facts.agent.is_some()) << 4,
    );
    if let Some(run) = facts.run {
        put_varint(out, run);
    }
    if let Some(task) = facts.task {
        put_u128(out, task.0);
    }
    if let Some(at) = facts.scheduled_for {
        put_varint(out, at);
    }
    put_varint(out, u64::from(facts.n_failed));
    if !facts.reason.is_empty() {
        put_text(out, &facts.reason);
    }
    if let Some(agent) = &facts.agent {
        put_text(out, agent);
    }
}

impl Cut<'_> {
    pub(super) fn schedule_facts(&mut self) -> Option<ScheduleFacts> {
        let (schedule, name) = (ScheduleId(self.u128()?), self.name()?);
        let flags = self.byte()?;
        let run = if flags & 1 != 0 { Some(self.varint()?) } else { None };
        let task = if flags & 2 != 0 { Some(TaskId(self.u128()?)) } else { None };
        let scheduled_for = if flags & 4 != 0 { Some(self.varint()?) } else { None };
        let n_failed = self.u32()?;
        let reason = if flags & 8 != 0 { self.text()? } else { "".into() };
        let agent = if flags & 16 != 0 { Some(self.name()?) } else { None };
        Some(ScheduleFacts { schedule, name, agent, run, task, scheduled_for, n_failed, reason })
    }

    fn outcome(&mut self) -> Option<Outcome> {
        Some(match self.byte()? {
            0 => Outcome::Live,
            1 => Outcome::Completed,
            2 => Outcome::Failed,
            3 => Outcome::Cancelled,
            4 => Outcome::Skipped,
            5 => Outcome::Missed { n: self.u32()? },
            _ => return None,
        })
    }

    fn timing(&mut self) -> Option<Timing> {
        Some(match self.byte()? {
            0 => Timing::At(self.varint()?),
            // It is divided by.
            1 => Timing::Every { every_ms: self.varint().filter(|ms| *ms > 0)?, anchor: self.varint()? },
            2 => {
                let (expr, zone) = (self.str()?, self.str()?);
                match Calendar::new(expr, zone) {
                    Ok(calendar) => Timing::Cron(Arc::new(calendar)),
                    // One that this machine cannot read any more must not keep the others from being read.
                    Err(error) => Timing::Unreadable {
                        expr: expr.to_owned().into(),
                        zone: zone.to_owned().into(),
                        why: format!("`{expr}` in {zone} cannot be read: {error}").into(),
                    },
                }
            }
            _ => return None,
        })
    }

    fn rules(&mut self) -> Option<Rules> {
        let timing = self.timing()?;
        let overlap = match self.byte()? {
            0 => Overlap::Skip,
            1 => Overlap::Queue,
            2 => Overlap::Replace,
            3 => Overlap::Allow,
            _ => return None,
        };
        let catch_up = match self.byte()? {
            0 => CatchUp::Skip,
            1 => CatchUp::One,
            2 => CatchUp::All { limit: self.u32()?, expiry_ms: self.varint()? },
            _ => return None,
        };
        let (stagger_ms, jitter_ms) = (self.varint()?, self.varint()?);
        let flags = self.byte()?;
        let mut limit = |bit: u8| if flags & 1 << bit != 0 { self.varint().map(Some) } else { Some(None) };
        let [from, until, runs_max, alert_after, pause_after] = [limit(0)?, limit(1)?, limit(2)?, limit(3)?, limit(4)?];
        Some(Rules {
            timing,
            overlap,
            catch_up,
            stagger_ms,
            jitter_ms,
            from,
            until,
            runs_max,
            delete_after_run: flags & 1 << 5 != 0,
            alert_after: alert_after.map(u32::try_from).transpose().ok()?,
            pause_after: pause_after.map(u32::try_from).transpose().ok()?,
        })
    }
}

const HAS_STARTED: u8 = 1;
const HAS_ENDED: u8 = 1 << 1;
const HAS_TASK: u8 = 1 << 2;
const HAS_CLASS: u8 = 1 << 3;
const HAS_REASON: u8 = 1 << 4;
const HAS_USAGE: u8 = 1 << 5;
const HAS_TAIL: u8 = 1 << 6;
