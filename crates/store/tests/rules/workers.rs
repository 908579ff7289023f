//! Workers on other machines: they register, present what they hold, fall silent, come back, are drained and removed.

use runyard_core::event::{Event, Fault, HappeningKind, Report, WorkerSpec};
use runyard_core::ids::WorkerId;
use runyard_core::task::{Class, Phase, Stop};
use runyard_core::worker::{Sync, Vitals, WorkerAct, WorkerRefusal, WorkerStatus};
use runyard_store::store::Reader;

use super::bed::{Bed, DAY, FIRST, HOUR, SECOND, remote, task};

const A: WorkerId = WorkerId(11);
const B: WorkerId = WorkerId(12);
/// As long as a worker may be silent.
const OFFLINE: u64 = 30 * SECOND;

fn completed() -> Report {
    Report::Completed { result: None, usage: None }
}

fn lost_by(fault: Fault, class: Class) -> Report {
    let message = "it broke".into();
    Report::Failed { class, message, retry_after_ms: None, result: None, usage: None, fault }
}

// ── Registering ─────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_worker_that_registered_gets_nothing_before_it_presents_itself() {
    let mut bed = Bed::remotes([]);
    let id = bed.submit(task("a"));
    bed.register(remote(A, 4000, 8192));
    assert_eq!(bed.state(id), Phase::Queued);
    assert_eq!(bed.status(A), (WorkerStatus::Offline, "has not come yet".to_owned()));
    bed.present(A, &[]);
    assert_eq!((bed.state(id), bed.start_of(id).worker), (Phase::Running, A));
    assert_eq!(bed.n_happenings(HappeningKind::WorkerRegistered), 1);
}

#[test]
fn a_register_says_when_and_does_not_drain() {
    let mut bed = Bed::remotes([]);
    let row = bed.try_register(remote(A, 4000, 8192)).expect("there is room");
    assert_eq!((row.registered_at, row.draining), (bed.wall_ms(), false));
    let first_at = row.registered_at;
    bed.advance_ms(HOUR);
    let again = bed.try_register(remote(A, 4000, 8192)).expect("it is known");
    assert_eq!(again.registered_at, first_at, "it is still the same worker");
    assert_eq!(bed.n_happenings(HappeningKind::WorkerRegistered), 1);
}

#[test]
fn a_worker_that_says_something_before_it_presents_itself_is_told_to() {
    let mut bed = Bed::remotes([]);
    bed.register(remote(A, 4000, 8192));
    let sync = bed.sync_of(A);
    assert_eq!(bed.sync(A, sync), Err(WorkerRefusal::NotJoined));
}

#[test]
fn a_worker_that_nobody_knows_is_told_so() {
    let mut bed = Bed::remotes([]);
    let sync = Sync { joins: true, ..bed.sync_of(A) };
    assert_eq!(bed.sync(A, sync), Err(WorkerRefusal::NotFound));
    for act in [WorkerAct::Drain, WorkerAct::Resume, WorkerAct::Remove] {
        assert_eq!(bed.act_on_worker(A, act).err(), Some(WorkerRefusal::NotFound));
    }
}

/// A node follows, holds the scheduler for a while, and follows again: its worker is the same one all the time.
#[test]
fn the_own_worker_of_a_node_is_shielded_only_while_the_scheduler_shares_its_process() {
    let own = |name: &str| WorkerSpec { embedded: true, name: name.into(), ..remote(A, 4000, 8192) };
    let mut bed = Bed::remotes([own("as it registered")]);
    bed.register(own("as it registered"));
    bed.reopen();
    bed.send([Event::WorkerJoined { worker: own("as it is"), held: Vec::new() }]);
    let view = bed.view(A);
    assert_eq!((&*view.spec.name, view.spec.embedded), ("as it is", true));
    assert_eq!(bed.try_register(own("another")), Err(WorkerRefusal::Embedded));
    assert_eq!(bed.act_on_worker(A, WorkerAct::Remove).err(), Some(WorkerRefusal::Embedded));
    bed.reopen();
    bed.come(own("again"));
    let view = bed.view(A);
    assert_eq!((&*view.spec.name, view.spec.embedded), ("again", true));
    bed.remove_worker(A);
}

