//! The demo's picture: a live table on a terminal, a line for each event elsewhere.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use comfy_table::Cell;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use runyard_wire::{EventView, QueueView};

use crate::client::{Client, EventStream};
use crate::command::watch;
use crate::error::Result;
use crate::out;

const REDRAW: Duration = Duration::from_millis(250);
const EVENTS_SHOWN: usize = 10;

/// Goes on until it is dropped.
pub async fn show(client: &Client, length: Duration) -> Result<()> {
    let events = client.event_stream(&[], None).await?;
    match out::stdout_is_terminal() {
        true => draw(client, events, length).await,
        false => print_lines(events).await,
    }
}

async fn print_lines(mut events: EventStream) -> Result<()> {
    while let Some(event) = events.next().await? {
        if let Ok(view) = serde_json::from_str::<EventView>(&event.data) {
            out::line(watch::describe(&view))?;
        }
    }
    Ok(())
}

async fn draw(client: &Client, mut events: EventStream, length: Duration) -> Result<()> {
    let end = Instant::now() + length;
    let screen = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
    screen.set_style(ProgressStyle::with_template("{msg}").expect("the template is well formed"));
    let mut recent = VecDeque::new();
    let mut redraw = tokio::time::interval(REDRAW);
    loop {
        tokio::select! {
            event = events.next() => match event? {
                Some(event) => remember(&mut recent, &event.data),
                None => return Ok(()),
            },
            _ = redraw.tick() => {
                let queue = client.stats().await?.read()?.queue;
                let left = end.saturating_duration_since(Instant::now()).as_secs();
                screen.set_message(picture(client, &queue, &recent, left));
            }
        }
    }
}

fn remember(recent: &mut VecDeque<String>, data: &str) {
    let Ok(view) = serde_json::from_str::<EventView>(data) else { return };
    recent.push_back(watch::describe(&view));
    while recent.len() > EVENTS_SHOWN {
        recent.pop_front();
    }
}

fn picture(client: &Client, queue: &QueueView, recent: &VecDeque<String>, seconds_left: u64) -> String {
    let mut table = out::table(&["AGENT", "WAITING", "QUEUED", "RUNNING", "DONE", "FAILED", ""]);
    for (agent, n) in &queue.agents {
        let mut row = vec![Cell::new(agent)];
        row.extend([n.waiting + n.scheduled, n.queued, n.running, n.completed, n.failed].map(out::number));
        row.push(Cell::new(out::paint(&"█".repeat(n.running as usize), 36)));
        table.add_row(row);
    }
    let events: Vec<_> = recent.iter().map(String::as_str).collect();
    format!(
        "Runyard at {}: {} waiting, {} running; {seconds_left} s left, Ctrl-C ends it\n\n{}\n\n{}",
        client.base(),
        queue.total_queued,
        queue.total_running,
        table.trim_fmt(),
        events.join("\n")
    )
}
