//! Workers as series: how many of each status, and what each of them has.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use runyard_core::worker::{WorkerStatus, WorkerView};
use runyard_wire::Id;

/// Workers with series of their own, the first by id; all of them are counted.
pub const WORKERS_MAX: usize = 1000;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Status {
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Which {
    worker: String,
    id: String,
}

type Value = fn(&WorkerView) -> Option<f64>;

const MIB: f64 = 1024.0 * 1024.0;

/// What is not known of a worker is left out.
const SERIES: [(&str, &str, Value); 8] = [
    ("up", "Whether it is heard", |view| Some(f64::from(u8::from(view.status != WorkerStatus::Offline)))),
    ("cpu_usage_percent", "Of all its cores, as it says", |view| {
        view.vitals.cpu_usage_milli.map(|milli| f64::from(milli) / 1000.0)
    }),
    ("ram_free_bytes", "Memory not in use, as it says", |view| view.vitals.ram_free_mb.map(|mb| f64::from(mb) * MIB)),
    ("reserved_cpu", "Cores reserved for its tasks", |view| Some(f64::from(view.reserved.cpu_milli) / 1000.0)),
    ("reserved_ram_bytes", "Memory reserved for its tasks", |view| Some(f64::from(view.reserved.ram_mb) * MIB)),
    ("capacity_cpu", "Cores it offers", |view| Some(f64::from(view.spec.capacity.cpu_milli) / 1000.0)),
    ("capacity_ram_bytes", "Memory it offers", |view| Some(f64::from(view.spec.capacity.ram_mb) * MIB)),
    ("running_tasks", "Tasks it holds", |view| Some(view.held.len() as f64)),
];

pub fn register(registry: &mut Registry, views: &[WorkerView]) {
    let counts = Family::<Status, Gauge>::default();
    registry.register("workers", "Workers now, by status", counts.clone());
    for status in WorkerStatus::ALL {
        let n = views.iter().filter(|view| view.status == status).count();
        counts.get_or_create(&Status { status: status.as_str() }).set(n as i64);
    }
    for (name, help, value) in SERIES {
        let family = Family::<Which, Gauge<f64, AtomicU64>>::default();
        registry.register(format!("worker_{name}"), help, family.clone());
        for view in views.iter().take(WORKERS_MAX) {
            if let Some(value) = value(view) {
                let which = Which { worker: view.spec.name.to_string(), id: Id(view.spec.id.0).to_string() };
                family.get_or_create(&which).set(value);
            }
        }
    }
}
