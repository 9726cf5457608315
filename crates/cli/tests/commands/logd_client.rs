//! The clients of `ringwise logd`, `ringwise-log` in threads and in tasks and the one in Python, while the daemon is
//! killed and started again under them: each line is stored once and in order.
//!
//! The crate's own tests have servers that answer what a daemon never does.

use std::{
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use ringwise_log::{Builder, Client, Event, Failure, Refusal, Spool, Tls};

use crate::{
    harness::daemon::{Daemon, ENGINES, cat, has_python, rounds, wait_until},
    logd::tls::Place,
};

mod python;

/// How many lines are sent while the daemon is killed again and again.
const LINES: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon that is killed and started again at the same address.
struct Mortal {
    engine: &'static str,
    directory: PathBuf,
    address: SocketAddr,
    daemon: Option<Daemon>,
}

impl Mortal {
    fn start(engine: &'static str, directory: &Path) -> Option<Mortal> {
        let any = "127.0.0.1:0".parse().unwrap();
        let mut mortal =
            Mortal { engine, directory: directory.to_owned(), address: any, daemon: None };
        mortal.daemon = Some(mortal.launch()?);
        mortal.address = mortal.daemon.as_ref()?.address;
        Some(mortal)
    }

    fn launch(&self) -> Option<Daemon> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        command.args(["logd", "--listen", &self.address.to_string(), "--engine", self.engine]);
        command.args(["--names", "anyone", "--threads", "1", "--segment-size", "256k", "--dir"]);
        Daemon::spawn(command.arg(&self.directory), self.engine)
    }

    fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.signal("-KILL");
        daemon.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.kill();
        self.daemon = Some(self.launch().unwrap());
    }

    /// Another daemon with that directory takes its place, as behind a load balancer; returns the former directory.
    fn replace(&mut self, directory: PathBuf) -> PathBuf {
        self.kill();
        let former = std::mem::replace(&mut self.directory, directory);
        self.daemon = Some(self.launch().unwrap());
        former
    }

    fn end(mut self) -> Vec<String> {
        self.daemon.take().unwrap().end();
        cat(&[], &self.directory)
    }

    /// A client with the name that comes again soon.
    fn client(&self, name: &str) -> Builder {
        let client = Client::builder(self.address.to_string()).name(name);
        client.pauses(Duration::from_millis(5), Duration::from_millis(100))
    }
}

fn line(number: usize) -> String {
    format!("{{\"number\":{number},\"text\":\"{}\"}}", "x".repeat(60))
}

/// Kills the daemon at so many moments while the client's lines are being stored.
fn kill_under(mortal: &mut Mortal, client: &Client) {
    at_moments(rounds(), client, || mortal.restart());
}

/// Does something at so many moments while the client's lines are being stored, each time over a new connection.
fn at_moments(count: usize, client: &Client, mut act: impl FnMut()) {
    let (mut connections, mut upto) = (0, 0);
    for _ in 0..count {
        upto += (LINES / (count + 1)) as u64;
        wait_until("lines are acknowledged over a new connection", || {
            let now = client.stats();
            now.connections > connections && now.acknowledged_lines >= upto
        });
        let before = client.stats();
        (connections, upto) = (before.connections, before.acknowledged_lines);
        act();
    }
}

/// The numbers of the lines to send: so many, and more until it is enough.
fn numbers(least: usize, is_enough: &AtomicBool) -> impl Iterator<Item = usize> {
    (0..).take_while(move |number| *number < least || !is_enough.load(Ordering::Relaxed))
}

/// Sends lines in a thread until it is enough; gives their number.
fn send(client: &Client, is_enough: &Arc<AtomicBool>) -> JoinHandle<usize> {
    let (client, is_enough) = (client.clone(), is_enough.clone());
    std::thread::spawn(move || {
        let send = |number| assert_eq!(client.send(line(number)).unwrap(), Some(number as u64 + 1));
        numbers(LINES, &is_enough).map(send).count()
    })
}

/// The lines are the expected ones, in their order.
#[track_caller]
fn same(found: &[String], expected: impl ExactSizeIterator<Item = String>) {
    let count = expected.len();
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(*found == expected, "line {place}: {found}, expected {expected}");
    }
    assert_eq!(found.len(), count);
}

