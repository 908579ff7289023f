//! What each route asks for, in one place. What is not named here needs admin: a forgotten route is closed, not open.

use axum::http::Method;

use runyard_core::ids::WorkerId;
use runyard_wire::Id;

use super::scope::Scope;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Answers anyone who passes the host check.
    Open,
    Scope(Scope, Reach),
    /// Between nodes only: to everybody else there is nothing.
    Node,
    /// This worker's own key, or else the scope.
    Worker(WorkerId, Scope),
}

/// Whose work a route shows or touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The handler keeps a key that is bound to agents to their work.
    Own,
    /// Everyone's: not for a bound key.
    All,
}

pub fn needed(method: &Method, path: &str) -> Need {
    if matches!(path, "/healthz" | "/readyz" | "/version" | "/openapi.json") {
        return Need::Open;
    }
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let Some(rest) = path.strip_prefix("/v1/") else {
        return Need::Scope(if path == "/metrics" && is_read { Scope::Read } else { Scope::Admin }, Reach::All);
    };
    let resource = rest.split('/').next().unwrap_or("");
    match resource {
        "uploads" if *method == Method::PUT => Need::Scope(Scope::Submit, Reach::Own),
        "tasks" | "batches" | "sessions" => Need::Scope(if is_read { Scope::Read } else { Scope::Submit }, Reach::Own),
        // It only computes.
        "schedules" if rest == "schedules/preview" => Need::Scope(Scope::Read, Reach::Own),
        "schedules" => Need::Scope(if is_read { Scope::Read } else { Scope::Submit }, Reach::Own),
        "agents" | "lanes" | "stats" | "events" | "drain" if is_read => Need::Scope(Scope::Read, Reach::Own),
        "workers" => worker_need(method, rest),
        "nodes" if rest == "nodes" && is_read => Need::Scope(Scope::Read, Reach::All),
        "nodes"
            if matches!(
                rest,
                "nodes/commits" | "nodes/self" | "nodes/progress" | "nodes/used" | "nodes/sealing-key"
            ) =>
        {
            Need::Node
        }
        "webhooks" if is_read && !rest.starts_with("webhooks/secret") => Need::Scope(Scope::Read, Reach::All),
        "config" if is_read => Need::Scope(Scope::Read, Reach::All),
        _ => Need::Scope(Scope::Admin, Reach::All),
    }
}

/// Views of workers name everyone's tasks. Whatever is below a worker is its own, or an administrator's.
fn worker_need(method: &Method, rest: &str) -> Need {
    let mut parts = rest.splitn(3, '/').skip(1);
    let (id, below) = (parts.next(), parts.next());
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let own = |scope| match id.and_then(|id| id.parse::<Id>().ok()) {
        Some(Id(id)) => Need::Worker(WorkerId(id), scope),
        None => Need::Scope(scope, Reach::All),
    };
    match (id, below) {
        (None, _) if *method == Method::POST => Need::Scope(Scope::Worker, Reach::All),
        (None, _) if is_read => Need::Scope(Scope::Read, Reach::All),
        (Some(_), None) if is_read => own(Scope::Read),
        (Some(_), Some(_)) => own(Scope::Admin),
        _ => Need::Scope(Scope::Admin, Reach::All),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Need = Need::Scope(Scope::Read, Reach::Own);
    const READ_ALL: Need = Need::Scope(Scope::Read, Reach::All);
    const SUBMIT: Need = Need::Scope(Scope::Submit, Reach::Own);
    const ADMIN: Need = Need::Scope(Scope::Admin, Reach::All);

    const WORKER: &str = "01931b5c-7f3a-7c5e-9d1e-0a4b8e6f2c11";

    #[test]
    fn what_is_below_a_worker_is_its_own() {
        let Id(id) = WORKER.parse().expect("an id");
        let own = |scope| Need::Worker(WorkerId(id), scope);
        let table = [
            ("POST", "", Need::Scope(Scope::Worker, Reach::All)),
            ("GET", "", READ_ALL),
            ("GET", "/ID", own(Scope::Read)),
            ("DELETE", "/ID", ADMIN),
            ("POST", "/ID/sync", own(Scope::Admin)),
            ("POST", "/ID/drain", own(Scope::Admin)),
            ("GET", "/ID/uploads/x", own(Scope::Admin)),
            ("PUT", "/ID/tasks/x/artifacts/a/b", own(Scope::Admin)),
            ("POST", "/nobody/sync", ADMIN),
        ];
        for (method, path, need) in table {
            let (method, path) = (method.parse().expect("a method"), path.replace("ID", WORKER));
            assert_eq!(needed(&method, &format!("/v1/workers{path}")), need, "{method} {path}");
        }
    }

    #[test]
    fn each_route_asks_for_its_scope() {
        let table = [
            ("GET", "/healthz", Need::Open),
            ("GET", "/readyz", Need::Open),
            ("GET", "/version", Need::Open),
            ("GET", "/metrics", READ_ALL),
            ("GET", "/v1/tasks", READ),
            ("GET", "/v1/tasks/x/logs", READ),
            ("POST", "/v1/tasks", SUBMIT),
            ("DELETE", "/v1/tasks/x", SUBMIT),
            ("PATCH", "/v1/tasks/x", SUBMIT),
            ("POST", "/v1/batches", SUBMIT),
            ("POST", "/v1/tasks/x/input", SUBMIT),
            ("POST", "/v1/tasks/x/heartbeat", SUBMIT),
            ("PUT", "/v1/uploads", SUBMIT),
            ("GET", "/v1/uploads", ADMIN),
            ("GET", "/v1/tasks/x/artifacts/a/b", READ),
            ("GET", "/v1/sessions/a%2Fb", READ),
            ("PUT", "/v1/sessions/k", SUBMIT),
            ("POST", "/v1/sessions/k/stopall", SUBMIT),
            ("GET", "/v1/schedules", READ),
            ("POST", "/v1/schedules", SUBMIT),
            ("POST", "/v1/schedules/preview", READ),
            ("PATCH", "/v1/schedules/x", SUBMIT),
            ("POST", "/v1/schedules/x/run", SUBMIT),
            ("GET", "/v1/schedules/x/runs", READ),
            ("GET", "/v1/config", READ_ALL),
            ("PATCH", "/v1/config", ADMIN),
            ("GET", "/v1/webhooks/deliveries/7", READ_ALL),
            ("POST", "/v1/webhooks/deliveries/7/replay", ADMIN),
            ("GET", "/v1/webhooks/secret", ADMIN),
            ("PUT", "/v1/lanes/main", ADMIN),
            ("POST", "/v1/drain", ADMIN),
            ("GET", "/v1/keys", ADMIN),
            ("POST", "/v1/backup", ADMIN),
            ("GET", "/v1/unknown", ADMIN),
            ("GET", "/elsewhere", ADMIN),
        ];
        for (method, path, need) in table {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(needed(&method, path), need, "{method} {path}");
        }
    }
}
