//! The store in memory: simple and obviously right. It is what the other drivers are compared with, and what the
//! simulator runs on. Its clones share one content, so a crash is to drop the core, keep the store and load again.

mod content;
mod schedules;

use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use runyard_core::batch::Batch;
use runyard_core::event::{Due, Happening, Release};
use runyard_core::ids::{BatchId, ScheduleId, TaskId};
use runyard_core::name::Blob;
use runyard_core::now::{Clock, Now, WallMs};
use runyard_core::outbox::{Delivery, DeliveryId};
use runyard_core::schedule::{Run, Schedule, ScheduleDue};
use runyard_core::session::{Message, Session, SessionId};
use runyard_core::task::Task;
use runyard_core::worker::WorkerRow;
use runyard_core::write::{CountDelta, CountKey, Loaded, Needs, Rows, WriteSet};

use crate::store::{
    DeliveryFilter, DeliveryPage, Error, Filter, FlowRows, FlowWant, IdPage, PAGE_BYTES_MAX, Page, Purge, Purged,
    Reader, Result, ScheduleCounts, ScheduleFilter, SchedulePage, SessionFilter, SessionPage, Store, TaskDoc,
};
use content::{Content, delivery_passes, injected, is_seated_unstarted, session_passes};

#[derive(Clone, Default)]
pub struct MemoryStore {
    content: Arc<Mutex<Content>>,
}

/// Where the next commit breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailCommit {
    /// Nothing is written.
    BeforeApply,
    /// Everything is written, and still the caller hears of a failure: what a lost connection looks like.
    AfterApply,
}

impl MemoryStore {
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// The next commit gives an error.
    pub fn fail_next_commit(&self, fail: FailCommit) {
        self.lock().fail_next = Some(fail);
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().expect("no thread panics while it holds the store")
    }
}

impl Store for MemoryStore {
    fn load(&mut self, salt: u64) -> Result<Loaded> {
        Ok(self.lock().load(salt))
    }

    fn fetch(&mut self, needs: &Needs) -> Result<Rows> {
        let content = self.lock();
        Ok(Rows {
            tasks: needs.tasks.iter().filter_map(|&id| content.row(id)).map(|row| row.task.clone()).collect(),
            batches: needs.batches.iter().filter_map(|id| content.batches.get(id)).map(|(b, _)| b.clone()).collect(),
            sessions: content.sessions_named(needs),
            keys: needs
                .keys
                .iter()
                .filter_map(|key| content.keys.get(&(key.agent.clone(), key.key.clone())))
                .cloned()
                .collect(),
            schedules: content.schedules.fetch(needs),
        })
    }

    fn commit(&mut self, writes: &WriteSet) -> Result<u64> {
        let mut content = self.lock();
        let fail = content.fail_next.take();
        if fail == Some(FailCommit::BeforeApply) {
            return Err(injected("committing nothing"));
        }
        content.check(writes)?;
        let seq = content.apply(writes);
        match fail {
            Some(_) => Err(injected("answering a commit that was made")),
            None => Ok(seq),
        }
    }

    fn flow_rows(&mut self, wants: &[FlowWant]) -> Result<Vec<FlowRows>> {
        let content = self.lock();
        Ok(wants.iter().map(|want| content.flow_rows(want)).collect())
    }

    fn dues(&mut self, clock: Clock, after: Option<Due>, limit: usize) -> Result<Vec<Due>> {
        let content = self.lock();
        let start = after.map_or(Bound::Unbounded, |due| Bound::Excluded((due.at_ms, due.seq)));
        let due = |&(at_ms, seq): &(u64, u64)| Due { at_ms, seq, task: content.tasks[&seq].task.id };
        Ok(content.dues_of(clock).range((start, Bound::Unbounded)).take(limit).map(due).collect())
    }