#[test]
fn lines_of_a_thread_are_stored_once_while_the_daemon_is_killed() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(mut mortal) = Mortal::start(engine, directory.path()) else { continue };
        let client = mortal.client("thread").memory(2 << 20).start().unwrap();
        let is_enough = Arc::default();
        let sending = send(&client, &is_enough);
        kill_under(&mut mortal, &client);
        is_enough.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap();
        client.close(PATIENCE).unwrap();
        let stats = client.stats();
        assert!(stats.connections as usize > rounds(), "{stats:?}");
        assert_eq!((stats.acknowledged_lines, stats.forgotten_lines), (sent as u64, 0));
        same(&mortal.end(), (0..sent).map(line));
    }
}

#[test]
fn lines_of_tasks_are_stored_once_while_the_daemon_is_killed() {
    const TASKS: usize = 4;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(mut mortal) = Mortal::start(engine, directory.path()) else { continue };
        let client = mortal.client("tasks").memory(2 << 20).start().unwrap();
        let is_enough = Arc::<AtomicBool>::default();
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (client, is_enough) = (client.clone(), is_enough.clone());
                runtime.spawn(async move {
                    let mut sent = 0;
                    for number in numbers(LINES / TASKS, &is_enough) {
                        client.send_async(format!("[{task},{number}]")).await.unwrap();
                        sent = number + 1;
                    }
                    sent
                })
            })
            .collect();
        kill_under(&mut mortal, &client);
        is_enough.store(true, Ordering::Relaxed);
        let sent = runtime.block_on(async {
            let mut sent = Vec::new();
            for task in tasks {
                sent.push(task.await.unwrap());
            }
            tokio::time::timeout(PATIENCE, client.close_async()).await.unwrap().unwrap();
            sent
        });
        let lines = mortal.end();
        assert_eq!(lines.len(), sent.iter().sum::<usize>());
        for (task, sent) in sent.into_iter().enumerate() {
            let begin = format!("[{task},");
            let own: Vec<String> =
                lines.iter().filter(|line| line.starts_with(&begin)).cloned().collect();
            same(&own, (0..sent).map(|number| format!("[{task},{number}]")));
        }
    }
}

/// Each line is in one of the directories, or in both.
#[track_caller]
fn none_is_lost(mortal: Mortal, other: &Path, sent: usize) {
    let mut found = mortal.end();
    found.append(&mut cat(&[], other));
    found.sort();
    found.dedup();
    let mut expected: Vec<_> = (0..sent).map(line).collect();
    expected.sort();
    assert_eq!(found.len(), sent);
    assert!(found == expected);
}

#[test]
fn a_client_that_comes_to_another_daemon_and_back_loses_nothing() {
    for engine in ENGINES {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let Some(mut mortal) = Mortal::start(engine, directories[0].path()) else { continue };
        let moves = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&moves);
        let client = mortal.client("moved").memory(2 << 20).on_event(move |event| {
            *counted.lock().unwrap() += usize::from(matches!(event, Event::Moved { .. }));
        });
        let client = client.start().unwrap();
        let is_enough = Arc::default();
        let sending = send(&client, &is_enough);
        let rounds = 2 * rounds();
        let mut other = directories[1].path().to_owned();
        at_moments(rounds, &client, || other = mortal.replace(std::mem::take(&mut other)));
        is_enough.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap();
        client.close(PATIENCE).unwrap();
        assert_eq!((*moves.lock().unwrap(), client.stats().forgotten_lines), (rounds, 0));
        none_is_lost(mortal, &other, sent);
    }
}

