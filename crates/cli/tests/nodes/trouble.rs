//! Trouble with the database: the nodes stay up, say that they are not ready, recover by themselves, and lose nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use runyard_testbed::{Options, Postgres};
use serde_json::json;

use crate::beside_others;
use crate::cluster::{CONFIG, Cluster, Plan, Press, Pressed, Record, SOON, Site, TTL, Transaction};
use crate::support::{Answer, Client, wait_until};

/// So many tasks before the trouble, and after it.
const SOME: u64 = 30;

#[test]
fn a_restart_of_the_database_is_a_pause() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let press = press(&cluster);
    for crash in [false, true] {
        more(&press);
        if crash {
            cluster.postgres.kill()
        } else {
            cluster.postgres.stop()
        }
        cluster.nodes.iter().for_each(|node| node.until_not_ready());
        let reads = cluster.nodes.iter().map(|node| node.client()).map(read).collect::<Vec<_>>();
        cluster.postgres.start_again();
        for read in reads {
            let answer = read.join().unwrap();
            assert_eq!(answer.status, 200, "a read waits too: {}", answer.body);
        }
        cluster.until_all_ready();
    }
    more(&press);
    nothing_is_lost(&mut cluster, press.end());
}

/// Of what is stored, in a thread of its own.
fn read(client: Client) -> JoinHandle<Answer> {
    std::thread::spawn(move || client.try_send("GET", "/v1/tasks?limit=1", &[], b"").unwrap())
}

#[test]
fn connections_that_are_ended_under_load_lose_nothing_and_repeat_nothing() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let press = press(&cluster);
    more(&press);
    let began = Instant::now();
    let mut n_ended = 0;
    while began.elapsed() < Duration::from_secs(5) {
        n_ended += cluster.sql(END_ALL).lines().filter(|line| *line == "t").count();
        std::thread::park_timeout(Duration::from_millis(200));
    }
    assert!(n_ended > 10, "there was something to end: {n_ended}");
    cluster.until_all_ready();
    more(&press);
    nothing_is_lost(&mut cluster, press.end());
}

/// Every connection of the nodes.
const END_ALL: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";

#[test]
fn a_database_that_answers_nothing_is_waited_for_and_then_given_up_on() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let press = press(&cluster);
    more(&press);
    let lock = Transaction::begin(cluster.url(), &format!("BEGIN; DO $$ {LOCK_ALL} $$; SELECT 'locked';"));
    cluster.nodes.iter().for_each(|node| node.until_not_ready());
    // Longer than the lease: whoever held it cannot know that it still does.
    let until = Instant::now() + 2 * TTL;
    while Instant::now() < until {
        assert!(cluster.nodes.iter_mut().all(|node| !node.has_ended()), "they stay up");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    lock.end();
    cluster.until_all_ready();
    more(&press);
    nothing_is_lost(&mut cluster, press.end());
}

/// Nobody reads or writes any table of ours.
const LOCK_ALL: &str = "DECLARE name regclass; BEGIN FOR name IN SELECT oid FROM pg_class \
    WHERE relkind IN ('r', 'p') AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) \
    AND NOT relispartition LOOP EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', name); END LOOP; END";

#[test]
fn statements_that_are_cancelled_lose_nothing_and_repeat_nothing() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let press = press(&cluster);
    more(&press);
    let began = Instant::now();
    let mut n_cancelled = 0;
    // On a busy machine it takes its time to meet one that is under way.
    while began.elapsed() < Duration::from_secs(5) || (n_cancelled == 0 && began.elapsed() < SOON) {
        n_cancelled += cluster.sql(CANCEL_ALL).lines().filter(|line| *line == "t").count();
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert!(n_cancelled > 0, "there was something to cancel");
    cluster.until_all_ready();
    more(&press);
    nothing_is_lost(&mut cluster, press.end());
}

/// As a statement timeout does.
const CANCEL_ALL: &str = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
    AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle'";

