//! The flags by which open(2) and fallocate(2) know the options.

use super::{AllocateMode, OpenOptions};

impl OpenOptions {
    pub(crate) fn is_direct(&self) -> bool {
        self.direct || self.custom_flags & libc::O_DIRECT != 0
    }

    /// The same, without waiting for the writer of a FIFO, and without a terminal for this process.
    pub(crate) fn without_waiting(mut self) -> OpenOptions {
        self.custom_flags |= libc::O_NONBLOCK | libc::O_NOCTTY;
        self
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
