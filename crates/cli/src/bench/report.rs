//! The figures as a table, as JSON, and as BENCHMARKS.md.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::out;

pub struct Report {
    limits: &'static str,
    machine: String,
    store: Store,
    pub raw_cycles: Option<f64>,
    /// The least that making something durable takes on the idle machine: an fdatasync, or a commit of PostgreSQL.
    pub durable_ms: Option<f64>,
    figures: Vec<Figure>,
}

/// What was measured, in words, and what is asked of it.
pub struct Store {
    pub name: String,
    pub targets: Targets,
}

#[derive(Clone, Copy)]
pub struct Targets {
    /// Single submits in a second.
    pub submits: f64,
    /// Full lives in a second.
    pub lives: f64,
    /// Of the raw limit.
    pub raw_percent: Option<f64>,
    /// What an idle submit may take beside one and a half times what making it durable takes.
    pub idle_beside_ms: f64,
}

pub struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    target: Option<Target>,
}

struct Target {
    value: f64,
    at_least: bool,
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Figure {
        Figure { name: name.into(), value, unit, target: None }
    }

    pub fn target(mut self, value: f64, at_least: bool) -> Figure {
        self.target = Some(Target { value, at_least });
        self
    }

    fn is_missed(&self) -> bool {
        self.target.as_ref().is_some_and(|target| !target.is_met(self.value))
    }

    fn value_text(&self) -> String {
        number(self.value)
    }

    fn target_text(&self) -> String {
        let Some(target) = &self.target else { return String::new() };
        let sign = if target.at_least { '≥' } else { '≤' };
        let verdict = if target.is_met(self.value) { "holds" } else { "missed" };
        format!("{sign} {} {verdict}", number(target.value))
    }
}

impl Target {
    fn is_met(&self, value: f64) -> bool {
        if self.at_least { value >= self.value } else { value <= self.value }
    }
}

impl Report {
    pub fn new(limits: &'static str, store: Store) -> Report {
        Report { limits, machine: machine(), store, raw_cycles: None, durable_ms: None, figures: Vec::new() }
    }

    pub fn targets(&self) -> Targets {
        self.store.targets
    }

    fn how(&self) -> String {
        format!("Real path: a server process of this binary, requests over loopback HTTP, {}, {HOW}", self.store.name)
    }

    pub fn add(&mut self, figure: Figure) {
        eprintln!("  {}: {} {}", figure.name.trim(), figure.value_text(), figure.unit);
        self.figures.push(figure);
    }

    /// The names of the figures that miss their target.
    pub fn missed(&self) -> Vec<&str> {
        self.figures.iter().filter(|figure| figure.is_missed()).map(|figure| figure.name.trim()).collect()
    }

    pub fn to_table(&self) -> String {
        let mut table = out::table(&["WHAT", "MEASURED", "UNIT", "TARGET"]);
        for figure in &self.figures {
            let name = comfy_table::Cell::new(&figure.name);
            let row = [name, out::number(figure.value_text()), figure.unit.into(), figure.target_text().into()];
            table.add_row(row);
        }
        format!("{}\n\n{}\n{}\nlimits in force: {}", table.trim_fmt(), self.machine, self.how(), self.limits)
    }

    pub fn to_json(&self) -> Value {
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|figure| {
                let target = figure.target.as_ref().map(|target| {
                    let bound = if target.at_least { "atLeast" } else { "atMost" };
                    json!({ bound: target.value, "holds": target.is_met(figure.value) })
                });
                json!({ "name": figure.name.trim(), "value": figure.value, "unit": figure.unit, "target": target })
            })
            .collect();
        json!({ "machine": self.machine, "store": self.store.name, "how": self.how(), "limits": self.limits, "figures": figures })
    }

    pub fn to_markdown(&self) -> String {
        let mut text = String::from("# Benchmarks\n\n");
        let _ = writeln!(
            text,
            "Written by `runyard bench --write`. {}\n\n{}\n\nLimits in force: {}\n",
            self.machine,
            self.how(),
            self.limits
        );
        text.push_str("| what | measured | unit | target |\n|---|---:|---|---|\n");
        for figure in &self.figures {
            let name = figure.name.replacen("  ", "· ", 1);
            let _ = writeln!(text, "| {name} | {} | {} | {} |", figure.value_text(), figure.unit, figure.target_text());
        }
        text
    }
}

const HOW: &str = "the no-op kind; the load generator runs on the same machine. An answer comes after the commit that makes \
it durable.";

fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    format!("{cpus} cores, {}.", model.trim_start_matches(['\t', ' ', ':']))
}

fn number(value: f64) -> String {
    if value >= 1000.0 {
        let whole = value.round() as u64;
        let mut text = String::new();
        for (at, digit) in whole.to_string().chars().rev().enumerate() {
            if at > 0 && at % 3 == 0 {
                text.insert(0, ' ');
            }
            text.insert(0, digit);
        }
        return text;
    }
    if value >= 10.0 { format!("{value:.1}") } else { format!("{value:.2}") }
}
