//! What the kernel is to refuse on a ring: operations, flags and registrations that nobody asked for. The
//! ring takes them while it is disabled, once and for good.
//!
//! A list of restrictions forbids all that it does not name (io_uring/register.c,
//! `io_parse_restrictions`), so it names what the library does by itself, too.

use io_uring::{IoUring, opcode as code, register::Restriction as Entry, squeue::Flags};

use super::supported::{Supported, kernel_code};
use crate::{error::Errno, op::Opcode, restriction::Restriction};

/// Registrations of a ring that is sealed, by their numbers in `enum io_uring_register_op`: asking what it
/// knows (8), and giving its entry in the thread's table back (21, Linux 5.18), without which it could not
/// be closed. Linux 7.0 restricts no registration if none is named.
const SEALED: [u8; 2] = [8, 21];

/// The same, of a ring that is not sealed. The newest come last: a kernel that does not know one refuses the
/// whole list.
const OPEN: [u8; 7] = [6, 8, 15, 16, 21, 22, 23];

/// The flags that the library sets.
const FLAGS: Flags =
    Flags::FIXED_FILE.union(Flags::IO_LINK).union(Flags::BUFFER_SELECT).union(Flags::SKIP_SUCCESS);

/// The flags that every entry has to have.
pub(super) fn required(restriction: Restriction) -> Flags {
    if restriction.data_only { Flags::FIXED_FILE } else { Flags::empty() }
}

/// Restricts a ring that is disabled, and enables it. The calling thread becomes the one that submits.
pub(super) fn enable(
    ring: &IoUring,
    by_ring: Supported,
    restriction: Restriction,
) -> Result<(), Errno> {
    let mut registrations = if restriction.sealed { &SEALED[..] } else { &OPEN[..] };
    let submitter = ring.submitter();
    let failed = |error: std::io::Error| Errno(error.raw_os_error().unwrap_or(libc::EIO));
    loop {
        let mut entries: Vec<Entry> =
            registrations.iter().map(|op| Entry::register_op(*op)).collect();
        entries.extend(operations(by_ring).map(Entry::sqe_op));
        entries.push(Entry::sqe_flags_allowed(FLAGS.bits()));
        entries.push(Entry::sqe_flags_required(required(restriction).bits()));
        match submitter.register_restrictions(&mut entries).map_err(failed) {
            Ok(()) => break,
            Err(Errno(libc::EINVAL)) if registrations.len() > 1 => {
                registrations = &registrations[..registrations.len() - 1];
            }
            Err(errno) => return Err(errno),
        }
    }
    submitter.register_enable_rings().map_err(failed)
}

/// The kernel's numbers of what the ring makes, and of what the library needs for itself: the poll by which
/// its threads wake it, and the variants for registered buffers.
fn operations(by_ring: Supported) -> impl Iterator<Item = u8> {
    let asked = Opcode::ALL.into_iter().filter(move |opcode| by_ring.contains(*opcode));
    let variant = move |opcode, code| by_ring.contains(opcode).then_some(code);
    let variants = [
        variant(Opcode::Read, code::ReadFixed::CODE),
        variant(Opcode::Write, code::WriteFixed::CODE),
        Some(code::PollAdd::CODE),
    ];
    asked.filter_map(kernel_code).chain(variants.into_iter().flatten())
}

#[cfg(all(not(ringwise_loom), test))]
mod tests {
    use std::{
        fs::File,
        os::fd::{AsRawFd, IntoRawFd},
    };

    use super::*;
    use crate::{
        backend::{Driver, uring::Uring},
        buf::RawBuffer,
        call::{Call, File as Target, RawName},
        descriptor::{Blocking, Descriptor},
        restriction::{Guard, REGISTER_OPCODES},
        setup::Builder,
    };

    fn open(builder: Builder) -> Option<Uring> {
        match Uring::open(&builder) {
            Ok((uring, setup)) => {
                assert_eq!(setup.guard, Guard::Kernel);
                // Deferred work among them, which wants the thread that enables the ring.
                let (_, unrestricted) = Uring::open(&Builder::default()).unwrap();
                assert_eq!(setup.granted, unrestricted.granted);
                Some(uring)
            }
            Err(reason) => {
                assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
                println!("skipped: {reason}");
                None
            }
        }
    }

    /// What the kernel answers to a call that the library would not have made.
    fn forced(uring: &mut Uring, call: Call) -> i32 {
        uring.by_ring = Supported::all();
        uring.queue(7, call, Blocking::Device);
        assert_eq!(uring.submit(1, None), Ok(1));
        let cqe = uring.next().unwrap();
        assert!(!cqe.is_by_thread());
        cqe.result
    }

    fn read(file: Target) -> Call {
        let buffer = vec![0_u8; 4].leak();
        let buffer = RawBuffer { pointer: buffer.as_mut_ptr(), len: 4, registered: None };
        Call::Read { file, buffer, offset: 0 }
    }

