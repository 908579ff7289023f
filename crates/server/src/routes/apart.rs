//! Work on files, away from the threads that serve requests: the disk may make it wait.

use std::io;

pub async fn apart<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other).and_then(|done| done)
}
