//! Messages that are being worked on. Everything in it is bounded: how many in all, how many of one owner, how many for one
//! target, how many on their way. What does not fit stays in the store with a later time.

use std::collections::{BTreeMap, HashSet};

use runyard_core::now::WallMs;
use runyard_core::outbox::{Delivery, DeliveryId};
use url::Url;

use super::breaker::{Breaker, Way};
use super::message::target_of;
use super::owners::{Owners, ROWS_PER_OWNER_MAX};
use super::schedule::spread;
use super::send::{Blame, Outcome};

/// Rows in memory, each without its body.
const ROWS_MAX: usize = 1024;
/// Of them for one target: a receiver that takes ten seconds for each must not keep the others from being read.
const ROWS_PER_TARGET_MAX: usize = 256;
/// What a target is too busy or not there for comes back by [`ROWS_PER_TARGET_MAX`] in so long.
const POSTPONE_MS: u64 = 1000;
const INFLIGHT_MAX: usize = 128;
const INFLIGHT_PER_TARGET_MAX: usize = 8;
/// While a probe is on its way the others wait a little.
const PROBE_MS: u64 = 10_000;
/// Those that waited for the same moment come back over so long.
const SPREAD_MS: u64 = 5000;
/// Targets that are remembered. More than rows, so that those with rows always fit.
const TARGETS_MAX: usize = 2048;

#[derive(Debug)]
pub struct Job {
    pub delivery: Delivery,
    pub url: Url,
    /// Who caused it, see [`owner`](super::message::owner).
    pub owner: String,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    Waits,
    /// Not now: it is to be looked at again then, at no cost to it.
    Postponed(WallMs),
}

#[derive(Default)]
pub struct Window {
    targets: BTreeMap<String, Target>,
    owners: Owners,
    /// Rows that are waiting, on their way, or being written: a row stays here until the store knows what became of it.
    busy: HashSet<DeliveryId>,
    n_inflight: usize,
}

#[derive(Default)]
struct Target {
    n_waiting: usize,
    n_inflight: usize,
    n_postponed: usize,
    breaker: Breaker,
}

impl Window {
    pub fn is_full(&self) -> bool {
        self.busy.len() >= ROWS_MAX
    }

