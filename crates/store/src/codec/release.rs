//! A release as its row: a kind, an id, and how what it follows from ended.
//!
//! Numbers are written so that their bytes are in their order.

use runyard_core::event::{ParentEnd, Release, StopWhy};
use runyard_core::ids::{BatchId, ScheduleId, TaskId};
use runyard_core::session::SessionId;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleaseColumns {
    pub kind: u8,
    pub id: Vec<u8>,
    pub ended: u8,
}

pub fn encode_release(release: &Release) -> ReleaseColumns {
    let number = |SessionId(id): SessionId| id.to_be_bytes().to_vec();
    let (kind, id, ended) = match *release {
        Release::Parent { parent, ended } => (0, parent.0.to_be_bytes().to_vec(), u8::from(ended == ParentEnd::Badly)),
        Release::BatchPlace { batch } => (1, batch.0.to_be_bytes().to_vec(), 0),
        Release::SessionStop { session: SessionId(session), before, from, why } => {
            (2, [session, before, from].map(u64::to_be_bytes).concat(), why as u8)
        }
        Release::SessionShrink { session } => (3, number(session), 0),
        Release::SessionSeat { session } => (4, number(session), 0),
        Release::SessionOverflow { session } => (5, number(session), 0),
        Release::SessionReview { after } => (6, number(after), 0),
        // The task first: retention looks for it.
        Release::RunEnded { schedule, run, task } => {
            let ids = [task.0, schedule.0].map(u128::to_be_bytes).concat();
            (7, [&ids[..], &run.to_be_bytes()].concat(), 0)
        }
    };
    ReleaseColumns { kind, id, ended }
}

pub fn decode_release(columns: &ReleaseColumns) -> Option<Release> {
    let id = &columns.id[..];
    let named = || id.try_into().ok().map(u128::from_be_bytes);
    let numbered = || id.try_into().ok().map(u64::from_be_bytes).map(SessionId);
    Some(match (columns.kind, columns.ended) {
        (0, 0) => Release::Parent { parent: TaskId(named()?), ended: ParentEnd::Well },
        (0, 1) => Release::Parent { parent: TaskId(named()?), ended: ParentEnd::Badly },
        (1, 0) => Release::BatchPlace { batch: BatchId(named()?) },
        (2, why) => {
            let (session, rest) = id.split_first_chunk::<8>()?;
            let (before, from) = rest.split_first_chunk::<8>()?;
            Release::SessionStop {
                session: SessionId(u64::from_be_bytes(*session)),
                before: u64::from_be_bytes(*before),
                from: u64::from_be_bytes(from.try_into().ok()?),
                why: *StopWhy::ALL.get(usize::from(why))?,
            }
        }
        (3, 0) => Release::SessionShrink { session: numbered()? },
        (4, 0) => Release::SessionSeat { session: numbered()? },
        (5, 0) => Release::SessionOverflow { session: numbered()? },
        (6, 0) => Release::SessionReview { after: numbered()? },
        (7, 0) => {
            let (task, rest) = id.split_first_chunk::<16>()?;
            let (schedule, run) = rest.split_first_chunk::<16>()?;
            Release::RunEnded {
                schedule: ScheduleId(u128::from_be_bytes(*schedule)),
                run: u64::from_be_bytes(run.try_into().ok()?),
                task: TaskId(u128::from_be_bytes(*task)),
            }
        }
        _ => return None,
    })
}
