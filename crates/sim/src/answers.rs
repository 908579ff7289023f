//! What a tick lets out: only what is committed, and each answer as the events and the keys known so far demand.

use std::collections::BTreeMap;

use runyard_core::event::{
    Accepted, Admit, Answer, CancelAnswer, ChangeRefusal, Command, FirstAnswer, NewTask, Refusal, SessionAct,
    SessionAnswer, Start, Submission, SubmitMode,
};
use runyard_core::ids::{TaskId, Ticket};
use runyard_core::sanity::{Keep, KeptAt};
use runyard_core::task::{OnDependencyFailure, Phase, State, Stop, Task, Tier, Wait};
use runyard_store::yard::Ticked;

use crate::foresee::Forecast;
use crate::lineup::Verdict;
use crate::oracle::{Applied, Oracle};
use crate::quiet::Expected;

impl Oracle {
    pub fn check_commands(&mut self, forecast: &Forecast, ticked: &Ticked, applied: &Applied, keeps: &[Keep]) {
        let mut revokes = forecast.revokes.clone();
        let mut n_starts = 0;
        for command in &ticked.commands {
            match command {
                Command::Start(start) => {
                    n_starts += 1;
                    let row = self.rows.get(&start.task).expect("what starts is stored");
                    let lease = row.state.lease().copied();
                    let named = lease.map(|lease| (row.attempt, lease.worker, lease.token));
                    let told = Some((start.attempt, start.worker, start.token));
                    assert_eq!(told, named, "the start of {:?} is committed: {:?}", start.task, row.state);
                    assert_eq!(start.spec.as_ref(), self.specs.get(&start.task), "the payload of {:?}", start.task);
                    assert!(row.deadline.is_none_or(|at| at > self.now.wall_ms), "{:?} is past its deadline", row.id);
                    self.check_parents(row);
                    self.check_carried(start);
                }
                Command::Stop { task, attempt, stop, .. } => {
                    let row = &self.rows[task];
                    let is_stopping = row.attempt == *attempt && row.stop().is_some();
                    // Its end may have come in the same tick as the wish to stop it.
                    let is_over = forecast.tasks.get(task).is_some_and(|foreseen| !foreseen.fates.is_empty());
                    let before = applied.changed.iter().find(|(id, _)| id == task).and_then(|(_, old)| old.as_ref());
                    let is_over = is_over || before.is_some_and(|old| old.stop() == Some(Stop::NotStarted));
                    assert!(is_stopping || is_over, "the stop of {task:?} is committed");
                    // Asked for again after a recovery, it is nobody's victim any more.
                    let is_first = applied
                        .changed
                        .iter()
                        .any(|(id, old)| id == task && old.as_ref().and_then(Task::stop) != Some(Stop::Preempted));
                    if is_first && *stop == Stop::Preempted && row.stop() == Some(Stop::Preempted) {
                        self.check_victim(row, keeps, &applied.started);
                    }
                }
                Command::Revoke { worker, task, attempt } => {
                    if let Some(at) = revokes.iter().position(|revoke| revoke == &(*worker, *task, *attempt)) {
                        revokes.swap_remove(at);
                    }
                    let row = self.rows.get(task);
                    let lease = row.filter(|row| row.attempt == *attempt).and_then(|row| row.state.lease());
                    let is_live = lease.is_some_and(|lease| lease.worker == *worker);
                    // A wrong token is refused too, and the lease it does not belong to lives on.
                    assert!(!is_live || forecast.revokes.contains(&(*worker, *task, *attempt)), "{task:?} is held");
                }
                Command::Input { task, attempt, token, message, spec, .. } => {
                    let (row, target) = (&self.rows[message], &self.rows[task]);
                    let lease = target.state.lease().map(|lease| (target.attempt, lease.token));
                    assert_eq!(lease, Some((*attempt, *token)), "{message:?} is handed to a lease that lives");
                    assert!(target.policy.takes_input, "{task:?} takes no input");
                    assert_eq!(
                        (row.steers, row.phase()),
                        (Some(*task), Phase::Waiting),
                        "{message:?} waits to be taken"
                    );
                    assert_eq!(spec.as_ref(), self.specs.get(message), "the payload of {message:?}");
                }
                Command::Answer { .. } => {}
            }
        }
        assert!(revokes.is_empty(), "stale reports are refused: {revokes:?}");
        assert_eq!(n_starts, applied.started.len(), "every committed start is told");
        self.check_answers(forecast, ticked, applied);
    }

