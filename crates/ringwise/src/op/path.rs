//! Operations on names: open, metadata, unlink, make a directory, rename, link.
//!
//! Each has a form relative to an open directory, which is not disturbed by a rename above it.
//! Paths are bytes; only NUL is refused, when the operation is pushed.

use std::{
    ffi::CString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::{
    buf::OwnedBufferMut,
    descriptor::Descriptor,
    op::{Kind, Name, Opcode, Open, OpenOptions, Operation, Statx},
    sys::statx::{MASK, RawStatx},
};

impl Operation {
    /// Opens a file, as open(2). The result is a descriptor:
    /// [`Completion::into_descriptor`](crate::Completion::into_descriptor).
    ///
    /// Needs Linux 5.6 on the ring. A completion that nobody takes closes what it opened.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Operation {
        open_in(None, path.as_ref(), options, false)
    }

    /// Opens a file relative to a directory, as openat(2).
    pub fn open_at(
        directory: &Descriptor,
        path: impl AsRef<Path>,
        options: OpenOptions,
    ) -> Operation {
        open_in(Some(directory), path.as_ref(), options, false)
    }

    /// Opens a file straight into the loop's registered table, without an ordinary descriptor:
    /// [`Completion::into_registered`](crate::Completion::into_registered). Needs Linux 5.15 on
    /// the ring.
    ///
    /// Such a file is closed without the `flush` call in which network file systems report late
    /// errors: sync it first there.
    pub fn open_registered(path: impl AsRef<Path>, options: OpenOptions) -> Operation {
        open_in(None, path.as_ref(), options, true)
    }

    /// Reads a name's metadata, following links, as statx(2).
    pub fn statx(path: impl AsRef<Path>) -> Operation {
        statx_in(None, path.as_ref(), libc::AT_STATX_SYNC_AS_STAT)
    }

    /// Reads a name's metadata without following a link in its last part.
    pub fn statx_link(path: impl AsRef<Path>) -> Operation {
        statx_in(None, path.as_ref(), libc::AT_SYMLINK_NOFOLLOW)
    }

    /// Reads the metadata of a name relative to a directory.
    pub fn statx_at(directory: &Descriptor, path: impl AsRef<Path>) -> Operation {
        statx_in(Some(directory), path.as_ref(), libc::AT_STATX_SYNC_AS_STAT)
    }

    /// Reads an open file's metadata.
    pub fn statx_descriptor(file: &Descriptor) -> Operation {
        statx_in(Some(file), Path::new(""), libc::AT_EMPTY_PATH)
    }

    /// Reads the metadata of a name relative to a directory, without following a link in its last part.
    pub fn statx_link_at(directory: &Descriptor, path: impl AsRef<Path>) -> Operation {
        statx_in(Some(directory), path.as_ref(), libc::AT_SYMLINK_NOFOLLOW)
    }

    /// Removes a name that is not a directory, as unlink(2). Needs Linux 5.11 on the ring.
    pub fn unlink(path: impl AsRef<Path>) -> Operation {
        unlink_in(None, path.as_ref(), 0)
    }

    /// Removes a name relative to a directory.
    pub fn unlink_at(directory: &Descriptor, path: impl AsRef<Path>) -> Operation {
        unlink_in(Some(directory), path.as_ref(), 0)
    }

    /// Removes an empty directory, as rmdir(2).
    pub fn remove_dir(path: impl AsRef<Path>) -> Operation {
        unlink_in(None, path.as_ref(), libc::AT_REMOVEDIR)
    }

    /// Removes an empty directory relative to another.
    pub fn remove_dir_at(directory: &Descriptor, path: impl AsRef<Path>) -> Operation {
        unlink_in(Some(directory), path.as_ref(), libc::AT_REMOVEDIR)
    }

    /// Makes a directory with permission bits `mode` less the umask, as mkdir(2). Needs Linux
    /// 5.15 on the ring.
    pub fn create_dir(path: impl AsRef<Path>, mode: u32) -> Operation {
        create_dir_in(None, path.as_ref(), mode)
    }

    /// Makes a directory relative to another.
    pub fn create_dir_at(directory: &Descriptor, path: impl AsRef<Path>, mode: u32) -> Operation {
        create_dir_in(Some(directory), path.as_ref(), mode)
    }

    /// Renames, replacing what bears the new name, as rename(2). Needs Linux 5.11 on the ring.
    pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Operation {
        rename_in((None, from.as_ref()), (None, to.as_ref()), 0)
    }

    /// Renames relative to two directories; an existing name is kept and the rename refused when
    /// `replace` is false (`RENAME_NOREPLACE`).
    pub fn rename_at(
        from: (&Descriptor, impl AsRef<Path>),
        to: (&Descriptor, impl AsRef<Path>),
        replace: bool,
    ) -> Operation {
        let flags = if replace { 0 } else { libc::RENAME_NOREPLACE };
        rename_in((Some(from.0), from.1.as_ref()), (Some(to.0), to.1.as_ref()), flags)
    }

    /// Gives a file a second name, as link(2). Needs Linux 5.15 on the ring.
    pub fn link(existing: impl AsRef<Path>, new: impl AsRef<Path>) -> Operation {
        link_in((None, existing.as_ref()), (None, new.as_ref()), 0)
    }

    /// Gives a file a second name, relative to two directories.
    pub fn link_at(
        existing: (&Descriptor, impl AsRef<Path>),
        new: (&Descriptor, impl AsRef<Path>),
    ) -> Operation {
        link_in((Some(existing.0), existing.1.as_ref()), (Some(new.0), new.1.as_ref()), 0)
    }

    /// Makes a symbolic link at `path` that leads to `target`, as symlink(2). Needs Linux 5.15 on the
    /// ring.
    pub fn symlink(target: impl AsRef<Path>, path: impl AsRef<Path>) -> Operation {
        let (target, path) = (target.as_ref(), path.as_ref());
        match CString::new(target.as_os_str().as_bytes()) {
            Ok(target) => {
                named(Opcode::Symlink, (None, path), |name| Kind::Symlink(Box::new((target, name))))
            }
            Err(_) => {
                let path = target.to_owned();
                Operation::of(Kind::Unrepresentable(Box::new((Opcode::Symlink, path))))
            }
        }
    }

    /// Reads where a symbolic link leads, as readlink(2).
    ///
    /// The buffer that comes back has the path; the result is its length in bytes. A ring has no such
    /// operation, so a thread makes it.
    pub fn read_link(path: impl AsRef<Path>) -> Operation {
        named(Opcode::ReadLink, (None, path.as_ref()), |name| {
            let buffer = Vec::with_capacity(libc::PATH_MAX as usize).into_buffer_mut();
            Kind::ReadLink { name: Box::new(name), buffer }
        })
    }

    /// Sets a file's permission bits, following links, as chmod(2). A ring has no such operation, so a
    /// thread makes it.
    pub fn set_mode(path: impl AsRef<Path>, mode: u32) -> Operation {
        named(Opcode::SetMode, (None, path.as_ref()), |name| Kind::SetMode {
            name: Box::new(name),
            mode,
        })
    }

    /// Sets an open file's permission bits, as fchmod(2).
    pub fn set_mode_descriptor(file: &Descriptor, mode: u32) -> Operation {
        named(Opcode::SetMode, (Some(file), Path::new("")), |name| Kind::SetMode {
            name: Box::new(name),
            mode,
        })
    }

    /// Reads the next names of an open directory, as getdents64(2).
    ///
    /// The result is a number of bytes, 0 at the end; the buffer then has as many bytes of
    /// `struct linux_dirent64`. [`fs::read_dir`](crate::fs::read_dir) takes them apart. The position
    /// belongs to the open directory, so one such operation is in flight at a time. A ring has no such
    /// operation, so a thread makes it.
    pub fn read_directory(directory: &Descriptor, buffer: impl OwnedBufferMut) -> Operation {
        let buffer = buffer.into_buffer_mut();
        Operation::of(Kind::ReadDirectory { target: directory.into(), buffer })
    }
}

