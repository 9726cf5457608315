//! The server of files of the how-to page.

use axum::serve;
use ringwise::{BackendChoice, Builder, Ring};

use crate::{answer, ask, blocking, connect, files, pattern};

#[tokio::test(flavor = "multi_thread")]
async fn files_are_served_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::create_dir(inner.join("deep")).unwrap();
    std::fs::write(directory.path().join("secret"), "secret").unwrap();
    std::fs::write(inner.join("empty"), "").unwrap();
    // Several chunks, and a part of one.
    let large = pattern(0, 4 * files::CHUNK + 7);
    std::fs::write(inner.join("deep/large"), &large).unwrap();
    let site = files::Site { ring: Ring::new().unwrap(), directory: inner };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async { serve(listener, files::router(site)).await });
    let get = |path: &'static str| {
        blocking(move || {
            let mut stream = connect(address);
            ask(&mut stream, path);
            answer(&mut stream)
        })
    };
    let (head, body) = get("/deep/large").await;
    assert!(head.contains("content-length: 1048583"), "{head}");
    assert!(body == large);
    let (head, body) = get("/empty").await;
    assert!(head.starts_with("HTTP/1.1 200") && body.is_empty(), "{head}");
    for path in [
        "/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/%2Fetc%2Fpasswd",
        "/missing",
        "/deep",
        "/a%00b",
    ] {
        let (head, body) = get(path).await;
        assert!(head.starts_with("HTTP/1.1 404"), "{path}: {head}");
        assert!(body.is_empty(), "{path}");
    }
    server.abort();
    let _ = server.await;
}

/// The answer waited for a writer. A ring does so too, if the kernel does not have the name in memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_fifo_is_not_found() {
    let directory = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("mkfifo").arg(directory.path().join("fifo")).status();
    assert!(made.unwrap().success());
    let ring = Builder::default().backend(BackendChoice::Classic).build_ring().unwrap();
    let site = files::Site { ring, directory: directory.path().to_owned() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async { serve(listener, files::router(site)).await });
    let head = blocking(move || {
        let mut stream = connect(address);
        ask(&mut stream, "/fifo");
        answer(&mut stream).0
    });
    let head = tokio::time::timeout(std::time::Duration::from_secs(10), head).await;
    if head.is_err() {
        // Ends the open, and with it the test.
        let _ = std::fs::OpenOptions::new().write(true).open(directory.path().join("fifo"));
    }
    assert!(head.expect("nobody waits").starts_with("HTTP/1.1 404"));
    server.abort();
    let _ = server.await;
}
