//! What the demo's agents do: a new wave every second, different enough to show every part of the scheduler.

use std::time::{Duration, Instant};

use runyard_wire::{BatchRequest, Dependency, Priority, RetryRequest, TaskRequest};
use serde_json::{Value, json};

use crate::client::Client;
use crate::error::Result;

/// Narrow on purpose, so that there is something to wait for.
pub const CONFIG: &str = "\
[lanes]
main = 8
browser = 2

[agents.coder]
maxInflight = 2

[gates.provider]
maxInflight = 2

[log]
level = \"off\"
";

const WAVE: Duration = Duration::from_millis(1000);
/// The last part of the show belongs to work that ends.
const QUIET_AT_END: Duration = Duration::from_secs(4);

pub async fn drive(client: &Client, length: Duration) -> Result<()> {
    let begun = Instant::now();
    let mut wave = 0;
    while begun.elapsed() + QUIET_AT_END < length || wave == 0 {
        submit_wave(client, wave).await?;
        wave += 1;
        tokio::time::sleep(WAVE).await;
    }
    // The screen decides when the show is over.
    std::future::pending().await
}

async fn submit_wave(client: &Client, wave: u64) -> Result<()> {
    for task in tasks(wave) {
        client.task_submit(&task).await?;
    }
    if wave.is_multiple_of(4) {
        client.batch_submit(&nightly()).await?;
    }
    Ok(())
}

fn tasks(wave: u64) -> Vec<TaskRequest> {
    let mut tasks = vec![
        TaskRequest { priority: Some(Priority::High), ..noop("chat", "answer a message", 300 + 90 * (wave % 5)) },
        TaskRequest { lane: Some("browser".into()), ..noop("crawler", "open a page", 900) },
        TaskRequest { lane: Some("browser".into()), ..noop("crawler", "read a page", 700 + 200 * (wave % 3)) },
        TaskRequest { gates: vec!["provider".into()], ..noop("writer", "call the model", 800) },
        TaskRequest { gates: vec!["provider".into()], ..noop("writer", "call it again", 600) },
        shell("coder", "edit, build, test", "for step in edit build test; do echo $step; sleep 0.4; done"),
    ];
    if wave % 3 == 1 {
        tasks.push(flaky());
    }
    if wave % 5 == 2 {
        let payload = json!({ "sleepMs": 200, "fail": "permanent" });
        tasks.push(TaskRequest { payload: Some(payload.into()), ..noop("flaky", "cannot work", 0) });
    }
    if wave % 6 == 3 {
        tasks.push(TaskRequest { priority: Some(Priority::Critical), ..noop("oncall", "look at an alarm", 500) });
        tasks.push(TaskRequest { delay_ms: Some(2500), ..noop("oncall", "look again later", 200) });
    }
    tasks
}

/// Fails twice, then works.
fn flaky() -> TaskRequest {
    let line = "test \"$RUNYARD_ATTEMPT\" -ge 3 || { echo 'not yet' >&2; exit 1; }; echo done";
    let retry = RetryRequest { backoff_ms: Some(600), ..RetryRequest::default() };
    TaskRequest { retry: Some(retry), ..shell("flaky", "works the third time", line) }
}

/// Three tests after a build, a report after the tests, two at a time.
fn nightly() -> BatchRequest {
    let low = |task: TaskRequest| TaskRequest { priority: Some(Priority::Low), ..task };
    let after = |task: TaskRequest, parents: &[&str]| TaskRequest {
        depends_on: parents.iter().map(|name| Dependency::Name((*name).to_owned())).collect(),
        ..task
    };
    let mut tasks = vec![low(noop("nightly", "build", 700))];
    for name in ["unit", "lint", "docs"] {
        tasks.push(low(after(noop("nightly", name, 600), &["build"])));
    }
    tasks.push(low(after(noop("nightly", "report", 300), &["unit", "lint", "docs"])));
    BatchRequest { parallelism: Some(2), tasks, name: Some("nightly".into()), ..BatchRequest::default() }
}

fn noop(agent: &str, name: &str, sleep_ms: u64) -> TaskRequest {
    task("noop", agent, name, json!({ "sleepMs": sleep_ms }))
}

fn shell(agent: &str, name: &str, line: &str) -> TaskRequest {
    task("process", agent, name, json!({ "shell": line }))
}

fn task(kind: &str, agent: &str, name: &str, payload: Value) -> TaskRequest {
    TaskRequest {
        kind: Some(kind.into()),
        payload: Some(payload.into()),
        agent: Some(agent.into()),
        name: Some(name.into()),
        ..TaskRequest::default()
    }
}
