//! What the database says when it refuses a commit, in our words.

use runyard_core::hash::DetMap;
use runyard_core::ids::TaskId;
use runyard_core::write::{SessionDrop, Update, WriteSet};

use super::column::{bigints, uuids};
use super::commit::{FENCED, UNEXPECTED, WRITING, seq_of};
use super::link::Link;
use super::row::{Fault, Tried, field, integer};
use crate::store::Error;

/// What a refused commit means: who was in the way is asked for after it was rolled back.
pub fn refusal(link: &mut Link, writes: &WriteSet, fault: Fault) -> Error {
    let Fault::Refused { error, .. } = &fault else { return fault.into() };
    match error.code().code() {
        FENCED => fenced(writes.meta.epoch, error.message()),
        UNEXPECTED => match error.message() {
            "task" => stale(link, writes).unwrap_or_else(Error::from),
            "edge" => missing_child(link, writes).unwrap_or_else(Error::from),
            what => conflict(None, format!("a changed {what} does not exist")),
        },
        EXISTS => exists(writes, error.constraint().unwrap_or_default(), error.detail().unwrap_or_default()),
        _ => fault.into(),
    }
}

/// The row of meta was not as expected: it has another's epoch, or another place.
fn fenced(ours: u64, told: &str) -> Error {
    let theirs = told.parse().unwrap_or(u64::MAX);
    match theirs == ours {
        true => conflict(None, "the row of meta is not where it was".to_owned()),
        false => Error::Fenced { ours, theirs },
    }
}

/// Says what the row is instead of what it should be.
fn stale(link: &mut Link, writes: &WriteSet) -> Tried<Error> {
    const FOUND: &str = "SELECT w.seq, coalesce(t.phase, d.phase), coalesce(t.attempt, d.attempt) \
                         FROM unnest($1::uuid[], $2::bigint[]) AS w(id, seq) LEFT JOIN tasks t ON t.id = w.id \
                         LEFT JOIN tasks_done d ON d.id = w.id";
    let ids = uuids(writes.updates.iter().map(|change| change.task.id.0));
    let seqs = bigints(writes.updates.iter().map(|change| integer(change.task.seq)));
    let rows = link.query(WRITING, FOUND, [ids, seqs])?;
    let mut found: DetMap<i64, (Option<i16>, Option<i32>)> = DetMap::default();
    for row in &rows {
        found.insert(field(row, 0)?, (field(row, 1)?, field(row, 2)?));
    }
    for Update { task, from: (phase, attempt), .. } in &writes.updates {
        let is = found.get(&integer(task.seq)).copied().unwrap_or_default();
        if is != (Some(*phase as i16), Some(*attempt as i32)) {
            let found = match is {
                (Some(is), Some(is_attempt)) => format!("phase {is} attempt {is_attempt}"),
                _ => "no row".to_owned(),
            };
            let detail = format!("expected phase {} attempt {attempt}, found {found}", *phase as u8);
            return Ok(conflict(Some(task.id), detail));
        }
    }
    Ok(conflict(None, "a changed task was not as expected, and is again".to_owned()))
}

fn missing_child(link: &mut Link, writes: &WriteSet) -> Tried<Error> {
    const MISSING: &str = concat!(
        "SELECT w.n FROM unnest($1::uuid[]) WITH ORDINALITY AS w(id, n) WHERE ",
        seq_of!("w.id"),
        " IS NULL ORDER BY w.n"
    );
    let is_new = |child: TaskId| writes.inserts.iter().any(|insert| insert.task.id == child);
    let children: Vec<TaskId> = writes.edges_added.iter().map(|edge| edge.child).filter(|id| !is_new(*id)).collect();
    let rows = link.query(WRITING, MISSING, [uuids(children.iter().map(|id| id.0))])?;
    let first = rows.first().map(|row| field::<i64>(row, 0)).transpose()?;
    let child = first.and_then(|n| children.get(n as usize - 1)).copied();
    Ok(conflict(child, "the child of a new edge does not exist".to_owned()))
}

/// What a unique index was in the way of. The detail says which row: `Key (a, b)=(1, 2) already exists.`
fn exists(writes: &WriteSet, index: &str, detail: &str) -> Error {
    let values = detail.split_once(")=(").and_then(|(_, rest)| rest.rsplit_once(')')).map_or("", |(values, _)| values);
    let number = |n: usize| values.split(", ").nth(n).and_then(|text| text.parse::<u64>().ok());
    let task = match index {
        "tasks_id" | "tasks_done_id" => u128::from_str_radix(&values.replace('-', ""), 16).ok().map(TaskId),
        "tasks_done_seq" | "specs_pkey" => {
            let inserted = writes.inserts.iter().find(|insert| Some(insert.task.seq) == number(0));
            inserted.map(|insert| insert.task.id)
        }
        "messages_pkey" => {
            let mut messages = writes.messages_added.iter().map(|(message, _)| message);
            messages.find(|message| Some(message.task_seq) == number(0)).map(|message| message.task)
        }
        "session_drops_pkey" => {
            let is_it = |drop: &&SessionDrop| number(0) == Some(drop.session.0) && number(1) == Some(drop.n);
            writes.drops_added.iter().find(is_it).map(|drop| drop.task)
        }
        _ => None,
    };
    conflict(task, format!("{index}: ({values}) exists already"))
}

fn conflict(task: Option<TaskId>, detail: String) -> Error {
    Error::Conflict { task, detail }
}

/// The SQL standard's, for a unique index.
const EXISTS: &str = "23505";
