//! Lists that come in pages: one of them, or all.

use runyard_wire::{Json, ListPage};
use serde::de::DeserializeOwned;

use crate::cli::Shared;
use crate::client::{Answer, Client};
use crate::error::{Error, Result};
use crate::out;

#[derive(clap::Args)]
pub struct Pages {
    /// How many on a page
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// All pages
    #[arg(long)]
    all: bool,
    /// Go on where a page ended
    #[arg(long, value_name = "CURSOR", conflicts_with = "all")]
    cursor: Option<String>,
}

pub type Query = Vec<(&'static str, String)>;

impl Pages {
    /// Prints a list, one page of it or all: as JSON, or as `print` does, and how to go on.
    pub async fn list<T: DeserializeOwned>(
        &self,
        (shared, client): (&Shared, &Client),
        query: Query,
        read: impl AsyncFn(Query) -> Result<Answer<ListPage<T>>>,
        print: impl FnOnce(&[T]) -> Result<()>,
    ) -> Result<()> {
        let page = self.gather(query, read).await?;
        if shared.json {
            return out::json(&page);
        }
        let items = page.items.iter().map(Json::read).collect::<std::result::Result<Vec<T>, _>>();
        let unreadable =
            |error: serde_json::Error| Error::Unreadable { url: client.base().to_string(), detail: error.to_string() };
        print(&items.map_err(unreadable)?)?;
        if let Some(cursor) = &page.next_cursor {
            out::note(format!("there are more: --all, or --cursor {cursor}"));
        }
        Ok(())
    }

    /// Reads on until there is enough. `read` asks for one page.
    async fn gather<T: DeserializeOwned>(
        &self,
        mut query: Query,
        read: impl AsyncFn(Query) -> Result<Answer<ListPage<T>>>,
    ) -> Result<ListPage<Json>> {
        query.push(("limit", self.limit.to_string()));
        let mut items = Vec::new();
        let mut cursor = self.cursor.clone();
        loop {
            let mut query = query.clone();
            query.extend(cursor.map(|cursor| ("cursor", cursor)));
            let page: ListPage<Json> = read(query).await?.read_as()?;
            items.extend(page.items);
            // A filtered page may be short and still have a next one; without --all one full page is enough.
            let is_enough = !self.all && items.len() >= self.limit as usize;
            if page.next_cursor.is_none() || is_enough {
                return Ok(ListPage { items, next_cursor: page.next_cursor });
            }
            cursor = page.next_cursor;
        }
    }
}