#[test]
fn the_server_s_own_worker_neither_registers_nor_syncs_nor_is_removed_but_can_be_drained() {
    let mut bed = Bed::new();
    assert_eq!(bed.try_register(remote(FIRST, 4000, 8192)), Err(WorkerRefusal::Embedded));
    let sync = Sync { joins: true, ..bed.sync_of(FIRST) };
    assert_eq!(bed.sync(FIRST, sync), Err(WorkerRefusal::NotFound));
    assert_eq!(bed.act_on_worker(FIRST, WorkerAct::Remove).err(), Some(WorkerRefusal::Embedded));
    let running = bed.submit(task("a"));
    bed.drain(FIRST);
    let waiting = bed.submit(task("a"));
    assert_eq!(bed.states(&[running, waiting]), [Phase::Running, Phase::Queued]);
    bed.resume(FIRST);
    assert_eq!(bed.state(waiting), Phase::Running);
}

#[test]
fn no_more_workers_register_than_configured_and_a_known_one_may_again() {
    let mut bed = Bed::remotes([]).config(|config| config.workers_max = 1);
    bed.come(remote(A, 4000, 8192));
    assert_eq!(bed.try_register(remote(B, 4000, 8192)), Err(WorkerRefusal::TooMany { limit: 1 }));
    bed.come(remote(A, 2000, 8192));
    bed.remove_worker(A);
    bed.come(remote(B, 4000, 8192));
}

#[test]
fn a_worker_may_come_back_as_another_machine_and_has_its_size_once_it_is_there() {
    let mut bed = Bed::remotes([remote(A, 1000, 1024)]);
    let big = bed.submit(task("a").cpu(8000));
    bed.register(remote(A, 8000, 1024));
    assert_eq!(bed.state(big), Phase::Queued);
    assert_eq!(bed.view(A).spec.capacity.cpu_milli, 8000);
    bed.present(A, &[]);
    assert_eq!(bed.state(big), Phase::Running);
}

// ── One process speaks for a worker ─────────────────────────────────────────────────────────────────────────────────

#[test]
fn an_earlier_process_of_the_same_worker_is_fenced_and_its_report_changes_nothing() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let id = bed.submit(task("a"));
    let old = bed.sync_of(A);
    let report = (bed.lease_of(id), completed());
    bed.register(remote(A, 4000, 8192));
    for joins in [false, true] {
        let sync = Sync { joins, reports: vec![report.clone()], ..old.clone() };
        assert_eq!(bed.sync(A, sync), Err(WorkerRefusal::Fenced));
    }
    assert_eq!(bed.state(id), Phase::Running);
    bed.present(A, &[id]);
    let sync = Sync { reports: vec![report], ..old };
    assert_eq!(bed.sync(A, sync), Err(WorkerRefusal::Fenced), "also once the new one is there");
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn a_new_process_keeps_the_leases_it_presents_and_loses_the_others_at_once() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let ids = bed.submit_n(2, &task("a").cpu(2000));
    bed.register(remote(A, 4000, 8192));
    assert_eq!(bed.states(&ids), [Phase::Running, Phase::Running], "nothing is lost before it has spoken");
    assert_eq!(bed.view(A).reserved.cpu_milli, 4000);
    bed.present(A, &ids[..1]);
    assert_eq!((bed.task(ids[0]).attempt, bed.task(ids[1]).attempt), (1, 2), "there is room, so it runs again");
    assert_eq!((bed.task(ids[1]).n_lost, bed.view(A).reserved.cpu_milli), (1, 4000));
    bed.complete(ids[0]);
    assert_eq!(bed.state(ids[0]), Phase::Completed);
}

#[test]
fn a_worker_that_registers_again_gets_nothing_until_its_new_process_is_there() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    bed.register(remote(A, 4000, 8192));
    let id = bed.submit(task("a"));
    assert_eq!(bed.state(id), Phase::Queued);
    assert_eq!(bed.status(A).1, "has registered again and not come yet");
    bed.present(A, &[]);
    assert_eq!(bed.state(id), Phase::Running);
}

