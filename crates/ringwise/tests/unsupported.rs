//! What the crate is on targets that are not a 64-bit Linux, compiled and run here: a portable program
//! compiles against it, and its constructors answer `Unsupported`.

#![allow(dead_code, unreachable_code, unused_imports)]

extern crate self as ringwise;

#[path = "../src/settings/failure.rs"]
mod failure;
#[path = "../examples/portable.rs"]
mod portable;
#[path = "../src/flight/refusal.rs"]
mod refusal;
#[path = "../src/settings/restriction.rs"]
mod restriction;
#[path = "../src/settings/setup.rs"]
mod setup;
#[path = "../src/settings/stats.rs"]
mod stats;
#[path = "../src/unsupported.rs"]
mod unsupported;

/// As `flight.rs` has them.
mod flight {
    pub(crate) use crate::{refusal, unsupported::slot};
}

/// As `settings.rs` has them.
mod settings {
    pub(crate) use crate::{failure, restriction, setup, stats};
}

// As `lib.rs` names them.
pub use buf::*;
pub use descriptor::*;
pub use error::{Error, ErrorKind};
pub use failure::*;
pub use local::*;
pub use op::*;
pub use restriction::*;
pub use ring::*;
pub use setup::*;
pub use slot::*;
use unsupported::{buf, descriptor, error, local, op, ring, sim, slot};
pub use unsupported::{fs, net};

#[test]
fn a_loop_and_a_ring_answer_unsupported() {
    assert!(matches!(Ring::new(), Err(SetupError::Unsupported)));
    assert!(matches!(Local::new(), Err(SetupError::Unsupported)));
    assert!(matches!(Local::builder().entries(8).build_ring(), Err(SetupError::Unsupported)));
}

#[test]
fn a_socket_answers_unsupported() {
    let error = net::listen_tcp(&"127.0.0.1:0".parse().unwrap(), &net::ListenOptions::default())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.to_string(), "socket: ringwise needs a 64-bit Linux");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::Unsupported);
}

#[test]
fn a_portable_program_goes_on_without_a_ring() {
    portable::main().unwrap();
}
