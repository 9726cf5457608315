//! What the client in Python does with a daemon that stays busy.
//!
//! The tests of all clients, with daemons that are killed, are in the file above.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    time::Instant,
};

use super::*;

/// Runs the client as a program with this standard input.
fn send(address: SocketAddr, input: &[u8]) -> Option<Child> {
    let mut command = Command::new("python3");
    command.arg(python()?).arg(address.to_string()).arg("python");
    let mut client = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    client.stdin.take().unwrap().write_all(input).unwrap();
    Some(client)
}

/// With `--ack replicated` it is busy for as long as Kafka is away.
#[test]
fn the_client_in_python_comes_less_often_to_a_daemon_that_stays_busy() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let Some(client) = send(listener.local_addr().unwrap(), b"1\n") else { return };
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