#[test]
fn a_full_disk_is_waited_out() {
    let _turn = beside_others();
    let disk = SmallDisk::mount();
    let small = [("max_wal_size", "48MB"), ("min_wal_size", "32MB"), ("shared_buffers", "16MB")];
    let options = Options {
        fsync: true,
        below: Some(disk.path().to_owned()),
        settings: small.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..Options::default()
    };
    let sites = (1..=3).map(|n| Site::on_loopback(&format!("node-{n}"))).collect();
    let mut cluster = Cluster::start(Plan { sites, url: &str::to_owned, config: CONFIG, postgres: options });
    let press = press(&cluster);
    more(&press);
    disk.fill();
    // Small changes still find room, so a node that only follows may not notice.
    let is_noticed = || cluster.nodes.iter().any(|node| node.ready_status() == Some(503));
    wait_until(SOON, "the holder says that it is not ready", is_noticed);
    disk.free();
    // A server that cannot write its log ends, and whoever looks after it starts it again.
    if !cluster.postgres.is_running() {
        cluster.postgres.kill();
        cluster.postgres.start_again();
    }
    cluster.until_all_ready();
    more(&press);
    nothing_is_lost(&mut cluster, press.end());
}

#[test]
fn a_standby_that_takes_the_place_of_its_primary_is_found() {
    let _turn = beside_others();
    let primary = Postgres::start();
    let url = primary.fresh_database();
    let standby = primary.standby();
    // What is answered is on both.
    primary.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("postgres", "SELECT pg_reload_conf()");
    let (here, both) = (format!(":{}/", primary.port()), format!(":{},127.0.0.1:{}/", primary.port(), standby.port()));
    let url = format!("{}?target_session_attrs=read-write", url.replace(&here, &both));
    let sites = (1..=3).map(|n| Site::on_loopback(&format!("node-{n}"))).collect();
    let mut cluster = Cluster::on(primary, url, sites, CONFIG);
    let press = press(&cluster);
    more(&press);
    cluster.postgres.kill();
    cluster.nodes.iter().for_each(|node| node.until_not_ready());
    standby.promote();
    cluster.until_all_ready();
    more(&press);
    nothing_is_lost(&mut cluster, press.end());
}

/// At all nodes in turn: mostly nothing, sometimes a process.
fn press(cluster: &Cluster) -> Press {
    let clients = cluster.nodes.iter().map(|node| node.client()).collect();
    Press::start(clients, |n| match n % 10 {
        0 => json!({"kind": "process", "payload": {"shell": "echo $RUNYARD_ATTEMPT"}}),
        _ => json!({"kind": "noop", "payload": {"sleepMs": n % 7}}),
    })
}

fn more(press: &Press) {
    let n_before = press.n_accepted();
    wait_until(SOON, "tasks are accepted", || press.n_accepted() >= n_before + SOME);
}

/// The processes are those that were started, every accepted task has completed, and each ended once.
fn nothing_is_lost(cluster: &mut Cluster, pressed: Pressed) {
    println!("{} tasks, {} refusals, longest {:?}", pressed.ids.len(), pressed.refusals.len(), pressed.longest);
    assert!(cluster.nodes.iter_mut().all(|node| !node.has_ended()), "they stay up");
    for (n, id) in pressed.ids.iter().enumerate() {
        cluster.ends_as(n % 3, "completed", id);
    }
    let record = Record::read(cluster, 0);
    record.each_ended_once(&pressed.ids);
    record.nobody_else_ran(&pressed.ids, |entry| entry.task == record.entries.last().unwrap().task);
}

/// A disk that is soon full.
struct SmallDisk {
    path: PathBuf,
    /// Where it is mounted.
    _dir: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> SmallDisk {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::create_dir(&path).unwrap();
        // The server is not root and must come this far.
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=112m", "none"]).arg(&path).status();
        assert!(mounted.unwrap().success(), "a small disk");
        SmallDisk { path, _dir: dir }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// To its last byte.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.path.join("ballast")).unwrap();
        let block = [0u8; 64 * 1024];
        for size in [block.len(), 4096, 1] {
            while std::io::Write::write_all(&mut file, &block[..size]).is_ok() {}
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.path.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}
