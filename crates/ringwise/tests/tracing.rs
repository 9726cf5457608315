//! Spans, as a subscriber sees them: one for each operation, with what it was about and what it came
//! to, open from the moment it is handed in until its result is taken or nobody wants it any more.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    future::Future,
    os::fd::{AsRawFd, OwnedFd},
    pin::pin,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use futures::executor::block_on;
use ringwise::{
    BackendChoice, Descriptor, Local, OpenOptions, Operation, Ring,
    fs::File,
    net::{ListenOptions, TcpListener},
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// What became of the spans of this process, by number.
static SPANS: Mutex<BTreeMap<u64, Seen>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);
/// Events outside of spans.
static EVENTS: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

#[derive(Clone, Debug, Default)]
struct Seen {
    fields: BTreeMap<&'static str, String>,
    entered: u64,
    /// How often it was entered and not left.
    inside: i64,
    closed: bool,
}

impl Seen {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

struct Listener;

fn spans() -> MutexGuard<'static, BTreeMap<u64, Seen>> {
    SPANS.lock().unwrap()
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("ringwise")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut seen = Seen::default();
        span.record(&mut seen);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        spans().insert(number, seen);
        Id::from_u64(number)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(spans().get_mut(&span.into_u64()).unwrap());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut seen = Seen::default();
        event.record(&mut seen);
        seen.fields.insert("level", event.metadata().level().to_string());
        EVENTS.lock().unwrap().push(seen);
    }

    fn enter(&self, span: &Id) {
        let mut spans = spans();
        let seen = spans.get_mut(&span.into_u64()).unwrap();
        (seen.entered, seen.inside) = (seen.entered + 1, seen.inside + 1);
    }

    fn exit(&self, span: &Id) {
        spans().get_mut(&span.into_u64()).unwrap().inside -= 1;
    }

    fn try_close(&self, span: Id) -> bool {
        spans().get_mut(&span.into_u64()).unwrap().closed = true;
        true
    }
}

/// Nobody else is about while this is held.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // All but the first find it there.
    let _ = tracing::subscriber::set_global_default(Listener);
    EVENTS.lock().unwrap().clear();
    alone
}

/// Runs `act` on a ring of each kind with nobody else about; gives the spans that it left.
fn observe(act: impl Fn(&Ring)) -> Vec<Vec<Seen>> {
    let _alone = alone();
    let rings = [BackendChoice::Uring, BackendChoice::Classic]
        .map(|choice| Local::builder().backend(choice).driver_thread(true).build_ring());
    let observed = |ring: Ring| {
        spans().clear();
        act(&ring);
        spans().values().cloned().collect()
    };
    rings.into_iter().flatten().map(observed).collect()
}

#[test]
fn a_span_says_what_an_operation_was_and_came_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, [7; 100]).unwrap();
    let file = Descriptor::from(std::fs::File::open(&path).unwrap());
    let observed = observe(|ring| {
        let read = Operation::read_at(&file, vec![0; 64], 50);
        assert_eq!(block_on(ring.submit(read)).result().unwrap(), 50);
        let missing = Operation::open("/no/such/file", OpenOptions::new().read(true));
        block_on(ring.submit(missing)).into_descriptor().unwrap_err();
    });
    assert!(!observed.is_empty());
    for spans in observed {
        let [read, open] = &spans[..] else { panic!("{spans:?}") };
        let number = file.as_raw_fd().to_string();
        let about =
            ["name", "descriptor", "offset", "bytes", "result"].map(|name| read.field(name));
        assert_eq!(about, ["read", &number, "50", "64", "50"]);
        let about = ["name", "path", "descriptor", "bytes", "result"].map(|name| open.field(name));
        assert_eq!(about, ["open", "/no/such/file", "", "", "-2"]);
        for seen in &spans {
            assert!(seen.closed && seen.inside == 0, "{seen:?}");
            assert!(seen.entered >= 2, "polled until it was ready: {seen:?}");
        }
    }
}

/// What the caller's own thread moves is told as what the ring does, and what it could not serve is
/// told once, by the ring.
#[test]
fn a_read_or_write_of_the_callers_thread_has_its_own() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        assert!(std::env::var_os("CI").is_none(), "skipped in CI: no /dev/shm");
        return println!("skipped: no /dev/shm");
    };
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let observed = observe(|ring| {
        let open = |path: std::path::PathBuf| {
            std::fs::write(&path, [7; 100]).unwrap();
            File::from_std(
                ring,
                std::fs::File::options().read(true).write(true).open(path).unwrap(),
            )
        };
        let file = open(memory.path().join("file"));
        block_on(file.write_at(vec![8; 10], 5)).0.unwrap();
        block_on(file.read_at(vec![0; 64], 50)).0.unwrap();
        block_on(file.read_at(vec![0; 64], 100)).0.unwrap();
        let number = file.descriptor().as_raw_fd().to_string();
        assert!(spans().values().all(|seen| seen.field("descriptor") == number));
        // Nobody but the kernel knows whether there is more: it is not in the cache.
        let file = open(disk.path().join("file"));
        block_on(file.read_at(vec![0; 64], 100)).0.unwrap();
    });
    for spans in observed {
        let told: Vec<_> = spans
            .iter()
            .map(|seen| {
                ["name", "offset", "bytes", "result", "inline"].map(|name| seen.field(name))
            })
            .collect();
        let expected = [
            ["write", "5", "10", "10", "true"],
            ["read", "50", "64", "50", "true"],
            ["read", "100", "64", "0", "true"],
            ["read", "100", "64", "0", ""],
        ];
        assert_eq!(told, expected);
        assert!(spans.iter().all(|seen| seen.closed && seen.inside == 0), "{spans:?}");
    }
}

