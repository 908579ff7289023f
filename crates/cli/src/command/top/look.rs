//! One look at the server: everything that a picture shows.

use std::cmp::Reverse;

use runyard_wire::{AgentView, LaneView, StatsView, TaskView, WorkerView};

use crate::client::Client;
use crate::error::Result;

/// More rows than an eye goes through; the tables say how many there are.
const ROWS: u32 = 200;

pub struct Look {
    pub url: String,
    pub stats: StatsView,
    pub agents: Vec<AgentView>,
    pub lanes: Vec<LaneView>,
    pub workers: Vec<WorkerView>,
    pub running: Vec<TaskView>,
}

impl Look {
    pub async fn at(client: &Client) -> Result<Look> {
        let limit = || ("limit", ROWS.to_string());
        let running_query = [("state", "running".to_owned()), limit()];
        let workers_query = [limit()];
        let (stats, agents, lanes, workers, running) = tokio::try_join!(
            client.stats(),
            client.agent_list(),
            client.lane_list(),
            client.worker_list(&workers_query),
            client.task_list(&running_query),
        )?;
        let mut look = Look {
            url: client.base().to_string(),
            stats: stats.read()?,
            agents: agents.read()?.items,
            lanes: lanes.read()?.items,
            workers: workers.read()?.items,
            running: running.read()?.items,
        };
        look.sort();
        Ok(look)
    }

    /// The busiest first, and of tasks the oldest.
    fn sort(&mut self) {
        self.agents.sort_by_key(|it| (Reverse((it.counts.running, it.counts.queued)), it.name.clone()));
        self.lanes.sort_by_key(|it| (Reverse((it.running, it.queued)), it.name.clone()));
        self.workers.sort_by_key(|it| (Reverse(it.running.len()), it.name.clone(), it.id));
        self.running.sort_by_key(|it| (it.status.started_at, it.status.id));
    }
}