    pub fn busy(&self) -> impl Iterator<Item = DeliveryId> + '_ {
        self.busy.iter().copied()
    }

    pub fn mark_busy(&mut self, id: DeliveryId) {
        self.busy.insert(id);
    }

    pub fn n_inflight(&self) -> usize {
        self.n_inflight
    }

    pub fn n_targets_open(&self) -> usize {
        self.targets.values().filter(|target| !target.breaker.is_closed()).count()
    }

    /// The store has been written: these may be read again.
    pub fn release(&mut self, ids: &[DeliveryId]) {
        ids.iter().for_each(|id| {
            self.busy.remove(id);
        });
        self.forget_targets();
    }

    /// Those that nothing is known of first. Whoever names more dead hosts than are remembered has each of them tried a
    /// few times more: that is cheaper than a list without end.
    fn forget_targets(&mut self) {
        if self.targets.len() > TARGETS_MAX {
            self.targets.retain(|_, target| target.has_rows() || !target.breaker.is_idle());
        }
        if self.targets.len() > TARGETS_MAX {
            self.targets.retain(|_, target| target.has_rows());
        }
    }

    pub fn take(&mut self, job: Job, now_ms: WallMs) -> Taken {
        self.busy.insert(job.delivery.id);
        let id = job.delivery.id;
        let name = target_of(&job.url);
        let target = self.targets.entry(name.clone()).or_default();
        // The way is asked for a second time when it is sent; here only what cannot go soon is turned away.
        if let Some(until_ms) = target.shut_until(now_ms) {
            let spread_ms = spread(id, job.delivery.progress.n_tries, SPREAD_MS);
            return Taken::Postponed(until_ms + spread_ms + target.postpone());
        }
        if target.n_waiting + target.n_inflight >= ROWS_PER_TARGET_MAX {
            return Taken::Postponed(now_ms + POSTPONE_MS + target.postpone());
        }
        if self.owners.is_full(&job.owner) {
            let turn_ms = POSTPONE_MS * (self.owners.postpone(&job.owner) / ROWS_PER_OWNER_MAX) as u64;
            return Taken::Postponed(now_ms + POSTPONE_MS + turn_ms);
        }
        target.n_waiting += 1;
        self.owners.push(name, job);
        Taken::Waits
    }

    /// Everything that may go now, the owners in turn, and of each of them its targets.
    pub fn ready(&mut self, now_ms: WallMs) -> Vec<Job> {
        let mut jobs = Vec::new();
        while self.n_inflight < INFLIGHT_MAX {
            let targets = &mut self.targets;
            let may_go = |name: &str| targets.get_mut(name).is_some_and(|target| target.start(now_ms));
            let Some(job) = self.owners.next(may_go) else { break };
            self.n_inflight += 1;
            jobs.push(job);
        }
        jobs
    }

    /// One is back. Gives those that need not wait for their turn any more, because their target is shut, with the time
    /// at which to look at them again.
    pub fn returned(&mut self, job: &Job, outcome: Option<&Outcome>, now_ms: WallMs) -> Vec<(Job, WallMs)> {
        self.n_inflight -= 1;
        self.owners.returned(&job.owner);
        let name = target_of(&job.url);
        let target = self.targets.get_mut(&name).expect("a target stays while something is on its way to it");
        target.n_inflight -= 1;
        target.n_postponed = 0;
        match outcome {
            Some(Outcome::Taken | Outcome::Gone | Outcome::Failed { blame: Blame::Message, .. }) => {
                target.breaker.succeeded();
            }
            Some(Outcome::Failed { blame: Blame::Target, .. }) => target.breaker.failed(now_ms),
            Some(Outcome::Failed { blame: Blame::Nobody, .. }) | None => target.breaker.undecided(now_ms),
        }
        let Some(until_ms) = target.shut_until(now_ms) else { return Vec::new() };
        target.n_waiting = 0;
        let waiting = self.owners.take_target(&name).into_iter();
        let later = |job: &Job| until_ms + spread(job.delivery.id, job.delivery.progress.n_tries, SPREAD_MS);
        waiting.map(|job| (later(&job), job)).map(|(at, job)| (job, at)).collect()
    }
}

impl Target {
    /// Whether one of those that wait goes now; if so it counts as on its way.
    fn start(&mut self, now_ms: WallMs) -> bool {
        if self.n_inflight >= INFLIGHT_PER_TARGET_MAX || self.breaker.pass(now_ms) != Way::Free {
            return false;
        }
        self.n_waiting -= 1;
        self.n_inflight += 1;
        true
    }

    /// Fifty thousand messages for a receiver that is down must not all be looked at in the moment it is asked again: they
    /// come back a part at a time.
    fn postpone(&mut self) -> u64 {
        self.n_postponed += 1;
        POSTPONE_MS * (self.n_postponed / ROWS_PER_TARGET_MAX) as u64
    }

    /// `None` when a message may go, now or as the probe.
    fn shut_until(&self, now_ms: WallMs) -> Option<WallMs> {
        match self.breaker.look(now_ms) {
            Way::Free => None,
            Way::Shut { until_ms } => Some(until_ms.unwrap_or(now_ms + PROBE_MS)),
        }
    }

    fn has_rows(&self) -> bool {
        self.n_waiting + self.n_inflight > 0
    }
}

#[cfg(test)]
mod tests {
    use runyard_core::event::{Happening, HappeningKind, Subject};
    use runyard_core::outbox::{Progress, Recipient};

    use super::super::owners::INFLIGHT_PER_OWNER_MAX;
    use super::*;

    fn job(id: u64, host: &str) -> Job {
        job_of("agent a", id, host)
    }

