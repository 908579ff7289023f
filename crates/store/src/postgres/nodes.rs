//! Who is here, and whose the lease is. All of it by the database's clock.

use std::sync::Arc;

use super::audit::AuditTable;
use super::column::Param;
use super::connect::Options;
use super::depot::PgDepot;
use super::link::{Call, transaction};
use super::migrations;
use super::query::all;
use super::reader::Readers;
use super::row::{Row, damaged, field, id_at, number};
use crate::nodes::{AuditRow, Bid, Lease, NodeCard, NodeId, NodeList, NodeRow, Nodes, SealedWith, Standing};
use crate::store::{Error, Result};

pub struct PgNodes {
    links: Arc<Readers>,
}

impl PgNodes {
    /// Connects, and brings the schema up to date.
    pub fn open(options: Options) -> Result<PgNodes> {
        migrations::migrate(&options)?;
        Ok(PgNodes { links: Arc::new(Readers::new(&options)?) })
    }

    pub fn sealed_with(&self) -> Result<SealedWith> {
        const READ: &str = "SELECT sealing FROM node_secret WHERE one = 1";
        let rows = self.links.with(|link| link.query(SAYING, READ, []))?;
        let mark: Option<Vec<u8>> = rows.first().map(|row| field(row, 0)).transpose()?.flatten();
        Ok(match mark {
            None => SealedWith::Unsaid,
            Some(mark) if mark.is_empty() => SealedWith::GivenUp,
            Some(mark) => SealedWith::Key(mark),
        })
    }

    /// Says which key it is, unless somebody has; gives the one that counts.
    pub fn seal_with(&self, mark: &[u8]) -> Result<SealedWith> {
        const SAY: &str = "UPDATE node_secret SET sealing = $1::bytea WHERE one = 1 AND coalesce(sealing, '') = ''";
        self.links.with(|link| link.query(SAYING, SAY, [Param::bytes(mark)]))?;
        self.sealed_with()
    }

    /// The key is lost: what it sealed cannot be opened any more.
    pub fn give_up_seal(&self) -> Result<()> {
        const GIVE_UP: &str = "UPDATE node_secret SET sealing = '' WHERE one = 1";
        self.links.with(|link| link.query(SAYING, GIVE_UP, [])).map(drop)
    }

    /// The files that nodes share, over the same connections.
    pub fn depot(&self) -> PgDepot {
        PgDepot::over(self.links.clone())
    }
}

/// The lease goes to who asks when it is free, over, or the asker's own.
const TAKE: &str = "UPDATE lease SET holder = $1::uuid, url = $2::text, \
                    until = clock_timestamp() + $3::bigint * interval '1 millisecond' \
                    WHERE one = 1 AND (holder IS NULL OR holder = $1::uuid OR until <= clock_timestamp())";

const HERE: &str = "INSERT INTO nodes(id, started_at, seen_at, name, url, version) \
                    VALUES ($1::uuid, clock_timestamp(), clock_timestamp(), $2::text, $3::text, $4::text) \
                    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, name = excluded.name, url = excluded.url, \
                    version = excluded.version";

const STANDING: &str = "SELECT m.epoch, m.log_seq, m.settings_version, l.holder, l.url, \
                        floor(extract(epoch FROM l.until - clock_timestamp()) * 1000)::bigint FROM meta m LEFT JOIN lease l \
                        ON l.one = 1 AND l.holder IS NOT NULL AND l.until > clock_timestamp() WHERE m.one = 1";