#[test]
fn a_re_registered_worker_that_never_comes_loses_its_leases_when_its_time_is_over() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let id = bed.submit(task("a").long());
    bed.advance_ms(10 * SECOND);
    bed.register(remote(A, 4000, 8192));
    bed.silence(A);
    bed.advance_ms(OFFLINE - 1);
    assert_eq!(bed.state(id), Phase::Running);
    bed.advance_ms(1);
    assert_eq!((bed.state(id), bed.task(id).n_lost), (Phase::Queued, 1));
}

// ── Reports ─────────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_report_on_a_live_lease_is_taken_and_none_is_refused() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]).idle_workers();
    let id = bed.submit(task("a"));
    let lease = bed.lease_of(id);
    assert_eq!(bed.reports(A, lease, Report::Started), []);
    assert_eq!(bed.state(id), Phase::Running);
    assert_eq!(bed.reports(A, lease, completed()), []);
    assert_eq!(bed.state(id), Phase::Completed);
}

#[test]
fn a_late_report_of_an_old_attempt_is_refused_changes_nothing_and_cools_nobody() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192), remote(B, 4000, 8192)]);
    let id = bed.submit(task("a"));
    let (old, old_place) = (bed.lease_of(id), bed.start_of(id).worker);
    bed.fail(id, Class::Task);
    bed.advance_ms(SECOND);
    assert_eq!((bed.task(id).attempt, bed.state(id)), (2, Phase::Running));
    let before = bed.task(id);
    for report in [completed(), lost_by(Fault::Worker, Class::Task), lost_by(Fault::Work, Class::Lost), Report::Stopped]
    {
        assert_eq!(bed.reports(old_place, old, report), [(id, 1)]);
    }
    assert_eq!(bed.task(id), before);
    assert_eq!(bed.n_happenings(HappeningKind::WorkerCooled), 0);
    let another = bed.start_of(id).worker;
    let stolen = bed.lease_of(id);
    let other = if another == A { B } else { A };
    assert_eq!(bed.reports(other, stolen, completed()), [(id, 2)], "a lease is its holder's only");
    assert_eq!(bed.reports(another, stolen, completed()), []);
}

#[test]
fn a_repeated_report_is_refused_and_the_outcome_stays() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let id = bed.submit(task("a"));
    let lease = bed.lease_of(id);
    assert_eq!(bed.reports(A, lease, completed()), []);
    assert_eq!(bed.reports(A, lease, lost_by(Fault::Work, Class::Task)), [(id, 1)]);
    assert_eq!((bed.state(id), bed.n_finals_of(id)), (Phase::Completed, 1));
}

#[test]
fn reports_come_before_the_question_how_many_more_it_takes() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let first = bed.submit(task("a"));
    let report = (bed.lease_of(first), completed());
    let vitals = Vitals { want: Some(0), ..Vitals::default() };
    let sync = Sync { reports: vec![report], vitals: Some(vitals), ..bed.sync_of(A) };
    assert_eq!(bed.sync(A, sync), Ok(vec![]));
    let next = bed.submit(task("a"));
    assert_eq!(bed.states(&[first, next]), [Phase::Completed, Phase::Queued]);
}

// ── Silence, and coming back ────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_worker_silent_for_thirty_seconds_is_offline_and_its_tasks_go_elsewhere_once() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192), remote(B, 4000, 8192)]);
    let ids = bed.submit_n(4, &task("a").cpu(1000).long());
    let on_a: Vec<_> = ids.iter().copied().filter(|&id| bed.start_of(id).worker == A).collect();
    assert_eq!(on_a.len(), 2);
    bed.silence(A);
    bed.advance_ms(OFFLINE - 1);
    assert_eq!(bed.status(A).0, WorkerStatus::Busy);
    bed.advance_ms(1);
    assert_eq!(bed.status(A), (WorkerStatus::Offline, "its worker fell silent".to_owned()));
    assert_eq!((bed.view(A).held.len(), bed.view(A).reserved.cpu_milli), (0, 0));
    bed.advance_ms(HOUR);
    for &id in &on_a {
        assert_eq!((bed.start_of(id).worker, bed.n_starts_of(id), bed.task(id).n_lost), (B, 2, 1));
    }
    assert_eq!(bed.n_happenings(HappeningKind::WorkerLost), 2, "the bed's first worker, and this one");
}

