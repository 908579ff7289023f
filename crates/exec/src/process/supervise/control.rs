//! `control.sock`: what a supervisor tells a server that listens, and the lines that the server hands in.
//!
//! Both ways JSON lines. A server that connects is first told how things stand, so it does not matter which one it is or
//! what it missed; it is told something even when there is nothing to tell, because an answer proves life. A line of
//! input has an id: one that comes again, because a server could not know whether it had arrived, is not written again.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::run_dir::RunDir;
use crate::input::{Input, InputLine, InputSender, LINES_WAITING_MAX, input};
use crate::job::{Progress, Signs, task_of_text, task_text};

/// News within this time is told together: a process that prints a lot is not worth a message for every chunk.
const GATHER: Duration = Duration::from_millis(20);
/// Messages remembered as taken. More than can be on their way at once, so that none is written twice.
const TAKEN_KEPT: usize = 1024;
/// Of one message; lines of input are limited at the edge.
const MESSAGE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How often a server tries to reach a supervisor that does not answer, and looks at the log meanwhile.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// A supervisor answers in a millisecond; on a machine that has no time for it, in a few hundred.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(2);

/// What the supervisor says: only what is new.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct News {
    #[serde(skip_serializing_if = "Option::is_none")]
    log_bytes: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    alive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Progress>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    taken: Vec<String>,
}

// ── The supervisor's side ───────────────────────────────────────────────────────────────────────────────────────────

/// Where the run tells what it sees, and every server that comes can read it.
pub(super) struct Desk {
    board: watch::Sender<Board>,
    inbox: Option<InputSender>,
    /// Messages that have been handed in, the latest last.
    known: Mutex<VecDeque<u128>>,
}

/// How things stand. Counters only grow, so that a reader sees what is new to it.
#[derive(Clone, Debug, Default)]
struct Board {
    log_bytes: u64,
    n_alive: u64,
    n_progress: u64,
    progress: Progress,
    n_taken: usize,
    /// The latest of them.
    taken: VecDeque<u128>,
}

impl Desk {
    pub(super) fn new(takes_input: bool) -> (Arc<Desk>, Input) {
        let (inbox, input) = match takes_input {
            true => {
                let (sender, input) = input();
                (Some(sender), input)
            }
            false => (None, Input::none()),
        };
        let desk = Desk { board: watch::channel(Board::default()).0, inbox, known: Mutex::default() };
        (Arc::new(desk), input)
    }

    /// Serves whoever connects, until the handle is dropped.
    pub(super) fn listen(self: &Arc<Desk>, dir: &RunDir) -> io::Result<AbortOnDropHandle<()>> {
        let address = Address::of(dir)?;
        let listener = UnixListener::bind(&address.path)?;
        let desk = self.clone();
        Ok(AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(desk.clone().serve(stream))),
                    Err(error) => {
                        tracing::warn!(%error, "a server cannot connect");
                        tokio::time::sleep(RETRY_MAX).await;
                    }
                }
            }
        })))
    }

    pub(super) fn taken(&self) -> Vec<u128> {
        self.board.borrow().taken.iter().copied().collect()
    }

    pub(super) fn progress(&self) -> Option<Progress> {
        let board = self.board.borrow();
        (board.n_progress > 0).then(|| board.progress.clone())
    }

    /// Until either side has enough. Neither is an error: the server may go at any time.
    async fn serve(self: Arc<Desk>, stream: UnixStream) {
        let (reader, writer) = stream.into_split();
        tokio::select! {
            _ = self.tell(writer) => {}
            _ = self.hear(reader) => {}
        }
    }

    async fn tell(&self, mut writer: OwnedWriteHalf) -> io::Result<()> {
        let mut changes = self.board.subscribe();
        let mut told = changes.borrow_and_update().clone();
        // Whoever asks whether it is alive must get an answer, also from a run that has not said anything yet.
        let first = told.since(&Board::default()).unwrap_or_default();
        writer.write_all(&line(&first)).await?;
        loop {
            tokio::time::sleep(GATHER).await;
            if changes.changed().await.is_err() {
                return Ok(());
            }
            let board = changes.borrow_and_update().clone();
            if let Some(news) = board.since(&told) {
                writer.write_all(&line(&news)).await?;
            }
            told = board;
        }
    }

    async fn hear(&self, reader: OwnedReadHalf) -> io::Result<()> {
        let mut reader = BufReader::new(reader);
        while let Some(line) = next_message::<InputLine>(&mut reader).await? {
            if let Some(inbox) = self.inbox.as_ref().filter(|_| self.is_new(line.id))
                && !inbox.wait_in(line).await
            {
                break;
            }
        }
        // It has nothing to say, but may still want to listen.
        std::future::pending().await
    }

    fn is_new(&self, id: u128) -> bool {
        let mut known = self.known.lock().expect("no thread panics while it holds these");
        let is_new = !known.contains(&id);
        if is_new {
            push_bounded(&mut known, id);
        }
        is_new
    }
}

