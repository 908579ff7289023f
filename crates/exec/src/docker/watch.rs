//! A container while it runs: its output, its report, and what it is asked.
//!
//! ```text
//! Running ── stop asked: SIGTERM ──► Asked ── grace is over: SIGKILL ──► Killed (and again, until it is dead)
//!    └───────── it ends ─────────────┴──────────── it ends ──────────────┴──► the rest of its output ──► outcome
//! ```
//!
//! With its first process everything in a container is dead: there is nothing to look for afterwards.

use std::pin::Pin;
use std::time::Duration;

use bollard::container::LogOutput;
use futures_util::StreamExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::container::{Container, Output, Patience};
use super::engine::Error;
use crate::job::{Job, Signs};
use crate::log::{LogWriter, Stream};
use crate::outcome::Failure;
use crate::places::Places;
use crate::process::pace::{Look, Pace};
use crate::process::report::{ReportTail, Reported};
use crate::process::stdin::Feed;
use crate::process::tail::Tail;
use crate::secret::Redactor;

/// How long output may stay open after the container has ended.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// A kill that did not reach the engine is sent again.
const KILL_AGAIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// Asked to stop; at `kill_at` it is made to.
    Asked {
        kill_at: Instant,
    },
    Killed {
        again_at: Instant,
    },
}

impl Phase {
    fn kill_at(self) -> Option<Instant> {
        match self {
            Phase::Running => None,
            Phase::Asked { kill_at } => Some(kill_at),
            Phase::Killed { again_at } => Some(again_at),
        }
    }
}

/// Why the watch is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    OfItself,
    Asked,
}

pub(super) struct Watch<'a> {
    container: &'a Container,
    signs: &'a dyn Signs,
    watch_silence: bool,
    /// `None` once it is closed.
    output: Option<Output>,
    stdout: Tail,
    stderr: Tail,
    pub log: LogWriter,
    report: ReportTail,
}

/// What a container has said.
pub(super) struct Words {
    pub stdout: Tail,
    pub stderr: Tail,
    pub reported: Reported,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        places: &Places,
        job: &Job,
        container: &'a Container,
        output: Output,
        signs: &'a dyn Signs,
        redactor: &Redactor,
    ) -> Watch<'a> {
        let mut log = LogWriter::new(places.log_file(job.task, job.attempt), job.output_bytes_max);
        log.redact(redactor.clone());
        Watch {
            container,
            signs,
            watch_silence: job.watch_silence,
            output: Some(output),
            stdout: Tail::without(redactor.clone()),
            stderr: Tail::without(redactor.clone()),
            log,
            report: ReportTail::new(places.report_file(job.task), redactor.clone()),
        }
    }

    /// Until it has ended, of itself or because it was brought to its end. The error is of an engine that stays away.
    pub(super) async fn run(
        &mut self,
        feed: Feed,
        grace: Duration,
        stop: &CancellationToken,
    ) -> Result<Ending, Failure> {
        let mut phase = Phase::Running;
        let mut pace = Pace::new(Instant::now(), self.watch_silence);
        let container = self.container;
        let mut ended = Box::pin(container.ended());
        let feed = feed.run(stop, self.signs);
        tokio::pin!(feed);
        let mut is_fed = false;
        loop {
            let kill_at = phase.kill_at();
            tokio::select! {
                end = &mut ended => match end {
                    Ok(()) => return Ok(if phase == Phase::Running { Ending::OfItself } else { Ending::Asked }),
                    Err(error) => {
                        self.resume(error).await?;
                        ended = Box::pin(container.ended());
                    }
                },
                () = stop.cancelled(), if phase == Phase::Running => {
                    container.signal("SIGTERM").await;
                    phase = Phase::Asked { kill_at: Instant::now() + grace };
                }
                () = tokio::time::sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                    container.signal("SIGKILL").await;
                    phase = Phase::Killed { again_at: Instant::now() + KILL_AGAIN };
                }
                chunk = next(&mut self.output), if self.output.is_some() => {
                    self.store(chunk);
                    pace.hurry(Instant::now());
                }
                () = &mut feed, if !is_fed => is_fed = true,
                () = tokio::time::sleep_until(pace.at()) => {
                    let look = self.look();
                    pace.looked(Instant::now(), look);
                }
            }
        }
    }

    /// The engine broke off: it may have been restarted, and the container may go on all the same. One that is on its way
    /// down may still answer, and be gone with the next call.
    async fn resume(&mut self, broken: Error) -> Result<(), Failure> {
        tracing::warn!(error = %broken, "the engine is gone for the moment");
        let patience = Patience::new();
        let mut resumed = self.attach_again().await;
        while patience.tries_again(&resumed).await {
            resumed = self.attach_again().await;
        }
        Ok(resumed?)
    }

    async fn attach_again(&mut self) -> Result<(), Error> {
        let state = match self.container.state_now().await {
            // What has ended, or is not even there any more, is found by whoever looks next.
            Err(error) if error.is_not_found() => return Ok(()),
            state => state?,
        };
        if state.running == Some(true) {
            self.output = Some(self.container.attach(false).await?.output);
            self.log.note("the engine was restarted; output may be missing here");
        }
        Ok(())
    }

    /// At what nobody tells: an output without a line end, the report.
    fn look(&mut self) -> Look {
        let log_bytes = self.log.file_bytes();
        self.log.flush();
        self.signs.log_grew(self.log.file_bytes());
        let reported = self.report.poll(self.signs, &mut self.log);
        if reported == Look::News || self.log.file_bytes() != log_bytes { Look::News } else { Look::Nothing }
    }

    /// `None`: no more will come.
    fn store(&mut self, chunk: Option<LogOutput>) {
        let (stream, tail, bytes) = match chunk {
            Some(LogOutput::StdErr { message }) => (Stream::Stderr, &mut self.stderr, message),
            Some(chunk) => (Stream::Stdout, &mut self.stdout, chunk.into_bytes()),
            None => {
                self.output = None;
                return;
            }
        };
        self.log.write(stream, &bytes);
        tail.push(&bytes);
        self.signs.alive();
        self.signs.log_grew(self.log.file_bytes());
    }

    /// What it still had to say.
    pub(super) async fn finish(mut self) -> Words {
        let rest = async {
            while self.output.is_some() {
                let chunk = next(&mut self.output).await;
                self.store(chunk);
            }
        };
        let _ = tokio::time::timeout(DRAIN_MAX, rest).await;
        self.report.finish(self.signs, &mut self.log);
        if let Err(error) = self.report.clear() {
            tracing::warn!(%error, "a report with secrets in it cannot be cleared of them");
        }
        self.log.finish();
        self.signs.log_grew(self.log.file_bytes());
        Words { stdout: self.stdout, stderr: self.stderr, reported: self.report.into_reported() }
    }
}

/// A stream that breaks has ended: whether the container has, others see.
async fn next(output: &mut Option<Output>) -> Option<LogOutput> {
    match output {
        Some(output) => Pin::as_mut(output).next().await?.ok(),
        None => std::future::pending().await,
    }
}
