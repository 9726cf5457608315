//! Two servers to compare with, as most Rust programs would write them: a thread for each
//! connection, and a task of tokio for each. The lab runs itself as these.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use crate::error::{LabError, plain};

/// The buffer of each connection.
const BUFFER_BYTES: usize = 16 << 10;
/// A thread that echoes needs little.
const STACK_BYTES: usize = 64 << 10;

/// Serves until standard input ends, so that no server outlives the lab.
pub(crate) fn serve(name: &str, out: &mut dyn Write) -> Result<(), LabError> {
    let failed = |error: io::Error| LabError::Failed(format!("{name}: {}", plain(&error)));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let serve: fn(TcpListener) -> io::Result<()> = match name {
        "blocking" => blocking,
        "tokio" => tokio_tasks,
        _ => {
            return Err(LabError::Usage(format!(
                "--child-server {name}: expected blocking, tokio"
            )));
        }
    };
    thread::spawn(move || serve(listener));
    writeln!(out, "listening on {address}")
        .and_then(|()| out.flush())
        .map_err(|error| LabError::output(&error))?;
    io::copy(&mut io::stdin(), &mut io::sink()).map_err(failed)?;
    Ok(())
}

fn blocking(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        let connection = thread::Builder::new().stack_size(STACK_BYTES);
        // A connection that gets no thread, or fails, is closed; the others go on.
        let _ = connection.spawn(move || echo(&stream));
    }
}

fn echo(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count])?,
        }
    }
}

fn tokio_tasks(listener: TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            runtime.spawn(echo_task(stream));
        }
    })
}

async fn echo_task(mut stream: tokio::net::TcpStream) -> io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count]).await?,
        }
    }
}