type Relative<'a> = (Option<&'a Descriptor>, &'a Path);

/// The name as system calls take it, or the path back where it holds a NUL byte.
fn name_of((directory, path): Relative<'_>) -> Result<Name, PathBuf> {
    let bytes = CString::new(path.as_os_str().as_bytes()).map_err(|_| path.to_owned())?;
    Ok(Name { directory: directory.cloned(), path: bytes })
}

/// Builds an operation from a name, or one that a push refuses where the name cannot be one.
fn named(opcode: Opcode, name: Relative<'_>, build: impl FnOnce(Name) -> Kind) -> Operation {
    Operation::of(match name_of(name) {
        Ok(name) => build(name),
        Err(path) => Kind::Unrepresentable(Box::new((opcode, path))),
    })
}

/// As [`named`], for two names.
fn named_twice(
    opcode: Opcode,
    first: Relative<'_>,
    second: Relative<'_>,
    build: impl FnOnce(Box<(Name, Name)>) -> Kind,
) -> Operation {
    Operation::of(match (name_of(first), name_of(second)) {
        (Ok(first), Ok(second)) => build(Box::new((first, second))),
        (Err(path), _) | (_, Err(path)) => Kind::Unrepresentable(Box::new((opcode, path))),
    })
}

fn open_in(
    directory: Option<&Descriptor>,
    path: &Path,
    options: OpenOptions,
    into_table: bool,
) -> Operation {
    named(Opcode::Open, (directory, path), |name| {
        let mut flags = options.flags();
        if into_table {
            // A registered file is in no descriptor table that an exec could inherit, and the
            // kernel refuses the flag (io_uring/openclose.c, __io_openat_prep).
            flags &= !libc::O_CLOEXEC;
        }
        let mode = options.creation_mode();
        Kind::Open(Box::new(Open { name, flags, mode, into_table, entry: None, outcome: None }))
    })
}

fn statx_in(directory: Option<&Descriptor>, path: &Path, flags: i32) -> Operation {
    named(Opcode::Statx, (directory, path), |name| {
        Kind::Statx(Box::new(Statx { name, flags, mask: MASK, out: RawStatx::zeroed() }))
    })
}

fn unlink_in(directory: Option<&Descriptor>, path: &Path, flags: i32) -> Operation {
    named(Opcode::Unlink, (directory, path), |name| Kind::Unlink { name: Box::new(name), flags })
}

fn create_dir_in(directory: Option<&Descriptor>, path: &Path, mode: u32) -> Operation {
    named(Opcode::CreateDirectory, (directory, path), |name| Kind::CreateDirectory {
        name: Box::new(name),
        mode,
    })
}

fn rename_in(from: Relative<'_>, to: Relative<'_>, flags: u32) -> Operation {
    named_twice(Opcode::Rename, from, to, |names| Kind::Rename { names, flags })
}

fn link_in(existing: Relative<'_>, new: Relative<'_>, flags: i32) -> Operation {
    named_twice(Opcode::Link, existing, new, |names| Kind::Link { names, flags })
}
