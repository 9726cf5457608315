//! Serves the files of a directory: axum over tokio's sockets, files read through a ring.
//!
//! ```text
//! cargo run --release -p ringwise-axum --example files -- DIRECTORY [HOST:PORT]
//! ```

use std::path::{Component, Path, PathBuf};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path as UrlPath, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use futures_util::stream::try_unfold;
use ringwise::{BufResult, ErrorKind, OpenOptions, Ring, fs::File};

/// What is read at a time, in bytes.
pub const CHUNK: usize = 256 << 10;

/// A directory, and the ring that reads its files.
#[derive(Clone)]
pub struct Site {
    /// Reads the files.
    pub ring: Ring,
    /// Where they are.
    pub directory: PathBuf,
}

/// A router that answers with the file of the name that was asked for.
pub fn router(site: Site) -> Router {
    Router::new().route("/{*name}", get(answer)).with_state(site)
}

async fn answer(State(site): State<Site>, UrlPath(name): UrlPath<String>) -> Response {
    // Neither `..` nor an absolute path leads out of the directory.
    if !Path::new(&name).components().all(|part| matches!(part, Component::Normal(_))) {
        return StatusCode::NOT_FOUND.into_response();
    }
    match open(&site, &name).await {
        Ok((file, len)) => ([(header::CONTENT_LENGTH, len)], body(file, len)).into_response(),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::InvalidInput => StatusCode::NOT_FOUND.into_response(),
            _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        },
    }
}

/// Opens a file and returns it with its length. A directory, a FIFO or a device is refused.
async fn open(site: &Site, name: &str) -> Result<(File, u64), ringwise::Error> {
    let options = OpenOptions::new().read(true);
    let file = File::open_regular(&site.ring, site.directory.join(name), options).await?;
    let len = file.metadata().await?.len();
    Ok((file, len))
}

/// Returns the first `len` bytes of a file. Each chunk is read when the connection has taken the one before.
fn body(file: File, len: u64) -> Body {
    Body::from_stream(try_unfold((file, 0), move |(file, offset)| async move {
        if offset == len {
            return Ok(None);
        }
        let room = (len - offset).min(CHUNK as u64) as usize;
        let BufResult(result, bytes) = file.read_at(Vec::with_capacity(room), offset).await;
        match result? {
            // The file was truncated meanwhile. The client sees that bytes are missing.
            0 => Ok::<_, ringwise::Error>(None),
            count => Ok(Some((Bytes::from(bytes), (file, offset + count as u64)))),
        }
    }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: files DIRECTORY [HOST:PORT]")?.into();
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, router(Site { ring: Ring::new()?, directory })).await?;
    Ok(())
}
