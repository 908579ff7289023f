//! `runyard nodes`: the servers that share one database.

use comfy_table::{Cell, Color};
use runyard_wire::{Id, NodeRole, NodeView};

use crate::cli::Shared;
use crate::error::Result;
use crate::exit::Exit;
use crate::out;
use crate::span;

/// A node that is well says something four times a second.
const SILENT_MS_MAX: u64 = 2_000;

pub async fn run(shared: &Shared) -> Result<Exit> {
    let answer = shared.client()?.node_list().await?;
    if shared.json {
        out::line(&answer.text)?;
        return Ok(Exit::Done);
    }
    let page = answer.read()?;
    match page.items.is_empty() {
        true => out::note("this server has a store of its own: there are no other nodes"),
        false => out::print(&table(&page.items))?,
    }
    Ok(Exit::Done)
}

fn table(nodes: &[NodeView]) -> comfy_table::Table {
    let mut table = out::table(&["NAME", "ROLE", "URL", "LAST HEARD", "VERSION", "ID"]);
    for node in nodes {
        let role = match node.role {
            NodeRole::Holder => Cell::new("holder").fg(Color::Green),
            NodeRole::Follower => Cell::new("follower"),
            NodeRole::Away => Cell::new("away").fg(Color::Red),
        };
        let heard = format!("{} ago", span::short(node.silent_ms));
        let heard = if node.silent_ms > SILENT_MS_MAX { Cell::new(heard).fg(Color::Red) } else { Cell::new(heard) };
        let name = if node.is_self { format!("{} (asked)", node.name) } else { node.name.clone() };
        let (url, version, id) = (Cell::new(&node.url), Cell::new(&node.version), Cell::new(short_id(node.id)));
        table.add_row(vec![Cell::new(name), role, url, heard, version, id]);
    }
    table
}

/// Its last part, which tells apart nodes of one name. The whole is in `--json`.
fn short_id(id: Id) -> String {
    let text = id.to_string();
    text.rsplit('-').next().map(str::to_owned).unwrap_or(text)
}
