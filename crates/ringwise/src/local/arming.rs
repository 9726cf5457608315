//! A loop that sleeps elsewhere: in a runtime's epoll set, on a descriptor of the backend.
//!
//! The sleeper must miss nothing, but the descriptor reports only changes. So the caller arms the
//! loop, takes the completions, and asks [`Local::is_armed`] before it sleeps. The answer is no,
//! and the loop must be armed again, if the kernel holds results back or if something other than a
//! completion came in between.

use std::os::fd::BorrowedFd;

use super::Local;
use crate::{backend::classic::pool::HandOut, error::Error, op::Opcode};

impl Local {
    /// Returns the descriptor that becomes readable when a completion comes, from the ring or from
    /// the classic backend beside it. [`submit_and_arm`](Self::submit_and_arm) arms it.
    pub(crate) fn event_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.driver.event_descriptor()
    }

    /// Does the same as [`submit`](Self::submit), and makes sure that everything that comes later
    /// makes the event descriptor readable.
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

    /// Makes the threads of a classic loop call `hand_out` when a result would wake the loop. It
    /// returns whether it has handed out the result.
    pub(crate) fn hand_out_by(&self, hand_out: HandOut) {
        self.driver.hand_out_by(hand_out);
    }

    /// Returns whether the caller may sleep on the event descriptor, after it has taken the
    /// completions that [`submit_and_arm`](Self::submit_and_arm) left.
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
        descriptor::Descriptor,
        flight::completion::Completion,
        op::{OpenOptions, Operation},
        settings::setup::{BackendChoice, Builder},
    };

    /// Builds a loop as a runtime drives one. If this is impossible, returns nothing and prints
    /// why.
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

    /// Drives the loop until the caller may sleep, and returns all completions.
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

    /// The epoll set that a runtime sleeps on. It reports only changes (`EPOLLET` in epoll(7)).
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
            // Work that the kernel defers until its caller is in the kernel interrupts a wait.
            let woken = epoll::wait(&self.0, &mut event, Some(&patience));
            assert!(matches!(woken, Ok(1) | Err(Errno::INTR)), "nothing wakes it: {woken:?}");
        }
    }

    /// A thread of the pool had its result after the loop was armed and before completions were
    /// taken. The wake-up was dropped, nobody looked for its reason, and the task slept.
    #[test]
    fn a_wake_up_before_completions_are_taken_is_not_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        for mut local in locals(&Builder::default().avoid(&[Opcode::Open])) {
            let watch = Watch::new(&local);
            for _ in 0..20 {
                // The open blocks its thread until the other end is opened.
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

    /// A receive that was parked for a buffer waited for other traffic if its nudge was among the
    /// completions that were taken.
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
                // The nudge comes after the loop has asked for it and before the loop sleeps.
                drop(pieces.remove(0).into_received().unwrap());
                local.driver.submit_and_arm().unwrap();
                pieces = take_all(&mut local);
                assert!(!pieces.is_empty() || !local.is_armed(), "nobody hands it over again");
                pieces.extend(turns(&mut local));
            }
        }
    }

    /// A receive that was cancelled just after it was parked kept the driver of its ring busy
    /// forever, because nobody looked any more for what it was parked for.
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

    /// If no thread can be started, the loop's own thread makes the calls, one with each turn. It
    /// once slept although calls were left.
    #[test]
    fn a_loop_does_not_sleep_while_calls_wait_for_a_thread() {
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

    /// After the completion queue has overflowed, the results that the kernel holds back make no
    /// edge.
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
        assert!(done.len() <= CONNECTIONS, "the queue has to overflow");
        assert!(!local.driver.has_taken_all() && !local.is_armed());
        done.extend(turns(&mut local));
        let (accepted, read): (Vec<_>, Vec<_>) = done.into_iter().partition(|done| done.tag() == 1);
        assert_eq!((accepted.len(), read.len()), (CONNECTIONS, 1));
        accepted.into_iter().for_each(|done| drop(done.into_descriptor().unwrap()));
        assert_eq!(read[0].result().unwrap(), 4);
    }

    /// The kernel may want completions to be taken before it takes more entries. Nobody else would
    /// hand over the entries that it did not take.
    #[test]
    fn a_loop_does_not_sleep_while_calls_are_queued() {
        let Some(mut local) = local(Builder::default().backend(BackendChoice::Uring)) else {
            return;
        };
        local.push(Operation::nop(), 1).unwrap();
        assert!(!local.is_armed());
        assert_eq!(turns(&mut local).len(), 1);
    }
}
