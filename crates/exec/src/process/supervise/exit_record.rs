//! `exit.json`: how a run ended, for a server that may not be there to see it.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::facts::ExitFacts;
use crate::job::{Job, Progress, task_of_text, task_text};
use crate::outcome::{Class, Failure, Fault, Outcome};
use crate::process::exit::signal_name;
use crate::process::system::ChildrenUsage;
use crate::usage::Usage;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExitRecord {
    task_id: String,
    attempt: u32,
    outcome: Recorded,
    /// Of the command; absent when a signal ended it, or it never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    /// Something of it was killed because it was over its limit of memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    out_of_memory: bool,
    /// Of the command and everything it started. Of a container nobody tells.
    cpu_seconds: f64,
    /// Of the largest of its processes.
    peak_rss_bytes: u64,
    wall_ms: u64,
    ended_at: String,
    /// Of its limits, what could not be kept, in sentences for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    not_enforced: Vec<String>,
    /// The last messages it took as input. The server may not have heard of them.
    #[serde(default)]
    taken: Vec<String>,
    /// The last it said of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<Progress>,
}

/// What there is to say beside the outcome.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub status: Option<ExitStatus>,
    pub used: ChildrenUsage,
    pub wall: Duration,
    pub out_of_memory: bool,
    pub not_enforced: Vec<String>,
    pub taken: Vec<u128>,
    pub progress: Option<Progress>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Recorded {
    #[serde(rename_all = "camelCase")]
    Completed {
        result: Option<Box<RawValue>>,
        usage: Option<Usage>,
    },
    #[serde(rename_all = "camelCase")]
    Failed {
        class: Class,
        message: String,
        retry_after_ms: Option<u64>,
        result: Option<Box<RawValue>>,
        usage: Option<Usage>,
        fault: Fault,
    },
    Stopped {},
    Lost {
        reason: String,
    },
    NotStarted {
        reason: String,
    },
}

impl ExitRecord {
    pub(crate) fn new(job: &Job, outcome: Outcome, facts: Facts) -> ExitRecord {
        ExitRecord {
            task_id: job.task_text(),
            attempt: job.attempt,
            outcome: Recorded::from(outcome),
            exit_code: facts.status.and_then(|status| status.code()),
            signal: facts.status.and_then(|status| status.signal()).map(signal_name),
            out_of_memory: facts.out_of_memory,
            cpu_seconds: facts.used.cpu.as_secs_f64(),
            peak_rss_bytes: facts.used.peak_rss_bytes,
            wall_ms: u64::try_from(facts.wall.as_millis()).unwrap_or(u64::MAX),
            ended_at: format!("{:.3}", jiff::Timestamp::now()),
            not_enforced: facts.not_enforced,
            taken: facts.taken.into_iter().map(task_text).collect(),
            progress: facts.progress,
        }
    }

    /// Of a run on another machine. How it came out is known to who needs it.
    pub(crate) fn told(task: u128, facts: ExitFacts) -> ExitRecord {
        ExitRecord {
            task_id: task_text(task),
            attempt: facts.attempt,
            outcome: Recorded::Stopped {},
            exit_code: facts.exit_code,
            signal: facts.signal,
            out_of_memory: facts.out_of_memory,
            cpu_seconds: facts.cpu_seconds,
            peak_rss_bytes: facts.peak_rss_bytes,
            wall_ms: facts.wall_ms,
            ended_at: facts.ended_at,
            not_enforced: Vec::new(),
            taken: Vec::new(),
            progress: None,
        }
    }

    pub(crate) fn taken(&self) -> impl Iterator<Item = u128> {
        self.taken.iter().filter_map(|id| task_of_text(id))
    }

    /// A command that was started has ended somehow.
    pub(crate) fn has_run(&self) -> bool {
        self.exit_code.is_some() || self.signal.is_some()
    }

    pub(crate) fn is_of(&self, attempt: u32) -> bool {
        self.attempt == attempt
    }

    pub(crate) fn not_enforced(&self) -> Vec<String> {
        self.not_enforced.clone()
    }

    pub(crate) fn into_facts(self) -> ExitFacts {
        ExitFacts {
            attempt: self.attempt,
            exit_code: self.exit_code,
            signal: self.signal,
            out_of_memory: self.out_of_memory,
            cpu_seconds: self.cpu_seconds,
            peak_rss_bytes: self.peak_rss_bytes,
            wall_ms: self.wall_ms,
            ended_at: self.ended_at,
        }
    }

    pub(crate) fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    pub(crate) fn into_outcome(self) -> Outcome {
        self.outcome.into()
    }
}

