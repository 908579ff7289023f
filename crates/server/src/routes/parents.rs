//! Which parents does a task wait for, and may it? The scheduler counts them; whose they are, and their states, are in
//! the store.

use runyard_core::explain::{Explanation, HOLDERS_MAX};
use runyard_core::ids::TaskId;
use runyard_core::task::Text;
use runyard_store::store;
use runyard_wire::Id;

use crate::access::Caller;
use crate::app::App;
use crate::problem::Error;
use crate::view;

/// Parents looked up for one answer.
const PARENTS_LOOKED_AT: usize = 200;

/// Names the parents that hold a task back, in its `dependencies` gate.
pub async fn name_parents(app: &App, explanation: &mut Explanation) -> Result<(), Error> {
    let Some(gate) = explanation.gates.iter_mut().find(|gate| gate.kind == "dependencies" && !gate.open) else {
        return Ok(());
    };
    let task = explanation.task;
    let Some(doc) = app.read(move |reader| reader.task(task)).await? else { return Ok(()) };
    let depends_on = view::stored_spec(&doc)?.depends_on;
    let parents = app.read(move |reader| states(reader, &depends_on)).await?;
    let open: Vec<&(Id, Option<&'static str>)> =
        parents.iter().filter(|(_, state)| *state != Some("completed")).collect();
    let named: Vec<String> = open
        .iter()
        .take(HOLDERS_MAX)
        .map(|(id, state)| format!("{id} ({})", state.unwrap_or("unknown: no such task")))
        .collect();
    gate.holders = open.iter().take(HOLDERS_MAX).map(|(id, _)| TaskId(id.0)).collect();
    if !named.is_empty() {
        gate.detail = Text::from(format!("waits for {}", named.join(", ")));
    }
    Ok(())
}

/// A key that is bound to agents may wait for their tasks only: the end of another's would tell how that went. One that is
/// not known (yet) is nobody's.
pub async fn may_wait_for(app: &App, caller: &Caller, parents: Vec<TaskId>) -> Result<(), Error> {
    if parents.is_empty() || !caller.agents.is_bound() {
        return Ok(());
    }
    let agents = caller.agents.clone();
    let foreign = app.read(move |reader| {
        for id in parents {
            if let Some(doc) = reader.task(id)?.filter(|doc| !agents.allows_agent(&doc.agent)) {
                return Ok(Some((id, doc.agent)));
            }
        }
        Ok(None)
    });
    match foreign.await? {
        Some((id, agent)) => Err(Error::ForeignParent { task: Id(id.0), agent: agent.to_string() }),
        None => Ok(()),
    }
}

fn states(reader: &dyn store::Reader, ids: &[Id]) -> store::Result<Vec<(Id, Option<&'static str>)>> {
    let state = |id: &Id| {
        let doc = reader.task(TaskId(id.0))?;
        Ok((*id, doc.map(|doc| doc.task.phase().as_str())))
    };
    ids.iter().take(PARENTS_LOOKED_AT).map(state).collect()
}
