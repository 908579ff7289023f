//! `/openapi.json`, generated from the handlers and the wire types.

use std::sync::OnceLock;

use axum::http::{HeaderName, header};
use runyard_wire::{PROBLEM_CONTENT_TYPE, Problem};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, License, OpenApi, OpenApiBuilder, RefOr, ResponseBuilder,
    SecurityRequirement,
};
use utoipa::{PartialSchema, ToSchema};

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
        add_problems(&mut api);
        name_plainly(&mut api);
        api.to_json().expect("the document is plain data")
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

/// Every operation may answer with a problem; said once here instead of at each of them.
fn add_problems(api: &mut OpenApi) {
    let problem = RefOr::Ref(utoipa::openapi::Ref::from_schema_name(Problem::name()));
    let content = ContentBuilder::new().schema(Some(problem)).build();
    let response = ResponseBuilder::new().description("What went wrong").content(PROBLEM_CONTENT_TYPE, content).build();
    for operation in api.paths.paths.values_mut().flat_map(operations) {
        operation.responses.responses.entry("default".to_owned()).or_insert_with(|| RefOr::T(response.clone()));
    }
}

/// The router writes a rest of a path as `{*path}`, the document as `{path}`.
fn name_plainly(api: &mut OpenApi) {
    let paths = std::mem::take(&mut api.paths.paths);
    api.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
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
            assert!(operation["responses"]["default"].is_object(), "{method} {path}");
        }
        assert!(api["components"]["schemas"]["TaskRequest"]["properties"]["dependsOn"].is_object());
        assert!(api["components"]["schemas"]["Problem"].is_object());
        assert_eq!(api["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
        assert_eq!(api["info"]["title"], "Runyard");
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