impl Nodes for PgNodes {
    fn secret(&self) -> Result<[u8; 32]> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| Error::Driver { doing: SAYING, source: error.into() })?;
        let make = "INSERT INTO node_secret(one, secret) VALUES (1, $1::bytea) ON CONFLICT (one) DO NOTHING";
        let calls =
            [Call::new(make, [Param::bytes(&secret)]), Call::new("SELECT secret FROM node_secret WHERE one = 1", [])];
        let answers = self.links.with(|link| link.query_all(SAYING, &calls))?;
        let kept = answers[1].first().map(|row| field::<&[u8]>(row, 0)).transpose()?;
        kept.and_then(|kept| kept.try_into().ok())
            .ok_or_else(|| damaged("the secret of the nodes", "it has not 32 bytes".to_owned()))
    }

    fn beat(&self, node: &NodeCard, bid: Bid, ttl_ms: u64) -> Result<Standing> {
        let text = |text: &str| Param::bytes(text.as_bytes());
        let mut calls = Vec::new();
        if bid == Bid::Hold {
            let ttl_ms = Param::bigint(i64::try_from(ttl_ms).unwrap_or(i64::MAX));
            calls.push(Call::new(TAKE, [Param::uuid(node.id.0), text(&node.url), ttl_ms]));
        }
        calls.push(Call::new(HERE, [Param::uuid(node.id.0), text(&node.name), text(&node.url), text(&node.version)]));
        calls.push(Call::new(STANDING, []));
        let answers = self.links.with(|link| link.query_all(SAYING, &calls))?;
        let row = answers.last().and_then(|rows| rows.first());
        standing_at(row.ok_or_else(|| damaged("the database", "its row of meta is missing".to_owned()))?)
    }

    fn leave(&self, node: NodeId) -> Result<()> {
        let free = "UPDATE lease SET holder = NULL, until = '-infinity' WHERE one = 1 AND holder = $1::uuid";
        let calls = transaction(vec![
            Call::new(free, [Param::uuid(node.0)]),
            Call::new("DELETE FROM nodes WHERE id = $1::uuid", [Param::uuid(node.0)]),
        ]);
        self.links.with(|link| link.query_all(SAYING, &calls)).map(drop)
    }

    fn all(&self) -> Result<NodeList> {
        let forget = "DELETE FROM nodes WHERE seen_at < clock_timestamp() - interval '1 day'";
        let list = "SELECT n.id, n.name, n.url, n.version, (extract(epoch FROM n.started_at) * 1000)::bigint, \
                    greatest(0, extract(epoch FROM clock_timestamp() - n.seen_at) * 1000)::bigint, \
                    EXISTS (SELECT 1 FROM lease l WHERE l.one = 1 AND l.holder = n.id AND l.until > clock_timestamp()) \
                    FROM nodes n ORDER BY n.name, n.id";
        let epoch = "SELECT epoch FROM meta WHERE one = 1";
        let calls = [forget, list, epoch].map(|sql| Call::new(sql, []));
        let answers = self.links.with(|link| link.query_all(SAYING, &calls))?;
        let epoch = answers[2].first().map_or(Ok(0), |row| field(row, 0).map(number))?;
        Ok(NodeList { epoch, nodes: all(&answers[1], node_at)? })
    }

    fn write_audit(&self, entry: &[u8]) -> Result<()> {
        AuditTable(&self.links).write(entry)
    }

    fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRow>> {
        AuditTable(&self.links).latest(before, limit)
    }
}

fn standing_at(row: &Row) -> Result<Standing> {
    let holder: Option<super::row::Id> = field(row, 3)?;
    let lease = match holder {
        None => None,
        Some(super::row::Id(node)) => Some(Lease {
            node: NodeId(node),
            url: field(row, 4)?,
            epoch: number(field(row, 0)?),
            left_ms: u64::try_from(field::<i64>(row, 5)?).unwrap_or(0),
        }),
    };
    Ok(Standing { holder: lease, log_seq: number(field(row, 1)?), settings_version: number(field(row, 2)?) })
}

fn node_at(row: &Row) -> Result<NodeRow> {
    let card =
        NodeCard { id: NodeId(id_at(row, 0)?), name: field(row, 1)?, url: field(row, 2)?, version: field(row, 3)? };
    Ok(NodeRow {
        card,
        started_at_ms: number(field(row, 4)?),
        silent_ms: number(field(row, 5)?),
        is_holder: field(row, 6)?,
    })
}

const SAYING: &str = "speaking of the nodes";
