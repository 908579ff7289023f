//! What can go wrong for a person at the terminal, and what would be right.

use std::fmt;
use std::path::PathBuf;

use runyard_server::tick;
use runyard_wire::Problem;
use runyard_worker::remote;

use crate::exit::Exit;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Absent(String),
    #[error("cannot {doing} {}: {source}", path.display())]
    File { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{}", refusal(.0))]
    Refused(Box<Problem>),
    #[error(
        "no server answers at {url}: {detail}\n  start one with `runyard serve`, or name another with --url or RUNYARD_URL"
    )]
    Unreachable { url: String, detail: String },
    #[error("{url} does not answer like a Runyard server: {detail}")]
    Unreadable { url: String, detail: String },
    #[error("{}", chain(.0))]
    Server(#[from] runyard_server::Error),
    #[error("{}", chain(.0))]
    Tick(#[from] tick::Error),
    #[error("{}", chain(.0))]
    Worker(#[from] remote::Error),
    #[error("timed out after {waited}; {what}")]
    TimedOut { waited: String, what: String },
    #[error("the benchmark failed: {0}")]
    Bench(String),
    #[error("cannot write the output: {0}")]
    Output(#[source] std::io::Error),
}

impl Error {
    pub fn usage(message: impl fmt::Display) -> Error {
        Error::Usage(message.to_string())
    }

    pub fn exit(&self) -> Exit {
        match self {
            Error::Usage(_) | Error::File { .. } | Error::Output(_) => Exit::Usage,
            Error::Absent(_) => Exit::NotFound,
            Error::Refused(problem) => match problem.status {
                404 => Exit::NotFound,
                500.. => Exit::Unavailable,
                _ => Exit::Refused,
            },
            Error::Server(runyard_server::Error::Config(_) | runyard_server::Error::NoAuthInPublic { .. }) => {
                Exit::Usage
            }
            Error::Tick(tick::Error::Server(runyard_server::Error::Config(_))) => Exit::Usage,
            Error::Tick(_) => Exit::Failed,
            Error::Unreachable { .. } | Error::Unreadable { .. } | Error::Server(_) | Error::Bench(_) => {
                Exit::Unavailable
            }
            Error::TimedOut { .. } => Exit::TimedOut,
            Error::Worker(remote::Error::Refused(_) | remote::Error::Removed { .. }) => Exit::Refused,
            Error::Worker(remote::Error::Worker(_)) => Exit::Failed,
            Error::Worker(_) => Exit::Usage,
        }
    }

    /// Worth asking again a little later: the server restarts, recovers, or is out of reach for a moment.
    pub fn is_passing(&self) -> bool {
        match self {
            Error::Unreachable { .. } => true,
            Error::Refused(problem) => matches!(problem.status, 502..=504),
            _ => false,
        }
    }
}

fn refusal(problem: &Problem) -> String {
    let mut facts = vec![problem.code.clone()];
    facts.extend(problem.field.as_ref().map(|field| format!("field {field}")));
    facts.retain(|fact| !fact.is_empty());
    let what = match problem.detail.as_str() {
        "" => format!("{} {}", problem.status, problem.title),
        detail => detail.to_owned(),
    };
    let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join("; ")) };
    format!("{what}{facts}{}", advice(problem.status))
}

/// An error with everything that is behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn advice(status: u16) -> &'static str {
    match status {
        401 => {
            "\n  sign in with --api-key, RUNYARD_API_KEY or RUNYARD_API_KEY_FILE; \
                on the server's machine the key is in <data>/admin.key"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16) -> Problem {
        let detail = "rank must be a whole number".into();
        Problem { status, detail, code: "invalid".into(), field: Some("rank".into()), ..Problem::default() }
    }

    #[test]
    fn a_refusal_names_code_and_field() {
        let error = Error::Refused(Box::new(problem(400)));
        assert_eq!(error.to_string(), "rank must be a whole number (invalid; field rank)");
    }

    #[test]
    fn statuses_become_exit_codes() {
        for (status, exit) in [
            (400, Exit::Refused),
            (401, Exit::Refused),
            (404, Exit::NotFound),
            (409, Exit::Refused),
            (429, Exit::Refused),
            (500, Exit::Unavailable),
            (503, Exit::Unavailable),
        ] {
            assert_eq!(Error::Refused(Box::new(problem(status))).exit(), exit, "{status}");
        }
    }
}
