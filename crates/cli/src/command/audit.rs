//! `runyard audit`: who changed what.

use runyard_wire::AuditView;
use serde_json::{Map, Value};

use crate::cli::Shared;
use crate::error::Result;
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args)]
pub struct Args {
    /// At most so many changes, latest first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let answer = shared.client()?.audit(&[("limit", args.limit.to_string())]).await?;
    if shared.json {
        out::line(&answer.text)?
    } else {
        print(&answer.read()?.items)?
    }
    Ok(Exit::Done)
}

fn print(changes: &[AuditView]) -> Result<()> {
    let mut table = out::table(&["AT", "BY", "FROM", "DID", "TO", "CHANGE"]);
    for change in changes {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (by, from) = (text(&change.by.name), text(&change.by.address));
        let row = [change.at.to_string(), by, from, change.action.clone(), text(&change.subject), difference(change)];
        table.add_row(row);
    }
    out::print(&table)
}

/// `limits.maxInflight: 1000 → 7`
fn difference(change: &AuditView) -> String {
    let empty = Map::new();
    let fields = |side: &'_ Option<Value>| side.as_ref().and_then(Value::as_object).unwrap_or(&empty).clone();
    let (before, after) = (fields(&change.before), fields(&change.after));
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let shown = |value: Option<&Value>| value.map_or("–".to_owned(), Value::to_string);
    let differing = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let lines = differing.map(|name| format!("{name}: {} → {}", shown(before.get(name)), shown(after.get(name))));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use runyard_wire::{AuditActor, Timestamp};
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        let change = AuditView {
            n: 1,
            at: Timestamp(0),
            by: AuditActor::default(),
            action: "session.set".into(),
            subject: None,
            before: Some(json!({"cap": 1, "mode": "queue"})),
            after: Some(json!({"cap": 2, "mode": "queue", "drop": "new"})),
        };
        assert_eq!(difference(&change), "cap: 1 → 2\ndrop: – → \"new\"");
    }
}