    /// A run gets every message that was merged into it, and those that were dropped before it.
    fn check_carried(&mut self, start: &Start) {
        let row = &self.rows[&start.task];
        assert_eq!(start.session.as_ref(), self.session_of(row), "the session of {:?}", row.id);
        let merged = self.messages.get(&start.task).map_or(&[][..], Vec::as_slice);
        assert_eq!(start.merged, merged, "the messages of {:?}", start.task);
        let dropped = self.tell_drops(start.task);
        assert_eq!(start.dropped, dropped, "what {:?} is told of dropped messages", start.task);
    }

    fn check_parents(&self, row: &Task) {
        let runs_anyway = row.policy.on_dependency_failure == OnDependencyFailure::Run;
        for parent in self.parents_of(row.id) {
            let phase = self.rows.get(&parent).map(Task::phase);
            let is_over = phase.is_some_and(|phase| phase == Phase::Completed || (runs_anyway && phase.is_terminal()));
            assert!(is_over, "{:?} started while its parent {parent:?} is {phase:?}", row.id);
        }
        assert!(row.run_at.is_none_or(|at| at <= self.now.wall_ms), "{:?} started before its time", row.id);
    }

    fn check_victim(&self, row: &Task, keeps: &[Keep], started: &[TaskId]) {
        let key = self.key_of(row);
        assert!(row.policy.preemptible && key.tier > Tier::Critical, "{:?} may not be preempted", row.id);
        assert!(row.n_preempted < self.config.preempted_max, "{:?} was preempted often enough", row.id);
        let lane = &self.held[&row.id];
        let worker = row.state.lease().map(|lease| lease.worker);
        let frees = |keep: &Keep| match &keep.at {
            KeptAt::Global => true,
            KeptAt::Agent(agent) => *agent == key.agent,
            KeptAt::Lane(name) => name == lane,
            KeptAt::Kind(kind) => *kind == key.shape.kind,
            KeptAt::Gate(gate) => key.gates.contains(gate),
            KeptAt::Worker(id) => Some(*id) == worker,
        };
        let is_kept = keeps.iter().any(|keep| keep.flow.tier == Tier::Critical && frees(keep));
        // The preemptor may have found another slot before the tick was over.
        let is_used = started.iter().any(|id| self.key_of(&self.rows[id]).tier == Tier::Critical);
        assert!(is_kept || is_used, "{:?} of {key:?} is preempted and its slot is kept for nobody: {keeps:?}", row.id);
    }

    fn check_answers(&mut self, forecast: &Forecast, ticked: &Ticked, applied: &Applied) {
        let mut answers: BTreeMap<Ticket, &Answer> = BTreeMap::new();
        for command in &ticked.commands {
            if let Command::Answer { ticket, answer } = command {
                assert!(answers.insert(*ticket, answer).is_none(), "{ticket:?} is answered once");
            }
        }
        answers.iter().for_each(|(ticket, answer)| self.check_reply(*ticket, answer, forecast));
        for (ticket, (task, expected)) in &forecast.cancels {
            let Some(Answer::Cancel(answer)) = answers.get(ticket) else { panic!("{ticket:?} is not answered") };
            assert!(
                expected.is_none_or(|expected| *answer == expected),
                "a cancel of {task:?}: {answer:?}, {expected:?}"
            );
            if matches!(answer, CancelAnswer::Ended | CancelAnswer::Stopping) {
                self.promised.insert(*task);
            }
        }
        for (ticket, (task, expected)) in &forecast.heartbeats {
            let Some(Answer::Heartbeat(answer)) = answers.get(ticket) else { panic!("{ticket:?} is not answered") };
            assert!(
                expected.is_none_or(|expected| *answer == expected),
                "a heartbeat of {task:?}: {answer:?}, {expected:?}"
            );
        }
        for (ticket, (change, expected)) in &forecast.changes {
            let Some(Answer::Change(answer)) = answers.get(ticket) else { panic!("{ticket:?} is not answered") };
            if let Ok(task) = answer {
                let is_done = change.rank.is_none_or(|rank| task.rank == rank)
                    && change.deadline.is_none_or(|deadline| task.deadline == deadline)
                    && change.run_at.is_none_or(|run_at| task.run_at == Some(run_at));
                assert!(is_done, "{change:?} was accepted and is not made: {task:?}");
            }
            let refusal = answer.as_ref().err().cloned();
            let is_crowded = matches!(refusal, Some(ChangeRefusal::TooManyFlows { .. }));
            assert!(refusal == *expected || is_crowded, "the answer to a change is {refusal:?}, not {expected:?}");
        }
        self.check_acts(forecast, &answers);
        for (ticket, expected) in &self.book.answers {
            let Some(Answer::Schedule(answer)) = answers.get(ticket) else { panic!("{ticket:?} is not answered") };
            assert_eq!(answer, expected, "what is said of a schedule");
        }
        for expected in &forecast.expected {
            self.check_verdict(expected, forecast, &answers);
        }
        for (submission, admit) in &forecast.submissions {
            let Some(answer) = answers.get(&submission.ticket) else {
                panic!("{:?} is not answered", submission.ticket)
            };
            self.check_submitted(submission, *admit, answer, applied);
        }
    }

