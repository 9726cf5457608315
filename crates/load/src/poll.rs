//! What a thread waits with: an epoll(7) set, and a timer that is finer than its timeout.

use rustix::{
    event::epoll::{self, CreateFlags, Event, EventData, EventFlags},
    fd::{AsFd, OwnedFd},
    io::Errno,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

/// The longest sleep, so that the end and a signal are seen.
pub(crate) const SLEEP_NS_MAX: u64 = 20_000_000;
/// A sleep shorter than this is not worth a timer.
const SLEEP_NS_MIN: u64 = 2_000;
const EVENTS: usize = 256;
/// What the timer's events carry instead of a connection's place.
const TIMER: u64 = u64::MAX;

/// What it asks of the kernel; made where a failure can be told, and sent to the thread.
pub(crate) struct Descriptors {
    set: OwnedFd,
    timer: OwnedFd,
}

impl Descriptors {
    /// Opens them.
    ///
    /// # Errors
    ///
    /// What epoll_create1(2) and timerfd_create(2) report.
    pub(crate) fn open() -> std::io::Result<Descriptors> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&set, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)?;
        Ok(Descriptors { set, timer })
    }
}

/// The set, its timer and the events of the last wait.
pub(crate) struct Poll {
    descriptors: Descriptors,
    events: Vec<Event>,
}

impl Poll {
    /// Nothing is watched yet.
    pub(crate) fn new(descriptors: Descriptors) -> Poll {
        let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(TIMER) };
        Poll { descriptors, events: vec![none; EVENTS] }
    }

    /// Watches a socket, edge-triggered; its events carry `place`.
    ///
    /// # Errors
    ///
    /// What epoll_ctl(2) reports.
    pub(crate) fn add(&self, socket: impl AsFd, place: usize) -> rustix::io::Result<()> {
        let wanted = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.descriptors.set, socket, EventData::new_u64(place as u64), wanted)
    }

    /// Waits for events, at most `sleep_ns`, `by_timer` to the nanosecond rather than to the
    /// millisecond, which is what epoll_wait(2) counts in. Says how many there are.
    pub(crate) fn wait(&mut self, sleep_ns: u64, by_timer: bool) -> usize {
        let sleep_ns = sleep_ns.min(SLEEP_NS_MAX);
        let timeout_ns = match sleep_ns {
            ..SLEEP_NS_MIN => 0,
            _ if by_timer && self.set_timer(sleep_ns).is_ok() => SLEEP_NS_MAX,
            _ => sleep_ns,
        };
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout_ns as _ };
        match epoll::wait(&self.descriptors.set, &mut self.events[..], Some(&timeout)) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => unreachable!("epoll_wait on an epoll descriptor: {error}"),
        }
    }

    /// An event of the last wait: whose, and what. None is the timer.
    pub(crate) fn event(&self, at: usize) -> Option<(usize, EventFlags)> {
        let Event { flags, data, .. } = self.events[at];
        (data.u64() != TIMER).then_some((data.u64() as usize, flags))
    }

    fn set_timer(&self, sleep_ns: u64) -> rustix::io::Result<()> {
        let value = Timespec { tv_sec: 0, tv_nsec: sleep_ns as _ };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        timerfd_settime(&self.descriptors.timer, TimerfdTimerFlags::empty(), &once).map(|_| ())
    }
}
