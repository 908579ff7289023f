//! What the executor tests share: a data directory, runs that can be watched and stopped, readable outcomes.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runyard_exec::log::{self, Line};
use runyard_exec::outcome::Failure;
use runyard_exec::{
    Class, ExecOptions, Executors, Input, InputSender, Job, Kind, Limits, Outcome, Progress, Sandbox, Secrets, Signs,
    Usage, WorkspaceRules, input,
};
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const TASK: u128 = 0x0191_2345_6789_7abc_8def_0123_4567_89ab;
pub const TASK_TEXT: &str = "01912345-6789-7abc-8def-0123456789ab";

pub struct Yard {
    pub dir: TempDir,
    pub executors: Arc<Executors>,
}

impl Yard {
    pub fn new() -> Yard {
        Yard::with(None)
    }

    pub fn with(secrets: Option<Arc<dyn Secrets>>) -> Yard {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let options =
            ExecOptions { data_dir: dir.path().to_owned(), supervisor: None, guard: None, secrets, uploads: None };
        Yard { executors: Arc::new(Executors::new(options).expect("executors")), dir }
    }

    pub fn job(&self, kind: Kind, payload: Value) -> Job {
        Job {
            task: TASK,
            attempt: 1,
            token: 7,
            agent: Arc::from("ada"),
            session: None,
            traceparent: None,
            kind,
            program: None,
            payload: Some(RawValue::from_string(payload.to_string()).expect("JSON")),
            deadline: Some(1_794_776_400_123),
            timeout_ms: 120_000,
            watch_silence: false,
            output_bytes_max: log::LOG_BYTES_MAX,
            limits: Limits::default(),
            sandbox: Sandbox::None,
            workspace: WorkspaceRules::default(),
            docker: None,
            grace: Duration::from_secs(30),
        }
    }

    pub fn start(&self, job: Job) -> Running {
        self.start_with(job, Input::none())
    }

    /// As [`Self::start`], with the way to hand it further lines.
    pub fn start_open(&self, job: Job) -> (Running, InputSender) {
        let (sender, input) = input();
        (self.start_with(job, input), sender)
    }

    fn start_with(&self, job: Job, input: Input) -> Running {
        let signs = Arc::new(Recorder {
            log_bytes: watch::channel(0).0,
            progress: Mutex::default(),
            taken: watch::channel(Vec::new()).0,
        });
        let stop = CancellationToken::new();
        let (executors, its_signs, its_stop) = (self.executors.clone(), signs.clone(), stop.clone());
        let log_file = self.log_file();
        let outcome = tokio::spawn(async move { executors.run(job, input, its_stop, &*its_signs).await });
        Running { signs, stop, log_file, outcome }
    }

    pub async fn run(&self, kind: Kind, payload: Value) -> Outcome {
        self.start(self.job(kind, payload)).end().await
    }

    pub fn log_file(&self) -> PathBuf {
        self.executors.places().log_file(TASK, 1)
    }

    pub fn log_lines(&self) -> Vec<Line> {
        log::read(&self.log_file(), 0, usize::MAX >> 1).expect("the log can be read").0
    }

    pub fn log_texts(&self) -> Vec<String> {
        self.log_lines().into_iter().map(|line| line.text).collect()
    }
}

pub struct Running {
    pub signs: Arc<Recorder>,
    pub stop: CancellationToken,
    pub outcome: JoinHandle<Outcome>,
    log_file: PathBuf,
}

impl Running {
    /// The first log line that starts with this, as soon as it is there; without the start.
    pub async fn line(&self, start: &str) -> String {
        let mut grown = self.signs.log_bytes.subscribe();
        loop {
            let (lines, _) = log::read(&self.log_file, 0, usize::MAX >> 1).expect("the log can be read");
            if let Some(rest) = lines.iter().find_map(|line| line.text.strip_prefix(start)) {
                return rest.trim().to_owned();
            }
            grown.changed().await.expect("the recorder lives");
        }
    }

    /// Waits until this line has been taken.
    pub async fn taken(&self, id: u128) {
        let mut taken = self.signs.taken.subscribe();
        taken.wait_for(|taken| taken.contains(&id)).await.expect("the recorder lives");
    }

    pub async fn end(self) -> Outcome {
        self.outcome.await.expect("an executor does not panic")
    }

    pub async fn stop_and_end(self) -> Outcome {
        self.stop.cancel();
        self.end().await
    }
}

pub struct Recorder {
    pub log_bytes: watch::Sender<u64>,
    pub progress: Mutex<Vec<Progress>>,
    pub taken: watch::Sender<Vec<u128>>,
}

impl Signs for Recorder {
    fn alive(&self) {}

    fn log_grew(&self, log_bytes: u64) {
        self.log_bytes.send_replace(log_bytes);
    }

    fn progress(&self, progress: Progress) {
        self.progress.lock().expect("the recorder's lock").push(progress);
    }

    fn input_taken(&self, id: u128) {
        self.taken.send_modify(|taken| taken.push(id));
    }
}

pub fn completed(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Completed { result: Some(result), .. } => serde_json::from_slice(&result).expect("a result is JSON"),
        other => panic!("expected a completion with a result, got {other:?}"),
    }
}

pub fn usage(outcome: &Outcome) -> Option<Usage> {
    match outcome {
        Outcome::Completed { usage, .. } => *usage,
        Outcome::Failed(failure) => failure.usage.as_deref().copied(),
        Outcome::Stopped | Outcome::Lost { .. } | Outcome::NotStarted { .. } | Outcome::Left => None,
    }
}

pub fn failed(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("expected a failure, got {other:?}"),
    }
}

pub fn failed_as(outcome: Outcome) -> (Class, String) {
    let failure = failed(outcome);
    (failure.class, failure.message)
}

/// More than a zombie.
pub fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}
