//! Hosts and cables, gone with the test. Names carry the pid, so that tests of two runs do not meet.

use std::os::fd::AsFd;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const HOSTS: [&str; 3] = ["server", "left", "right"];

pub struct Network {
    tag: String,
}

impl Network {
    /// Each worker has a network of its own with the server, and none with the other.
    pub fn new() -> Network {
        let network = Network { tag: format!("ry{}", std::process::id()) };
        HOSTS.iter().for_each(|host| network.ip(&["netns", "add", &network.name(host)]));
        for (n, worker) in HOSTS[1..].iter().enumerate() {
            let (near, far) = (network.cable(worker), format!("{}f", network.cable(worker)));
            let (server, host) = (network.name("server"), network.name(worker));
            network.ip(&["link", "add", &near, "netns", &server, "type", "veth", "peer", "name", &far, "netns", &host]);
            let addresses = [format!("10.77.{}.1/24", n + 1), format!("10.77.{}.2/24", n + 1)];
            for (host, end, address) in [(&server, &near, &addresses[0]), (&host, &far, &addresses[1])] {
                network.ip(&["-n", host, "address", "add", address, "dev", end]);
                network.ip(&["-n", host, "link", "set", end, "up"]);
            }
        }
        HOSTS.iter().for_each(|host| network.ip(&["-n", &network.name(host), "link", "set", "lo", "up"]));
        network
    }

    /// The calling thread, and what it starts.
    pub fn enter_server(&self) {
        let file = std::fs::File::open(format!("/run/netns/{}", self.name("server"))).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    /// What a command is started with to be on this host.
    pub fn prefix(&self, host: &str) -> Vec<String> {
        ["ip", "netns", "exec", &self.name(host)].map(str::to_owned).into()
    }

    pub fn cut(&self, worker: &str) {
        self.ip(&["-n", &self.name("server"), "link", "set", &self.cable(worker), "down"]);
    }

    pub fn mend(&self, worker: &str) {
        self.ip(&["-n", &self.name("server"), "link", "set", &self.cable(worker), "up"]);
    }

    fn name(&self, host: &str) -> String {
        format!("{}-{host}", self.tag)
    }

    fn cable(&self, worker: &str) -> String {
        format!("{}{}", self.tag, &worker[..1])
    }

    fn ip(&self, arguments: &[&str]) {
        let output = Command::new("ip").args(arguments).output().unwrap();
        assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in HOSTS {
            let _ = Command::new("ip").args(["netns", "del", &self.name(host)]).output();
        }
    }
}
