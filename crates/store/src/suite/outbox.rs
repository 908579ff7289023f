//! Rules of the outbox.

use runyard_core::batch::Batch;
use runyard_core::event::{HappeningKind, Subject};
use runyard_core::outbox::{Delivery, DeliveryId, DeliveryState, Progress, Recipient, Try};
use runyard_core::write::WriteSet;

use super::Harness;
use super::fixture::*;
use crate::store::{DeliveryFilter, DeliveryPhase, Error, Purge};

/// The end of task `seq`, due at `next_at`.
fn delivery(n: u64, seq: u64, next_at: u64) -> Delivery {
    let happening = happening(HappeningKind::TaskCompleted, &ended(seq, task(seq)));
    let progress =
        Progress { state: DeliveryState::Pending { next_at }, ..Progress::new(Recipient::Own, happening.at_ms) };
    Delivery { id: DeliveryId(n), hook: None, happening, progress }
}

fn of_hook(name: &str, delivery: Delivery) -> Delivery {
    Delivery { hook: Some(name.into()), ..delivery }
}

fn with(state: DeliveryState, delivery: Delivery) -> Delivery {
    Delivery { progress: Progress { state, ..delivery.progress }, ..delivery }
}

fn post(fixture: &mut Fixture, deliveries: impl IntoIterator<Item = Delivery>) {
    fixture.commit(WriteSet { deliveries_added: deliveries.into_iter().collect(), ..WriteSet::default() });
}

fn put(fixture: &mut Fixture, delivery: &Delivery) {
    let deliveries_put = vec![(delivery.id, delivery.progress.clone())];
    fixture.commit(WriteSet { deliveries_put, ..WriteSet::default() });
}

fn due(fixture: &Fixture) -> Vec<u64> {
    let due = fixture.reader().deliveries_due(None, 99).expect("it reads");
    due.into_iter().map(|delivery| delivery.id.0).collect()
}

fn listed(fixture: &Fixture, filter: &DeliveryFilter) -> Vec<u64> {
    let page = fixture.reader().deliveries(filter, None, 99).expect("it reads");
    assert_eq!(page.next, None);
    page.items.into_iter().map(|delivery| delivery.id.0).collect()
}

pub fn a_delivery_comes_back_as_it_was_written(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.meta.next_delivery = 7;
    let tries = vec![
        Try { at_ms: 3, took_ms: 10_000, status: None, error: "no answer".into() },
        Try { at_ms: 90, took_ms: 0, status: Some(503), error: "HTTP 503".into() },
    ];
    let tried = Progress { n_tries: 12, tries, to: Recipient::Merged(4), ..delivery(2, 1, 77).progress };
    let tried = Delivery { progress: tried, ..of_hook("audit", delivery(2, 1, 77)) };
    let finished = Subject::Batch(Box::new(Batch { calls_back: true, finished_at: Some(9), ..batch(batch_id(1)) }));
    let mut of_batch = with(DeliveryState::GivenUp, delivery(5, 1, 0));
    (of_batch.happening.kind, of_batch.happening.subject) = (HappeningKind::BatchFinished, finished);
    let all = [with(DeliveryState::Delivered, delivery(0, 1, 0)), tried, of_batch];
    post(&mut fixture, all.clone());
    let mut fixture = Fixture::new(harness.reopen(fixture.store));
    assert_eq!(fixture.meta.next_delivery, 7);
    for delivery in &all {
        assert_eq!(fixture.reader().delivery(delivery.id).expect("it reads").as_ref(), Some(delivery));
    }
    assert_eq!(fixture.reader().delivery(DeliveryId(1)).expect("it reads"), None);
    let everyone = Progress { to: Recipient::Everyone, ..all[1].progress.clone() };
    let changed = Delivery { progress: everyone, ..all[1].clone() };
    put(&mut fixture, &changed);
    assert_eq!(fixture.reader().delivery(DeliveryId(2)).expect("it reads"), Some(changed));
}

pub fn a_second_delivery_of_one_number_is_a_conflict(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    post(&mut fixture, [delivery(1, 1, 5)]);
    for twice in [vec![delivery(1, 2, 6)], vec![delivery(2, 2, 6), delivery(2, 3, 6)]] {
        let refused = fixture.try_commit(WriteSet { deliveries_added: twice, ..WriteSet::default() });
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
    }
    assert_eq!(due(&fixture), [1]);
}

pub fn a_delivery_that_is_gone_is_not_changed(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    put(&mut fixture, &delivery(1, 1, 5));
    assert_eq!(fixture.reader().delivery(DeliveryId(1)).expect("it reads"), None);
}

