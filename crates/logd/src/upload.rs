//! Uploads sealed segments to object storage, and fetches them back.
//!
//! A thread takes the segments that the keeper found (`progress`), one after the other, the oldest first. It copies the
//! lines as one zstd frame, and then the index, to a store behind the crate `object_store` (`place`), reads both back
//! and compares them with the local index (`copy`), and writes a record beside the segment (`record`). Retention keeps
//! segments without a record. Storing and acknowledging never wait for it: the segments are the buffer.
//!
//! Reading order: `progress`, `place`, `remote` (requests to a store), `copy`, `record`, `uploader` (the thread), `fetch`.

pub(crate) mod copy;
pub(crate) mod fetch;
pub(crate) mod place;
pub(crate) mod progress;
pub(crate) mod record;
pub(crate) mod remote;
pub(crate) mod uploader;

#[cfg(test)]
mod tests;
