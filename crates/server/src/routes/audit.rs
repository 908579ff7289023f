//! Who changed what.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use runyard_wire::{AuditView, ListPage};
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::{Params, cursor, page_limit};
use crate::app::App;
use crate::audit;
use crate::problem::Error;

#[derive(Deserialize, IntoParams, Default)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct AuditParams {
    /// 1 to 1000; default 100.
    limit: Option<usize>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
}

/// Changes of configuration, agents, lanes, sessions, keys, secrets and drain, latest first.
#[utoipa::path(get, path = "/v1/audit", tag = "operation", params(AuditParams),
    responses((status = 200, description = "One page", body = ListPage<AuditView>)))]
pub async fn audit(
    State(app): State<Arc<App>>,
    Params(params): Params<AuditParams>,
) -> Result<Json<ListPage<AuditView>>, Error> {
    let limit = page_limit(params.limit)?;
    let before = cursor(params.cursor.as_deref())?;
    let read = app.audit.list(before, limit).await;
    let (items, more) = read.map_err(|error| match error {
        audit::Error::Store(error) => Error::Store(error),
        audit::Error::Files(error) => {
            tracing::error!(target: "runyard::audit", %error, "the audit log cannot be read");
            Error::Internal("the audit log cannot be read; the server's log says why".into())
        }
    })?;
    let last = items.last().map(|entry| entry.n.to_string());
    Ok(Json(ListPage { items, next_cursor: last.filter(|_| more) }))
}
