//! Extended attributes, ACLs among them.
//!
//! ACLs belong to the permissions and are copied with them; the rest is copied by name. Those that
//! a file system keeps for itself are left out, as attr's `/etc/xattr.conf` has it.

use rustix::{
    fs::{self, XattrFlags},
    io::Errno,
};

use super::{Copied, Finish, Of, To, through};
use crate::messages::report::{Line, compose};

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// Names that are not copied, and beginnings of such names.
const SKIPPED: [&[u8]; 10] = [
    b"system.nfs4_acl",
    b"system.nfs4acl",
    b"system.posix_acl_",
    b"trusted.SGI_ACL_",
    b"trusted.SGI_CAP_FILE",
    b"trusted.SGI_DMI_",
    b"trusted.SGI_MAC_FILE",
    b"user.Beagle.",
    b"security.evm",
    // Set by a security module from its own policy, when the file is made.
    b"security.selinux",
];

/// Gives a file that takes another's place what that one has, as far as that can be given. What
/// is the kernel's own (`security.`) goes when a file is written in any case.
pub(crate) fn take_over(old: Of<'_>, new: To<'_>) {
    let Ok(names) = list(old) else { return };
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if !name.starts_with(b"security.")
            && let Ok(value) = get(old, name)
        {
            let _ = set(new, name, &value);
        }
    }
}

impl Finish<'_> {
    /// Copies extended attributes. False: at least one could not be.
    pub(super) fn copy_extended(&self, lines: &mut Vec<Line>) -> bool {
        let preserve = &self.options.preserve;
        let all = !self.options.data || preserve.xattr_required;
        let mut say = |template: &str, names: &[&[u8]], errno: Errno| {
            let is_news = all || (!preserve.quiet && !is_unsupported(errno));
            if is_news {
                let text = compose(self.locale, template, names, Some(errno));
                lines.push(Line::Error(text));
            }
        };
        let names = match list(self.source) {
            Ok(names) => names,
            Err(errno) if is_unsupported(errno) => return true,
            Err(errno) => {
                say("listing attributes of %s", &[self.source_path], errno);
                return false;
            }
        };
        let mut complete = true;
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            if SKIPPED.iter().any(|skipped| name.starts_with(skipped)) {
                continue;
            }
            let value = match get(self.source, name) {
                Ok(value) => value,
                // Removed meanwhile.
                Err(Errno::NODATA) => continue,
                Err(errno) => {
                    say("getting attribute %s of %s", &[name, self.source_path], errno);
                    complete = false;
                    continue;
                }
            };
            if let Err(errno) = set(self.copy, name, &value) {
                complete = false;
                if is_unsupported(errno) {
                    say("setting attributes for %s", &[self.copy_path], errno);
                    break;
                }
                say("setting attribute %s for %s", &[name, self.copy_path], errno);
            }
        }
        complete
    }

    /// Gives the copy the source's ACLs and permission bits.
    pub(super) fn copy_permissions(&self, mode: u32) -> Result<(), Errno> {
        let acl = match get(self.source, ACCESS_ACL) {
            Ok(acl) => Some(acl),
            Err(errno) if errno == Errno::NODATA || is_unsupported(errno) => None,
            Err(errno) => return Err(errno),
        };
        self.set_permissions(mode, acl.as_deref())?;
        if !matches!(self.what, Copied::Directory | Copied::Parent) {
            return Ok(());
        }
        match get(self.source, DEFAULT_ACL) {
            Ok(acl) => set(self.copy, DEFAULT_ACL, &acl),
            Err(Errno::NODATA) => match remove(self.copy, DEFAULT_ACL) {
                Err(errno) if errno != Errno::NODATA && !is_unsupported(errno) => Err(errno),
                _ => Ok(()),
            },
            Err(errno) if is_unsupported(errno) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Sets an ACL, or the one that says no more than the mode: one call that also takes away what
    /// a directory's default ACL gave. As GNU cp does it, so that a directory keeps the
    /// set-group-ID bit that it got from the one above it, which chmod(2) would clear.
    pub(super) fn set_permissions(&self, mode: u32, acl: Option<&[u8]>) -> Result<(), Errno> {
        let plain = plain_acl(mode);
        match set(self.copy, ACCESS_ACL, acl.unwrap_or(&plain)) {
            Ok(()) if mode & 0o7000 == 0 => Ok(()),
            Ok(()) => self.set_mode(mode),
            Err(errno) if is_unsupported(errno) => {
                self.set_mode(mode)?;
                if acl.is_some() { Err(errno) } else { Ok(()) }
            }
            Err(errno) => Err(errno),
        }
    }
}

/// The ACL of owner, group and others as the kernel takes it (linux/posix_acl_xattr.h).
fn plain_acl(mode: u32) -> Vec<u8> {
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, shift) in [(1_u16, 6), (4, 3), (32, 0)] {
        acl.extend(tag.to_le_bytes());
        acl.extend((((mode >> shift) & 7) as u16).to_le_bytes());
        acl.extend(u32::MAX.to_le_bytes());
    }
    acl
}

fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS)
}

fn list(of: Of<'_>) -> Result<Vec<u8>, Errno> {
    growing(256, |buffer| match of {
        Of::File(To::Open(file)) => fs::flistxattr(file, buffer),
        Of::File(To::Through(file)) => fs::listxattr(through(file), buffer),
        Of::Named(place) => fs::llistxattr(place.reachable(), buffer),
    })
}

fn get(of: Of<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
    growing(256, |buffer| match of {
        Of::File(To::Open(file)) => fs::fgetxattr(file, name, buffer),
        Of::File(To::Through(file)) => fs::getxattr(through(file), name, buffer),
        Of::Named(place) => fs::lgetxattr(place.reachable(), name, buffer),
    })
}

fn set(to: To<'_>, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    match to {
        To::Open(file) => fs::fsetxattr(file, name, value, XattrFlags::empty()),
        To::Through(file) => fs::setxattr(through(file), name, value, XattrFlags::empty()),
    }
}

fn remove(to: To<'_>, name: &[u8]) -> Result<(), Errno> {
    match to {
        To::Open(file) => fs::fremovexattr(file, name),
        To::Through(file) => fs::removexattr(through(file), name),
    }
}

/// Reads what has no known length, with a larger buffer each time it does not fit. 64 KiB are the
/// most that the kernel gives (xattr(7)).
fn growing(
    first: usize,
    mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; first];
    loop {
        match read(&mut buffer[..]) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < 128 << 10 => buffer.resize(buffer.len() * 8, 0),
            Err(errno) => return Err(errno),
        }
    }
}
