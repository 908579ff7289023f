//! Commands that leave nothing behind that a repeat would find: a delete, a stop, a run by hand. Where a node may have to
//! ask again because nobody heard the answer, each comes with a key, and what it did is written with it, in one commit.

use crate::core::{Core, answer};
use crate::event::{Answer, Command, Event, FirstAnswer, Idempotency, IdempotencyRow, Receipt, SessionAnswer};
use crate::ids::Ticket;
use crate::now::Now;
use crate::schedule::ScheduleAnswer;
use crate::worker::{WorkerAnswer, WorkerRow, WorkerView};

impl Core {
    pub(crate) fn on_once(
        &mut self,
        now: Now,
        ticket: Ticket,
        key: Idempotency,
        command: Event,
        out: &mut Vec<Command>,
    ) {
        if let Some(known) = self.replay(Some(&key)) {
            return answer(out, ticket, known);
        }
        let n_before = out.len();
        self.handle(now, command, out);
        let receipt = out[n_before..].iter().find_map(|command| match command {
            Command::Answer { ticket: asked, answer } if *asked == ticket => receipt(answer),
            _ => None,
        });
        // What was refused did nothing, and may be tried again.
        if let Some(receipt) = receipt {
            let answer = FirstAnswer::Command(receipt);
            self.add_key(IdempotencyRow { key, answer, created_at: now.wall_ms });
        }
    }
}

fn receipt(answer: &Answer) -> Option<Receipt> {
    match answer {
        Answer::Schedule(Ok(ScheduleAnswer::Ran(run))) => Some(Receipt::Ran { schedule: run.schedule, run: run.n }),
        Answer::Session(SessionAnswer::Stopped { task }) => Some(Receipt::Stopped { task: *task }),
        Answer::Session(SessionAnswer::StoppedAll { running, waiting, debouncing, .. }) => {
            Some(Receipt::StoppedAll { running: *running, waiting: *waiting, debouncing: *debouncing })
        }
        Answer::Worker(Ok(WorkerAnswer::Done(view))) => Some(Receipt::WorkerRemoved(Box::new(row_of(view)))),
        Answer::Done | Answer::Change(Ok(_)) | Answer::Schedule(Ok(_)) => Some(Receipt::Done),
        _ => None,
    }
}

fn row_of(view: &WorkerView) -> WorkerRow {
    WorkerRow {
        spec: view.spec.clone(),
        session: 0,
        draining: view.draining,
        registered_at: view.registered_at.unwrap_or(0),
        about: view.about.clone(),
    }
}
