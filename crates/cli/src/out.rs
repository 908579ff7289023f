//! The terminal: data on stdout, messages on stderr, colours only where they are wanted.

use std::io::{IsTerminal, Write};

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use runyard_wire::TaskState;
use serde::Serialize;

use crate::error::{Error, Result};

/// Writes one line of data. A reader that has gone away (`| head`) ends the program quietly, as `cat` would.
pub fn line(text: impl AsRef<str>) -> Result<()> {
    raw(format_args!("{}\n", text.as_ref()))
}

/// Writes JSON of our own making on one line.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string(value).expect("wire types can always be written"))
}

fn raw(text: std::fmt::Arguments<'_>) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_fmt(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result.map_err(Error::Output),
    }
}

/// Writes a message for the person at the terminal. That nobody reads it is no reason to fail.
pub fn note(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr().lock(), "{}", text.as_ref());
}

pub fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

pub fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// <https://no-color.org>: any value that is not empty turns colours off.
pub fn has_colour() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stdout_is_terminal() && !no_color && !dumb
}

/// A plain table with a header line, as wide as the terminal at most; in a pipe as wide as it needs.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let arrangement = if stdout_is_terminal() { ContentArrangement::Dynamic } else { ContentArrangement::Disabled };
    table.set_content_arrangement(arrangement);
    table.set_header(header);
    // Flush with the left edge, and two blanks between columns.
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

pub fn print(table: &Table) -> Result<()> {
    line(table.trim_fmt())
}

pub fn number(n: impl ToString) -> Cell {
    Cell::new(n).set_alignment(CellAlignment::Right)
}

pub fn state_cell(state: TaskState) -> Cell {
    let cell = Cell::new(state);
    if has_colour() { cell.fg(state_colour(state)) } else { cell }
}

fn state_colour(state: TaskState) -> Color {
    match state {
        TaskState::Completed => Color::Green,
        TaskState::Failed | TaskState::Rejected => Color::Red,
        TaskState::Cancelled => Color::DarkYellow,
        TaskState::Running | TaskState::Assigned => Color::Cyan,
        TaskState::Waiting | TaskState::Scheduled | TaskState::Queued => Color::Grey,
    }
}

pub fn state_text(state: TaskState) -> String {
    let code = match state {
        TaskState::Completed => 32,
        TaskState::Failed | TaskState::Rejected => 31,
        TaskState::Cancelled => 33,
        TaskState::Running | TaskState::Assigned => 36,
        TaskState::Waiting | TaskState::Scheduled | TaskState::Queued => 0,
    };
    paint(state.as_str(), code)
}

/// Paints a word of running text. `code` is an SGR number: 31 red, 32 green, 33 yellow, 36 cyan, 0 as it is.
pub fn paint(text: &str, code: u8) -> String {
    if code != 0 && has_colour() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}
