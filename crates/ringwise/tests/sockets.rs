//! What sockets cost, and what a process has too few of: counted, for a ring and for classic calls.
//!
//! Each test runs itself again as a child, since limits and counts are a process's own.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::fd::OwnedFd,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use ringwise::{
    Backend, BackendChoice, BufferGroup, Descriptor, Local, Operation,
    net::{self, ListenOptions},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const MARK: &str = "RINGWISE_TEST_CHILD";
const ROUNDS: usize = 2000;

/// Runs `body` in a child of its own, which is this test called again by its name; `strace` counts
/// its system calls where they are asked for.
fn in_child(test: &str, counts_calls: bool, body: fn()) -> Option<String> {
    if std::env::var_os(MARK).is_some() {
        body();
        return None;
    }
    let this = std::env::current_exe().unwrap();
    let mut command = if counts_calls {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-c", "-S", "calls", "-U", "calls,name"]).arg(this);
        strace
    } else {
        Command::new(this)
    };
    let output = command.args(["--exact", test, "--nocapture"]).env(MARK, "1").output();
    let Output { status, stdout, stderr } = match output {
        Ok(output) => output,
        Err(error) => {
            skip(&format!("{:?}: {error}", command.get_program()));
            return None;
        }
    };
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    if counts_calls && stderr.contains("PTRACE") && !status.success() {
        skip(&format!("strace: {stderr}"));
        return None;
    }
    assert!(status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
    print!("{stdout}");
    Some(stderr.into_owned())
}

fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
    println!("skipped: {reason}");
}

fn build(choice: BackendChoice) -> Option<Local> {
    match Local::builder().backend(choice).build() {
        Ok(local) => Some(local),
        Err(error) => {
            skip(&error.to_string());
            None
        }
    }
}

fn listen() -> (Descriptor, std::net::SocketAddr) {
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = net::listen_tcp(&any, &ListenOptions::default()).unwrap();
    let address = net::local_address(&listener).unwrap().ip().unwrap();
    (listener, address)
}

/// Answers `ROUNDS` messages of one connection; gives how often the ring was entered for them.
fn echo(local: &mut Local) -> u64 {
    let (listener, address) = listen();
    let client = thread::spawn(move || {
        let mut peer = TcpStream::connect(address).unwrap();
        peer.set_nodelay(true).unwrap();
        let mut answer = [0; 64];
        for round in 0..ROUNDS {
            peer.write_all(&[round as u8; 64]).unwrap();
            peer.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [round as u8; 64]);
        }
    });
    let group = BufferGroup::new(local, 16, 2048).unwrap();
    let own = local.run(Operation::accept(&listener)).unwrap().into_descriptor().unwrap();
    local.push(Operation::recv_multi(&own, &group), 0).unwrap();
    let before = local.stats().enters;
    loop {
        local.submit_and_wait(1).unwrap();
        while let Some(done) = local.next_completion() {
            match done.into_received() {
                Some(bytes) => drop(local.push(Operation::send_quiet(&own, bytes), 1).unwrap()),
                None => {
                    client.join().unwrap();
                    return local.stats().enters - before;
                }
            }
        }
    }
}

/// The send has no completion to wake up for, so one enter sends, sleeps and brings the next.
#[test]
fn an_echo_on_a_ring_costs_one_enter() {
    in_child("an_echo_on_a_ring_costs_one_enter", false, || {
        let Some(mut local) = build(BackendChoice::Uring) else { return };
        let enters = echo(&mut local);
        let limit = ROUNDS as u64 * 11 / 10;
        assert!(enters <= limit, "{enters} enters for {ROUNDS} rounds");
        // Nothing of it was handed to a worker of the kernel.
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
        let workers: Vec<String> = names.filter(|name| name.starts_with("iou-wrk")).collect();
        assert!(workers.is_empty(), "{workers:?}");
        println!("{enters} enters for {ROUNDS} rounds");
    });
}

/// epoll_wait, recv and send: no epoll_ctl, and no receive that finds nothing.
#[test]
fn an_echo_on_classic_calls_costs_three() {
    let counted = in_child("an_echo_on_classic_calls_costs_three", true, || {
        echo(&mut build(BackendChoice::Classic).unwrap());
    });
    let Some(counted) = counted else { return };
    let calls = |names: &[&str]| -> usize {
        let lines = counted.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines
            .filter(|words| words.len() == 2 && names.contains(&words[1]))
            .map(|words| words[0].parse::<usize>().unwrap())
            .sum()
    };
    let few = ROUNDS / 10;
    let waits = calls(&["epoll_wait", "epoll_pwait", "epoll_pwait2"]);
    // The client receives and sends once in each round too.
    let (receives, sends) = (calls(&["recvfrom"]), calls(&["sendto"]));
    println!("{waits} waits, {receives} receives, {sends} sends in {ROUNDS} rounds");
    assert!(waits > few && waits <= ROUNDS + few, "{waits} waits\n{counted}");
    assert!(receives <= 2 * ROUNDS + few, "{receives} receives\n{counted}");
    assert!(sends <= 2 * ROUNDS + few, "{sends} sends\n{counted}");
    let others = calls(&["epoll_ctl", "poll", "fcntl", "getsockopt"]);
    assert!(others < few, "{others} others\n{counted}");
}