/// Those of a batch and of a chain were called no-ops.
#[test]
fn operations_that_are_handed_in_together_have_their_own() {
    let observed = observe(|ring| {
        let zero = Descriptor::from(std::fs::File::open("/dev/zero").unwrap());
        let read = |bytes: usize| Operation::read_at(&zero, vec![1; bytes], 0);
        let batch = ring.submit_all([read(10), Operation::nop(), read(30)]);
        block_on(futures::future::join_all(batch));
        let chain = ring.submit_linked([read(40), read(50)]);
        block_on(futures::future::join_all(chain));
        block_on(ring.shutdown(Duration::from_secs(5))).unwrap();
        let refused = ring.submit_all([read(60)]);
        block_on(futures::future::join_all(refused));
    });
    for spans in observed {
        let told: Vec<_> = spans
            .iter()
            .map(|seen| ["name", "bytes", "result"].map(|name| seen.field(name)))
            .collect();
        let refused = format!("-{}", libc::ESHUTDOWN);
        let expected = [
            ["read", "10", "10"],
            ["nop", "", "0"],
            ["read", "30", "30"],
            ["read", "40", "40"],
            ["read", "50", "50"],
            ["read", "60", &refused],
        ];
        assert_eq!(told, expected);
        assert!(spans.iter().all(|seen| seen.closed && seen.inside == 0), "{spans:?}");
    }
}

/// A span is open while a future waits, and closes without a result when that is dropped.
#[test]
fn a_span_closes_with_its_future() {
    let observed = observe(|ring| {
        let (reader, _writer) = std::io::pipe().unwrap();
        let reader = Descriptor::from(OwnedFd::from(reader));
        let mut read = pin!(Some(ring.submit(Operation::read_at(&reader, vec![0; 8], 0))));
        let waiting = read.as_mut().as_pin_mut().unwrap();
        assert!(waiting.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let seen = spans().values().next().cloned().unwrap();
        assert!(!seen.closed && seen.inside == 0, "{seen:?}");
        read.set(None);
        assert!(spans().values().next().unwrap().closed);
    });
    for spans in observed {
        assert_eq!(spans.len(), 1);
        assert_eq!((spans[0].field("name"), spans[0].field("result")), ("read", ""));
    }
}

/// The timer of a deadline has its own.
#[test]
fn a_deadline_is_an_operation_beside_its_own() {
    let observed = observe(|ring| {
        let (reader, _writer) = std::io::pipe().unwrap();
        let reader = Descriptor::from(OwnedFd::from(reader));
        let read = ring.submit(Operation::read_at(&reader, vec![0; 8], 0));
        block_on(read.deadline(Duration::from_millis(5))).result().unwrap_err();
    });
    for spans in observed {
        let told: Vec<_> =
            spans.iter().map(|seen| (seen.field("name"), seen.field("result"))).collect();
        let (cancelled, expired) = (format!("-{}", libc::ECANCELED), format!("-{}", libc::ETIME));
        let [("read", read), ("timeout", timeout)] = told[..] else { panic!("{told:?}") };
        assert_eq!(read, cancelled);
        assert!(timeout == "0" || timeout == expired, "{timeout}");
        assert!(spans.iter().all(|seen| seen.closed), "{spans:?}");
    }
}

/// One for a stream of results, until its last or until nobody wants more.
#[test]
fn a_stream_of_results_is_one_span() {
    use futures::future::poll_immediate;
    let observed = observe(|ring| {
        let address = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(ring, &address, &ListenOptions::default()).unwrap();
        let address = listener.local_address().unwrap();
        let mut connections = listener.accept_multi(8);
        let _peer = std::net::TcpStream::connect(address).unwrap();
        block_on(connections.next()).unwrap();
        assert!(block_on(poll_immediate(connections.next())).is_none());
        assert!(spans().values().all(|seen| seen.field("name") == "accept" && !seen.closed));
    });
    for spans in observed {
        assert_eq!(spans.len(), 1, "{spans:?}");
        assert!(spans[0].closed && spans[0].field("result").is_empty(), "{spans:?}");
    }
}

/// A ring that falls back says so once, and why; one for which that was chosen does not.
#[test]
fn a_fallback_is_a_warning() {
    let _alone = alone();
    let forbidden = std::thread::spawn(|| {
        use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
        let rules = BTreeMap::from([(libc::SYS_io_uring_setup, Vec::new())]);
        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
        // It holds for this thread and those that it starts.
        apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
        Local::builder().driver_thread(true).build_ring().unwrap()
    });
    let ring = forbidden.join().unwrap();
    assert!(ring.setup().fallback().is_some());
    let chosen = Local::builder().backend(BackendChoice::Classic).driver_thread(true);
    drop(chosen.build_ring().unwrap());
    let events = EVENTS.lock().unwrap().clone();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].field("level"), "WARN");
    assert!(events[0].field("reason").contains("Operation not permitted"), "{events:?}");
}

/// More reads than a small ring has room for: told once, and none is lost.
#[test]
fn a_full_ring_is_a_warning() {
    let _alone = alone();
    let builder = Local::builder().entries(4).driver_thread(true);
    let ring = builder.backend(BackendChoice::Classic).build_ring().unwrap();
    let statx = || Operation::statx("/proc");
    for _ in 0..2 {
        for done in block_on(futures::future::join_all(ring.submit_all((0..100).map(|_| statx()))))
        {
            assert!(done.metadata().is_ok());
        }
    }
    assert_eq!(ring.stats().waiting_for_room, 0);
    let events = EVENTS.lock().unwrap().clone();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].field("level"), "WARN");
    assert!(events[0].field("count").parse::<usize>().unwrap() > 0, "{events:?}");
}