#[test]
fn a_silent_worker_with_nothing_to_do_goes_offline_and_is_known_all_the_same() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    bed.silence(A);
    bed.advance_ms(OFFLINE);
    assert_eq!(bed.status(A).0, WorkerStatus::Offline);
    let sync = bed.sync_of(A);
    assert_eq!(bed.sync(A, sync), Err(WorkerRefusal::NotJoined));
}

#[test]
fn a_worker_that_comes_back_keeps_its_valid_leases_and_stops_what_it_lost() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let [kept, moved] = [bed.submit(task("a").long()), bed.submit(task("a").long())];
    let (old, fresh) = (bed.lease_of(moved), bed.lease_of(kept));
    bed.come(remote(B, 4000, 8192));
    bed.fail(moved, Class::Task);
    bed.advance_ms(SECOND);
    assert_eq!(bed.start_of(moved).worker, B);
    bed.reopen();
    bed.take_revokes();
    let sync = Sync { joins: true, held: vec![fresh, old], ..bed.sync_of(A) };
    bed.sync(A, sync).expect("it is known");
    assert_eq!(bed.take_revokes(), [(moved, 1)]);
    bed.present(B, &[moved]);
    assert_eq!((bed.task(kept).attempt, bed.task(moved).attempt), (1, 2));
    assert_eq!(bed.states(&[kept, moved]), [Phase::Running, Phase::Running]);
}

#[test]
fn an_earlier_attempt_presented_is_not_the_one_it_holds() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let id = bed.submit(task("a").long());
    let old = bed.lease_of(id);
    bed.fail(id, Class::Task);
    bed.advance_ms(SECOND);
    bed.reopen();
    bed.take_revokes();
    let sync = Sync { joins: true, held: vec![old], ..bed.sync_of(A) };
    bed.sync(A, sync).expect("it is known");
    assert_eq!((bed.take_revokes(), bed.task(id).n_lost, bed.task(id).attempt), (vec![(id, 1)], 1, 3));
}

#[test]
fn a_worker_that_was_given_up_is_told_to_stop_what_it_still_presents() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192), remote(B, 4000, 8192)]);
    let id = bed.submit(task("a").long());
    let (old, place) = (bed.lease_of(id), bed.start_of(id).worker);
    bed.silence(place);
    bed.advance_ms(OFFLINE);
    bed.take_revokes();
    let sync = Sync { joins: true, held: vec![old], ..bed.sync_of(place) };
    bed.sync(place, sync).expect("it is known");
    assert_eq!(bed.take_revokes(), [(id, 1)]);
    assert_eq!(bed.status(place), (WorkerStatus::Idle, String::new()), "it is not punished");
    assert_eq!((bed.task(id).attempt, bed.state(id)), (2, Phase::Running));
}

#[test]
fn a_worker_that_says_goodbye_gets_nothing_more_and_has_its_time_to_come_back() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let id = bed.submit(task("a").long());
    bed.leaves(A);
    bed.silence(A);
    assert_eq!(bed.status(A), (WorkerStatus::Offline, "said goodbye".to_owned()));
    let next = bed.submit(task("a"));
    assert_eq!(bed.states(&[id, next]), [Phase::Running, Phase::Queued]);
    bed.advance_ms(OFFLINE - 1);
    assert_eq!(bed.task(id).attempt, 1);
    bed.register(remote(A, 4000, 8192));
    bed.present(A, &[id]);
    assert_eq!((bed.task(id).attempt, bed.states(&[id, next])), (1, vec![Phase::Running, Phase::Running]));
}

#[test]
fn what_a_worker_that_said_goodbye_does_not_come_back_for_is_lost() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let id = bed.submit(task("a").long());
    bed.leaves(A);
    bed.silence(A);
    bed.advance_ms(OFFLINE);
    assert_eq!((bed.state(id), bed.task(id).n_lost), (Phase::Queued, 1));
}

