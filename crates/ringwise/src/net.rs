//! Sockets: making, binding and configuring them, their addresses, and streams on a ring.
//!
//! [`TcpListener`], [`TcpStream`], [`UnixListener`], [`UnixStream`] and [`UdpSocket`] are sockets on a
//! [`Ring`](crate::Ring), for any task. [`Buffered`] gives a stream the traits of tokio or futures.
//!
//! The functions of this module work on descriptors, for use with a [`Local`](crate::Local). They make their
//! syscalls at once, on the calling thread, and need no loop. Accept, connect, receive and send wait, so they
//! are [`Operation`](crate::Operation)s. Sockets are closed on exec.
//!
//! # Which sockets for a server in tokio
//!
//! For hyper, axum or other code over tokio's traits, keep tokio's sockets and use ringwise for files. axum
//! over [`Buffered`] was compared with axum over tokio's sockets, over loopback on a busy machine with two
//! processors. Each figure is the value with [`Buffered`] divided by the value with tokio's sockets: the
//! median of 9 interleaved pairs and their range, for two runs. So small bodies get about 0.8 of the
//! requests:
//!
//! | body | requests/s | CPU time per request |
//! |---|---|---|
//! | 1 KiB | 0.80 (0.73..1.12), 0.79 (0.30..1.18) | 1.32 (1.20..1.43), 1.32 (1.22..2.86) |
//! | 64 KiB | 0.84 (0.73..1.59), 0.78 (0.58..0.96) | 1.07 (0.72..1.68), 1.45 (1.00..2.34) |
//! | 1 MiB | 0.93 (0.73..1.08), 1.04 (0.94..1.36) | 1.01 (0.74..1.54), 0.99 (0.94..1.14) |
//!
//! If the server keeps tokio's sockets and reads its files through a ring, it serves 1.65 to 2.29 times the
//! requests/s of `tokio::fs` for at most half of the CPU time. `crates/axum/examples/http.rs` makes both
//! comparisons.
//!
//! # Cancel safety
//!
//! Every future may be dropped. No received byte and no accepted connection is lost, and a send that has
//! begun is sent whole.
//!
//! # Room for those that wait
//!
//! Receives and sends that wait take at most half of the room in the completion queue, so other operations
//! always find room. Beyond that they wait in an epoll set beside the ring, which costs a little more. An
//! accept takes no room. Descriptors and memory bound how many can wait.
//!
//! # Examples
//!
//! A byte there and back, on one loop:
//!
//! ```
//! use ringwise::{Local, Operation, net};
//!
//! let mut local = Local::new()?;
//! let listener = net::listen_tcp(&"127.0.0.1:0".parse()?, &net::ListenOptions::default())?;
//! let address = net::local_address(&listener)?;
//! local.push(Operation::accept(&listener), 0)?;
//!
//! let client = net::tcp_socket(&address)?;
//! local.run(Operation::connect(&client, address))?.result()?;
//! local.submit_and_wait(1)?;
//! let server = local.next_completion().unwrap().into_descriptor()?;
//!
//! local.run(Operation::send_all(&client, b"x".to_vec()))?.result()?;
//! let done = local.run(Operation::recv(&server, vec![0; 16]))?;
//! assert_eq!(done.result()?, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod buffered;
mod connection;
mod datagram;
mod flowing;
mod inline;
mod lane;
mod listening;
mod options;
mod raw;
mod socket;
mod tcp;
mod udp;
mod unix;

pub use address::{Address, AddressRef};
pub use buffered::{Buffered, Stream};
pub use datagram::Datagram;
pub use flowing::Receiving;
pub use options::{KeepAlive, ListenOptions, Shutdown};
pub use socket::{
    listen_tcp, listen_unix, local_address, peer_address, set_keepalive, set_nodelay,
    set_receive_buffer, set_reset_on_close, set_send_buffer, set_user_timeout, shutdown,
    tcp_socket, udp_bind, unix_socket,
};
pub use tcp::{TcpIncoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixIncoming, UnixListener, UnixStream};
