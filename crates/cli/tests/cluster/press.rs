//! Load: one task after the other is submitted at one node, or at whichever answers, until it is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Answer, Client};

/// Between two submits: a load, and not a race for the processor.
pub const PAUSE: Duration = Duration::from_millis(5);
/// After an answer that was none.
const AGAIN: Duration = Duration::from_millis(50);

pub struct Press {
    is_over: Arc<AtomicBool>,
    n_accepted: Arc<AtomicU64>,
    thread: JoinHandle<Pressed>,
}

#[derive(Default)]
pub struct Pressed {
    /// Of all tasks that were accepted.
    pub ids: Vec<String>,
    /// The longest time between a submit and its answer.
    pub longest: Duration,
    /// What else than 201 came.
    pub refusals: Vec<Refusal>,
}

#[derive(PartialEq, Eq, Debug)]
pub struct Refusal {
    pub after: Duration,
    /// What a node said. Of one that is gone, nothing.
    pub said: Option<String>,
}

/// What becomes of a task that was not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unanswered {
    /// It goes to the next client, until one has accepted it: its idempotency key keeps it one task.
    Again,
    /// It has no key and is not sent again: nobody knows whether it was taken. Whatever happens behind the node that it was
    /// sent to, that node must make one task of it.
    Left,
}

impl Press {
    /// The n-th task is what `task` says. Each goes to the clients in turn, until one has accepted it.
    pub fn start(clients: Vec<Client>, task: impl Fn(u64) -> Value + Send + 'static) -> Press {
        Press::paced(clients, PAUSE, task)
    }

    /// With so long a pause between two of them.
    pub fn paced(clients: Vec<Client>, pause: Duration, task: impl Fn(u64) -> Value + Send + 'static) -> Press {
        Press::run(clients, pause, Unanswered::Again, task)
    }

    /// Each is sent once, to the clients in turn.
    pub fn once(clients: Vec<Client>, pause: Duration, task: impl Fn(u64) -> Value + Send + 'static) -> Press {
        Press::run(clients, pause, Unanswered::Left, task)
    }

    fn run(
        clients: Vec<Client>,
        pause: Duration,
        unanswered: Unanswered,
        task: impl Fn(u64) -> Value + Send + 'static,
    ) -> Press {
        let (is_over, n_accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (over, accepted) = (is_over.clone(), n_accepted.clone());
        let thread = std::thread::spawn(move || {
            let mut pressed = Pressed::default();
            for n in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                pressed.submit(&clients, unanswered, n, &task(n));
                accepted.store(pressed.ids.len() as u64, Ordering::Relaxed);
                std::thread::park_timeout(pause);
            }
            pressed
        });
        Press { is_over, n_accepted, thread }
    }

    pub fn n_accepted(&self) -> u64 {
        self.n_accepted.load(Ordering::Relaxed)
    }

    pub fn end(self) -> Pressed {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the load goes on to its end")
    }
}

impl Pressed {
    fn submit(&mut self, clients: &[Client], unanswered: Unanswered, n: u64, task: &Value) {
        // Two loads of one test may be under way: the thread tells their keys apart.
        let key = format!("press-{:?}-{n}", std::thread::current().id());
        let body = task.to_string();
        for client in clients.iter().cycle().skip(n as usize % clients.len()) {
            let began = Instant::now();
            let headers: &[(&str, &str)] = match unanswered {
                Unanswered::Again => &[("idempotency-key", &key)],
                Unanswered::Left => &[],
            };
            let answer = client.try_send("POST", "/v1/tasks", headers, body.as_bytes());
            let after = began.elapsed();
            self.longest = self.longest.max(after);
            let said = match answer.as_ref().map(accepted) {
                Some(Ok(id)) => return self.ids.push(id),
                Some(Err(refusal)) => Some(refusal),
                None => None,
            };
            self.refusals.push(Refusal { after, said });
            if unanswered == Unanswered::Left {
                return;
            }
            std::thread::park_timeout(AGAIN);
        }
    }
}

/// A node that cannot say yes says when to ask again. Anything else is no answer that a client may get.
fn accepted(answer: &Answer) -> Result<String, String> {
    match answer.status {
        201 => Ok(answer.json()["id"].as_str().expect("a task has an id").to_owned()),
        503 => {
            assert!(answer.head.to_ascii_lowercase().contains("retry-after:"), "{}\n{}", answer.head, answer.body);
            Err(format!("503 {}", answer.body))
        }
        status => panic!("a submit was answered {status}: {}", answer.body),
    }
}
