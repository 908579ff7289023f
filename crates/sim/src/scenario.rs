//! Small worlds in which the right order is known: fairness between agents, weights, aging; and large ones, for what
//! takes more than one tick.

use std::sync::Arc;

use runyard_core::config::{AgentConfig, Config};
use runyard_core::event::{Asked, Event, NewMember, NewTask, SessionAct, Submission, SubmitMode};
use runyard_core::flow::{FlowKey, Place, Resources, Shape};
use runyard_core::ids::TaskId;
use runyard_core::name::Name;
use runyard_core::planted::Bug;
use runyard_core::session::Settings;
use runyard_core::task::Tier;

use crate::generate::{self, Universe};
use crate::rng::Rng;
use crate::worker::{Mood, SimWorker};
use crate::world::World;

/// All of them; a rule that is broken panics.
pub fn play(seed: u64, bug: Option<Bug>) {
    agents_take_turns(seed, bug);
    weights_share_the_slots(seed, bug);
    a_low_task_starts_in_a_stream_of_critical_ones(seed, bug);
    if seed.is_multiple_of(64) {
        flows_that_end_with_their_last_task_are_retired(seed, bug);
        a_session_of_many_is_stopped_whole(seed, bug);
    }
}

/// Equal agents with equal tasks and one slot: nobody is served twice before everybody was served once.
fn agents_take_turns(seed: u64, bug: Option<Bug>) {
    let mut world = world(seed, bug, Config { inflight_max: 1, ..quiet() });
    let agents = ["ada", "bob", "cyd"];
    for n in 0..12 {
        let at = world.rng.below(3) as usize;
        for k in 0..3 {
            submit(&mut world, agents[(at + k + n) % 3], Tier::Normal);
        }
    }
    settle(&mut world, 36);
    let served: Vec<Name> = world.starts.iter().map(|id| agent_of(&world, *id)).collect();
    for turn in served.chunks(3) {
        let mut turn: Vec<&str> = turn.iter().map(Name::as_str).collect();
        turn.sort_unstable();
        assert_eq!(turn, agents, "three starts serve three agents: {served:?}");
    }
}

/// An agent of weight 3 holds three slots for each one of an agent of weight 1.
fn weights_share_the_slots(seed: u64, bug: Option<Bug>) {
    let heavy = AgentConfig { weight: 3, ..AgentConfig::default() };
    let config = Config { inflight_max: 8, agents: [(Name::new("bob"), heavy)].into(), ..quiet() };
    let mut world = world(seed, bug, config);
    for _ in 0..20 {
        submit(&mut world, "ada", Tier::Normal);
        submit(&mut world, "bob", Tier::Normal);
    }
    world.run();
    let held = |name: &str| world.oracle.held.keys().filter(|id| agent_of(&world, **id).as_str() == name).count();
    assert_eq!((held("ada"), held("bob")), (2, 6), "slots follow the weights");
    settle(&mut world, 40);
}

/// Critical tasks never run out, and still a low one starts within a bound.
fn a_low_task_starts_in_a_stream_of_critical_ones(seed: u64, bug: Option<Bug>) {
    let config = Config { inflight_max: 1, aging_ms: 1000, aged_one_in: 10, ..quiet() };
    let mut world = world(seed, bug, config);
    submit(&mut world, "ada", Tier::Critical);
    world.run();
    let low = submit(&mut world, "bob", Tier::Low);
    // Three tiers up takes three seconds; then it is one start in ten, of 100 ms each.
    for _ in 0..60 {
        submit(&mut world, "ada", Tier::Critical);
        submit(&mut world, "ada", Tier::Critical);
        tick_on(&mut world);
        if world.starts.contains(&low) {
            return;
        }
    }
    panic!("a low task waits for ever behind {} critical ones", world.starts.len());
}

