//! `runyard watch`: the event stream, a line for each event.

use runyard_wire::{EventView, Id, Json, Progress, SessionCounts};
use serde::Deserialize;

use crate::cli::Shared;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;
use crate::patience::Patience;
use crate::span::{percent, short};
use crate::sse::SseEvent;

#[derive(clap::Args)]
pub struct Args {
    /// Only these events, such as task.failed; may be repeated
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,
    /// Only tasks of this agent
    #[arg(long, short)]
    agent: Option<String>,
    /// Only this task
    #[arg(long, value_name = "ID")]
    task: Option<Id>,
    /// Only tasks of this batch
    #[arg(long, value_name = "ID")]
    batch: Option<Id>,
    /// Only tasks of this lane
    #[arg(long, short)]
    lane: Option<String>,
    /// Only this session and its tasks
    #[arg(long, value_name = "KEY")]
    session: Option<String>,
    /// Begin behind this event instead of now
    #[arg(long, value_name = "EVENT-ID")]
    after: Option<String>,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    let query = query(&args);
    let mut last_id = args.after;
    let mut patience = Patience::default();
    loop {
        match print_events(&client, &query, &mut last_id, shared.json, &mut patience).await {
            // The server ended the stream because it stops; the next one goes on behind the last event.
            Ok(()) => {
                let detail = "the stream has ended".to_owned();
                patience.endure(Error::Unreachable { url: client.base().to_string(), detail }).await?;
            }
            Err(error) => patience.endure(error).await?,
        }
    }
}

async fn print_events(
    client: &Client,
    query: &[(&str, String)],
    last_id: &mut Option<String>,
    as_json: bool,
    patience: &mut Patience,
) -> Result<()> {
    let mut stream = client.event_stream(query, last_id.as_deref()).await?;
    patience.relax();
    while let Some(event) = stream.next().await? {
        if event.id.is_some() {
            last_id.clone_from(&event.id);
        }
        print(&event, as_json)?;
    }
    Ok(())
}

fn query(args: &Args) -> Vec<(&'static str, String)> {
    let types = (!args.types.is_empty()).then(|| args.types.join(","));
    [
        ("types", types),
        ("agent", args.agent.clone()),
        ("task", args.task.map(|id| id.to_string())),
        ("batch", args.batch.map(|id| id.to_string())),
        ("lane", args.lane.clone()),
        ("session", args.session.clone()),
    ]
    .into_iter()
    .filter_map(|(name, value)| value.map(|value| (name, value)))
    .collect()
}

fn print(event: &SseEvent, as_json: bool) -> Result<()> {
    match serde_json::from_str::<EventView>(&event.data) {
        _ if as_json => out::line(&event.data),
        Ok(view) => out::line(describe(&view)),
        Err(_) => {
            out::note(format!("{}: {}", event.name, event.data));
            Ok(())
        }
    }
}

/// Time, name, task, and what else there is to say.
pub fn describe(event: &EventView) -> String {
    let at = event.at.to_string();
    let time = at.get(11..23).unwrap_or(&at);
    let name = out::paint(&format!("{:<15}", event.kind), colour(&event.kind));
    let mut line = format!("{time} {name}");
    let mut add = |part: String| {
        line.push(' ');
        line.push_str(&part);
    };
    if let Some(id) = event.task.or(event.batch) {
        add(id.to_string());
    }
    let whose = [&event.agent, &event.lane, &event.task_kind].into_iter().flatten().cloned().collect::<Vec<_>>();
    if !whose.is_empty() {
        add(whose.join("/"));
    }
    if let Some(session) = &event.session {
        add(format!("session {session}"));
    }
    if let Some(attempt) = event.attempt.filter(|&attempt| attempt > 1) {
        add(format!("attempt {attempt}"));
    }
    if let Some(class) = event.class {
        add(format!("[{class}]"));
    }
    if let Some(reason) = event.reason.as_ref().filter(|reason| !reason.is_empty()) {
        add(reason.clone());
    }
    if let Some(data) = &event.data {
        let said = progress(event, data).or_else(|| elapsed(event, data)).or_else(|| counts(event, data));
        let said = said.or_else(|| schedule(event, data));
        add(said.unwrap_or_else(|| data.as_str().to_owned()));
    }
    // Names are padded to stand in a column, also where nothing follows.
    line.truncate(line.trim_end().len());
    line
}

/// How far a task is and what it does, in its own words.
fn progress(event: &EventView, data: &Json) -> Option<String> {
    if event.kind != "task.progress" {
        return None;
    }
    let Progress { fraction, message } = data.read().ok()?;
    let parts = [fraction.map(percent), message];
    Some(parts.into_iter().flatten().collect::<Vec<_>>().join(" "))
}

