//! Agents and lanes: what they are doing, and what they may. A change is a patch of the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use runyard_core::write::{CountDelta, CountKey};
use runyard_wire::{AgentPut, AgentView, Counts, LanePut, LaneView, ListPage, Priority};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::extract::{Body, NamePath};
use crate::access::Caller;
use crate::app::App;
use crate::audit::Entry;
use crate::config;
use crate::problem::{Error, Invalid};

/// Agents that have tasks or settings.
#[utoipa::path(get, path = "/v1/agents", tag = "agents and lanes",
    responses((status = 200, description = "All of them, by name", body = ListPage<AgentView>)))]
pub async fn agents(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<ListPage<AgentView>>, Error> {
    let counts = app.read(|reader| reader.counts()).await?;
    let by_agent = sums(&counts, |key| &key.agent);
    let config = app.config.current();
    let names = by_agent.keys().copied().chain(config.config.agents.keys().map(String::as_str));
    let names: BTreeSet<&str> = names.filter(|name| caller.may_act_for(name)).collect();
    let view = |name| agent_view(name, by_agent.get(name).copied().unwrap_or_default(), &config.config);
    Ok(Json(ListPage { items: names.into_iter().map(view).collect(), next_cursor: None }))
}

/// Change an agent's limit, weight, highest priority, or pause it.
#[utoipa::path(put, path = "/v1/agents/{name}", tag = "agents and lanes", params(("name" = String, Path)), request_body = AgentPut,
    responses((status = 200, description = "The agent as it is now", body = AgentView)))]
pub async fn put_agent(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    NamePath(name): NamePath,
    body: Body<AgentPut>,
) -> Result<Json<AgentView>, Error> {
    let entry = Entry::new("agent.set").of(&*name);
    app.patch_config(&caller.actor, entry, patch_of("agents", &name, &body.value)).await?;
    let counts = app.read(|reader| reader.counts()).await?;
    let count = sums(&counts, |key| &key.agent).get(&*name).copied().unwrap_or_default();
    let config = app.config.current();
    Ok(Json(agent_view(&name, count, &config.config)))
}

/// The lanes.
#[utoipa::path(get, path = "/v1/lanes", tag = "agents and lanes",
    responses((status = 200, description = "All of them, by name", body = ListPage<LaneView>)))]
pub async fn lanes(State(app): State<Arc<App>>) -> Result<Json<ListPage<LaneView>>, Error> {
    let counts = app.read(|reader| reader.counts()).await?;
    let config = app.config.current();
    let by_lane = by_lane_in_force(&counts, &config.config);
    let items = config.config.lanes.keys().filter_map(|name| lane_view(name, &by_lane, &config.config)).collect();
    Ok(Json(ListPage { items, next_cursor: None }))
}

/// Change a lane's limit, or pause it. A new name makes a new lane and needs a limit.
#[utoipa::path(put, path = "/v1/lanes/{name}", tag = "agents and lanes", params(("name" = String, Path)), request_body = LanePut,
    responses((status = 200, description = "The lane as it is now", body = LaneView)))]
pub async fn put_lane(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    NamePath(name): NamePath,
    body: Body<LanePut>,
) -> Result<Json<LaneView>, Error> {
    let is_new = !app.config.current().config.lanes.contains_key(&*name);
    if is_new && body.value.limit.is_none() {
        return Err(Invalid::new("limit", format!("is needed: there is no lane `{name}` yet")).into());
    }
    let entry = Entry::new("lane.set").of(&*name);
    app.patch_config(&caller.actor, entry, patch_of("lanes", &name, &body.value)).await?;
    let counts = app.read(|reader| reader.counts()).await?;
    let config = app.config.current();
    let by_lane = by_lane_in_force(&counts, &config.config);
    lane_view(&name, &by_lane, &config.config).map(Json).ok_or_else(|| Error::Internal("the lane is gone again".into()))
}

/// Only this agent or lane, as a patch.
fn patch_of(section: &str, name: &str, change: &impl Serialize) -> Map<String, Value> {
    let change = serde_json::to_value(change).expect("a request is plain data");
    Map::from_iter([(section.to_owned(), json!({ name: change }))])
}

pub fn sums(counts: &[(CountKey, CountDelta)], of: fn(&CountKey) -> &str) -> BTreeMap<&str, CountDelta> {
    let mut sums: BTreeMap<&str, CountDelta> = BTreeMap::new();
    for (key, count) in counts {
        let sum = sums.entry(of(key)).or_default();
        *sum = plus(sum, count);
    }
    sums
}

/// A task of an unknown lane counts where it runs: in main.
pub fn by_lane_in_force<'a>(
    counts: &'a [(CountKey, CountDelta)],
    config: &config::Config,
) -> BTreeMap<&'a str, CountDelta> {
    let mut sums: BTreeMap<&str, CountDelta> = BTreeMap::new();
    for (key, count) in counts {
        let is_known = config.lanes.contains_key(&*key.lane);
        let sum = sums.entry(if is_known { &key.lane } else { runyard_core::config::LANE_MAIN }).or_default();
        *sum = plus(sum, count);
    }
    sums
}

pub fn plus(a: &CountDelta, b: &CountDelta) -> CountDelta {
    let (mut values, more) = (a.values(), b.values());
    values.iter_mut().zip(more).for_each(|(value, more)| *value += more);
    CountDelta::from_values(values)
}

pub fn shown(count: &CountDelta) -> Counts {
    let whole = |n: i64| u64::try_from(n).unwrap_or(0);
    Counts {
        waiting: whole(count.waiting),
        scheduled: whole(count.scheduled),
        queued: whole(count.queued),
        running: whole(count.assigned + count.running),
        completed: whole(count.completed),
        failed: whole(count.failed),
        cancelled: whole(count.cancelled),
        rejected: whole(count.rejected),
    }
}

fn agent_view(name: &str, count: CountDelta, config: &config::Config) -> AgentView {
    let settings = config.agents.get(name).cloned().unwrap_or_default();
    let max_priority = settings.max_priority.map(|priority| match priority {
        config::Priority::Critical => Priority::Critical,
        config::Priority::High => Priority::High,
        config::Priority::Normal => Priority::Normal,
        config::Priority::Low => Priority::Low,
    });
    AgentView {
        name: name.to_owned(),
        max_inflight: settings.max_inflight.or(config.limits.max_inflight_per_agent),
        weight: settings.weight.unwrap_or(1),
        paused: settings.paused.unwrap_or(false),
        max_priority,
        counts: shown(&count),
    }
}

fn lane_view(name: &str, by_lane: &BTreeMap<&str, CountDelta>, config: &config::Config) -> Option<LaneView> {
    let lane = config.lanes.get(name)?;
    let count = shown(&by_lane.get(name).copied().unwrap_or_default());
    Some(LaneView {
        name: name.to_owned(),
        limit: lane.limit,
        paused: lane.paused,
        running: count.running,
        queued: count.queued,
        waiting: count.waiting + count.scheduled,
    })
}
