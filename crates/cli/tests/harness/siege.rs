//! Everything at once that a server has to stand: hostile clients of every kind, and no descriptors for some of the
//! time, so that its accepts fail. Beside them honest clients, whose waits are measured, and a look from outside at
//! the server's memory, descriptors and threads.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicU64, Ordering},
    thread::{self, Scope},
    time::{Duration, Instant},
};

use rustix::{
    net::{self, AddressFamily, SocketFlags, SocketType, sockopt},
    process::{Pid, Resource, Rlimit, getrlimit, prlimit},
};

use super::daemon::Daemon;

/// What a hostile client does on a connection, until it fails.
pub type Attack = fn(&mut TcpStream) -> io::Result<()>;

/// Attacks on any server.
pub const ATTACKS: [Attack; 5] = [
    // It is silent until the server ends it, or its time is over.
    |stream| stream.read(&mut [0]).map(drop),
    // It sends much, reads nothing, and goes: with unread bytes in it a socket closes by a reset.
    |stream| (0..200).try_for_each(|_| stream.write_all(&b"x\n".repeat(512))),
    // It reads its answers, slowly.
    |stream| {
        sockopt::set_socket_recv_buffer_size(&*stream, 4096)?;
        stream.write_all(b"LOGD 1\n")?;
        for _ in 0..20 {
            stream.write_all(&b"x\n".repeat(512))?;
            stream.read_exact(&mut [0; 64])?;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    },
    // Bytes of which no text has any, and ends of lines.
    |stream| {
        let byte = || if fastrand::u8(..) < 8 { b'\n' } else { fastrand::u8(128..) };
        stream.write_all(&(0..20_000).map(|_| byte()).collect::<Vec<u8>>())
    },
    // It resets the connection as soon as there is one.
    |stream| Ok(sockopt::set_socket_linger(&*stream, Some(Duration::ZERO))?),
];

/// Whether times are looked at: an everyday siege has too few, of a program that is not optimised.
pub fn is_long() -> bool {
    !cfg!(debug_assertions) && duration() >= Duration::from_secs(10)
}

/// How long a siege takes: what `RINGWISE_SOAK_SECONDS` says, or little enough for every day.
pub fn duration() -> Duration {
    let seconds = std::env::var("RINGWISE_SOAK_SECONDS").ok();
    Duration::from_secs(seconds.map_or(2, |text| text.parse().unwrap()))
}

/// Connects from another address than honest clients have, so that a server can tell them apart.
fn connect(daemon: &Daemon) -> io::Result<TcpStream> {
    // Not for daemons that other tests start meanwhile.
    let flags = SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    // The kernel keeps the port of a closed connection for a minute. After 20 s nearly all are taken, and if the kernel
    // had to search for a free one, that would take most of the processors' time.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &SocketAddr::from(([127, 0, 0, 2], fastrand::u16(10_000..))))?;
    net::connect(&socket, &daemon.address)?;
    Ok(TcpStream::from(socket))
}

/// Has so many clients attack, in turns of what they do, until some time.
pub fn attack<'scope>(
    scope: &'scope Scope<'scope, '_>,
    daemon: &'scope Daemon,
    attacks: impl Iterator<Item = Attack>,
    until: Instant,
) {
    for attack in attacks {
        scope.spawn(move || {
            while Instant::now() < until {
                let Ok(mut stream) = connect(daemon) else {
                    // The port is taken, or was that of a connection that ended just now.
                    thread::sleep(Duration::from_millis(10));
                    continue;
                };
                let time = Some(Duration::from_millis(300));
                stream.set_read_timeout(time).unwrap();
                stream.set_write_timeout(time).unwrap();
                // It may be ended at any moment.
                let _ = attack(&mut stream);
                drop(stream);
                // The kernel's queue of connections is for all: one that floods it keeps out everybody.
                thread::sleep(Duration::from_millis(if is_long() { 5 } else { 50 }));
            }
        });
    }
}

/// Times during which something is missing, as seen by who measures beside it.
#[derive(Default)]
pub struct Episodes {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Episodes {
    pub fn during(&self, what: impl FnOnce()) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        what();
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// Does something, and gives how long it took, if no episode was meanwhile.
    pub fn time(&self, what: impl FnOnce()) -> Option<Duration> {
        let (ended, begin) = (self.ended.load(Ordering::SeqCst), Instant::now());
        what();
        let took = begin.elapsed();
        (self.begun.load(Ordering::SeqCst) == ended).then_some(took)
    }
}

/// Takes all descriptors that are left from a server, for a moment and again, until some time. A limit
/// below those that are open does that to both engines; a ring's accept goes by the limit that there was
/// when it was asked for (io_uring/net.c, io_accept_prep).
pub fn starve(daemon: &Daemon, until: Instant, starved: &Episodes) {
    let pid = Pid::from_child(&daemon.child);
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit =
        |current| prlimit(Some(pid), Resource::Nofile, Rlimit { current, maximum }).unwrap();
    while Instant::now() < until {
        thread::sleep(Duration::from_millis(700));
        starved.during(|| {
            let before = limit(Some(3));
            thread::sleep(Duration::from_millis(200));
            limit(before.current);
        });
    }
}

/// What a server has that has to come back after a siege.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub descriptors: usize,
    pub threads: usize,
}

impl Held {
    /// Those of the kernel for its ring are not its own: the kernel keeps one idle of each kind.
    pub fn now(daemon: &Daemon) -> Held {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
        let own = tasks.filter(|task| {
            let name = std::fs::read_to_string(task.as_ref().unwrap().path().join("comm"));
            name.is_ok_and(|name| !name.starts_with("iou-"))
        });
        Held { descriptors: daemon.open_descriptors(), threads: own.count() }
    }

    /// Waits until no more is held than before; gives how long that took. Threads that were needed for blocking
    /// calls end when they were idle for ten seconds.
    #[track_caller]
    pub fn wait_for_return(self, daemon: &Daemon) -> Duration {
        let begin = Instant::now();
        loop {
            let now = Held::now(daemon);
            if now.descriptors <= self.descriptors && now.threads <= self.threads {
                return begin.elapsed();
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "left over: {now:?} of {self:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The most memory that a server has until some time, in KiB.
pub fn most_kib(daemon: &Daemon, until: Instant) -> u64 {
    let mut most = 0;
    while Instant::now() < until {
        most = most.max(daemon.resident_kib());
        thread::sleep(Duration::from_millis(10));
    }
    most
}

/// Prints how long honest clients waited. In a long siege the 99th percentile is less than 100 ms; a short one may
/// have no wait without an episode.
pub fn assert_fast(who: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let count = times.len();
    if count == 0 {
        assert!(!is_long(), "{who}: none was measured");
        return;
    }
    let [median, p99, longest] = [count / 2, count * 99 / 100, count - 1].map(|index| times[index]);
    println!("{who}: {count} measured, median {median:?}, p99 {p99:?}, longest {longest:?}");
    assert!(!is_long() || p99 < Duration::from_millis(100), "{who}: {p99:?}");
}
