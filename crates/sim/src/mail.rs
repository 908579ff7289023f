//! The outbox: whoever asked to be called back is told of the end once, whatever crashes, and what the deliverer says of a
//! message is kept.

use std::collections::BTreeMap;

use runyard_core::event::Event;
use runyard_core::ids::TaskId;
use runyard_core::outbox::{Delivery, DeliveryChange, DeliveryId, DeliveryState, Progress, Recipient, Try};
use runyard_core::task::Phase;
use runyard_core::write::WriteSet;
use runyard_store::store::{DeliveryFilter, Reader};

use crate::oracle::{Applied, Oracle};
use crate::world::World;

#[derive(Default)]
pub struct Mail {
    /// Every message that was ever committed, as the last commit left it.
    pub all: BTreeMap<DeliveryId, Delivery>,
    /// Calls to the submitters of each task and batch, those that were split off apart.
    n_calls: BTreeMap<u128, usize>,
}

impl Oracle {
    pub(crate) fn apply_mail(&mut self, writes: &WriteSet, applied: &Applied) {
        for delivery in &writes.deliveries_added {
            let is_split = matches!(delivery.progress.to, Recipient::Merged(_));
            let is_told = writes.happenings.contains(&delivery.happening);
            assert!(is_told || is_split, "{delivery:?} tells of what did not happen in its commit");
            if let (None, false, Some(subject)) = (&delivery.hook, is_split, delivery.subject()) {
                *self.mail.n_calls.entry(subject).or_default() += 1;
            }
            let earlier = self.mail.all.insert(delivery.id, delivery.clone());
            assert!(earlier.is_none(), "{:?} is a new number", delivery.id);
        }
        for (id, progress) in &writes.deliveries_put {
            self.mail.all.get_mut(id).expect("only known messages are changed").progress = progress.clone();
        }
        for (id, _) in &applied.changed {
            // What was rejected never was a task: its submitter has its answer.
            let phase = self.rows[id].phase();
            let has_ended = phase.is_terminal() && phase != Phase::Rejected;
            let n_expected = usize::from(has_ended && self.asked_for_callback(*id));
            assert_eq!(self.n_calls(id.0), n_expected, "messages about the end of {id:?}");
        }
    }

    fn n_calls(&self, subject: u128) -> usize {
        self.mail.n_calls.get(&subject).copied().unwrap_or(0)
    }

    /// By what was submitted: the task's own request, or that of any message merged into it.
    pub(crate) fn asked_for_callback(&self, id: TaskId) -> bool {
        let asks = |id: &TaskId| self.births.get(id).is_some_and(|birth| birth.policy.calls_back);
        let merged = self.messages.get(&id).into_iter().flatten();
        let mut merged = merged.filter_map(|spec| spec[..].try_into().ok()).map(|id| TaskId(u128::from_le_bytes(id)));
        asks(&id) || merged.any(|id| asks(&id))
    }

    /// At the end: everything counted anew, and against what the store really holds.
    pub(crate) fn recount_mail(&self, reader: &dyn Reader) {
        for batch in self.batches.values() {
            let n_expected = usize::from(batch.row.calls_back && batch.row.finished_at.is_some());
            assert_eq!(self.n_calls(batch.row.id.0), n_expected, "messages about the end of {:?}", batch.row.id);
        }
        let stored = reader.deliveries(&DeliveryFilter::default(), None, usize::MAX).expect("memory is readable");
        let stored: BTreeMap<DeliveryId, Delivery> =
            stored.items.into_iter().map(|delivery| (delivery.id, delivery)).collect();
        assert!(stored == self.mail.all, "the outbox holds what was written to it");
    }
}

impl World {
    /// What a deliverer would say of one message: taken, given up, to be tried again, or meant for several.
    pub(crate) fn deliver(&mut self) {
        let pending = self.oracle.mail.all.values().filter(|delivery| delivery.next_at().is_some());
        let pending: Vec<DeliveryId> = pending.map(|delivery| delivery.id).collect();
        if pending.is_empty() {
            return;
        }
        let delivery = self.oracle.mail.all[self.rng.pick(&pending)].clone();
        let mut progress = Progress { n_tries: delivery.progress.n_tries + 1, ..delivery.progress.clone() };
        progress.tries = vec![Try { at_ms: progress.since_ms, took_ms: 1, status: Some(500), error: "busy".into() }];
        progress.state = match self.rng.below(3) {
            0 => DeliveryState::Delivered,
            1 => DeliveryState::GivenUp,
            _ => DeliveryState::Pending { next_at: progress.since_ms + self.rng.below(60_000) },
        };
        let mut change = DeliveryChange { id: delivery.id, progress, others: Vec::new(), happening: None };
        if delivery.progress.to == Recipient::Everyone {
            change.progress.to = Recipient::Own;
            change.others = (1..=self.rng.below(3) as u32).map(Recipient::Merged).collect();
            change.happening = Some(delivery.happening);
        }
        self.inbox.push(Event::Deliveries { ticket: None, changes: vec![change] });
    }
}
