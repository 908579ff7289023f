//! The workers and the work of the placement figures: of all sizes and places, the same in every run.

use runyard_core::event::{NewTask, WorkerSpec};
use runyard_core::flow::{FlowKey, Place, Resources, Shape};
use runyard_core::hash::mix;
use runyard_core::ids::{TaskId, WorkerId};
use runyard_core::name::Name;
use runyard_core::task::Tier;
use runyard_core::worker::WorkerRow;

const KINDS: [&str; 3] = ["process", "docker", "render"];
const ZONES: u64 = 8;
const AGENTS: u64 = 10;
const CPUS: [u32; 5] = [2, 4, 8, 16, 32];
const TASK_CPU_MILLI: [u32; 6] = [250, 500, 1000, 1000, 2000, 4000];

pub fn worker(n: u64) -> WorkerRow {
    let draw = mix(n ^ 0x0077_6f72_6b65_7273);
    let cpus = CPUS[(draw % 5) as usize];
    let has_gpu = (draw >> 8).is_multiple_of(10);
    let disk = if (draw >> 16).is_multiple_of(2) { "ssd" } else { "hdd" };
    let zone = (draw >> 24) % ZONES;
    let runs_render = (draw >> 32).is_multiple_of(3);
    let is_bounded = (draw >> 40).is_multiple_of(2);
    let spec = WorkerSpec {
        id: WorkerId(u128::from(n) + 1),
        name: Name::from(format!("worker-{n}")),
        kinds: KINDS.iter().take(if runs_render { 3 } else { 2 }).map(|kind| Name::new(kind)).collect(),
        keeps: Vec::new(),
        capacity: Resources {
            cpu_milli: cpus * 1000,
            ram_mb: cpus * 4096,
            named: if has_gpu { vec![("gpu".into(), 4)] } else { Vec::new() },
        },
        parallel_max: is_bounded.then_some(cpus),
        labels: vec![("disk".into(), disk.into()), label("zone", zone)],
        embedded: false,
    };
    WorkerRow { spec, session: n, draining: false, registered_at: 0, about: Vec::new().into() }
}

pub fn task(n: u64, n_shapes: u64) -> NewTask {
    let which = mix(n) % n_shapes;
    let agent = Name::from(format!("agent-{}", which % AGENTS));
    let flow = FlowKey { agent, lane: "main".into(), tier: Tier::Normal, shape: shape(which), gates: Vec::new() };
    NewTask::new(TaskId(u128::from(n) + 1), flow, b"{}".as_slice().into())
}

/// One in four must be in a zone, one in five on a fast disk; as many prefer and avoid; one in eight is spread over the
/// zones; one in twenty needs a gpu.
fn shape(which: u64) -> Shape {
    let draw = mix(which ^ 0x0073_6861_7065_7300);
    let wants = |bits: u32, one_in: u64| (draw >> bits).is_multiple_of(one_in);
    let cpu_milli = TASK_CPU_MILLI[(draw % 6) as usize];
    let mut place = Place::default();
    if wants(8, 4) {
        place.require.push(label("zone", (draw >> 11) % ZONES));
    } else if wants(14, 4) {
        place.prefer.push(label("zone", (draw >> 17) % ZONES));
    } else if wants(20, 6) {
        place.spread_by = Some("zone".into());
    }
    if wants(26, 5) {
        place.require.insert(0, ("disk".into(), "ssd".into()));
    } else if wants(32, 5) {
        place.avoid.push(("disk".into(), "hdd".into()));
    }
    let named = if wants(38, 20) { vec![("gpu".into(), 1)] } else { Vec::new() };
    // Its number makes it a shape of its own, whatever was drawn.
    let ram_mb = cpu_milli + which as u32;
    let kind = Name::new(KINDS[((draw >> 44) % 3) as usize]);
    Shape { kind, resources: Resources { cpu_milli, ram_mb, named }, place }
}

fn label(key: &str, n: u64) -> (Name, Name) {
    (Name::new(key), Name::from(format!("{key}-{n}")))
}
