//! A call as a submission queue entry.

use std::ptr::null_mut;

use io_uring::{
    IoUring, opcode,
    squeue::{Entry, Flags},
    types,
};

use crate::{
    buf::RawBuffer,
    flight::call::{Call, File, RawName},
    op::Manner,
};

/// Expands to the same builder for an ordinary or a registered file. The crate has a type for each
/// and no common one.
macro_rules! on_file {
    ($file:expr, |$fd:ident| $build:expr) => {
        match $file {
            File::Fd(number) => {
                let $fd = types::Fd(number);
                $build
            }
            File::Fixed(index) => {
                let $fd = types::Fixed(index);
                $build
            }
        }
    };
}

/// Builds a no-op from words of 64 bits, so that it is also written to the queue in words of 64
/// bits. Built field by field it is copied field by field, which takes three nanoseconds more.
#[inline]
pub(super) fn nop(user_data: u64, flags: Flags) -> Entry {
    /// `struct io_uring_sqe`: opcode, flags, priority and descriptor in the first word, the
    /// user data in the fifth.
    const NO_DESCRIPTOR: u64 = (u32::MAX as u64) << 32;
    const _: () = assert!(size_of::<Entry>() == 64);
    let first = NO_DESCRIPTOR | (flags.bits() as u64) << 8 | opcode::Nop::CODE as u64;
    let words = [first, 0, 0, 0, user_data, 0, 0, 0];
    // SAFETY: an entry is a `struct io_uring_sqe`, all integers and unions of them.
    unsafe { std::mem::transmute::<[u64; 8], Entry>(words) }
}

/// The newer features for sockets that this kernel has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    /// One entry accepts many connections (Linux 5.19).
    pub(super) accepts_many: bool,
    /// One entry receives many times (Linux 6.0).
    pub(super) receives_many: bool,
    /// A send that succeeds has no completion, and one that would wait or is short fails.
    pub(super) mutes_sends: bool,
}

/// Builds the entry of any call. Returns nothing for a call that only a thread can make. The
/// addresses in `call` go into the entry as they are.
///
/// This is the only way from a call to an entry, and it lists every call. So a new call cannot be
/// forgotten in one of the ways to queue it.
#[inline]
pub(super) fn build(call: &Call, how: How) -> Option<Entry> {
    match *call {
        Call::Read { file, buffer, offset } => Some(build_read(file, buffer, offset)),
        Call::Write { file, buffer, offset } => Some(build_write(file, buffer, offset)),
        ref other => build_rare(other, how),
    }
}

#[inline(always)]
fn build_read(file: File, buffer: RawBuffer, offset: u64) -> Entry {
    let RawBuffer { pointer, len, registered } = buffer;
    match registered {
        Some(index) => on_file!(file, |fd| {
            opcode::ReadFixed::new(fd, pointer, len, index).offset(offset).build()
        }),
        None => on_file!(file, |fd| opcode::Read::new(fd, pointer, len).offset(offset).build()),
    }
}

#[inline(always)]
fn build_write(file: File, buffer: RawBuffer, offset: u64) -> Entry {
    let RawBuffer { pointer, len, registered } = buffer;
    match registered {
        Some(index) => on_file!(file, |fd| {
            opcode::WriteFixed::new(fd, pointer, len, index).offset(offset).build()
        }),
        None => on_file!(file, |fd| opcode::Write::new(fd, pointer, len).offset(offset).build()),
    }
}

