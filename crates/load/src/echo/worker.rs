//! A thread of the generator: its connections, driven by one epoll(7).

use std::{
    ops::Range,
    sync::{
        Arc,
        mpsc::{Receiver, Sender},
    },
};

use rustix::{
    event::epoll::{self, CreateFlags, Event, EventData, EventFlags},
    fd::OwnedFd,
    io::Errno,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

use super::{
    connection::{Connection, Desk, Role},
    fault::Fault,
    ledger::{Ledger, Mark},
    pace::Pace,
    plan::{Mode, Plan},
    run::{Clock, Shared},
};

/// Connections that are being opened at the same time: what fits into the shortest queue of a
/// listening socket that is in use.
const OPENING_MAX: usize = 64;
/// How long the server may take to answer a connection's first message.
const OPENING_SECONDS: u64 = 10;
/// How long what is under way at the end may go without anything coming back.
const SETTLING_SECONDS: u64 = 5;
/// The longest sleep, so that the end and a signal are seen.
const SLEEP_NS_MAX: u64 = 20_000_000;
/// A sleep shorter than this is not worth a timer.
const SLEEP_NS_MIN: u64 = 2_000;
/// How often slow readers read.
const TICK_NS: u64 = 10_000_000;
const EVENTS: usize = 256;
/// What the timer's events carry instead of a connection's place.
const TIMER: u64 = u64::MAX;

/// What the controller tells a thread.
pub(super) enum Order {
    /// Open the connections that send.
    OpenActive,
    /// Open those beside them.
    OpenBeside,
    /// Begin: the times are set.
    Go,
}

/// What a thread tells the controller.
pub(super) enum Report {
    /// All connections that it was told to open are open or have failed: how many of them are open.
    Opened(usize),
    /// It is over.
    Over(Box<Ledger>),
}

/// A thread's part of the connections: those that send, and those beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub active: usize,
    pub beside: usize,
}

impl Share {
    /// The part of thread `thread`, with every connection in one part and none in two.
    pub(super) fn of(plan: &Plan, thread: usize) -> Share {
        let part = |count: usize| count / plan.threads + usize::from(thread < count % plan.threads);
        Share { active: part(plan.connections), beside: part(plan.mode.idle() + plan.mode.slow()) }
    }
}

/// A thread's state.
pub(super) struct Worker {
    thread: usize,
    shared: Arc<Shared>,
    connections: Vec<Connection>,
    share: Share,
    desk: Desk,
    timer: OwnedFd,
    events: Vec<Event>,
    /// The next operation of the schedule.
    next: u64,
}

/// What a thread needs of the kernel.
pub(super) struct Descriptors {
    poll: OwnedFd,
    timer: OwnedFd,
}

impl Descriptors {
    /// Opens them.
    ///
    /// # Errors
    ///
    /// What epoll_create1(2) and timerfd_create(2) report.
    pub(super) fn open() -> std::io::Result<Descriptors> {
        let poll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&poll, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)?;
        Ok(Descriptors { poll, timer })
    }
}

