//! The servers of the examples, where the kernel fails to accept: each goes on.

use std::{net::SocketAddr, time::Duration};

use ringwise::{
    AcceptFailure, Local, Ring,
    net::{TcpListener, TcpStream},
    sim::{Fault, Simulation, When},
};
use tokio::time::timeout;

use super::{echo_server, http_hello, listen, tls_echo};

const CLIENTS: usize = 20;
const LONG: Duration = Duration::from_secs(30);

/// The kernel is short of memory, or of descriptors, or a connection ends in its queue.
fn scarce(faults: &[Fault]) -> Ring {
    let mut machine = Simulation::builder(1);
    for fault in faults {
        machine = machine.fault(*fault, When::rate(0.2));
    }
    Local::builder().entries(64).simulation(&machine.build()).build_ring().unwrap()
}

/// Asks one after the other; who finds the connection gone asks again.
async fn is_served(ring: &Ring, address: SocketAddr, ask: &[u8]) {
    for number in 0..CLIENTS {
        let served = async {
            loop {
                let stream = TcpStream::connect(ring, address).await.unwrap();
                if stream.send_all(ask.to_vec()).await.0.is_err() {
                    continue;
                }
                match stream.recv(Vec::with_capacity(100)).await.0 {
                    Ok(count) if count > 0 => break,
                    _ => {}
                }
            }
        };
        timeout(LONG, served).await.unwrap_or_else(|_| panic!("client {number} was not served"));
    }
}

async fn outlives<S: Future>(
    faults: &[Fault],
    ask: &[u8],
    serve: impl FnOnce(Ring, TcpListener) -> S,
) {
    let ring = scarce(faults);
    let (listener, address) = listen(&ring);
    tokio::select! {
        _ = serve(ring.clone(), listener) => panic!("the server ended"),
        () = is_served(&ring, address, ask) => {}
    }
}

#[tokio::test]
async fn servers_outlive_a_kernel_that_cannot_accept() {
    // An accept that goes on waits for a descriptor to close where there are none.
    let lasting =
        [Fault::NoMemory, Fault::NoSocketMemory, Fault::Forbidden, Fault::ConnectionAborted];
    outlives(&lasting, b"hello", |ring, listener| async move {
        let group = ring.buffer_group(8, 1000).await.unwrap();
        echo_server::serve(listener, group).await
    })
    .await;
    let each = [&lasting[..], &[Fault::NoDescriptors, Fault::NoFiles]].concat();
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    outlives(&each, request, |_, listener| http_hello::serve(listener)).await;
    // What is no greeting of TLS is answered with an alert.
    let (acceptor, _) = tls_echo::make_certificate().unwrap();
    outlives(&each, b"no TLS at all", |_, listener| tls_echo::serve(listener, acceptor)).await;
}

/// It was asked for the next connection again and again, by a whole processor, while a rule of the machine forbade all
/// (seccomp(2) on classic syscalls).
#[tokio::test]
async fn an_accept_that_is_forbidden_is_told() {
    let machine = Simulation::builder(1).fault(Fault::Forbidden, When::always()).build();
    let ring = Local::builder().simulation(&machine).build_ring().unwrap();
    let (listener, address) = listen(&ring);
    let _client = TcpStream::connect(&ring, address).await.unwrap();
    let single = timeout(LONG, listener.accept()).await.expect("it hangs").unwrap_err();
    let lasting = timeout(LONG, listener.accept_multi(1).next()).await.expect("it hangs");
    for error in [single, lasting.unwrap_err()] {
        assert_eq!(error.errno(), libc::EPERM);
        assert_eq!(error.accept_failure(), AcceptFailure::Exhausted);
    }
    machine.heal();
    assert!(listener.accept().await.is_ok());
}
