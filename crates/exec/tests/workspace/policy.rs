//! What becomes of a working directory.

use runyard_exec::process::reap_leftovers;
use runyard_exec::process::supervise::{self, supervise, survey};
use runyard_exec::workspace::remove_files;
use runyard_exec::{Kind, Outcome, WorkDir, WorkspaceRules};
use serde_json::json;

use crate::support::{TASK, TASK_TEXT, Yard};

impl Yard {
    fn kept(&self) -> bool {
        self.executors.places().work_dir(TASK).join("mark").exists()
    }

    async fn leaves(&self, exit: u8, work_dir: Option<&str>, configured: WorkDir) -> bool {
        let mut payload = json!({"shell": format!("touch mark; exit {exit}")});
        if let Some(work_dir) = work_dir {
            payload["workDir"] = json!(work_dir);
        }
        self.run_with(payload, WorkspaceRules { work_dir: configured, ..WorkspaceRules::default() }).await;
        self.kept()
    }
}

#[tokio::test]
async fn a_directory_is_kept_by_the_tasks_word_or_else_by_the_configured_one() {
    let table = [
        (0, None, WorkDir::Remove, false),
        (1, None, WorkDir::Remove, false),
        (0, None, WorkDir::Keep, true),
        (0, None, WorkDir::KeepOnFailure, false),
        (1, None, WorkDir::KeepOnFailure, true),
        (0, Some("keep"), WorkDir::Remove, true),
        (1, Some("keepOnFailure"), WorkDir::Remove, true),
        (0, Some("keepOnFailure"), WorkDir::Keep, false),
        (1, Some("remove"), WorkDir::Keep, false),
    ];
    for (exit, work_dir, configured, is_kept) in table {
        let kept = Yard::new().leaves(exit, work_dir, configured).await;
        assert_eq!(kept, is_kept, "exit {exit}, {work_dir:?} over {configured:?}");
    }
}

#[tokio::test]
async fn what_is_kept_outlives_a_restart_and_goes_with_its_task() {
    let yard = Yard::new();
    assert!(yard.leaves(0, Some("keep"), WorkDir::Remove).await);
    let leftover = yard.executors.places().work_root().join("nobody-knows");
    std::fs::create_dir(&leftover).expect("a directory");
    survey(yard.executors.places()).expect("surveyed");
    reap_leftovers(yard.dir.path()).expect("reaped");
    assert!(yard.kept() && !leftover.exists());
    remove_files(yard.executors.places(), TASK).expect("removed");
    assert_eq!(yard.work_files(), Vec::<String>::new());
}

#[tokio::test]
async fn the_next_attempt_starts_in_an_empty_directory() {
    let yard = Yard::new();
    assert!(yard.leaves(0, Some("keep"), WorkDir::Remove).await);
    assert_eq!(yard.work_files(), [TASK_TEXT.to_owned(), format!("{TASK_TEXT}.kept")]);
    let result = crate::support::completed(yard.run(Kind::Process, json!({"argv": ["ls"]})).await);
    assert_eq!(result["stdout"], "task.json\n");
    assert_eq!(yard.work_files(), Vec::<String>::new());
}

/// As a worker leaves it that dies while it stages the files: the orders are there, and nobody has signed for them.
#[tokio::test]
async fn an_attempt_that_nobody_began_is_handed_back_until_that_is_known() {
    let yard = Yard::new();
    let places = yard.executors.places();
    let job = yard.job(Kind::Process, json!({"shell": "touch ran"}));
    let (run, work) = (places.run_dir(TASK, 1), places.work_dir(TASK));
    std::fs::create_dir_all(&run).and_then(|()| std::fs::create_dir_all(&work)).expect("directories");
    std::fs::write(work.join("half"), "").expect("a file");
    let orders = json!({"job": job, "heartbeatMs": 1000, "dataDir": yard.dir.path()});
    std::fs::write(run.join("job.json"), orders.to_string()).expect("orders");
    for _ in 0..2 {
        let found = survey(places).expect("surveyed");
        assert!(found.live.is_empty() && found.ended.len() == 1, "{found:?}");
        assert!(matches!(found.ended[0].outcome, Outcome::NotStarted { .. }), "{:?}", found.ended[0].outcome);
        assert_eq!((found.ended[0].job.task, found.ended[0].job.token), (TASK, job.token));
        assert!(work.exists(), "it is not settled yet");
        // A supervisor that comes late finds that it is over.
        assert!(matches!(supervise(&run), Err(supervise::Error::Ended { .. })));
    }
    let found = survey(places).expect("surveyed");
    yard.executors.settle_ended(&found.ended[0]);
    assert_eq!(yard.work_files(), Vec::<String>::new());
    yard.executors.forget(TASK, 1);
    assert!(survey(places).expect("surveyed").ended.is_empty());
}

/// As some package caches make them.
#[tokio::test]
async fn a_directory_that_is_locked_is_removed_all_the_same() {
    let yard = Yard::new();
    yard.run(Kind::Process, json!({"shell": "mkdir -p a/b; touch a/b/c; chmod 500 a/b a"})).await;
    assert_eq!(yard.work_files(), Vec::<String>::new());
}
