//! What a consumer of Kafka reads is what `logd` stored, whatever failed meanwhile.

use std::{
    collections::{BTreeMap, HashSet},
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    cluster::{Cluster, PASSWORD, PATIENCE, Record, TOPIC, USER},
    harness::daemon::{Daemon, ask, cat, rounds},
};

const THREADS: u32 = 2;
const EXACTLY_ONCE: &[&str] = &["--kafka-delivery", "exactly-once"];

/// A daemon that ships, and its status page.
fn start(cluster: &Cluster, directory: &Path, more: &[&str]) -> (Daemon, String) {
    start_at(&cluster.addresses(), directory, more)
}

fn start_at(addresses: &str, directory: &Path, more: &[&str]) -> (Daemon, String) {
    let directory = directory.to_str().unwrap();
    let flags = ["--dir", directory, "--kafka", addresses, "--kafka-topic", TOPIC];
    let own = ["--threads", "2", "--segment-size", "16m", "--http", "127.0.0.1:0"];
    let tenant = ["--tenant", "loop,from=127.0.0.0/8"];
    let flags = [&flags[..], &own, &tenant, more].concat();
    let mut daemon = Daemon::launch("logd", "epoll", &flags).unwrap();
    let page = daemon.line();
    (daemon, page)
}

/// The sum of a figure over all streams.
fn figure(page: &str, name: &str) -> u64 {
    let text = ask(page, "/metrics");
    let own = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    own.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Waits until everything that is stored is in Kafka.
fn wait_until_shipped(page: &str) {
    let until = Instant::now() + PATIENCE;
    while figure(page, "logd_ship_lag_lines") > 0 {
        let errors = ask(page, "/");
        assert!(Instant::now() < until, "waited in vain: {errors}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Compares a topic with the segments: each line of each stream is there in its order, with its time and tenant. A line
/// that is there again is one of those before the newest.
fn compare(records: &[Record], directory: &Path) -> (usize, usize) {
    let origins: Vec<_> = records.iter().map(|record| &record.origin).collect();
    assert!(origins.windows(2).all(|pair| pair[0] == pair[1]), "one directory has one name");
    let (mut lines, mut repeated) = (0, 0);
    for stream in 0..THREADS {
        let number = stream.to_string();
        let stored = cat(&["--stream", &number], directory);
        let own: Vec<_> = records.iter().filter(|record| record.stream == stream).collect();
        let mut next = 0;
        for record in &own {
            assert_eq!(record.partition, own[0].partition, "a stream is in one partition");
            assert!(
                record.line <= next,
                "stream {stream}: {} comes after {next} lines",
                record.line
            );
            assert_eq!(record.value, stored[record.line], "stream {stream}: another line");
            assert_eq!(record.tenant.as_deref(), Some("loop"));
            assert!(record.time_ms > 1_700_000_000_000, "{record:?}");
            repeated += usize::from(record.line < next);
            next = next.max(record.line + 1);
        }
        assert_eq!(next, stored.len(), "stream {stream}: lines are missing");
        lines += next;
    }
    (lines, repeated)
}

#[test]
#[ignore = "needs Maven and Java"]
fn kafka_has_what_is_stored_each_line_once() {
    once(&[]);
}

#[test]
#[ignore = "needs Maven and Java"]
fn kafka_has_what_is_stored_in_transactions_each_line_once() {
    once(&[EXACTLY_ONCE, &["--kafka-compression", "zstd"]].concat());
}

fn once(flags: &[&str]) {
    let cluster = Cluster::start(1, 3);
    let directory = tempfile::tempdir().unwrap();
    let (daemon, page) = start(&cluster, directory.path(), flags);
    let senders = (0..4).map(|sender| {
        let address = daemon.address;
        thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            for number in 0..250_000 {
                writeln!(stream, "[{sender},{number},\"{}\"]", "x".repeat(number % 50)).unwrap();
            }
        })
    });
    senders.collect::<Vec<_>>().into_iter().for_each(|sender| sender.join().unwrap());
    let until = Instant::now() + Duration::from_secs(60);
    while figure(&page, "logd_accepted_lines_total") < 1_000_000 {
        assert!(Instant::now() < until, "lines do not arrive");
        thread::sleep(Duration::from_millis(50));
    }
    wait_until_shipped(&page);
    assert_eq!(figure(&page, "logd_ship_shipped_lines_total"), 1_000_000);
    let errors = figure(&page, "logd_ship_errors_total");
    let output = daemon.end();
    // The first transactions of a cluster make it create the topic that it keeps them in.
    assert!(errors == 0 || !flags.is_empty(), "{output}");
    let found = compare(&cluster.consume(), directory.path());
    assert_eq!(found, (1_000_000, 0));
}

/// The directory stays: each daemon goes on where the one before ended.
#[test]
#[ignore = "needs Maven and Java"]
fn kafka_takes_lines_by_tls_and_by_each_login() {
    let cluster = Cluster::start(1, 3);
    let directory = tempfile::tempdir().unwrap();
    let login = directory.path().join("login");
    let authority = cluster.authority();
    let tls = ["--kafka-ca", authority.to_str().unwrap()];
    let own = |mechanism| ["--kafka-login", login.to_str().unwrap(), "--kafka-sasl", mechanism];
    let mut sent = 0;
    for (mechanism, more) in
        [("plain", &[][..]), ("scram-sha-256", &[]), ("scram-sha-512", EXACTLY_ONCE)]
    {
        std::fs::write(&login, format!("{USER}\nwrong\n")).unwrap();
        let flags = [&tls[..], &own(mechanism), more].concat();
        let (daemon, page) = start_at(&cluster.secure_addresses(), directory.path(), &flags);
        let mut stream = daemon.connect();
        for number in 0..1000 {
            writeln!(stream, "[{sent},{number}]").unwrap();
        }
        let until = Instant::now() + Duration::from_secs(30);
        while !ask(&page, "/").contains("refuses the user and the password") {
            assert!(Instant::now() < until, "{mechanism}: {}", ask(&page, "/"));
            thread::sleep(Duration::from_millis(50));
        }
        // It is read again for the next connection.
        std::fs::write(&login, format!("{USER}\n{PASSWORD}\n")).unwrap();
        wait_until_shipped(&page);
        sent += 1000;
        daemon.end();
    }
    let flags = [&tls[..], &own("plain")].concat();
    let (daemon, page) = start_at(&cluster.addresses(), directory.path(), &flags);
    writeln!(daemon.connect(), "[]").unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while !ask(&page, "/").contains("it speaks no TLS there") {
        assert!(Instant::now() < until, "{}", ask(&page, "/"));
        thread::sleep(Duration::from_millis(50));
    }
    daemon.signal("-KILL");
    drop(daemon);
    let (daemon, page) = start(&cluster, directory.path(), &[]);
    wait_until_shipped(&page);
    daemon.end();
    assert_eq!(compare(&cluster.consume(), directory.path()), (sent + 1, 0));
}

/// A client is answered only when Kafka has its lines, also by a daemon that was killed and started again.
#[test]
#[ignore = "needs Maven and Java"]
fn kafka_has_what_is_acknowledged_as_replicated() {
    replicate(&["--ack", "replicated"]);
}

#[test]
#[ignore = "needs Maven and Java"]
fn kafka_has_committed_what_is_acknowledged_as_replicated() {
    replicate(&[EXACTLY_ONCE, &["--ack", "replicated"]].concat());
}

fn replicate(flags: &[&str]) {
    let mut cluster = Cluster::start(1, 2);
    let directory = tempfile::tempdir().unwrap();
    let join = |daemon: &Daemon| {
        let mut stream = daemon.connect();
        writeln!(stream, "LOGD 1 ack=replicated name=web").unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        (stream, answers, line)
    };
    let (mut daemon, mut page) = start(&cluster, directory.path(), flags);
    let (mut stream, mut answers, line) = join(&daemon);
    assert!(line.starts_with("H 1 replicated 0 "), "{line}");
    let mut answer = || {
        let mut line = String::new();
        answers.read_line(&mut line).map(|_| line)
    };
    stream.write_all(b"1\n2\n").unwrap();
    assert_eq!(answer().unwrap(), "A 2\n");
    assert_eq!(figure(&page, "logd_ship_shipped_lines_total"), 2);
    cluster.kill(0);
    stream.write_all(b"3\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    assert!(answer().is_err(), "nobody else has the third line");
    assert_eq!(cat(&[], directory.path()), ["1", "2", "3"]);
    assert!(ask(&page, "/readyz").contains("lines cannot be replicated"));
    daemon.signal("-KILL");
    daemon.child.wait().unwrap();
    (daemon, page) = start(&cluster, directory.path(), flags);
    assert_eq!(join(&daemon).2, "E 1 busy\n", "its third line is not replicated");
    cluster.launch(0);
    wait_until_shipped(&page);
    let until = Instant::now() + Duration::from_secs(20);
    let told = loop {
        match join(&daemon).2 {
            busy if busy == "E 1 busy\n" && Instant::now() < until => {
                thread::sleep(Duration::from_millis(20));
            }
            told => break told,
        }
    };
    assert!(told.starts_with("H 1 replicated 3 "), "{told}");
    daemon.end();
    let mut values: Vec<_> = cluster.consume().into_iter().map(|record| record.value).collect();
    values.dedup();
    assert_eq!(values, ["1", "2", "3"]);
}

/// A connection that asks for acknowledgements as replicated.
struct Acknowledged {
    stream: BufReader<TcpStream>,
    sent: usize,
}

impl Acknowledged {
    fn connect(port: u16) -> io::Result<Acknowledged> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        (&stream).write_all(b"LOGD 1 ack=replicated\n")?;
        let mut own = Acknowledged { stream: BufReader::new(stream), sent: 0 };
        assert_eq!(own.answer()?, "H 1 replicated\n");
        Ok(own)
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.ends_with('\n') {
            true => Ok(line),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Sends lines, and waits until the last one is acknowledged.
    fn store(&mut self, lines: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(lines.as_bytes())?;
        self.sent += lines.lines().count();
        let last = format!("A {}\n", self.sent);
        while self.answer()? != last {}
        Ok(())
    }
}

/// Sends lines until it is told to stop, to whatever address the daemon has.
struct Senders {
    address: Arc<AtomicU64>,
    must_stop: Arc<AtomicBool>,
    /// Lines that were acknowledged as replicated, by senders that ask for it.
    acknowledged: Arc<Mutex<Vec<String>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Senders {
    /// `connect` gives a connection to a port, and `store` sends lines by it.
    fn start<C: 'static>(
        connect: fn(u16) -> io::Result<C>,
        store: fn(&mut C, &str) -> io::Result<()>,
        are_acknowledged: bool,
    ) -> Senders {
        let mut own = Senders {
            address: Arc::default(),
            must_stop: Arc::default(),
            acknowledged: Arc::default(),
            threads: Vec::new(),
        };
        for sender in 0..4 {
            let (address, must_stop) = (own.address.clone(), own.must_stop.clone());
            let acknowledged = own.acknowledged.clone();
            own.threads.push(thread::spawn(move || {
                let mut stream: Option<C> = None;
                for number in 0_u64.. {
                    if must_stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let port = address.load(Ordering::Relaxed) as u16;
                    let lines: String =
                        (0..25).map(|line| format!("[{sender},{number},{line}]\n")).collect();
                    match stream.as_mut().is_some_and(|own| store(own, &lines).is_ok()) {
                        true if are_acknowledged => {
                            acknowledged.lock().unwrap().extend(lines.lines().map(str::to_owned));
                        }
                        true => {}
                        false => stream = connect(port).ok(),
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            }));
        }
        own
    }

    /// Senders that ask for nothing.
    fn unanswered() -> Senders {
        let connect = |port| TcpStream::connect(("127.0.0.1", port));
        Senders::start(connect, |stream, lines| stream.write_all(lines.as_bytes()), false)
    }

    /// Senders that wait until Kafka has their lines.
    fn replicated() -> Senders {
        Senders::start(Acknowledged::connect, Acknowledged::store, true)
    }

    /// How many lines were acknowledged as replicated.
    fn acknowledged(&self) -> u64 {
        self.acknowledged.lock().unwrap().len() as u64
    }

    fn send_to(&self, address: SocketAddr) {
        self.address.store(address.port().into(), Ordering::Relaxed);
    }

    /// Lines that were acknowledged as replicated.
    fn stop(self) -> Vec<String> {
        self.must_stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        std::mem::take(&mut self.acknowledged.lock().unwrap())
    }
}

/// In each round something else fails: the daemon, a broker, the leader, a leader that hangs, or all at once.
#[test]
#[ignore = "needs Maven and Java"]
fn kafka_has_every_stored_line_in_order_whatever_fails() {
    let repeated = survive(&[], Senders::unanswered());
    eprintln!("{repeated} lines are repeated");
}

/// No line is acknowledged as replicated that Kafka does not have.
#[test]
#[ignore = "needs Maven and Java"]
fn kafka_has_what_is_acknowledged_as_replicated_whatever_fails() {
    survive(&["--ack", "replicated"], Senders::replicated());
}

/// Whatever fails, consumers of committed records read each line once.
#[test]
#[ignore = "needs Maven and Java"]
fn kafka_has_every_stored_line_once_in_transactions_whatever_fails() {
    assert_eq!(survive(EXACTLY_ONCE, Senders::unanswered()), 0);
}

/// Fails brokers for a while.
fn fail(cluster: &mut Cluster, what: &str) {
    match what {
        "broker" => {
            let other = (cluster.leader() + 1) % cluster.count();
            cluster.kill(other);
            thread::sleep(Duration::from_secs(3));
            cluster.launch(other);
        }
        "leader" => {
            let leader = cluster.leader();
            cluster.kill(leader);
            thread::sleep(Duration::from_secs(3));
            cluster.launch(leader);
        }
        "pause" => {
            let leader = cluster.leader();
            cluster.signal(leader, "-STOP");
            // Longer than the others wait for it, so that another one leads.
            thread::sleep(Duration::from_secs(15));
            cluster.signal(leader, "-CONT");
        }
        _ => {
            (0..cluster.count()).for_each(|number| cluster.kill(number));
            thread::sleep(Duration::from_secs(2));
            (0..cluster.count()).for_each(|number| cluster.launch(number));
        }
    }
}

fn survive(flags: &[&str], senders: Senders) -> usize {
    let mut cluster = Cluster::start(3, 2);
    let directory = tempfile::tempdir().unwrap();
    // How many were acknowledged, at least, before the daemon began.
    let mut before = 0;
    let (mut daemon, mut page) = start(&cluster, directory.path(), flags);
    senders.send_to(daemon.address);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for round in 0..rounds() {
        let acknowledged = senders.acknowledged() - before;
        let shipped = figure(&page, "logd_ship_shipped_lines_total");
        assert!(acknowledged <= shipped, "{acknowledged} acknowledged, {shipped} in Kafka");
        thread::sleep(Duration::from_secs(1));
        let what = ["daemon", "broker", "leader", "pause", "all"][round % 5];
        *counts.entry(what).or_default() += 1;
        match what {
            "daemon" => {
                daemon.signal("-KILL");
                daemon.child.wait().unwrap();
                (daemon, page) = start(&cluster, directory.path(), flags);
                senders.send_to(daemon.address);
                // They have read the answers of the one before.
                thread::sleep(Duration::from_secs(1));
                before = senders.acknowledged();
            }
            broker => fail(&mut cluster, broker),
        }
        cluster.wait_until_in_sync();
        let until = Instant::now() + PATIENCE;
        while what != "daemon" && figure(&page, "logd_ship_shipped_lines_total") <= shipped {
            assert!(Instant::now() < until, "{what}: {}", ask(&page, "/"));
            thread::sleep(Duration::from_millis(100));
        }
        eprintln!("round {round}: {what}: {}", figure(&page, "logd_ship_errors_total"));
    }
    let acknowledged = senders.stop();
    thread::sleep(Duration::from_secs(1));
    wait_until_shipped(&page);
    daemon.end();
    let records = cluster.consume();
    let (lines, repeated) = compare(&records, directory.path());
    let values: HashSet<&str> = records.iter().map(|record| &*record.value).collect();
    assert!(
        acknowledged.iter().all(|line| values.contains(&**line)),
        "an acknowledged line is gone"
    );
    let told = acknowledged.len();
    eprintln!("{lines} lines, {told} acknowledged, {repeated} repeated, after {counts:?}");
    assert!(lines > 250 * rounds(), "{lines}");
    repeated
}
