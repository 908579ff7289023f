//! A command that leaves nothing behind that a repeat would find is done once all the same.

use runyard_core::event::{Answer, Event, FirstAnswer, Receipt, SessionAct, SessionAnswer};
use runyard_core::ids::{ScheduleId, TaskId, Ticket};
use runyard_core::schedule::{ScheduleAct, ScheduleRefusal};
use runyard_core::task::Phase;

use super::bed::{Bed, message};

fn stop(ticket: Ticket) -> Event {
    Event::Session { ticket, key: "s".into(), act: SessionAct::Stop }
}

fn stopped_before(answer: &Answer) -> Option<TaskId> {
    match answer {
        Answer::Replayed(FirstAnswer::Command(Receipt::Stopped { task })) => *task,
        other => panic!("it is what the first one did, not {other:?}"),
    }
}

#[test]
fn a_stop_that_is_asked_again_stops_nobody_else() {
    let mut bed = Bed::new();
    let ids = bed.say(&message("s").max_concurrent(2), ["1", "2", "3"]);
    assert!(matches!(bed.was_done("k"), Answer::NotDone));
    let answer = bed.once("k", stop);
    assert!(matches!(answer, Answer::Session(SessionAnswer::Stopped { task }) if task == Some(ids[0])), "{answer:?}");
    bed.confirm_stop(ids[0]);
    assert_eq!(stopped_before(&bed.once("k", stop)), Some(ids[0]));
    bed.restart();
    assert_eq!(stopped_before(&bed.was_done("k")), Some(ids[0]), "it is stored");
    assert_eq!(stopped_before(&bed.once("k", stop)), Some(ids[0]));
    assert_eq!(bed.state(ids[1]), Phase::Running);
    bed.once("another", stop);
    assert_eq!(bed.take_stops().last().map(|(task, _)| *task), Some(ids[1]));
}

#[test]
fn what_was_refused_was_not_done() {
    let mut bed = Bed::new();
    let answer = bed.once("k", |ticket| Event::Schedule { ticket, id: ScheduleId(7), act: ScheduleAct::Delete });
    assert!(matches!(answer, Answer::Schedule(Err(ScheduleRefusal::NotFound))), "{answer:?}");
    assert!(matches!(bed.was_done("k"), Answer::NotDone));
}
