//! Extended attributes, ACLs among them.
//!
//! ACLs belong to the permissions and are copied with them; the rest is copied by name. Those that
//! a file system keeps for itself are left out, as attr's `/etc/xattr.conf` has it.

use rustix::{
    fs::{self, XattrFlags},
    io::Errno,
};

use super::{Finish, Of};
use crate::report::{Line, compose};

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
        let access = self.copy_acl(ACCESS_ACL);
        let default = if self.is_directory { self.copy_acl(DEFAULT_ACL) } else { Ok(()) };
        // The bits last: an ACL has no set-user-ID, and its mask is the bits' group.
        self.set_mode(mode)?;
        access.and(default)
    }

    fn copy_acl(&self, name: &[u8]) -> Result<(), Errno> {
        match get(self.source, name) {
            Ok(acl) => set(self.copy, name, &acl),
            Err(Errno::NODATA) => match remove(self.copy, name) {
                Err(errno) if errno != Errno::NODATA && !is_unsupported(errno) => Err(errno),
                _ => Ok(()),
            },
            Err(errno) if is_unsupported(errno) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Takes away what a directory's default ACL gave to its new files.
    pub(super) fn drop_acl(&self) -> Result<(), Errno> {
        match remove(self.copy, ACCESS_ACL) {
            Err(errno) if errno != Errno::NODATA && !is_unsupported(errno) => Err(errno),
            _ => Ok(()),
        }
    }
}

fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS)
}

fn list(of: Of<'_>) -> Result<Vec<u8>, Errno> {
    growing(256, |buffer| match of {
        Of::Open(file) => fs::flistxattr(file, buffer),
        Of::Named(place) => fs::llistxattr(place.reachable(), buffer),
    })
}

fn get(of: Of<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
    growing(256, |buffer| match of {
        Of::Open(file) => fs::fgetxattr(file, name, buffer),
        Of::Named(place) => fs::lgetxattr(place.reachable(), name, buffer),
    })
}

fn set(of: Of<'_>, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    match of {
        Of::Open(file) => fs::fsetxattr(file, name, value, XattrFlags::empty()),
        Of::Named(place) => fs::lsetxattr(place.reachable(), name, value, XattrFlags::empty()),
    }
}

fn remove(of: Of<'_>, name: &[u8]) -> Result<(), Errno> {
    match of {
        Of::Open(file) => fs::fremovexattr(file, name),
        Of::Named(place) => fs::lremovexattr(place.reachable(), name),
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
