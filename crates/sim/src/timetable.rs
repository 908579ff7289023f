//! The nominal times of a schedule by arithmetic of its own: a walk from one to the next, second by second where a
//! calendar decides, and what becomes of those that have come.

use runyard_core::now::WallMs;
use runyard_core::schedule::{CatchUp, Cause, Rules, Schedule, Timing};

/// What a schedule that is due must do.
#[derive(Default, Debug)]
pub(crate) struct Walk {
    pub(crate) fires: Vec<(WallMs, Cause)>,
    /// The latest of those that were missed and are not all made up for, and how many were missed.
    pub(crate) missed: Option<(WallMs, u32)>,
    pub(crate) next: Option<WallMs>,
}

/// `None` while it is not due.
pub(crate) fn walk(row: &Schedule, now: WallMs) -> Option<Walk> {
    let first = row.next_for.filter(|first| row.is_enabled() && fires_at(row, *first) <= now)?;
    let late_ms = if matches!(row.rules.timing, Timing::At(_)) { 3_600_000 } else { 59_999 };
    let in_time = now.saturating_sub(late_ms);
    let n_left = row.rules.runs_max.map_or(u64::MAX, |max| max.saturating_sub(row.n_runs));
    if n_left == 0 {
        return Some(Walk::default());
    }
    let n_max = n_left.min(FIRES_AT_ONCE_MAX) as usize;
    let mut passed = Vec::new();
    let mut next = Some(first);
    while let Some(at) = next.filter(|at| fires_at(row, *at) < in_time) {
        passed.push(at);
        next = after(&row.rules, at);
    }
    let made_up = made_up(&row.rules, &passed, in_time);
    let mut walk = Walk::default();
    if made_up.len() < passed.len() {
        walk.missed = passed.last().map(|latest| (*latest, passed.len().min(MISSED_COUNTED_MAX) as u32));
    }
    walk.fires = made_up.iter().take(n_max).map(|at| (*at, Cause::CatchUp)).collect();
    // What is too much for one tick is still ahead.
    next = made_up.get(n_max).copied().or(next);
    while let Some(at) = next.filter(|at| walk.fires.len() < n_max && fires_at(row, *at) <= now) {
        walk.fires.push((at, Cause::Time));
        next = after(&row.rules, at);
    }
    walk.next = next;
    Some(walk)
}

/// Those of the missed ones that are fired all the same.
fn made_up<'a>(rules: &Rules, passed: &'a [WallMs], in_time: WallMs) -> &'a [WallMs] {
    let (limit, oldest) = match rules.catch_up {
        CatchUp::Skip => (0, 0),
        CatchUp::One => (1, 0),
        CatchUp::All { limit, expiry_ms } => (limit as usize, in_time.saturating_sub(expiry_ms)),
    };
    let from = passed.partition_point(|at| *at < oldest).max(passed.len().saturating_sub(limit));
    &passed[from..]
}

/// Where jitter puts it is the scheduler's own choice, but within bounds.
pub(crate) fn fires_at(row: &Schedule, nominal: WallMs) -> WallMs {
    let Rules { stagger_ms, jitter_ms, .. } = row.rules;
    let at = row.rules.fires_at(row.id, nominal);
    assert!((nominal + stagger_ms..=nominal + stagger_ms + jitter_ms).contains(&at), "{nominal} of {row:?} is at {at}");
    at
}

/// The first nominal time after this moment, in the window.
pub(crate) fn after(rules: &Rules, moment: WallMs) -> Option<WallMs> {
    let moment = rules.from.map_or(moment, |from| moment.max(from - 1));
    let next = match &rules.timing {
        Timing::At(at) => (*at > moment).then_some(*at),
        Timing::Every { every_ms, anchor } => {
            let n_passed = if moment < *anchor { 0 } else { (moment - anchor) / every_ms + 1 };
            Some(anchor + n_passed * every_ms)
        }
        Timing::Cron(calendar) => Clock::new(calendar.expr().as_str(), calendar.zone_name()).after(moment),
        Timing::Unreadable { .. } => None,
    };
    next.filter(|at| rules.until.is_none_or(|until| *at < until))
}

/// Seconds and minutes that fit, in a zone whose clock is never set.
struct Clock {
    seconds: Vec<u64>,
    minutes: Vec<u64>,
    ahead_ms: u64,
}

impl Clock {
    fn new(expr: &str, zone: &str) -> Clock {
        let fields: Vec<&str> = expr.split(' ').collect();
        assert!(fields.len() == 6 && fields[2..].iter().all(|field| *field == "*"), "{expr} is not drawn here");
        let (_, ahead_min) = *ZONES.iter().find(|(name, _)| *name == zone).expect("zones are drawn from the list");
        Clock { seconds: values(fields[0]), minutes: values(fields[1]), ahead_ms: ahead_min * 60_000 }
    }

    fn after(&self, moment: WallMs) -> Option<WallMs> {
        let first = (moment + self.ahead_ms) / 1000 + 1;
        let fits = |second: &u64| self.seconds.contains(&(second % 60)) && self.minutes.contains(&(second / 60 % 60));
        (first..=first + 3600).find(fits).map(|second| second * 1000 - self.ahead_ms)
    }
}

/// `*`, `*/n` or a list, of what goes up to 59.
fn values(field: &str) -> Vec<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a field that is drawn here has numbers");
    match field.strip_prefix('*') {
        Some(step) => (0..60).step_by(step.strip_prefix('/').map_or(1, number) as usize).collect(),
        None => field.split(',').map(number).collect(),
    }
}

/// Zones with how many minutes their clocks are ahead, always.
pub(crate) const ZONES: [(&str, u64); 3] = [("UTC", 0), ("Asia/Kolkata", 330), ("Asia/Kathmandu", 345)];
const FIRES_AT_ONCE_MAX: u64 = 100;
const MISSED_COUNTED_MAX: usize = 1000;
