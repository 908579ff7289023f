//! REST `/v1`. Handlers are thin: read the request, ask the scheduler or the store, show the answer.

mod apart;
mod artifacts;
mod audit;
mod batches;
mod cancel;
mod config;
mod drain;
mod events;
mod extract;
mod guard;
mod health;
mod heartbeat;
mod input;
mod keys;
mod lobby;
mod logs;
mod nodes;
mod openapi;
mod parents;
mod schedules;
mod secrets;
mod sessions;
mod settings;
mod stats;
mod stream;
mod sync;
mod tail;
mod tasks;
mod uploads;
mod wait;
mod webhooks;
mod worker_files;
mod workers;

pub use batches::batch_view;
pub use extract::BATCH_BODY_BYTES_MAX;
pub use lobby::{Reception, router as lobby_router};
pub use openapi::openapi_json;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

pub fn router(app: Arc<App>) -> Router {
    let (router, _) = api().split_for_parts();
    router
        // Between nodes: no part of the API.
        .route("/v1/nodes/commits", get(nodes::commits))
        .route(crate::nodes::SELF, get(nodes::own_id))
        .route("/v1/nodes/progress", get(nodes::progress))
        .route("/v1/nodes/used", post(nodes::used))
        .route("/v1/nodes/sealing-key", get(nodes::sealing_key))
        .fallback(guard::no_route)
        .method_not_allowed_fallback(guard::method_not_allowed)
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::guard))
        .layer(CatchPanicLayer::custom(guard::panicked))
        .with_state(app)
}

/// Every route there is. The OpenAPI document is made from the same list.
fn api() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(openapi::info())
        .routes(routes!(tasks::create, tasks::list))
        .routes(routes!(cancel::by_filter))
        .routes(routes!(tasks::show, tasks::change, cancel::by_delete))
        .routes(routes!(cancel::by_post))
        .routes(routes!(tasks::retry))
        .routes(routes!(wait::wait))
        .routes(routes!(tasks::explain))
        .routes(routes!(logs::logs))
        .routes(routes!(tasks::history))
        .routes(routes!(artifacts::list))
        .routes(routes!(artifacts::file))
        .routes(routes!(uploads::create))
        .routes(routes!(input::input))
        .routes(routes!(heartbeat::heartbeat))
        .routes(routes!(input::messages))
        .routes(routes!(batches::create))
        .routes(routes!(batches::show))
        .routes(routes!(cancel::of_batch))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::show, sessions::put))
        .routes(routes!(sessions::put_context))
        .routes(routes!(sessions::stop))
        .routes(routes!(sessions::stop_all))
        .routes(routes!(sessions::reset))
        .routes(routes!(schedules::create, schedules::list))
        .routes(routes!(schedules::preview))
        .routes(routes!(schedules::show, schedules::change, schedules::remove))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::run))
        .routes(routes!(schedules::runs))
        .routes(routes!(workers::join, workers::list))
        .routes(routes!(workers::show, workers::remove))
        .routes(routes!(workers::register))
        .routes(routes!(sync::sync))
        .routes(routes!(worker_files::upload))
        .routes(routes!(worker_files::artifact))
        .routes(routes!(workers::drain))
        .routes(routes!(workers::resume))
        .routes(routes!(settings::agents))
        .routes(routes!(settings::put_agent))
        .routes(routes!(settings::lanes))
        .routes(routes!(settings::put_lane))
        .routes(routes!(stats::stats))
        .routes(routes!(webhooks::list))
        .routes(routes!(webhooks::show))
        .routes(routes!(webhooks::replay))
        .routes(routes!(webhooks::secret))
        .routes(routes!(webhooks::rotate))
        .routes(routes!(config::show, config::patch))
        .routes(routes!(config::schema))
        .routes(routes!(events::events))
        .routes(routes!(drain::show, drain::set))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .routes(routes!(secrets::list))
        .routes(routes!(secrets::put, secrets::remove))
        .routes(routes!(drain::backup))
        .routes(routes!(nodes::list))
        .routes(routes!(audit::audit))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::version))
        .routes(routes!(health::metrics))
        .routes(routes!(openapi::document))
}
