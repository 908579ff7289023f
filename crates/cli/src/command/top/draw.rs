//! The picture: a line of totals and four tables.

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table, TableState};
use runyard_wire::{AgentView, LaneView, TaskView, WorkerStatus, WorkerView};

use super::look::Look;
use crate::command::workers::{cpu_text, labels_text, ram_text, resources_text, running_text};
use crate::span;

const TABLES: usize = 4;
const PAGE: u16 = 10;

/// Which table has the keys, and where each stands.
#[derive(Default)]
pub struct Screen {
    chosen: usize,
    at: [TableState; TABLES],
}

impl Screen {
    pub fn press(&mut self, key: KeyCode) {
        let at = &mut self.at[self.chosen];
        match key {
            KeyCode::Tab | KeyCode::Right => self.chosen = (self.chosen + 1) % TABLES,
            KeyCode::BackTab | KeyCode::Left => self.chosen = (self.chosen + TABLES - 1) % TABLES,
            KeyCode::Down => at.scroll_down_by(1),
            KeyCode::Up => at.scroll_up_by(1),
            KeyCode::PageDown => at.scroll_down_by(PAGE),
            KeyCode::PageUp => at.scroll_up_by(PAGE),
            KeyCode::Home => at.select_first(),
            KeyCode::End => at.select_last(),
            _ => {}
        }
    }

    pub fn draw(&mut self, frame: &mut Frame<'_>, look: &Look) {
        let [head, above, workers, tasks] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Percentage(30),
            Constraint::Percentage(30),
            Constraint::Fill(1),
        ])
        .areas(frame.area());
        let [agents, lanes] = Layout::horizontal([Constraint::Percentage(60), Constraint::Fill(1)]).areas(above);
        frame.render_widget(Paragraph::new(totals(look)), head);
        let sheets =
            [agent_sheet(&look.agents), lane_sheet(&look.lanes), worker_sheet(&look.workers), task_sheet(look)];
        for (n, (sheet, area)) in sheets.into_iter().zip([agents, lanes, workers, tasks]).enumerate() {
            sheet.draw(frame, area, &mut self.at[n], n == self.chosen);
        }
    }
}

/// One table.
struct Sheet<'a> {
    title: String,
    header: Vec<&'static str>,
    widths: Vec<Constraint>,
    rows: Vec<Row<'a>>,
}

impl Sheet<'_> {
    fn draw(self, frame: &mut Frame<'_>, area: Rect, at: &mut TableState, is_chosen: bool) {
        let edge = if is_chosen { Style::new().fg(Color::Cyan) } else { Style::new().fg(Color::DarkGray) };
        let header = Row::new(self.header).style(Style::new().add_modifier(Modifier::BOLD));
        let table = Table::new(self.rows, self.widths)
            .header(header)
            .column_spacing(1)
            .row_highlight_style(if is_chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() })
            .block(Block::bordered().border_style(edge).title(self.title));
        frame.render_stateful_widget(table, area, at);
    }
}

fn totals(look: &Look) -> Vec<Line<'_>> {
    let (queue, done) = (&look.stats.queue, &look.stats.metrics);
    vec![
        Line::from(format!(
            "Runyard at {}   {} queued   {} running of {}",
            look.url, queue.total_queued, queue.total_running, look.stats.limits.max_inflight
        )),
        Line::from(format!(
            "since start: {} completed   {} failed   {} cancelled   {} retried",
            done.completed, done.failed, done.cancelled, done.retried
        )),
    ]
}

fn agent_sheet(agents: &[AgentView]) -> Sheet<'_> {
    let row = |agent: &AgentView| {
        let limit = agent.max_inflight.map_or("–".to_owned(), |max| max.to_string());
        let n = &agent.counts;
        let paused = if agent.paused { "paused" } else { "" };
        let numbers = [n.running.to_string(), limit, n.queued.to_string(), (n.waiting + n.scheduled).to_string()];
        let more = [n.completed.to_string(), n.failed.to_string(), paused.to_owned()];
        Row::new([agent.name.clone()].into_iter().chain(numbers).chain(more))
    };
    Sheet {
        title: format!(" agents {} ", agents.len()),
        header: vec!["AGENT", "RUNNING", "LIMIT", "QUEUED", "WAITING", "DONE", "FAILED", ""],
        widths: [Constraint::Fill(1)].into_iter().chain([Constraint::Length(8); 7]).collect(),
        rows: agents.iter().map(row).collect(),
    }
}

