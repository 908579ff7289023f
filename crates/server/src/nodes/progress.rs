//! How far running tasks are, told to the nodes that follow.
//!
//! Progress is no state: it is in no commit and in no table. Whoever runs a task tells the holder, and each follower asks the
//! holder for what is new, all the time: so a stream at any node has it, and any node can show it with a task. It costs little,
//! because of each task only the latest counts: an answer has one line for each task that said something since the answer
//! before, and there are at most twenty answers a second. What a slow node did not ask for in time is overtaken.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use runyard_core::ids::TaskId;
use runyard_wire::{Id, Progress as Said};
use runyard_worker::{Progress, ProgressEvent};
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, watch};

use super::member::Role;
use crate::app::App;
use crate::nodes::Cluster;

/// Tasks of which the latest is kept. Beyond it those go that have said nothing for the longest time.
const TASKS_MAX: usize = 20_000;
/// In one answer.
const ITEMS_MAX: usize = 1000;
/// Between two questions, so that what comes meanwhile comes together.
const PACE: Duration = Duration::from_millis(50);
/// A holder that has nothing to tell answers after this long.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Beyond that, for the way there and back; and after a call that failed.
const WAIT_MARGIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(250);

/// The latest of each task, numbered as it came.
#[derive(Default)]
pub struct Latest {
    state: Mutex<State>,
    last: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    by_task: HashMap<TaskId, (u64, ProgressEvent)>,
    by_number: BTreeMap<u64, TaskId>,
    last: u64,
}

/// What the holder answers.
#[derive(Serialize, Deserialize, Default)]
pub struct Told {
    /// The number of the last item.
    last: u64,
    items: Vec<Item>,
}

#[derive(Serialize, Deserialize)]
struct Item {
    task: Id,
    attempt: u32,
    said: Said,
}

impl Latest {
    pub fn note(&self, event: ProgressEvent) {
        let mut state = self.lock();
        state.last += 1;
        let (n, task) = (state.last, event.task);
        if let Some((earlier, _)) = state.by_task.insert(task, (n, event)) {
            state.by_number.remove(&earlier);
        }
        state.by_number.insert(n, task);
        if state.by_task.len() > TASKS_MAX
            && let Some((_, oldest)) = state.by_number.pop_first()
        {
            state.by_task.remove(&oldest);
        }
        drop(state);
        self.last.send_replace(n);
    }

    /// What this attempt said last.
    pub fn of(&self, task: TaskId, attempt: u32) -> Option<Progress> {
        let state = self.lock();
        let (_, event) = state.by_task.get(&task).filter(|(_, event)| event.attempt == attempt)?;
        Some(event.progress.clone())
    }

    /// What came behind `after`, as soon as there is something, or nothing after a while.
    pub async fn behind(&self, after: u64) -> Told {
        let mut last = self.last.subscribe();
        // Numbers that it never gave are of an earlier process at this address.
        let after = if after > *last.borrow() { 0 } else { after };
        let _ = tokio::time::timeout(WAIT_MAX, last.wait_for(|last| *last > after)).await;
        self.read(after)
    }

    fn read(&self, after: u64) -> Told {
        let state = self.lock();
        let mut told = Told { last: after, items: Vec::new() };
        for (n, task) in state.by_number.range(after + 1..).take(ITEMS_MAX) {
            let (_, ProgressEvent { attempt, progress, .. }) = &state.by_task[task];
            told.items.push(Item {
                task: Id(task.0),
                attempt: *attempt,
                said: crate::view::wire_progress(progress.clone()),
            });
            told.last = *n;
        }
        told
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the progress")
    }
}

/// Keeps the latest of whatever is told at this node, until the server stops.
pub async fn gather(app: Arc<App>, cluster: Arc<Cluster>) {
    let mut events = app.worker.subscribe_progress();
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = app.stop.cancelled() => return,
        };
        match event {
            Ok(event) => cluster.progress.note(event),
            // What was missed is overtaken by what comes.
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// Has the holder say how far tasks are that run elsewhere, and tells it here.
pub async fn follow(app: Arc<App>, cluster: Arc<Cluster>) {
    let mut roles = cluster.member.roles();
    // Of this holder.
    let mut after = 0;
    loop {
        let role = roles.borrow_and_update().clone();
        let pause = match role {
            Role::Follower { url, .. } => tokio::select! {
                told = ask(&cluster, &url, after) => match told {
                    Some(told) => {
                        after = told.last;
                        tell(&app, told);
                        PACE
                    }
                    None => PAUSE,
                },
                _ = roles.changed() => {
                    after = 0;
                    continue;
                }
                () = app.stop.cancelled() => return,
            },
            Role::Holder | Role::Unknown => WAIT_MAX,
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = roles.changed() => match changed {
                Ok(()) => after = 0,
                Err(_) => return,
            },
            () = app.stop.cancelled() => return,
        }
    }
}

async fn ask(cluster: &Cluster, url: &str, after: u64) -> Option<Told> {
    let call = cluster.peers.get(url, &format!("/v1/nodes/progress?after={after}")).timeout(WAIT_MAX + WAIT_MARGIN);
    let answer = call.send().await.ok().filter(|answer| answer.status().is_success())?;
    serde_json::from_slice(&answer.bytes().await.ok()?).ok()
}

/// What runs here was told here already.
fn tell(app: &App, told: Told) {
    let held = app.worker.held();
    for Item { task, attempt, said } in told.items {
        let task = TaskId(task.0);
        if held.iter().any(|lease| (lease.task, lease.attempt) == (task, attempt)) {
            continue;
        }
        let progress = Progress { fraction: said.fraction, message: said.message };
        app.worker.tell_progress(ProgressEvent { task, attempt, progress });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(task: u128, message: &str) -> ProgressEvent {
        let progress = Progress { fraction: None, message: Some(message.to_owned()) };
        ProgressEvent { task: TaskId(task), attempt: 1, progress }
    }

    fn messages(told: &Told) -> Vec<&str> {
        told.items.iter().filter_map(|item| item.said.message.as_deref()).collect()
    }

    #[tokio::test]
    async fn of_each_task_the_latest_is_told_once() {
        let latest = Latest::default();
        [event(1, "a"), event(2, "b"), event(1, "c")].into_iter().for_each(|event| latest.note(event));
        let told = latest.behind(0).await;
        assert_eq!((told.last, messages(&told)), (3, vec!["b", "c"]));
        latest.note(event(2, "d"));
        let told = latest.behind(told.last).await;
        assert_eq!((told.last, messages(&told)), (4, vec!["d"]));
        assert_eq!(messages(&latest.behind(9).await), ["c", "d"], "a number of another process means nothing");
        assert_eq!(latest.of(TaskId(1), 1).and_then(|progress| progress.message).as_deref(), Some("c"));
        assert_eq!(latest.of(TaskId(1), 2), None, "another attempt has said nothing yet");
    }

    #[tokio::test]
    async fn what_waits_has_a_limit_and_comes_in_parts() {
        let latest = Latest::default();
        (0..TASKS_MAX as u128 + 10).for_each(|task| latest.note(event(task, "x")));
        assert_eq!(latest.lock().by_task.len(), TASKS_MAX);
        assert_eq!(latest.lock().by_number.len(), TASKS_MAX);
        assert_eq!(latest.of(TaskId(9), 1), None, "the oldest are gone");
        let told = latest.behind(0).await;
        assert_eq!((told.items.len(), told.last), (ITEMS_MAX, 10 + ITEMS_MAX as u64));
    }
}
