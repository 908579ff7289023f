//! The environment of a process. The server's own is not inherited: it may hold keys that a task must not see.

use std::ffi::OsString;
use std::path::Path;

use crate::job::Job;

/// What a program cannot well do without, and no secret lives in.
const INHERITED: [&str; 6] = ["PATH", "HOME", "LANG", "TZ", "USER", "TMPDIR"];
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Also the mark by which processes of a task are recognised.
pub(crate) const WORKDIR: &str = "RUNYARD_WORKDIR";

/// Where programs are looked for.
pub(crate) fn path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into())
}

/// The inherited few. The payload's own variables come after them.
pub(crate) fn inherited() -> Vec<(&'static str, OsString)> {
    let mut variables: Vec<_> =
        INHERITED.iter().filter_map(|name| std::env::var_os(name).map(|value| (*name, value))).collect();
    if !variables.iter().any(|(name, _)| *name == "PATH") {
        variables.push(("PATH", PATH_DEFAULT.into()));
    }
    variables
}

/// What tells the work who it is, with paths as it sees them. Set last, so that a payload cannot replace it.
pub(crate) fn own(job: &Job, work_dir: OsString, report: OsString) -> Vec<(&'static str, OsString)> {
    let trace = job.traceparent.as_ref().map(|trace| ("TRACEPARENT", trace.into()));
    let who = [
        ("RUNYARD_TASK_ID", job.task_text().into()),
        ("RUNYARD_AGENT", (&*job.agent).into()),
        ("RUNYARD_ATTEMPT", job.attempt.to_string().into()),
        ("RUNYARD_SESSION", session_text(job.session.as_deref()).into()),
        ("RUNYARD_DEADLINE", deadline_text(job.deadline).into()),
        (WORKDIR, work_dir),
        ("RUNYARD_REPORT", report),
    ];
    who.into_iter().chain(trace).collect()
}

/// The key, or empty when there is none. It may have any character in it, but a variable has no NUL.
fn session_text(key: Option<&str>) -> String {
    key.unwrap_or_default().replace('\0', "\u{fffd}")
}

/// RFC 3339, or empty when there is none.
pub(crate) fn deadline_text(deadline_ms: Option<u64>) -> String {
    let at =
        deadline_ms.and_then(|ms| i64::try_from(ms).ok()).and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map(|at| format!("{at:.3}")).unwrap_or_default()
}

/// `RUNYARD_WORKDIR=<path>` as it stands in a process's environment.
pub(crate) fn workdir_mark(work_dir: &Path) -> Vec<u8> {
    [WORKDIR.as_bytes(), b"=", work_dir.as_os_str().as_encoded_bytes()].concat()
}
