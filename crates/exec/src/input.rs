//! Lines for a run that goes on.
//!
//! A line waits in a bounded channel until the work has room for it, and is *taken* once it is written
//! ([`crate::Signs::input_taken`]). One that still waits at the end of the run was not taken, and nothing is said of it.

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// Lines that may wait for a run that does not read. Whoever has more to say waits for its end anyway.
pub const LINES_WAITING_MAX: usize = 64;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InputLine {
    /// By which the run tells that it has taken the line.
    #[serde(with = "crate::job::id_text")]
    pub id: u128,
    /// May have line ends in it, which are written as they are.
    pub text: String,
}

/// Where lines are handed in.
#[derive(Clone, Debug)]
pub struct InputSender(mpsc::Sender<InputLine>);

/// Where a run takes them from.
#[derive(Debug)]
pub struct Input(Option<mpsc::Receiver<InputLine>>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotTaken {
    #[error("{LINES_WAITING_MAX} lines wait to be read already")]
    Full,
    #[error("the run takes no more input")]
    Closed,
}

pub fn input() -> (InputSender, Input) {
    let (sender, receiver) = mpsc::channel(LINES_WAITING_MAX);
    (InputSender(sender), Input(Some(receiver)))
}

impl InputSender {
    /// Puts a line behind those that wait. It is not taken yet.
    pub fn hand_in(&self, line: InputLine) -> Result<(), NotTaken> {
        self.0.try_send(line).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotTaken::Full,
            mpsc::error::TrySendError::Closed(_) => NotTaken::Closed,
        })
    }

    /// As [`Self::hand_in`], but waits while too many lines wait. False when no line is taken any more.
    pub(crate) async fn wait_in(&self, line: InputLine) -> bool {
        self.0.send(line).await.is_ok()
    }
}

impl Input {
    /// For a run that nobody has anything to say to.
    pub fn none() -> Input {
        Input(None)
    }

    /// The next line; `None` when no more can come.
    pub(crate) async fn next(&mut self) -> Option<InputLine> {
        self.0.as_mut()?.recv().await
    }

    /// Waits for ever when no more can come.
    pub(crate) async fn next_or_never(&mut self) -> InputLine {
        match self.next().await {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }
}
