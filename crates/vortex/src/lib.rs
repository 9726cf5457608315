//! Reads Vortex files through a [`ringwise::Ring`].
//!
//! [`FileSource`] is a [`VortexReadAt`](vortex_io::VortexReadAt), so it goes where Vortex's own
//! [`FileReadAt`](vortex_io::std_file::FileReadAt) goes, as the source of `vortex_file`'s `open`:
//!
//! ```
//! use std::sync::Arc;
//! use futures::TryStreamExt;
//! use ringwise::Ring;
//! use ringwise_vortex::FileSource;
//! use vortex_array::{IntoArray, array_session, arrays::StructArray};
//! use vortex_buffer::buffer;
//! use vortex_file::{OpenOptionsSessionExt, WriteOptionsSessionExt, register_default_encodings};
//! use vortex_io::session::{RuntimeSession, RuntimeSessionExt};
//! use vortex_layout::session::LayoutSession;
//!
//! # let runtime = tokio::runtime::Runtime::new().unwrap();
//! # runtime.block_on(async {
//! let session = array_session().with::<LayoutSession>().with::<RuntimeSession>().with_tokio();
//! register_default_encodings(&session);
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("table.vortex");
//! # let numbers = buffer![1_i64, 2, 3].into_array();
//! # let table = StructArray::from_fields(&[("number", numbers)])?.into_array();
//! # let mut bytes = Vec::new();
//! # let options = session.write_options().disable_editions();
//! # options.write(&mut bytes, table.to_array_stream()).await?;
//! # std::fs::write(&path, bytes)?;
//! let ring = Ring::new()?;
//! let source = FileSource::open(&ring, &path).await?;
//! let file = session.open_options().open(Arc::new(source)).await?;
//! let chunks: Vec<_> = file.scan()?.into_array_stream()?.try_collect().await?;
//! assert_eq!(chunks.iter().map(|chunk| chunk.len()).sum::<usize>(), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! - All reads that Vortex asks for are in flight at the same time, without a thread for each.
//! - The bytes go from the kernel into the memory that Vortex gets, with the alignment that it asks for.
//!   Nothing copies them in between.
//!
//! The crate does not write Vortex files, and it does not decode them.

#![forbid(unsafe_code)]

mod source;

pub use source::FileSource;