fn limit_descriptors(most: u64) {
    let limit = Rlimit { current: Some(most), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// A multishot accept ended at the limit, and pushed again in a loop it took a whole processor.
fn accepts_go_on_after_the_limit(choice: BackendChoice) {
    let Some(mut local) = build(choice) else { return };
    let (listener, address) = listen();
    let peers: Vec<TcpStream> = (0..16).map(|_| TcpStream::connect(address).unwrap()).collect();
    local.push(Operation::nop(), 0).unwrap();
    // What a listing of them opens is the lowest that is free.
    let first_free = fs::File::open("/dev/null").map(OwnedFd::from).unwrap();
    let next = std::os::fd::AsRawFd::as_raw_fd(&first_free) as u64;
    drop(first_free);
    // The loop may take some for itself to be waked by.
    const OWN: u64 = 3;
    limit_descriptors(next + OWN + 3);
    let ticket = local.push(Operation::accept_multi(&listener), 1).unwrap();
    let mut accepted = Vec::new();
    while local.submit_and_wait_timeout(1, Duration::from_millis(300)).unwrap() > 0 {
        while let Some(done) = local.next_completion() {
            if done.tag() == 1 {
                assert!(done.has_more());
                accepted.push(done.into_descriptor().unwrap());
            }
        }
    }
    assert!((3..8).contains(&accepted.len()), "{}", accepted.len());
    let (start, before) = (Instant::now(), processor_time());
    assert_eq!(local.submit_and_wait_timeout(1, Duration::from_millis(300)).unwrap(), 0);
    let used = processor_time() - before;
    assert!(used < start.elapsed() / 4, "{used:?} of the processor in 300 ms of waiting");
    // One closes on this thread.
    let known = accepted.len();
    drop(accepted.pop());
    accepted.extend(accept_one(&mut local));
    // One on another, while the loop sleeps.
    let closing = accepted.pop();
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        drop(closing);
    });
    accepted.extend(accept_one(&mut local));
    other.join().unwrap();
    // One by an operation.
    local.run(Operation::close(accepted.pop().unwrap())).unwrap().result().unwrap();
    accepted.extend(accept_one(&mut local));
    assert_eq!(accepted.len(), known);
    // And the limit is raised, which only its user knows.
    limit_descriptors(next + 100);
    local.rearm_accepts();
    while accepted.len() + 3 < peers.len() {
        accepted.extend(accept_one(&mut local));
    }
    local.push(Operation::cancel(ticket), 2).unwrap();
    for _ in 0..2 {
        local.submit_and_wait(1).unwrap();
        assert!(!local.next_completion().unwrap().has_more());
    }
}