impl Signs for Desk {
    fn alive(&self) {
        self.board.send_modify(|board| board.n_alive += 1);
    }

    fn log_grew(&self, log_bytes: u64) {
        self.board.send_if_modified(|board| std::mem::replace(&mut board.log_bytes, log_bytes) != log_bytes);
    }

    fn progress(&self, progress: Progress) {
        self.board.send_modify(|board| {
            board.n_progress += 1;
            board.progress.fraction = progress.fraction.or(board.progress.fraction);
            board.progress.message = progress.message.or(board.progress.message.take());
        });
    }

    fn input_taken(&self, id: u128) {
        self.board.send_modify(|board| {
            board.n_taken += 1;
            push_bounded(&mut board.taken, id);
        });
    }
}

impl Board {
    /// `None` when there is nothing new.
    fn since(&self, told: &Board) -> Option<News> {
        let n_new = (self.n_taken - told.n_taken).min(self.taken.len());
        let news = News {
            log_bytes: (self.log_bytes != told.log_bytes).then_some(self.log_bytes),
            alive: self.n_alive > told.n_alive,
            progress: (self.n_progress > told.n_progress).then(|| self.progress.clone()),
            taken: self.taken.iter().skip(self.taken.len() - n_new).map(|id| task_text(*id)).collect(),
        };
        let is_new = news.log_bytes.is_some() || news.alive || news.progress.is_some() || n_new > 0;
        is_new.then_some(news)
    }
}

fn push_bounded(ids: &mut VecDeque<u128>, id: u128) {
    if ids.len() == TAKEN_KEPT {
        ids.pop_front();
    }
    ids.push_back(id);
}

// ── The server's side ───────────────────────────────────────────────────────────────────────────────────────────────

/// A supervisor speaks first, so whatever it says proves that it is alive.
pub(super) async fn answers(dir: &RunDir) -> bool {
    let first_word = async {
        let address = Address::of(dir)?;
        UnixStream::connect(&address.path).await?.read_u8().await
    };
    matches!(tokio::time::timeout(ANSWER_MAX, first_word).await, Ok(Ok(_)))
}

/// Passes on what the supervisor says, and the lines it is to have.
pub(super) struct Talk<'a> {
    dir: &'a RunDir,
    log_file: PathBuf,
    signs: &'a dyn Signs,
    input: Input,
    /// Handed over, and not known to be taken; they are handed over again to who answers next.
    unheard: VecDeque<InputLine>,
    /// The latest that were told as taken.
    taken: VecDeque<u128>,
    progress: Option<Progress>,
    log_bytes: u64,
}