    fn check_acts(&mut self, forecast: &Forecast, answers: &BTreeMap<Ticket, &Answer>) {
        for (ticket, key, act) in &forecast.acts {
            let Some(Answer::Session(answer)) = answers.get(ticket) else { panic!("{ticket:?} is not answered") };
            let expected = forecast.expected.iter().find(|expected| expected.item.is_none() && expected.key == *key);
            match (act, answer) {
                (SessionAct::Stop, SessionAnswer::Stopped { task }) => {
                    assert_eq!(*task, forecast.stops[ticket], "the oldest that runs in session {key} is stopped");
                    self.promised.extend(*task);
                }
                (
                    SessionAct::StopAll | SessionAct::Reset,
                    SessionAnswer::StoppedAll { running, waiting, debouncing, session },
                ) => {
                    assert_eq!(*running, forecast.n_running[ticket], "what runs in session {key}");
                    let said = (*running, *waiting, *debouncing);
                    assert!(expected.is_none_or(|expected| expected.stopped == said), "{key}: {said:?} are stopped");
                    assert_eq!(session.cutoff, Some(self.now.wall_ms), "the cutoff of session {key}");
                }
                (SessionAct::Set(settings), SessionAnswer::Row(row)) => assert_eq!(row.own, *settings),
                (SessionAct::Context(context), SessionAnswer::Row(row)) => assert_eq!(row.context, Some(*context)),
                (act, answer) => panic!("{act:?} of session {key} is answered with {answer:?}"),
            }
        }
    }

    /// A session refuses when, and only when, it must; and the submitter learns which task carries its message.
    fn check_verdict(&self, expected: &Expected, forecast: &Forecast, answers: &BTreeMap<Ticket, &Answer>) {
        let Some((id, verdict)) = expected.item.zip(expected.verdict) else { return };
        let submissions = forecast.submissions.iter().map(|(submission, _)| submission);
        let submission = submissions.into_iter().find(|submission| submission.items[0].id == id);
        let ticket = submission.expect("what is expected was submitted").ticket;
        let said = match answers[&ticket] {
            Answer::Refused(Refusal::Stale { .. }) => Verdict::Stale,
            Answer::Refused(Refusal::SessionBusy { .. }) => Verdict::Busy,
            Answer::Refused(Refusal::SessionFull { .. }) => Verdict::Full,
            Answer::Submitted { items } => match &items[0] {
                Ok(Accepted { id: carrier, merged: Some(n), .. }) => Verdict::Merged { carrier: *carrier, n: *n },
                Ok(_) => Verdict::Stands,
                Err(refusal) => panic!("a single message is refused with {refusal:?}"),
            },
            Answer::Refused(Refusal::QueueFull { .. } | Refusal::TooManyFlows { .. }) => {
                let is_refused = matches!(verdict, Verdict::Stale | Verdict::Busy | Verdict::Full);
                assert!(!is_refused, "{id:?}: the session refuses first");
                return;
            }
            _ => return,
        };
        assert_eq!(said, verdict, "{id:?} to session {}", expected.key);
    }

