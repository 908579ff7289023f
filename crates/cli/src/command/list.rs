//! `runyard list`: tasks, newest first, a page or all.

use comfy_table::Cell;
use runyard_wire::{Id, Priority, TaskState, TaskView};

use crate::cli::Shared;
use crate::error::Result;
use crate::exit::Exit;
use crate::out;
use crate::pages::{Pages, Query};
use crate::span::{now, short};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    pages: Pages,
}

#[derive(clap::Args)]
struct Filter {
    /// Only tasks of this agent
    #[arg(long, short)]
    agent: Option<String>,
    /// Only tasks in these states; may be repeated
    #[arg(long, short, value_delimiter = ',')]
    state: Vec<TaskState>,
    /// Only tasks of this lane
    #[arg(long, short)]
    lane: Option<String>,
    /// Only tasks of this kind
    #[arg(long, short)]
    kind: Option<String>,
    /// Only tasks of this tier
    #[arg(long, short)]
    priority: Option<Priority>,
    /// Only tasks of this batch
    #[arg(long, value_name = "ID")]
    batch: Option<Id>,
    /// Only tasks of this session
    #[arg(long, value_name = "KEY")]
    session: Option<String>,
}

impl Filter {
    fn query(&self) -> Query {
        let states = self.state.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(",");
        [
            ("agent", self.agent.clone()),
            ("state", Some(states).filter(|states| !states.is_empty())),
            ("lane", self.lane.clone()),
            ("kind", self.kind.clone()),
            ("priority", self.priority.map(|priority| priority.to_string())),
            ("batch", self.batch.map(|id| id.to_string())),
            ("session", self.session.clone()),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
        .collect()
    }
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    let read = async |query: Query| client.task_list(&query).await;
    args.pages.list((shared, &client), args.filter.query(), read, print).await?;
    Ok(Exit::Done)
}

fn print(tasks: &[TaskView]) -> Result<()> {
    if tasks.is_empty() {
        out::note("no tasks");
        return Ok(());
    }
    // Where no task is in a session there is no need for the column.
    let has_sessions = tasks.iter().any(|task| task.spec.session.is_some());
    let session = has_sessions.then_some("SESSION");
    let head = ["ID", "STATE", "AGENT", "LANE", "KIND", "PRIORITY", "RUNS", "AGE"];
    let head: Vec<&str> = head.into_iter().chain(session).chain(["NAME", "REASON"]).collect();
    let mut table = out::table(&head);
    let now = now().0;
    for TaskView { status, spec } in tasks {
        let mut row: Vec<Cell> = vec![
            status.id.to_string().into(),
            out::state_cell(status.state),
            spec.agent.as_str().into(),
            status.lane_in_force.as_deref().unwrap_or(&spec.lane).into(),
            spec.kind.as_str().into(),
            spec.priority.as_str().into(),
            out::number(status.attempts),
            out::number(short(now.saturating_sub(status.created_at.0))),
        ];
        row.extend(has_sessions.then(|| spec.session.as_deref().unwrap_or_default().into()));
        row.extend([spec.name.as_deref().unwrap_or_default().into(), reason(status).into()]);
        table.add_row(row);
    }
    out::print(&table)
}

/// One line of it: a table of tasks is for the eye.
fn reason(status: &runyard_wire::TaskStatus) -> String {
    const CHARS_MAX: usize = 60;
    let text = match (&status.error, status.state) {
        (Some(error), TaskState::Failed) => format!("{}: {}", error.class, error.message),
        _ => status.reason.clone(),
    };
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
