//! Bodies of every size, there and back, by a client on tokio's sockets.

use std::net::SocketAddr;

use axum::{
    Router,
    body::Bytes,
    extract::{ConnectInfo, DefaultBodyLimit, Path},
    routing::{get, post},
    serve::ListenerExt,
};
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use ringwise_axum::PeerAddress;

use crate::{answer, ask, blocking, connect, everywhere, listen, pattern, serve};

/// Below and above what hyper, a stream's buffers and a socket hold.
const SIZES: [usize; 9] =
    [0, 1, 1000, 8 << 10, (17 << 10) - 1, (17 << 10) + 1, 64 << 10, 1 << 20, 5 << 20];

async fn download(Path(size): Path<usize>) -> Vec<u8> {
    pattern(size, size)
}

/// Sends back the length, and whether it is the pattern.
async fn upload(body: Bytes) -> String {
    format!("{} {}", body.len(), body == pattern(body.len(), body.len()))
}

async fn call(
    sender: &mut http1::SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Bytes {
    // The connection's task may not have seen yet that the last answer is whole.
    sender.ready().await.unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.into_body().collect().await.unwrap().to_bytes()
}

#[test]
fn bodies_of_every_size_arrive() {
    everywhere(|builder| async move {
        let router = Router::new()
            .route("/{size}", get(download))
            .route("/", post(upload))
            .layer(DefaultBodyLimit::disable());
        let server = serve(builder, router);
        let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        // One connection for all of them.
        for size in SIZES {
            let request = Request::get(format!("/{size}")).header("host", "localhost");
            let request = request.body(Full::default()).unwrap();
            assert!(call(&mut sender, request).await == pattern(size, size), "{size} bytes");

            let body = Full::from(pattern(size, size));
            let request = Request::post("/").header("host", "localhost").body(body).unwrap();
            assert_eq!(call(&mut sender, request).await, format!("{size} true"));
        }
        drop(sender);
        connection.await.unwrap().unwrap();
        server.end().await;
    });
}

#[test]
fn many_connections_at_a_time() {
    everywhere(|builder| async move {
        const CONNECTIONS: usize = 100;
        let server = serve(builder, Router::new().route("/{size}", get(download)));
        let address = server.address;
        let clients = (0..CONNECTIONS).map(|number| {
            tokio::spawn(async move {
                let stream = tokio::net::TcpStream::connect(address).await.unwrap();
                let (mut sender, connection) =
                    http1::handshake(TokioIo::new(stream)).await.unwrap();
                tokio::spawn(connection);
                for round in 0..5 {
                    let size = number * 300 + round;
                    let request = Request::get(format!("/{size}")).header("host", "localhost");
                    let request = request.body(Full::default()).unwrap();
                    assert!(call(&mut sender, request).await == pattern(size, size));
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
        server.end().await;
    });
}

#[test]
fn a_handler_learns_the_address_of_its_client() {
    everywhere(|builder| async move {
        let tell = |ConnectInfo(PeerAddress(address)): ConnectInfo<PeerAddress>| async move {
            address.to_string()
        };
        let router = Router::new().route("/", get(tell));
        // As many servers have it: with an option of each connection's socket.
        let listener = listen(builder).tap_io(|stream| stream.get_ref().set_nodelay(true).unwrap());
        let address = axum::serve::Listener::local_addr(&listener).unwrap();
        let service = router.into_make_service_with_connect_info::<PeerAddress>();
        let server = tokio::spawn(async { axum::serve(listener, service).await });
        let (told, own) = blocking(move || {
            let mut stream = connect(address);
            ask(&mut stream, "/");
            (answer(&mut stream).1, stream.local_addr().unwrap())
        })
        .await;
        let told: SocketAddr = String::from_utf8(told).unwrap().parse().unwrap();
        assert_eq!(told, own);
        server.abort();
        let _ = server.await;
    });
}