    #[test]
    fn the_kernel_refuses_an_operation_that_was_not_asked_for() {
        let file = File::open("/proc/self/exe").unwrap();
        let fd = Target::Fd(file.as_raw_fd());
        let Some(mut only_sync) = open(Builder::default().restrict([Opcode::Sync])) else { return };
        assert_eq!(forced(&mut only_sync, read(fd)), -libc::EACCES);
        assert_eq!(forced(&mut only_sync, Call::Nop), 0);
        let Some(mut reads) = open(Builder::default().restrict([Opcode::Read])) else { return };
        assert_eq!(forced(&mut reads, read(fd)), 4);
        assert_eq!(forced(&mut reads, Call::Sync { file: fd, data_only: true }), -libc::EACCES);
    }

    #[test]
    fn the_kernel_refuses_a_descriptor_on_a_data_only_ring() {
        let file = File::open("/proc/self/exe").unwrap();
        let fd = file.as_raw_fd();
        let files = [Descriptor::from(file)];
        let Some(mut uring) = open(Builder::default().data_only(true).files(files)) else { return };
        assert_eq!(forced(&mut uring, read(Target::Fixed(0))), 4);
        // The library would set the flag that is required.
        uring.required = Flags::empty();
        assert_eq!(forced(&mut uring, read(Target::Fd(fd))), -libc::EACCES);
        assert_eq!(forced(&mut uring, Call::Nop), -libc::EACCES);
    }

    /// Calls that open, accept or close a file, or take a name. Nothing has these names, so that a call that is
    /// made by mistake fails, too. The last one closes the file.
    fn calls_that_move_no_data(file: Target) -> Vec<Call> {
        let path = c"/nowhere/at/all".as_ptr();
        let name = RawName { directory: libc::AT_FDCWD, path };
        let out = Box::leak(Box::new(std::mem::MaybeUninit::uninit())).as_mut_ptr();
        vec![
            Call::Open { name, flags: libc::O_RDONLY, mode: 0, entry: None },
            Call::Open { name, flags: libc::O_RDONLY, mode: 0, entry: Some(0) },
            Call::Accept { file, multi: false },
            Call::Accept { file, multi: true },
            Call::Statx { name, flags: 0, mask: 0, out },
            Call::Unlink { name, flags: 0 },
            Call::Unlink { name, flags: libc::AT_REMOVEDIR },
            Call::CreateDirectory { name, mode: 0o700 },
            Call::Rename { from: name, to: name, flags: 0 },
            Call::Link { from: name, to: name, flags: 0 },
            Call::Symlink { target: path, name },
            Call::Close { file },
        ]
    }

    #[test]
    fn the_kernel_refuses_to_open_to_accept_to_close_and_to_change_names() {
        let file = || File::open("/proc/self/exe").unwrap();
        let table = || [Descriptor::from(file())];
        let restricted = [
            Builder::default().restrict([Opcode::Read]).files(table()),
            Builder::default().data_only(true).files(table()),
            Builder::default().data_only(true).seal(true).files(table()),
        ];
        for builder in restricted {
            let Some(mut uring) = open(builder.clone()) else { return };
            for call in calls_that_move_no_data(Target::Fixed(0)) {
                assert_eq!(forced(&mut uring, call), -libc::EACCES, "{builder:?}: {call:?}");
            }
            assert_eq!(forced(&mut uring, read(Target::Fixed(0))), 4, "it is still in the table");
        }
        let Some(mut only_reads) = open(Builder::default().restrict([Opcode::Read])) else {
            return;
        };
        let (mut unrestricted, _) = Uring::open(&Builder::default()).unwrap();
        for call in calls_that_move_no_data(Target::Fd(file().into_raw_fd())) {
            assert_eq!(forced(&mut only_reads, call), -libc::EACCES, "{call:?}");
            assert_ne!(forced(&mut unrestricted, call), -libc::EACCES, "{call:?}");
        }
    }

    #[test]
    fn the_kernel_refuses_to_register_with_a_sealed_ring() {
        let file = File::open("/proc/self/exe").unwrap();
        let Some(mut open_ring) = open(Builder::default().restrict([Opcode::Read])) else { return };
        assert_eq!(open_ring.set_file(0, Some(file.as_raw_fd())), Ok(()));
        let Some(mut sealed) = open(Builder::default().seal(true)) else { return };
        assert_eq!(sealed.set_file(0, Some(file.as_raw_fd())), Err(Errno(libc::EACCES)));
        let region = vec![0_u8; 4096].leak();
        let refused = sealed.register_region(region.as_mut_ptr(), region.len()).unwrap_err();
        assert!(refused.contains("Permission denied"), "{refused}");
    }

    #[test]
    fn what_is_registered_later_is_in_the_list_for_filters() {
        let is_listed = |number: &u8| REGISTER_OPCODES.iter().any(|(listed, _)| listed == number);
        assert!(OPEN.iter().chain(&SEALED).all(is_listed));
    }
}
