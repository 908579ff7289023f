//! Reads the logs of a task's attempts one after the other, also while they are written.
//!
//! What it reads lies on this disk: of attempts that run here, and of those that workers elsewhere tell the holder of. A node
//! that has just become the holder has less of it than the last one, and it grows as the workers tell it everything again.

use std::sync::Arc;
use std::time::Duration;

use runyard_core::ids::TaskId;
use runyard_worker::LogFollow;
use tokio::sync::mpsc;

use super::tasks::task_doc;
use crate::app::App;
use crate::edge::StreamPass;
use crate::output::{Chunk, Part, Place};
use crate::waiters::Waiter;

const READ_BYTES: usize = 256 * 1024;
/// How often it is looked for who has an attempt that nobody is known to have: its worker presents itself soon, or is lost.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub struct Tail {
    pub _pass: StreamPass,
    pub app: Arc<App>,
    pub task: TaskId,
    /// One attempt only.
    pub only: Option<u32>,
    pub at: Place,
    /// To the end of the task.
    pub follow: bool,
    pub to: mpsc::Sender<Part>,
}

/// Why a tail ends before the output.
enum Cut {
    /// The client is gone, the server stops, or another node is to be asked.
    Elsewhere,
    /// The log cannot be read, or there is less of it than was read before.
    Missing,
}

impl Tail {
    /// Its last part says how it ended. Without one, it was cut off.
    pub async fn run(mut self) {
        let last = match self.tell().await {
            Ok(()) => Part::End,
            Err(Cut::Missing) => Part::Missing,
            Err(Cut::Elsewhere) => return,
        };
        // A client that is gone needs no end.
        let _ = self.to.send(last).await;
    }

    async fn tell(&mut self) -> Result<(), Cut> {
        let app = self.app.clone();
        let mut waiter = app.waiters.watch(self.task);
        let mut brought = 0;
        loop {
            // Taken before the rest is read: what is written in between wakes the wait below.
            let follow = self.growing();
            let seen = follow.as_ref().map_or(0, |follow| *follow.bytes.borrow());
            let doc = task_doc(&app, self.task).await.map_err(|_| Cut::Elsewhere)?;
            let (attempt, phase) = (doc.task.attempt, doc.task.phase());
            // With its payload it may be a megabyte, and this may wait for long.
            drop(doc);
            let attempt_ended = self.at.attempt < attempt || !phase.is_held();
            if attempt_ended && brought < self.at.attempt {
                app.bring_log(self.task, self.at.attempt).await;
                brought = self.at.attempt;
            }
            let bytes_here = self.read_rest().await?;
            // What has ended under another holder may have written more than came here.
            if !app.holds() {
                return Err(Cut::Elsewhere);
            }
            if self.at.attempt < attempt && self.only.is_none() {
                self.at = Place { attempt: self.at.attempt + 1, offset: 0 };
                continue;
            }
            let over = phase.is_terminal() || (self.only.is_some() && attempt_ended && attempt >= self.at.attempt);
            if over && bytes_here < self.at.offset {
                return Err(Cut::Missing);
            }
            if over || !self.follow {
                return Ok(());
            }
            self.grown(&mut waiter, phase.is_held(), follow, seen).await?;
        }
    }

    fn growing(&self) -> Option<LogFollow> {
        self.app.follow_log(self.task).filter(|follow| follow.attempt == self.at.attempt)
    }

    /// Waits until there may be more to read.
    async fn grown(
        &self,
        waiter: &mut Waiter<'_>,
        is_held: bool,
        follow: Option<LogFollow>,
        seen: u64,
    ) -> Result<(), Cut> {
        tokio::select! {
            () = self.app.stop.cancelled() => Err(Cut::Elsewhere),
            () = self.to.closed() => Err(Cut::Elsewhere),
            () = waiter.changed() => Ok(()),
            () = self.log_beyond(follow, seen), if is_held => Ok(()),
        }
    }

    /// Returns when the log is longer than it was, or when it is known again who writes it. The end of an attempt is not
    /// awaited here: the waiter tells of it when it is committed.
    async fn log_beyond(&self, follow: Option<LogFollow>, seen: u64) {
        if let Some(mut follow) = follow
            && follow.bytes.wait_for(|bytes| *bytes > seen).await.is_ok()
        {
            return;
        }
        while self.growing().is_none() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Gives how long the file is.
    async fn read_rest(&mut self) -> Result<u64, Cut> {
        let path = self.app.worker.places().log_file(self.task.0, self.at.attempt);
        loop {
            let (path, offset) = (path.clone(), self.at.offset);
            let read = move || {
                let (lines, next) = runyard_exec::log::read(&path, offset, READ_BYTES)?;
                let bytes_here = std::fs::metadata(&path).map_or(0, |about| about.len());
                Ok::<_, std::io::Error>((lines, next, bytes_here))
            };
            let Ok(Ok((lines, next, bytes_here))) = tokio::task::spawn_blocking(read).await else {
                return Err(Cut::Missing);
            };
            let is_end = next == self.at.offset;
            self.at.offset = next;
            if !lines.is_empty() {
                let chunk = Chunk { lines, attempt: self.at.attempt, next: self.at };
                self.to.send(Part::Lines(chunk)).await.map_err(|_| Cut::Elsewhere)?;
            }
            if is_end {
                return Ok(bytes_here);
            }
        }
    }
}
