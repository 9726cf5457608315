//! The operations that this kernel's ring makes. The kernel is asked; if a filter forbids that,
//! they follow from the oldest kernel that the library supports.
//!
//! An operation that the ring does not know falls back alone (invariant 8), in `uring.rs`.

use io_uring::{IoUring, Probe, opcode};

use super::entry;
use crate::{
    op::Opcode,
    settings::{restriction::Restriction, setup::SetupFlags},
};

/// A set of operations that the ring makes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supported(u64);

impl Supported {
    /// Returns the operations that this kernel's ring knows, with these flags.
    pub(super) fn probe(ring: &IoUring, granted: SetupFlags) -> Supported {
        let mut probe = Probe::new();
        let probed = ring.submitter().register_probe(&mut probe).is_ok();
        let polled = granted.contains(SetupFlags::IOPOLL);
        let of_rings = Opcode::ALL.into_iter().filter(|opcode| !opcode.is_for_threads());
        let known = of_rings.filter(|opcode| {
            let code = kernel_code(*opcode).expect("every operation of a ring has a number");
            let there = if probed { probe.is_supported(code) } else { is_in_5_11(*opcode) };
            there && (!polled || is_polled_for(*opcode))
        });
        Supported(known.fold(0, |set, opcode| set | 1 << opcode as u64))
    }

    /// Returns the set without the operations to avoid. The operations that the loop itself needs
    /// stay in it.
    pub(super) fn without(self, avoided: &[Opcode]) -> Supported {
        let own =
            |opcode: &&Opcode| matches!(opcode, Opcode::Nop | Opcode::Timeout | Opcode::Cancel);
        let avoided = avoided.iter().filter(|opcode| !own(opcode));
        Supported(avoided.fold(self.0, |set, opcode| set & !(1 << *opcode as u64)))
    }

    /// The same without what the loop may not do.
    pub(super) fn within(self, restriction: Restriction) -> Supported {
        let forbidden = Opcode::ALL.iter().filter(|opcode| !restriction.allows(**opcode));
        Supported(forbidden.fold(self.0, |set, opcode| set & !(1 << *opcode as u64)))
    }

    /// Every operation, whether the ring has it or not.
    #[cfg(test)]
    pub(super) fn all() -> Supported {
        Supported(u64::MAX)
    }

    #[inline]
    pub(super) fn contains(self, opcode: Opcode) -> bool {
        self.0 & (1 << opcode as u64) != 0
    }
}

/// The kernel's `IORING_OP_*` number, for the operations that have one.
pub(super) fn kernel_code(opcode: Opcode) -> Option<u8> {
    use io_uring::opcode as code;
    Some(match opcode {
        Opcode::Nop => code::Nop::CODE,
        Opcode::Read => code::Read::CODE,
        Opcode::Write => code::Write::CODE,
        Opcode::ReadVectored => code::Readv::CODE,
        Opcode::WriteVectored => code::Writev::CODE,
        Opcode::Sync => code::Fsync::CODE,
        Opcode::Open => code::OpenAt::CODE,
        Opcode::Statx => code::Statx::CODE,
        Opcode::Allocate => code::Fallocate::CODE,
        Opcode::SetLen => code::Ftruncate::CODE,
        Opcode::Close => code::Close::CODE,
        Opcode::Unlink => code::UnlinkAt::CODE,
        Opcode::CreateDirectory => code::MkDirAt::CODE,
        Opcode::Rename => code::RenameAt::CODE,
        Opcode::Link => code::LinkAt::CODE,
        Opcode::Symlink => code::SymlinkAt::CODE,
        Opcode::Timeout => code::Timeout::CODE,
        Opcode::Cancel => code::AsyncCancel::CODE,
        Opcode::Accept | Opcode::AcceptMulti => code::Accept::CODE,
        Opcode::Connect => code::Connect::CODE,
        Opcode::Receive | Opcode::ReceiveMulti => code::Recv::CODE,
        Opcode::ReceiveMessage => code::RecvMsg::CODE,
        Opcode::Send => code::Send::CODE,
        Opcode::SendZeroCopy => code::SendZc::CODE,
        Opcode::SendMessage => code::SendMsg::CODE,
        Opcode::ReadLink | Opcode::SetMode | Opcode::ReadDirectory => return None,
        Opcode::Register | Opcode::Submit | Opcode::Socket => return None,
    })
}

/// Returns the features of this kernel. A probe knows operations and not their options, so each
/// option is inferred from an operation that came with it.
pub(super) fn ways(ring: &IoUring, granted: SetupFlags) -> entry::How {
    let mut probe = Probe::new();
    if ring.submitter().register_probe(&mut probe).is_err() {
        return entry::How::default();
    }
    // IORING_OP_SOCKET and multishot accept came with Linux 5.19, and so did sends that go on after
    // a part (io_uring/net.c). IORING_OP_SEND_ZC and multishot receive came with 6.0.
    let is_5_19 = probe.is_supported(opcode::Socket::CODE);
    entry::How {
        accepts_many: is_5_19,
        receives_many: probe.is_supported(opcode::SendZc::CODE),
        // With a submission thread the end of an enter says nothing about the entries that were
        // taken.
        mutes_sends: is_5_19
            && ring.params().is_feature_skip_cqe_on_success()
            && !granted.contains(SetupFlags::SQPOLL),
    }
}

/// Returns whether the oldest supported kernel has an operation, for machines where a filter
/// forbids asking. mkdirat, linkat and symlinkat came with Linux 5.15, ftruncate with 6.9.
fn is_in_5_11(opcode: Opcode) -> bool {
    !matches!(opcode, Opcode::CreateDirectory | Opcode::Link | Opcode::Symlink | Opcode::SetLen)
}

/// Returns whether a polled ring takes an operation. It refuses those that it cannot poll for
/// (io_uring/opdef.c, `iopoll`).
fn is_polled_for(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Nop | Opcode::Read | Opcode::Write | Opcode::ReadVectored | Opcode::WriteVectored
    )
}
