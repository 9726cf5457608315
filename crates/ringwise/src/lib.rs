//! File and socket I/O for Linux, by io_uring or by classic syscalls with the same results.
//!
//! ```
//! use ringwise::{OpenOptions, Ring, fs::File};
//!
//! # futures::executor::block_on(async {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("notes");
//! let ring = Ring::new()?;
//! println!("running on {}", ring.setup().backend());
//!
//! let options = OpenOptions::new().read(true).write(true).create(true);
//! let file = File::open(&ring, &path, options).await?;
//! file.write_durable_at("hello", 0).await.into_result()?;
//! let (count, bytes) = file.read_at(vec![0; 64], 0).await.into_result()?;
//! assert_eq!(&bytes[..count], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! A buffer moves into its operation and comes back with the result, on failure too
//! ([`BufResult`]). `vec![0; n]` is filled within its length and `Vec::with_capacity(n)` within its
//! capacity ([`OwnedBufferMut`]).
//!
//! # Which type to use
//!
//! | you want to | use |
//! |---|---|
//! | read and write files from async tasks | [`fs::File`], or [`fs::read`] and [`fs::write`] for whole files |
//! | use tokio's or futures' stream traits on a file | [`fs::Cursor`]; [`fs::File::chunks`] reads ahead |
//! | append records durably from many tasks | [`fs::Journal`] |
//! | write and sync in a fixed order | [`fs::File::write_durable_at`], [`fs::File::chain`] |
//! | serve or connect from async tasks | [`net::TcpListener`], [`net::TcpStream`], [`net::UnixStream`], [`net::UdpSocket`] |
//! | run hyper, rustls or other code for streams over a ring's sockets (tokio's are faster: see [`net`]) | [`net::Buffered`] |
//! | make any other operation that has one result, from async tasks | [`Ring::submit`] with an [`Operation`] |
//! | write an event loop of your own, one for each thread | [`Local`] |
//! | test on a machine with faults | the module `sim` (feature `sim`) |
//!
//! [`Ring`] is a handle: clone it for every task and thread. [`Local`] belongs to one thread and costs
//! the least. [`Builder`] sets the queue depth, the backend and the limits of both.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | what it adds |
//! |---|---|
//! | `tokio` | a tokio runtime drives its rings; [`net::Buffered`] and [`fs::Cursor`] have tokio's stream traits |
//! | `futures-io` | [`net::Buffered`] and [`fs::Cursor`] have the stream traits of `futures-io`; [`fs::Chunks`] is a `Stream` |
//! | `bytes` | `bytes::Bytes` and `bytes::BytesMut` are buffers; the module `parts` splits a buffer for parallel reads |
//! | `tracing` | a span for each operation of a ring, and warnings on a fallback and when operations wait for room |
//! | `sim` | a simulated machine for tests |
//! | `standard-streams` | tells whether a standard stream was closed when the process began |
//!
//! # Threads
//!
//! - A multi-threaded tokio runtime with I/O drives the rings that are built in it (feature `tokio`). Such a
//!   ring starts a thread `ringwise-lookout` when the runtime's epoll first reports an event of it, and a
//!   thread `ringwise-driver` for what is in flight when the ring or the runtime ends. Any other ring starts
//!   one thread, `ringwise-driver`. [`Builder::driver_thread`] chooses.
//! - Threads named `ringwise-worker` make syscalls that block. On classic syscalls they make all of them,
//!   except one that a [`Local`] waits for alone. On a ring they make those that it cannot make, and long reads and
//!   writes that take less time there. They start on demand, are at most [`Builder::classic_threads`], and end after
//!   ten idle seconds.
//! - The kernel starts worker threads for a ring, at most [`Builder::worker_threads`] for files and as many
//!   for everything else (Linux 5.15).
//!
//! # Cancel safety
//!
//! Every future may be dropped at any moment. The library keeps the buffer until the kernel has finished with it.
//! A read, a receive, an accept, a connect or a timeout is then cancelled. A write or a sync that has begun goes on
//! to its end; later overlapping writes of the same [`fs::File`] wait for it. On the sockets of [`net`], a received
//! byte or an accepted connection is not lost: the next receive or accept gets it. The exceptions are written under
//! *Cancel safety* at each type.
//!
//! # Limits
//!
//! - The target is a 64-bit Linux. Elsewhere the crate compiles, and its constructors fail with
//!   [`SetupError::Unsupported`] or [`ErrorKind::Unsupported`].
//! - The ring needs Linux 5.11. Without it, or if it is forbidden, everything works on classic
//!   syscalls, and [`Setup::fallback`] tells the reason.
//! - At most [`Builder::completion_entries`] operations work at once, less two for a [`Local`] and less four
//!   for a [`Ring`]. A [`Ring`] lets more wait; [`Local::push`] refuses them. Operations that wait for a
//!   socket, a pipe or a timer take at most half of this room; beyond that they wait in an epoll set and take
//!   none.
//! - [`Local`] and [`Ring::submit`] report a short read or write and do not repeat it. The functions of
//!   [`fs`] and [`net`] with `all` or `exact` in their names do.
//! - A ring cannot be used in a child of fork(2).
//! - [`Builder::restrict`], [`Builder::data_only`] and [`Builder::seal`] forbid a ring what the program
//!   does not need.

#![deny(unsafe_code)]

mod flight;
mod settings;

cfg_if::cfg_if! {
    if #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
        mod backend;
        mod buf;
        mod descriptor;
        #[cfg(all(doctest, feature = "tokio", feature = "sim"))]
        mod documents;
        mod error;
        pub mod fs;
        mod local;
        pub mod net;
        mod op;
        mod ring;
        #[cfg(feature = "sim")]
        pub mod sim;
        #[cfg(not(feature = "sim"))]
        #[path = "sim/absent.rs"]
        mod sim;
        mod sync;
        mod sys;

        #[cfg(feature = "bytes")]
        pub use buf::parts;
        pub use buf::{
            AlignedBuf, Custom, Mapping, Part, PoolBuf, Received, Registration, Spare, StableBytes,
            StableBytesMut,
        };
        pub use flight::completion::Completion;
        pub use local::{Steps, Turn};
        pub use op::metadata::{DirectAlignment, FileType, Metadata};
        #[cfg(feature = "standard-streams")]
        pub use sys::streams::{StandardStream, was_closed_at_start};
        pub use sys::{
            cache::{CacheState, drop_page_cache, page_cache},
            extent::{Extent, extents},
        };
    } else {
        mod unsupported;

        use unsupported::{buf, descriptor, error, local, op, ring, sim};
        pub use unsupported::{fs, local::Completion, net, op::{FileType, Metadata}};
    }
}

pub use buf::{BufResult, Buffer, BufferGroup, OwnedBuffer, OwnedBufferMut, Pool};
pub use descriptor::{Descriptor, RegisteredFile, Target};
pub use error::{AcceptFailure, Errno, Error, ErrorKind};
pub use flight::{
    refusal::{LinkError, PushError, PushRefusal},
    slot::Ticket,
};
pub use local::{Leaked, Local};
pub use op::{AllocateMode, Opcode, OpenOptions, Operation};
pub use ring::{Deadline, Pending, Ring, RingStats};
pub use settings::{
    failure::{FallbackReason, SetupError},
    restriction::{Guard, REGISTER_OPCODES},
    setup::{Backend, BackendChoice, Builder, Effect, Setup, SetupFlags},
    stats::Stats,
};
