//! Finding a schedule, and whether the caller may see and touch it.

use runyard_core::ids::ScheduleId;
use runyard_core::name::{Blob, Name};
use runyard_core::schedule::{Run, Schedule};
use runyard_store::store::{self, Reader, ScheduleFilter};
use runyard_wire::{Id, ScheduleRequest};

use crate::access::Caller;
use crate::app::App;
use crate::intake::AGENT_DEFAULT;
use crate::problem::Error;

/// A schedule as the store has it.
pub struct Found {
    pub row: Schedule,
    pub asked: ScheduleRequest,
    /// Its latest run.
    pub last: Option<Run>,
}

/// The schedule of this id or name, if the caller may see and touch it.
pub async fn own(app: &App, caller: &Caller, text: &str) -> Result<Found, Error> {
    let wanted = text.to_owned();
    let found = app.read(move |reader| find(reader, &wanted)).await?.ok_or_else(|| not_found(text))?;
    let (row, spec, last) = found;
    let asked = read_spec(&spec)?;
    let agent = agent_of(&asked);
    if !caller.may_act_for(agent) {
        return Err(Error::ForeignAgent(agent.to_owned()));
    }
    Ok(Found { row, asked, last })
}

/// Whoever names a schedule of an event stream.
pub async fn may_see(app: &App, caller: &Caller, id: ScheduleId) -> Result<(), Error> {
    own(app, caller, &Id(id.0).to_string()).await.map(drop)
}

fn find(reader: &dyn Reader, text: &str) -> store::Result<Option<(Schedule, Blob, Option<Run>)>> {
    let id = match text.parse::<Id>() {
        Ok(id) => Some(ScheduleId(id.0)),
        Err(_) => reader.schedule_named(text)?,
    };
    let Some(id) = id else { return Ok(None) };
    let Some((row, spec)) = reader.schedule(id)? else { return Ok(None) };
    let last = reader.runs(id, None, 1)?.into_iter().next();
    Ok(Some((row, spec, last)))
}

type PageFound = (Vec<(Schedule, Blob, Option<Run>)>, Option<ScheduleId>);

pub fn page(reader: &dyn Reader, filter: &ScheduleFilter, after: Option<Id>, limit: usize) -> store::Result<PageFound> {
    let page = reader.schedules(filter, after.map(|id| ScheduleId(id.0)), limit)?;
    let mut found = Vec::with_capacity(page.items.len());
    for (row, spec) in page.items {
        let last = reader.runs(row.id, None, 1)?.into_iter().next();
        found.push((row, spec, last));
    }
    Ok((found, page.next))
}

/// Of a schedule that is gone only its runs are left, and of those only a task says whose it was.
pub async fn deleted(app: &App, caller: &Caller, text: &str) -> Result<ScheduleId, Error> {
    let id = ScheduleId(text.parse::<Id>().map_err(|_| not_found(text))?.0);
    if !caller.agents.is_bound() {
        return Ok(id);
    }
    let agent = app.read(move |reader| agent_of_runs(reader, id)).await?.ok_or_else(|| not_found(text))?;
    if caller.may_act_for(&agent) { Ok(id) } else { Err(Error::ForeignAgent(agent.to_string())) }
}

fn agent_of_runs(reader: &dyn Reader, id: ScheduleId) -> store::Result<Option<Name>> {
    let runs = reader.runs(id, None, 1)?;
    let Some(task) = runs.first().and_then(|run| run.task) else { return Ok(None) };
    Ok(reader.task(task)?.map(|doc| doc.agent))
}

pub fn agent_of(asked: &ScheduleRequest) -> &str {
    asked.task.agent.as_deref().unwrap_or(AGENT_DEFAULT)
}

pub fn read_spec(spec: &[u8]) -> Result<ScheduleRequest, Error> {
    serde_json::from_slice(spec).map_err(|_| Error::Internal("a stored schedule cannot be read".into()))
}

pub fn not_found(text: &str) -> Error {
    Error::NotFound { what: "schedule", id: text.chars().take(64).collect() }
}
