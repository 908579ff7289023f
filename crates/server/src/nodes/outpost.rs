//! The worker of a node, whatever the node is: under a scheduler of its own it is told directly what to do, and else it
//! speaks the worker protocol to the node that has one, as any worker on another machine does. It is the same worker over
//! every change: what it runs goes on, and is presented to each new holder.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::Client;
use runyard_core::event::{Event, Held};
use runyard_core::flow::Resources;
use runyard_core::ids::WorkerId;
use runyard_wire::{Id, WorkerRequest};
use runyard_worker::remote::{Attached, AttachedOptions};
use runyard_worker::{Link, Worker, machine};
use tokio_util::sync::CancellationToken;

use super::member::Role;
use super::peer::{self, NODE};
use crate::handle::Handle;
use crate::nodes::Cluster;

/// Which worker a node speaks for, when it introduces its own.
pub const WORKER: HeaderName = HeaderName::from_static("runyard-worker");

/// Where a node's worker reports to.
#[derive(Clone)]
pub struct OutpostLink {
    handle: Handle,
    away: Arc<Attached>,
    mode: Arc<RwLock<Mode>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// To the scheduler in this process.
    Here,
    /// To the holder, by letter.
    Away,
}

impl OutpostLink {
    /// Reports wait until it is known who they are for: the worker repeats them to whoever that is.
    pub fn new(handle: Handle) -> OutpostLink {
        OutpostLink { handle, away: Arc::default(), mode: Arc::new(RwLock::new(Mode::Away)) }
    }

    /// For a server that has the only scheduler there is.
    pub fn sole(handle: Handle) -> OutpostLink {
        OutpostLink { mode: Arc::new(RwLock::new(Mode::Here)), ..OutpostLink::new(handle) }
    }

    /// The scheduler in this process begins: the worker presents itself to it.
    pub fn come_home(&self) {
        *self.mode.write().expect(UNPOISONED) = Mode::Here;
        self.away.clear();
    }

    /// It has ended.
    pub fn go_away(&self) {
        *self.mode.write().expect(UNPOISONED) = Mode::Away;
    }

    fn mode(&self) -> Mode {
        *self.mode.read().expect(UNPOISONED)
    }
}

const UNPOISONED: &str = "no thread panics while it holds the mode";

impl Link for OutpostLink {
    fn report(&self, events: Vec<Event>) {
        match self.mode() {
            Mode::Here => self.handle.tell(events),
            Mode::Away => self.away.report(events),
        }
    }

    fn log_grew(&self, lease: Held, log_bytes: u64) {
        if self.mode() == Mode::Away {
            self.away.log_grew(lease, log_bytes);
        }
    }
}

/// What the worker says of itself to other nodes.
pub struct Outpost {
    pub link: OutpostLink,
    pub worker: Worker,
    pub capacity: Resources,
    pub drain: Duration,
}

impl Outpost {
    /// Speaks to each holder in turn, until `leave` is cancelled and the work is handed over.
    pub async fn run(self, cluster: Arc<Cluster>, leave: CancellationToken) {
        let mut roles = cluster.member.roles();
        loop {
            let role = roles.borrow_and_update().clone();
            let Role::Follower { url, .. } = role else {
                tokio::select! {
                    changed = roles.changed() => if changed.is_err() { return },
                    () = leave.cancelled() => return,
                }
                continue;
            };
            let Some(options) = self.options(&cluster, &url) else { return };
            tokio::select! {
                () = self.link.away.speak(&self.worker, options, &leave) => return,
                _ = roles.changed() => {}
            }
        }
    }

    fn options(&self, cluster: &Cluster, url: &str) -> Option<AttachedOptions> {
        let http = client(cluster, self.worker.id()).inspect_err(|error| {
            tracing::error!(target: "runyard::nodes", %error, "this node's worker cannot speak to the holder");
        });
        Some(AttachedOptions {
            http: http.ok()?,
            server: peer::parsed(url)?,
            about: self.about(cluster),
            drain: self.drain,
        })
    }

    fn about(&self, cluster: &Cluster) -> WorkerRequest {
        let kinds = self.worker.kinds();
        let names = |keeps: bool| {
            let named = kinds.iter().filter(|kind| !keeps || self.worker.keeps(**kind));
            named.map(|kind| kind.as_str().to_owned()).collect()
        };
        WorkerRequest {
            name: cluster.member.card().name.clone(),
            hostname: machine::hostname(),
            os: Some(std::env::consts::OS.to_owned()),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            cpus: f64::from(self.capacity.cpu_milli) / 1000.0,
            ram_mb: self.capacity.ram_mb,
            labels: Default::default(),
            kinds: names(false),
            keeps: names(true),
            max_parallel: None,
            resources: Default::default(),
        }
    }
}

/// Every call says that it comes from a node, and for which worker.
fn client(cluster: &Cluster, worker: WorkerId) -> reqwest::Result<Client> {
    let mut headers = HeaderMap::new();
    headers.insert(NODE, cluster.peers.secret().clone());
    if let Ok(id) = HeaderValue::from_str(&Id(worker.0).to_string()) {
        headers.insert(WORKER, id);
    }
    cluster.peers.client().default_headers(headers).build()
}
