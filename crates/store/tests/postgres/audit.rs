//! Changes that every node can read.

use runyard_store::nodes::Nodes;
use runyard_store::postgres::PgNodes;
use runyard_testbed::shared;

use super::link::{Cut, Proxy, Session, options};

#[test]
fn changes_that_two_nodes_write_at_once_are_numbered_without_gaps() {
    let url = shared().fresh_database();
    let nodes = [(); 2].map(|()| PgNodes::open(options(&url)).unwrap());
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let node = &nodes[writer % 2];
            scope.spawn(move || (0..25).for_each(|n| node.write_audit(format!("{writer} {n}").as_bytes()).unwrap()));
        }
    });
    let rows = nodes[0].audit(None, 1000).unwrap();
    assert_eq!(rows.iter().map(|row| row.n).collect::<Vec<_>>(), (1..=100).rev().collect::<Vec<_>>());
    for writer in 0..4 {
        let own = |body: &[u8]| body.starts_with(format!("{writer} ").as_bytes());
        let bodies: Vec<_> = rows.iter().rev().map(|row| row.body.clone()).filter(|body| own(body)).collect();
        assert_eq!(bodies, (0..25).map(|n| format!("{writer} {n}").into_bytes()).collect::<Vec<_>>(), "in its order");
    }
    let page = nodes[1].audit(Some(51), 2).unwrap();
    assert_eq!(page.iter().map(|row| row.n).collect::<Vec<_>>(), [50, 49]);
}

#[test]
fn the_oldest_changes_go_when_there_are_too_many_or_they_are_too_long() {
    let url = shared().fresh_database();
    let (nodes, session) = (PgNodes::open(options(&url)).unwrap(), Session::open(&url));
    session.run("INSERT INTO audit SELECT n, n * 10, 'x' FROM generate_series(1, 120000) n");
    nodes.write_audit(b"one too many").unwrap();
    assert_eq!(session.number("SELECT min(n) FROM audit"), 2);
    assert_eq!(session.number("SELECT count(*) FROM audit"), 120_000);
    session.run("UPDATE audit SET upto = upto + 33554432 WHERE n > 300");
    nodes.write_audit(b"so many bytes are too many").unwrap();
    assert_eq!(session.number("SELECT min(n) FROM audit"), 301);
    assert_eq!(nodes.audit(None, 1).unwrap()[0].n, 120_002);
}

#[test]
fn a_change_whose_answer_is_lost_is_written_once() {
    let url = shared().fresh_database();
    let proxy = Proxy::to(&url, shared().port());
    let nodes = PgNodes::open(options(&proxy.url)).unwrap();
    nodes.write_audit(b"first").unwrap();
    for (cut, n) in [(Cut::Answer, 2), (Cut::Request, 3)] {
        proxy.cut_next(cut);
        nodes.write_audit(format!("after {cut:?}").as_bytes()).unwrap();
        assert_eq!(nodes.audit(None, 10).unwrap().len(), n, "{cut:?}");
    }
}