#[test]
fn a_worker_away_for_too_long_is_forgotten_and_not_before() {
    let forget = |config: &mut runyard_core::config::Config| config.worker_forget_ms = DAY;
    let mut bed = Bed::remotes([]).config(forget);
    bed.register(remote(A, 4000, 8192));
    bed.advance_ms(DAY - 1);
    assert!(bed.find_worker(A).is_some());
    bed.advance_ms(1);
    assert_eq!(bed.find_worker(A), None);
    assert_eq!(bed.n_happenings(HappeningKind::WorkerRemoved), 1);
    assert_eq!(bed.store().workers().expect("memory reads"), []);
}

#[test]
fn who_said_goodbye_or_registered_again_with_nothing_at_hand_is_not_forgotten_in_half_a_minute() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192), remote(B, 4000, 8192)]);
    bed.leaves(A);
    bed.register(remote(B, 4000, 8192));
    bed.silence(A);
    bed.silence(B);
    bed.advance_ms(HOUR);
    assert_eq!([bed.status(A).1, bed.status(B).1], ["said goodbye", "has registered again and not come yet"]);
    bed.advance_ms(8 * DAY);
    assert_eq!((bed.find_worker(A), bed.find_worker(B)), (None, None));
}

#[test]
fn registered_workers_survive_a_restart_and_present_themselves_again() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let id = bed.submit(task("a").long());
    bed.reopen();
    assert_eq!(bed.status(A), (WorkerStatus::Offline, "has not come yet".to_owned()));
    assert_eq!(bed.view(A).held, [id]);
    let sync = bed.sync_of(A);
    assert_eq!(bed.sync(A, sync), Err(WorkerRefusal::NotJoined));
    bed.present(A, &[id]);
    assert_eq!((bed.state(id), bed.task(id).attempt, bed.status(A).0), (Phase::Running, 1, WorkerStatus::Busy));
}

// ── Draining and removing ───────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_draining_worker_gets_nothing_new_and_ends_what_it_runs() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let running = bed.submit(task("a"));
    let view = bed.drain(A);
    assert_eq!((view.status, view.draining, &*view.reason), (WorkerStatus::Draining, true, "1 still running"));
    let waiting = bed.submit(task("a"));
    assert_eq!(bed.states(&[running, waiting]), [Phase::Running, Phase::Queued]);
    bed.complete(running);
    assert_eq!(bed.states(&[running, waiting]), [Phase::Completed, Phase::Queued]);
    assert_eq!(bed.status(A), (WorkerStatus::Draining, "0 still running".to_owned()));
    let view = bed.resume(A);
    assert_eq!((bed.state(waiting), view.draining), (Phase::Running, false));
    bed.resume(A);
    let told = [HappeningKind::WorkerDraining, HappeningKind::WorkerResumed].map(|kind| bed.n_happenings(kind));
    assert_eq!(told, [1, 1], "each is told once");
}

#[test]
fn draining_survives_a_restart_a_new_process_and_an_absence() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    bed.drain(A);
    bed.restart();
    let id = bed.submit(task("a"));
    assert_eq!((bed.state(id), bed.view(A).draining), (Phase::Queued, true));
    bed.come(remote(A, 4000, 8192));
    assert_eq!((bed.state(id), bed.view(A).draining), (Phase::Queued, true));
    bed.leaves(A);
    bed.present(A, &[]);
    assert_eq!((bed.state(id), bed.status(A).0), (Phase::Queued, WorkerStatus::Draining));
    bed.resume(A);
    bed.restart();
    assert_eq!((bed.state(id), bed.view(A).draining), (Phase::Running, false));
}

#[test]
fn a_removed_worker_loses_its_leases_and_is_forgotten() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let id = bed.submit(task("a").long());
    bed.take_revokes();
    let view = bed.remove_worker(A);
    assert_eq!((view.status, &*view.reason, view.held), (WorkerStatus::Offline, "removed", vec![]));
    assert_eq!((bed.state(id), bed.task(id).n_lost, bed.take_revokes()), (Phase::Queued, 1, vec![(id, 1)]));
    assert_eq!(bed.find_worker(A), None);
    let sync = Sync { joins: true, ..bed.sync_of(A) };
    assert_eq!(bed.sync(A, sync), Err(WorkerRefusal::NotFound));
    assert_eq!(bed.store().workers().expect("memory reads"), []);
    bed.reopen();
    assert_eq!(bed.find_worker(A), None);
    bed.come(remote(A, 4000, 8192));
    assert_eq!(bed.state(id), Phase::Running, "it may join anew");
}