impl Worker {
    /// A thread that has done nothing yet.
    pub(super) fn new(
        plan: &Arc<Plan>,
        shared: &Arc<Shared>,
        (thread, seed): (usize, u64),
        clock: Clock,
        Descriptors { poll, timer }: Descriptors,
    ) -> Worker {
        let share = Share::of(plan, thread);
        let (active, beside) = match plan.mode {
            Mode::HalfClose => (Role::HalfCloser, Role::Idle),
            Mode::ConnectStorm => (Role::Stormer, Role::Idle),
            Mode::SlowReader { .. } => (Role::Pinger, Role::SlowReader),
            Mode::PingPong | Mode::Idle { .. } => (Role::Pinger, Role::Idle),
        };
        let roles = std::iter::repeat_n(active, share.active)
            .chain(std::iter::repeat_n(beside, share.beside));
        let connections =
            roles.enumerate().map(|(place, role)| Connection::new(role, place)).collect();
        let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(TIMER) };
        Worker {
            thread,
            shared: shared.clone(),
            connections,
            share,
            desk: Desk::new(plan.clone(), seed, clock, (thread, plan.threads), poll),
            timer,
            events: vec![none; EVENTS],
            next: 0,
        }
    }

    /// Does what it is told until it is over.
    pub(super) fn run(mut self, orders: &Receiver<Order>, reports: &Sender<Report>) {
        // A controller that is gone has nothing more to tell or to hear.
        while let Ok(order) = orders.recv() {
            let range = match order {
                Order::OpenActive => 0..self.share.active,
                Order::OpenBeside => self.share.active..self.connections.len(),
                Order::Go => break,
            };
            self.open(range.clone());
            let open = self.connections[range].iter().filter(|open| open.is_greeted()).count();
            let _ = reports.send(Report::Opened(open));
        }
        self.measure();
        self.settle();
        let _ = reports.send(Report::Over(Box::new(self.desk.ledger)));
    }

    /// Opens connections until each is greeted or has failed. Those that are made anew for each
    /// operation are not opened before.
    fn open(&mut self, range: Range<usize>) {
        if self.connections[range.clone()].first().is_none_or(|one| one.role().is_by_connection()) {
            return;
        }
        let (mut next, mut progress_ns, mut seen) = (range.start, self.desk.clock.now_ns(), 0);
        let before = self.desk.opened;
        while !self.shared.is_interrupted() {
            let done = self.desk.opened - before;
            while next < range.end && next - range.start < done + OPENING_MAX {
                let opened = self.connections[next].open(&mut self.desk);
                self.settle_fault(next, opened);
                next += 1;
            }
            if done >= range.len() {
                return;
            }
            let now_ns = self.desk.clock.now_ns();
            if done > seen {
                (progress_ns, seen) = (now_ns, done);
            }
            if now_ns - progress_ns > OPENING_SECONDS * 1_000_000_000 {
                for place in range.start..next {
                    if !self.connections[place].is_greeted() && !self.connections[place].is_failed()
                    {
                        let fault = Fault::Unopened { seconds: OPENING_SECONDS };
                        self.settle_fault(place, Err(fault));
                    }
                }
            }
            self.wait(SLEEP_NS_MAX);
        }
    }

    /// Sends until the end of the measured time.
    fn measure(&mut self) {
        let plan = self.desk.plan.clone();
        let start_ns = self.shared.start_ns();
        self.desk.from_ns = self.shared.measured_from_ns();
        self.desk.until_ns = self.shared.measured_until_ns();
        self.desk.may_begin = true;
        self.desk.pace = plan.rate_per_s.map(|rate| {
            let (all, own) = (plan.connections, self.share.active);
            Pace::new(rate, (self.thread, plan.threads), (own, all), start_ns)
        });
        for place in 0..self.share.active {
            self.advance(place);
        }
        let (mut tick_ns, mut from, mut now_ns) = (start_ns, None, self.desk.clock.now_ns());
        while now_ns < self.desk.until_ns && self.has_active() {
            if from.is_none() && now_ns >= self.desk.from_ns {
                from = Some(Mark::set(now_ns));
            }
            self.begin_due(now_ns);
            if now_ns >= tick_ns {
                tick_ns = now_ns + TICK_NS;
                self.tick();
            }
            let wake_ns = self.next_due_ns().min(tick_ns).min(self.desk.until_ns);
            self.wait(wake_ns.saturating_sub(now_ns));
            self.desk.until_ns = self.shared.measured_until_ns();
            now_ns = self.desk.clock.now_ns();
        }
        if let Some(from) = from {
            self.desk.ledger.own = Mark::set(now_ns).since(&from);
        }
        self.desk.may_begin = false;
    }

    fn has_active(&self) -> bool {
        // Looked at with every event, so not counted over all connections.
        self.desk.ledger.errors == 0
            || self.connections[..self.share.active].iter().any(|one| !one.is_failed())
    }

    /// Lets those operations begin whose time has come.
    fn begin_due(&mut self, now_ns: u64) {
        let Some(pace) = self.desk.pace else { return };
        loop {
            let intended_ns = pace.intended_ns(self.next);
            if intended_ns > now_ns || intended_ns >= self.desk.until_ns {
                return;
            }
            if intended_ns >= self.desk.from_ns {
                self.desk.ledger.lag.record_ns(now_ns - intended_ns);
            }
            let place = pace.connection(self.next);
            self.next += 1;
            self.connections[place].due += 1;
            self.advance(place);
        }
    }

    fn next_due_ns(&self) -> u64 {
        self.desk.pace.map_or(u64::MAX, |pace| pace.intended_ns(self.next))
    }

    fn tick(&mut self) {
        for place in self.share.active..self.connections.len() {
            if self.connections[place].role() == Role::SlowReader {
                let ticked = self.connections[place].tick(&mut self.desk);
                self.settle_fault(place, ticked);
            }
        }
    }

    fn advance(&mut self, place: usize) {
        let advanced = self.connections[place].advance(&mut self.desk);
        self.settle_fault(place, advanced);
    }

    fn settle_fault(&mut self, place: usize, result: Result<(), Fault>) {
        if let Err(fault) = result {
            self.connections[place].fail(&fault, &mut self.desk);
        }
    }

    /// Waits for what is under way, and closes.
    fn settle(&mut self) {
        self.count_unsent();
        for place in 0..self.connections.len() {
            let wound_down = self.connections[place].wind_down(&mut self.desk);
            self.settle_fault(place, wound_down);
        }
        let mut progress_ns = self.desk.clock.now_ns();
        while self.connections.iter().any(|one| !one.is_settled()) {
            let now_ns = self.desk.clock.now_ns();
            if now_ns - progress_ns > SETTLING_SECONDS * 1_000_000_000 {
                break;
            }
            if self.wait(SLEEP_NS_MAX) > 0 {
                progress_ns = self.desk.clock.now_ns();
            }
        }
        for place in 0..self.connections.len() {
            let connection = &mut self.connections[place];
            let finished = match connection.is_settled() {
                true => connection.finish(&mut self.desk),
                false => Err(connection.stuck(SETTLING_SECONDS)),
            };
            self.settle_fault(place, finished);
        }
    }

    /// What was due and never begun would have taken at least until the end.
    fn count_unsent(&mut self) {
        let (Some(pace), until_ns) = (self.desk.pace, self.desk.until_ns) else { return };
        for place in 0..self.share.active {
            let due = pace.count_before(place, until_ns);
            for number in self.connections[place].operations()..due {
                let intended_ns = pace.intended_of_ns(place, number);
                if intended_ns >= self.desk.from_ns {
                    self.desk.ledger.unsent += 1;
                    self.desk.took(intended_ns, until_ns);
                }
            }
        }
    }

    /// Waits for events, at most `sleep_ns`, and handles them. Says how many there were.
    fn wait(&mut self, sleep_ns: u64) -> usize {
        let sleep_ns = sleep_ns.min(SLEEP_NS_MAX);
        let is_open_loop = self.desk.pace.is_some() && self.desk.may_begin;
        let timeout_ns = match sleep_ns {
            ..SLEEP_NS_MIN => 0,
            // epoll_wait(2) counts in milliseconds, which is too coarse for a schedule.
            _ if is_open_loop && self.set_timer(sleep_ns).is_ok() => SLEEP_NS_MAX,
            _ => sleep_ns,
        };
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout_ns as _ };
        let count = match epoll::wait(&self.desk.poll, &mut self.events[..], Some(&timeout)) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => unreachable!("epoll_wait on an epoll descriptor: {error}"),
        };
        let mut handled = 0;
        for at in 0..count {
            let Event { flags, data, .. } = self.events[at];
            let place = data.u64();
            if place == TIMER {
                continue;
            }
            handled += 1;
            let done = self.connections[place as usize].ready(flags, &mut self.desk);
            self.settle_fault(place as usize, done);
        }
        handled
    }

    fn set_timer(&self, sleep_ns: u64) -> rustix::io::Result<()> {
        let value = Timespec { tv_sec: 0, tv_nsec: sleep_ns as _ };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).map(|_| ())
    }
}
