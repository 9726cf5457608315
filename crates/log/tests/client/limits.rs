//! Limits: of memory, of a line, and settings that cannot be.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};

use ringwise_log::{AtLimit, Client, LineError, SendError, SetupError};

use super::server::{ClosedPort, PATIENCE, Server, acknowledge, wait_until};

/// Room for 20 lines of 100 bytes, each of which costs 105.
const MEMORY: usize = 2100;

#[test]
fn at_the_limit_lines_are_refused_or_dropped_and_counted() {
    for at_limit in [AtLimit::Refuse, AtLimit::Drop] {
        let port = ClosedPort::new();
        let client = port.client().line_max(200).memory(MEMORY).at_limit(at_limit);
        let client = client.start().unwrap();
        let sent: Vec<_> = (0..30).map(|_| client.send("1".repeat(100))).collect();
        assert!(sent[..20].iter().all(|sent| matches!(sent, Ok(Some(_)))));
        for beyond in &sent[20..] {
            match at_limit {
                AtLimit::Drop => assert!(matches!(beyond, Ok(None))),
                _ => assert!(matches!(beyond, Err(SendError::Full))),
            }
        }
        let stats = client.stats();
        assert_eq!((stats.accepted_lines, stats.dropped_lines), (20, 10));
        assert_eq!((stats.waiting_lines, stats.waiting_bytes), (20, MEMORY as u64));
        let error = client.close(Duration::ZERO).unwrap_err();
        assert_eq!(error.lines, 20);
        assert_eq!(client.stats().waiting_lines, 20, "what was lost is still told");
    }
}

#[test]
fn at_the_limit_threads_and_tasks_wait_for_room() {
    let port = ClosedPort::new();
    let client = port.client().line_max(200).memory(MEMORY).start().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let send_all = {
        let (client, sent) = (client.clone(), sent.clone());
        move || {
            for _ in 0..100 {
                client.send("1".repeat(100)).unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let threads = [thread::spawn(send_all.clone()), thread::spawn(send_all)];
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (client, sent) = (client.clone(), sent.clone());
            runtime.spawn(async move {
                for _ in 0..100 {
                    client.send_async("1".repeat(100)).await.unwrap();
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                client.flush_async().await.unwrap();
            })
        })
        .collect();
    wait_until("it is full", || client.stats().waiting_lines == 20);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(sent.load(Ordering::Relaxed), 20);
    // A task that gives up has sent nothing.
    runtime.block_on(async {
        let late = client.send_async("1".repeat(100));
        assert!(tokio::time::timeout(Duration::from_millis(20), late).await.is_err());
        let flushed = tokio::time::timeout(Duration::from_millis(20), client.flush_async()).await;
        assert!(flushed.is_err());
    });
    let (sender, received) = std::sync::mpsc::channel();
    let _server = Server::on(port.open(), move |_, stream| {
        sender.send(acknowledge(stream, 0).len()).unwrap();
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
        client.close_async().await.unwrap();
    });
    assert_eq!(received.recv_timeout(PATIENCE).unwrap(), 600);
    assert_eq!(client.stats().dropped_lines, 0);
}

/// A daemon that is away makes no progress, so nothing else would remove the wakers.
#[test]
fn a_future_that_is_dropped_leaves_no_waker_behind() {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let port = ClosedPort::new();
    let client = port.client().line_max(200).memory(MEMORY).start().unwrap();
    for _ in 0..20 {
        client.send("1".repeat(100)).unwrap();
    }
    let tasks = [Arc::new(Task), Arc::new(Task)];
    let wakers = tasks.each_ref().map(|task| Waker::from(task.clone()));
    for _ in 0..100 {
        let mut late = pin!(client.send_async("1".repeat(100)));
        let mut flushed = pin!(client.flush_async());
        // The futures move from one task to the other.
        for waker in &wakers {
            let mut context = Context::from_waker(waker);
            assert!(late.as_mut().poll(&mut context).is_pending());
            assert!(flushed.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(tasks.each_ref().map(Arc::strong_count), [2, 4]);
    }
    assert_eq!(tasks.each_ref().map(Arc::strong_count), [2, 2]);
}

#[test]
fn lines_that_are_none_are_refused_and_counted() {
    let port = ClosedPort::new();
    let client = port.client().line_max(10).start().unwrap();
    for line in [&b""[..], b"1\n", b"1\r", b"\xff", b"12345678901"] {
        assert!(matches!(client.send(line), Err(SendError::Line(_))), "{line:?}");
    }
    let error = client.send("12345678901").unwrap_err();
    let expected = LineError::TooLong { bytes: 11, limit: 10 };
    assert!(matches!(&error, SendError::Line(line) if *line == expected), "{error}");
    assert_eq!(error.to_string(), "the line has 11 bytes, and may have 10: raise line_max");
    client.send_json(&serde_json::json!({"a\n": 1})).unwrap();
    assert_eq!((client.stats().invalid_lines, client.stats().waiting_lines), (6, 1));
}

#[test]
fn settings_that_cannot_be_are_errors_at_the_start() {
    for (builder, name) in [
        (Client::builder("localhost"), "address"),
        (Client::builder("a:1").name(""), "name"),
        (Client::builder("a:1").name("a b"), "name"),
        (Client::builder("a:1").name("a".repeat(65)), "name"),
        (Client::builder("a:1").token("a\nb"), "token"),
        (Client::builder("a:1").memory(1000), "memory"),
        (Client::builder("a:1").line_max(0), "line_max"),
        (Client::builder("a:1").line_max(usize::MAX), "line_max"),
    ] {
        let error = builder.start().unwrap_err();
        assert!(matches!(&error, SetupError::Setting(told, _) if *told == name), "{error}");
    }
    #[cfg(feature = "spool")]
    {
        let spool = ringwise_log::Spool::new("unused").limit(1000);
        let error = Client::builder("a:1").spool(spool).start().unwrap_err();
        assert!(error.to_string().starts_with("limit: 1000: expected at least"), "{error}");
    }
}
