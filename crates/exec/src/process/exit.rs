//! What an exit status means.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::printed::Printed;
use super::report::Reported;
use super::tail::Tail;
use crate::outcome::{Class, Failure, Outcome};
use crate::result::{RESULT_BYTES_MAX, fit_text, to_bytes};
use crate::usage::Usage;

/// What `timeout(1)` exits with, and what programs that imitate it do.
const EXIT_TIMEOUT: i32 = 124;
/// Of the last line of standard error, in a message.
const QUOTE_BYTES_MAX: usize = 512;

/// What a process has printed.
pub(crate) struct Said<'a> {
    pub stdout: &'a Tail,
    pub stderr: &'a Tail,
    /// When that is its result.
    pub printed: Option<Printed>,
}

pub(crate) fn outcome(status: ExitStatus, said: Said<'_>, reported: Reported) -> Outcome {
    let usage = reported.usage;
    let Said { stdout, stderr, printed } = said;
    match (status.code(), printed) {
        (Some(0), Some(printed)) if reported.result.is_none() => printed_result(printed, usage),
        (Some(0), _) => completed(stdout, reported),
        (Some(code), _) => failed(code, stdout, stderr).with_usage(usage).into(),
        (None, _) => killed(status.signal().unwrap_or_default(), stdout, stderr).with_usage(usage).into(),
    }
}

fn printed_result(printed: Printed, usage: Option<Usage>) -> Outcome {
    match printed.into_result() {
        Ok(result) => Outcome::Completed { result: Some(result), usage },
        Err(message) => Failure::work(Class::Permanent, message).with_usage(usage).into(),
    }
}

fn completed(stdout: &Tail, reported: Reported) -> Outcome {
    let Reported { result, usage_json, usage } = reported;
    let Some(result) = result else {
        let mut result = json!({"exitCode": 0, "stdout": stdout.text()});
        if let Some(usage) = usage_json.as_deref().and_then(usage_value) {
            result["usage"] = usage;
        }
        return Outcome::Completed { result: Some(to_bytes(&result)), usage };
    };
    if result.get().len() > RESULT_BYTES_MAX {
        let message =
            format!("the reported result has {} bytes, over the limit of {RESULT_BYTES_MAX}", result.get().len());
        return Failure::work(Class::Permanent, message).with_usage(usage).into();
    }
    Outcome::Completed { result: Some(String::from(Box::<str>::from(result)).into_bytes()), usage }
}

/// Usage is a small object; one that is not would push the result over its limit.
fn usage_value(usage: &RawValue) -> Option<Value> {
    (usage.get().len() <= 64 * 1024).then(|| serde_json::from_str(usage.get()).ok()).flatten()
}

fn failed(code: i32, stdout: &Tail, stderr: &Tail) -> Failure {
    let class = if code == EXIT_TIMEOUT { Class::Timeout } else { Class::Task };
    let message = match stderr.last_line() {
        Some(line) => format!("exit code {code}: {}", fit_text(&line, QUOTE_BYTES_MAX).0),
        None => format!("exit code {code}"),
    };
    let result = json!({"exitCode": code, "stdout": stdout.text(), "stderr": stderr.text()});
    Failure::work(class, message).with_result(to_bytes(&result))
}

/// By somebody else: a stop that was asked for does not come here.
fn killed(signal: i32, stdout: &Tail, stderr: &Tail) -> Failure {
    let name = signal_name(signal);
    let message = match name.as_str() {
        "SIGKILL" => "killed by SIGKILL (possibly the machine was out of memory)".to_owned(),
        name => format!("killed by {name}"),
    };
    let result = json!({"exitCode": null, "signal": name, "stdout": stdout.text(), "stderr": stderr.text()});
    Failure::work(Class::Task, message).with_result(to_bytes(&result))
}

pub(crate) fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}
