//! The ways to run a loop, and what the tests need around one.

use std::{path::Path, time::Duration};

use ringwise::{Backend, BackendChoice, Builder, Completion, Local, Opcode, Operation};
use tempfile::TempDir;

/// A way to run a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// A ring with the default settings.
    Uring,
    /// A ring without any setup flag.
    UringPlain,
    /// A ring that makes no call itself: its threads do, and wake it.
    UringByThreads,
    /// A ring with a submission thread.
    UringSqpoll,
    /// Classic calls.
    Classic,
}

impl Loop {
    pub fn builder(self) -> Builder {
        let builder = Local::builder().entries(16);
        let uring = builder.clone().backend(BackendChoice::Uring);
        match self {
            Loop::Uring => uring,
            Loop::UringPlain => {
                uring.defer_taskrun(false).single_issuer(false).registered_ring(false)
            }
            Loop::UringByThreads => uring.avoid(&Opcode::ALL),
            Loop::UringSqpoll => uring.sqpoll(Some(Duration::from_millis(20))),
            Loop::Classic => builder.backend(BackendChoice::Classic),
        }
    }

    pub fn build(self) -> Local {
        self.builder().build().expect("seen to work by is_to_be_had")
    }

    /// Whether this way can be gone here; a skip is told, and an error in CI.
    pub fn is_to_be_had(self) -> bool {
        match self.builder().build() {
            Ok(local) => {
                let classic = local.setup().backend() == Backend::Classic;
                assert_eq!(classic, self == Loop::Classic);
                true
            }
            Err(error) => {
                skip(&format!("{self:?}: {error}"));
                false
            }
        }
    }
}

/// Tells that a test cannot run here, which in CI it has to.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
    println!("skipped: {reason}");
}

/// A directory on the file system that the build uses, which takes direct I/O more often than
/// the one for temporary files.
pub fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file of `len` bytes that count up.
pub fn counted_file(directory: &Path, len: usize) -> std::path::PathBuf {
    let path = directory.join("counted");
    std::fs::write(&path, counted(len)).unwrap();
    path
}

pub fn counted(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Pushes one operation and takes its completion.
pub fn run(local: &mut Local, operation: Operation) -> Completion {
    local.run(operation).unwrap()
}

/// The next completion, waited for.
pub fn next(local: &mut Local) -> Completion {
    local.submit_and_wait(1).unwrap();
    local.next_completion().expect("one was waited for")
}
