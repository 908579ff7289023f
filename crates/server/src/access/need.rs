//! What each route asks for, in one place. What is not named here needs admin: a forgotten route is closed, not open.

use axum::http::Method;

use super::scope::Scope;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Answers anyone who passes the host check.
    Open,
    Scope(Scope, Reach),
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
        "webhooks" if is_read && !rest.starts_with("webhooks/secret") => Need::Scope(Scope::Read, Reach::All),
        "config" if is_read => Need::Scope(Scope::Read, Reach::All),
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
