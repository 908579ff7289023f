//! Uploads as every node has them: copies lie on the disks of those who needed them, what counts is in the database.

use std::io;
use std::sync::Arc;

use runyard_exec::outcome::Failure;
use runyard_exec::workspace::{BoxFuture, Upload};
use runyard_exec::{Class, Job, Places, RemoteUploads, Signs};
use runyard_store::postgres::PgDepot;
use runyard_store::store;

#[derive(Clone)]
pub struct SharedUploads {
    depot: Arc<PgDepot>,
    places: Places,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the upload cannot be stored on this node")]
    Disk(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("a thread ended early")]
    Thread,
}

impl SharedUploads {
    pub fn new(depot: Arc<PgDepot>, places: Places) -> SharedUploads {
        SharedUploads { depot, places }
    }

    /// Keeps one that has just come in here, for all.
    pub async fn keep(&self, upload: &Upload) -> Result<(), Error> {
        let (id, bytes) = (upload.id, upload.bytes);
        self.apart(move |own| {
            let mut file = own.places.uploads().open(id)?;
            Ok(own.depot.keep_upload(id, bytes, &mut file)?)
        })
        .await
    }

    /// Has a copy here. False when there is no such upload.
    pub async fn bring(&self, id: u128, mut alive: impl FnMut()) -> Result<bool, Error> {
        let is_there = self.apart(move |own| Ok(own.depot.touch_upload(id)?)).await?;
        if !is_there || self.apart(move |own| Ok(own.places.uploads().touch(id).is_ok())).await? {
            return Ok(is_there);
        }
        let mut incoming = self.apart(|own| Ok(own.places.uploads().begin()?)).await?;
        for n in 0.. {
            alive();
            let fetch = move |own: &SharedUploads| -> Result<_, Error> {
                let Some(part) = own.depot.upload_part(id, n)? else { return Ok((incoming, false)) };
                incoming.write(&part)?;
                Ok((incoming, true))
            };
            let (next, has_more) = self.apart(fetch).await?;
            incoming = next;
            if !has_more {
                break;
            }
        }
        self.apart(move |_| Ok(incoming.finish_as(id)?)).await.map(|()| true)
    }

    async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SharedUploads) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let own = self.clone();
        tokio::task::spawn_blocking(move || work(&own)).await.map_err(|_| Error::Thread)?
    }
}

impl RemoteUploads for SharedUploads {
    fn bring<'a>(&'a self, _: &'a Job, upload: u128, signs: &'a dyn Signs) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            match SharedUploads::bring(self, upload, || signs.alive()).await {
                // Whoever opens it says that it is not there.
                Ok(_) => Ok(()),
                Err(Error::Store(error)) => Err(Failure::work(Class::Task, format!("upload: {error}"))),
                Err(error) => Err(Failure::worker(error.to_string())),
            }
        })
    }
}
