//! The configuration in force, and its patch.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use runyard_wire::{ConfigPatch, ConfigView};
use serde_json::Value;

use super::extract::Body;
use crate::access::Caller;
use crate::app::App;
use crate::audit::Entry;
use crate::config::{Merged, json_schema, redacted};
use crate::problem::Error;

/// The configuration in force, and where each value comes from.
#[utoipa::path(get, path = "/v1/config", tag = "configuration",
    responses((status = 200, description = "Values and origins", body = ConfigView)))]
pub async fn show(State(app): State<Arc<App>>) -> Json<ConfigView> {
    Json(config_view(&app.config.current()))
}

/// Patch the configuration (RFC 7396), over the file and kept over restarts; `null` takes an earlier patch back.
#[utoipa::path(patch, path = "/v1/config", tag = "configuration", request_body = ConfigPatch,
    responses((status = 200, description = "The configuration now in force", body = ConfigView)))]
pub async fn patch(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    body: Body<ConfigPatch>,
) -> Result<Json<ConfigView>, Error> {
    app.patch_config(&caller.actor, Entry::new("config.patched"), body.value.0).await?;
    Ok(Json(config_view(&app.config.current())))
}

/// The JSON schema of the configuration.
#[utoipa::path(get, path = "/v1/config/schema", tag = "configuration",
    responses((status = 200, description = "A JSON schema", body = Object)))]
pub async fn schema() -> Json<Value> {
    Json(json_schema())
}

fn config_view(merged: &Merged) -> ConfigView {
    let origins = merged.origins.iter().map(|(path, origin)| (path.clone(), origin.as_str().to_owned()));
    ConfigView { values: redacted(merged.values.clone()), origins: origins.collect() }
}
