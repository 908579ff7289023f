//! A task's own history, a few bytes for each step, kept in its row.
//!
//! The event log is shared and ages out after a day; this one lives as long as the task. Each step is
//! `kind, detail, attempt (varint), milliseconds since the step before (varint)`.

use crate::now::WallMs;

/// Beyond this many bytes (a few hundred steps) the trail takes nothing but the end.
pub const TRAIL_BYTES_MAX: usize = 2048;
/// A usual life (created, queued, assigned, started, ended) takes up to so many.
const USUAL_BYTES: usize = 38;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum StepKind {
    Created = 0,
    Waiting = 1,
    Scheduled = 2,
    Queued = 3,
    Assigned = 4,
    Started = 5,
    Stopping = 6,
    Retrying = 7,
    Preempted = 8,
    Lost = 9,
    Completed = 10,
    Failed = 11,
    Cancelled = 12,
    Rejected = 13,
    Changed = 14,
    Stalled = 15,
    Merged = 16,
}

impl StepKind {
    pub fn is_end(self) -> bool {
        matches!(self, StepKind::Completed | StepKind::Failed | StepKind::Cancelled | StepKind::Rejected)
    }

    pub const ALL: [StepKind; 17] = [
        StepKind::Created,
        StepKind::Waiting,
        StepKind::Scheduled,
        StepKind::Queued,
        StepKind::Assigned,
        StepKind::Started,
        StepKind::Stopping,
        StepKind::Retrying,
        StepKind::Preempted,
        StepKind::Lost,
        StepKind::Completed,
        StepKind::Failed,
        StepKind::Cancelled,
        StepKind::Rejected,
        StepKind::Changed,
        StepKind::Stalled,
        StepKind::Merged,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            StepKind::Created => "created",
            StepKind::Waiting => "waiting",
            StepKind::Scheduled => "scheduled",
            StepKind::Queued => "queued",
            StepKind::Assigned => "assigned",
            StepKind::Started => "started",
            StepKind::Stopping => "stopping",
            StepKind::Retrying => "retrying",
            StepKind::Preempted => "preempted",
            StepKind::Lost => "lost",
            StepKind::Completed => "completed",
            StepKind::Failed => "failed",
            StepKind::Cancelled => "cancelled",
            StepKind::Rejected => "rejected",
            StepKind::Changed => "changed",
            StepKind::Stalled => "stalled",
            StepKind::Merged => "merged",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    pub kind: StepKind,
    /// The code of the class or stop behind the step, plus one; 0 when there is none.
    pub detail: u8,
    pub attempt: u32,
    pub at_ms: WallMs,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Trail {
    bytes: Bytes,
    last_ms: WallMs,
}

impl Trail {
    pub fn push(&mut self, step: Step) {
        if self.as_bytes().len() >= TRAIL_BYTES_MAX && !step.kind.is_end() {
            return;
        }
        self.bytes.push(step.kind as u8);
        self.bytes.push(step.detail);
        put_varint(&mut self.bytes, u64::from(step.attempt));
        put_varint(&mut self.bytes, step.at_ms.saturating_sub(self.last_ms));
        self.last_ms = step.at_ms.max(self.last_ms);
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// Reads what [`Trail::as_bytes`] gave; bytes that make no sense end the history there.
    pub fn from_bytes(bytes: &[u8]) -> Trail {
        let mut trail = Trail { bytes: Bytes::of(bytes), last_ms: 0 };
        trail.last_ms = trail.steps().last().map_or(0, |step| step.at_ms);
        trail
    }

    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        let mut rest = self.as_bytes();
        let mut at_ms = 0;
        std::iter::from_fn(move || {
            let (&[kind, detail], tail) = rest.split_first_chunk::<2>()?;
            rest = tail;
            let attempt = take_varint(&mut rest)?;
            at_ms += take_varint(&mut rest)?;
            let kind = *StepKind::ALL.get(usize::from(kind))?;
            Some(Step { kind, detail, attempt: attempt as u32, at_ms })
        })
    }
}

/// Those of a usual life stand in the task itself: it is copied at every tick that touches it, and each copy would
/// otherwise be a piece of memory of its own.
#[derive(Clone, Debug)]
enum Bytes {
    Few { n: u8, bytes: [u8; USUAL_BYTES] },
    Many(Vec<u8>),
}

impl Bytes {
    fn of(slice: &[u8]) -> Bytes {
        let mut bytes = [0; USUAL_BYTES];
        match bytes.get_mut(..slice.len()) {
            Some(few) => {
                few.copy_from_slice(slice);
                Bytes::Few { n: slice.len() as u8, bytes }
            }
            None => Bytes::Many(slice.to_vec()),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Few { n, bytes } => &bytes[..usize::from(*n)],
            Bytes::Many(bytes) => bytes,
        }
    }

    fn push(&mut self, byte: u8) {
        match self {
            Bytes::Few { n, bytes } if usize::from(*n) < USUAL_BYTES => {
                bytes[usize::from(*n)] = byte;
                *n += 1;
            }
            Bytes::Few { bytes, .. } => *self = Bytes::Many([&bytes[..], &[byte]].concat()),
            Bytes::Many(bytes) => bytes.push(byte),
        }
    }
}

impl Extend<u8> for Bytes {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        bytes.into_iter().for_each(|byte| self.push(byte));
    }
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Few { n: 0, bytes: [0; USUAL_BYTES] }
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Bytes {}

pub(crate) fn put_varint(out: &mut impl Extend<u8>, mut n: u64) {
    while n >= 0x80 {
        out.extend([n as u8 | 0x80]);
        n >>= 7;
    }
    out.extend([n as u8]);
}

pub(crate) fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        n |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_survive_the_bytes() {
        let steps = [
            Step { kind: StepKind::Created, detail: 0, attempt: 0, at_ms: 1_700_000_000_000 },
            Step { kind: StepKind::Assigned, detail: 0, attempt: 1, at_ms: 1_700_000_000_005 },
            Step { kind: StepKind::Failed, detail: 3, attempt: 300, at_ms: 1_700_000_900_000 },
        ];
        let mut trail = Trail::default();
        steps.iter().for_each(|&step| trail.push(step));
        let read = Trail::from_bytes(trail.as_bytes());
        assert_eq!(read, trail);
        assert_eq!(read.steps().collect::<Vec<_>>(), steps);
    }

    #[test]
    fn a_long_history_is_kept_as_a_short_one_is() {
        let step = |n: u64| Step { kind: StepKind::Retrying, detail: 1, attempt: n as u32, at_ms: 1_000 * n };
        let mut trail = Trail::default();
        for n in 0..100 {
            trail.push(step(n));
            assert_eq!(Trail::from_bytes(trail.as_bytes()), trail);
            assert!(trail.steps().eq((0..=n).map(step)), "after {n} steps");
        }
        assert!(trail.as_bytes().len() > USUAL_BYTES);
    }

    #[test]
    fn broken_bytes_end_the_history() {
        assert_eq!(Trail::from_bytes(&[0, 0, 0x80]).steps().count(), 0);
    }
}
