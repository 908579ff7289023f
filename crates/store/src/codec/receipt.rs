//! What a command did that no other row would tell.

use runyard_core::event::Receipt;
use runyard_core::ids::{ScheduleId, TaskId, WorkerId};

use super::{Cut, decode_worker, encode_worker, put_u128, put_varint};

pub(super) fn put(out: &mut Vec<u8>, receipt: &Receipt) {
    match receipt {
        Receipt::Done => out.push(0),
        Receipt::Ran { schedule, run } => {
            out.push(1);
            put_u128(out, schedule.0);
            put_varint(out, *run);
        }
        Receipt::Stopped { task: None } => out.push(2),
        Receipt::Stopped { task: Some(task) } => {
            out.push(3);
            put_u128(out, task.0);
        }
        Receipt::StoppedAll { running, waiting, debouncing } => {
            out.push(4);
            [running, waiting, debouncing].into_iter().for_each(|n| put_varint(out, u64::from(*n)));
        }
        Receipt::WorkerRemoved(row) => {
            out.push(5);
            put_u128(out, row.spec.id.0);
            let mut body = Vec::new();
            encode_worker(row, &mut body);
            out.extend_from_slice(&body);
        }
    }
}

pub(super) fn cut(cut: &mut Cut<'_>) -> Option<Receipt> {
    Some(match cut.byte()? {
        0 => Receipt::Done,
        1 => Receipt::Ran { schedule: ScheduleId(cut.u128()?), run: cut.varint()? },
        2 => Receipt::Stopped { task: None },
        3 => Receipt::Stopped { task: Some(TaskId(cut.u128()?)) },
        4 => Receipt::StoppedAll { running: cut.u32()?, waiting: cut.u32()?, debouncing: cut.u32()? },
        5 => {
            let id = WorkerId(cut.u128()?);
            // All the rest is its body.
            Receipt::WorkerRemoved(Box::new(decode_worker(id, std::mem::take(&mut cut.0))?))
        }
        _ => return None,
    })
}