#[test]
fn a_patience_that_was_changed_counts_for_the_silence_that_lasts_already() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let id = bed.submit(task("a").long());
    bed.silence(A);
    bed.advance_ms(10 * SECOND);
    bed.reconfigure(|config| config.worker_offline_ms = 60 * SECOND);
    bed.advance_ms(OFFLINE);
    assert_eq!((bed.status(A).0, bed.state(id)), (WorkerStatus::Busy, Phase::Running), "it was made longer");
    bed.reconfigure(|config| config.worker_offline_ms = 20 * SECOND);
    assert_eq!((bed.status(A).0, bed.state(id)), (WorkerStatus::Offline, Phase::Queued), "and shorter");
    bed.reconfigure(|config| config.worker_forget_ms = HOUR);
    bed.advance_ms(HOUR);
    assert!(bed.find_worker(A).is_none(), "so long nobody is remembered any more");
}

// ── Faults ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_failure_of_the_work_cools_nobody() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    for class in [Class::Task, Class::Timeout, Class::Quota, Class::Permanent] {
        let id = bed.submit(task("a").max_retries(0));
        bed.fail(id, class);
        assert_eq!(bed.status(A).0, WorkerStatus::Idle, "{class:?}");
    }
    let id = bed.submit(task("a"));
    bed.cancel(id);
    bed.confirm_stop(id);
    assert_eq!(bed.n_happenings(HappeningKind::WorkerCooled), 0, "nor does a stop that was asked for");
}

#[test]
fn a_loss_that_a_worker_reports_cools_it_and_its_neighbours_stay() {
    for report in [lost_by(Fault::Work, Class::Lost), lost_by(Fault::Worker, Class::Task), Report::Stopped] {
        let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
        let [lost, beside] = [bed.submit(task("a").long()), bed.submit(task("a").long())];
        let lease = bed.lease_of(lost);
        bed.reports(A, lease, report);
        assert_eq!(bed.status(A), (WorkerStatus::Unhealthy, "cooling down after a fault".to_owned()));
        assert_eq!(bed.view(A).cooling_until, Some(bed.after_ms(30 * SECOND)));
        assert_eq!((bed.state(beside), bed.task(beside).attempt), (Phase::Running, 1));
        bed.advance_ms(30 * SECOND - 1);
        assert_eq!((bed.n_starts_of(lost), bed.status(A).0), (1, WorkerStatus::Unhealthy));
        bed.advance_ms(1);
        assert_eq!((bed.n_starts_of(lost), bed.status(A).0), (2, WorkerStatus::Busy));
        assert_eq!((bed.view(A).cooling_until, bed.task(beside).attempt), (None, 1));
    }
}

#[test]
fn a_second_fault_while_it_cools_begins_the_time_anew() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let ids = bed.submit_n(2, &task("a").long().max_retries(0));
    bed.fail_by_worker(ids[0]);
    bed.advance_ms(20 * SECOND);
    bed.fail_by_worker(ids[1]);
    bed.advance_ms(30 * SECOND - 1);
    assert_eq!(bed.status(A).0, WorkerStatus::Unhealthy);
    bed.advance_ms(1);
    assert_eq!(bed.status(A).0, WorkerStatus::Idle);
}

#[test]
fn a_worker_that_comes_again_cools_on() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let id = bed.submit(task("a").max_retries(0));
    bed.fail_by_worker(id);
    let cooling_until = bed.view(A).cooling_until;
    bed.advance_ms(10 * SECOND);
    bed.leaves(A);
    bed.present(A, &[]);
    assert_eq!(bed.status(A).0, WorkerStatus::Unhealthy, "it had said goodbye");
    bed.come(remote(A, 4000, 8192));
    assert_eq!((bed.status(A).0, bed.view(A).cooling_until), (WorkerStatus::Unhealthy, cooling_until));
    bed.advance_ms(20 * SECOND);
    assert_eq!(bed.status(A).0, WorkerStatus::Idle);
}

