//! Completion-based I/O on Linux: io_uring where it pays, classic calls with the same meaning
//! where it is missing, forbidden or slower.
//!
//! A [`Local`] is one thread's event loop. Operations are values that own their buffers,
//! descriptors and paths; push as many as you like, submit them with one system call, take the
//! completions in whatever order they come:
//!
//! ```
//! use ringwise::{Descriptor, Local, Operation};
//!
//! let mut local = Local::new()?;
//! println!("running on {}", local.setup().backend());
//! if let Some(reason) = local.setup().fallback() {
//!     println!("because {reason}");
//! }
//!
//! let path = std::env::temp_dir().join(format!("ringwise-example-{}", std::process::id()));
//! let file = std::fs::File::options().create_new(true).read(true).write(true).open(&path)?;
//! let file = Descriptor::from(file);
//! local.run(Operation::write_at(&file, b"hello".to_vec(), 0))?.result()?;
//! local.run(Operation::sync_data(&file))?.result()?;
//!
//! let done = local.run(Operation::read_at(&file, vec![0; 5], 0))?;
//! assert_eq!(done.result()?, 5);
//! assert_eq!(done.into_buffer().unwrap().as_slice(), b"hello");
//! std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//!
//! - What the kernel may touch is owned by the loop until the kernel is done with it, whatever
//!   becomes of its user. The invariants are numbered in docs/ownership.md.
//! - Nothing is silently dropped: refused flags, fallbacks and polling modes without effect can be
//!   read from [`Setup`], and every error keeps its number, its path or descriptor, and its offset.
//! - All backends pass one test suite, the simulated one of the feature `sim` among them: with it,
//!   code that stores data can be tested against what kernels and disks do rarely.
//!
//! # What it does not do
//!
//! It starts no runtime and picks no executor, and it does not hide a short read or write.
//! It needs a 64-bit Linux; the ring backend needs 5.11, and everything works without it.

#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("ringwise needs a 64-bit Linux");

mod backend;
mod buf;
mod call;
mod completion;
mod descriptor;
mod error;
pub mod fs;
mod local;
mod metadata;
pub mod net;
mod op;
mod registry;
mod ring;
mod setup;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(not(feature = "sim"))]
#[path = "sim/absent.rs"]
mod sim;
mod slot;
mod stats;
mod sync;
mod sys;

pub use buf::{
    AlignedBuf, BufResult, Buffer, BufferGroup, Custom, Mapping, OwnedBuffer, OwnedBufferMut, Part,
    Pool, PoolBuf, Received, Registration, Spare, StableBytes, StableBytesMut,
};
pub use completion::Completion;
pub use descriptor::{Descriptor, RegisteredFile, Target};
pub use error::{AcceptFailure, Errno, Error, ErrorKind, LinkError, PushError, PushRefusal};
pub use local::{Leaked, Local};
pub use metadata::{DirectAlignment, Metadata};
pub use op::{AllocateMode, Opcode, OpenOptions, Operation};
pub use ring::{Deadline, Pending, Ring, RingStats};
pub use setup::{
    Backend, BackendChoice, Builder, Effect, FallbackReason, Setup, SetupError, SetupFlags,
};
pub use slot::Ticket;
pub use stats::Stats;
#[cfg(feature = "standard-streams")]
pub use sys::streams::{StandardStream, was_closed_at_start};
pub use sys::{
    cache::{CacheState, drop_page_cache, page_cache},
    extent::{Extent, extents},
};
