//! `runyard workers`: who runs tasks, how each is doing, and what may be asked of one.

use std::collections::BTreeMap;

use comfy_table::{Cell, Color};
use runyard_wire::{Amounts, Id, ListPage, WorkerPage, WorkerStatus, WorkerView};

use crate::cli::Shared;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;
use crate::pages::{Pages, Query};

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Only those of this status: idle, busy, unhealthy, draining, offline
    #[arg(long)]
    status: Option<String>,
    /// Only those with this label
    #[arg(long, value_name = "KEY=VALUE")]
    label: Option<String>,
    /// Only those that run this kind
    #[arg(long)]
    kind: Option<String>,
    #[command(flatten)]
    pages: Pages,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Show one
    Show {
        /// Its id or its name
        worker: String,
    },
    /// Give it nothing new; what it runs goes on
    Drain {
        /// Its id or its name
        worker: String,
    },
    /// Give it work again
    Resume {
        /// Its id or its name
        worker: String,
    },
    /// Forget it; what it holds is given to others
    Rm {
        /// Its id or its name
        worker: String,
    },
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    let answer = match &args.action {
        None => return list(shared, &client, &args).await,
        Some(Action::Rm { worker }) => {
            client.worker_remove(find(&client, worker).await?).await?;
            return Ok(Exit::Done);
        }
        Some(Action::Show { worker }) => client.worker(find(&client, worker).await?).await?,
        Some(Action::Drain { worker }) => client.worker_drain(find(&client, worker).await?).await?,
        Some(Action::Resume { worker }) => client.worker_resume(find(&client, worker).await?).await?,
    };
    if shared.json {
        out::line(&answer.text)?;
    } else {
        show(&answer.read()?)?;
    }
    Ok(Exit::Done)
}

async fn list(shared: &Shared, client: &Client, args: &Args) -> Result<Exit> {
    let filters = [("status", &args.status), ("label", &args.label), ("kind", &args.kind)];
    let query = filters.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
    let read = async |query: Query| Ok(client.worker_list(&query).await?.cast::<ListPage<WorkerView>>());
    args.pages.list((shared, client), query, read, |workers| out::print(&table(workers))).await?;
    Ok(Exit::Done)
}

fn table(workers: &[WorkerView]) -> comfy_table::Table {
    let header = ["NAME", "STATUS", "CPU", "RAM FREE", "RESERVED", "RUNNING", "LABELS", "REASON"];
    let mut table = out::table(&header);
    for worker in workers {
        table.add_row(vec![
            Cell::new(&worker.name),
            status_cell(worker.status),
            out::number(cpu_text(worker)),
            out::number(ram_text(worker)),
            Cell::new(resources_text(&worker.reserved)),
            out::number(running_text(worker)),
            Cell::new(labels_text(&worker.labels)),
            Cell::new(worker.reason.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

fn show(worker: &WorkerView) -> Result<()> {
    let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
    let moment = |at: &Option<runyard_wire::Timestamp>| at.map_or("–".to_owned(), |at| at.to_string());
    let status = match &worker.reason {
        Some(reason) => format!("{}: {reason}", worker.status),
        None => worker.status.to_string(),
    };
    let disk = match (worker.metrics.disk_free_mb, worker.metrics.disk_total_mb) {
        (Some(free), Some(total)) => format!("{free} of {total} MiB free"),
        _ => "–".to_owned(),
    };
    let lines = [
        ("id", worker.id.to_string()),
        ("name", worker.name.clone()),
        ("status", status),
        ("machine", format!("{}, {}", optional(&worker.hostname), optional(&worker.os))),
        ("version", optional(&worker.version)),
        ("kinds", worker.kinds.join(", ")),
        ("labels", labels_text(&worker.labels)),
        ("offers", offer_text(worker)),
        ("reserved", resources_text(&worker.reserved)),
        ("free", resources_text(&worker.free)),
        ("cpu in use", cpu_text(worker)),
        ("ram free", format!("{} MiB", ram_text(worker))),
        ("load", worker.metrics.load1.map_or("–".to_owned(), |load| format!("{load:.2}"))),
        ("disk", disk),
        ("running", worker.running.iter().map(Id::to_string).collect::<Vec<_>>().join(", ")),
        ("cools until", moment(&worker.cooldown_until)),
        ("last seen", moment(&worker.last_seen_at)),
        ("joined", moment(&worker.registered_at)),
    ];
    for (name, text) in lines.iter().filter(|(_, text)| !text.is_empty()) {
        out::line(format!("{name:<12} {text}"))?;
    }
    for gpu in &worker.metrics.gpus {
        let usage = gpu.usage.map_or(String::new(), |usage| format!(", {usage:.0}% in use"));
        let free = gpu.memory_free_mb.map_or(String::new(), |free| format!(", {free} MiB free"));
        out::line(format!("{:<12} {}{usage}{free}", "gpu", gpu.name))?;
    }
    Ok(())
}

/// An id, or a name that only one has.
async fn find(client: &Client, worker: &str) -> Result<Id> {
    if let Ok(id) = worker.parse() {
        return Ok(id);
    }
    let mut found = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut query = vec![("limit", "1000".to_owned())];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page: WorkerPage = client.worker_list(&query).await?.read()?;
        found.extend(page.items.into_iter().filter(|it| it.name == worker).map(|it| it.id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    match found[..] {
        [id] => Ok(id),
        [] => Err(Error::Absent(format!("there is no worker `{worker}`"))),
        _ => {
            let ids = found.iter().map(Id::to_string).collect::<Vec<_>>().join(", ");
            Err(Error::usage(format!("several workers are called `{worker}`; name one by its id: {ids}")))
        }
    }
}

fn status_cell(status: WorkerStatus) -> Cell {
    let colour = match status {
        WorkerStatus::Idle => Color::Green,
        WorkerStatus::Busy => Color::Cyan,
        WorkerStatus::Unhealthy => Color::Red,
        WorkerStatus::Draining => Color::DarkYellow,
        WorkerStatus::Offline => Color::Grey,
    };
    let cell = Cell::new(status);
    if out::has_colour() { cell.fg(colour) } else { cell }
}

pub(super) fn cpu_text(worker: &WorkerView) -> String {
    worker.metrics.cpu_usage.map_or("–".to_owned(), |usage| format!("{usage:.0}%"))
}

pub(super) fn ram_text(worker: &WorkerView) -> String {
    let free = worker.metrics.ram_free_mb.map_or("–".to_owned(), |free| free.to_string());
    format!("{free}/{}", worker.ram_mb)
}

/// How many, and how many there may be.
pub(super) fn running_text(worker: &WorkerView) -> String {
    match worker.max_parallel {
        Some(max) => format!("{}/{max}", worker.running.len()),
        None => worker.running.len().to_string(),
    }
}

pub(super) fn labels_text(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

fn offer_text(worker: &WorkerView) -> String {
    let named = worker.resources.iter().map(|(name, amount)| format!(", {name} {amount}")).collect::<String>();
    let parallel = worker.max_parallel.map_or(String::new(), |max| format!(", {max} at a time"));
    format!("cpu {}, ram {} MiB{named}{parallel}", worker.cpus, worker.ram_mb)
}

pub(super) fn resources_text(resources: &Amounts) -> String {
    let mut parts = vec![format!("cpu {}", resources.cpu), format!("ram {}", resources.ram_mb)];
    parts.extend(resources.named.iter().map(|(name, amount)| format!("{name} {amount}")));
    parts.join(" ")
}
