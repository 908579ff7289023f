//! A followed log, read as text through changes of holder: all of it, once, in its order, and then a clean end.

use std::path::{Path, PathBuf};
use std::time::Instant;

use runyard_testbed::Options;
use serde_json::{Value, json};

use crate::beside_others;
use crate::cluster::{CONFIG, Cluster, Plan, SOON, Site};
use crate::site::Host;
use crate::support::{Stream, wait_until};

/// Lines at each turn: a change of holder comes in between.
const STEP: usize = 40;

#[test]
fn a_followed_text_goes_on_at_a_survivor_when_the_holder_is_stopped() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let (holder, [one, other]) = (cluster.holder(), cluster.followers());
    let worker = worker(&cluster, one);
    let output = Output::of(&cluster, "away", one, field());
    let mut streams = output.followed(&cluster, &[one, other, holder]);
    output.read_step(&mut streams, 0);
    cluster.nodes[holder].ask_to_stop();
    let mut cut = streams.pop().unwrap();
    assert_eq!(cut.line(), None, "the holder is gone, and nobody reads on for its own clients");
    assert!(!cut.has_ended(), "which must not look as an end");
    cluster.until_taken_over(one, holder, Instant::now());
    for step in 1..3 {
        output.read_step(&mut streams, step);
    }
    output.ends(&cluster, one, &mut streams, 3);
    drop(worker);
}

#[test]
fn a_followed_text_goes_on_when_the_holder_sleeps_past_its_lease_also_for_its_own_clients() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let (holder, [one, other]) = (cluster.holder(), cluster.followers());
    let worker = worker(&cluster, one);
    let output = Output::of(&cluster, "away", one, field());
    let mut streams = output.followed(&cluster, &[one, other]);
    let mut own = output.followed(&cluster, &[holder]);
    output.read_step(&mut streams, 0);
    output.read_step(&mut own, 0);
    cluster.nodes[holder].freeze();
    cluster.until_taken_over(one, holder, Instant::now());
    for step in 1..3 {
        output.read_step(&mut streams, step);
    }
    cluster.nodes[holder].thaw();
    streams.extend(own);
    for step in 1..3 {
        output.is_read(&mut streams[2..], step);
    }
    output.ends(&cluster, one, &mut streams, 3);
    drop(worker);
}

#[test]
fn a_followed_text_goes_on_with_what_runs_on_the_node_that_stopped_and_came_back() {
    let _turn = beside_others();
    // Away for longer than usual here: what it runs is not to be lost.
    let mut cluster = cluster_with(3, "offlineAfterMs = 2000", "offlineAfterMs = 60000");
    let (holder, [one, other]) = (cluster.holder(), cluster.followers());
    let output = on_node(&cluster, holder, one);
    let mut streams = output.followed(&cluster, &[one, other]);
    output.read_step(&mut streams, 0);
    cluster.nodes[holder].ask_to_stop();
    assert!(cluster.nodes[holder].ended().success());
    cluster.until_taken_over(one, holder, Instant::now());
    output.write(1);
    cluster.nodes[holder].start_again();
    output.is_read(&mut streams, 1);
    output.read_step(&mut streams, 2);
    output.ends(&cluster, one, &mut streams, 3);
}

/// The new holder has nothing of the first attempt: its text is shorter than what was passed on.
#[test]
fn an_attempt_that_was_lost_with_its_node_takes_nothing_from_the_next_one() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let (holder, [one, other]) = (cluster.holder(), cluster.followers());
    let output = on_node(&cluster, holder, one);
    let mut streams = output.followed(&cluster, &[one, other]);
    output.read_step(&mut streams, 0);
    cluster.nodes[holder].kill9();
    // What it ran goes on without it, as after the loss of a network. It is to write no more.
    wait_until(SOON, "another attempt runs", || cluster.get(one, &output.path(""))["attempts"] == 2);
    output.is_read(&mut streams, 0);
    output.read_step(&mut streams, 1);
    output.ends(&cluster, one, &mut streams, 2);
}

#[test]
fn followed_events_go_on_too_and_none_comes_twice() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let (holder, [one, _]) = (cluster.holder(), cluster.followers());
    let worker = worker(&cluster, one);
    let output = Output::of(&cluster, "away", one, field());
    let path = output.path("/logs?follow=true");
    let mut events = cluster.nodes[one].stream(&path, &[("accept", "text/event-stream")]);
    let mut n_read = 0;
    let mut read_step = |step: usize| {
        output.write(step);
        for _ in 0..STEP {
            n_read += 1;
            assert_eq!(events.next_event()["text"], n_read.to_string());
        }
    };
    read_step(0);
    cluster.nodes[holder].ask_to_stop();
    read_step(1);
    output.ends(&cluster, one, &mut [], 2);
    assert!(events.sse().is_none() && events.has_ended());
    drop(worker);
}

#[test]
fn a_followed_text_is_broken_off_when_no_holder_is_found_in_time() {
    let _turn = beside_others();
    let mut cluster = cluster_with(2, "ttlMs = 2000", "ttlMs = 2000\nwaitMs = 1000");
    let survivor = 1 - cluster.holder();
    let output = Output::of(&cluster, "words", survivor, json!({}));
    let mut streams = output.followed(&cluster, &[survivor]);
    output.read_step(&mut streams, 0);
    cluster.postgres.stop();
    assert_eq!(streams[0].line(), None);
    assert!(!streams[0].has_ended(), "the task runs on");
}

