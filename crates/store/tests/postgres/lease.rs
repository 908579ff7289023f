//! Several nodes on one database: who is here, and whose the lease is.

use runyard_store::nodes::{Bid, NodeCard, NodeId, Nodes};
use runyard_store::postgres::{Options, PgNodes, PgStore};
use runyard_store::store::{Error, Store};
use runyard_store::suite::fixture::{Fixture, task};
use runyard_testbed::shared;

use super::link::{Session, open, options};

/// Longer than a test takes.
const TTL_MS: u64 = 600_000;

fn nodes(url: &str) -> PgNodes {
    PgNodes::open(options(url)).unwrap()
}

fn card(n: u128) -> NodeCard {
    NodeCard {
        id: NodeId(n),
        name: format!("node {n}"),
        url: format!("http://10.0.0.{n}:7070"),
        version: "0.1.0".to_owned(),
    }
}

fn holder(nodes: &PgNodes, card: &NodeCard, bid: Bid) -> Option<NodeId> {
    nodes.beat(card, bid, TTL_MS).unwrap().holder.map(|lease| lease.node)
}

#[test]
fn a_free_lease_goes_to_the_first_who_bids_and_stays_until_it_is_left() {
    let nodes = nodes(&shared().fresh_database());
    let (one, two) = (card(1), card(2));
    assert_eq!(holder(&nodes, &one, Bid::Follow), None, "a follower takes nothing");
    assert_eq!(holder(&nodes, &one, Bid::Hold), Some(one.id));
    let standing = nodes.beat(&two, Bid::Hold, TTL_MS).unwrap().holder.unwrap();
    assert_eq!((standing.node, &*standing.url), (one.id, &*one.url));
    assert!(standing.left_ms > 0 && standing.left_ms <= TTL_MS, "{standing:?}");
    assert_eq!(holder(&nodes, &one, Bid::Hold), Some(one.id));
    nodes.leave(two.id).unwrap();
    assert_eq!(holder(&nodes, &one, Bid::Follow), Some(one.id), "it was not the other's to leave");
    nodes.leave(one.id).unwrap();
    assert_eq!(holder(&nodes, &two, Bid::Follow), None);
    assert_eq!(holder(&nodes, &two, Bid::Hold), Some(two.id));
}

#[test]
fn a_lease_that_is_over_is_nobodys_and_goes_to_the_next() {
    let url = shared().fresh_database();
    let nodes = nodes(&url);
    let (one, two) = (card(1), card(2));
    assert_eq!(holder(&nodes, &one, Bid::Hold), Some(one.id));
    Session::open(&url).run("UPDATE lease SET until = clock_timestamp()");
    assert_eq!(holder(&nodes, &two, Bid::Follow), None);
    assert_eq!(holder(&nodes, &two, Bid::Hold), Some(two.id));
    assert_eq!(holder(&nodes, &one, Bid::Hold), Some(two.id));
}

#[test]
fn of_many_who_bid_at_once_one_gets_it() {
    let nodes = nodes(&shared().fresh_database());
    std::thread::scope(|scope| {
        let nodes = &nodes;
        let bids: Vec<_> =
            (1..9).map(|n| scope.spawn(move || holder(nodes, &card(n), Bid::Hold) == Some(NodeId(n)))).collect();
        let n_won = bids.into_iter().map(|bid| bid.join().unwrap()).filter(|won| *won).count();
        assert_eq!(n_won, 1);
    });
}

#[test]
fn only_the_holder_of_the_lease_takes_the_store_over() {
    let url = shared().fresh_database();
    let nodes = nodes(&url);
    let (one, two) = (card(1), card(2));
    let store = |card: &NodeCard| PgStore::open(Options { node: Some(card.id), ..options(&url) }).unwrap();
    assert!(matches!(store(&one).load(1), Err(Error::Fenced { .. })), "the lease is nobody's");
    assert_eq!(holder(&nodes, &one, Bid::Hold), Some(one.id));
    let mut first = store(&one);
    assert_eq!(first.load(1).unwrap().meta.epoch, 1);
    assert!(matches!(store(&two).load(1), Err(Error::Fenced { .. })), "the lease is another's");
    assert_eq!(first.load(1).unwrap().meta.epoch, 2, "a refused takeover raises nothing");
    Session::open(&url).run("UPDATE lease SET until = clock_timestamp()");
    assert!(matches!(first.load(1), Err(Error::Fenced { .. })), "the lease is over");
    assert_eq!(holder(&nodes, &two, Bid::Hold), Some(two.id));
    assert_eq!(store(&two).load(1).unwrap().meta.epoch, 3);
}

#[test]
fn a_beat_tells_how_far_the_store_is() {
    let url = shared().fresh_database();
    let nodes = nodes(&url);
    let mut fixture = Fixture::new(Box::new(open(&url)));
    let writes = runyard_core::write::WriteSet {
        settings: vec![("a".into(), runyard_store::suite::fixture::blob("x"))],
        happenings: vec![runyard_store::suite::fixture::happening(
            runyard_core::event::HappeningKind::TaskCreated,
            &task(1),
        )],
        ..Default::default()
    };
    let log_seq = fixture.commit(writes);
    let standing = nodes.beat(&card(1), Bid::Hold, TTL_MS).unwrap();
    assert_eq!((standing.log_seq, standing.settings_version), (log_seq, 1));
    assert_eq!(standing.holder.unwrap().epoch, fixture.meta.epoch);
    fixture.insert([task(1)]);
    assert_eq!(nodes.beat(&card(1), Bid::Hold, TTL_MS).unwrap().settings_version, 1);
}

#[test]
fn nodes_are_listed_by_name_until_they_leave_or_are_forgotten() {
    let url = shared().fresh_database();
    let nodes = nodes(&url);
    for (n, bid) in [(2, Bid::Follow), (1, Bid::Hold), (3, Bid::Follow), (4, Bid::Follow)] {
        nodes.beat(&card(n), bid, TTL_MS).unwrap();
    }
    nodes.leave(NodeId(3)).unwrap();
    Session::open(&url).run("UPDATE nodes SET seen_at = seen_at - interval '2 days' WHERE name = 'node 4'");
    let listed = nodes.all().unwrap().nodes;
    let cards: Vec<_> = listed.iter().map(|row| (row.card.clone(), row.is_holder)).collect();
    assert_eq!(cards, [(card(1), true), (card(2), false)]);
    let begun = listed[0].started_at_ms;
    nodes.beat(&card(1), Bid::Hold, TTL_MS).unwrap();
    assert_eq!(nodes.all().unwrap().nodes[0].started_at_ms, begun);
    assert_eq!(Session::open(&url).number("SELECT count(*) FROM nodes"), 2);
}

#[test]
fn all_nodes_know_one_secret() {
    let (url, other) = (shared().fresh_database(), shared().fresh_database());
    let secret = nodes(&url).secret().unwrap();
    assert_eq!(nodes(&url).secret().unwrap(), secret);
    assert_ne!(nodes(&other).secret().unwrap(), secret);
}
