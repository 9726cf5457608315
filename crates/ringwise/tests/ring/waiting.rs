//! Those that wait take no room from those that work: a thousand silent receives, sends that nobody
//! reads, accepts, pipes and timeouts beside reads of files and deadlines.

use std::{
    io::{Read, Write},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    pin::pin,
    time::{Duration, Instant},
};

use crate::rings::skip;
use futures::{
    channel::oneshot,
    executor::block_on,
    future::{Either, join_all, poll_immediate, select},
};
use ringwise::{BackendChoice, Completion, Descriptor, ErrorKind, Local, Operation, Pending, Ring};

/// Longer than anything here takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);

/// Rings with the default settings, with a thread of their own and driven by a runtime.
fn default_rings() -> Vec<(&'static str, Ring)> {
    let choices = [("uring", BackendChoice::Uring), ("classic", BackendChoice::Classic)];
    let threads =
        choices.map(|(name, choice)| (name, builder(choice).driver_thread(true).build_ring()));
    #[cfg(feature = "tokio")]
    let driven = {
        use std::sync::OnceLock;
        static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
        let runtime = RUNTIME.get_or_init(|| {
            let mut settings = tokio::runtime::Builder::new_multi_thread();
            settings.worker_threads(2).enable_all().build().unwrap()
        });
        let _context = runtime.enter();
        choices.map(|(name, choice)| (name, builder(choice).build_ring()))
    };
    #[cfg(not(feature = "tokio"))]
    let driven: [(&str, Result<Ring, ringwise::SetupError>); 0] = [];
    threads
        .into_iter()
        .chain(driven)
        .filter_map(|(name, ring)| {
            Some((name, ring.map_err(|error| skip(&error.to_string())).ok()?))
        })
        .collect()
}

fn builder(choice: BackendChoice) -> ringwise::Builder {
    Local::builder().backend(choice)
}

/// Polls each once, so that it is under way.
fn begin(operations: impl IntoIterator<Item = Pending>) -> Vec<Pending> {
    let begin = |mut pending: Pending| {
        assert!(block_on(poll_immediate(&mut pending)).is_none());
        pending
    };
    operations.into_iter().map(begin).collect()
}

/// Waits for a future, but not for ever.
fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let (tell, told) = oneshot::channel::<()>();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        if ended.recv_timeout(PATIENCE).is_err() {
            drop(tell);
        }
    });
    let output = match block_on(select(pin!(future), told)) {
        Either::Left((output, _)) => output,
        Either::Right(_) => panic!("it hangs: {what}"),
    };
    let _ = end.send(());
    output
}

fn pair() -> (Descriptor, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Descriptor::from(OwnedFd::from(ours)), theirs)
}

/// A file is read, one is opened, and time passes.
fn works(name: &str, ring: &Ring) {
    in_time(name, async {
        let zero = Descriptor::from(std::fs::File::open("/dev/zero").unwrap());
        for at in 0..64 {
            let done = ring.submit(Operation::read_at(&zero, vec![1; 4096], at)).await;
            assert_eq!(done.result().unwrap(), 4096, "{name}");
        }
        let reads = (0..500).map(|at| Operation::read_at(&zero, vec![1; 512], at));
        for done in join_all(ring.submit_all(reads)).await {
            assert_eq!(done.result().unwrap(), 512, "{name}");
        }
        assert!(ring.submit(Operation::statx("/proc")).await.metadata().is_ok(), "{name}");
        let start = Instant::now();
        let never = std::future::pending::<()>();
        ring.within(Duration::from_millis(10), never).await.unwrap_err();
        let (silent, _theirs) = pair();
        let receive = ring.submit(Operation::recv(&silent, vec![0; 8]));
        let done = receive.deadline(Duration::from_millis(10)).await;
        assert_eq!(done.result().unwrap_err().kind(), ErrorKind::TimedOut, "{name}");
        assert!(start.elapsed() >= Duration::from_millis(20), "{name}");
        assert_eq!(ring.stats().waiting_for_room, 0, "{name}");
    });
}

fn moved(done: Vec<Completion>) -> usize {
    done.into_iter().map(|done| done.result().unwrap()).sum()
}

#[test]
fn a_thousand_silent_receives() {
    for (name, ring) in default_rings() {
        let pairs: Vec<_> = (0..20).map(|_| pair()).collect();
        let receive = |(ours, _): &(Descriptor, UnixStream)| {
            (0..60).map(|_| ring.submit(Operation::recv(ours, vec![0; 8]))).collect::<Vec<_>>()
        };
        let receives = begin(pairs.iter().flat_map(receive));
        works(name, &ring);
        for (_, theirs) in &pairs {
            (&*theirs).write_all(&[7; 8 * 60]).unwrap();
        }
        assert_eq!(moved(in_time(name, join_all(receives))), 20 * 60 * 8, "{name}");
        in_time(name, ring.shutdown(PATIENCE)).unwrap();
    }
}