impl From<Outcome> for Recorded {
    fn from(outcome: Outcome) -> Recorded {
        match outcome {
            Outcome::Completed { result, usage } => Recorded::Completed { result: result.and_then(raw), usage },
            Outcome::Failed(failure) => Recorded::Failed {
                class: failure.class,
                message: failure.message,
                retry_after_ms: failure.retry_after_ms,
                result: failure.result.and_then(raw),
                usage: failure.usage.map(|usage| *usage),
                fault: failure.fault,
            },
            Outcome::Stopped => Recorded::Stopped {},
            Outcome::Lost { reason } => Recorded::Lost { reason },
            Outcome::NotStarted { reason } => Recorded::NotStarted { reason },
            Outcome::Left => Recorded::Lost { reason: "it was left alone".to_owned() },
        }
    }
}

impl From<Recorded> for Outcome {
    fn from(recorded: Recorded) -> Outcome {
        match recorded {
            Recorded::Completed { result, usage } => Outcome::Completed { result: result.map(bytes), usage },
            Recorded::Failed { class, message, retry_after_ms, result, usage, fault } => Outcome::Failed(Failure {
                class,
                message,
                retry_after_ms,
                result: result.map(bytes),
                usage: usage.map(Box::new),
                fault,
            }),
            Recorded::Stopped {} => Outcome::Stopped,
            Recorded::Lost { reason } => Outcome::Lost { reason },
            Recorded::NotStarted { reason } => Outcome::NotStarted { reason },
        }
    }
}

/// Results are JSON already; one that is not would be a bug, and costs only itself.
fn raw(result: Vec<u8>) -> Option<Box<RawValue>> {
    String::from_utf8(result).ok().and_then(|text| RawValue::from_string(text).ok())
}

fn bytes(result: Box<RawValue>) -> Vec<u8> {
    String::from(Box::<str>::from(result)).into_bytes()
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::docker::DockerRules;
    use crate::job::Kind;
    use crate::limits::Limits;
    use crate::payload::Sandbox;
    use crate::workspace::WorkspaceRules;

    pub(in super::super) fn job() -> Job {
        Job {
            task: 7,
            attempt: 2,
            token: u64::MAX,
            agent: Arc::from("ada"),
            session: Some(Arc::from("chat:7")),
            traceparent: None,
            kind: Kind::Process,
            program: None,
            payload: RawValue::from_string(r#"{"shell":"true"}"#.to_owned()).ok(),
            deadline: Some(5),
            timeout_ms: 1000,
            watch_silence: true,
            output_bytes_max: 10,
            limits: Limits { cpu: Some(0.5), ..Limits::default() },
            sandbox: Sandbox::Bubblewrap,
            workspace: WorkspaceRules { files_max: 3, ..WorkspaceRules::default() },
            docker: Some(Box::new(DockerRules { cpu_max: Some(1.5), ..DockerRules::default() })),
            grace: Duration::from_millis(1500),
        }
    }

    #[test]
    fn every_outcome_comes_back_as_it_was() {
        let usage = Usage { input_tokens: Some(3), ..Usage::default() };
        let failure = Failure::work(Class::Timeout, "exit code 124").with_usage(Some(usage));
        let outcomes = [
            Outcome::Completed { result: Some(br#"{"a": 1.50}"#.to_vec()), usage: Some(usage) },
            Outcome::Completed { result: None, usage: None },
            Outcome::Failed(failure.with_result(b"[1]".to_vec())),
            Outcome::Failed(Failure::worker("no room")),
            Outcome::Stopped,
            Outcome::Lost { reason: "gone".to_owned() },
            Outcome::NotStarted { reason: "no server".to_owned() },
        ];
        for outcome in outcomes {
            let progress = Some(Progress { fraction: Some(0.5), message: None });
            let facts = Facts { taken: vec![1, u128::MAX], progress: progress.clone(), ..Facts::default() };
            let text = serde_json::to_vec(&ExitRecord::new(&job(), outcome.clone(), facts)).expect("JSON");
            let record: ExitRecord = serde_json::from_slice(&text).expect("it can be read again");
            assert_eq!(
                (record.taken().collect::<Vec<_>>(), record.progress()),
                (vec![1, u128::MAX], progress.as_ref())
            );
            assert_eq!(record.into_outcome(), outcome);
        }
    }

    #[test]
    fn a_job_comes_back_as_it_was() {
        let text = serde_json::to_vec(&job()).expect("JSON");
        let again: Job = serde_json::from_slice(&text).expect("it can be read again");
        assert_eq!(format!("{again:?}"), format!("{:?}", job()));
    }
}
