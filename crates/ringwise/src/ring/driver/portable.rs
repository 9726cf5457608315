//! A driver that moves between threads.
//!
//! # Safety
//!
//! A loop is not `Send` for two reasons: a ring set up with `SINGLE_ISSUER` may be entered by one
//! thread only, and a registered ring descriptor is an entry of one thread's table. A loop that is
//! built here has neither, and everything else in it is owned by it alone: memory, descriptors, and
//! a mapping that any thread of the process can reach, or a pool of threads and an epoll set. It is
//! used by one thread at a time, since it is reached through `&mut` only.
#![allow(unsafe_code)]

use std::sync::Arc;

use crate::{
    ring::{driver::Driver, hub::Hub},
    settings::{failure::SetupError, setup::Builder},
};

/// A driver whose loop any thread may use, one at a time.
pub(crate) struct Portable(Driver);

// SAFETY: see the header; the builder below keeps to it, and no reference to the driver leaves
// but through `&mut self`.
unsafe impl Send for Portable {}

impl Portable {
    /// Builds a loop that is not tied to a thread.
    pub(crate) fn build(builder: Builder, hub: &Arc<Hub>) -> Result<Portable, SetupError> {
        let untied = builder.single_issuer(false).defer_taskrun(false).registered_ring(false);
        let local = Builder { is_portable: true, ..untied }.build()?;
        let (setup, hub) = (local.setup(), hub.clone());
        assert!(!setup.granted().has("SINGLE_ISSUER") && !setup.is_ring_registered());
        let mut driver = Driver::new(local, hub);
        driver.share();
        Ok(Portable(driver))
    }

    pub(crate) fn into_inner(self) -> Driver {
        self.0
    }

    pub(crate) fn get_mut(&mut self) -> &mut Driver {
        &mut self.0
    }
}
