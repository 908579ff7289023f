//! Several nodes on one PostgreSQL, as a test sees them: a database of their own, processes with addresses, and the one
//! key that the first of them makes and all of them know.

#![allow(dead_code, reason = "each test file uses its own part")]

mod node;
mod press;
mod record;
mod transaction;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runyard_testbed::{Options, Postgres};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Answer, is_terminal, wait_until};

pub use node::{Node, Site};
#[allow(unused_imports, reason = "each test file uses its own part")]
pub use press::{PAUSE, Press, Pressed, Refusal};
#[allow(unused_imports, reason = "each test file uses its own part")]
pub use record::{Entry, Record};
#[allow(unused_imports, reason = "each test file uses its own part")]
pub use transaction::Transaction;

/// Longer than anything here takes on a busy machine.
pub const SOON: Duration = Duration::from_secs(60);
/// Shorter than the default, so that a test can wait for its end.
pub const TTL: Duration = Duration::from_secs(2);
/// Beyond its lease, until another node holds it.
pub const TAKEOVER_MAX: Duration = Duration::from_secs(2);

/// Rules of presence that a test can wait for. Losses end no task here: chance must not decide how it ends.
pub const CONFIG: &str = "\
[nodes]\nttlMs = 2000\n
[workers]\nheartbeatMs = 500\nofflineAfterMs = 2000\ncooldownMs = 100\nmaxCpuUsage = 100\n
[worker]\ncpu = 1000\nramMb = 1000000\n
[scheduling]\nmaxLost = 1000\n";

pub struct Cluster {
    // In this order they go: nobody may find the database gone before he is.
    pub nodes: Vec<Node>,
    pub postgres: Postgres,
    home: TempDir,
    admin: String,
    url: String,
}

/// What is asked of a cluster.
pub struct Plan<'a> {
    pub sites: Vec<Site>,
    /// The address of the store, made of that of a fresh database.
    pub url: &'a dyn Fn(&str) -> String,
    pub config: &'a str,
    pub postgres: Options,
}

pub struct TakenOver {
    pub by: usize,
    /// The task that it was asked to take.
    pub first: String,
    pub took: Duration,
}

impl Cluster {
    /// So many nodes on loopback, all of them ready.
    pub fn of(n: usize) -> Cluster {
        Cluster::with(n, "")
    }

    /// With this added to their configuration.
    pub fn with(n: usize, more: &str) -> Cluster {
        let sites = (1..=n).map(|n| Site::on_loopback(&format!("node-{n}"))).collect();
        let (config, url) = (format!("{CONFIG}{more}"), str::to_owned);
        Cluster::start(Plan { sites, url: &url, config: &config, postgres: Options::default() })
    }

    pub fn start(plan: Plan) -> Cluster {
        let postgres = Postgres::start_with(&plan.postgres);
        let url = (plan.url)(&postgres.fresh_database());
        Cluster::on(postgres, url, plan.sites, plan.config)
    }

