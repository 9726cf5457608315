//! Reads Parquet files for the `parquet` crate through a [`ringwise::Ring`].
//!
//! [`ParquetFile`] is an [`AsyncFileReader`], so it goes where `tokio::fs::File` goes:
//!
//! ```
//! use futures_util::TryStreamExt;
//! use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
//! use ringwise::Ring;
//! use ringwise_parquet::ParquetFile;
//!
//! # use std::sync::Arc;
//! # use arrow_array::{ArrayRef, Int64Array, RecordBatch};
//! # let runtime = tokio::runtime::Runtime::new().unwrap();
//! # runtime.block_on(async {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("table.parquet");
//! # let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
//! # let table = RecordBatch::try_from_iter([("number", numbers.clone()), ("other", numbers)])?;
//! # let new = std::fs::File::create(&path)?;
//! # let mut writer = parquet::arrow::ArrowWriter::try_new(new, table.schema(), None)?;
//! # writer.write(&table)?;
//! # writer.close()?;
//! let ring = Ring::new()?;
//! let file = ParquetFile::open(&ring, &path).await?;
//! let builder = ParquetRecordBatchStreamBuilder::new(file).await?;
//! let columns = ProjectionMask::columns(builder.parquet_schema(), ["number"]);
//! let batches: Vec<_> = builder.with_projection(columns).build()?.try_collect().await?;
//! assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1000);
//! assert_eq!(batches[0].num_columns(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! - All ranges of a request are in flight at the same time. Ranges that overlap or touch are one read;
//!   [`ParquetFileOptions::gap`] joins near ones too.
//! - The bytes go from the kernel into the memory that the decoder gets. Nothing copies them in between.
//! - The metadata of a file is parsed once and shared by all clones of its [`ParquetFile`]. A
//!   [`MetadataCache`] shares it between files that are opened again and again.
//! - A file that changes while it is read is an error, and never a mixture of two tables.
//!
//! The crate does not write Parquet files, and it does not decode them.
//!
//! # Features
//!
//! `encryption` forwards to the feature of the same name of the `parquet` crate. If a program reads
//! encrypted files, turn it on here too. Otherwise readers without a key can get the metadata that a reader
//! with a key has decrypted, because this crate does not see that there is a key.
//!
//! [`AsyncFileReader`]: parquet::arrow::async_reader::AsyncFileReader

#![forbid(unsafe_code)]

mod ahead;
mod cache;
mod error;
mod file;
mod indexes;
mod options;
mod ranges;
mod source;
mod version;

pub use cache::MetadataCache;
pub use error::Error;
pub use file::ParquetFile;
pub use options::ParquetFileOptions;