impl<'a> Talk<'a> {
    pub(super) fn new(dir: &'a RunDir, log_file: PathBuf, input: Input, signs: &'a dyn Signs) -> Talk<'a> {
        let (unheard, taken) = Default::default();
        Talk { dir, log_file, signs, input, unheard, taken, progress: None, log_bytes: 0 }
    }

    /// Without an end: whoever drops it knows when it is over.
    pub(super) async fn run(&mut self) {
        let mut pause = RETRY_MIN;
        loop {
            if let Ok(stream) = self.connect().await {
                pause = RETRY_MIN;
                // It breaks when the supervisor ends; whether it has, others see.
                let _ = self.converse(stream).await;
            }
            self.look_at_log();
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// The supervisor is gone: what it may not have had the time to say.
    pub(super) fn finish(&mut self, taken: impl Iterator<Item = u128>, progress: Option<&Progress>) {
        taken.for_each(|id| self.take(id));
        if let Some(progress) = progress {
            self.tell_progress(progress.clone());
        }
        self.look_at_log();
    }

    async fn connect(&self) -> io::Result<UnixStream> {
        let address = Address::of(self.dir)?;
        UnixStream::connect(&address.path).await
    }

    async fn converse(&mut self, stream: UnixStream) -> io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        for line_in in &self.unheard {
            writer.write_all(&line(line_in)).await?;
        }
        let mut message = Vec::new();
        loop {
            tokio::select! {
                // A read that is given up leaves what it has in `message`.
                read = reader.read_until(b'\n', &mut message) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    self.hear(&message);
                    message.clear();
                }
                next = self.input.next_or_never(), if self.unheard.len() < LINES_WAITING_MAX => {
                    let bytes = line(&next);
                    self.unheard.push_back(next);
                    writer.write_all(&bytes).await?;
                }
            }
        }
    }

    fn hear(&mut self, message: &[u8]) {
        let Ok(news) = serde_json::from_slice::<News>(message) else { return };
        if let Some(log_bytes) = news.log_bytes {
            self.log_bytes = log_bytes;
            self.signs.log_grew(log_bytes);
        }
        if news.alive {
            self.signs.alive();
        }
        if let Some(progress) = news.progress {
            self.tell_progress(progress);
        }
        news.taken.iter().filter_map(|id| task_of_text(id)).for_each(|id| self.take(id));
    }

    fn take(&mut self, id: u128) {
        if self.taken.contains(&id) {
            return;
        }
        push_bounded(&mut self.taken, id);
        self.unheard.retain(|line| line.id != id);
        self.signs.input_taken(id);
    }

    fn tell_progress(&mut self, progress: Progress) {
        if self.progress.as_ref() != Some(&progress) {
            self.progress = Some(progress.clone());
            self.signs.progress(progress);
        }
    }

    /// Nobody tells how it grows.
    fn look_at_log(&mut self) {
        let log_bytes = std::fs::metadata(&self.log_file).map_or(0, |metadata| metadata.len());
        if log_bytes != self.log_bytes {
            self.log_bytes = log_bytes;
            self.signs.alive();
            self.signs.log_grew(log_bytes);
        }
    }
}

// ── Both ────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// The address of a socket has room for 107 bytes, and a data directory may be deeper: it is reached through the open
/// directory.
pub(super) struct Address {
    pub(super) path: PathBuf,
    _dir: File,
}

impl Address {
    pub(super) fn of(dir: &RunDir) -> io::Result<Address> {
        let opened = File::open(dir.path())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{}", opened.as_raw_fd(), dir.socket_name()));
        Ok(Address { path, _dir: opened })
    }
}

fn line(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(message).expect("a message is plain JSON");
    bytes.push(b'\n');
    bytes
}

/// `None` at the end. One that cannot be read is left out: it is from another version.
async fn next_message<T: for<'de> Deserialize<'de>>(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<T>> {
    loop {
        let mut bytes = Vec::new();
        if (&mut *reader).take(MESSAGE_BYTES_MAX).read_until(b'\n', &mut bytes).await? == 0 {
            return Ok(None);
        }
        match serde_json::from_slice(&bytes) {
            Ok(message) => return Ok(Some(message)),
            Err(error) => tracing::warn!(%error, "a message is not understood"),
        }
    }
}