/// The script of the client in Python; nothing where there is no Python.
fn python() -> Option<PathBuf> {
    has_python()
        .then(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../log/examples/ringwise_log.py"))
}

/// Sends all lines through the client in Python, in so many parts. The daemon changes between two parts, while the
/// client sends what it has read.
fn pipe(
    script: &Path,
    mortal: &mut Mortal,
    parts: usize,
    mut change: impl FnMut(&mut Mortal),
) -> (Child, ChildStdin) {
    let mut command = Command::new("python3");
    command.arg(script).arg(mortal.address.to_string()).arg("python");
    let mut client = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = client.stdin.take().unwrap();
    for part in 0..parts {
        if part > 0 {
            change(mortal);
        }
        let numbers = LINES * part / parts..LINES * (part + 1) / parts;
        let text: String = numbers.map(|number| line(number) + "\n").collect();
        input.write_all(text.as_bytes()).unwrap();
    }
    (client, input)
}

#[test]
fn lines_of_the_client_in_python_are_stored_once_while_the_daemon_is_killed() {
    let Some(script) = python() else { return };
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(mut mortal) = Mortal::start(engine, directory.path()) else { continue };
        let (client, mut input) = pipe(&script, &mut mortal, rounds() + 1, Mortal::restart);
        input.write_all(b"no JSON\n").unwrap();
        drop(input);
        let output = client.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        assert_eq!(told, "rejected (syntax): no JSON\n");
        same(&mortal.end(), (0..LINES).map(line));
    }
}

#[test]
fn the_client_in_python_comes_to_another_daemon_and_back_and_loses_nothing() {
    let Some(script) = python() else { return };
    for engine in ENGINES {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let Some(mut mortal) = Mortal::start(engine, directories[0].path()) else { continue };
        let mut other = directories[1].path().to_owned();
        let (client, input) = pipe(&script, &mut mortal, 2 * rounds() + 1, |mortal| {
            other = mortal.replace(std::mem::take(&mut other));
        });
        drop(input);
        let output = client.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.is_empty(), "{told}");
        none_is_lost(mortal, &other, LINES);
    }
}

/// Programs that end without waiting, some of them while the daemon is away: the next one goes on.
#[test]
fn lines_in_a_spool_are_stored_once_by_programs_that_end_at_any_time() {
    const EACH: usize = 5000;
    for engine in ENGINES {
        let (directory, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let Some(mut mortal) = Mortal::start(engine, directory.path()) else { continue };
        let programs = 2 * rounds() + 2;
        for program in 0..programs {
            match program % 4 {
                2 => mortal.kill(),
                0 if program > 0 => mortal.daemon = Some(mortal.launch().unwrap()),
                _ => {}
            }
            let client = mortal.client("spool").spool(Spool::new(spool.path()));
            let client = client.start().unwrap();
            for number in program * EACH..(program + 1) * EACH {
                assert_eq!(client.send(line(number)).unwrap(), Some(number as u64 + 1));
            }
            if program % 2 == 1 && mortal.daemon.is_some() {
                wait_until("some are acknowledged", || client.stats().acknowledged_lines > 100);
            }
            drop(client);
        }
        if mortal.daemon.is_none() {
            mortal.daemon = Some(mortal.launch().unwrap());
        }
        let client = mortal.client("spool").spool(Spool::new(spool.path()).sync(true));
        let client = client.start().unwrap();
        client.send(line(programs * EACH)).unwrap();
        client.close(PATIENCE).unwrap();
        assert_eq!(client.stats().spool_cut_bytes, 0);
        same(&mortal.end(), (0..programs * EACH + 1).map(line));
    }
}

#[test]
fn a_client_without_a_name_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut mortal) = Mortal::start("epoll", directory.path()) else { return };
    let client = Client::builder(mortal.address.to_string());
    let client =
        client.pauses(Duration::from_millis(5), Duration::from_millis(50)).start().unwrap();
    for number in 0..20_000 {
        client.send(line(number)).unwrap();
        if number % 5000 == 4999 {
            mortal.restart();
        }
    }
    client.close(PATIENCE).unwrap();
    let stats = client.stats();
    let mut found = mortal.end();
    assert!(found.len() <= 20_000 + stats.resent_lines as usize, "{} {stats:?}", found.len());
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 20_000);
}

