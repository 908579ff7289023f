//! A worker as anybody could write it: it speaks the protocol by hand, and runs nothing.

use serde_json::{Value, json};

use super::{Reply, Request, Yard};

pub struct Hand {
    pub addr: String,
    pub id: String,
    pub key: String,
    pub session: Value,
    pub held: Vec<Value>,
}

/// What a small machine offers, for kind `job`.
pub fn offer(name: &str) -> Value {
    json!({"name": name, "hostname": "box", "cpus": 4, "ramMb": 8192, "kinds": ["job"], "labels": {"zone": "a"}})
}

pub fn job() -> Value {
    json!({"kind": "job", "payload": {"n": 1}, "retry": {"backoffMs": 0}})
}

pub fn with(mut base: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        base[name] = value.clone();
    }
    base
}

/// A lease as reports name it.
pub fn lease(start: &Value) -> Value {
    json!({"task": start["task"], "attempt": start["attempt"], "token": start["token"]})
}

pub fn done(start: &Value, outcome: Value) -> Value {
    with(lease(start), json!({"outcome": outcome}))
}

impl Hand {
    pub async fn join(yard: &Yard, offer: Value) -> Hand {
        let token = yard.post("/v1/keys", json!({"name": "join", "scopes": ["worker"]})).await.json();
        Hand::join_with(&yard.addr, token["key"].as_str().unwrap(), offer).await
    }

    pub async fn join_with(addr: &str, token: &str, offer: Value) -> Hand {
        let request = Request::new(addr, "POST", "/v1/workers");
        let request = request.header("Authorization", &format!("Bearer {token}"));
        let reply = request.json(&offer).send().await;
        assert_eq!(reply.status, 201, "{reply:?}");
        let made = reply.json();
        let text = |field: &str| made[field].as_str().unwrap().to_owned();
        let (id, key) = (text("id"), text("key"));
        Hand { addr: addr.to_owned(), id, key, session: made["session"].clone(), held: Vec::new() }
    }

    pub async fn call(&self, method: &str, below: &str, body: Value) -> Reply {
        let path = format!("/v1/workers/{}{below}", self.id);
        let request = Request::new(&self.addr, method, &path).header("Authorization", &format!("Bearer {}", self.key));
        if body.is_null() { request.send().await } else { request.json(&body).send().await }
    }

    /// With what it holds, and without waiting unless it is told to.
    pub async fn say(&self, more: Value) -> Reply {
        let body = json!({"session": self.session, "held": self.held, "waitMs": 0});
        self.call("POST", "/sync", with(body, more)).await
    }

    pub async fn sync(&self, more: Value) -> Value {
        let reply = self.say(more).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    /// Waits for a task, holds it and says that it has begun.
    pub async fn take(&mut self) -> Value {
        let start = self.fetch().await;
        self.held.push(lease(&start));
        self.sync(json!({"started": [lease(&start)]})).await;
        start
    }

    /// Waits until it is given one.
    pub async fn fetch(&self) -> Value {
        loop {
            let answer = self.sync(json!({"waitMs": 10_000})).await;
            if let Some(start) = answer["start"].as_array().unwrap().first() {
                return start.clone();
            }
        }
    }

    pub async fn end(&mut self, start: &Value, outcome: Value) -> Value {
        let answer = self.sync(json!({"done": [done(start, outcome)]})).await;
        self.held.retain(|held| held["task"] != start["task"]);
        answer
    }

    pub async fn view(&self, yard: &Yard) -> Value {
        yard.get(&format!("/v1/workers/{}", self.id)).await.json()
    }
}
