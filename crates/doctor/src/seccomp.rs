//! The rules that a seccomp profile needs so that a program may use io_uring through
//! ringwise: what a container's administrator adds to the runtime's default profile.
//!
//! A filter sees the number of a syscall and its arguments. It does not see what a
//! ring is asked to do, so the rules allow whole syscalls, except that they list the
//! operations of io_uring_register(2). `docs/explanation/restrictions.md` says what
//! closes the rest.

use std::io::{self, Write};

use ringwise::REGISTER_OPCODES;
use serde::Serialize;

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

fn profile() -> Profile {
    let calls = ["io_uring_setup", "io_uring_enter"];
    let mut syscalls = vec![Rule::allow(&calls, Vec::new(), "rings of ringwise".to_owned())];
    syscalls.extend(REGISTER_OPCODES.iter().map(|(number, name)| {
        let opcode = Argument { index: 1, value: u64::from(*number), op: "SCMP_CMP_EQ" };
        Rule::allow(&["io_uring_register"], vec![opcode], (*name).to_owned())
    }));
    Profile { syscalls }
}

/// Writes the rules as JSON.
pub(crate) fn write_profile(out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &profile())?;
    writeln!(out)
}
