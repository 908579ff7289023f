//! Hosts, cables and switches, gone with the test. Names of hosts carry the pid, so that tests of two runs do not meet.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::os::fd::AsFd;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub struct Network {
    tag: String,
    hosts: Vec<&'static str>,
}

/// Where a cable ends, and what it is called there.
#[derive(Clone, Copy)]
pub struct Plug<'a> {
    pub host: &'a str,
    pub name: &'a str,
}

impl Network {
    /// Hosts that know nothing but themselves.
    pub fn of(hosts: &[&'static str]) -> Network {
        let network = Network { tag: format!("ry{}", std::process::id()), hosts: hosts.to_vec() };
        for host in hosts {
            network.ip(&["netns", "add", &network.name(host)]);
            network.on(host, &["link", "set", "lo", "up"]);
        }
        network
    }

    pub fn cable(&self, one: Plug, other: Plug) {
        let (near, far) = (self.name(one.host), self.name(other.host));
        self.ip(&["link", "add", one.name, "netns", &near, "type", "veth", "peer", "name", other.name, "netns", &far]);
        for end in [one, other] {
            self.on(end.host, &["link", "set", "dev", end.name, "up"]);
        }
    }

    /// A switch that cables can be put into, on a host that is part of what it connects.
    pub fn switch(&self, plug: Plug, cidr: &str) {
        self.on(plug.host, &["link", "add", plug.name, "type", "bridge"]);
        self.on(plug.host, &["link", "set", "dev", plug.name, "up"]);
        self.address(plug, cidr);
    }

    pub fn put_into(&self, plug: Plug, switch: &str) {
        self.on(plug.host, &["link", "set", "dev", plug.name, "master", switch]);
    }

    pub fn address(&self, plug: Plug, cidr: &str) {
        self.on(plug.host, &["address", "add", cidr, "dev", plug.name]);
    }

    /// The calling thread, and what it starts.
    pub fn enter(&self, host: &str) {
        let file = std::fs::File::open(format!("/run/netns/{}", self.name(host))).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    /// What a command is started with to be on this host.
    pub fn prefix(&self, host: &str) -> Vec<String> {
        ["ip", "netns", "exec", &self.name(host)].map(str::to_owned).into()
    }

    pub fn cut(&self, plug: Plug) {
        self.on(plug.host, &["link", "set", "dev", plug.name, "down"]);
    }

    pub fn mend(&self, plug: Plug) {
        self.on(plug.host, &["link", "set", "dev", plug.name, "up"]);
    }

    /// The hosts as the machine knows them.
    pub fn names(&self) -> Vec<String> {
        self.hosts.iter().map(|host| self.name(host)).collect()
    }

    fn name(&self, host: &str) -> String {
        format!("{}-{host}", self.tag)
    }

    fn on(&self, host: &str, arguments: &[&str]) {
        self.ip(&[&["-n", &self.name(host)], arguments].concat());
    }

    fn ip(&self, arguments: &[&str]) {
        let output = Command::new("ip").args(arguments).output().unwrap();
        assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.names() {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}
