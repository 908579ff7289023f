//! How many connections are open, in all and from each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use prometheus_client::metrics::gauge::Gauge;

use super::address::group;
use crate::config::ServerLimits;

pub struct Doors {
    open: Mutex<Open>,
    /// Whatever is configured: a server without files left cannot write a log or read its store.
    total_max: u32,
    /// What `/metrics` tells of it.
    gauge: Gauge,
}

#[derive(Default)]
struct Open {
    total: u32,
    /// Only those that are not zero, so it is never larger than `total`.
    by_address: HashMap<IpAddr, u32>,
}

/// One open connection; it is counted until this is dropped.
pub struct Pass {
    doors: Arc<Doors>,
    address: IpAddr,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    Client,
    /// It carries the connections of many, so only the total counts.
    TrustedProxy,
}

impl Doors {
    /// `files_max`: how many files this process may have open. A quarter of them is for everything else.
    pub fn new(gauge: Gauge, files_max: u64) -> Arc<Doors> {
        let total_max = u32::try_from(files_max - files_max / 4).unwrap_or(u32::MAX);
        Arc::new(Doors { open: Mutex::default(), total_max, gauge })
    }

    pub fn enter(self: &Arc<Self>, address: IpAddr, who: Who, limits: &ServerLimits) -> Option<Pass> {
        let address = group(address);
        let mut open = self.lock();
        let from_there = open.by_address.get(&address).copied().unwrap_or(0);
        let is_full = who == Who::Client && from_there >= limits.connections_per_address;
        if open.total >= limits.connections.min(self.total_max) || is_full {
            return None;
        }
        open.total += 1;
        self.gauge.set(open.total.into());
        *open.by_address.entry(address).or_default() += 1;
        Some(Pass { doors: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("no thread panics while it counts")
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut open = self.doors.lock();
        open.total -= 1;
        self.doors.gauge.set(open.total.into());
        if let Some(count) = open.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_and_all_together_have_a_limit() {
        let limits = ServerLimits { connections: 4, connections_per_address: 2, ..ServerLimits::default() };
        let gauge = Gauge::default();
        let doors = Doors::new(gauge.clone(), 1024);
        let enter = |text: &str, who| doors.enter(text.parse().unwrap(), who, &limits);
        let first = enter("2001:db8::1", Who::Client).unwrap();
        let _second = enter("2001:db8::2", Who::Client).unwrap();
        assert!(enter("2001:db8::3", Who::Client).is_none(), "the same /64");
        let _proxy = enter("2001:db8::3", Who::TrustedProxy).unwrap();
        let other = enter("192.0.2.1", Who::Client).unwrap();
        assert!(enter("192.0.2.2", Who::TrustedProxy).is_none(), "all are taken");
        drop((first, other));
        assert_eq!(gauge.get(), 2);
        let _again = enter("192.0.2.2", Who::Client).unwrap();
        assert_eq!(doors.lock().by_address.len(), 2);
    }

    #[test]
    fn connections_leave_files_for_the_rest_of_the_server() {
        let doors = Doors::new(Gauge::default(), 16);
        let enter = || doors.enter([192, 0, 2, 1].into(), Who::Client, &ServerLimits::default());
        let passes: Vec<_> = std::iter::from_fn(enter).take(100).collect();
        assert_eq!(passes.len(), 12);
    }
}