#[test]
fn a_token_that_the_daemon_does_not_know_is_told_until_it_does() {
    const TOKEN: &str = "web-token-0123456789abcdef";
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "# none\n").unwrap();
    let data = directory.path().join("data");
    let flags = ["--dir", data.to_str().unwrap(), "--tokens", tokens.to_str().unwrap()];
    let daemon = Daemon::launch("logd", "epoll", &flags).unwrap();
    let client = Client::builder(daemon.address.to_string()).name("a").token(TOKEN);
    let client = client.pauses(Duration::from_millis(10), Duration::from_millis(50));
    let client = client.start().unwrap();
    client.send("1").unwrap();
    let error = client.flush(Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error.cause, Some(Failure::Refused(Refusal::Token))), "{error}");
    // Without a token nobody knows whose the name would be.
    let other = Client::builder(daemon.address.to_string()).name("a").start().unwrap();
    wait_until("it is refused", || {
        matches!(other.failure(), Some(Failure::Refused(Refusal::Identity)))
    });
    std::fs::write(&tokens, format!("{TOKEN} web\n")).unwrap();
    daemon.signal("-HUP");
    client.close(PATIENCE).unwrap();
    daemon.end();
    assert_eq!(cat(&["--tenant", "web"], &data), ["1"]);
}

#[test]
fn rejected_lines_are_told_and_a_newer_client_takes_the_name() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mortal) = Mortal::start("epoll", directory.path()) else { return };
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let first = mortal.client("web").on_event(move |event| {
        if let Event::Rejected { line, reason, .. } = event {
            // A flush waits for it.
            std::thread::sleep(Duration::from_millis(50));
            tell.lock().unwrap().push((*line, reason.clone()));
        }
    });
    let first = first.start().unwrap();
    for line in ["1", "{", "2", "\"\\ud800\""] {
        first.send(line).unwrap();
    }
    first.flush(PATIENCE).unwrap();
    assert_eq!(*told.lock().unwrap(), [(2, "incomplete".to_owned()), (4, "surrogate".to_owned())]);
    let second = mortal.client("web").start().unwrap();
    second.send("3").unwrap();
    second.flush(PATIENCE).unwrap();
    // The daemon looks at who has the name when lines come.
    let _ = first.send("4");
    wait_until("it has ended", || {
        matches!(first.failure(), Some(Failure::Refused(Refusal::Taken)))
    });
    drop((first, second));
    assert_eq!(mortal.end(), ["1", "2", "3"]);
}

#[test]
fn clients_speak_tls_and_are_known_by_their_certificates() {
    let place = Place::new();
    place.issue("web", &[], Some("web"));
    let flags = ["--tls-client-ca", &place.text("ca.pem"), "--threads", "1"];
    for engine in ENGINES {
        let Some(daemon) = place.start(engine, &flags) else { continue };
        let files = ["web.pem", "web.key"].map(|name| place.path(name));
        let tls = Tls::with_ca_and_identity(place.path("ca.pem"), &files[0], &files[1]).unwrap();
        let tls = tls.server_name("localhost").unwrap();
        let client = Client::builder(daemon.address.to_string()).name(engine).tls(tls);
        let client = client.start().unwrap();
        for number in 0..10_000 {
            client.send(line(number)).unwrap();
        }
        client.close(PATIENCE).unwrap();
        assert_eq!(client.stats().failures, 0);
        // A certificate for another host is not trusted.
        let tls = Tls::with_ca(place.path("ca.pem")).unwrap();
        let other = Client::builder(daemon.address.to_string()).tls(tls).start().unwrap();
        wait_until("it is not trusted", || {
            other.failure().is_some_and(|failure| failure.to_string().contains("TLS"))
        });
        if let Some(script) = python() {
            let text = "import sys, ssl; sys.path.insert(0, sys.argv[1]); import ringwise_log\n\
                tls = ssl.create_default_context(cafile=sys.argv[2])\n\
                tls.load_cert_chain(sys.argv[3], sys.argv[4])\n\
                client = ringwise_log.Client('localhost', int(sys.argv[5]), 'py', tls=tls, memory=9999)\n\
                for number in range(10000): client.send(f'[\"py\",{number}]')\n\
                sys.exit(not client.close(60))";
            let mut command = Command::new("python3");
            command.args(["-B", "-c", text]).arg(script.parent().unwrap());
            command.arg(place.path("ca.pem")).args(&files);
            let output = command.arg(daemon.address.port().to_string()).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        daemon.end();
        let lines = cat(&["--tenant", "web"], &place.log());
        let numbers = lines.iter().filter(|line| line.starts_with('{'));
        same(&numbers.cloned().collect::<Vec<_>>(), (0..10_000).map(line));
        std::fs::remove_dir_all(place.log()).unwrap();
    }
}
