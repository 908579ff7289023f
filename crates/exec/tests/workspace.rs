//! Working directories: what is staged into them, what is collected from them, and that nothing leaves them.

mod support;

#[path = "workspace/archives.rs"]
mod archives;
#[path = "workspace/downloads.rs"]
mod downloads;
#[path = "workspace/outputs.rs"]
mod outputs;
#[path = "workspace/policy.rs"]
mod policy;
#[path = "workspace/zips.rs"]
mod zips;

use runyard_exec::workspace::Artifacts;
use runyard_exec::{Class, Job, Kind, Outcome, WorkspaceRules};
use serde_json::{Value, json};
use support::{TASK, Yard, completed, failed_as};

/// Prints every path below the working directory but our own files, with what is in the files.
pub const SHOW: &str = "find . -mindepth 1 ! -name task.json ! -name .runyard-report.jsonl | sort | \
    while read f; do if [ -d \"$f\" ]; then echo \"$f/\"; else echo \"$f: $(cat \"$f\")\"; fi; done";

impl Yard {
    pub fn upload(&self, content: &[u8]) -> String {
        let mut incoming = self.executors.places().uploads().begin().expect("an upload");
        incoming.write(content).expect("written");
        let id = incoming.finish().expect("whole").id;
        runyard_exec::job::task_text(id)
    }

    /// A job that shows its directory, with these files and rules.
    pub fn staging(&self, files: Value, rules: WorkspaceRules) -> Job {
        let job = self.job(Kind::Process, json!({"shell": SHOW, "files": files}));
        Job { workspace: rules, ..job }
    }

    pub async fn staged(&self, files: Value) -> String {
        let job = self.staging(files, WorkspaceRules::default());
        completed(self.start(job).end().await)["stdout"].as_str().expect("a text").to_owned()
    }

    /// Why it could not be staged. The command must not have run, and nothing may be left.
    pub async fn refused(&self, files: Value, rules: WorkspaceRules) -> (Class, String) {
        let outcome = self.start(self.staging(files, rules)).end().await;
        assert!(!self.log_file().exists(), "the command ran: {:?}", self.log_texts());
        assert_eq!(self.work_files(), Vec::<String>::new());
        failed_as(outcome)
    }

    pub fn work_files(&self) -> Vec<String> {
        names(&self.executors.places().work_root())
    }

    pub fn artifacts(&self) -> Artifacts {
        Artifacts::of(self.executors.places(), TASK).expect("a table of artifacts")
    }

    pub async fn run_with(&self, payload: Value, rules: WorkspaceRules) -> Outcome {
        let job = Job { workspace: rules, ..self.job(Kind::Process, payload) };
        self.start(job).end().await
    }
}

pub fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn texts_and_uploads_are_there_before_the_command() {
    let yard = Yard::new();
    let upload = yard.upload(b"from an upload");
    let files = json!([
        {"inline": "a text\nof two lines", "path": "notes/a.txt"},
        {"inline": "", "path": "empty"},
        {"upload": upload, "path": "./deep/er/b.bin"},
        {"upload": upload, "path": "same"},
    ]);
    let expected = "./deep/\n./deep/er/\n./deep/er/b.bin: from an upload\n./empty: \n./notes/\n\
        ./notes/a.txt: a text\nof two lines\n./same: from an upload\n";
    assert_eq!(yard.staged(files).await, expected);
    assert_eq!(yard.work_files(), Vec::<String>::new());
}

/// Addresses may hold secrets, and texts are there as files.
#[tokio::test]
async fn task_json_does_not_repeat_the_files() {
    let yard = Yard::new();
    let payload = json!({"argv": ["cat", "task.json"], "files": [{"inline": "hidden", "path": "a"}]});
    let result = completed(yard.run(Kind::Process, payload).await);
    let text = result["stdout"].as_str().expect("a text");
    assert!(text.contains("\"argv\"") && !text.contains("hidden") && !text.contains("files"), "{text}");
}

#[tokio::test]
async fn an_upload_that_is_gone_can_never_be_staged() {
    let yard = Yard::new();
    let id = yard.upload(b"x");
    let later = yard.executors.places().uploads().remove_unneeded(std::time::Duration::ZERO);
    assert_eq!(later.expect("removed"), 1);
    let (class, message) = yard.refused(json!([{"upload": id, "path": "a"}]), WorkspaceRules::default()).await;
    assert_eq!(
        (class, message),
        (Class::Permanent, format!("files[0] `a`: upload {id} is not there, or not any more"))
    );
}

#[tokio::test]
async fn no_more_than_the_budget_is_written() {
    let yard = Yard::new();
    let upload = yard.upload(&[b'x'; 60]);
    let files = json!([{"upload": upload, "path": "a"}, {"upload": upload, "path": "b"}]);
    let rules = |files_bytes_max, files_max| WorkspaceRules { files_bytes_max, files_max, ..WorkspaceRules::default() };
    let (class, message) = yard.refused(files.clone(), rules(119, 10)).await;
    assert_eq!(class, Class::Permanent);
    assert!(message.starts_with("files[1] `b`: ") && message.contains("filesBytesMax"), "{message}");
    completed(yard.start(yard.staging(files, rules(120, 2))).end().await);
    // Two directories and a file.
    let (class, message) = Yard::new().refused(json!([{"inline": "", "path": "c/d/e"}]), rules(100, 2)).await;
    assert_eq!(class, Class::Permanent);
    assert!(message.contains("filesMax"), "{message}");
}
