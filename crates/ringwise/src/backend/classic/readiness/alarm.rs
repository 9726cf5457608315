//! A timer in an epoll set, for a loop that does not wait in the set itself. A runtime waits in its
//! place, so the loop cannot pass a timeout to the wait.

use std::{os::fd::OwnedFd, time::Instant};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

/// The timer's number in the set; no descriptor has it.
pub(super) const ALARM: u64 = u64::MAX - 1;

/// The timer, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    timer: Option<OwnedFd>,
    armed: Option<Instant>,
}

impl Alarm {
    /// Makes the set readable at this time, which replaces any earlier one.
    pub(super) fn set(&mut self, epoll: &OwnedFd, at: Instant) -> Result<(), Errno> {
        if self.armed == Some(at) {
            return Ok(());
        }
        let timer = match &self.timer {
            Some(timer) => timer,
            None => self.timer.insert(create(epoll)?),
        };
        let left = at.saturating_duration_since(Instant::now());
        // Zero would disarm it (timerfd_settime(2)).
        let left = left.max(std::time::Duration::from_nanos(1));
        let it_value = Timespec::try_from(left).map_err(|_| Errno::OVERFLOW)?;
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let time = Itimerspec { it_interval, it_value };
        timerfd_settime(timer, TimerfdTimerFlags::empty(), &time)?;
        self.armed = Some(at);
        Ok(())
    }
}

/// Makes the timer. It is edge-triggered, so each expiry is reported once, although nobody reads
/// it.
fn create(epoll: &OwnedFd) -> Result<OwnedFd, Errno> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let events = EventFlags::IN | EventFlags::ET;
    epoll::add(epoll, &timer, EventData::new_u64(ALARM), events)?;
    Ok(timer)
}
