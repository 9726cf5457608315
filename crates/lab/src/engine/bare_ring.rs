//! The bare ring: no-ops over the `io-uring` crate with nothing around it, set up with the same
//! flags as the library's ring. What the library costs is the difference.
//!
//! # Safety
//!
//! A no-op names no memory and no descriptor, so nothing has to outlive it.
#![allow(unsafe_code)]

use std::io;

use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, opcode};
use ringwise::Setup;

/// What can be switched of a ring that makes no-ops, by the names in rows.
pub const SWITCHES: [&str; 5] =
    ["defer-taskrun", "coop-taskrun", "single-issuer", "registered-ring", "sqpoll"];

/// The ring.
pub struct BareRing {
    ring: IoUring,
    is_registered: bool,
}

impl std::fmt::Debug for BareRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BareRing").finish_non_exhaustive()
    }
}

/// The ring in use: its parts, held as a loop would hold them.
pub struct BareLoop<'a> {
    submitter: Submitter<'a>,
    submission: SubmissionQueue<'a>,
    completion: CompletionQueue<'a>,
}

impl std::fmt::Debug for BareLoop<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BareLoop").finish_non_exhaustive()
    }
}

impl BareRing {
    /// A ring set up as another was.
    ///
    /// # Errors
    ///
    /// What io_uring_setup(2) reports.
    pub fn like(setup: &Setup) -> io::Result<BareRing> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(setup.completion_entries());
        for flag in setup.granted().iter() {
            match flag {
                "SINGLE_ISSUER" => builder.setup_single_issuer(),
                "DEFER_TASKRUN" => builder.setup_defer_taskrun(),
                "COOP_TASKRUN" => builder.setup_coop_taskrun(),
                "TASKRUN_FLAG" => builder.setup_taskrun_flag(),
                "SUBMIT_ALL" => builder.setup_submit_all(),
                "CLAMP" => builder.setup_clamp(),
                "NO_SQARRAY" => builder.setup_no_sqarray(),
                other => return Err(io::Error::other(format!("the bare ring lacks {other}"))),
            };
        }
        let ring = builder.build(setup.submission_entries())?;
        Ok(BareRing { ring, is_registered: setup.is_ring_registered() })
    }

    /// The ring, ready to be used by this thread.
    ///
    /// # Errors
    ///
    /// What registering the ring's descriptor reports, if the other ring's is.
    pub fn enter(&mut self) -> io::Result<BareLoop<'_>> {
        let (mut submitter, submission, completion) = self.ring.split();
        if self.is_registered {
            submitter.register_ring_fd()?;
        }
        Ok(BareLoop { submitter, submission, completion })
    }
}

impl BareLoop<'_> {
    /// Makes `count` no-ops, with one system call, and takes their completions.
    ///
    /// # Errors
    ///
    /// What io_uring_enter(2) or a completion reports.
    #[inline]
    pub fn batch(&mut self, count: usize) -> io::Result<()> {
        // Learns what the kernel has taken since.
        self.submission.sync();
        for number in 0..count {
            let entry = opcode::Nop::new().build().user_data(number as u64);
            // SAFETY: a no-op names no memory.
            unsafe { self.submission.push(&entry) }.map_err(io::Error::other)?;
        }
        self.submission.sync();
        self.submitter.submit_and_wait(count)?;
        self.completion.sync();
        let mut taken = 0;
        for completion in &mut self.completion {
            if completion.result() < 0 {
                return Err(io::Error::from_raw_os_error(-completion.result()));
            }
            taken += 1;
        }
        self.completion.sync();
        if taken == count {
            Ok(())
        } else {
            Err(io::Error::other(format!("{taken} of {count} no-ops completed")))
        }
    }
}

impl Drop for BareLoop<'_> {
    fn drop(&mut self) {
        // The registration ends with the thread in any case.
        let _ = self.submitter.unregister_ring_fd();
    }
}