    fn released(&mut self, release: &Release, limit: usize) -> Result<Vec<Task>> {
        let content = self.lock();
        let seqs: Vec<u64> = match *release {
            Release::Parent { parent, .. } => content.children(parent).take(limit).collect(),
            Release::BatchPlace { batch } => {
                let members = content.placeless.range((batch, 0)..=(batch, u64::MAX));
                members.take(limit).map(|&(_, seq)| seq).collect()
            }
            Release::SessionStop { session, before, from, .. } => {
                let lives = |seq: &u64| !content.tasks[seq].task.phase().is_terminal();
                content.members_of(session, from, before).filter(lives).take(limit).collect()
            }
            Release::SessionShrink { session } => {
                let seated = |seq: &u64| is_seated_unstarted(&content.tasks[seq].task);
                content.members_of(session, 0, u64::MAX).filter(seated).take(limit).collect()
            }
            Release::SessionSeat { session } | Release::SessionOverflow { session } => {
                let line = content.lines.range((session, 0, 0)..=(session, u64::MAX, u64::MAX));
                line.take(limit).map(|&(_, _, seq)| seq).collect()
            }
            Release::SessionReview { .. } | Release::RunEnded { .. } => Vec::new(),
        };
        Ok(seqs.iter().map(|seq| content.tasks[seq].task.clone()).collect())
    }

    fn specs(&mut self, tasks: &[TaskId]) -> Result<Vec<Option<Blob>>> {
        let content = self.lock();
        Ok(tasks.iter().map(|&id| content.row(id).and_then(|row| row.spec.clone())).collect())
    }

    fn sessions_after(&mut self, after: SessionId, limit: usize) -> Result<Vec<Session>> {
        let content = self.lock();
        let sessions = content.sessions.range((Bound::Excluded(after), Bound::Unbounded));
        Ok(sessions.take(limit).map(|(_, session)| session.clone()).collect())
    }

    fn merged(&mut self, task: TaskId) -> Result<Vec<Blob>> {
        let content = self.lock();
        let seq = content.seqs.get(&task);
        Ok(seq.into_iter().flat_map(|&seq| content.messages_of(seq)).map(|(_, spec)| spec.clone()).collect())
    }

    fn dropped(&mut self, session: SessionId, from: u64, to: u64) -> Result<Vec<Blob>> {
        let content = self.lock();
        // A range that ends before it begins is an empty one.
        let drops = content.drops.range((session, from)..(session, to.max(from)));
        let carried = |&seq: &u64| {
            let own = content.tasks.get(&seq).and_then(|row| row.spec.clone());
            own.into_iter().chain(content.messages_of(seq).map(|(_, spec)| spec.clone()))
        };
        Ok(drops.flat_map(|(_, seq)| carried(seq)).collect())
    }

    fn schedules_due(&mut self, after: Option<ScheduleDue>, limit: usize) -> Result<Vec<ScheduleDue>> {
        Ok(self.lock().schedules.due(after, limit))
    }

    fn run(&mut self, schedule: ScheduleId, n: u64) -> Result<Option<Run>> {
        Ok(self.lock().schedules.run(schedule, n))
    }

    fn n_ahead(&mut self, task: &Task, limit: u32) -> Result<u32> {
        let content = self.lock();
        let ahead = content.queued.range((task.flow, i32::MIN, 0)..(task.flow, task.rank, task.seq));
        Ok(ahead.take(limit as usize).count() as u32)
    }

    fn purge(&mut self, now: Now, purge: &Purge) -> Result<Purged> {
        Ok(self.lock().purge(now, purge))
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(self.clone())
    }
}

impl Reader for MemoryStore {
    fn task(&self, id: TaskId) -> Result<Option<TaskDoc>> {
        let content = self.lock();
        Ok(content.row(id).map(|row| content.doc(row)))
    }

    fn tasks(&self, filter: &Filter, after: Option<u64>, limit: usize) -> Result<Page> {
        let content = self.lock();
        let mut items = Vec::new();
        let mut n_bytes = 0;
        let mut last_seq = None;
        for (&seq, row) in content.tasks.range(..after.unwrap_or(u64::MAX)).rev() {
            if content.passes(row, filter) {
                if items.len() == limit || n_bytes >= PAGE_BYTES_MAX {
                    return Ok(Page { items, next: last_seq });
                }
                let doc = content.doc(row);
                n_bytes += doc.n_bytes();
                items.push(doc);
            }
            last_seq = Some(seq);
        }
        Ok(Page { items, next: None })
    }

    fn task_ids(&self, filter: &Filter, after: Option<u64>, limit: usize) -> Result<IdPage> {
        let content = self.lock();
        let before = content.tasks.range(..after.unwrap_or(u64::MAX)).rev();
        let mut passing = before.filter(|(_, row)| content.passes(row, filter));
        let page: Vec<(u64, TaskId)> = passing.by_ref().take(limit).map(|(&seq, row)| (seq, row.task.id)).collect();
        let next = passing.next().and(page.last()).map(|(seq, _)| *seq);
        Ok(IdPage { items: page.into_iter().map(|(_, id)| id).collect(), next })
    }

