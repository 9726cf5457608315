//! Uploads in parts, each with its place in a staged file.
//!
//! Parts are written by threads, one part of an upload at a time: the kernel makes the buffered writes of
//! a file one after the other, on a ring too, and writes that wait for each other cost CPU time.

use std::{
    fs::File,
    io, mem,
    os::unix::fs::FileExt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::FutureExt;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart, path::Path};

use super::{Publication, Staged};
use crate::{
    failure::{Failure, failed},
    threads::blocking,
};

#[derive(Debug)]
pub(crate) struct Upload {
    location: Path,
    stage: Stage,
    durable: bool,
    /// Where the next part goes.
    offset: u64,
    parts: usize,
    progress: Arc<Progress>,
}

#[derive(Debug)]
enum Stage {
    Open(Staged),
    /// Its completion failed, and nothing is left of it.
    Failed,
    /// It was completed or aborted.
    Over,
}

/// What the parts have in common.
#[derive(Debug, Default)]
struct Progress {
    /// Held during a write.
    turn: Mutex<()>,
    /// Parts that are written.
    written: AtomicUsize,
}

impl Upload {
    pub(crate) fn new(location: Path, staged: Staged, durable: bool) -> Upload {
        let progress = Arc::default();
        Upload { location, stage: Stage::Open(staged), durable, offset: 0, parts: 0, progress }
    }

    async fn publish(&self, staged: Staged) -> Result<PutResult> {
        if self.progress.written.load(Ordering::Acquire) != self.parts {
            staged.remove().await;
            return Err(Failure::Incomplete { location: self.location.to_string() }.into());
        }
        staged.publish(Publication { replaces: true, durable: self.durable }).await
    }
}

fn over(location: &Path) -> object_store::Error {
    Failure::Over { location: location.to_string() }.into()
}

impl Progress {
    fn write(&self, file: Arc<File>, data: &PutPayload, mut offset: u64) -> io::Result<()> {
        // The lock guards no data, so a panic leaves nothing half done.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        for bytes in data {
            file.write_all_at(bytes, offset)?;
            offset += bytes.len() as u64;
        }
        // A complete upload is the only owner of its file.
        drop(file);
        self.written.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

#[async_trait::async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let location = self.location.clone();
        let Stage::Open(staged) = &self.stage else {
            return async move { Err(over(&location)) }.boxed();
        };
        let (file, offset, progress) = (staged.file.clone(), self.offset, self.progress.clone());
        self.offset += data.content_length() as u64;
        self.parts += 1;
        blocking(move || {
            progress.write(file, &data, offset).map_err(|error| failed(&location, error))
        })
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let Stage::Open(staged) = mem::replace(&mut self.stage, Stage::Over) else {
            return Err(over(&self.location));
        };
        let published = self.publish(staged).await;
        if published.is_err() {
            self.stage = Stage::Failed;
        }
        published
    }

    async fn abort(&mut self) -> Result<()> {
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Open(staged) => staged.remove().await,
            // `WriteMultipart` aborts then. An error would take the place of that of the completion.
            Stage::Failed => {}
            Stage::Over => return Err(over(&self.location)),
        }
        Ok(())
    }
}
