//! Accepts that fail, on a simulated machine, and a ring that was shut down.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use ringwise::{
    Builder, Ring,
    net::TcpStream,
    sim::{Fault, Simulation, When},
};

use crate::{LONG, everywhere, listen};

/// Asks, and tells whether an answer came. The machine may end the connection before it is accepted.
async fn is_served(ring: &Ring, address: SocketAddr) -> bool {
    let stream = TcpStream::connect(ring, address).await.unwrap();
    let request = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    if stream.send_all(request).await.0.is_err() {
        return false;
    }
    let mut received: Vec<u8> = Vec::new();
    loop {
        match stream.recv(vec![0; 1000]).await.into_result() {
            Ok((0, _)) => return received.ends_with(b"served"),
            Ok((count, bytes)) => received.extend_from_slice(&bytes[..count]),
            Err(_) => return false,
        }
    }
}

#[tokio::test]
async fn a_server_outlives_accepts_that_fail() {
    let machine = Simulation::builder(1)
        .fault(Fault::NoDescriptors, When::nth(3))
        .fault(Fault::ConnectionAborted, When::rate(0.3))
        .build();
    let builder = Builder::default().simulation(&machine);
    let router = Router::new().route("/", get(|| async { "served" }));
    let listener = listen(builder);
    let ring = listener.get_ref().ring().clone();
    let address = listener.get_ref().local_address().unwrap();
    let server = tokio::spawn(async { axum::serve(listener, router).await });
    for _ in 0..20 {
        let served = async { while !is_served(&ring, address).await {} };
        tokio::time::timeout(LONG, served).await.expect("it hangs");
    }
    server.abort();
    let _ = server.await;
}

/// The listener asked again and again, without a pause, while accepts were forbidden.
#[tokio::test]
async fn a_server_rests_while_accepts_are_forbidden() {
    let machine = Simulation::builder(1).fault(Fault::Forbidden, When::always()).build();
    let router = Router::new().route("/", get(|| async { "served" }));
    let listener = listen(Builder::default().simulation(&machine));
    let ring = listener.get_ref().ring().clone();
    let address = listener.get_ref().local_address().unwrap();
    let server = tokio::spawn(async { axum::serve(listener, router).await });
    let served = tokio::spawn(async move { is_served(&ring, address).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let refused = machine.trace().lines().filter(|line| line.contains("Forbidden")).count();
    assert!((1..4).contains(&refused), "{refused} accepts were refused in less than a second");
    machine.heal();
    assert!(tokio::time::timeout(LONG, served).await.expect("it hangs").unwrap());
    server.abort();
    let _ = server.await;
}

#[test]
fn a_server_ends_although_its_ring_was_shut_down() {
    everywhere(|builder| async move {
        let router = Router::new().route("/", get(|| async { "served" }));
        let listener = listen(builder);
        let ring = listener.get_ref().ring().clone();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let server = axum::serve(listener, router).with_graceful_shutdown(async {
            let _ = ended.await;
        });
        let server = tokio::spawn(async { server.await });
        ring.shutdown(Duration::from_secs(10)).await.unwrap();
        end.send(()).unwrap();
        tokio::time::timeout(LONG, server).await.expect("it hangs").unwrap().unwrap();
    });
}
