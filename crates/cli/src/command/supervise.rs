//! `runyard supervise`: one attempt of one process task, in a program of its own. The server starts it; nobody else needs
//! to. Hundreds of them may run at once, so nothing is set up here that a supervisor does not need.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use runyard_exec::process::supervise;

/// It could not begin, or could not say how it ended.
const EXIT_FAILED: u8 = 1;

#[derive(clap::Args)]
#[command(after_help = "\
The directory is runs/<task>-<attempt> in the data directory, with the server's orders in job.json. The supervisor makes
running/task_<id>.json before it starts the command, writes exit.json when nothing of it is alive any more, and logs
JSON lines to standard error. SIGTERM stops the task: its processes are asked, and after their grace killed.")]
pub struct Args {
    /// The directory of the run
    #[arg(long, value_name = "DIR", required_unless_present = "schema")]
    run: Option<PathBuf>,
    /// Print the JSON schema of the lease files, running/task_<id>.json
    #[arg(long)]
    schema: bool,
}

impl Args {
    pub fn run(self) -> ExitCode {
        match self.run {
            Some(run) if !self.schema => run_attempt(&run),
            _ => print_schema(),
        }
    }
}

/// The directory, when the arguments are the very ones that the server gives. They are looked at before anything else:
/// the whole command line costs a supervisor more memory than all its work does.
pub fn asked_for(mut arguments: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let is = |argument: Option<OsString>, text: &str| argument.is_some_and(|argument| argument == text);
    let _program = arguments.next();
    let is_asked = is(arguments.next(), "supervise") && is(arguments.next(), "--run");
    let run = arguments.next().filter(|_| is_asked)?;
    arguments.next().is_none().then(|| PathBuf::from(run))
}

pub fn run_attempt(run: &Path) -> ExitCode {
    let log = tracing_subscriber::fmt().json().flatten_event(true).with_writer(supervise::LogLine::default);
    // A second one is refused, which cannot be: this program does nothing else.
    let _ = log.try_init();
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "panicked")));
    match supervise::supervise(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "does not supervise");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn print_schema() -> ExitCode {
    let schema = serde_json::to_string_pretty(&supervise::lease_schema()).expect("a schema is plain JSON");
    match crate::out::line(schema) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(EXIT_FAILED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_servers_own_words_take_the_short_way() {
        let asked = |line: &str| asked_for(line.split(' ').map(OsString::from));
        assert_eq!(asked("runyard supervise --run /a/b"), Some(PathBuf::from("/a/b")));
        for other in
            ["runyard", "runyard serve", "runyard supervise", "runyard supervise --run", "runyard supervise --run a b"]
        {
            assert_eq!(asked(other), None, "{other}");
        }
    }
}
