//! A store in memory that fails as a test wants it.

use std::{
    fmt,
    future::pending,
    ops::Range,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use futures_util::{FutureExt as _, StreamExt as _, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart, memory::InMemory, path::Path,
};

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// An error, and nothing was done.
    Before,
    /// An error, and everything was done.
    After,
    /// No answer.
    Hangs,
    /// The last bytes are missing, of what is read or written, without an error.
    Cut,
    /// One bit is another, likewise.
    Spoilt,
    /// An object is said to be one byte smaller than it is.
    Smaller,
    /// An object is said to be one byte larger than it is.
    Larger,
}

pub(super) const FAULTS: [Fault; 7] = [
    Fault::Before,
    Fault::After,
    Fault::Hangs,
    Fault::Cut,
    Fault::Spoilt,
    Fault::Smaller,
    Fault::Larger,
];

/// Decides how the request with this number fails, on this object.
type Plan = Box<dyn FnMut(u64, &Path) -> Option<Fault> + Send>;

pub(super) struct Faulty {
    pub(super) inner: Arc<InMemory>,
    shared: Arc<Shared>,
}

struct Shared(Mutex<(u64, Plan)>);

impl Shared {
    fn request(&self, key: &Path) -> Option<Fault> {
        let (calls, plan) = &mut *self.0.lock().unwrap();
        *calls += 1;
        plan(*calls, key)
    }
}

impl Faulty {
    pub(super) fn new() -> Arc<Faulty> {
        let shared = Shared(Mutex::new((0, Box::new(|_, _| None))));
        Arc::new(Faulty { inner: Arc::default(), shared: Arc::new(shared) })
    }

    /// The same objects, without faults.
    pub(super) fn besides(&self) -> Arc<Faulty> {
        Arc::new(Faulty { inner: self.inner.clone(), ..Arc::into_inner(Faulty::new()).unwrap() })
    }

    /// Fails like this from now on. Requests are counted from 1 again.
    pub(super) fn fails(&self, plan: impl FnMut(u64, &Path) -> Option<Fault> + Send + 'static) {
        *self.shared.0.lock().unwrap() = (0, Box::new(plan));
    }

    /// Returns the number of requests.
    pub(super) fn requests(&self) -> u64 {
        self.shared.0.lock().unwrap().0
    }
}

fn error<T>() -> Result<T> {
    Err(Error::Generic { store: "test", source: "it fails".into() })
}

/// What is left of a payload.
fn spoil(payload: &PutPayload, fault: Option<Fault>) -> PutPayload {
    let mut bytes: Vec<u8> = payload.iter().flat_map(|piece| piece.to_vec()).collect();
    match fault {
        Some(Fault::Cut) => bytes.truncate(bytes.len().saturating_sub(4)),
        Some(Fault::Spoilt) => {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        _ => {}
    }
    bytes.into()
}

/// Does something, or fails.
async fn perform<T>(fault: Option<Fault>, work: impl Future<Output = Result<T>>) -> Result<T> {
    match fault {
        Some(Fault::Before) => error(),
        Some(Fault::Hangs) => pending().await,
        Some(Fault::After) => match work.await {
            Ok(_) => error(),
            failed => failed,
        },
        _ => work.await,
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        key: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let fault = self.shared.request(key);
        perform(fault, self.inner.put_opts(key, spoil(&payload, fault), options)).await
    }

    async fn put_multipart_opts(
        &self,
        key: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let fault = self.shared.request(key);
        let inner = perform(fault, self.inner.put_multipart_opts(key, options)).await?;
        let (key, shared) = (key.clone(), self.shared.clone());
        Ok(Box::new(Upload { inner, key, shared }))
    }

    async fn get_opts(&self, key: &Path, options: GetOptions) -> Result<GetResult> {
        let fault = self.shared.request(key);
        let is_head = options.head;
        let mut result = perform(fault, self.inner.get_opts(key, options)).await?;
        match fault {
            Some(Fault::Smaller) => result.meta.size = result.meta.size.saturating_sub(1),
            Some(Fault::Larger) => result.meta.size += 1,
            Some(Fault::Cut | Fault::Spoilt) if !is_head => {
                let (meta, range) = (result.meta.clone(), result.range.clone());
                let (attributes, extensions) =
                    (result.attributes.clone(), result.extensions.clone());
                let payload = spoil(&result.bytes().await?.into(), fault);
                let pieces: Vec<_> = payload.iter().cloned().map(Ok).collect();
                let payload = GetResultPayload::Stream(futures_util::stream::iter(pieces).boxed());
                result = GetResult { payload, meta, range, attributes, extensions };
            }
            _ => {}
        }
        Ok(result)
    }

    async fn get_ranges(&self, key: &Path, ranges: &[Range<u64>]) -> Result<Vec<bytes::Bytes>> {
        self.inner.get_ranges(key, ranges).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(keys)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

struct Upload {
    inner: Box<dyn MultipartUpload>,
    key: Path,
    shared: Arc<Shared>,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upload")
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let fault = self.shared.request(&self.key);
        perform(fault, self.inner.put_part(spoil(&data, fault))).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let fault = self.shared.request(&self.key);
        perform(fault, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        let fault = self.shared.request(&self.key);
        perform(fault, self.inner.abort()).await
    }
}
