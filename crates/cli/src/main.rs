//! The `runyard` program: server, client and demo in one binary.

#![forbid(unsafe_code)]

mod bench;
mod cli;
mod command;

mod client;
mod error;
mod exit;
mod locate;
mod out;
mod pages;
mod patience;
mod span;
mod sse;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tokio::runtime::Runtime;

/// What still runs when a command is done gets so long. Tasks are dropped at once, which kills the processes they hold;
/// a thread in a blocking call (a name that no resolver answers for, a disk that hangs) would keep the program for as
/// long as the call takes, and nobody waits for what it finds.
const LEAVE_MAX: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    if let Some(run) = command::supervise::asked_for(std::env::args_os()) {
        return command::supervise::run_attempt(&run);
    }
    let cli = match cli::Cli::parse().into_supervise() {
        Ok(supervise) => return supervise.run(),
        Err(cli) => cli,
    };
    let runtime = Runtime::new().expect("the operating system gives threads");
    run_and_leave(runtime, async {
        match cli.run().await {
            Ok(exit) => exit.into(),
            Err(error) => {
                out::note(format!("error: {error}"));
                error.exit().into()
            }
        }
    })
}

fn run_and_leave<T>(runtime: Runtime, command: impl Future<Output = T>) -> T {
    let done = runtime.block_on(command);
    runtime.shutdown_timeout(LEAVE_MAX);
    done
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_blocked_thread_does_not_hold_the_exit_up() {
        let (begun, has_begun) = mpsc::channel();
        let (_never, release) = mpsc::channel::<()>();
        let began = Instant::now();
        let done = run_and_leave(Runtime::new().unwrap(), async move {
            tokio::task::spawn_blocking(move || {
                begun.send(()).unwrap();
                let _ = release.recv_timeout(Duration::from_secs(60));
            });
            has_begun.recv().unwrap();
            7
        });
        assert_eq!(done, 7);
        assert!(began.elapsed() < Duration::from_secs(30), "it waited {:?}", began.elapsed());
    }
}
