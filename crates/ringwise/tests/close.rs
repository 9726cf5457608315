//! A close that reports an error has closed all the same (close(2)), even if the error is
//! `ECANCELED`: a file system may answer a flush with any number. The number may be another file's
//! by then, so nobody closes it again.
//!
//! A test of its own, since it stands in for `close`.

use std::{
    fs::File,
    os::fd::AsRawFd,
    sync::atomic::{AtomicI32, Ordering},
};

use ringwise::{BackendChoice, Descriptor, ErrorKind, Local, Operation};

static REPORTS_CANCELLED: AtomicI32 = AtomicI32::new(-1);

/// Closes, and reports `ECANCELED` for one number once.
// SAFETY: the C library's own name and signature, and the same call.
#[unsafe(no_mangle)]
extern "C" fn close(fd: i32) -> i32 {
    // SAFETY: the caller of close(2) vouches for the number.
    let result = unsafe { libc::syscall(libc::SYS_close, fd) } as i32;
    let expected = (fd, -1, Ordering::Relaxed, Ordering::Relaxed);
    let (from, to, success, failure) = expected;
    if REPORTS_CANCELLED.compare_exchange(from, to, success, failure).is_err() {
        return result;
    }
    // SAFETY: a valid pointer to this thread's number (errno(3)).
    unsafe { *libc::__errno_location() = libc::ECANCELED };
    -1
}

#[test]
fn a_close_that_reports_an_error_has_closed() {
    let mut local = Local::builder().backend(BackendChoice::Classic).build().unwrap();
    let file = Descriptor::from(File::open("/dev/null").unwrap());
    let number = file.as_raw_fd();
    REPORTS_CANCELLED.store(number, Ordering::Relaxed);
    let done = local.run(Operation::close(file)).unwrap();
    assert_eq!(done.result().unwrap_err().kind(), ErrorKind::Cancelled);
    let other = File::open("/dev/zero").unwrap();
    assert_eq!(other.as_raw_fd(), number, "the number is in use again");
    drop(done);
    let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
    assert!(link.is_ok(), "somebody else's file was closed");
}