    /// On a database that is there.
    pub fn on(postgres: Postgres, url: String, sites: Vec<Site>, config: &str) -> Cluster {
        let home = tempfile::tempdir().unwrap();
        let mut cluster = Cluster { nodes: Vec::new(), postgres, home, admin: String::new(), url };
        for site in sites {
            let data = cluster.home.path().join(&site.name);
            cluster.nodes.push(Node::start(site, &cluster.url, data, config));
            let node = cluster.nodes.last_mut().unwrap();
            node.until_ready();
            if cluster.admin.is_empty() {
                // The first one makes the key before it is ready.
                cluster.admin = std::fs::read_to_string(node.data().join("admin.key")).unwrap().trim().to_owned();
            }
            node.give_key(&cluster.admin);
        }
        cluster
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// An empty directory for the test's own files.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.home().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// Of the store.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name.
    pub fn database(&self) -> &str {
        let path = self.url.rsplit('/').next().unwrap();
        path.split('?').next().unwrap()
    }

    /// As the database's superuser; one row a line.
    pub fn sql(&self, sql: &str) -> String {
        self.postgres.sql(self.database(), sql)
    }

    /// Who holds the scheduler's lease now, by what this node says.
    pub fn holder_seen_by(&self, node: usize) -> Option<usize> {
        let answer = self.nodes[node].try_request("GET", "/v1/nodes", "").filter(|answer| answer.status == 200)?;
        let view = answer.json();
        let holders: Vec<&Value> = view["items"].as_array()?.iter().filter(|node| node["role"] == "holder").collect();
        assert!(holders.len() <= 1, "two holders: {view:#}");
        self.nodes.iter().position(|node| holders.first().is_some_and(|holder| holder["name"] == *node.name()))
    }

    /// Waits until some node holds the lease.
    pub fn holder(&self) -> usize {
        let mut found = None;
        wait_until(SOON, "a node holds the lease", || {
            let awake = (0..self.nodes.len()).filter(|n| self.nodes[*n].is_awake());
            found = awake.filter_map(|n| self.holder_seen_by(n)).find(|holder| self.nodes[*holder].is_awake());
            found.is_some()
        });
        found.unwrap()
    }

    /// Any two that do not hold it, of three.
    pub fn followers(&self) -> [usize; 2] {
        let holder = self.holder();
        let others: Vec<usize> = (0..self.nodes.len()).filter(|n| *n != holder).collect();
        others.try_into().expect("three nodes")
    }

    /// Waits at this node until another than `old` holds the lease and has accepted a task; tells who, that task, and how
    /// long it took since `began`.
    pub fn until_taken_over(&self, at: usize, old: usize, began: Instant) -> TakenOver {
        let mut holder = None;
        wait_until(SOON, "another node holds the lease", || {
            holder = self.holder_seen_by(at).filter(|holder| *holder != old);
            holder.is_some()
        });
        let first = self.submit(at, json!({"kind": "noop"}));
        TakenOver { by: holder.unwrap(), first, took: began.elapsed() }
    }

    pub fn epoch(&self, node: usize) -> u64 {
        self.get(node, "/v1/nodes")["epoch"].as_u64().expect("an epoch")
    }

    pub fn request(&self, node: usize, method: &str, path: &str, body: &str) -> Answer {
        self.nodes[node].try_request(method, path, body).expect("the node answers")
    }

    pub fn get(&self, node: usize, path: &str) -> Value {
        let answer = self.request(node, "GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    pub fn expect(&self, node: usize, status: u16, method: &str, path: &str, body: Value) -> Value {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.request(node, method, path, &text);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    }

    pub fn submit(&self, node: usize, task: Value) -> String {
        self.expect(node, 201, "POST", "/v1/tasks", task)["id"].as_str().unwrap().to_owned()
    }

    /// Waits for its end, and for that state.
    pub fn ends_as(&self, node: usize, state: &str, id: &str) -> Value {
        let task = self.get(node, &format!("/v1/tasks/{id}/wait?timeoutMs=60000"));
        assert_eq!(task["state"], state, "{task:#}");
        task
    }

    pub fn until_state(&self, node: usize, id: &str, state: &str) {
        wait_until(SOON, &format!("{id} is {state}"), || {
            let task = self.get(node, &format!("/v1/tasks/{id}"));
            assert!(task["state"] == state || !is_terminal(task["state"].as_str().unwrap()), "{task:#}");
            task["state"] == state
        });
    }

    pub fn until_all_ready(&self) {
        self.nodes.iter().for_each(Node::until_ready);
    }

    /// What the nodes have said of themselves lately; the directory is gone before anybody could look.
    pub fn told(&self) -> String {
        self.nodes.iter().map(|node| format!("── {}\n{}\n", node.name(), node.last_lines())).collect()
    }
}

/// A failure tells what the nodes said.
impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.told());
        }
    }
}
