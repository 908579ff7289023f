//! What each route asks for, in one place. What is not named here needs admin: a forgotten route is closed, not open.

use axum::http::Method;

use super::scope::Scope;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Answers anyone who passes the host check.
    Open,
    Scope(Scope),
}

pub fn needed(method: &Method, path: &str) -> Need {
    if matches!(path, "/healthz" | "/readyz" | "/version" | "/openapi.json") {
        return Need::Open;
    }
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let Some(rest) = path.strip_prefix("/v1/") else {
        return Need::Scope(if path == "/metrics" && is_read { Scope::Read } else { Scope::Admin });
    };
    let resource = rest.split('/').next().unwrap_or("");
    match resource {
        "uploads" if *method == Method::PUT => Need::Scope(Scope::Submit),
        "tasks" | "batches" | "sessions" => Need::Scope(if is_read { Scope::Read } else { Scope::Submit }),
        "agents" | "lanes" | "stats" | "events" | "config" | "drain" if is_read => Need::Scope(Scope::Read),
        _ => Need::Scope(Scope::Admin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_asks_for_its_scope() {
        let table = [
            ("GET", "/healthz", Need::Open),
            ("GET", "/readyz", Need::Open),
            ("GET", "/version", Need::Open),
            ("GET", "/metrics", Need::Scope(Scope::Read)),
            ("GET", "/v1/tasks", Need::Scope(Scope::Read)),
            ("GET", "/v1/tasks/x/logs", Need::Scope(Scope::Read)),
            ("POST", "/v1/tasks", Need::Scope(Scope::Submit)),
            ("DELETE", "/v1/tasks/x", Need::Scope(Scope::Submit)),
            ("PATCH", "/v1/tasks/x", Need::Scope(Scope::Submit)),
            ("POST", "/v1/batches", Need::Scope(Scope::Submit)),
            ("POST", "/v1/tasks/x/input", Need::Scope(Scope::Submit)),
            ("POST", "/v1/tasks/x/heartbeat", Need::Scope(Scope::Submit)),
            ("PUT", "/v1/uploads", Need::Scope(Scope::Submit)),
            ("GET", "/v1/uploads", Need::Scope(Scope::Admin)),
            ("GET", "/v1/tasks/x/artifacts/a/b", Need::Scope(Scope::Read)),
            ("GET", "/v1/sessions/a%2Fb", Need::Scope(Scope::Read)),
            ("PUT", "/v1/sessions/k", Need::Scope(Scope::Submit)),
            ("POST", "/v1/sessions/k/stopall", Need::Scope(Scope::Submit)),
            ("GET", "/v1/config", Need::Scope(Scope::Read)),
            ("PATCH", "/v1/config", Need::Scope(Scope::Admin)),
            ("PUT", "/v1/lanes/main", Need::Scope(Scope::Admin)),
            ("POST", "/v1/drain", Need::Scope(Scope::Admin)),
            ("GET", "/v1/keys", Need::Scope(Scope::Admin)),
            ("POST", "/v1/backup", Need::Scope(Scope::Admin)),
            ("GET", "/v1/unknown", Need::Scope(Scope::Admin)),
            ("GET", "/elsewhere", Need::Scope(Scope::Admin)),
        ];
        for (method, path, need) in table {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(needed(&method, path), need, "{method} {path}");
        }
    }
}
