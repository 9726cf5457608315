//! The rules that a seccomp profile needs so that a program may use io_uring through
//! ringwise: what a container's administrator adds to the runtime's default profile.
//!
//! A filter sees the number of a syscall and its arguments. It does not see what a
//! ring is asked to do, so the rules allow whole syscalls, except that they list the
//! operations of io_uring_register(2). Only this list depends on the program.
//! `docs/explanation/restrictions.md` says what closes the rest.

use std::io::{self, Write};

use ringwise::REGISTER_OPCODES;
use serde::Serialize;

/// The program that a profile is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Program {
    /// Any program on ringwise, and ringwise's tools
    Any,
    /// A program that seals every ring
    Sealed,
}

/// What registers buffers and groups of buffers after the setup, which a sealed ring
/// refuses: `IORING_REGISTER_BUFFERS2`, `IORING_REGISTER_BUFFERS_UPDATE` and both
/// operations of `PBUF_RING`.
const AFTER_SEAL: [u8; 4] = [15, 16, 22, 23];

impl Program {
    fn registers(self, opcode: u8) -> bool {
        match self {
            Program::Any => true,
            Program::Sealed => !AFTER_SEAL.contains(&opcode),
        }
    }
}

/// Part of a profile as Docker, Podman, containerd and the OCI's runtime
/// specification have it.
#[derive(Debug, Serialize)]
struct Profile {
    syscalls: Vec<Rule>,
}

/// Rules of one syscall are alternatives: one of them has to match.
#[derive(Debug, Serialize)]
struct Rule {
    names: Vec<&'static str>,
    action: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    args: Vec<Argument>,
    /// Runtimes ignore it.
    comment: String,
}

#[derive(Debug, Serialize)]
struct Argument {
    index: u32,
    value: u64,
    op: &'static str,
}

impl Rule {
    fn allow(names: &[&'static str], args: Vec<Argument>, comment: String) -> Rule {
        Rule { names: names.to_vec(), action: "SCMP_ACT_ALLOW", args, comment }
    }
}

fn profile(program: Program) -> Profile {
    let calls = ["io_uring_setup", "io_uring_enter"];
    let mut syscalls = vec![Rule::allow(&calls, Vec::new(), "rings of ringwise".to_owned())];
    let registered = REGISTER_OPCODES.iter().filter(|(number, _)| program.registers(*number));
    syscalls.extend(registered.map(|(number, name)| {
        let opcode = Argument { index: 1, value: u64::from(*number), op: "SCMP_CMP_EQ" };
        Rule::allow(&["io_uring_register"], vec![opcode], (*name).to_owned())
    }));
    Profile { syscalls }
}

/// Writes the rules for a program as JSON.
pub(crate) fn write_profile(program: Program, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &profile(program))?;
    writeln!(out)
}
