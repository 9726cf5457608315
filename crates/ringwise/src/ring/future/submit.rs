//! Submits operations, alone or together.

use std::{future::Future, task::Waker, time::Duration};

use crate::{
    error::Error,
    op::{Opcode, Operation},
    ring::{Pending, Ring, Timer, hub::order::Together},
};

impl Ring {
    /// Returns an operation as a future of its completion. It does nothing until it is polled.
    ///
    /// Operations with several completions or none ([`Operation::accept_multi`], [`Operation::recv_multi`],
    /// [`Operation::send_quiet`]) fail with [`Unsupported`](crate::ErrorKind::Unsupported).
    /// [`net::TcpListener::accept_multi`](crate::net::TcpListener::accept_multi) and
    /// [`net::TcpStream::recv_multi`](crate::net::TcpStream::recv_multi) do what the first two do.
    pub fn submit(&self, operation: Operation) -> Pending {
        Pending::new(self.clone(), operation)
    }

    /// Submits many operations together, with one lock, at most one wake-up, and one syscall for as
    /// many as the queue holds. They are submitted before their futures are polled, unlike those of
    /// [`submit`](Self::submit).
    ///
    /// # Examples
    ///
    /// ```
    /// use ringwise::{Descriptor, Operation, Ring};
    ///
    /// # futures::executor::block_on(async {
    /// let ring = Ring::new()?;
    /// let file = Descriptor::from(std::fs::File::open("/dev/zero")?);
    /// let reads = (0..32).map(|at| Operation::read_at(&file, vec![1; 512], at * 512));
    /// for read in ring.submit_all(reads) {
    ///     assert_eq!(read.await.result()?, 512);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn submit_all(&self, operations: impl IntoIterator<Item = Operation>) -> Vec<Pending> {
        self.submit_together(operations.into_iter().collect(), Together::Batch)
    }

    /// Submits operations as a chain: each starts when the one before it has completed in full.
    /// They are submitted before their futures are polled.
    ///
    /// An operation that fails ends the chain, and so does a short read or write. Later operations do
    /// nothing and fail with [`Cancelled`](crate::ErrorKind::Cancelled).
    /// [`fs::File::chain`](crate::fs::File::chain) completes short writes instead.
    ///
    /// On a ring the kernel goes from one to the next if it can (see
    /// [`Local::push_linked`](crate::Local::push_linked)). A chain may be longer than the queue, and is then
    /// submitted in parts.
    ///
    /// # Cancel safety
    ///
    /// If the future of a read, a receive, an accept, a connect or a timeout is dropped, that operation is
    /// cancelled, and those after it with it. If another future is dropped, its operation still runs.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringwise::{Descriptor, Operation, Ring};
    ///
    /// # futures::executor::block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let ring = Ring::new()?;
    /// let file = Descriptor::from(std::fs::File::create(&path)?);
    /// let write = Operation::write_at(&file, b"a record".to_vec(), 0);
    /// for done in ring.submit_linked([write, Operation::sync_data(&file)]) {
    ///     done.await.result()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn submit_linked(&self, operations: impl IntoIterator<Item = Operation>) -> Vec<Pending> {
        self.submit_together(operations.into_iter().collect(), Together::Chain)
    }

    fn submit_together(&self, operations: Vec<Operation>, together: Together) -> Vec<Pending> {
        if self.is_foreign() {
            return operations.into_iter().map(|operation| self.submit(operation)).collect();
        }
        let future = |operation| Pending::of(self.clone(), operation);
        let futures: Vec<Pending> = operations.iter().map(future).collect();
        match self.hub().submit_all(operations, together, Waker::noop()) {
            Ok((keys, next)) => {
                let futures = futures.into_iter().zip(keys);
                let futures = futures.map(|(future, key)| future.submitted(key)).collect();
                self.follow(next);
                futures
            }
            // Each is refused when it is polled.
            Err(operations) => {
                let futures = futures.into_iter().zip(operations);
                futures.map(|(future, operation)| future.with(operation)).collect()
            }
        }
    }

    /// Limits the time of any future of this ring, from its first poll on. When the time is over,
    /// the future is dropped.
    ///
    /// A buffer in the future is then lost. [`Pending::deadline`], the deadlines of chains and
    /// streams, and [`File::with_deadline`](crate::fs::File::with_deadline) give the buffer back.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](crate::ErrorKind::TimedOut) if the time is over first.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use ringwise::{ErrorKind, Ring, net::{ListenOptions, TcpListener}};
    ///
    /// # futures::executor::block_on(async {
    /// let ring = Ring::new()?;
    /// let any = "127.0.0.1:0".parse()?;
    /// let listener = TcpListener::bind(&ring, &any, &ListenOptions::default())?;
    /// let nobody = ring.within(Duration::from_millis(10), listener.accept()).await;
    /// assert_eq!(nobody.unwrap_err().kind(), ErrorKind::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn within<F: Future>(&self, after: Duration, future: F) -> Result<F::Output, Error> {
        Timer::new(self, Some(after)).limit(Opcode::Timeout, future).await
    }
}
