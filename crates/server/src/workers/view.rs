//! Workers for whoever looks: what the scheduler knows of each, and what the edge does.

use runyard_core::flow::Resources;
use runyard_core::worker::{WorkerStatus as Status, WorkerView as CoreView};
use runyard_wire::{self as wire, Id, MachineMetrics, Timestamp, WorkerCounts, WorkerStatus, WorkerView};

use super::About;

pub fn worker_view(view: CoreView, metrics: MachineMetrics) -> WorkerView {
    let About { hostname, os, version, .. } = About::read(&view.about);
    let spec = view.spec;
    // The scheduler has them from the embedded worker too.
    let cpu_usage = metrics.cpu_usage.or(view.vitals.cpu_usage_milli.map(|milli| f64::from(milli) / 1000.0));
    let ram_free_mb = metrics.ram_free_mb.or(view.vitals.ram_free_mb);
    WorkerView {
        id: Id(spec.id.0),
        name: spec.name.to_string(),
        hostname,
        os,
        version,
        embedded: spec.embedded,
        status: status(view.status),
        reason: Some(view.reason.to_string()).filter(|reason| !reason.is_empty()),
        kinds: spec.kinds.iter().map(ToString::to_string).collect(),
        labels: spec.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        cpus: cores(spec.capacity.cpu_milli),
        ram_mb: spec.capacity.ram_mb,
        resources: spec.capacity.named.iter().map(|(name, n)| (name.to_string(), *n)).collect(),
        max_parallel: spec.parallel_max,
        reserved: amounts(&view.reserved),
        free: amounts(&view.free),
        running: view.held.iter().map(|task| Id(task.0)).collect(),
        metrics: MachineMetrics { cpu_usage, ram_free_mb, ..metrics },
        cooldown_until: view.cooling_until.map(Timestamp),
        draining: view.draining,
        last_seen_at: view.seen_at.map(Timestamp),
        registered_at: view.registered_at.map(Timestamp),
    }
}

pub fn counts<'a>(views: impl IntoIterator<Item = &'a CoreView>) -> WorkerCounts {
    let mut counts = WorkerCounts::default();
    for view in views {
        let count = match view.status {
            Status::Idle => &mut counts.idle,
            Status::Busy => &mut counts.busy,
            Status::Unhealthy => &mut counts.unhealthy,
            Status::Draining => &mut counts.draining,
            Status::Offline => &mut counts.offline,
        };
        *count += 1;
    }
    counts
}

fn status(status: Status) -> WorkerStatus {
    match status {
        Status::Idle => WorkerStatus::Idle,
        Status::Busy => WorkerStatus::Busy,
        Status::Unhealthy => WorkerStatus::Unhealthy,
        Status::Draining => WorkerStatus::Draining,
        Status::Offline => WorkerStatus::Offline,
    }
}

fn amounts(resources: &Resources) -> wire::Amounts {
    wire::Amounts {
        cpu: cores(resources.cpu_milli),
        ram_mb: resources.ram_mb,
        named: resources.named.iter().map(|(name, n)| (name.to_string(), *n)).collect(),
    }
}

fn cores(milli: u32) -> f64 {
    f64::from(milli) / 1000.0
}
