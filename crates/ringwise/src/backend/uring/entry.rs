//! A call as a submission queue entry.

use io_uring::{opcode, squeue::Entry, types};

use crate::call::{Call, File};

/// Expands to the same builder for an ordinary or a registered file: the crate has a type for
/// each and no common one.
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

/// A no-op. Said in words of 64 bits, it is written to the queue in words of 64 bits; built field
/// by field it is copied there field by field, which takes three nanoseconds more.
#[inline]
pub(super) fn nop(user_data: u64) -> Entry {
    /// `struct io_uring_sqe`: opcode, flags, priority and descriptor in the first word, the
    /// user data in the fifth.
    const NO_DESCRIPTOR: u64 = (u32::MAX as u64) << 32;
    const _: () = assert!(size_of::<Entry>() == 64);
    let words = [NO_DESCRIPTOR | opcode::Nop::CODE as u64, 0, 0, 0, user_data, 0, 0, 0];
    // SAFETY: an entry is a `struct io_uring_sqe`, all integers and unions of them.
    unsafe { std::mem::transmute::<[u64; 8], Entry>(words) }
}

/// Builds the entry. The addresses in `call` go into it as they are.
#[inline]
pub(super) fn build(call: &Call) -> Entry {
    match *call {
        Call::Nop => opcode::Nop::new().build(),
        Call::Read { file, buffer, offset } => match buffer.registered {
            Some(index) => on_file!(file, |fd| {
                opcode::ReadFixed::new(fd, buffer.pointer, buffer.len, index).offset(offset).build()
            }),
            None => on_file!(file, |fd| {
                opcode::Read::new(fd, buffer.pointer, buffer.len).offset(offset).build()
            }),
        },
        Call::Write { file, buffer, offset } => match buffer.registered {
            Some(index) => on_file!(file, |fd| {
                opcode::WriteFixed::new(fd, buffer.pointer, buffer.len, index)
                    .offset(offset)
                    .build()
            }),
            None => on_file!(file, |fd| {
                opcode::Write::new(fd, buffer.pointer, buffer.len).offset(offset).build()
            }),
        },
        _ => build_rare(call),
    }
}

fn build_rare(call: &Call) -> Entry {
    match *call {
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
        Call::Cancel { user_data } => opcode::AsyncCancel::new(user_data).build(),
        _ => build_on_names(call),
    }
}

fn build_on_names(call: &Call) -> Entry {
    match *call {
        Call::Open { name, flags, mode, entry } => {
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
        _ => unreachable!("built by the two functions above"),
    }
}
