//! An [`object_store::ObjectStore`] on local files. Reads go through a [`ringwise::Ring`]. A pool of
//! threads writes, lists and renames.
//!
#![cfg_attr(not(feature = "object_store_0_13"), doc = "```")]
#![cfg_attr(feature = "object_store_0_13", doc = "```ignore")]
//! use object_store::{ObjectStore, ObjectStoreExt, path::Path};
//! use ringwise_object_store::RingFileSystem;
//!
//! # let directory = tempfile::tempdir().unwrap();
//! # let runtime = tokio::runtime::Runtime::new().unwrap();
//! # runtime.block_on(async {
//! let store = RingFileSystem::new_with_prefix(&directory)?;
//! let location = Path::from("tables/events.bin");
//! store.put(&location, "hello, ring".into()).await?;
//! let ranges = store.get_ranges(&location, &[0..5, 7..11]).await?;
//! assert_eq!(ranges, ["hello", "ring"]);
//! # Ok::<(), object_store::Error>(())
//! # }).unwrap();
//! ```
//!
//! [`RingFileSystem`] has the constructors and options of `object_store::local::LocalFileSystem`, the same
//! names of files and the same entity tags. One can replace the other, also on a directory that both use.
//! `new` can fail, and [some operations differ](RingFileSystem#differences-from-localfilesystem), for example
//! on symbolic links that lead out of the store.
//!
//! The feature `object_store_0_13` implements the trait of object_store 0.13 instead of 0.14.

#![forbid(unsafe_code)]

#[cfg(feature = "object_store_0_13")]
extern crate object_store_0_13 as object_store;

mod attributes;
mod change;
mod failure;
mod filesystem;
mod list;
mod location;
mod object;
mod read;
mod root;
mod staged;
mod store;
mod threads;

pub use store::RingFileSystem;
