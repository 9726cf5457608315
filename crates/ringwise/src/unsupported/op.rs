//! Operations: each can be made, holds nothing, and no loop takes it.

use std::{path::Path, time::Duration};

#[path = "../op/opcode.rs"]
#[allow(dead_code)]
mod opcode;
#[path = "../op/options.rs"]
#[allow(dead_code)]
mod options;
#[path = "../op/space.rs"]
mod space;

pub use opcode::Opcode;
pub use options::OpenOptions;
pub use space::AllocateMode;

use super::buf::{Buffer, BufferGroup, OwnedBuffer, OwnedBufferMut};
use crate::{
    descriptor::{Descriptor, Target},
    flight::slot::Ticket,
    net::Address,
};

/// An operation that cannot be made.
#[derive(Debug)]
#[must_use = "an operation does nothing until it is pushed"]
pub struct Operation(Opcode);

impl Operation {
    /// Which operation it is.
    pub fn opcode(&self) -> Opcode {
        self.0
    }
}

/// The operations by their signatures.
macro_rules! operations {
    ($($opcode:ident [$($signature:tt)*])*) => {
        #[allow(missing_docs, unused_variables)]
        impl Operation {
            $(pub $($signature)* -> Operation { Operation(Opcode::$opcode) })*
        }
    };
}

operations! {
    Nop [fn nop()]
    Timeout [fn timeout(duration: Duration)]
    Cancel [fn cancel(ticket: Ticket)]
    Read [fn read_at(target: impl Into<Target>, buffer: impl OwnedBufferMut, offset: u64)]
    Write [fn write_at(target: impl Into<Target>, buffer: impl OwnedBuffer, offset: u64)]
    ReadVectored [fn read_vectored_at(target: impl Into<Target>, buffers: Vec<Buffer>, offset: u64)]
    WriteVectored [fn write_vectored_at(target: impl Into<Target>, buffers: Vec<Buffer>, offset: u64)]
    Sync [fn sync_all(target: impl Into<Target>)]
    Sync [fn sync_data(target: impl Into<Target>)]
    Allocate [fn allocate(target: impl Into<Target>, mode: AllocateMode, offset: u64, len: u64)]
    SetLen [fn set_len(target: impl Into<Target>, len: u64)]
    Close [fn close(target: impl Into<Target>)]
    Open [fn open(path: impl AsRef<Path>, options: OpenOptions)]
    Open [fn open_at(directory: &Descriptor, path: impl AsRef<Path>, options: OpenOptions)]
    Open [fn open_registered(path: impl AsRef<Path>, options: OpenOptions)]
    Statx [fn statx(path: impl AsRef<Path>)]
    Statx [fn statx_link(path: impl AsRef<Path>)]
    Statx [fn statx_at(directory: &Descriptor, path: impl AsRef<Path>)]
    Statx [fn statx_descriptor(file: &Descriptor)]
    Unlink [fn unlink(path: impl AsRef<Path>)]
    Unlink [fn unlink_at(directory: &Descriptor, path: impl AsRef<Path>)]
    Unlink [fn remove_dir(path: impl AsRef<Path>)]
    Unlink [fn remove_dir_at(directory: &Descriptor, path: impl AsRef<Path>)]
    CreateDirectory [fn create_dir(path: impl AsRef<Path>, mode: u32)]
    CreateDirectory [fn create_dir_at(directory: &Descriptor, path: impl AsRef<Path>, mode: u32)]
    Rename [fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>)]
    Symlink [fn symlink(target: impl AsRef<Path>, path: impl AsRef<Path>)]
    ReadLink [fn read_link(path: impl AsRef<Path>)]
    SetMode [fn set_mode(path: impl AsRef<Path>, mode: u32)]
    SetMode [fn set_mode_descriptor(file: &Descriptor, mode: u32)]
    ReadDirectory [fn read_directory(directory: &Descriptor, buffer: impl OwnedBufferMut)]
    Statx [fn statx_link_at(directory: &Descriptor, path: impl AsRef<Path>)]
    Link [fn link(existing: impl AsRef<Path>, new: impl AsRef<Path>)]
    Accept [fn accept(listener: impl Into<Target>)]
    AcceptMulti [fn accept_multi(listener: impl Into<Target>)]
    Connect [fn connect(socket: impl Into<Target>, address: impl Into<Address>)]
    Receive [fn recv(socket: impl Into<Target>, buffer: impl OwnedBufferMut)]
    Receive [fn recv_vectored(socket: impl Into<Target>, buffers: Vec<Buffer>)]
    ReceiveMulti [fn recv_multi(socket: impl Into<Target>, group: &BufferGroup)]
    ReceiveMessage [fn recv_from(socket: impl Into<Target>, buffer: impl OwnedBufferMut)]
    Send [fn send(socket: impl Into<Target>, buffer: impl OwnedBuffer)]
    Send [fn send_all(socket: impl Into<Target>, buffer: impl OwnedBuffer)]
    Send [fn send_quiet(socket: impl Into<Target>, buffer: impl OwnedBuffer)]
    SendZeroCopy [fn send_zero_copy(socket: impl Into<Target>, buffer: impl OwnedBuffer)]
    SendMessage [fn send_vectored(socket: impl Into<Target>, buffers: Vec<Buffer>)]
    SendMessage [fn send_all_vectored(socket: impl Into<Target>, buffers: Vec<Buffer>)]
    SendMessage [fn send_to(socket: impl Into<Target>, buffer: impl OwnedBuffer, to: impl Into<Address>)]
}

absent! {
    FileType [Clone] {
        self [fn is_file(&self) -> bool]
        self [fn is_dir(&self) -> bool]
        self [fn is_symlink(&self) -> bool]
    }
    Metadata [Clone] {
        self [fn file_type(&self) -> FileType]
        self [fn permissions(&self) -> std::fs::Permissions]
        self [fn modified(&self) -> std::time::SystemTime]
        self [fn accessed(&self) -> std::time::SystemTime]
        self [fn created(&self) -> Option<std::time::SystemTime>]
        self [fn len(&self) -> u64]
        self [fn blocks(&self) -> u64]
        self [fn block_size(&self) -> u32]
        self [fn mode(&self) -> u32]
        self [fn is_file(&self) -> bool]
        self [fn is_dir(&self) -> bool]
        self [fn is_symlink(&self) -> bool]
        self [fn links(&self) -> u32]
        self [fn uid(&self) -> u32]
        self [fn gid(&self) -> u32]
        self [fn inode(&self) -> u64]
        self [fn device(&self) -> (u32, u32)]
        self [fn modified_ns(&self) -> i128]
        self [fn accessed_ns(&self) -> i128]
        self [fn changed_ns(&self) -> i128]
        self [fn created_ns(&self) -> Option<i128>]
    }
}
