//! Daemons that answer nonsense, nothing, or no: typed errors, pauses, and no hang.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use ringwise_log::{Failure, Guarantee, Refusal, SendError};

use super::server::{ClosedPort, PATIENCE, Server, Told, acknowledge, wait_until};

fn greeting(stream: &TcpStream) -> String {
    let mut line = String::new();
    BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
    line
}

/// Ends a connection and reads what still comes: a close before that is a reset if the client has sent something.
fn close(mut stream: TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn what_is_no_daemon_is_told_and_tried_again_after_pauses() {
    type Serve = fn(usize, TcpStream);
    let servers: [(&str, Serve); 7] = [
        ("Protocol(\"\\\"HTTP/1.1 400", |_, mut stream| {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            thread::sleep(Duration::from_millis(50));
        }),
        ("Closed", |_, stream| close(stream)),
        // A line without an end.
        ("Protocol", |_, mut stream| while stream.write_all(&[b'A'; 4096]).is_ok() {}),
        ("Protocol(\"\\\"A 99 for what was not sent", |_, mut stream| {
            greeting(&stream);
            let _ = stream.write_all(b"H 1 durable 7\nA 99\n");
            let _ = stream.read_to_end(&mut Vec::new());
        }),
        ("no number for a client with a name", |_, mut stream| {
            greeting(&stream);
            let _ = stream.write_all(b"H 1 durable\n");
            let _ = stream.read_to_end(&mut Vec::new());
        }),
        // It greets, and closes at once: that is no progress.
        ("Closed", |_, mut stream| {
            greeting(&stream);
            let _ = stream.write_all(b"H 1 durable 7\n");
            close(stream);
        }),
        // The same, but it closes before it has read all bytes, so the client gets a reset.
        ("ConnectionReset", |_, mut stream| {
            greeting(&stream);
            let _ = stream.write_all(b"H 1 durable 7\n");
            let _ = stream.peek(&mut [0]);
        }),
    ];
    for (expected, serve) in servers {
        let (server, told) = (Server::new(serve), Told::default());
        let begin = Instant::now();
        let client = server.client().on_event(told.listener()).start().unwrap();
        client.send("1").unwrap();
        told.wait_for(expected);
        let error = client.flush(Duration::from_millis(500)).unwrap_err();
        assert_eq!(error.lines, 1);
        // Pauses of 10 ms at least, then 20, 40, and 50 each.
        let most = 5 + begin.elapsed().as_millis() as usize / 50;
        assert!(server.count() <= most, "{expected}: {} connections", server.count());
        assert!(client.stats().failures > 1, "{:?}", told.all());
        assert!(client.close(Duration::ZERO).is_err());
    }
}

#[test]
fn a_daemon_that_says_nothing_is_left() {
    // It does not greet; it greets and acknowledges nothing.
    let soon = Duration::from_millis(200);
    for (hello, connect_timeout) in [("", soon), ("H 1 durable 0\n", PATIENCE)] {
        let server = Server::new(move |number, mut stream| {
            if number > 0 {
                acknowledge(stream, 0);
                return;
            }
            let _ = stream.write_all(hello.as_bytes());
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let told = Told::default();
        let client = server
            .client()
            .on_event(told.listener())
            .connect_timeout(connect_timeout)
            .answer_timeout(Duration::from_millis(300));
        let client = client.start().unwrap();
        if !hello.is_empty() {
            told.wait_for("Connected");
            // Silence is no failure while nothing is owed.
            thread::sleep(Duration::from_millis(600));
            assert_eq!(client.stats().failures, 0);
        }
        client.send("1").unwrap();
        client.flush(PATIENCE).unwrap();
        told.wait_for("Silent");
        assert!(client.failure().is_none());
    }
}

#[test]
fn without_a_name_a_daemon_may_take_its_time() {
    let server = Server::new(|number, mut stream| {
        assert_eq!(number, 0, "lines would be stored twice");
        greeting(&stream);
        let _ = stream.write_all(b"H 1 durable\n");
        thread::sleep(Duration::from_millis(500));
        let _ = stream.write_all(b"A 1\n");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let client = ringwise_log::Client::builder(server.address.to_string());
    let client = client.answer_timeout(Duration::from_millis(50)).start().unwrap();
    client.send("1").unwrap();
    client.flush(PATIENCE).unwrap();
    assert_eq!(server.count(), 1);
}

#[test]
fn a_daemon_that_promises_less_is_told() {
    for (guarantee, word) in [
        (Guarantee::Written, "written"),
        (Guarantee::Durable, "durable"),
        (Guarantee::Replicated, "replicated"),
    ] {
        let server = Server::new(move |_, mut stream| {
            let answer: &[u8] = match greeting(&stream) == format!("LOGD 1 ack={word} name=web\n") {
                true => b"E 1 weaker none\n",
                false => b"E 1 unknown\n",
            };
            let _ = stream.write_all(answer);
        });
        let client = server.client().guarantee(guarantee).start().unwrap();
        wait_until("it is refused", || client.failure().is_some());
        let failure = client.failure().unwrap();
        let expected = Refusal::Weaker("none".to_owned());
        assert!(matches!(&failure, Failure::Refused(told) if *told == expected), "{failure}");
    }
}

#[test]
fn a_refusal_is_told_and_what_an_operator_can_mend_is_tried_again() {
    let server = Server::new(|number, mut stream| {
        assert_eq!(greeting(&stream), "LOGD 1 ack=durable name=web token=secret\n");
        match number {
            0..3 => drop(stream.write_all(b"E 1 token\n")),
            3..6 => drop(stream.write_all(b"E 1 busy\n")),
            // The greeting was read.
            _ => {
                let _ = stream.write_all(b"H 1 durable 0\n");
                let mut line = String::new();
                BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
                let _ = stream.write_all(b"A 1\n");
                let _ = stream.read_to_end(&mut Vec::new());
            }
        }
    });
    let told = Told::default();
    let client = server.client().token("secret").guarantee(Guarantee::Durable);
    let client = client.on_event(told.listener()).start().unwrap();
    client.send("1").unwrap();
    client.flush(PATIENCE).unwrap();
    let refused = |word| told.all().iter().filter(|event| event.contains(word)).count();
    assert_eq!((refused("Refused(Token)"), refused("Refused(Busy)")), (3, 3));

    let server = Server::new(|_, mut stream| {
        greeting(&stream);
        let _ = stream.write_all(b"E 1 token\n");
    });
    let client = server.client().start().unwrap();
    client.send("1").unwrap();
    let error = client.close(Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error.cause, Some(Failure::Refused(Refusal::Token))), "{error}");
    assert!(error.to_string().contains("--tokens"), "{error}");
}

#[test]
fn a_client_whose_name_is_taken_ends() {
    let server = Server::new(|_, mut stream| {
        greeting(&stream);
        let _ = stream.write_all(b"H 1 durable 0\n");
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
        let _ = stream.write_all(b"A 1\nE 1 taken\n");
    });
    let told = Told::default();
    let client = server.client().on_event(told.listener()).start().unwrap();
    client.send("1").unwrap();
    told.wait_for("Ended { failure: Refused(Taken)");
    let error = client.send("2").unwrap_err();
    assert!(matches!(error, SendError::Ended(Failure::Refused(Refusal::Taken))), "{error}");
    assert!(error.to_string().contains("a name of its own"), "{error}");
    assert_eq!(server.count(), 1);
    client.flush(Duration::ZERO).unwrap();
    // Who waited for room learns it too.
    let server = Server::new(|_, mut stream| {
        greeting(&stream);
        thread::sleep(Duration::from_millis(100));
        let _ = stream.write_all(b"E 1 expired\n");
    });
    let client = server.client().line_max(1000).memory(2100).start().unwrap();
    let error = loop {
        if let Err(error) = client.send("1".repeat(500)) {
            break error;
        }
    };
    assert!(matches!(error, SendError::Ended(Failure::Refused(Refusal::Expired))), "{error}");
    let error = client.flush(PATIENCE).unwrap_err();
    assert!(error.lines >= 4 && error.cause.is_some(), "{error}");
}

#[test]
fn a_daemon_that_comes_late_gets_every_line() {
    let port = ClosedPort::new();
    let told = Told::default();
    let client = port.client().on_event(told.listener()).start().unwrap();
    for line in 1..=100 {
        assert_eq!(client.send(line.to_string()).unwrap(), Some(line));
    }
    let event = told.wait_for("Disconnected");
    assert!(event.contains("Connect("), "{event}");
    let (sender, received) = std::sync::mpsc::channel();
    let _server = Server::on(port.open(), move |_, stream| {
        sender.send(acknowledge(stream, 5)).unwrap();
    });
    client.close(PATIENCE).unwrap();
    let expected: Vec<String> = (1..=100).map(|line| line.to_string()).collect();
    assert_eq!(received.recv_timeout(PATIENCE).unwrap(), expected);
    assert!(matches!(client.send("1"), Err(SendError::Closed)));
}

#[test]
fn rejected_lines_are_told_by_number_and_a_callback_may_panic() {
    let server = Server::new(|_, mut stream| {
        greeting(&stream);
        let _ = stream.write_all(b"H 1 durable 40\n");
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        (0..3).for_each(|_| drop(lines.next()));
        let _ = stream.write_all(b"N 42 syntax\nA 43\n");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let told = Told::default();
    let tell = told.listener();
    let client = server.client().on_event(move |event| {
        tell(event);
        panic!("of a test");
    });
    let client = client.start().unwrap();
    let numbers: Vec<_> = (0..3).map(|_| client.send("{").unwrap().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3]);
    client.flush(PATIENCE).unwrap();
    assert_eq!(told.wait_for("Rejected"), "Rejected { line: 2, reason: \"syntax\" }");
    let stats = client.stats();
    assert_eq!((stats.rejected_lines, stats.acknowledged_lines, stats.failures), (1, 3, 0));
    assert!(stats.is_connected);
}

#[test]
fn a_client_that_is_dropped_closes_its_connection_also_while_the_daemon_does_not_read() {
    let (sender, ended) = std::sync::mpsc::channel();
    let (dropped, is_dropped) = std::sync::mpsc::channel();
    let is_dropped = Mutex::new(is_dropped);
    let server = Server::new(move |_, mut stream| {
        greeting(&stream);
        let _ = stream.write_all(b"H 1 durable 0\n");
        let _ = is_dropped.lock().unwrap().recv_timeout(PATIENCE);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
        sender.send(()).unwrap();
    });
    let client = server.client().memory(32 << 20).start().unwrap();
    wait_until("it is connected", || client.stats().is_connected);
    let line = "1".repeat(1 << 20);
    for _ in 0..20 {
        client.send(&line).unwrap();
    }
    let begin = Instant::now();
    drop(client);
    assert!(begin.elapsed() < Duration::from_millis(400), "{:?}", begin.elapsed());
    dropped.send(()).unwrap();
    ended.recv_timeout(PATIENCE).unwrap();
    assert_eq!(server.count(), 1);
}
