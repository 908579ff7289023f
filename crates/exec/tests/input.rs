//! Messages and further lines for real processes.

mod support;

use std::time::Duration;

use runyard_exec::input::LINES_WAITING_MAX;
use runyard_exec::{InputLine, InputSender, Kind, NotTaken, Outcome};
use serde_json::{Value, json};
use support::{Running, Yard, completed, is_alive};

/// Says each line that it reads, and ends after `quit`.
const READER: &str = "while read -r line; do echo \"got: $line\"; [ \"$line\" = quit ] && exit 0; done; echo closed";

fn open(shell: &str) -> Value {
    json!({"shell": shell, "input": true})
}

fn line(id: u128, text: &str) -> InputLine {
    InputLine { id, text: text.to_owned() }
}

fn hand_in(sender: &InputSender, id: u128, text: &str) {
    sender.hand_in(line(id, text)).expect("the run takes input");
}

fn n_taken(run: &Running) -> usize {
    run.signs.taken.borrow().len()
}

#[tokio::test]
async fn a_message_is_read_from_stdin_which_then_ends() {
    let yard = Yard::new();
    let payload = json!({
        "argv": ["cat"], "message": "one\ntwo", "dropped": ["a first one", "a second"], "media": [{"url": "x"}],
    });
    let result = completed(yard.run(Kind::Process, payload).await);
    assert_eq!(result["stdout"], "dropped: a first one\ndropped: a second\none\ntwo\n");
    assert_eq!(completed(yard.run(Kind::Process, json!({"argv": ["cat"], "message": ""})).await)["stdout"], "");
}

#[tokio::test]
async fn lines_are_read_in_order_after_the_message_and_each_is_said_to_be_taken() {
    let yard = Yard::new();
    let payload = json!({"shell": READER, "input": true, "message": "zero", "dropped": ["before"]});
    let (run, sender) = yard.start_open(yard.job(Kind::Process, payload));
    hand_in(&sender, 1, "one\nand a half");
    hand_in(&sender, 2, "two\n");
    assert_eq!(run.line("got: two").await, "");
    // The process is still there, and reads what comes later just as well.
    hand_in(&sender, 3, "quit");
    let signs = run.signs.clone();
    let result = completed(run.end().await);
    let expected = ["dropped: before", "zero", "one", "and a half", "two", "quit"].map(|line| format!("got: {line}\n"));
    assert_eq!(result["stdout"], expected.concat());
    assert_eq!(*signs.taken.borrow(), [1, 2, 3]);
}

#[tokio::test]
async fn what_is_handed_in_after_the_end_is_not_taken() {
    let yard = Yard::new();
    let (run, sender) = yard.start_open(yard.job(Kind::Process, open("read -r line; echo done")));
    hand_in(&sender, 1, "go");
    let signs = run.signs.clone();
    completed(run.end().await);
    assert_eq!(sender.hand_in(line(2, "too late")), Err(NotTaken::Closed));
    assert_eq!(*signs.taken.borrow(), [1]);
}

#[tokio::test]
async fn a_process_that_never_reads_stays_stoppable_and_takes_only_what_fits_its_pipe() {
    let yard = Yard::new();
    let (run, sender) = yard.start_open(yard.job(Kind::Process, open("echo leader=$$; sleep 1000")));
    let leader = run.line("leader=").await;
    // No pipe holds a line as long as this.
    hand_in(&sender, 1, &"x".repeat(4 * 1024 * 1024));
    let refused = (2..).map(|id| sender.hand_in(line(id, "more"))).take(2 * LINES_WAITING_MAX).find(Result::is_err);
    assert_eq!(refused, Some(Err(NotTaken::Full)));
    let signs = run.signs.clone();
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert!(signs.taken.borrow().is_empty() && !is_alive(&leader));
    assert_eq!(sender.hand_in(line(1000, "too late")), Err(NotTaken::Closed));
}

#[tokio::test]
async fn a_first_message_that_is_never_read_does_not_block_the_kill() {
    let yard = Yard::new();
    let message = "x".repeat(1024 * 1024);
    let payload = json!({"shell": "trap '' TERM; echo leader=$$; sleep 1000", "input": true, "message": message});
    let mut job = yard.job(Kind::Process, payload);
    job.grace = Duration::from_millis(50);
    let (run, sender) = yard.start_open(job);
    let leader = run.line("leader=").await;
    hand_in(&sender, 1, "behind it");
    assert_eq!(n_taken(&run), 0);
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert!(!is_alive(&leader));
}

#[tokio::test]
async fn a_process_that_closed_its_stdin_takes_nothing_and_goes_on() {
    let yard = Yard::new();
    // It ends when the file is there: the test makes it once the line has been refused.
    let mark = yard.dir.path().join("mark");
    let wait = format!("while ! [ -e {} ]; do sleep 0.01; done", mark.display());
    let (run, sender) = yard.start_open(yard.job(Kind::Process, open(&format!("exec </dev/null; echo ready; {wait}"))));
    run.line("ready").await;
    hand_in(&sender, 1, "hello?");
    while sender.hand_in(line(2, "anybody?")) != Err(NotTaken::Closed) {
        tokio::task::yield_now().await;
    }
    assert_eq!(n_taken(&run), 0);
    std::fs::write(&mark, "").expect("a file");
    assert_eq!(completed(run.end().await)["exitCode"], 0);
}

#[tokio::test]
async fn a_stop_ends_the_input_and_nothing_is_taken_after_it() {
    let yard = Yard::new();
    let line_reader = format!("trap 'echo asked' TERM; echo ready; {READER}");
    let (run, sender) = yard.start_open(yard.job(Kind::Process, open(&line_reader)));
    run.line("ready").await;
    hand_in(&sender, 1, "before");
    run.taken(1).await;
    run.stop.cancel();
    // It may still be put in, as long as nobody has seen the stop; but it is not written.
    let _ = sender.hand_in(line(2, "after"));
    let signs = run.signs.clone();
    assert_eq!(run.end().await, Outcome::Stopped);
    assert_eq!(*signs.taken.borrow(), [1]);
    let texts = yard.log_texts();
    assert!(texts.contains(&"closed".to_owned()) && !texts.contains(&"got: after".to_owned()), "{texts:?}");
}

#[tokio::test]
async fn a_process_without_input_takes_none() {
    let yard = Yard::new();
    let payload = json!({"shell": "cat; echo ready; sleep 1000", "message": "only this"});
    let (run, sender) = yard.start_open(yard.job(Kind::Process, payload));
    assert_eq!(run.line("ready").await, "");
    assert_eq!(sender.hand_in(line(1, "more")), Err(NotTaken::Closed));
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
}

#[tokio::test]
async fn what_a_merge_put_beside_stdin_is_noted() {
    let yard = Yard::new();
    let payload = json!({"argv": ["cat"], "stdin": "mine", "message": "unheard"});
    assert_eq!(completed(yard.run(Kind::Process, payload).await)["stdout"], "mine");
    let texts = yard.log_texts();
    assert!(texts.iter().any(|text| text.starts_with("payload.message is not handed over")), "{texts:?}");
}

#[tokio::test]
async fn a_process_knows_its_session() {
    let yard = Yard::new();
    let mut job = yard.job(Kind::Process, json!({"shell": "printf %s \"$RUNYARD_SESSION\""}));
    job.session = Some("agent:ada:direct:ü\0".into());
    assert_eq!(completed(yard.start(job).end().await)["stdout"], "agent:ada:direct:ü\u{fffd}");
}
