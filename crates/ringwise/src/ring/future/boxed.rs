//! The type of the futures that a value keeps between two polls, in one place.

use std::pin::Pin;

/// A future that owns everything it uses.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
