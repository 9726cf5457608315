//! HTTP over a ring's sockets: hyper runs over `net::Buffered` as over any stream.
//!
//! A server with one answer: `cargo run --example http_hello --features tokio [HOST:PORT]`.

use std::{convert::Infallible, error::Error, net::SocketAddr, time::Duration};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use ringwise::{
    AcceptFailure, Ring,
    net::{Buffered, ListenOptions, TcpListener},
};

/// Greets, or sends back the body of a POST.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = if request.method() == hyper::Method::POST {
        request.into_body().collect().await?.to_bytes()
    } else {
        Bytes::from(format!("hello, {}\n", request.uri().path()))
    };
    Ok(Response::new(Full::new(body)))
}

/// Serves connections until the listener fails.
pub async fn serve(listener: TcpListener) -> Result<Infallible, ringwise::Error> {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _address)) => stream,
            Err(error) => match error.accept_failure() {
                AcceptFailure::Connection => continue,
                // Some connections may end meanwhile.
                AcceptFailure::Exhausted => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                _ => return Err(error),
            },
        };
        // Of a connection that has gone by now the answer will say so.
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let stream = TokioIo::new(Buffered::new(stream));
            let served = http1::Builder::new().serve_connection(stream, service_fn(answer)).await;
            if let Err(error) = served {
                eprintln!("a connection: {error}");
            }
        });
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let address: SocketAddr = address.parse()?;
    let ring = Ring::new()?;
    let listener = TcpListener::bind(&ring, &address, &ListenOptions::default())?;
    let backend = ring.setup().backend();
    println!("http://{} on {backend}", listener.local_address()?);
    match serve(listener).await? {}
}
