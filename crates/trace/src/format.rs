//! The file format of traces, version 3, as `docs/reference/trace.md` describes it.
//!
//! A trace is a magic number, a version, and frames with a checksum each. A writer can therefore end anywhere, and a
//! reader gets every whole frame. Numbers are LEB128, because most of them are small. The format knows nothing of the
//! kernel.

mod encoding;
mod frame;
mod reader;
mod writer;

pub use frame::{MAGIC, PAYLOAD_BYTES_MAX, VERSION};
pub use reader::Reader;
pub use writer::Writer;
pub(crate) use writer::end_frame;