    fn job_of(owner: &str, id: u64, host: &str) -> Job {
        let happening = Happening { kind: HappeningKind::ConfigChanged, at_ms: 0, subject: Subject::Config };
        let progress = Progress::new(Recipient::Own, 0);
        let delivery = Delivery { id: DeliveryId(id), hook: None, happening, progress };
        Job { delivery, url: format!("http://{host}/path").parse().expect("a URL"), owner: owner.to_owned() }
    }

    fn failure() -> Outcome {
        Outcome::Failed { error: "x".into(), retry_after_ms: None, blame: Blame::Target }
    }

    fn filled(hosts: &[(&str, u64)]) -> Window {
        let mut window = Window::default();
        let mut id = 0;
        for (host, n) in hosts {
            for _ in 0..*n {
                id += 1;
                assert_eq!(window.take(job(id, host), 0), Taken::Waits);
            }
        }
        window
    }

    #[test]
    fn targets_take_turns_within_their_limits() {
        let mut window = filled(&[("a", 100), ("b", 3), ("c", 1)]);
        let ready = window.ready(0);
        let n_of = |host: &str| ready.iter().filter(|job| job.url.host_str() == Some(host)).count();
        assert_eq!((n_of("a"), n_of("b"), n_of("c")), (INFLIGHT_PER_TARGET_MAX, 3, 1));
        let first: Vec<_> = ready[..3].iter().filter_map(|job| job.url.host_str()).collect();
        assert_eq!(first, ["a", "b", "c"]);
        assert!(window.ready(0).is_empty());
        window.returned(&ready[0], Some(&Outcome::Taken), 0);
        assert_eq!(window.ready(0).len(), 1);
    }

    #[test]
    fn no_more_than_so_many_are_on_their_way() {
        let mut window = Window::default();
        for n in 0..20 * 8 {
            window.take(job_of(&format!("agent {}", n % 8), n, &format!("h{}", n % 20)), 0);
        }
        assert_eq!(window.ready(0).len(), INFLIGHT_MAX);
        assert_eq!(window.n_inflight(), INFLIGHT_MAX);
    }

    #[test]
    fn an_owner_with_many_slow_targets_leaves_the_way_free_for_others() {
        let mut window = Window::default();
        let n_taken =
            (0..1000).filter(|n| window.take(job(*n, &format!("slow{}", n % 200)), 0) == Taken::Waits).count();
        assert_eq!(n_taken, ROWS_PER_OWNER_MAX, "the window has room for others");
        assert_eq!(window.ready(0).len(), INFLIGHT_PER_OWNER_MAX, "none of them ever comes back");
        for n in 0..3 {
            assert_eq!(window.take(job_of("agent b", 5000 + n, "quick"), 0), Taken::Waits);
            assert_eq!(window.take(job_of("agent c", 6000 + n, "slow1"), 0), Taken::Waits);
        }
        let owners: Vec<String> = window.ready(0).into_iter().map(|job| job.owner).collect();
        assert_eq!(owners, ["agent b", "agent c", "agent b", "agent c", "agent b", "agent c"]);
    }

    #[test]
    fn what_an_owner_has_no_room_for_comes_back_a_part_at_a_time() {
        let mut window = Window::default();
        for n in 0..ROWS_PER_OWNER_MAX as u64 {
            assert_eq!(window.take(job(n, &format!("h{n}")), 0), Taken::Waits);
        }
        for n in 0..2 * ROWS_PER_OWNER_MAX as u64 {
            let turn_ms = POSTPONE_MS * (1 + n / ROWS_PER_OWNER_MAX as u64);
            assert_eq!(window.take(job(1000 + n, &format!("k{n}")), 5), Taken::Postponed(5 + turn_ms));
        }
    }

    #[test]
    fn a_busy_target_leaves_room_for_others() {
        let mut window = filled(&[("a", ROWS_PER_TARGET_MAX as u64)]);
        for n in 0..ROWS_PER_TARGET_MAX as u64 - 1 {
            assert_eq!(window.take(job(1000 + n, "a"), 5), Taken::Postponed(5 + POSTPONE_MS));
        }
        assert_eq!(window.take(job(5000, "a"), 5), Taken::Postponed(5 + 2 * POSTPONE_MS));
        assert_eq!(window.take(job_of("agent b", 5001, "b"), 5), Taken::Waits);
    }