fn lane_sheet(lanes: &[LaneView]) -> Sheet<'_> {
    let row = |lane: &LaneView| {
        let paused = if lane.paused { "paused" } else { "" };
        let running = format!("{}/{}", lane.running, lane.limit);
        Row::new([lane.name.clone(), running, lane.queued.to_string(), lane.waiting.to_string(), paused.to_owned()])
    };
    Sheet {
        title: format!(" lanes {} ", lanes.len()),
        header: vec!["LANE", "RUNNING", "QUEUED", "WAITING", ""],
        widths: [Constraint::Fill(1)].into_iter().chain([Constraint::Length(8); 4]).collect(),
        rows: lanes.iter().map(row).collect(),
    }
}

fn worker_sheet(workers: &[WorkerView]) -> Sheet<'_> {
    let row = |worker: &WorkerView| {
        let status = Cell::new(worker.status.as_str()).style(Style::new().fg(status_colour(worker.status)));
        let rest = [
            cpu_text(worker),
            ram_text(worker),
            running_text(worker),
            resources_text(&worker.reserved),
            labels_text(&worker.labels),
            worker.reason.clone().unwrap_or_default(),
        ];
        Row::new([Cell::new(worker.name.clone()), status].into_iter().chain(rest.map(Cell::new)))
    };
    Sheet {
        title: format!(" workers {} ", workers.len()),
        header: vec!["WORKER", "STATUS", "CPU", "RAM FREE", "RUNNING", "RESERVED", "LABELS", "REASON"],
        widths: vec![
            Constraint::Fill(2),
            Constraint::Length(9),
            Constraint::Length(5),
            Constraint::Length(13),
            Constraint::Length(8),
            Constraint::Fill(2),
            Constraint::Fill(2),
            Constraint::Fill(3),
        ],
        rows: workers.iter().map(row).collect(),
    }
}

fn task_sheet(look: &Look) -> Sheet<'_> {
    let now = span::now().as_ms();
    let name =
        |id: &str| look.workers.iter().find(|worker| worker.id.to_string() == id).map(|worker| worker.name.clone());
    let row = |task: &TaskView| {
        let status = &task.status;
        let age = status.started_at.map_or(String::new(), |at| span::short(now.saturating_sub(at.as_ms())));
        let worker = status.worker.as_deref().map_or(String::new(), |id| name(id).unwrap_or_else(|| id.to_owned()));
        let said = status.progress.as_ref();
        let part = said.and_then(|said| said.fraction).map_or(String::new(), span::percent);
        let doing = said.and_then(|said| said.message.clone()).unwrap_or_else(|| status.reason.clone());
        let (id, kind, agent) = (status.id.to_string(), task.spec.kind.clone(), task.spec.agent.clone());
        Row::new([id, agent, kind, worker, status.attempts.to_string(), age, part, doing])
    };
    Sheet {
        title: format!(" running tasks {} ", look.stats.queue.total_running),
        header: vec!["TASK", "AGENT", "KIND", "WORKER", "RUN", "AGE", "PART", "DOING"],
        widths: vec![
            Constraint::Length(36),
            Constraint::Fill(1),
            Constraint::Length(9),
            Constraint::Fill(1),
            Constraint::Length(3),
            Constraint::Length(7),
            Constraint::Length(5),
            Constraint::Fill(2),
        ],
        rows: look.running.iter().map(row).collect(),
    }
}

fn status_colour(status: WorkerStatus) -> Color {
    match status {
        WorkerStatus::Idle => Color::Green,
        WorkerStatus::Busy => Color::Cyan,
        WorkerStatus::Unhealthy => Color::Red,
        WorkerStatus::Draining => Color::Yellow,
        WorkerStatus::Offline => Color::DarkGray,
    }
}
