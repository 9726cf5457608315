//! A loop that sleeps elsewhere: in a runtime's epoll set, on a descriptor of the backend's.
//!
//! Whoever sleeps so must miss nothing, and a descriptor tells of changes only. What was there before
//! is either a completion that is taken after the loop was armed, or [`Local::is_armed`] says that it
//! is to be armed once more: what the kernel holds back, and what comes between the two and is
//! nobody's completion.

use std::os::fd::BorrowedFd;

use super::Local;
use crate::{backend::classic::pool::HandOut, error::Error, op::Opcode};

impl Local {
    /// What becomes readable when a completion comes that the loop does not wait for itself, or the
    /// other side of the ring has something: a ring's own descriptor. See
    /// [`submit_and_arm`](Self::submit_and_arm).
    pub(crate) fn event_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.driver.event_descriptor()
    }

    /// As [`submit`](Self::submit), and sees to it that all that comes later makes the event
    /// descriptor readable.
    pub(crate) fn submit_and_arm(&mut self) -> Result<(), Error> {
        if self.registrations.has_unused() {
            self.unregister_unused();
        }
        if self.has_watched() {
            self.drive_watched(0, None)?;
        } else if self.chains.are_watched() {
            self.drive_chains(0, None)?;
        }
        self.driver.submit_and_arm().map_err(|errno| Error::new(Opcode::Submit, errno))
    }

    /// Has the threads of a classic loop call this when a result would wake it: whether they have
    /// handed it out.
    pub(crate) fn hand_out_by(&self, hand_out: HandOut) {
        self.driver.hand_out_by(hand_out);
    }

    /// Whether it may be slept on the event descriptor, after the completions that
    /// [`submit_and_arm`](Self::submit_and_arm) left were taken.
    pub(crate) fn is_armed(&mut self) -> bool {
        !self.has_unheeded() && self.driver.is_armed()
    }
}

#[cfg(all(not(ringwise_loom), test))]
mod tests {
    use std::{
        fs::File,
        io::Write,
        net::{Ipv4Addr, TcpListener, TcpStream},
        os::fd::OwnedFd,
        time::Duration,
    };

    use rustix::{
        event::{
            Timespec,
            epoll::{self, CreateFlags, Event, EventData, EventFlags},
        },
        fs::{CWD, FileType, Mode, mknodat},
        io::Errno,
    };

    use super::*;
    use crate::{
        buf::BufferGroup,
        completion::Completion,
        descriptor::Descriptor,
        op::{OpenOptions, Operation},
        setup::{BackendChoice, Builder},
    };

    /// A loop as a runtime drives one; nothing, and said so, where it is not to be had.
    fn local(builder: Builder) -> Option<Local> {
        let untied = builder.single_issuer(false).defer_taskrun(false).registered_ring(false);
        let say = |error: &_| {
            assert!(std::env::var_os("CI").is_none(), "skipped in CI: {error}");
            println!("skipped: {error}");
        };
        untied.build().inspect_err(say).ok()
    }

    /// A loop of each kind.
    fn locals(builder: &Builder) -> impl Iterator<Item = Local> {
        let choices = [BackendChoice::Uring, BackendChoice::Classic];
        choices.into_iter().filter_map(|choice| local(builder.clone().backend(choice)))
    }

    fn take_all(local: &mut Local) -> Vec<Completion> {
        std::iter::from_fn(|| local.next_completion()).collect()
    }

    /// Goes on until the loop says that it may be slept; gives all that came.
    fn turns(local: &mut Local) -> Vec<Completion> {
        let mut all = Vec::new();
        for _ in 0..1_000 {
            local.submit_and_arm().unwrap();
            all.extend(take_all(local));
            if local.is_armed() {
                return all;
            }
        }
        panic!("it never comes to rest");
    }

    /// What a runtime sleeps on: it is told of changes only (`EPOLLET` in epoll(7)).
    struct Watch(OwnedFd);

    impl Watch {
        fn new(local: &Local) -> Watch {
            let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
            let events = EventFlags::IN | EventFlags::ET;
            let descriptor = local.event_descriptor().unwrap();
            epoll::add(&epoll, descriptor, EventData::new_u64(0), events).unwrap();
            Watch(epoll)
        }

        fn sleep(&self) {
            let mut event = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
            let patience = Timespec::try_from(Duration::from_secs(10)).unwrap();
            // Work that the kernel puts off until its caller is in the kernel interrupts a wait.
            let woken = epoll::wait(&self.0, &mut event, Some(&patience));
            assert!(matches!(woken, Ok(1) | Err(Errno::INTR)), "nothing wakes it: {woken:?}");
        }
    }