    #[test]
    fn a_target_that_is_down_shuts_its_others_out_and_one_probe_opens_it() {
        let mut window = filled(&[("a", 20), ("b", 1)]);
        let ready = window.ready(0);
        let mut postponed = Vec::new();
        for job in ready.iter().filter(|job| job.url.host_str() == Some("a")) {
            postponed.extend(window.returned(job, Some(&failure()), 0));
        }
        assert_eq!(postponed.len(), 20 - INFLIGHT_PER_TARGET_MAX);
        assert!(postponed.iter().all(|(_, at)| (30_000..30_000 + SPREAD_MS).contains(at)));
        assert!(matches!(window.take(job(99, "a"), 29_999), Taken::Postponed(30_000..)));
        assert_eq!(window.take(job(100, "a"), 30_000), Taken::Waits);
        assert_eq!(window.take(job(101, "a"), 30_000), Taken::Waits);
        let probe = window.ready(30_000);
        assert_eq!(probe.len(), 1, "one probe, the other waits");
        for n in 0..50_000 {
            let Taken::Postponed(at) = window.take(job(1000 + n, "a"), 30_000) else { panic!("it is shut") };
            let turn_ms = (n + 1 + 1) / ROWS_PER_TARGET_MAX as u64 * POSTPONE_MS;
            assert!((0..SPREAD_MS).contains(&(at - 30_000 - PROBE_MS - turn_ms)), "{n} comes back in its turn: {at}");
        }
        assert_eq!(window.n_targets_open(), 1);
        window.returned(&probe[0], Some(&Outcome::Taken), 30_000);
        assert_eq!((window.ready(30_000).len(), window.n_targets_open()), (1, 0));
    }

    #[test]
    fn dead_targets_without_end_are_not_remembered_without_end() {
        let mut window = Window::default();
        for id in 0..TARGETS_MAX as u64 + 100 {
            window.take(job(id, &format!("h{id}")), 0);
            for job in window.ready(0) {
                window.returned(&job, Some(&failure()), 0);
            }
            window.release(&[DeliveryId(id)]);
            assert!(window.targets.len() <= TARGETS_MAX);
        }
        // What is on its way is not forgotten.
        window.take(job(0, "slow"), 0);
        let slow = window.ready(0).remove(0);
        for id in 0..2 * TARGETS_MAX as u64 {
            window.targets.entry(format!("dead{id}")).or_default().breaker.failed(0);
        }
        window.release(&[]);
        assert_eq!(window.targets.len(), 1);
        window.returned(&slow, Some(&Outcome::Taken), 0);
    }

    #[test]
    fn what_was_not_called_says_nothing_of_the_target() {
        let mut window = filled(&[("a", 20)]);
        let refused = Outcome::Failed { error: "x".into(), retry_after_ms: None, blame: Blame::Nobody };
        for _ in 0..20 {
            let Some(job) = window.ready(0).into_iter().next() else { break };
            assert!(window.returned(&job, Some(&refused), 0).is_empty());
        }
        assert_eq!(window.n_targets_open(), 0);
    }

    #[test]
    fn a_row_is_busy_until_it_is_written() {
        let mut window = filled(&[("a", 2)]);
        let ids = [DeliveryId(1), DeliveryId(2)];
        let is_busy = |window: &Window, id| window.busy().any(|busy| busy == id);
        assert!(ids.iter().all(|id| is_busy(&window, *id)));
        window.release(&ids[..1]);
        assert_eq!(ids.map(|id| is_busy(&window, id)), [false, true]);
        (0..ROWS_MAX as u64).for_each(|n| window.mark_busy(DeliveryId(n)));
        assert!(window.is_full());
    }
}
