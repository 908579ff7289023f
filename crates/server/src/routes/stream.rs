//! The event stream: from the log up to now, then live, without gap or duplicate.
//!
//! It listens before it looks at the log, so whatever is committed meanwhile is news to it; positions make it come exactly
//! once. It is pulled: a client that does not read holds one page of events and is otherwise only a place in the feed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec;

use axum::response::sse::Event as SseEvent;
use futures_util::{Stream, StreamExt, stream};
use runyard_core::event::Happening;
use runyard_worker::ProgressEvent;

use crate::app::App;
use crate::clock;
use crate::edge::StreamPass;
use crate::feed::{Ear, PROGRESS, Position};
use crate::problem::Error;
use crate::view;

/// What one client is sent, until it leaves, its key is revoked or the server stops.
pub struct Pump {
    app: Arc<App>,
    ear: Ear,
    /// Everything up to here the client has, or is not interested in, or finds in `found`.
    at: Position,
    /// There may be more behind `at`.
    is_behind: bool,
    found: vec::IntoIter<(Position, Happening)>,
    progress: VecDeque<ProgressEvent>,
    pass: StreamPass,
}

impl Pump {
    pub fn new(app: Arc<App>, ear: Ear, at: Position, pass: StreamPass) -> Pump {
        let (found, progress) = (Vec::new().into_iter(), VecDeque::new());
        Pump { app, ear, at, is_behind: true, found, progress, pass }
    }

    /// Where a stream begins: behind `last`, or at the end of the log. True when the client missed something for good.
    pub async fn start(app: &App, last: Option<Position>) -> Result<(Position, bool), Error> {
        let range = app.read(|reader| reader.happenings_range()).await?;
        let end = Position::end_of(range.map_or(0, |(_, seq)| seq));
        let Some(last) = last else { return Ok((end, false)) };
        match range {
            Some((first, _)) if last.seq.saturating_add(1) < first => Ok((Position::end_of(first - 1), true)),
            // An id from the future belongs to another store, or to one that was restored from a backup.
            _ if last.seq > end.seq => Ok((end, true)),
            _ => Ok((last, false)),
        }
    }

    pub fn stream(self) -> impl Stream<Item = SseEvent> {
        let revoked = self.pass.revoked();
        stream::unfold(self, async |mut pump| pump.next().await.map(|event| (event, pump))).take_until(revoked)
    }

    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some((position, happening)) = self.found.next() {
                return Some(sse_event(position, &happening));
            }
            if self.app.stop.is_cancelled() {
                return None;
            }
            if self.is_behind {
                if let Some(reset) = self.look().await? {
                    return Some(reset);
                }
                continue;
            }
            if let Some(event) = self.progress.pop_front() {
                return Some(progress_event(event));
            }
            self.wait().await;
        }
    }

    /// Takes the next page. What it lost for good, the client is told first; without a page the stream ends.
    async fn look(&mut self) -> Option<Option<SseEvent>> {
        let page = self.ear.page(&self.app, self.at).await.ok()?;
        (self.at, self.is_behind) = (page.at, !page.is_last);
        self.found = page.found.into_iter();
        Some(page.has_missed.then(reset))
    }

    /// Until there is news, or the server stops.
    async fn wait(&mut self) {
        let news = tokio::select! {
            () = self.app.stop.cancelled() => return,
            news = self.ear.news() => news,
        };
        self.progress = news.progress;
        if let Some(from) = news.from {
            self.at = self.at.max(Position::end_of(from.saturating_sub(1)));
            self.is_behind = true;
        }
    }
}

pub fn reset() -> SseEvent {
    SseEvent::default().event("reset").data(r#"{"type":"reset"}"#)
}

fn progress_event(event: ProgressEvent) -> SseEvent {
    let view = view::progress_event(PROGRESS, clock::wall_ms(), event);
    let body = serde_json::to_string(&view).expect("an event is plain data");
    SseEvent::default().event(PROGRESS).data(body)
}

fn sse_event(position: Position, happening: &Happening) -> SseEvent {
    let id = format!("{}-{}", position.seq, position.index);
    let view = view::event_view(id.clone(), happening);
    let body = serde_json::to_string(&view).expect("an event is plain data");
    SseEvent::default().id(id).event(happening.kind.as_str()).data(body)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::access::Caller;
    use crate::audit::Entry;
    use crate::feed::{Commit, EventFilter, Feed};

    const PATIENCE: Duration = Duration::from_secs(30);

    async fn patch(app: &Arc<App>, limit: u32) {
        let change = serde_json::json!({ "lanes": { "main": limit } });
        let change = change.as_object().expect("an object").clone();
        app.patch_config(&Default::default(), Entry::new("config.patched"), change).await.expect("patched");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_commit_that_was_not_told_is_read_from_the_log() {
        let dir = tempfile::tempdir().expect("a directory");
        let options =
            crate::ServeOptions { listen: Some("127.0.0.1:0".into()), ..crate::ServeOptions::new(dir.path()) };
        let server = crate::Server::start(options).await.expect("it starts");
        assert!(server.ready().await);
        let app = server.app();
        let filter = EventFilter { types: vec!["config.changed".into()], ..EventFilter::default() };
        let (at, _) = Pump::start(app, None).await.expect("it reads");
        // A feed of its own, so that the test decides what is told.
        let feed = Arc::new(Feed::default());
        let pump =
            Pump::new(app.clone(), feed.listen(filter), at, app.stream(&Caller::unchecked()).expect("there is room"));
        let mut sent = Box::pin(pump.stream());
        assert!(sent.next().now_or_never().is_none(), "it has everything, and waits");
        let stop = app.stop.clone();
        let telling = crate::feed::tell(feed.clone(), feed.commits(), app.worker.subscribe_progress(), stop);
        let telling = tokio::spawn(telling);
        let mut real = app.handle.feed().commits();
        // Of the first two the second is told, of the other three the first and the last.
        for (limit, is_told) in [(3, false), (4, true), (5, true), (6, false), (7, true)] {
            patch(app, limit).await;
            let commit = real.recv().await.expect("it is committed").upgrade().expect("it is the latest");
            if is_told {
                feed.publish(Commit { seq: commit.seq, happenings: commit.happenings.clone() });
            }
        }
        for _ in 0..5 {
            let event = tokio::time::timeout(PATIENCE, sent.next()).await;
            assert!(event.is_ok_and(|event| event.is_some()), "all are sent");
        }
        assert!(sent.next().now_or_never().is_none(), "and none twice");
        server.shutdown(Duration::ZERO).await;
        assert!(tokio::time::timeout(PATIENCE, sent.next()).await.is_ok_and(|end| end.is_none()));
        telling.await.expect("it ends with the server");
    }
}
