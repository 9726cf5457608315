//! How a file is opened, and how space is allocated.

/// How to open a file, in the manner of [`std::fs::OpenOptions`]. `O_CLOEXEC` is always set.
///
/// # Examples
///
/// ```
/// use ringwise::{OpenOptions, Operation};
///
/// let open = Operation::open("data", OpenOptions::new().read(true).direct(true));
/// # let _ = open;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    direct: bool,
    mode: Option<u32>,
    custom_flags: i32,
}

impl OpenOptions {
    /// Options that open nothing yet: choose reading or writing.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Opens for reading.
    #[must_use]
    pub fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// Opens for writing.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Opens for writing at the end: every write goes there, whatever offset it was given
    /// (pwrite(2), BUGS).
    #[must_use]
    pub fn append(mut self, append: bool) -> Self {
        self.append = append;
        self
    }

    /// Cuts the file to no bytes when it exists.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Creates the file when it does not exist.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Creates the file and fails when the name exists, even as a dangling link.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Bypasses the page cache (`O_DIRECT`). Offsets, lengths and buffers then have to be aligned.
    #[must_use]
    pub fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// Permission bits of a new file before the umask; 0o666 unless set.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Further `O_*` flags, as they are.
    #[must_use]
    pub fn custom_flags(mut self, flags: i32) -> Self {
        self.custom_flags = flags;
        self
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.direct || self.custom_flags & libc::O_DIRECT != 0
    }

    /// The flags for open(2). Where neither reading nor writing was asked for, reading: the
    /// kernel knows no third way, except for `O_PATH` in the custom flags.
    pub(crate) fn flags(&self) -> i32 {
        let writes = self.write || self.append;
        let mut flags = libc::O_CLOEXEC | self.custom_flags;
        flags |= match (self.read, writes) {
            (true, true) => libc::O_RDWR,
            (false, true) => libc::O_WRONLY,
            (_, false) => libc::O_RDONLY,
        };
        let bits = [
            (self.append, libc::O_APPEND),
            (self.truncate, libc::O_TRUNC),
            (self.create || self.create_new, libc::O_CREAT),
            (self.create_new, libc::O_EXCL),
            (self.direct, libc::O_DIRECT),
        ];
        for (wanted, bit) in bits {
            if wanted {
                flags |= bit;
            }
        }
        flags
    }

    pub(crate) fn creation_mode(&self) -> u32 {
        // The kernel refuses a mode without O_CREAT or O_TMPFILE in openat2 only; 0 is as good.
        self.mode.unwrap_or(0o666)
    }
}

/// What [`Operation::allocate`](crate::Operation::allocate) does with the range (fallocate(2)).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocateMode {
    /// Reserves space and extends the file where the range ends beyond it.
    Extend,
    /// Reserves space and leaves the length alone.
    KeepSize,
    /// Gives the space back; the range reads as zeros.
    PunchHole,
    /// Makes the range read as zeros, keeping space reserved where the file system can.
    ZeroRange,
}

impl AllocateMode {
    pub(crate) fn flags(self) -> i32 {
        match self {
            AllocateMode::Extend => 0,
            AllocateMode::KeepSize => libc::FALLOC_FL_KEEP_SIZE,
            AllocateMode::PunchHole => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            AllocateMode::ZeroRange => libc::FALLOC_FL_ZERO_RANGE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_open() {
        let direction = |options: OpenOptions| options.flags() & libc::O_ACCMODE;
        assert_eq!(direction(OpenOptions::new()), libc::O_RDONLY);
        assert_eq!(direction(OpenOptions::new().write(true)), libc::O_WRONLY);
        assert_eq!(direction(OpenOptions::new().read(true).append(true)), libc::O_RDWR);
        let flags = OpenOptions::new().write(true).create_new(true).direct(true).flags();
        for bit in [libc::O_CREAT, libc::O_EXCL, libc::O_DIRECT, libc::O_CLOEXEC] {
            assert_ne!(flags & bit, 0);
        }
    }
}
