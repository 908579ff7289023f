//! `running/task_<id>.json`: who runs, in a file a person can read, and a restarted server can act on.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::proc_table;
use crate::job::Job;
use crate::places::create_private_dir;

/// A pid alone proves nothing: it is believed only with the same host, boot and start time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub task_id: String,
    pub agent: String,
    pub attempt: u32,
    pub pid: i32,
    pub pgid: i32,
    pub boot_id: String,
    /// Clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    pub process_start: u64,
    pub host: String,
    pub started_at: String,
}

impl Record {
    /// Without the process, which is not there yet.
    pub(super) fn new(job: &Job) -> Record {
        Record {
            task_id: job.task_text(),
            agent: job.agent.to_string(),
            attempt: job.attempt,
            pid: 0,
            pgid: 0,
            boot_id: proc_table::boot_id(),
            process_start: 0,
            host: proc_table::host(),
            started_at: format!("{:.3}", jiff::Timestamp::now()),
        }
    }

    /// Whole or not at all. It is not synced: a power loss ends the process too.
    pub(super) fn write(&self, path: &Path, pid: i32) -> io::Result<()> {
        let process_start = proc_table::stat(pid).map_or(0, |stat| stat.start);
        let record = Record { pid, pgid: pid, process_start, ..self.clone() };
        let bytes = serde_json::to_vec_pretty(&record)?;
        if let Some(folder) = path.parent() {
            create_private_dir(folder)?;
        }
        let draft = path.with_extension("json.tmp");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&bytes)?;
        fs::rename(&draft, path)
    }

    /// Does the process it speaks of still exist?
    pub(super) fn is_alive(&self) -> bool {
        self.host == proc_table::host()
            && self.boot_id == proc_table::boot_id()
            && proc_table::stat(self.pid).is_some_and(|stat| stat.start == self.process_start)
    }
}
