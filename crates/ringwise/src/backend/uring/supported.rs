//! Which operations this kernel's ring makes: asked for, and where that is forbidden known by age.
//!
//! What it does not know falls back alone (invariant 8); how is `uring.rs`'s to say.

use io_uring::{IoUring, Probe};

use crate::{op::Opcode, setup::SetupFlags};

/// Operations that the ring makes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supported(u64);

impl Supported {
    /// What this kernel's ring knows, with these flags.
    pub(super) fn probe(ring: &IoUring, granted: SetupFlags) -> Supported {
        let mut probe = Probe::new();
        let probed = ring.submitter().register_probe(&mut probe).is_ok();
        let polled = granted.contains(SetupFlags::IOPOLL);
        let known = Opcode::ALL.into_iter().filter(|opcode| {
            let code = opcode.kernel_code().expect("every operation has a number");
            let there = if probed { probe.is_supported(code) } else { is_in_5_11(*opcode) };
            there && (!polled || is_polled_for(*opcode))
        });
        Supported(known.fold(0, |set, opcode| set | 1 << opcode as u64))
    }

    /// The same without what is to be avoided; a loop cannot do without its own.
    pub(super) fn without(self, avoided: &[Opcode]) -> Supported {
        let own =
            |opcode: &&Opcode| matches!(opcode, Opcode::Nop | Opcode::Timeout | Opcode::Cancel);
        let avoided = avoided.iter().filter(|opcode| !own(opcode));
        Supported(avoided.fold(self.0, |set, opcode| set & !(1 << *opcode as u64)))
    }

    #[inline]
    pub(super) fn contains(self, opcode: Opcode) -> bool {
        self.0 & (1 << opcode as u64) != 0
    }
}

/// What the oldest kernel that will do has, for where a filter forbids asking: mkdirat and linkat
/// came with Linux 5.15, ftruncate with 6.9.
fn is_in_5_11(opcode: Opcode) -> bool {
    !matches!(opcode, Opcode::CreateDirectory | Opcode::Link | Opcode::SetLen)
}

/// A polled ring refuses what it cannot poll for (io_uring/opdef.c, `iopoll`).
fn is_polled_for(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Nop | Opcode::Read | Opcode::Write | Opcode::ReadVectored | Opcode::WriteVectored
    )
}