/// More flows than memory keeps without tasks, and the oldest of them ends its last task in the tick that retires it.
fn flows_that_end_with_their_last_task_are_retired(seed: u64, bug: Option<Bug>) {
    let config = Config { inflight_max: 0, window_max: 3, ..quiet() };
    let mut world = world(seed, bug, config);
    let first = submit(&mut world, "ada", Tier::Normal);
    cancel(&mut world, first);
    world.run();
    let again = submit(&mut world, "ada", Tier::Normal);
    for n in 0..1023 {
        let id = submit(&mut world, &format!("agent-{n}"), Tier::Normal);
        cancel(&mut world, id);
    }
    world.run();
    let other = submit(&mut world, "bob", Tier::Normal);
    cancel(&mut world, other);
    cancel(&mut world, again);
    world.run();
    // Then 1500 that wait: after a crash each of their queues is read again, more than one read takes.
    let waiting: Vec<TaskId> = (0..1500).map(|n| submit(&mut world, &format!("late-{n}"), Tier::Normal)).collect();
    world.run();
    world.crash();
    world.let_workers_work();
    world.run();
    world.yard().core().sanity_check();
    waiting.into_iter().for_each(|id| cancel(&mut world, id));
    world.run();
    assert!(world.oracle.live.is_empty(), "everything was cancelled");
    world.yard().core().sanity_check();
    world.oracle.recount();
}

/// More members than one tick can stop: those that are left for the next do not start meanwhile.
fn a_session_of_many_is_stopped_whole(seed: u64, bug: Option<Bug>) {
    let mut world = world(seed, bug, Config { inflight_max: 5, ..quiet() });
    let settings = Settings { cap: Some(5000), max_concurrent: Some(3), ..Settings::default() };
    let key = Name::new("many");
    for n in 0..1500 {
        let item = item(&mut world, "ada", Tier::Normal);
        let session = NewMember { key: key.clone(), settings, as_mode: None, sent_at: None };
        let delay_ms = (n % 3 == 0).then_some(600_000);
        send(&mut world, NewTask { session: Some(session), delay_ms, ..item });
    }
    world.run();
    assert_eq!(world.starts.len(), 3, "three run at a time");
    let ticket = world.ticket();
    world.inbox.push(Event::Session { ticket, key, act: SessionAct::StopAll });
    world.run();
    assert_eq!(world.oracle.live.len(), 3, "only what runs is left");
    settle(&mut world, 3);
}

fn cancel(world: &mut World, task: TaskId) {
    let ticket = world.ticket();
    world.inbox.push(Event::Cancel { ticket, task, reason: "asked for".into() });
}

fn quiet() -> Config {
    let mut config = Config::default();
    config.lanes.values_mut().for_each(|lane| lane.limit = 100);
    config
}

fn world(seed: u64, bug: Option<Bug>, config: Config) -> World {
    let mut rng = Rng::new(seed);
    let universe = Universe::draw(&mut rng);
    let mut world = World::with(rng, universe, Arc::new(config), vec![SimWorker::new(generate::calm_worker())], bug);
    world.mood = Mood::Even(100);
    world.let_workers_work();
    world.run();
    world
}

fn submit(world: &mut World, agent: &str, tier: Tier) -> TaskId {
    let item = item(world, agent, tier);
    send(world, item)
}

fn item(world: &mut World, agent: &str, tier: Tier) -> NewTask {
    let id = TaskId(world.rng.id());
    let shape = Shape { kind: Name::new("http"), resources: Resources::default(), place: Place::default() };
    let flow = FlowKey { agent: Name::new(agent), lane: Name::new("main"), tier, shape, gates: Vec::new() };
    NewTask::new(id, flow, Arc::from(b"{}".as_slice()))
}

fn send(world: &mut World, item: NewTask) -> TaskId {
    let id = item.id;
    let ticket = world.ticket();
    let submission = Submission {
        ticket,
        batch: None,
        mode: SubmitMode::All,
        items: vec![item],
        idempotency: None,
        asked: Asked::Once,
    };
    world.inbox.push(Event::Submit(submission));
    id
}

fn agent_of(world: &World, id: TaskId) -> Name {
    world.oracle.births[&id].flow.agent.clone()
}

/// The next 100 ms: what runs ends, and the next ones start.
fn tick_on(world: &mut World) {
    world.let_workers_work();
    world.run();
    world.pass(100);
}

fn settle(world: &mut World, n_starts: usize) {
    for _ in 0..200 {
        tick_on(world);
    }
    assert!(world.oracle.live.is_empty() && world.starts.len() == n_starts, "everything ran once");
    world.yard().core().sanity_check();
}
