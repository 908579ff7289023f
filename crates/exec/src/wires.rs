//! What ties a run to whoever started it.

use tokio_util::sync::CancellationToken;

use crate::input::Input;
use crate::job::Signs;

pub(crate) struct Wires<'a> {
    /// What it is handed while it runs.
    pub input: Input,
    /// Cancelled, it asks the run to stop.
    pub stop: &'a CancellationToken,
    /// Where the run tells what it sees.
    pub signs: &'a dyn Signs,
}
