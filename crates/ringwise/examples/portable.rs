//! Reads a file by a ring if the target has one, and by the standard library if not.
//!
//! It compiles on every target: where the library does nothing, its constructors answer `Unsupported`.

use std::{
    future::Future,
    io::Read,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
};

use ringwise::{Builder, ErrorKind, Local, OpenOptions, Operation, Ring, SetupError, fs, net};

/// What the program does with a ring.
async fn read(ring: &Ring) -> Result<usize, ringwise::Error> {
    let file = fs::File::open(ring, "Cargo.toml", OpenOptions::new().read(true)).await?;
    let (count, _buffer) = file.read_at(vec![0; 64], 0).await.into_result()?;
    file.close().await?;
    Ok(count)
}

/// A byte there and back.
async fn echo(ring: &Ring) -> Result<usize, ringwise::Error> {
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = net::TcpListener::bind(ring, &any, &net::ListenOptions::default())?;
    let client = net::TcpStream::connect(ring, listener.local_address()?).await?;
    client.send_all("x").await.into_result()?;
    let (server, _address) = listener.accept().await?;
    Ok(server.recv(vec![0; 1]).await.into_result()?.0)
}

/// The same with one thread's loop.
fn nop(builder: Builder) -> Result<(), Box<dyn std::error::Error>> {
    let mut local: Local = builder.entries(8).build()?;
    local.run(Operation::nop())?.result()?;
    Ok(())
}

/// Runs the program, on a ring or without.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    match Ring::new() {
        Ok(ring) => {
            let read = block_on(read(&ring))?;
            println!(
                "{read} bytes by {}, and {} over TCP",
                ring.setup().backend(),
                block_on(echo(&ring))?
            );
            nop(Local::builder())
        }
        Err(SetupError::Unsupported) => {
            let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
            let refused = net::udp_bind(&any).map(drop).map_err(|error| error.kind());
            assert_eq!(refused, Err(ErrorKind::Unsupported));
            let refused = nop(Local::builder()).map_err(|error| error.to_string());
            println!("{}", refused.unwrap_err());
            let mut bytes = [0; 64];
            let read = std::fs::File::open("Cargo.toml")?.read(&mut bytes)?;
            println!("{read} bytes by the standard library");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Any executor will do; this one needs no crate.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}
