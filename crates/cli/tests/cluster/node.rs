//! One node: a process with a data directory of its own, on loopback or on a host of its own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use super::SOON;
use crate::support::{Answer, Begin, Client, Server, Stream, is_alive, last_lines, stop_supervised, wait_until};

/// Where a node is.
#[derive(Clone)]
pub struct Site {
    pub name: String,
    /// Of the command line, for another host.
    pub prefix: Vec<String>,
    pub listen: String,
    /// Where the other nodes reach it.
    pub advertise: String,
    /// Where the test reaches it.
    pub address: String,
}

impl Site {
    /// At a port that was free a moment ago; it is to be the same after a restart.
    pub fn on_loopback(name: &str) -> Site {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let advertise = format!("http://{address}");
        Site { name: name.to_owned(), prefix: Vec::new(), listen: address.clone(), advertise, address }
    }
}

pub struct Node {
    server: Server,
    site: Site,
    store: String,
    data: PathBuf,
    config: String,
    key: String,
    is_awake: bool,
}

impl Node {
    pub fn start(site: Site, store: &str, data: PathBuf, config: &str) -> Node {
        let server = spawn(&site, store, &data, config);
        let (store, config) = (store.to_owned(), config.to_owned());
        Node { server, site, store, data, config, key: String::new(), is_awake: true }
    }

    /// The same node again, as a new process.
    pub fn start_again(&mut self) {
        self.server.kill9_if_alive();
        self.server = spawn(&self.site, &self.store, &self.data, &self.config);
        self.is_awake = true;
    }

    pub fn give_key(&mut self, key: &str) {
        self.key = key.to_owned();
    }

    pub fn name(&self) -> &str {
        &self.site.name
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.site.address)
    }

    /// Where the test reaches it.
    pub fn address(&self) -> &str {
        &self.site.address
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Neither stopped nor ended by the test.
    pub fn is_awake(&self) -> bool {
        self.is_awake
    }

    pub fn client(&self) -> Client {
        self.server.client().with_key(&self.key)
    }

    pub fn try_request(&self, method: &str, path: &str, body: &str) -> Option<Answer> {
        self.client().try_send(method, path, &[], body.as_bytes())
    }

    pub fn stream(&self, path: &str, headers: &[(&str, &str)]) -> Stream {
        self.client().stream(path, headers)
    }

    /// Until it is started again.
    pub fn add_to_config(&self, more: &str) {
        let path = self.data.join("test.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}\n{more}")).unwrap();
    }

    pub fn is_ready(&self) -> bool {
        self.ready_status() == Some(200)
    }

    pub fn ready_status(&self) -> Option<u16> {
        self.server.try_request("GET", "/readyz", &[], "").map(|answer| answer.status)
    }

    pub fn until_ready(&self) {
        let what = format!("{} is ready", self.name());
        wait_until(SOON, &what, || {
            assert!(is_alive(self.pid().into()), "{} has ended", self.name());
            self.is_ready()
        });
    }

    pub fn until_not_ready(&self) {
        let what = format!("{} says that it is not ready", self.name());
        wait_until(SOON, &what, || self.ready_status() == Some(503));
    }

    pub fn kill9(&mut self) {
        self.is_awake = false;
        self.server.kill9();
    }

    /// Asks it to stop, and does not wait for it.
    pub fn ask_to_stop(&mut self) {
        self.is_awake = false;
        self.server.signal("TERM");
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        self.server.ended()
    }

    /// The machine it is on stands still.
    pub fn freeze(&mut self) {
        self.is_awake = false;
        self.server.signal("STOP");
        // One thread takes the signal and stops the others; on a busy machine these go on until it had its turn.
        wait_until(SOON, "it stands still", || stands_still(self.pid()));
    }

    pub fn thaw(&mut self) {
        self.server.signal("CONT");
        self.is_awake = true;
    }

    pub fn has_ended(&mut self) -> bool {
        self.server.has_ended()
    }

    pub fn signal(&self, name: &str) {
        self.server.signal(name);
    }

    /// All that it wrote, log and greeting.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.data.join("server.log")).unwrap_or_default()
    }

    pub fn last_lines(&self) -> String {
        last_lines(&self.data)
    }
}

/// Is every thread of this process stopped?
fn stands_still(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.flatten().all(|thread| {
        // The state stands behind the name, which may have anything in it. A thread that is gone does nothing any more.
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('T'))
    })
}

fn spawn(site: &Site, store: &str, data: &Path, config: &str) -> Server {
    let flags = ["--store", store, "--listen", &site.listen, "--advertise", &site.advertise, "--node-name", &site.name];
    Server::spawn(Begin { prefix: &site.prefix, data, flags: &flags, config }, &site.address)
}

impl Drop for Node {
    fn drop(&mut self) {
        // What is stopped takes a SIGKILL too.
        self.server.kill9_if_alive();
        stop_supervised(&self.data);
    }
}
