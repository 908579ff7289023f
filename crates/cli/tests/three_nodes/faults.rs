//! One thing after the other happens to the node that holds the lease, or to the database.

use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::dice::Dice;
use crate::hosts::{Hosts, Net};

/// How often each was done.
#[derive(Default, Debug)]
pub struct Counts {
    pub killed: u64,
    pub frozen: u64,
    pub cut_from_store: u64,
    pub cut_from_peers: u64,
    pub databases_stopped: u64,
    pub databases_killed: u64,
}

/// Short of the lease, and well past it.
const FAULT_MS: std::ops::Range<u64> = 300..7000;
const PAUSE_MS: std::ops::Range<u64> = 200..3000;
const DATABASE_AWAY_MS: std::ops::Range<u64> = 0..3000;

pub fn storm(hosts: &Hosts, cluster: &mut Cluster, mut dice: Dice, length: Duration) -> Counts {
    let mut counts = Counts::default();
    let until = Instant::now() + length;
    while Instant::now() < until {
        std::thread::park_timeout(dice.ms(PAUSE_MS));
        let (holder, kind) = (cluster.holder(), dice.between(0..6));
        eprintln!("{:>5.1} s left: fault {kind} of node {holder}", (until - Instant::now().min(until)).as_secs_f64());
        match kind {
            0 => kill(cluster, holder, &mut dice, &mut counts),
            1 => freeze(cluster, holder, &mut dice, &mut counts),
            2 => {
                cut(hosts, holder, Net::Store, &mut dice);
                counts.cut_from_store += 1;
            }
            3 => {
                cut(hosts, holder, Net::Peers, &mut dice);
                counts.cut_from_peers += 1;
            }
            4 => {
                cluster.postgres.stop();
                restart(cluster, &mut dice);
                counts.databases_stopped += 1;
            }
            _ => {
                cluster.postgres.kill();
                restart(cluster, &mut dice);
                counts.databases_killed += 1;
            }
        }
    }
    counts
}

fn kill(cluster: &mut Cluster, holder: usize, dice: &mut Dice, counts: &mut Counts) {
    cluster.nodes[holder].kill9();
    // At once, when its lease is still its own, or when another has taken it.
    std::thread::park_timeout(if dice.one_in(2) { Duration::ZERO } else { dice.ms(FAULT_MS) });
    cluster.nodes[holder].start_again();
    counts.killed += 1;
}

fn freeze(cluster: &mut Cluster, holder: usize, dice: &mut Dice, counts: &mut Counts) {
    cluster.nodes[holder].freeze();
    std::thread::park_timeout(dice.ms(FAULT_MS));
    cluster.nodes[holder].thaw();
    counts.frozen += 1;
}

fn cut(hosts: &Hosts, holder: usize, net: Net, dice: &mut Dice) {
    hosts.cut(holder, net);
    std::thread::park_timeout(dice.ms(FAULT_MS));
    hosts.mend(holder, net);
}

fn restart(cluster: &mut Cluster, dice: &mut Dice) {
    std::thread::park_timeout(dice.ms(DATABASE_AWAY_MS));
    cluster.postgres.start_again();
}
