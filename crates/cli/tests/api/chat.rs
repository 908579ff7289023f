//! One session as the tests of sessions see it.

use serde_json::{Value, json};

use crate::scene::{SOON, Scene, n, text};
use crate::support::{Answer, wait_until};

pub struct Chat<'a> {
    scene: &'a Scene,
    pub key: &'static str,
}

impl<'a> Chat<'a> {
    /// Nothing is set: the configuration's settings hold.
    pub fn new(scene: &'a Scene, key: &'static str) -> Chat<'a> {
        Chat { scene, key }
    }

    pub fn with(scene: &'a Scene, key: &'static str, settings: Value) -> Chat<'a> {
        let chat = Chat::new(scene, key);
        chat.set(settings);
        chat
    }

    pub fn set(&self, settings: Value) -> Value {
        self.scene.expect(200, "PUT", &format!("/v1/sessions/{}", self.key), settings)
    }

    pub fn view(&self) -> Value {
        self.scene.get(&format!("/v1/sessions/{}", self.key))
    }

    /// How many run, wait and debounce.
    pub fn counts(&self) -> (u64, u64, u64) {
        counts(&self.view()["counts"])
    }

    /// `stop`, `stopall` or `reset`.
    pub fn act(&self, what: &str) -> Value {
        self.scene.expect(200, "POST", &format!("/v1/sessions/{}/{what}", self.key), Value::Null)
    }

    /// Sends a task to the session.
    pub fn send(&self, mut task: Value) -> Answer {
        task.as_object_mut().unwrap().entry("session").or_insert(json!(self.key));
        self.scene.send("POST", "/v1/tasks", task)
    }

    /// The answer to a task that is taken.
    pub fn submit(&self, task: Value) -> Value {
        let answer = self.send(task);
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()
    }

    /// A message to a program that prints what it is told; gives the id of the task that carries it.
    pub fn say(&self, message: &str) -> String {
        text(&self.submit(said(message))["id"])
    }

    /// Holds its seat and its slot until it is cancelled.
    pub fn hold(&self) -> String {
        let id = text(&self.submit(json!({"kind": "noop", "payload": {"sleepMs": 600_000}}))["id"]);
        self.scene.until_state(&id, "running");
        id
    }

    /// Ends what holds and waits for its end.
    pub fn release(&self, held: &str) {
        self.scene.cancel(held);
        self.scene.ends_as("cancelled", held);
    }

    /// What the program that carries the message was told.
    pub fn heard(&self, id: &str) -> String {
        text(&self.scene.ends_as("completed", id)["result"]["stdout"])
    }

    pub fn until_idle(&self) {
        wait_until(SOON, &format!("{} is idle", self.key), || self.counts() == (0, 0, 0));
    }
}

pub fn said(message: &str) -> Value {
    json!({"kind": "process", "payload": {"argv": ["cat"], "message": message}})
}

pub fn counts(value: &Value) -> (u64, u64, u64) {
    (n(&value["running"]), n(&value["waiting"]), n(&value["debouncing"]))
}
