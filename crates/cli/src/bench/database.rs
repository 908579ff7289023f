//! The PostgreSQL that is measured. Whoever gives its address has started it, near by and without TLS.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use runyard_store::postgres::Options;
use tokio_postgres::{Client, NoTls};

#[derive(Clone)]
pub struct Database {
    /// As it was given.
    base: String,
    /// With the schema, if there is one.
    url: String,
    schema: Option<String>,
}

impl Database {
    pub fn parse(url: &str) -> anyhow::Result<Database> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            bail!("--store takes an address such as postgres://user@127.0.0.1:5432/bench");
        }
        Ok(Database { base: url.to_owned(), url: url.to_owned(), schema: None })
    }

    /// The same database, where names are looked up in a schema of their own and nowhere else.
    pub fn with_schema(&self, name: &str) -> Database {
        let schema = format!("{}{}", prefix(), name.replace('-', "_"));
        let joint = if self.base.contains('?') { '&' } else { '?' };
        let url = format!("{}{joint}options=-csearch_path%3D{schema}", self.base);
        Database { base: self.base.clone(), url, schema: Some(schema) }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn make_schema(&self) -> anyhow::Result<()> {
        let schema = self.schema.as_ref().context("a server has a schema")?;
        self.run(&format!("CREATE SCHEMA IF NOT EXISTS {schema}")).await
    }

    pub async fn drop_schema(&self) -> anyhow::Result<()> {
        let schema = self.schema.as_ref().context("a server has a schema")?;
        self.run(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await
    }

    /// Those of this run.
    pub async fn drop_all_schemas(&self) -> anyhow::Result<()> {
        let client = self.connect().await?;
        let like = format!("{}%", prefix().replace('_', "\\_"));
        for row in client.query("SELECT nspname::text FROM pg_namespace WHERE nspname LIKE $1", &[&like]).await? {
            let schema: String = row.try_get(0)?;
            client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await?;
        }
        Ok(())
    }

    /// Which server it is, and whether what it says is durable.
    pub async fn described(&self) -> anyhow::Result<String> {
        let client = self.connect().await?;
        let mut shown = Vec::new();
        for name in ["server_version", "fsync", "synchronous_commit"] {
            shown.push(client.query_one(&format!("SHOW {name}"), &[]).await?.try_get::<_, String>(0)?);
        }
        let version = shown[0].split(' ').next().unwrap_or_default();
        Ok(format!("PostgreSQL {version} with fsync {} and synchronous_commit {}", shown[1], shown[2]))
    }

    /// Tasks in a second that the driver can take through their lives, with nothing above it.
    pub async fn raw_limit(&self, n_tasks: usize, per_commit: usize) -> anyhow::Result<f64> {
        let options = Options::new(&self.url);
        let raw = move || runyard_store::postgres::raw_limit(options, n_tasks, per_commit);
        Ok(tokio::task::spawn_blocking(raw).await??.cycles_per_s)
    }

    /// How long each of so many commits of one row took, on a connection that was idle before.
    pub async fn commits(&self, n: usize, pause: Duration) -> anyhow::Result<Vec<Duration>> {
        let client = self.connect().await?;
        client.batch_execute("CREATE TABLE durable (n bigint)").await?;
        let insert = client.prepare("INSERT INTO durable VALUES ($1)").await?;
        let mut times = Vec::with_capacity(n);
        for n in 0..n as i64 {
            tokio::time::sleep(pause).await;
            let began = Instant::now();
            client.execute(&insert, &[&n]).await?;
            times.push(began.elapsed());
        }
        Ok(times)
    }

    async fn run(&self, sql: &str) -> anyhow::Result<()> {
        Ok(self.connect().await?.batch_execute(sql).await?)
    }

    async fn connect(&self) -> anyhow::Result<Client> {
        let connected = tokio_postgres::connect(&self.url, NoTls).await;
        let (client, connection) = connected.context("cannot connect to the database of --store")?;
        // It ends with its client.
        tokio::spawn(connection);
        Ok(client)
    }
}

/// Schemas of two runs do not meet.
fn prefix() -> String {
    format!("bench_{}_", std::process::id())
}
