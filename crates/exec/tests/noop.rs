//! The `noop` executor.

mod support;

use runyard_exec::{Class, Kind, Outcome};
use serde_json::json;
use support::{Yard, completed, failed_as};

#[tokio::test]
async fn it_does_what_its_payload_says() {
    let yard = Yard::new();
    assert_eq!(yard.run(Kind::Noop, json!({})).await, Outcome::Completed { result: None, usage: None });
    assert_eq!(completed(yard.run(Kind::Noop, json!({"sleepMs": 1, "result": {"a": 1}})).await), json!({"a": 1}));
    assert_eq!(failed_as(yard.run(Kind::Noop, json!({"fail": "quota"})).await).0, Class::Quota);
    assert_eq!(failed_as(yard.run(Kind::Noop, json!({"sleep": 1})).await).0, Class::Permanent);
}

#[tokio::test]
async fn a_stop_wakes_it() {
    let yard = Yard::new();
    let run = yard.start(yard.job(Kind::Noop, json!({"sleepMs": 1_000_000})));
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
}