    fn messages(&self, id: TaskId) -> Result<Vec<(Message, Blob)>> {
        let content = self.lock();
        Ok(content.seqs.get(&id).into_iter().flat_map(|&seq| content.messages_of(seq)).cloned().collect())
    }

    fn session(&self, key: &str) -> Result<Option<Session>> {
        Ok(self.lock().session_of(key).cloned())
    }

    fn sessions(&self, filter: &SessionFilter, after: Option<SessionId>, limit: usize) -> Result<SessionPage> {
        let content = self.lock();
        let before = content.sessions.range(..after.unwrap_or(SessionId(u64::MAX))).rev();
        let mut passing = before.map(|(_, session)| session).filter(|session| session_passes(session, filter));
        let items: Vec<Session> = passing.by_ref().take(limit).cloned().collect();
        let next = passing.next().and(items.last()).map(|session| session.id);
        Ok(SessionPage { items, next })
    }

    fn batch(&self, id: BatchId) -> Result<Option<(Batch, Blob)>> {
        Ok(self.lock().batches.get(&id).cloned())
    }

    fn counts(&self) -> Result<Vec<(CountKey, CountDelta)>> {
        Ok(self.lock().counts_all())
    }

    fn flows(&self) -> Result<u64> {
        Ok(self.lock().flows.len() as u64)
    }

    fn happenings(&self, after: u64, limit: usize) -> Result<Vec<(u64, Vec<Happening>)>> {
        let content = self.lock();
        let entries = content.log.range((Bound::Excluded(after), Bound::Unbounded)).take(limit);
        Ok(entries.map(|(&seq, entry)| (seq, entry.happenings.clone())).collect())
    }

    fn happenings_range(&self) -> Result<Option<(u64, u64)>> {
        let content = self.lock();
        let (first, last) = (content.log.first_key_value(), content.log.last_key_value());
        Ok(first.zip(last).map(|((&first, _), (&last, _))| (first, last)))
    }

    fn delivery(&self, id: DeliveryId) -> Result<Option<Delivery>> {
        Ok(self.lock().deliveries.get(&id).cloned())
    }

    fn deliveries_due(&self, after: Option<(WallMs, DeliveryId)>, limit: usize) -> Result<Vec<Delivery>> {
        let content = self.lock();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let due = content.deliveries_due.range((from, Bound::Unbounded)).take(limit);
        Ok(due.map(|(_, id)| content.deliveries[id].clone()).collect())
    }

    fn deliveries(&self, filter: &DeliveryFilter, after: Option<DeliveryId>, limit: usize) -> Result<DeliveryPage> {
        let content = self.lock();
        let before = content.deliveries.range(..after.unwrap_or(DeliveryId(u64::MAX))).rev();
        let mut passing = before.map(|(_, delivery)| delivery).filter(|delivery| delivery_passes(delivery, filter));
        let items: Vec<Delivery> = passing.by_ref().take(limit).cloned().collect();
        let next = passing.next().and(items.last()).map(|delivery| delivery.id);
        Ok(DeliveryPage { items, next })
    }

    fn schedule(&self, id: ScheduleId) -> Result<Option<(Schedule, Blob)>> {
        Ok(self.lock().schedules.one(id))
    }

    fn schedule_named(&self, name: &str) -> Result<Option<ScheduleId>> {
        Ok(self.lock().schedules.named(name))
    }

    fn schedules(&self, filter: &ScheduleFilter, after: Option<ScheduleId>, limit: usize) -> Result<SchedulePage> {
        Ok(self.lock().schedules.list(filter, after, limit))
    }

    fn schedule_counts(&self) -> Result<ScheduleCounts> {
        Ok(self.lock().schedules.counts())
    }

    fn runs(&self, schedule: ScheduleId, before: Option<u64>, limit: usize) -> Result<Vec<Run>> {
        Ok(self.lock().schedules.runs(schedule, before, limit))
    }

    fn workers(&self) -> Result<Vec<WorkerRow>> {
        Ok(self.lock().workers.values().cloned().collect())
    }

    fn setting(&self, name: &str) -> Result<Option<Blob>> {
        Ok(self.lock().settings.get(name).cloned())
    }

    fn backup(&self, _to: &Path) -> Result<()> {
        Err(Error::Driver { doing: "copying a store that is only in memory", source: "there is no file".into() })
    }
}