/// Two changes of holder, and the first is the holder again: what it has of the log is only its beginning.
#[test]
fn a_log_that_ended_elsewhere_is_whole_at_a_node_that_has_its_beginning() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(2);
    let first = cluster.holder();
    let second = 1 - first;
    let worker = worker(&cluster, second);
    let output = Output::of(&cluster, "away", second, field());
    let mut streams = output.followed(&cluster, &[second]);
    output.read_step(&mut streams, 0);
    cluster.nodes[first].ask_to_stop();
    assert!(cluster.nodes[first].ended().success());
    cluster.until_taken_over(second, first, Instant::now());
    output.read_step(&mut streams, 1);
    output.ends(&cluster, second, &mut streams, 2);
    cluster.nodes[first].start_again();
    cluster.nodes[first].until_ready();
    cluster.nodes[second].ask_to_stop();
    cluster.until_taken_over(first, second, Instant::now());
    let log = cluster.request(first, "GET", &output.path("/logs"), "").body;
    let expected: Vec<String> = (1..=2 * STEP).map(|n| n.to_string()).collect();
    assert_eq!(log.lines().collect::<Vec<_>>(), expected);
    drop(worker);
}

/// With this instead of that in its configuration.
fn cluster_with(n: usize, that: &str, this: &str) -> Cluster {
    let sites = (1..=n).map(|n| Site::on_loopback(&format!("node-{n}"))).collect();
    let config = CONFIG.replace(that, this);
    Cluster::start(Plan { sites, url: &str::to_owned, config: &config, postgres: Options::default() })
}

/// A task that writes numbered lines, so many at each word.
struct Output {
    id: String,
    words: PathBuf,
}

impl Output {
    fn of(cluster: &Cluster, name: &str, at: usize, place: Value) -> Output {
        let words = cluster.folder(name);
        let shell = format!(
            "n=0; step=0; while [ ! -e {0}/end.$step ]; do if [ -e {0}/$step ]; then step=$((step+1)); \
             while [ $n -lt $((step*{STEP})) ]; do n=$((n+1)); echo $n; done; else sleep 0.02; fi; done",
            words.display()
        );
        let task = json!({"kind": "process", "payload": {"shell": shell}, "place": place});
        let id = cluster.submit(at, task);
        cluster.until_state(at, &id, "running");
        Output { id, words }
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/tasks/{}{rest}", self.id)
    }

    fn followed(&self, cluster: &Cluster, nodes: &[usize]) -> Vec<Stream> {
        let path = self.path("/logs?follow=true");
        nodes.iter().map(|node| cluster.nodes[*node].stream(&path, &[])).collect()
    }

    fn write(&self, step: usize) {
        say(&self.words, &step.to_string());
    }

    fn read_step(&self, streams: &mut [Stream], step: usize) {
        self.write(step);
        self.is_read(streams, step);
    }

    fn is_read(&self, streams: &mut [Stream], step: usize) {
        for stream in streams {
            for n in step * STEP..(step + 1) * STEP {
                assert_eq!(stream.line(), Some((n + 1).to_string()), "step {step}");
            }
        }
    }

    fn ends(&self, cluster: &Cluster, at: usize, streams: &mut [Stream], step: usize) {
        say(&self.words, &format!("end.{step}"));
        for stream in streams {
            assert_eq!(stream.line(), None);
            assert!(stream.has_ended(), "it was broken off");
        }
        cluster.ends_as(at, "completed", &self.id);
    }
}

fn say(words: &Path, word: &str) {
    std::fs::write(words.join(word), "").unwrap();
}

/// A worker that is no node: what it runs touches neither the old nor the new holder.
fn worker(cluster: &Cluster, at: usize) -> Host {
    let key = cluster.expect(at, 201, "POST", "/v1/keys", json!({"name": "join", "scopes": ["worker"]}));
    let flags = ["--name", "field", "--labels", "zone=field", "--max-parallel", "4"];
    Host::join(cluster.home(), "field", &flags, &cluster.nodes[at].url(), key["key"].as_str().unwrap(), &[])
}

/// On the worker of this node: the others take nothing until it runs.
fn on_node(cluster: &Cluster, node: usize, at: usize) -> Output {
    let others = (0..cluster.nodes.len()).filter(|n| *n != node);
    let others: Vec<String> = others.map(|n| worker_of(cluster, cluster.nodes[n].name(), at)).collect();
    let tell = |word: &str| {
        for worker in &others {
            cluster.expect(at, 200, "POST", &format!("/v1/workers/{worker}/{word}"), json!({}));
        }
    };
    tell("drain");
    let output = Output::of(cluster, "on-node", at, json!({}));
    tell("resume");
    output
}

/// A node that follows is ready before its worker has joined.
fn worker_of(cluster: &Cluster, name: &str, at: usize) -> String {
    let mut id = None;
    wait_until(SOON, &format!("the worker of {name} has joined"), || {
        let list = cluster.get(at, "/v1/workers");
        let worker = list["items"].as_array().unwrap().iter().find(|worker| worker["name"] == name);
        id = worker.map(|worker| worker["id"].as_str().unwrap().to_owned());
        id.is_some()
    });
    id.unwrap()
}

fn field() -> Value {
    json!({"require": {"zone": "field"}})
}