fn accept_one(local: &mut Local) -> Option<Descriptor> {
    local.submit_and_wait_timeout(1, Duration::from_secs(20)).unwrap();
    let done = local.next_completion().expect("a connection waits");
    assert!(done.has_more());
    Some(done.into_descriptor().unwrap())
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn accepts_of_a_ring_go_on_after_the_limit() {
    in_child("accepts_of_a_ring_go_on_after_the_limit", false, || {
        accepts_go_on_after_the_limit(BackendChoice::Uring);
    });
}

#[test]
fn accepts_of_classic_calls_go_on_after_the_limit() {
    in_child("accepts_of_classic_calls_go_on_after_the_limit", false, || {
        accepts_go_on_after_the_limit(BackendChoice::Classic);
    });
}

/// To whom nobody listens, in every way to send; a signal would end the process.
fn sends_raise_no_signal(choice: BackendChoice) {
    let Some(mut local) = build(choice) else { return };
    // SAFETY: no handler is set; what Rust's runtime had turned off is as for any other program.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let (listener, address) = listen();
    let _peer = TcpStream::connect(address).unwrap();
    let own = local.run(Operation::accept(&listener)).unwrap().into_descriptor().unwrap();
    net::shutdown(&own, net::Shutdown::Write).unwrap();
    let bytes = || vec![7; 100];
    for send in [
        Operation::send(&own, bytes()),
        Operation::send_all(&own, bytes()),
        Operation::send_quiet(&own, bytes()),
        Operation::send_zero_copy(&own, bytes()),
        Operation::send_vectored(&own, vec![bytes().into(), bytes().into()]),
        Operation::send_all_vectored(&own, vec![bytes().into(), bytes().into()]),
    ] {
        let opcode = send.opcode();
        local.push(send, 0).unwrap();
        local.submit_and_wait(1).unwrap();
        let done = local.next_completion().unwrap();
        assert_eq!(done.raw_result(), -libc::EPIPE, "{opcode:?}");
        while local.in_flight() > 0 {
            local.submit_and_wait(1).unwrap();
            while local.next_completion().is_some() {}
        }
    }
}

#[test]
fn sends_of_a_ring_raise_no_signal() {
    in_child("sends_of_a_ring_raise_no_signal", false, || {
        sends_raise_no_signal(BackendChoice::Uring);
    });
}

#[test]
fn sends_of_classic_calls_raise_no_signal() {
    in_child("sends_of_classic_calls_raise_no_signal", false, || {
        sends_raise_no_signal(BackendChoice::Classic);
    });
}

/// More come at once than the queue of 128 that many servers ask for has room for.
#[test]
fn a_burst_of_connections_waits_to_be_taken() {
    let allowed = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    if allowed.trim().parse::<usize>().unwrap() < 400 {
        return skip(&format!("net.core.somaxconn is {allowed}"));
    }
    let (_listener, address) = listen();
    let patience = Duration::from_secs(10);
    let burst: Vec<_> =
        (0..400).map(|_| TcpStream::connect_timeout(&address, patience).unwrap()).collect();
    assert_eq!(burst.len(), 400);
}

/// Connections that end in every way leave no descriptor behind, nor does the loop.
fn no_descriptor_is_left(choice: BackendChoice) {
    let Some(local) = build(choice) else { return };
    drop(local);
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for round in 0..20 {
        let mut local = build(choice).unwrap();
        assert_ne!(local.setup().backend(), Backend::Simulated);
        let group = BufferGroup::new(&mut local, 8, 64).unwrap();
        let (listener, address) = listen();
        local.push(Operation::accept_multi(&listener), 0).unwrap();
        let mut peers = Vec::new();
        for at in 0..20 {
            let mut peer = TcpStream::connect(address).unwrap();
            peer.write_all(&[at; 100]).unwrap();
            if at % 3 == 0 {
                let peer = Descriptor::from(OwnedFd::from(peer));
                net::set_reset_on_close(&peer).unwrap();
            } else if at % 3 == 1 {
                peers.push(peer);
            }
        }
        for _ in 0..round {
            local.submit_and_wait_timeout(1, Duration::from_millis(5)).unwrap();
            while let Some(done) = local.next_completion() {
                match done.tag() {
                    // Some are kept by their receive only, and some were never taken.
                    0 => {
                        let own = done.into_descriptor().unwrap();
                        local.push(Operation::recv_multi(&own, &group), 1).unwrap();
                    }
                    _ => drop(done),
                }
            }
        }
        drop(local);
    }
    assert_eq!(open(), before);
}

#[test]
fn a_ring_leaves_no_descriptor() {
    in_child("a_ring_leaves_no_descriptor", false, || no_descriptor_is_left(BackendChoice::Uring));
}

#[test]
fn classic_calls_leave_no_descriptor() {
    in_child("classic_calls_leave_no_descriptor", false, || {
        no_descriptor_is_left(BackendChoice::Classic);
    });
}

/// A result has 31 bits: a whole send of more ends where the kernel's largest would.
#[test]
fn a_whole_send_of_more_than_a_result_can_tell() {
    const MOVED_MAX: usize = 0x7fff_f000;
    for choice in [BackendChoice::Uring, BackendChoice::Classic] {
        let Some(mut local) = build(choice) else { continue };
        let (listener, address) = listen();
        let peer = thread::spawn(move || {
            let mut peer = TcpStream::connect(address).unwrap();
            let mut taken = 0;
            let mut buffer = vec![0; 4 << 20];
            loop {
                match peer.read(&mut buffer).unwrap() {
                    0 => return taken,
                    count => taken += count,
                }
            }
        });
        let own = local.run(Operation::accept(&listener)).unwrap().into_descriptor().unwrap();
        // Never written to, so it takes no memory.
        let large = vec![0_u8; MOVED_MAX + (8 << 20)];
        let done = local.run(Operation::send_all(&own, large)).unwrap();
        assert_eq!(done.raw_result(), MOVED_MAX as i32, "{choice:?}");
        // A worker of the kernel took it over, and may hold the socket until the next enter.
        net::shutdown(&own, net::Shutdown::Write).unwrap();
        drop((done, own));
        assert_eq!(peer.join().unwrap(), MOVED_MAX);
    }
}
