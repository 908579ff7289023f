//! What a process reads: the text it starts with and then, if it takes input, a line at a time.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use crate::input::Input;
use crate::job::Signs;
use crate::payload::Stdin;
use crate::said::push_line;

/// Our end of the pipe, and what goes into it.
pub(super) struct Feed {
    pipe: Option<pipe::Sender>,
    text: String,
    input: Input,
}

impl Feed {
    pub(super) fn new(pipe: Option<OwnedFd>, stdin: Stdin, input: Input) -> io::Result<Feed> {
        let (text, input) = match stdin {
            Stdin::Nothing => (String::new(), Input::none()),
            Stdin::Text(text) => (text, Input::none()),
            Stdin::Open(text) => (text, input),
        };
        Ok(Feed { pipe: pipe.map(pipe::Sender::from_owned_fd).transpose()?, text, input })
    }

    /// Writes everything and closes the pipe. A process that does not read it to the end is none of our business.
    pub(super) async fn run(mut self, stop: &CancellationToken, signs: &dyn Signs) {
        let Some(mut pipe) = self.pipe.take() else { return };
        if pipe.write_all(self.text.as_bytes()).await.is_err() {
            return;
        }
        tokio::select! {
            biased;
            // What comes now must not be taken: it would die with the process.
            () = stop.cancelled() => {}
            () = hand_over(&mut pipe, &mut self.input, signs) => {}
        }
    }
}

/// Until no more lines can come, or nobody reads them.
async fn hand_over(pipe: &mut pipe::Sender, input: &mut Input, signs: &dyn Signs) {
    while let Some(line) = input.next().await {
        let mut text = String::with_capacity(line.text.len() + 1);
        push_line(&mut text, &line.text);
        if pipe.write_all(text.as_bytes()).await.is_err() {
            return;
        }
        signs.input_taken(line.id);
    }
}
