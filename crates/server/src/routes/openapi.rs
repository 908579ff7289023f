//! `/openapi.json`, generated from the handlers and the wire types.

mod bounds;
mod links;
mod problems;

use std::sync::OnceLock;

use axum::http::{HeaderName, Method, header};
use runyard_wire::Problem;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, InfoBuilder, License, OpenApi, OpenApiBuilder, SecurityRequirement};
use utoipa::{PartialSchema, ToSchema};

use crate::access::{Need, needed};

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "health", responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub async fn document() -> ([(HeaderName, &'static str); 1], &'static str) {
    ([(header::CONTENT_TYPE, "application/json")], openapi_json())
}

/// The document as text, made once.
pub fn openapi_json() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut api = super::api().into_openapi();
        name_plainly(&mut api);
        open_health(&mut api);
        let mut document = serde_json::to_value(api).expect("the document is plain data");
        problems::add(&mut document);
        bounds::add(&mut document);
        links::add(&mut document);
        document.to_string()
    })
}

pub fn info() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Runyard")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "One scheduler for the work of AI agents. Errors are RFC 9457 problem+json with a stable `code`.",
        ))
        .license(Some(License::new("Apache-2.0")));
    let mut components = Components::new();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A key, as `ry_…`")).build();
    components.add_security_scheme(BEARER, SecurityScheme::Http(bearer));
    components.add_security_scheme(HEADER, SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key"))));
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    let keys = [SecurityRequirement::new(BEARER, NO_SCOPES), SecurityRequirement::new(HEADER, NO_SCOPES)];
    OpenApiBuilder::new().info(info).components(Some(components)).security(Some(keys)).build()
}

const BEARER: &str = "bearer";
const HEADER: &str = "apiKey";
const NO_SCOPES: [&str; 0] = [];

/// The router writes a rest of a path as `{*path}`, the document as `{path}`.
fn name_plainly(api: &mut OpenApi) {
    let paths = std::mem::take(&mut api.paths.paths);
    api.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
}

/// A key is asked for everywhere but where none is needed.
fn open_health(api: &mut OpenApi) {
    let is_open = |path: &str| needed(&Method::GET, path) == Need::Open;
    for (_, item) in api.paths.paths.iter_mut().filter(|(path, _)| is_open(path)) {
        operations(item).for_each(|operation| operation.security = Some(Vec::new()));
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_document_names_every_route_and_its_types() {
        let api: Value = serde_json::from_str(openapi_json()).expect("JSON");
        for (path, method) in [
            ("/v1/tasks", "post"),
            ("/v1/tasks", "get"),
            ("/v1/tasks/{id}", "patch"),
            ("/v1/tasks/{id}", "delete"),
            ("/v1/tasks/cancel", "post"),
            ("/v1/tasks/{id}/logs", "get"),
            ("/v1/batches/{id}/cancel", "post"),
            ("/v1/lanes/{name}", "put"),
            ("/v1/events", "get"),
            ("/v1/tasks/{id}/input", "post"),
            ("/v1/tasks/{id}/messages", "get"),
            ("/v1/tasks/{id}/heartbeat", "post"),
            ("/v1/sessions", "get"),
            ("/v1/sessions/{key}", "put"),
            ("/v1/sessions/{key}/context", "put"),
            ("/v1/sessions/{key}/stopall", "post"),
            ("/v1/keys/{id}", "delete"),
            ("/v1/uploads", "put"),
            ("/v1/tasks/{id}/artifacts", "get"),
            ("/v1/tasks/{id}/artifacts/{path}", "get"),
            ("/readyz", "get"),
        ] {
            let operation = &api["paths"][path][method];
            assert!(operation["responses"]["500"].is_object(), "{method} {path}");
        }
        assert!(api["components"]["schemas"]["TaskRequest"]["properties"]["dependsOn"].is_object());
        assert!(api["components"]["schemas"]["Problem"].is_object());
        assert_eq!(api["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
        assert_eq!(api["info"]["title"], "Runyard");
        assert_eq!(api["paths"]["/healthz"]["get"]["security"], serde_json::json!([]));
        assert!(api["paths"]["/v1/tasks"]["get"]["security"].is_null(), "what holds for all");
    }

    #[test]
    fn operations_have_names_of_their_own_and_links_lead_to_them() {
        let api: Value = serde_json::from_str(openapi_json()).expect("JSON");
        let items = api["paths"].as_object().expect("paths").values();
        let ids: Vec<_> = items.flat_map(|item| item.as_object().expect("operations").values()).collect();
        let ids: Vec<_> = ids.iter().map(|operation| operation["operationId"].as_str().expect("a name")).collect();
        let unique: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len(), "{ids:?}");
        let links = &api["paths"]["/v1/tasks"]["post"]["responses"]["201"]["links"];
        assert_eq!(links["get_tasks_id_explain"]["parameters"]["id"], "$response.body#/id");
        for name in links.as_object().expect("links").keys() {
            assert!(unique.contains(&name.as_str()), "{name}");
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let text = openapi_json();
        let api: Value = serde_json::from_str(text).expect("JSON");
        for name in text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(api["components"]["schemas"][name].is_object(), "{name}");
        }
    }
}
