//! So many submits in a second, whatever they take, and how long each took.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::Client;

/// Enough that one slow answer does not hold the others up.
const THREADS: u64 = 8;

pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    n_accepted: AtomicU64,
    latencies: Mutex<Vec<Duration>>,
}

impl Load {
    pub fn start(client: Client, per_second: u64) -> Load {
        let shared = Arc::new(Shared::default());
        let spawn = |n: u64| {
            let (shared, client) = (shared.clone(), client.clone());
            let pace = Duration::from_secs(THREADS) / per_second as u32;
            std::thread::spawn(move || shared.submit(&client, pace, pace * n as u32 / THREADS as u32))
        };
        let threads = (0..THREADS).map(spawn).collect();
        Load { shared, threads }
    }

    pub fn n_accepted(&self) -> u64 {
        self.shared.n_accepted.load(Ordering::Relaxed)
    }

    /// Those since the last time, in order of length.
    pub fn take_latencies(&self) -> Vec<Duration> {
        let mut latencies = std::mem::take(&mut *self.shared.latencies.lock().unwrap());
        latencies.sort_unstable();
        latencies
    }

    /// Gives how many tasks were accepted.
    pub fn end(self) -> u64 {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("every submit is accepted"));
        self.shared.n_accepted.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn submit(&self, client: &Client, pace: Duration, offset: Duration) {
        let mut due = Instant::now() + offset;
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let answer = client.try_send("POST", "/v1/tasks", &[], br#"{"kind":"noop"}"#).expect("the node answers");
            assert_eq!(answer.status, 201, "{}", answer.body);
            // From the moment it was due: a client that has to wait for its turn waits too.
            self.latencies.lock().unwrap().push(due.elapsed());
            self.n_accepted.fetch_add(1, Ordering::Relaxed);
            due += pace;
        }
    }
}
