//! TLS over a ring's sockets: `tokio-rustls` runs over `net::Buffered` as over any stream.
//!
//! A server that sends back what it is sent, and a client that checks each byte, with a certificate
//! that is made for the occasion: `cargo run --example tls_echo --features tokio`.

use std::{error::Error, io, net::SocketAddr, sync::Arc, time::Duration};

use ringwise::{
    AcceptFailure, Ring,
    net::{Buffered, ListenOptions, TcpListener, TcpStream},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        pki_types::{PrivateKeyDer, ServerName},
    },
};

/// Both sides of a certificate that is valid for `localhost` and that nobody else knows.
pub fn make_certificate() -> Result<(TlsAcceptor, TlsConnector), Box<dyn Error + Send + Sync>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let mut trusted = RootCertStore::empty();
    trusted.add(certificate.clone())?;
    let server =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?;
    let client = ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth();
    Ok((TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client))))
}

/// Serves connections until the listener fails.
pub async fn serve(listener: TcpListener, acceptor: TlsAcceptor) -> ringwise::Error {
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
                _ => return error,
            },
        };
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            if let Err(error) = echo(stream, acceptor).await {
                eprintln!("a connection: {error}");
            }
        });
    }
}

async fn echo(stream: TcpStream, acceptor: TlsAcceptor) -> io::Result<()> {
    let mut stream = acceptor.accept(Buffered::new(stream)).await?;
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return stream.shutdown().await;
        }
        stream.write_all(&buffer[..count]).await?;
        stream.flush().await?;
    }
}

/// Sends `bytes`, and gives what came back until the server said that it was all.
pub async fn ask(
    ring: &Ring,
    server: SocketAddr,
    connector: &TlsConnector,
    bytes: &[u8],
) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let stream = Buffered::new(TcpStream::connect(ring, server).await?);
    let stream = connector.connect(ServerName::try_from("localhost")?, stream).await?;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut answer = Vec::with_capacity(bytes.len());
    // Both at once: of a long text the server sends the first part while the last is under way.
    let send = async {
        writer.write_all(bytes).await?;
        writer.shutdown().await
    };
    let (sent, received) = tokio::join!(send, reader.read_to_end(&mut answer));
    sent?;
    received?;
    Ok(answer)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let ring = Ring::new()?;
    let (acceptor, connector) = make_certificate()?;
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = TcpListener::bind(&ring, &any, &ListenOptions::default())?;
    let address = listener.local_address()?;
    tokio::spawn(serve(listener, acceptor));
    let question = b"is anybody there?";
    let answer = ask(&ring, address, &connector, question).await?;
    println!("{address} on {}: {}", ring.setup().backend(), String::from_utf8_lossy(&answer));
    assert_eq!(answer, question);
    Ok(())
}