pub fn deliveries_are_due_in_the_order_of_their_times(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    post(&mut fixture, [delivery(1, 1, 50), delivery(2, 1, 20), delivery(3, 1, 50), delivery(4, 1, 10)]);
    assert_eq!(due(&fixture), [4, 2, 1, 3]);
    let after = |at, id| fixture.reader().deliveries_due(Some((at, DeliveryId(id))), 1).expect("it reads");
    assert_eq!(after(20, 2)[0].id, DeliveryId(1));
    assert_eq!(after(50, 1)[0].id, DeliveryId(3));
    assert!(after(50, 3).is_empty());
    put(&mut fixture, &delivery(4, 1, 90));
    put(&mut fixture, &with(DeliveryState::Delivered, delivery(2, 1, 0)));
    put(&mut fixture, &with(DeliveryState::GivenUp, delivery(3, 1, 0)));
    assert_eq!(due(&fixture), [1, 4]);
    // A replay.
    put(&mut fixture, &delivery(3, 1, 7));
    assert_eq!(due(&fixture), [3, 1, 4]);
}

pub fn deliveries_are_listed_latest_first(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let mut failed = of_hook("audit", delivery(3, 2, 9));
    failed.happening.kind = HappeningKind::TaskFailed;
    let over = with(DeliveryState::Delivered, delivery(2, 2, 0));
    post(&mut fixture, [of_hook("other", delivery(1, 1, 9)), over, failed]);
    let all = DeliveryFilter::default();
    assert_eq!(listed(&fixture, &all), [3, 2, 1]);
    assert_eq!(listed(&fixture, &DeliveryFilter { subject: Some(id(2).0), ..all.clone() }), [3, 2]);
    assert_eq!(listed(&fixture, &DeliveryFilter { hook: Some("audit".into()), ..all.clone() }), [3]);
    assert_eq!(listed(&fixture, &DeliveryFilter { state: Some(DeliveryPhase::Pending), ..all.clone() }), [3, 1]);
    assert_eq!(listed(&fixture, &DeliveryFilter { state: Some(DeliveryPhase::Delivered), ..all.clone() }), [2]);
    assert_eq!(listed(&fixture, &DeliveryFilter { event: Some(HappeningKind::TaskFailed), ..all.clone() }), [3]);
    let first = fixture.reader().deliveries(&all, None, 2).expect("it reads");
    assert_eq!((first.items.len(), first.next), (2, Some(DeliveryId(2))));
    let rest = fixture.reader().deliveries(&all, first.next, 2).expect("it reads");
    assert_eq!((rest.items[0].id, rest.items.len(), rest.next), (DeliveryId(1), 1, None));
}

pub fn purge_keeps_what_a_pending_delivery_tells_of(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([ended(5, task(1)), with_own_ttl(ended(5, task(2))), ended(5, task(3))]);
    let finished = Batch { finished_at: Some(5), ..batch(batch_id(1)) };
    fixture.commit(WriteSet { batches_added: vec![(finished.clone(), blob("spec"))], ..WriteSet::default() });
    let mut of_batch = delivery(4, 1, 9);
    of_batch.happening.subject = Subject::Batch(Box::new(finished));
    let over = with(DeliveryState::Delivered, delivery(3, 3, 0));
    post(&mut fixture, [delivery(1, 1, 9), delivery(2, 2, 9), over, of_batch.clone()]);
    let purge = Purge { retention_ms: 0, deliveries_ms: 0, ..KEEP };
    assert_eq!(fixture.purge(1000, &purge), [id(3)]);
    assert!(fixture.reader().batch(batch_id(1)).expect("it reads").is_some());
    assert_eq!(listed(&fixture, &DeliveryFilter::default()), [4, 2, 1], "a delivered one goes, a pending one stays");
    for delivery in [delivery(1, 1, 0), delivery(2, 2, 0), of_batch] {
        put(&mut fixture, &with(DeliveryState::GivenUp, delivery));
    }
    assert_eq!(fixture.purge(1000, &purge), [id(1), id(2)]);
    assert!(fixture.reader().batch(batch_id(1)).expect("it reads").is_none());
    assert!(listed(&fixture, &DeliveryFilter::default()).is_empty());
}

pub fn purge_of_deliveries_works_in_chunks_until_done(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let mixed =
        |n: u64| if n.is_multiple_of(3) { delivery(n, n, 5) } else { with(DeliveryState::GivenUp, delivery(n, n, 0)) };
    post(&mut fixture, (0..20).map(mixed));
    let purge = Purge { deliveries_ms: 100, limit: 2, ..KEEP };
    fixture.purge(110, &purge);
    // Those that happened up to 10; those that are pending stay.
    assert_eq!(listed(&fixture, &DeliveryFilter::default()), [19, 18, 17, 16, 15, 14, 13, 12, 11, 9, 6, 3, 0]);
}
