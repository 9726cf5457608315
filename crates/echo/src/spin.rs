//! Looking for work before sleeping, where that pays.
//!
//! A sleep costs a wake-up: tens of microseconds on a virtual machine, more than an echo takes. A
//! thread that looks for work instead saves the wake-up if work comes soon. A client on the same
//! processor cannot send while this thread looks, so the thread yields to it between two looks. A
//! look that finds nothing makes the next ones rarer.

use std::{
    thread,
    time::{Duration, Instant},
};

use ringwise::Descriptor;
use rustix::{net::sockopt, thread::sched_getcpu};

/// Sleeps without a look, at most, after looks that found nothing.
const SKIPPED_MAX: u32 = 64;
/// As many looks that found work are remembered.
const HITS_MAX: u32 = 64;

/// When to look, and how it went.
#[derive(Debug)]
pub(crate) struct Spin {
    budget: Duration,
    /// Sleeps to come without a look.
    skipping: u32,
    /// How many are skipped after the next look in vain.
    next_skip: u32,
    /// Looks that found work of late: each in vain halves them.
    hits: u32,
    /// The client runs on this processor, so it gets the processor between two looks.
    yields: bool,
    pub(crate) spared_sleeps: u64,
}

impl Spin {
    pub(crate) fn new(budget: Duration) -> Spin {
        Spin { budget, skipping: 0, next_skip: 0, hits: 0, yields: false, spared_sleeps: 0 }
    }

    /// Whether the next sleep may be spared.
    pub(crate) fn is_worth_it(&mut self) -> bool {
        if self.budget.is_zero() {
            return false;
        }
        if self.skipping > 0 {
            self.skipping -= 1;
            return false;
        }
        true
    }

    /// Looks that found work of late: each in vain halves them.
    pub(crate) fn hits(&self) -> u32 {
        self.hits
    }

    /// Counts a look that found work.
    pub(crate) fn found(&mut self) {
        self.next_skip = 0;
        self.hits = (self.hits + 1).min(HITS_MAX);
    }

    /// Learns from a client's socket whether the client runs on this thread's processor.
    ///
    /// The kernel notes the processor that handled the socket's last packet (SO_INCOMING_CPU,
    /// socket(7)). On loopback that is the sender's processor, on a network card the one of its
    /// interrupt.
    pub(crate) fn learn_processor(&mut self, socket: &Descriptor) {
        let incoming = sockopt::socket_incoming_cpu(socket);
        self.yields = incoming.is_ok_and(|incoming| incoming as usize == sched_getcpu());
    }

    /// Looks until there is work or the time is over; true: there is.
    pub(crate) fn look(&mut self, mut has_work: impl FnMut() -> bool) -> bool {
        if has_work() {
            self.spared_sleeps += 1;
            self.found();
            return true;
        }
        let began = Instant::now();
        loop {
            let has = if self.yields {
                thread::yield_now();
                has_work()
            } else {
                // Eight looks for each reading of the clock, which costs as much as they do.
                (0..8).any(|_| {
                    std::hint::spin_loop();
                    has_work()
                })
            };
            let is_over = began.elapsed() >= self.budget;
            self.spared_sleeps += u64::from(has);
            // After a yield this long, a third thread had the processor. A sleep would have ended sooner.
            if is_over && (self.yields || !has) {
                self.was_in_vain();
                return has;
            }
            if has {
                self.found();
                return true;
            }
        }
    }

    /// One in vain among many is a processor that was taken away, and says nothing.
    fn was_in_vain(&mut self) {
        self.skipping = self.next_skip;
        self.next_skip = (self.next_skip * 2 + 1).min(SKIPPED_MAX);
        self.hits /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_budget_is_never_a_look() {
        assert!(!Spin::new(Duration::ZERO).is_worth_it());
    }

    #[test]
    fn looks_in_vain_become_rare_and_one_that_finds_makes_them_frequent_again() {
        let mut spin = Spin::new(Duration::from_micros(1));
        let mut looks = 0;
        for _ in 0..1000 {
            if spin.is_worth_it() {
                assert!(!spin.look(|| false));
                looks += 1;
            }
        }
        assert!((10..40).contains(&looks), "{looks} looks in vain before 1000 sleeps");
        while !spin.is_worth_it() {}
        assert_eq!(spin.hits(), 0);
        assert!(spin.look(|| true));
        assert!(spin.is_worth_it() && spin.is_worth_it());
        assert_eq!((spin.spared_sleeps, spin.hits()), (1, 1));
        (0..1000).for_each(|_| assert!(spin.look(|| true)));
        assert!(!spin.look(|| false) && spin.is_worth_it(), "one in vain is none");
        assert_eq!(spin.hits(), HITS_MAX / 2);
        assert!(!spin.look(|| false) && !spin.is_worth_it());
    }

    /// A busy third thread on the processor keeps it for longer than a wake-up takes.
    #[test]
    fn a_yield_that_takes_long_is_a_look_in_vain() {
        let mut spin = Spin { yields: true, ..Spin::new(Duration::from_micros(1)) };
        for _ in 0..2 {
            let mut looks = 0;
            assert!(spin.is_worth_it());
            assert!(spin.look(|| {
                looks += 1;
                thread::sleep(Duration::from_micros(2));
                looks == 2
            }));
        }
        assert!(!spin.is_worth_it(), "the second in vain skips a look");
    }

    #[test]
    fn a_client_on_this_processor_is_yielded_to() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Descriptor::from(std::os::fd::OwnedFd::from(listener.accept().unwrap().0));
        let own = rustix::thread::sched_getaffinity(None).unwrap();
        let mut spin = Spin::new(Duration::from_micros(1));
        for cpu in (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| own.is_set(cpu)) {
            pin(cpu);
            std::io::Write::write_all(&mut client, b"x").unwrap();
            spin.learn_processor(&socket);
            assert!(spin.yields, "sent from {cpu} by this thread");
            let Some(other) = (0..cpu).find(|&other| own.is_set(other)) else { continue };
            pin(other);
            spin.learn_processor(&socket);
            assert!(!spin.yields, "sent from {cpu}, asked on {other}");
        }
    }

    fn pin(cpu: usize) {
        let mut one = rustix::thread::CpuSet::new();
        one.set(cpu);
        rustix::thread::sched_setaffinity(None, &one).unwrap();
    }
}
