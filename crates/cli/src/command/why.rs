//! `runyard why`: each gate, open or closed, and the task's place in line.

use runyard_wire::{ExplainView, GateView, Id};

use crate::cli::Shared;
use crate::error::Result;
use crate::exit::Exit;
use crate::out;
use crate::span::from_now;

#[derive(clap::Args)]
pub struct Args {
    /// The task
    #[arg(value_name = "ID")]
    id: Id,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let answer = shared.client()?.task_explain(args.id).await?;
    if shared.json {
        out::line(&answer.text)?;
    } else {
        explain(&answer.read()?).into_iter().try_for_each(out::line)?;
    }
    Ok(Exit::Done)
}

fn explain(view: &ExplainView) -> Vec<String> {
    let reason = if view.reason.is_empty() { String::new() } else { format!(": {}", view.reason) };
    let mut lines = vec![format!("{} is {}{reason}", view.task, view.state)];
    if !view.summary.is_empty() {
        lines.push(view.summary.clone());
    }
    let width = view.gates.iter().map(|gate| title(gate).chars().count()).max().unwrap_or_default();
    for gate in &view.gates {
        lines.extend(gate_lines(gate, width));
    }
    lines.extend(place(view));
    lines
}

/// A mark, what it is, how full it is; below it who holds it and when it opens.
fn gate_lines(gate: &GateView, width: usize) -> Vec<String> {
    let mark = if gate.open { out::paint("✓ open  ", 32) } else { out::paint("✗ closed", 31) };
    let full = match (gate.current, gate.limit) {
        // Workers have no one number for how full they are: the detail says which of them lack what.
        _ if gate.kind == "worker" => String::new(),
        (Some(current), Some(limit)) => format!("{current}/{limit}"),
        (Some(current), None) => format!("{current}, no limit"),
        (None, Some(limit)) => format!("limit {limit}"),
        (None, None) => String::new(),
    };
    let mut facts = vec![full, gate.detail.clone()];
    facts.extend(gate.since.map(|at| format!("since {at} ({})", from_now(at))));
    facts.extend(gate.opens_at.map(|at| format!("opens at {at} ({})", from_now(at))));
    facts.retain(|fact| !fact.is_empty());
    let mut lines = vec![format!("  {mark}  {:<width$}  {}", title(gate), facts.join("; ")).trim_end().to_owned()];
    lines.extend(gate.holders.iter().map(|id| format!("              held by {id}")));
    lines
}

fn title(gate: &GateView) -> String {
    if gate.name.is_empty() { gate.kind.clone() } else { format!("{} {}", gate.kind, gate.name) }
}

fn place(view: &ExplainView) -> Option<String> {
    let place = view.place.as_ref()?;
    let ahead = match (place.ahead, place.at_least) {
        (0, _) => "it is the first of its flow".to_owned(),
        (1, false) => "1 task of its flow goes before it".to_owned(),
        (n, false) => format!("{n} tasks of its flow go before it"),
        (n, true) => format!("at least {n} tasks of its flow go before it"),
    };
    let next = place.next_served.map(|id| next_served(view, id)).unwrap_or_default();
    Some(format!("place: {ahead}{next}"))
}

/// Who is next means little while a gate is shut for all, so the gate is named with it.
fn next_served(view: &ExplainView, next: Id) -> String {
    let closed = view.gates.iter().find(|gate| !gate.open);
    match closed {
        Some(gate) if next == view.task => format!("; it is the first to go when {} opens", title(gate)),
        Some(gate) => format!("; the first to go when {} opens is {next}", title(gate)),
        None if next == view.task => "; it is served next".to_owned(),
        None => format!("; served next: {next}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runyard_wire::{PlaceInLine, TaskState};

    #[test]
    fn closed_gates_name_their_holders() {
        let view = ExplainView {
            task: Id(1),
            state: TaskState::Queued,
            reason: String::new(),
            summary: "It waits for the lane.".into(),
            gates: vec![
                GateView {
                    kind: "global".into(),
                    open: true,
                    current: Some(3),
                    limit: Some(1000),
                    ..GateView::default()
                },
                GateView {
                    kind: "lane".into(),
                    name: "main".into(),
                    current: Some(1),
                    limit: Some(1),
                    holders: vec![Id(2)],
                    detail: "full".into(),
                    ..GateView::default()
                },
            ],
            place: Some(PlaceInLine { ahead: 2, at_least: false, next_served: Some(Id(3)) }),
        };
        assert_eq!(
            explain(&view),
            [
                "00000000-0000-0000-0000-000000000001 is queued",
                "It waits for the lane.",
                "  ✓ open    global     3/1000",
                "  ✗ closed  lane main  1/1; full",
                "              held by 00000000-0000-0000-0000-000000000002",
                "place: 2 tasks of its flow go before it; the first to go when lane main opens is \
                 00000000-0000-0000-0000-000000000003",
            ]
        );
    }

    #[test]
    fn a_task_behind_a_shut_gate_is_not_said_to_be_served() {
        let worker = |open: bool, detail: &str| GateView {
            kind: "worker".into(),
            name: "gpu".into(),
            open,
            current: Some(1),
            detail: detail.into(),
            ..GateView::default()
        };
        let mut view = ExplainView {
            task: Id(1),
            state: TaskState::Queued,
            reason: String::new(),
            summary: String::new(),
            gates: vec![worker(false, "no worker offers kind gpu")],
            place: Some(PlaceInLine { ahead: 0, at_least: false, next_served: Some(Id(1)) }),
        };
        assert_eq!(
            explain(&view)[1..],
            [
                "  ✗ closed  worker gpu  no worker offers kind gpu",
                "place: it is the first of its flow; it is the first to go when worker gpu opens",
            ]
        );
        view.gates = vec![worker(true, "")];
        assert_eq!(
            explain(&view)[1..],
            ["  ✓ open    worker gpu", "place: it is the first of its flow; it is served next"]
        );
    }
}