    fn check_submitted(&mut self, submission: &Submission, admit: Admit, answer: &Answer, applied: &Applied) {
        let known = submission.idempotency.as_ref().and_then(|key| {
            let row = self.keys.get(&(key.agent.clone(), key.key.clone()))?;
            Some((row.key.hash == key.hash, row.answer.clone()))
        });
        match (known, answer) {
            (Some((true, first)), Answer::Replayed(again)) => assert_eq!(first, *again, "the first answer again"),
            (Some((false, _)), Answer::Refused(Refusal::KeyReused { .. })) => {}
            (Some(_), other) => panic!("a key that was used before is answered with {other:?}"),
            (None, Answer::Refused(Refusal::Draining)) => assert_ne!(admit, Admit::Open),
            (None, Answer::Refused(_)) => {
                assert_eq!(submission.mode, SubmitMode::All);
                let stored = submission
                    .items
                    .iter()
                    .find(|item| self.rows.get(&item.id).is_some_and(|row| row.phase() != Phase::Rejected));
                assert!(stored.is_none(), "a refused submission left {stored:?}");
            }
            (None, Answer::Submitted { items }) => {
                assert_eq!(admit, Admit::Open, "nothing is taken in while draining");
                self.check_items(submission, items, applied);
            }
            (None, other) => panic!("a submission is answered with {other:?}"),
        }
        if let Answer::Submitted { items } = answer {
            self.remember(submission, items, applied);
        }
    }

    fn check_items(&mut self, submission: &Submission, items: &[Result<Accepted, Refusal>], applied: &Applied) {
        assert_eq!(items.len(), submission.items.len());
        for (asked, answer) in submission.items.iter().zip(items) {
            let Ok(accepted) = answer else {
                assert_eq!(submission.mode, SubmitMode::Partial, "one bad item, nothing stored");
                continue;
            };
            let key = asked.idempotency.as_ref().map(|key| (key.agent.clone(), key.key.clone()));
            let known = key.and_then(|key| self.keys.get(&key));
            if let Some(FirstAnswer::Task { id, .. }) = known.map(|row| &row.answer) {
                assert_eq!(accepted.id, *id, "a key that was used before names its first task");
            }
            if let Some(n) = accepted.merged {
                let carried = self.messages.get(&accepted.id).and_then(|messages| messages.get(n as usize - 1));
                assert_eq!(carried, Some(&asked.spec), "the message {:?} is kept", asked.id);
            }
            if accepted.id == asked.id {
                let row = self.rows.get(&asked.id).expect("an accepted task is stored");
                assert!(applied.changed.iter().any(|(id, old)| *id == row.id && old.is_none()), "{:?} is new", row.id);
                assert_eq!(self.specs.get(&row.id), Some(&asked.spec), "the payload of {:?}", row.id);
                self.check_born(asked, row);
            }
            self.remember_item(asked, applied);
        }
    }

    fn check_born(&self, asked: &NewTask, row: &Task) {
        let is_alone = row.member.is_none_or(|member| member.n_merged == 0);
        assert!(asked.policy == row.policy || !is_alone, "the policy of {:?}", row.id);
        if row.state == State::Waiting(Wait::Dependencies) {
            assert!(!asked.depends_on.is_empty(), "{:?} waits for parents it does not have", row.id);
        }
    }

    /// Keys of this tick count for the submissions after it.
    fn remember(&mut self, submission: &Submission, items: &[Result<Accepted, Refusal>], applied: &Applied) {
        let Some(key) = &submission.idempotency else { return };
        // Of two with one key in one tick, the one that was taken in used it.
        let is_ours = |answer: &FirstAnswer| match answer {
            FirstAnswer::Batch { id, .. } => submission.batch.as_ref().is_some_and(|batch| batch.id == *id),
            FirstAnswer::Task { id, .. } => items.iter().flatten().any(|accepted| accepted.id == *id),
            FirstAnswer::Command(_) => false,
        };
        let row = applied.keys.iter().find(|row| row.key == *key && is_ours(&row.answer));
        if let Some(row) = row {
            self.keys.insert((key.agent.clone(), key.key.clone()), row.clone());
        }
    }

    fn remember_item(&mut self, item: &NewTask, applied: &Applied) {
        let Some(key) = &item.idempotency else { return };
        if let Some(row) = applied.keys.iter().find(|row| row.key == *key) {
            self.keys.entry((key.agent.clone(), key.key.clone())).or_insert_with(|| row.clone());
        }
    }

    /// After the answers were compared: what was committed counts, whoever was told.
    pub fn merge_keys(&mut self, applied: &Applied) {
        for row in &applied.keys {
            self.keys.entry((row.key.agent.clone(), row.key.key.clone())).or_insert_with(|| row.clone());
        }
    }
}
