//! What a process reads: the text it starts with and then, if it takes input, a line at a time.

use std::pin::Pin;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::input::Input;
use crate::job::Signs;
use crate::payload::Stdin;
use crate::said::push_line;

/// Our end of a pipe, or of a connection.
pub(crate) type Sink = Pin<Box<dyn AsyncWrite + Send>>;

/// Our end, and what goes into it.
pub(crate) struct Feed {
    sink: Option<Sink>,
    text: String,
    input: Input,
}

impl Feed {
    pub(crate) fn new(sink: Option<Sink>, stdin: Stdin, input: Input) -> Feed {
        let (text, input) = match stdin {
            Stdin::Nothing => (String::new(), Input::none()),
            Stdin::Text(text) => (text, Input::none()),
            Stdin::Open(text) => (text, input),
        };
        Feed { sink, text, input }
    }

    /// Writes everything and closes it. A process that does not read it to the end is none of our business.
    pub(crate) async fn run(mut self, stop: &CancellationToken, signs: &dyn Signs) {
        let Some(mut sink) = self.sink.take() else { return };
        if sink.write_all(self.text.as_bytes()).await.is_err() {
            return;
        }
        tokio::select! {
            biased;
            // What comes now must not be taken: it would die with the process.
            () = stop.cancelled() => {}
            () = hand_over(&mut sink, &mut self.input, signs) => {}
        }
        // A connection is not closed by dropping one half of it.
        let _ = sink.shutdown().await;
    }
}

/// Until no more lines can come, or nobody reads them.
async fn hand_over(sink: &mut Sink, input: &mut Input, signs: &dyn Signs) {
    while let Some(line) = input.next().await {
        let mut text = String::with_capacity(line.text.len() + 1);
        push_line(&mut text, &line.text);
        if sink.write_all(text.as_bytes()).await.is_err() {
            return;
        }
        signs.input_taken(line.id);
    }
}