#[test]
fn of_overtaken_words_only_the_reports_count_and_they_are_no_sign_of_life() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192)]);
    let [ended, beside] = [bed.submit(task("a").long()), bed.submit(task("a").long())];
    bed.says(A, Vitals { trouble: Some("its disk is full".into()), ..Vitals::default() });
    bed.silence(A);
    bed.advance_ms(OFFLINE - 1);
    let late = Sync { vitals: None, reports: vec![(bed.lease_of(ended), completed())], ..bed.sync_of(A) };
    assert_eq!(bed.sync(A, late.clone()), Ok(Vec::new()));
    assert_eq!((bed.state(ended), bed.state(beside)), (Phase::Completed, Phase::Running));
    assert_eq!(bed.status(A), (WorkerStatus::Unhealthy, "its disk is full".to_owned()), "it said so later");
    bed.advance_ms(1);
    assert_eq!((bed.status(A).0, bed.state(beside)), (WorkerStatus::Offline, Phase::Queued));
    assert_eq!(bed.sync(A, late), Err(WorkerRefusal::NotJoined), "they bring nobody back");
}

#[test]
fn a_cancelled_task_whose_worker_is_lost_ends_cancelled_and_never_runs_again() {
    let mut bed = Bed::remotes([remote(A, 4000, 8192), remote(B, 4000, 8192)]);
    let id = bed.submit(task("a").long());
    let place = bed.start_of(id).worker;
    bed.silence(place);
    bed.cancel(id);
    assert_eq!((bed.state(id), bed.take_stops()), (Phase::Running, vec![(id, Stop::Cancel)]));
    bed.advance_ms(OFFLINE);
    assert_eq!((bed.state(id), bed.n_starts_of(id), bed.n_finals_of(id)), (Phase::Cancelled, 1, 1));
    let removed = bed.submit(task("a").long());
    let place = bed.start_of(removed).worker;
    bed.cancel(removed);
    bed.remove_worker(place);
    assert_eq!((bed.state(removed), bed.n_starts_of(removed)), (Phase::Cancelled, 1));
}

#[test]
fn what_is_assigned_and_not_begun_in_fifteen_seconds_goes_to_another_worker() {
    let mut bed = Bed::remotes([remote(A, 1000, 8192), remote(B, 1000, 8192)]).idle_workers();
    let id = bed.submit(task("a").cpu(1000));
    let first = bed.start_of(id).worker;
    bed.advance_ms(15 * SECOND - 1);
    assert_eq!(bed.take_stops(), []);
    bed.advance_ms(1);
    assert_eq!(bed.take_stops(), [(id, Stop::NotStarted)]);
    let lease = bed.lease_of(id);
    bed.reports(first, lease, Report::Stopped);
    let task = bed.task(id);
    assert_eq!((task.attempt, task.n_runs, task.retries_used, task.n_lost), (2, 0, 0, 0));
    assert_eq!(bed.start_of(id).worker, if first == A { B } else { A }, "the first one does not get round to it");
    assert_eq!((bed.view(first).held, bed.n_happenings(HappeningKind::WorkerCooled)), (vec![], 0));
}

#[test]
fn a_retry_goes_to_the_worker_where_it_failed_when_no_other_fits_also_after_a_restart() {
    let mut bed = Bed::remotes([remote(A, 1000, 8192), remote(B, 4000, 8192)]);
    let id = bed.submit(task("a").cpu(500).long());
    let first = bed.start_of(id).worker;
    let other = if first == A { B } else { A };
    bed.fail(id, Class::Task);
    bed.restart();
    bed.advance_ms(SECOND);
    assert_eq!((bed.start_of(id).worker, bed.task(id).failed_on.clone()), (other, vec![first]));
    bed.fail(id, Class::Task);
    bed.drain(first);
    bed.restart();
    bed.advance_ms(2 * SECOND);
    assert_eq!((bed.start_of(id).worker, bed.n_starts_of(id)), (other, 3), "nobody else takes it");
}