    /// A pool's thread had its result after the loop was armed and before completions were taken: the
    /// wake-up was taken for nobody's, nobody looked at what it was for, and the task slept.
    #[test]
    fn what_wakes_the_loop_before_completions_are_taken_is_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        for mut local in locals(&Builder::default().avoid(&[Opcode::Open])) {
            let watch = Watch::new(&local);
            for _ in 0..20 {
                // It blocks its thread until the other end is opened.
                local.push(Operation::open(&path, OpenOptions::new().read(true)), 1).unwrap();
                assert!(turns(&mut local).is_empty());
                let _writer = File::options().write(true).open(&path).unwrap();
                let mut done = Vec::new();
                while done.is_empty() {
                    watch.sleep();
                    done = take_all(&mut local);
                    if !local.is_armed() {
                        done.extend(turns(&mut local));
                    }
                }
                assert_eq!(done.len(), 1);
                done.remove(0).into_descriptor().unwrap();
            }
        }
    }

    /// A receive that is parked for a buffer waited for somebody else's traffic when the nudge was
    /// among the completions that were taken.
    #[test]
    fn a_nudge_that_is_taken_out_is_heeded() {
        for mut local in locals(&Builder::default()) {
            let watch = Watch::new(&local);
            let group = BufferGroup::new(&mut local, 1, 64).unwrap();
            let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let ours = Descriptor::from(OwnedFd::from(ours));
            local.push(Operation::recv_multi(&ours, &group), 1).unwrap();
            assert!(turns(&mut local).is_empty());
            theirs.write_all(&[7; 64 * 20]).unwrap();
            let mut pieces = Vec::new();
            for _ in 0..20 {
                while pieces.is_empty() {
                    watch.sleep();
                    pieces = turns(&mut local);
                }
                assert_eq!(pieces.len(), 1);
                // It is looked for after the loop has asked for a nudge and before it sleeps.
                drop(pieces.remove(0).into_received().unwrap());
                local.driver.submit_and_arm().unwrap();
                pieces = take_all(&mut local);
                assert!(!pieces.is_empty() || !local.is_armed(), "nobody hands it over again");
                pieces.extend(turns(&mut local));
            }
        }
    }

    /// A receive that was cancelled when it had just been parked left the driver of its ring at work for
    /// ever: nobody looked any more at what it was parked for.
    #[test]
    fn what_is_cancelled_while_it_is_parked_leaves_the_loop_at_rest() {
        for mut local in locals(&Builder::default()) {
            let group = BufferGroup::new(&mut local, 1, 64).unwrap();
            let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let ours = Descriptor::from(OwnedFd::from(ours));
            let ticket = local.push(Operation::recv_multi(&ours, &group), 1).unwrap();
            local.submit().unwrap();
            theirs.write_all(&[7; 64 * 2]).unwrap();
            let mut pieces = Vec::new();
            while pieces.is_empty() || !local.has_unheeded() {
                local.submit_and_wait_timeout(1, Duration::from_millis(1)).unwrap();
                pieces.extend(take_all(&mut local));
            }
            local.push(Operation::cancel(ticket), 2).unwrap();
            let ended = take_all(&mut local);
            assert_eq!(ended.len(), 2, "the receive and its cancel");
            assert!(turns(&mut local).is_empty());
        }
    }

    /// Where no thread is to be had the loop's own makes the calls: one with each turn, and then it
    /// slept beside those that were left.
    #[test]
    fn calls_that_no_thread_makes_are_not_slept_beside() {
        let builder = Builder::default().avoid(&[Opcode::Statx]);
        for mut local in locals(&Builder { classic_threads: 0, ..builder }) {
            for tag in 0..3 {
                local.push(Operation::statx("/proc"), tag).unwrap();
            }
            let done = turns(&mut local);
            assert_eq!(done.len(), 3);
            assert!(done.into_iter().all(|done| done.metadata().is_ok()));
        }
    }

    /// A completion queue that overflowed makes no edge for what the kernel holds back.
    #[test]
    fn what_the_kernel_holds_back_is_fetched() {
        const CONNECTIONS: usize = 12;
        let builder = Builder::default().entries(2).backend(BackendChoice::Uring);
        let Some(mut local) = local(builder) else { return };
        let watch = Watch::new(&local);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Descriptor::from(OwnedFd::from(listener));
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = Descriptor::from(OwnedFd::from(reader));
        local.push(Operation::accept_multi(&listener), 1).unwrap();
        local.push(Operation::read_at(&reader, vec![0; 8], 0), 2).unwrap();
        assert!(turns(&mut local).is_empty());
        let _peers: Vec<_> =
            (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        writer.write_all(b"late").unwrap();
        watch.sleep();
        let mut done = take_all(&mut local);
        assert!(done.len() <= CONNECTIONS, "the queue was to overflow");
        assert!(!local.driver.has_taken_all() && !local.is_armed());
        done.extend(turns(&mut local));
        let (accepted, read): (Vec<_>, Vec<_>) = done.into_iter().partition(|done| done.tag() == 1);
        assert_eq!((accepted.len(), read.len()), (CONNECTIONS, 1));
        accepted.into_iter().for_each(|done| drop(done.into_descriptor().unwrap()));
        assert_eq!(read[0].result().unwrap(), 4);
    }

    /// The kernel may want completions taken before it takes more: what it did not take nobody else
    /// would hand over.
    #[test]
    fn what_is_queued_is_not_slept_beside() {
        let Some(mut local) = local(Builder::default().backend(BackendChoice::Uring)) else {
            return;
        };
        local.push(Operation::nop(), 1).unwrap();
        assert!(!local.is_armed());
        assert_eq!(turns(&mut local).len(), 1);
    }
}
