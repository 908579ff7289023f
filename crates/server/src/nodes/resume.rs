//! The output of a task, through every change of holder.
//!
//! ```text
//! ask the holder for parts ─► pass them on ─► End: it is told
//!        ▲                         └─ broken off: another holder, or none for now
//!        └──── from behind the last part ◄──────┘
//! ```
//!
//! The node that a client speaks to follows the output for it, so a change of holder is a pause there too. What it cannot
//! go on with in time it leaves without an `End`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;

use super::Cluster;
use super::forwarded::{Form, Forwarded};
use super::relay::{Relay, TRY_EVERY, Whole, is_not, settled};
use crate::output::{self, Part};
use crate::problem::Error;

/// A question for output. `here` answers it as this node.
pub struct OutputRelay<H> {
    pub cluster: Arc<Cluster>,
    /// How long a change of holder may take.
    pub patience: Duration,
    /// It is not waited for any longer: a stream must not hold up the end of this node.
    pub until: CancellationToken,
    pub whole: Whole,
    pub forwarded: Forwarded,
    pub here: H,
}

/// Gives the output as parts, or the answer that is none.
pub async fn relay_output<H, F>(mut relay: OutputRelay<H>) -> Result<impl Stream<Item = Part>, Response>
where
    H: Fn(Request) -> F,
    F: Future<Output = Response>,
{
    relay.forwarded.form = Form::InParts;
    let parts = relay.ask().await?;
    let following = Following { relay, parts, is_told: false };
    Ok(stream::unfold(following, async |mut following| following.next().await.map(|part| (part, following))))
}

type Parts = BoxStream<'static, Part>;

impl<H: Fn(Request) -> F, F: Future<Output = Response>> OutputRelay<H> {
    async fn ask(&self) -> Result<Parts, Response> {
        let Cluster { member, peers, .. } = &*self.cluster;
        let relay = Relay { member, peers, patience: self.patience };
        let asked = settled(&relay, self.whole.clone(), self.forwarded, &self.here).await;
        let (role, answer) = asked.ok_or_else(|| Error::NoHolder.into_response())?;
        if answer.headers().get(header::CONTENT_TYPE) != Some(&output::CONTENT_TYPE) {
            return Err(answer);
        }
        // An answer of this node's own goes on when it is not the holder any more, with what little it hears then.
        Ok(output::parts(answer.into_body()).take_until(Box::pin(is_not(role, member.roles()))).boxed())
    }

    /// From where it broke off. None when nobody goes on with it.
    async fn ask_again(&self) -> Option<Parts> {
        let began = Instant::now();
        loop {
            tokio::time::sleep(TRY_EVERY).await;
            match self.ask().await {
                Ok(parts) => return Some(parts),
                // All streams come to the new holder in one moment.
                Err(answer) if answer.status() == StatusCode::TOO_MANY_REQUESTS && began.elapsed() < self.patience => {}
                Err(_) => return None,
            }
        }
    }
}

struct Following<H> {
    relay: OutputRelay<H>,
    parts: Parts,
    /// Its last part was passed on.
    is_told: bool,
}

impl<H: Fn(Request) -> F, F: Future<Output = Response>> Following<H> {
    /// None behind the last part, and where it breaks off for good.
    async fn next(&mut self) -> Option<Part> {
        if self.is_told {
            return None;
        }
        let until = self.relay.until.clone();
        tokio::select! {
            part = self.next_part() => part,
            () = until.cancelled() => None,
        }
    }

    async fn next_part(&mut self) -> Option<Part> {
        loop {
            if let Some(part) = self.parts.next().await {
                self.note(&part);
                return Some(part);
            }
            self.parts = self.relay.ask_again().await?;
        }
    }

    fn note(&mut self, part: &Part) {
        match part {
            Part::End | Part::Missing => self.is_told = true,
            Part::Lines(chunk) => {
                let place = chunk.next.to_string();
                let place = HeaderValue::from_str(&place).expect("numbers and a dash are a header's");
                self.relay.whole.parts.headers.insert("last-event-id", place);
            }
        }
    }
}
