//! One connection and the runtime it lives on. Calls block: the runtime runs on the caller's thread for as long as an
//! answer takes, so no other thread has to be woken.
//!
//! What is sent together travels together. Each statement is answered on its own, but none waits for the answer to the one
//! before: a transaction of many statements costs one round trip.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::task::Poll;

use futures_util::TryStreamExt;
use futures_util::future::{MaybeDone, maybe_done};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Statement};

use super::column::Param;
use super::connect::Address;
use super::row::{Fault, Row, Tried};
use crate::store::Error;

/// A statement with its parameters. What it is called by is its text.
pub struct Call {
    pub sql: &'static str,
    pub params: Vec<Param>,
}

impl Call {
    pub fn new(sql: &'static str, params: impl Into<Vec<Param>>) -> Call {
        Call { sql, params: params.into() }
    }
}

/// All of it or nothing.
pub fn transaction(mut calls: Vec<Call>) -> Vec<Call> {
    calls.insert(0, Call::new("BEGIN", []));
    calls.push(Call::new("COMMIT", []));
    calls
}

pub struct Link {
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
    client: Client,
    statements: HashMap<&'static str, Statement>,
    patience: Option<std::time::Duration>,
}

impl Link {
    pub fn open(address: &Address) -> Tried<Link> {
        const DOING: &str = "connecting to the database";
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Error::Driver { doing: DOING, source: error.into() })?;
        let connecting = async {
            // The address may name several servers, and each has its own time to answer.
            let limit = address.connect_timeout * (address.config.get_hosts().len().max(1) as u32 + 1);
            match tokio::time::timeout(limit, address.config.connect(address.tls.clone())).await {
                Ok(connected) => connected.map_err(|error| Fault::of(DOING, error)),
                Err(_) => Err(Fault::lost(DOING, "no answer")),
            }
        };
        let (client, connection) = runtime.block_on(connecting)?;
        // It ends with the connection; what went wrong is told to whoever waits for an answer.
        runtime.spawn(async { drop(connection.await) });
        let (runtime, statements) = (Some(runtime), HashMap::new());
        Ok(Link { runtime, client, statements, patience: address.patience })
    }

    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Statements without parameters, one after the other, in one go.
    pub fn batch(&mut self, doing: &'static str, sql: &str) -> Tried<()> {
        let asked = async { self.client.batch_execute(sql).await.map_err(|error| Fault::of(doing, error)) };
        self.wait(doing, asked)
    }

    /// The rows of one statement.
    pub fn query(&mut self, doing: &'static str, sql: &'static str, params: impl Into<Vec<Param>>) -> Tried<Vec<Row>> {
        let mut answers = self.query_all(doing, &[Call::new(sql, params)])?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// The rows of several statements, asked in one round trip. The first refusal is the one that counts: in a transaction
    /// what follows it is refused because of it, the commit too.
    pub fn query_all(&mut self, doing: &'static str, calls: &[Call]) -> Tried<Vec<Vec<Row>>> {
        self.prepare(doing, calls)?;
        let answers = self.wait(doing, async { Ok(self.pipelined(calls).await) })?;
        answers.into_iter().map(|answer| answer.map_err(|error| Fault::of(doing, error))).collect()
    }

    /// Statements that were not used on this connection before, all in one round trip.
    fn prepare(&mut self, doing: &'static str, calls: &[Call]) -> Tried<()> {
        let mut missing: Vec<&'static str> =
            calls.iter().map(|call| call.sql).filter(|sql| !self.statements.contains_key(sql)).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        let prepared = self.wait(doing, async {
            let preparing = missing.iter().map(|sql| self.client.prepare(sql)).collect();
            Ok(in_order(preparing).await)
        })?;
        for (sql, statement) in missing.into_iter().zip(prepared) {
            self.statements.insert(sql, statement.map_err(|error| Fault::of(doing, error))?);
        }
        Ok(())
    }

    async fn pipelined(&self, calls: &[Call]) -> Vec<Result<Vec<Row>, tokio_postgres::Error>> {
        in_order(calls.iter().map(|call| self.ask(call)).collect()).await
    }

    async fn ask(&self, call: &Call) -> Result<Vec<Row>, tokio_postgres::Error> {
        let statement = &self.statements[call.sql];
        self.client.query_raw(statement, call.params.iter()).await?.try_collect().await
    }

    fn wait<T>(&self, doing: &'static str, asked: impl Future<Output = Tried<T>>) -> Tried<T> {
        let runtime = self.runtime.as_ref().expect("it is there until it is dropped");
        match self.patience {
            None => runtime.block_on(asked),
            Some(patience) => runtime.block_on(async {
                let answer = tokio::time::timeout(patience, asked).await;
                answer.unwrap_or_else(|_| Err(Fault::lost(doing, "the database does not answer")))
            }),
        }
    }
}

/// Its runtime may be dropped from within another one, where nothing may wait.
impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Drives all of them, asking each for the first time in this order: a request is sent when it is first asked for its
/// answer.
async fn in_order<F: Future>(asked: Vec<F>) -> Vec<F::Output> {
    let mut asked: Vec<_> = asked.into_iter().map(|one| Box::pin(maybe_done(one))).collect();
    poll_fn(|cx| {
        let mut is_waiting = false;
        for one in &mut asked {
            if !matches!(**one, MaybeDone::Done(_)) {
                is_waiting |= one.as_mut().poll(cx).is_pending();
            }
        }
        if is_waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    asked.iter_mut().map(|one| one.as_mut().take_output().expect("all of them are done")).collect()
}
