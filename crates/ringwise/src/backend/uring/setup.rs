//! Opens a ring: tries flags, checks the required features, and makes a real operation through it.
//!
//! The kernel refuses an unknown flag with `EINVAL` and does not name it. So flags are given up one
//! by one, the newest first, until the kernel takes the rest. A ring that opens may still not work
//! (gVisor, filters that allow the setup and not the enter syscall), so bytes are sent through a
//! pipe and compared.

use std::{
    io::{self, Read, Write},
    mem::ManuallyDrop,
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use io_uring::{IoUring, opcode, squeue::Flags, types};
use rustix::io_uring::IoringEnterFlags;

use super::{entry::push_tested, supported::Supported};
use crate::{
    error::Errno,
    op::Opcode,
    settings::{
        failure::FallbackReason,
        setup::{Builder, SetupFlags},
    },
    sys::ring::EnterHandle,
};

/// The time limit of the self-test. A loaded machine needs milliseconds.
const SELF_TEST_TIME: Duration = Duration::from_secs(5);

/// Flags in the order in which they are given up, newest kernel first. `CLAMP` (5.6) is last.
const LADDER: [(SetupFlags, &str); 7] = [
    (SetupFlags::NO_SQARRAY, "6.6"),
    (SetupFlags::DEFER_TASKRUN, "6.1"),
    (SetupFlags::SINGLE_ISSUER, "6.0"),
    (SetupFlags::TASKRUN_FLAG, "5.19"),
    (SetupFlags::COOP_TASKRUN, "5.19"),
    (SetupFlags::SUBMIT_ALL, "5.18"),
    (SetupFlags::CLAMP, "5.6"),
];

/// A ring, and the flags that it was opened with.
pub(super) struct Opened {
    pub(super) ring: IoUring,
    pub(super) granted: SetupFlags,
    /// The error with which a submission thread was refused, if it was.
    pub(super) sqpoll_refused: Option<Errno>,
}

/// Opens a ring with as many of the requested flags as the kernel takes.
pub(super) fn open(builder: &Builder) -> Result<Opened, FallbackReason> {
    let mut asked = builder.flags;
    if builder.is_portable {
        // Nothing makes the descriptor of a polled ring readable.
        asked = asked.without(SetupFlags::IOPOLL);
    }
    let mut flags = compatible(asked);
    let mut entries = builder.submissions();
    let mut completions = builder.completions();
    let mut steps = LADDER.iter();
    let mut sqpoll_refused = None;
    loop {
        let error = match attempt(builder, flags, entries, completions) {
            Ok(ring) => {
                let ring = require_features(ring)?;
                return Ok(Opened { ring, granted: flags, sqpoll_refused });
            }
            Err(error) => error,
        };
        match error.raw_os_error().unwrap_or(libc::EIO) {
            libc::EINVAL => match steps.find(|(flag, _)| flags.contains(*flag)) {
                Some((flag, _)) => flags = compatible(flags.without(*flag)),
                None => return Err(FallbackReason::Refused(Errno(libc::EINVAL))),
            },
            // Before Linux 5.12 rings count against RLIMIT_MEMLOCK: a smaller one may fit.
            libc::ENOMEM if entries > 8 => {
                entries /= 2;
                completions = (completions / 2).max(entries);
            }
            // The submission thread alone may be refused: it is forbidden (Linux before 5.13 wants
            // CAP_SYS_NICE), beyond a limit of processes (create_io_thread, kernel/fork.c: EAGAIN),
            // or there is no memory for it. Then the ladder starts again without the thread, since
            // flags that it excludes may come back.
            errno @ (libc::EPERM | libc::EAGAIN | libc::ENOMEM)
                if flags.contains(SetupFlags::SQPOLL) =>
            {
                sqpoll_refused = Some(Errno(errno));
                asked = asked.without(SetupFlags::SQPOLL);
                flags = compatible(asked);
                (entries, completions) = (builder.submissions(), builder.completions());
                steps = LADDER.iter();
            }
            errno => return Err(FallbackReason::Refused(Errno(errno))),
        }
    }
}

/// Says why there is no submission thread, and what to do about it.
pub(super) fn sqpoll_reason(refused: Option<Errno>) -> String {
    let Some(errno) = refused else { return "the kernel granted no submission thread".to_owned() };
    let advice = match errno.raw() {
        libc::EPERM => "Linux before 5.13 wants CAP_SYS_NICE for it",
        libc::EAGAIN => "raise the limit of processes (ulimit -u, a cgroup's pids.max, TasksMax=)",
        _ => "raise the locked-memory limit (ulimit -l)",
    };
    format!("a submission thread was refused: io_uring_setup: {errno}; {advice}")
}

/// Drops flags that the kernel would refuse together with other requested flags.
fn compatible(flags: SetupFlags) -> SetupFlags {
    let mut flags = flags;
    if flags.contains(SetupFlags::SQPOLL) {
        // io_uring/io_uring.c, io_uring_sanitise_params: the thread runs completion work itself.
        flags = flags
            .without(SetupFlags::DEFER_TASKRUN)
            .without(SetupFlags::COOP_TASKRUN)
            .without(SetupFlags::TASKRUN_FLAG);
    }
    if !flags.contains(SetupFlags::SINGLE_ISSUER) {
        flags = flags.without(SetupFlags::DEFER_TASKRUN);
    }
    let deferred = flags.contains(SetupFlags::DEFER_TASKRUN);
    if !deferred && !flags.contains(SetupFlags::COOP_TASKRUN) {
        flags = flags.without(SetupFlags::TASKRUN_FLAG);
    }
    flags
}

fn attempt(
    builder: &Builder,
    flags: SetupFlags,
    entries: u32,
    completions: u32,
) -> io::Result<IoUring> {
    let mut setup = IoUring::builder();
    setup.dontfork();
    setup.setup_cqsize(completions);
    if builder.restriction.is_any() {
        // Only a ring that takes nothing yet can be restricted (Linux 5.10).
        setup.setup_r_disabled();
    }
    if flags.contains(SetupFlags::SQPOLL) {
        let idle = builder.sqpoll_idle.unwrap_or_default();
        setup.setup_sqpoll(u32::try_from(idle.as_millis()).unwrap_or(u32::MAX).max(1));
    }
    type Step = fn(&mut io_uring::Builder) -> &mut io_uring::Builder;
    let steps: [(SetupFlags, Step); 8] = [
        (SetupFlags::IOPOLL, io_uring::Builder::setup_iopoll),
        (SetupFlags::CLAMP, io_uring::Builder::setup_clamp),
        (SetupFlags::SUBMIT_ALL, io_uring::Builder::setup_submit_all),
        (SetupFlags::COOP_TASKRUN, io_uring::Builder::setup_coop_taskrun),
        (SetupFlags::TASKRUN_FLAG, io_uring::Builder::setup_taskrun_flag),
        (SetupFlags::SINGLE_ISSUER, io_uring::Builder::setup_single_issuer),
        (SetupFlags::DEFER_TASKRUN, io_uring::Builder::setup_defer_taskrun),
        (SetupFlags::NO_SQARRAY, io_uring::Builder::setup_no_sqarray),
    ];
    for (flag, set) in steps {
        if flags.contains(flag) {
            set(&mut setup);
        }
    }
    setup.build(entries)
}

/// Checks the features that the library relies on. Linux 5.11 has all of them.
fn require_features(ring: IoUring) -> Result<IoUring, FallbackReason> {
    let params = ring.params();
    let required = [
        (params.is_feature_nodrop(), "completions that are never dropped (NODROP)"),
        (params.is_feature_submit_stable(), "arguments taken at submission (SUBMIT_STABLE)"),
        (params.is_feature_ext_arg(), "waits with a timeout (EXT_ARG)"),
    ];
    match required.iter().find(|(present, _)| !present) {
        Some((_, feature)) => Err(FallbackReason::Lacks(feature)),
        None => Ok(ring),
    }
}

/// Sends bytes through a pipe by the ring and compares what arrives. A polled ring takes no pipes, and
/// one that is restricted may take no reads, no writes or no pipe that is not registered; there a no-op
/// has to come back. `required`: the flags of every entry.
pub(super) fn self_test(
    ring: &mut IoUring,
    allowed: Supported,
    required: Flags,
) -> Result<(), FallbackReason> {
    let polled = ring.params().is_setup_iopoll();
    let moves_bytes = allowed.contains(Opcode::Read) && allowed.contains(Opcode::Write);
    let result = if polled || !moves_bytes || !required.is_empty() {
        test_nop(ring, required, polled)
    } else {
        test_pipe(ring)
    };
    result.map_err(FallbackReason::SelfTest)
}

fn test_nop(ring: &mut IoUring, required: Flags, polled: bool) -> Result<(), String> {
    match round_trip(ring, opcode::Nop::new().build().flags(required))? {
        0 => {}
        result => return Err(format!("a no-op returned {result}")),
    }
    if polled || required.is_empty() {
        return Ok(());
    }
    // Before Linux 5.19 a cancel may not have the flag of a registered file.
    match round_trip(ring, opcode::AsyncCancel::new(u64::MAX).build().flags(required))? {
        result if result == -libc::ENOENT => Ok(()),
        result => Err(format!("a cancel that names a registered file returned {result}")),
    }
}

fn test_pipe(ring: &mut IoUring) -> Result<(), String> {
    static WRITTEN: [u8; 8] = *b"ringwise";
    let len = WRITTEN.len() as u32;
    let (mut reader, mut writer) = io::pipe().map_err(|error| format!("pipe: {error}"))?;

    let out = types::Fd(writer.as_raw_fd());
    let result = round_trip(ring, opcode::Write::new(out, WRITTEN.as_ptr(), len).build())?;
    if result != len as i32 {
        return Err(format!("a write of {len} bytes to a pipe returned {result}"));
    }
    let mut arrived = [0; WRITTEN.len()];
    reader.read_exact(&mut arrived).map_err(|error| format!("read of the pipe: {error}"))?;
    if arrived != WRITTEN {
        return Err("a write to a pipe arrived changed".into());
    }

    writer.write_all(&WRITTEN).map_err(|error| format!("write to the pipe: {error}"))?;
    let from = types::Fd(reader.as_raw_fd());
    // Leaked if the test fails half-way, since the kernel may still write to it.
    let mut read = ManuallyDrop::new(Box::new([0_u8; WRITTEN.len()]));
    let result = round_trip(ring, opcode::Read::new(from, read.as_mut_ptr(), len).build())?;
    let read = ManuallyDrop::into_inner(read);
    if result != len as i32 || *read != WRITTEN {
        return Err(format!("a read of {len} bytes from a pipe returned {result}"));
    }
    Ok(())
}

/// Submits one entry and waits for its completion, but not forever: an emulated kernel or a filter
/// may answer the syscall and do nothing.
fn round_trip(ring: &mut IoUring, entry: io_uring::squeue::Entry) -> Result<i32, String> {
    push_tested(ring, &entry)?;
    let handle = EnterHandle::new(ring.as_raw_fd(), false, false);
    let deadline = Instant::now() + SELF_TEST_TIME;
    loop {
        if let Some(completion) = ring.completion().next() {
            return Ok(completion.result());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("nothing came back within {} s", SELF_TEST_TIME.as_secs()));
        }
        let polled_by_thread = ring.params().is_setup_sqpoll();
        let queue = ring.submission();
        let to_submit = queue.len() as u32;
        let mut flags = IoringEnterFlags::GETEVENTS;
        flags.set(IoringEnterFlags::SQ_WAKEUP, queue.need_wakeup());
        drop(queue);
        match handle.enter(to_submit, 1, flags, Some(left)) {
            Ok(0) if to_submit > 0 && !polled_by_thread => {
                return Err("io_uring_enter: returned without taking what was queued".into());
            }
            // An answer without an effect may come at once, again and again.
            Ok(_) => std::thread::yield_now(),
            Err(Errno(libc::EINTR | libc::ETIME)) => {}
            Err(errno) => return Err(format!("io_uring_enter: {errno}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_thread_excludes_deferred_work() {
        let builder = Builder::default().sqpoll(Some(Duration::from_millis(1)));
        let flags = compatible(builder.flags);
        assert!(flags.has("SQPOLL") && !flags.has("DEFER_TASKRUN") && !flags.has("TASKRUN_FLAG"));
    }

    #[test]
    fn the_task_run_flag_needs_a_mode() {
        let flags = compatible(Builder::default().defer_taskrun(false).flags);
        assert!(!flags.has("TASKRUN_FLAG"));
        let flags = compatible(Builder::default().single_issuer(false).flags);
        assert!(!flags.has("DEFER_TASKRUN"));
    }

    #[test]
    fn the_ladder_gives_up_every_flag_that_can_be_refused() {
        let default = Builder::default().flags;
        let left = LADDER.iter().fold(default, |flags, (flag, _)| flags.without(*flag));
        assert_eq!(left, SetupFlags::default());
    }
}
