//! What the client in Python does with a daemon that stays busy, and with the program that it is a part of.
//!
//! The tests of all clients, with daemons that are killed, are in the file above.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    time::Instant,
};

use super::*;

/// Runs the client as a program with this standard input.
fn send(address: SocketAddr, locale: &str, input: &[u8]) -> Option<Child> {
    let mut command = Command::new("python3");
    command.arg(python()?).arg(address.to_string()).arg("python").env("LC_ALL", locale);
    let mut client = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    client.stdin.take().unwrap().write_all(input).unwrap();
    Some(client)
}

/// With `--ack replicated` it is busy for as long as Kafka is away.
#[test]
fn the_client_in_python_comes_less_often_to_a_daemon_that_stays_busy() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let Some(client) = send(listener.local_addr().unwrap(), "C.UTF-8", b"1\n") else { return };
    let mut began = None;
    for number in 0..=8 {
        let (mut stream, _) = listener.accept().unwrap();
        began.get_or_insert_with(Instant::now);
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "LOGD 1 name=python");
        if number < 8 {
            stream.write_all(b"E 1 busy\n").unwrap();
            continue;
        }
        stream.write_all(b"H 1 replicated 0\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "1");
        stream.write_all(b"A 1\n").unwrap();
    }
    // Eight pauses from 5 ms on that double are 1275 ms, and at least half of that. From 50 ms on they were 6 s.
    let took = began.unwrap().elapsed();
    assert!(took > Duration::from_millis(600) && took < Duration::from_secs(6), "{took:?}");
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_client_in_python_tells_what_it_waits_for() {
    // A port that no test gets for a daemon of its own.
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let Some(mut client) = send(nobody, "C.UTF-8", b"1\n") else { return };
    let told = BufReader::new(client.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    let expected = "ringwise_log: 1 lines wait: [Errno 111] Connection refused";
    assert_eq!(told, expected);
}

/// A daemon that takes its time, as under a load, is waited for in silence.
#[test]
fn the_client_in_python_tells_nothing_while_answers_come() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let Some(client) = send(listener.local_addr().unwrap(), "C.UTF-8", b"1\n2\n") else { return };
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"H 1 durable 0\n").unwrap();
    for answer in ["A 1\n", "A 2\n"] {
        std::thread::sleep(Duration::from_secs(3));
        stream.write_all(answer.as_bytes()).unwrap();
    }
    assert_eq!(printed(client), "");
}

/// Starts a program that has a client of this address, and 20 s.
fn begin(address: SocketAddr, program: &str) -> Option<Child> {
    let text = "import signal, sys; sys.path.insert(0, sys.argv[1]); import ringwise_log\n\
        signal.alarm(20)\n\
        def start(**settings):\n    \
            return ringwise_log.Client('127.0.0.1', int(sys.argv[2]), 'python', **settings)\n";
    let script = python()?;
    let mut command = Command::new("python3");
    command.args(["-B", "-c", &format!("{text}{program}")]).arg(script.parent().unwrap());
    let command = command.arg(address.port().to_string());
    Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// Waits for the end of such a program. Returns what it printed.
fn printed(client: Child) -> String {
    let output = client.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{}: {told}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_client_in_python_ends_though_the_daemon_reads_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let program = "client = start(memory=64 << 20)\n\
        for number in range(40): client.send('\"' + 'x' * 1000000 + '\"')\n\
        print(client.close(1), client._thread.is_alive())";
    let Some(client) = begin(listener.local_addr().unwrap(), program) else { return };
    let (mut stream, _) = listener.accept().unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    lines.next().unwrap().unwrap();
    stream.write_all(b"H 1 durable 0\n").unwrap();
    assert_eq!(printed(client), "False False\n");
}

#[test]
fn the_client_in_python_sends_bytes_that_are_not_utf8_as_replacement_characters() {
    for locale in ["C", "C.UTF-8"] {
        let directory = tempfile::tempdir().unwrap();
        let Some(mortal) = Mortal::start("epoll", directory.path()) else { return };
        let lines = b"[\"\xff\"]\n[\"\xc3\xa9\"]\n";
        let Some(client) = send(mortal.address, locale, lines) else { return };
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(mortal.end(), ["[\"\u{fffd}\"]", "[\"\u{e9}\"]"]);
    }
}

#[test]
fn an_exception_of_the_callback_ends_the_client_in_python() {
    for kind in ["KeyError", "ValueError", "BlockingIOError", "SystemExit"] {
        let directory = tempfile::tempdir().unwrap();
        let Some(mortal) = Mortal::start("epoll", directory.path()) else { return };
        // The memory has one line, so the second one waits.
        let program = "def rejected(line, reason): raise KIND(line)\n\
            client = start(memory=10, rejected=rejected)\n\
            client.send('no JSON')\n\
            try: client.send('[1,2]')\n\
            except ConnectionError as error: print(repr(error.__cause__))\n\
            print(client.flush())";
        let program = program.replace("KIND", kind);
        let Some(client) = begin(mortal.address, &program) else { return };
        assert_eq!(printed(client), format!("{kind}('no JSON')\nFalse\n"));
    }
}

#[test]
fn the_client_in_python_works_in_a_program_with_many_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mortal) = Mortal::start("epoll", directory.path()) else { return };
    let program = "import os, resource\n\
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2048), most))\n\
        files = [os.dup(0) for _ in range(1100)]\n\
        client = start()\n\
        client.send('1')\n\
        print(client.close(10))";
    let Some(client) = begin(mortal.address, program) else { return };
    assert_eq!(printed(client), "True\n");
    assert_eq!(mortal.end(), ["1"]);
}
