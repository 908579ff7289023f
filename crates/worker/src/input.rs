//! The messages that were handed to one run while it goes on.
//!
//! A scheduler that has reloaded repeats what it asked for, and wants to hear again what it may have lost. So each message
//! is remembered until the scheduler has acknowledged that it was taken: it is written once, and told until then.

use std::sync::Mutex;

use runyard_core::ids::TaskId;
use runyard_exec::{Input, InputLine, InputSender};

pub(crate) struct Inbox {
    /// `None` for work that takes no input.
    sender: Option<InputSender>,
    messages: Mutex<Vec<(TaskId, Fate)>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// In line to be written.
    Waits,
    Taken,
    /// It is not here, and will not be.
    Refused,
}

impl Inbox {
    pub(crate) fn new(takes_input: bool) -> (Inbox, Input) {
        let (sender, input) = match takes_input {
            true => {
                let (sender, input) = runyard_exec::input();
                (Some(sender), input)
            }
            false => (None, Input::none()),
        };
        (Inbox { sender, messages: Mutex::default() }, input)
    }

    /// Hands a message over, unless it has been before. What became of it is the answer.
    pub(crate) fn hand_in(&self, message: TaskId, text: String) -> Fate {
        let mut messages = self.lock();
        if let Some((_, fate)) = messages.iter().find(|(known, _)| *known == message) {
            return *fate;
        }
        let line = InputLine { id: message.0, text };
        // The run may take it at once, and then waits for this lock to say so.
        match self.sender.as_ref().map(|sender| sender.hand_in(line)) {
            Some(Ok(())) => {
                messages.push((message, Fate::Waits));
                Fate::Waits
            }
            Some(Err(_)) | None => Fate::Refused,
        }
    }

    pub(crate) fn take(&self, message: TaskId) {
        let mut messages = self.lock();
        messages.iter_mut().filter(|(known, _)| *known == message).for_each(|(_, fate)| *fate = Fate::Taken);
    }

    /// Taken, and not acknowledged.
    pub(crate) fn taken(&self) -> Vec<TaskId> {
        self.lock().iter().filter(|(_, fate)| *fate == Fate::Taken).map(|(message, _)| *message).collect()
    }

    pub(crate) fn acknowledge(&self, message: TaskId) {
        self.lock().retain(|known| *known != (message, Fate::Taken));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(TaskId, Fate)>> {
        self.messages.lock().expect("no thread panics while it holds the messages")
    }
}
