//! The layer for `tracing`: its lines, what it drops, and events of the client's own threads.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use ringwise_log::{Client, Layer};
use serde_json::{Value, json};
use tracing_subscriber::prelude::*;

use super::server::{ClosedPort, PATIENCE, Server, acknowledge, wait_until};

/// Its text is made by somebody who logs too.
struct Chatty;

impl std::fmt::Debug for Chatty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        tracing::error!("within an event");
        f.write_str("chatty \"text\"\n")
    }
}

#[test]
fn an_event_is_a_line_of_json_with_its_spans() {
    let (sender, received) = mpsc::channel();
    let server = Server::new(move |_, stream| sender.send(acknowledge(stream, 0)).unwrap());
    let client = server.client().start().unwrap();
    let subscriber = tracing_subscriber::registry().with(Layer::new(client.clone()));
    tracing::subscriber::with_default(subscriber, || {
        let outer = tracing::info_span!("outer", a = 1, late = tracing::field::Empty);
        let _outer = outer.enter();
        outer.record("late", "now");
        let _inner = tracing::debug_span!("inner").entered();
        let error: &(dyn std::error::Error + 'static) = &std::fmt::Error;
        tracing::warn!(target: "a::b", x = 1.5, y = f64::NAN, z = true, w = u64::MAX, v = -1_i64,
            error, chatty = ?Chatty, "it \u{1} is {}\n", "so");
    });
    client.close(PATIENCE).unwrap();
    let lines = received.recv_timeout(PATIENCE).unwrap();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let mut line: Value = serde_json::from_str(&lines[0]).unwrap();
    let time = line["timestamp"].take();
    let time = time.as_str().unwrap();
    assert!(time.len() == 27 && time.ends_with('Z') && &time[10..11] == "T", "{time}");
    let expected = json!({
        "timestamp": null,
        "level": "WARN",
        "target": "a::b",
        "fields": {
            "message": "it \u{1} is so\n", "x": 1.5, "y": "NaN", "z": true, "w": u64::MAX, "v": -1,
            "error": std::fmt::Error.to_string(), "chatty": "chatty \"text\"\n",
        },
        "spans": [
            {"name": "outer", "fields": {"a": 1, "late": "now"}},
            {"name": "inner", "fields": {}},
        ],
    });
    assert_eq!(line, expected);
}

#[test]
fn what_there_is_no_room_for_is_dropped_and_counted_in_time() {
    let port = ClosedPort::new();
    let client = port.client().line_max(1000).memory(5000).start().unwrap();
    let layer = Layer::new(client.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..100 {
            tracing::info!("a line");
        }
        tracing::info!("{}", "too long".repeat(200));
    });
    let stats = client.stats();
    assert_eq!(stats.accepted_lines + stats.dropped_lines, 100);
    assert!(stats.accepted_lines > 20 && stats.dropped_lines > 20, "{stats:?}");
    assert_eq!(stats.invalid_lines, 1);
    // It waits no longer than it may.
    let layer = Layer::new(client.clone()).patience(Duration::from_millis(100));
    let begin = Instant::now();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        tracing::info!("{}", "x".repeat(500));
    });
    assert!(begin.elapsed() >= Duration::from_millis(100) && begin.elapsed() < PATIENCE / 2);
    assert_eq!(client.stats().dropped_lines, stats.dropped_lines + 1);
    // Nor does it lose silently what comes after the end.
    assert!(client.close(Duration::ZERO).is_err());
    let layer = Layer::new(client.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        tracing::info!("late");
    });
    assert_eq!(client.stats().dropped_lines, stats.dropped_lines + 2);
}

/// Each lost connection would make a line, which would make another one when it is lost, and so on.
#[test]
fn events_of_the_clients_own_threads_are_not_sent() {
    let server = Server::new(|_, _| {});
    let (sender, told) = mpsc::channel();
    let dispatch: std::sync::Arc<std::sync::OnceLock<tracing::Dispatch>> = Default::default();
    let shared = dispatch.clone();
    let client: Client = server
        .client()
        .on_event(move |event| {
            if let Some(dispatch) = shared.get() {
                tracing::dispatcher::with_default(dispatch, || tracing::error!(?event, "the log"));
                let _ = sender.send(());
            }
        })
        .start()
        .unwrap();
    let subscriber = tracing_subscriber::registry().with(Layer::new(client.clone()));
    dispatch.set(tracing::Dispatch::new(subscriber)).unwrap();
    for _ in 0..3 {
        told.recv_timeout(PATIENCE).unwrap();
    }
    assert_eq!(client.stats().accepted_lines, 0);
    tracing::dispatcher::with_default(dispatch.get().unwrap(), || tracing::error!("the program"));
    wait_until("it is taken", || client.stats().accepted_lines == 1);
}
