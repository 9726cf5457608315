//! How a file is opened. It knows no flag of the kernel: `flags.rs` has those.

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
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) append: bool,
    pub(super) truncate: bool,
    pub(super) create: bool,
    pub(super) create_new: bool,
    pub(super) direct: bool,
    pub(super) mode: Option<u32>,
    pub(super) custom_flags: i32,
}

impl OpenOptions {
    /// Options that open for reading, unless writing is chosen.
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

    /// Bypasses the page cache (`O_DIRECT`). Offsets, lengths and buffers of operations then have to be
    /// multiples of [`Metadata::direct_alignment`](crate::Metadata::direct_alignment). Reads of
    /// [`fs::File`](crate::fs::File) may be unaligned, and are then copied.
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
}
