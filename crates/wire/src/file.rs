//! Files: what is handed in before a task, and what a task leaves.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Id;

/// A file that tasks can name in `payload.files`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UploadView {
    /// For `upload` in `payload.files`.
    pub id: Id,
    /// Its length.
    pub bytes: u64,
    /// Of its content, in hexadecimal digits.
    pub sha256: String,
}

/// What was collected of a task's working directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactsView {
    /// In the order of their paths.
    pub items: Vec<ArtifactView>,
    /// What `payload.outputs` meant and was not collected.
    pub left_out: Vec<LeftOutView>,
}

/// One file that a task left.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactView {
    /// As it was in the working directory.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Of its content, in hexadecimal digits.
    pub sha256: String,
}

/// A file that was not collected.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftOutView {
    /// As it was in the working directory.
    pub path: String,
    /// In words for people.
    pub reason: String,
}
