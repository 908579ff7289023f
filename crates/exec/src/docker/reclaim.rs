//! Containers that nobody answers for any more. A supervisor removes its own; one that was killed could not, and what it
//! had asked for last may appear when it is long dead. So the name of a container is taken once ([`super::plan`]), and
//! whoever has the data directory looks again and again for what is left.

use std::collections::BTreeSet;
use std::path::Path;

use super::container::Patience;
use super::engine::{Engine, Error};
use super::owner::Owner;
use super::plan::{name_of, owner_filter, run_of};
use crate::job::{Job, Kind, task_text};
use crate::places::Places;

/// A task and its attempt.
pub(crate) type Run = (u128, u32);

/// Removes all that are not of a run which `is_live`; how many that were. It is asked after the containers are listed,
/// and a run is live before it has a container: so one that has just begun is never taken for one that is left.
pub(crate) async fn sweep(places: &Places, socket: &Path, is_live: impl Fn(&Run) -> bool) -> Result<usize, Error> {
    let Ok(Some(owner)) = Owner::known(places) else { return Ok(0) };
    let engine = Engine::connect(socket).await?;
    let mut n_removed = 0;
    for container in engine.list(owner_filter(&owner)).await? {
        let run = run_of(&container.labels);
        if run.as_ref().is_some_and(&is_live) {
            continue;
        }
        tracing::warn!(container = container.id, ?run, "a container that nobody answers for is removed");
        engine.remove_left(&container.id).await?;
        n_removed += 1;
    }
    Ok(n_removed)
}

/// As [`sweep`], on the engines that these and the configuration name. It blocks: when nothing was ever run in a
/// container from here, not at all.
pub(crate) fn sweep_now(places: &Places, sockets: &BTreeSet<&Path>, live: &BTreeSet<Run>) -> usize {
    if !matches!(Owner::known(places), Ok(Some(_))) {
        return 0;
    }
    let swept = super::apart(async {
        let mut n_removed = 0;
        for socket in sockets {
            match sweep(places, socket, |run| live.contains(run)).await {
                Ok(n) => n_removed += n,
                Err(error) => tracing::warn!(%error, "containers of earlier runs cannot be looked for"),
            }
        }
        n_removed
    });
    swept.unwrap_or_default()
}

/// What a supervisor that is dead had running. An engine that stays away is given up: see [`super::container::AWAY_MAX`].
pub(crate) async fn remove_remains(places: &Places, job: &Job) {
    if job.kind != Kind::Docker {
        return;
    }
    let Ok(Some(owner)) = Owner::known(places) else { return };
    let socket = &job.docker.clone().unwrap_or_default().socket;
    let patience = Patience::new();
    let mut removed = remove_of(socket, &owner, job.task).await;
    while patience.tries_again(&removed).await {
        removed = remove_of(socket, &owner, job.task).await;
    }
    if let Err(error) = removed {
        tracing::warn!(task = job.task_text(), %error, "the container of a lost run cannot be removed");
    }
}

/// Whichever attempt it is of. `Ok` when there is none.
async fn remove_of(socket: &Path, owner: &Owner, task: u128) -> Result<(), Error> {
    Engine::connect(socket).await?.remove_left(&name_of(owner, &task_text(task))).await
}