/// How long a task waited before this start, or ran before this end; `None` when the data is about something else.
fn elapsed(event: &EventView, data: &Json) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Elapsed {
        elapsed_ms: u64,
    }
    let Elapsed { elapsed_ms } = data.read().ok()?;
    let did = if event.kind == "task.started" { "waited" } else { "ran" };
    Some(format!("({did} {})", short(elapsed_ms)))
}

/// What a session was doing when it was changed, stopped or reset.
fn counts(event: &EventView, data: &Json) -> Option<String> {
    #[derive(Deserialize)]
    struct Session {
        counts: SessionCounts,
    }
    if !event.kind.starts_with("session.") {
        return None;
    }
    let Session { counts: SessionCounts { running, waiting, debouncing } } = data.read().ok()?;
    Some(format!("({running} running, {waiting} waiting, {debouncing} debouncing)"))
}

/// Which schedule, and which run of it.
fn schedule(event: &EventView, data: &Json) -> Option<String> {
    #[derive(Deserialize)]
    struct Schedule {
        name: String,
        run: Option<u64>,
    }
    if !event.kind.starts_with("schedule.") {
        return None;
    }
    let Schedule { name, run } = data.read().ok()?;
    Some(run.map_or_else(|| format!("({name})"), |run| format!("({name}, run {run})")))
}

fn colour(kind: &str) -> u8 {
    match kind {
        "task.completed" | "schedule.recovered" => 32,
        "task.failed" | "task.rejected" | "task.stalled" | "worker.lost" | "schedule.failing" => 31,
        "task.retrying" | "task.preempted" | "task.cancelled" | "task.dropped" => 33,
        "task.started" => 36,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let event = r#"{"id":"1-0","type":"task.retrying","at":"2026-01-01T10:20:30.400Z",
            "task":"00000000-0000-0000-0000-000000000001","agent":"a","lane":"main","kind":"http","attempt":2,
            "class":"quota","reason":"429","data":{"elapsedMs":1500}}"#;
        let line = describe(&serde_json::from_str(event).unwrap());
        assert_eq!(
            line,
            "10:20:30.400 task.retrying   00000000-0000-0000-0000-000000000001 a/main/http attempt 2 [quota] 429 (ran 1.5s)"
        );
    }

    #[test]
    fn progress_is_said_in_words() {
        let said = |data: &str| {
            let event = format!(
                r#"{{"type":"task.progress","at":"2026-01-01T10:20:30.400Z",
                "task":"00000000-0000-0000-0000-000000000001","attempt":1,"data":{data}}}"#
            );
            describe(&serde_json::from_str(&event).unwrap())
        };
        let line = "10:20:30.400 task.progress   00000000-0000-0000-0000-000000000001";
        assert_eq!(said(r#"{"fraction":0.5,"message":"page 5 of 10"}"#), format!("{line} 50 % page 5 of 10"));
        assert_eq!(said(r#"{"message":"warming up"}"#), format!("{line} warming up"));
        assert_eq!(said("{}"), line);
    }

    #[test]
    fn a_session_is_named_with_what_it_does() {
        let stopped = r#"{"id":"1-0","type":"session.stopped","at":"2026-01-01T10:20:30.400Z","session":"chat:7",
            "data":{"generation":0,"counts":{"running":1,"waiting":2,"debouncing":0}}}"#;
        assert_eq!(
            describe(&serde_json::from_str(stopped).unwrap()),
            "10:20:30.400 session.stopped session chat:7 (1 running, 2 waiting, 0 debouncing)"
        );
        let merged = r#"{"id":"1-0","type":"task.merged","at":"2026-01-01T10:20:30.400Z","session":"chat:7",
            "task":"00000000-0000-0000-0000-000000000001","agent":"a","lane":"main","kind":"http"}"#;
        assert_eq!(
            describe(&serde_json::from_str(merged).unwrap()),
            "10:20:30.400 task.merged     00000000-0000-0000-0000-000000000001 a/main/http session chat:7"
        );
    }

    #[test]
    fn a_schedule_is_named_with_its_run() {
        let skipped = r#"{"id":"1-0","type":"schedule.skipped","at":"2026-01-01T10:20:30.400Z","reason":"busy",
            "schedule":"00000000-0000-0000-0000-000000000001","data":{"name":"poll","run":3,"consecutiveFailures":0}}"#;
        assert_eq!(
            describe(&serde_json::from_str(skipped).unwrap()),
            "10:20:30.400 schedule.skipped busy (poll, run 3)"
        );
    }

    #[test]
    fn nothing_follows_a_name_that_says_it_all() {
        let event = r#"{"id":"1-0","type":"config.changed","at":"2026-01-01T10:20:30.400Z"}"#;
        assert_eq!(describe(&serde_json::from_str(event).unwrap()), "10:20:30.400 config.changed");
    }
}