/// Does the same as [`build`], for calls that are not worth inlining into its callers.
fn build_rare(call: &Call, how: How) -> Option<Entry> {
    Some(match *call {
        Call::Read { file, buffer, offset } => build_read(file, buffer, offset),
        Call::Write { file, buffer, offset } => build_write(file, buffer, offset),
        Call::Nop => opcode::Nop::new().build(),
        Call::ReadVectored { file, vectors, count, offset } => {
            on_file!(file, |fd| opcode::Readv::new(fd, vectors, count).offset(offset).build())
        }
        Call::WriteVectored { file, vectors, count, offset } => {
            on_file!(file, |fd| opcode::Writev::new(fd, vectors, count).offset(offset).build())
        }
        Call::Sync { file, data_only } => {
            let flags =
                if data_only { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
            on_file!(file, |fd| opcode::Fsync::new(fd).flags(flags).build())
        }
        Call::Allocate { file, mode, offset, len } => on_file!(file, |fd| {
            opcode::Fallocate::new(fd, len).offset(offset).mode(mode).build()
        }),
        Call::SetLen { file, len } => on_file!(file, |fd| opcode::Ftruncate::new(fd, len).build()),
        Call::Close { file } => on_file!(file, |fd| opcode::Close::new(fd).build()),
        Call::Timeout { after } => opcode::Timeout::new(after.cast()).build(),
        Call::Cancel { user_data, .. } => opcode::AsyncCancel::new(user_data).build(),
        Call::Open { name, flags, mode, entry } => build_open(name, flags, mode, entry),
        Call::Statx { name, flags, mask, out } => {
            opcode::Statx::new(types::Fd(name.directory), name.path, out.cast())
                .flags(flags)
                .mask(mask)
                .build()
        }
        Call::Unlink { name, flags } => {
            opcode::UnlinkAt::new(types::Fd(name.directory), name.path).flags(flags).build()
        }
        Call::CreateDirectory { name, mode } => {
            opcode::MkDirAt::new(types::Fd(name.directory), name.path).mode(mode).build()
        }
        Call::Rename { from, to, flags } => {
            let (old, new) = (types::Fd(from.directory), types::Fd(to.directory));
            opcode::RenameAt::new(old, from.path, new, to.path).flags(flags).build()
        }
        Call::Link { from, to, flags } => {
            let (old, new) = (types::Fd(from.directory), types::Fd(to.directory));
            opcode::LinkAt::new(old, from.path, new, to.path).flags(flags).build()
        }
        Call::Accept { .. }
        | Call::Connect { .. }
        | Call::Receive { .. }
        | Call::ReceiveMulti { .. }
        | Call::ReceiveMessage { .. }
        | Call::Send { .. }
        | Call::SendMessage { .. } => return build_on_socket(call, how),
        Call::Symlink { target, name } => {
            opcode::SymlinkAt::new(types::Fd(name.directory), target, name.path).build()
        }
        // The kernel's ring has no such operation.
        Call::ReadLink { .. } | Call::SetMode { .. } | Call::ReadDirectory { .. } => return None,
        Call::Invalid => return None,
    })
}

fn build_on_socket(call: &Call, how: How) -> Option<Entry> {
    Some(match *call {
        Call::Accept { file, multi } if multi && how.accepts_many => {
            on_file!(file, |fd| opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build())
        }
        Call::Accept { file, .. } => on_file!(file, |fd| {
            opcode::Accept::new(fd, null_mut(), null_mut()).flags(libc::SOCK_CLOEXEC).build()
        }),
        Call::Connect { file, address, len } => {
            on_file!(file, |fd| opcode::Connect::new(fd, address, len).build())
        }
        Call::Receive { file, buffer } => {
            on_file!(file, |fd| opcode::Recv::new(fd, buffer.pointer, buffer.len).build())
        }
        Call::ReceiveMulti { file, ring: Some(group), .. } if how.receives_many => {
            on_file!(file, |fd| opcode::RecvMulti::new(fd, group).build())
        }
        Call::ReceiveMulti { file, ring: Some(group), .. } => on_file!(file, |fd| {
            let receive = opcode::Recv::new(fd, null_mut(), 0).buf_group(group).build();
            receive.flags(Flags::BUFFER_SELECT)
        }),
        Call::ReceiveMessage { file, header } => {
            on_file!(file, |fd| opcode::RecvMsg::new(fd, header).build())
        }
        Call::Send { file, buffer, manner } => build_send(file, buffer, manner, how),
        Call::SendMessage { file, header, manner } => on_file!(file, |fd| {
            opcode::SendMsg::new(fd, header).flags(flags_of(manner) as u32).build()
        }),
        // The kernel does not have the group's buffers.
        _ => return None,
    })
}

fn build_open(name: RawName, flags: i32, mode: u32, entry: Option<u32>) -> Entry {
    let destination = entry.map(|entry| {
        types::DestinationSlot::try_from_slot_target(entry)
            .expect("a registered table has at most 65536 entries")
    });
    opcode::OpenAt::new(types::Fd(name.directory), name.path)
        .flags(flags)
        .mode(mode)
        .file_index(destination)
        .build()
}

fn build_send(file: File, buffer: RawBuffer, manner: Manner, how: How) -> Entry {
    let RawBuffer { pointer, len, .. } = buffer;
    let flags = flags_of(manner);
    if let Manner::ZeroCopy { .. } = manner {
        return on_file!(file, |fd| {
            opcode::SendZc::new(fd, pointer, len).buf_index(buffer.registered).flags(flags).build()
        });
    }
    let entry = on_file!(file, |fd| opcode::Send::new(fd, pointer, len).flags(flags).build());
    // A missing completion has to mean that all bytes were sent. `MSG_WAITALL` makes a short send a
    // failure, which has a completion. `MSG_DONTWAIT` keeps a send that would wait from doing so
    // behind the loop's back (io_uring/net.c, io_send; io_uring/io_uring.c, io_queue_async).
    if manner == Manner::Quiet && how.mutes_sends {
        entry.flags(Flags::SKIP_SUCCESS)
    } else {
        entry
    }
}

fn flags_of(manner: Manner) -> i32 {
    libc::MSG_NOSIGNAL
        | match manner {
            Manner::Some | Manner::Loud => 0,
            Manner::Whole | Manner::Copied | Manner::ZeroCopy { .. } => libc::MSG_WAITALL,
            Manner::Quiet => libc::MSG_WAITALL | libc::MSG_DONTWAIT,
        }
}

/// Pushes an entry of the self-test.
pub(super) fn push_tested(ring: &mut IoUring, entry: &Entry) -> Result<(), String> {
    // SAFETY: the test's memory is static or leaked, so it outlives whatever becomes of the entry.
    unsafe { ring.submission().push(entry) }.map_err(|_| "a new queue is full".to_owned())
}
