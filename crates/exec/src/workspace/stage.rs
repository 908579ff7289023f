//! Puts the files of a payload into a fresh working directory.

use std::fs::File;
use std::io::{self, Read, Write};

use reqwest::{Response, Url};
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;

use super::budget::{Budget, Hindrance};
use super::files::{FileSource, FileSpec, Form};
use super::folder::{Executable, Folder};
use super::path::InnerPath;
use super::unpack::unpack;
use crate::http::{Http, next_chunk};
use crate::job::{Job, Signs};
use crate::outcome::Failure;
use crate::places::Places;
use crate::workspace::RemoteUploads;

const CHUNK_BYTES: usize = 64 * 1024;

/// A working directory that is being filled.
pub(super) struct Stage {
    pub root: Folder,
    pub budget: Budget,
    halt: CancellationToken,
}

impl Stage {
    pub(super) fn new(places: &Places, job: &Job, halt: CancellationToken) -> io::Result<Stage> {
        Ok(Stage { root: Folder::open(&places.work_dir(job.task))?, budget: Budget::new(&job.workspace), halt })
    }

    #[cfg(test)]
    pub(super) fn at(dir: &std::path::Path, rules: &super::rules::WorkspaceRules) -> io::Result<Stage> {
        Ok(Stage { root: Folder::open(dir)?, budget: Budget::new(rules), halt: CancellationToken::new() })
    }

    /// Asked between any two steps of what takes long.
    pub(super) fn go_on(&self) -> Result<(), Hindrance> {
        if self.halt.is_cancelled() { Err(Hindrance::Halted) } else { Ok(()) }
    }

    fn write(&mut self, path: &InnerPath, mut content: impl Read) -> Result<(), Hindrance> {
        let mut file = self.create(path, Executable::No)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            self.go_on()?;
            let n = content.read(&mut chunk)?;
            if n == 0 {
                return Ok(());
            }
            self.budget.take_bytes(n)?;
            file.write_all(&chunk[..n])?;
        }
    }
}

/// What staging needs beside the directory.
pub(super) struct Sources<'a> {
    pub places: &'a Places,
    pub http: &'a Http,
    pub signs: &'a dyn Signs,
    pub job: &'a Job,
    pub remote: Option<&'a dyn RemoteUploads>,
}

impl Sources<'_> {
    pub(super) async fn put_all(&self, mut stage: Stage, files: Vec<FileSpec>) -> Result<(), Hindrance> {
        for (at, file) in files.into_iter().enumerate() {
            let subject = format!("files[{at}] `{}`", file.path);
            stage = self.put(stage, file).await.map_err(|why| why.of(&subject))?;
        }
        Ok(())
    }

    async fn put(&self, stage: Stage, FileSpec { source, path, form }: FileSpec) -> Result<Stage, Hindrance> {
        match (source, form) {
            (FileSource::Inline(text), _) => apart(stage, move |stage| stage.write(&path, text.as_bytes())).await,
            (FileSource::Upload(id), form) => {
                self.bring(id, &stage.halt).await?;
                let upload = self.places.uploads().open(id);
                apart(stage, move |stage| {
                    let upload = upload.map_err(|error| no_upload(id, error))?;
                    match form {
                        Form::AsItIs => stage.write(&path, upload),
                        Form::Unzipped => unpack(upload, &path, stage),
                    }
                })
                .await
            }
            (FileSource::Url(url), Form::AsItIs) => {
                let mut stage = stage;
                let file = stage.create(&path, Executable::No)?;
                self.download(url, file, &mut stage).await?;
                Ok(stage)
            }
            (FileSource::Url(url), Form::Unzipped) => {
                let mut stage = stage;
                let whole = stage.budget;
                // Without a name, so that nothing is left of it whatever happens.
                let archive = tempfile::tempfile_in(self.places.work_root())?;
                let archive = self.download(url, archive, &mut stage).await?;
                // What counts is what comes out of it.
                stage.budget = whole;
                apart(stage, move |stage| unpack(archive, &path, stage)).await
            }
        }
    }

    /// From where it was handed in, when that is not here.
    async fn bring(&self, id: u128, halt: &CancellationToken) -> Result<(), Hindrance> {
        let Some(remote) = self.remote.filter(|_| self.places.uploads().touch(id).is_err()) else { return Ok(()) };
        tokio::select! {
            biased;
            () = halt.cancelled() => Err(Hindrance::Halted),
            brought = remote.bring(self.job, id, self.signs) => Ok(brought?),
        }
    }

    async fn download(&self, url: Url, into: File, stage: &mut Stage) -> Result<File, Hindrance> {
        let halt = stage.halt.clone();
        let fetch = async {
            let target = format!("GET {url}");
            let mut response = self.http.fetch(url).await?;
            self.store(&mut response, into, stage).await.map_err(|why| why.of(&target))
        };
        tokio::select! {
            biased;
            () = halt.cancelled() => Err(Hindrance::Halted),
            stored = fetch => stored,
        }
    }

    async fn store(&self, response: &mut Response, into: File, stage: &mut Stage) -> Result<File, Hindrance> {
        let mut file = tokio::fs::File::from_std(into);
        let mut n_bytes = 0;
        while let Some(chunk) = next_chunk(response, n_bytes).await? {
            self.signs.alive();
            n_bytes += chunk.len() as u64;
            stage.budget.take_bytes(chunk.len())?;
            file.write_all(&chunk).await?;
        }
        file.flush().await?;
        Ok(file.into_std().await)
    }
}

/// On a thread where waiting for the disk holds nobody up.
async fn apart(
    mut stage: Stage,
    work: impl FnOnce(&mut Stage) -> Result<(), Hindrance> + Send + 'static,
) -> Result<Stage, Hindrance> {
    let done = tokio::task::spawn_blocking(move || work(&mut stage).map(|()| stage)).await;
    done.unwrap_or_else(|_| Err(Failure::worker("staging ended without an answer").into()))
}

fn no_upload(id: u128, error: io::Error) -> Hindrance {
    let id = crate::job::task_text(id);
    match error.kind() {
        io::ErrorKind::NotFound => Hindrance::for_good(format!("upload {id} is not there, or not any more")),
        _ => Failure::worker(format!("upload {id} cannot be read: {error}")).into(),
    }
}