#[test]
fn sends_that_nobody_reads() {
    for (name, ring) in default_rings() {
        let (ours, theirs) = pair();
        let send = |_| ring.submit(Operation::send_all(&ours, vec![7; 64 << 10]));
        let mut sends: Vec<_> = (0..400).map(send).collect();
        // The first may be sent at once.
        sends.iter_mut().for_each(|send| drop(block_on(poll_immediate(send))));
        works(name, &ring);
        drop(theirs);
        drop(sends);
        in_time(name, ring.shutdown(PATIENCE)).unwrap();
    }
}

#[test]
fn accepts_of_which_none_is_met() {
    for (name, ring) in default_rings() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let listener = Descriptor::from(OwnedFd::from(listener));
        let accepts = begin((0..600).map(|_| ring.submit(Operation::accept(&listener))));
        works(name, &ring);
        let _peers: Vec<_> = (0..50).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let accepted = in_time(name, async {
            let mut left = accepts;
            let mut accepted = 0;
            while accepted < 50 {
                let (done, _, rest) = futures::future::select_all(left).await;
                accepted += usize::from(done.into_descriptor().is_ok());
                left = rest;
            }
            accepted
        });
        assert_eq!(accepted, 50, "{name}");
        in_time(name, ring.shutdown(PATIENCE)).unwrap();
    }
}

#[test]
fn reads_of_silent_pipes() {
    for (name, ring) in default_rings() {
        let pipes: Vec<_> = (0..20).map(|_| std::io::pipe().unwrap()).collect();
        let (readers, writers): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
        let readers: Vec<_> =
            readers.into_iter().map(|reader| Descriptor::from(OwnedFd::from(reader))).collect();
        let read = |reader: &Descriptor| {
            (0..30)
                .map(|_| ring.submit(Operation::read_at(reader, vec![0; 8], 0)))
                .collect::<Vec<_>>()
        };
        let reads = begin(readers.iter().flat_map(read));
        works(name, &ring);
        for mut writer in writers {
            writer.write_all(&[7; 8 * 30]).unwrap();
        }
        assert_eq!(moved(in_time(name, join_all(reads))), 20 * 30 * 8, "{name}");
        in_time(name, ring.shutdown(PATIENCE)).unwrap();
    }
}

/// Their ends come in their order, however many there are.
#[test]
fn a_thousand_timeouts() {
    for (name, ring) in default_rings() {
        let long = begin((0..1000).map(|_| ring.submit(Operation::timeout(MINUTE))));
        works(name, &ring);
        let start = Instant::now();
        let short =
            (0..300).map(|at| ring.submit(Operation::timeout(Duration::from_millis(at % 30))));
        assert_eq!(moved(in_time(name, join_all(short))), 0, "{name}");
        assert!(start.elapsed() >= Duration::from_millis(29), "{name}");
        drop(long);
        in_time(name, ring.shutdown(PATIENCE)).unwrap();
        let stats = ring.stats();
        assert_eq!(stats.delivered + stats.reclaimed, stats.submitted, "{name}");
    }
}

/// What waits is cancelled wherever it waits, and takes nothing out of its socket.
#[test]
fn what_waits_is_cancelled() {
    for (name, ring) in default_rings() {
        let pairs: Vec<_> = (0..300).map(|_| pair()).collect();
        let receive =
            |(ours, _): &(Descriptor, UnixStream)| ring.submit(Operation::recv(ours, vec![0; 8]));
        let receives = begin(pairs.iter().map(receive));
        drop(receives);
        let receives = begin(pairs.iter().map(receive));
        let ends = receives.into_iter().map(|receive| receive.deadline(Duration::from_millis(5)));
        for done in in_time(name, join_all(ends)) {
            assert_eq!(done.result().unwrap_err().kind(), ErrorKind::TimedOut, "{name}");
        }
        works(name, &ring);
        for (ours, theirs) in &pairs {
            (&*theirs).write_all(b"x").unwrap();
            let mut byte = [0];
            let ours = ours.clone();
            let ours = UnixStream::from(rustix::io::dup(&ours).unwrap());
            (&ours).read_exact(&mut byte).unwrap();
        }
        in_time(name, ring.shutdown(PATIENCE)).unwrap();
    }
}

/// A loop of a thread has the same room for what waits.
#[test]
fn a_local_loop_has_room_for_what_waits() {
    for choice in [BackendChoice::Uring, BackendChoice::Classic] {
        let Ok(mut local) = builder(choice).entries(8).build() else {
            skip("no ring");
            continue;
        };
        let (ours, theirs) = pair();
        for tag in 0..200 {
            local.push(Operation::recv(&ours, vec![0; 8]), tag).unwrap();
        }
        local.submit().unwrap();
        let statx = local.run(Operation::statx("/proc")).unwrap();
        assert!(statx.metadata().is_ok());
        (&theirs).write_all(&[7; 8 * 200]).unwrap();
        let mut taken = 0;
        while taken < 200 {
            local.submit_and_wait(1).unwrap();
            while let Some(done) = local.next_completion() {
                assert_eq!(done.result().unwrap(), 8);
                taken += 1;
            }
        }
    }
}
