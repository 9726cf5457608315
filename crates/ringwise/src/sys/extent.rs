//! Where a file's bytes lie, by the `FIEMAP` ioctl.
//!
//! A range without an extent is a hole, and an unwritten extent reads as zeros without touching
//! the device: both make a read look faster than it is, and a copy has to treat them apart.
//!
//! # Safety
//!
//! One ioctl with a buffer of this file, laid out as in include/uapi/linux/fiemap.h.
#![allow(unsafe_code)]

use std::{io, os::fd::AsRawFd};

use crate::descriptor::Descriptor;

/// A contiguous part of a file on its device. All in bytes.
///
/// # Examples
///
/// ```
/// use ringwise::{Descriptor, extents};
///
/// let file = Descriptor::from(std::fs::File::open("/proc/self/exe")?);
/// match extents(&file) {
///     Ok(extents) => {
///         let bytes: u64 = extents.iter().map(|extent| extent.length).sum();
///         println!("{bytes} bytes in {} extents", extents.len());
///     }
///     Err(error) => println!("the file system does not tell: {error}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the device; 0 where the file system tells none.
    pub physical: u64,
    /// Length.
    pub length: u64,
    /// Allocated but never written: reads as zeros.
    pub unwritten: bool,
    /// Not on the device yet: the data waits in the page cache.
    pub delayed: bool,
    /// Shared with another file.
    pub shared: bool,
}

const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
const FIEMAP_EXTENT_LAST: u32 = 0x1;
const FIEMAP_EXTENT_DELALLOC: u32 = 0x4;
const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;
const FIEMAP_EXTENT_SHARED: u32 = 0x2000;
const EXTENTS_AT_ONCE: usize = 128;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS_AT_ONCE],
}

const _: () = assert!(size_of::<RawExtent>() == 56 && std::mem::offset_of!(Map, extents) == 32);

/// Lists a file's extents in order of their offset.
///
/// # Errors
///
/// `EOPNOTSUPP` or `ENOTTY` where the file system has no `FIEMAP` (tmpfs, proc).
pub fn extents(file: &Descriptor) -> io::Result<Vec<Extent>> {
    let mut found = Vec::new();
    let mut start = 0;
    loop {
        let map = fetch(file, start)?;
        let batch = &map.extents[..(map.mapped_extents as usize).min(EXTENTS_AT_ONCE)];
        found.extend(batch.iter().map(Extent::from));
        match batch.last() {
            // An empty extent would have the same asked for again, for ever.
            Some(last) if last.flags & FIEMAP_EXTENT_LAST == 0 && last.length > 0 => {
                start = last.logical.saturating_add(last.length);
            }
            _ => return Ok(found),
        }
    }
}

fn fetch(file: &Descriptor, start: u64) -> io::Result<Box<Map>> {
    let mut map = Box::new(Map {
        start,
        length: u64::MAX - start,
        flags: 0,
        mapped_extents: 0,
        extent_count: EXTENTS_AT_ONCE as u32,
        reserved: 0,
        extents: [RawExtent::default(); EXTENTS_AT_ONCE],
    });
    // SAFETY: the structure has the kernel's layout, room for `extent_count` extents, and
    // outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *map) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(map) }
}

impl From<&RawExtent> for Extent {
    fn from(raw: &RawExtent) -> Extent {
        Extent {
            logical: raw.logical,
            physical: raw.physical,
            length: raw.length,
            unwritten: raw.flags & FIEMAP_EXTENT_UNWRITTEN != 0,
            delayed: raw.flags & FIEMAP_EXTENT_DELALLOC != 0,
            shared: raw.flags & FIEMAP_EXTENT_SHARED != 0,
        }
    }
}
