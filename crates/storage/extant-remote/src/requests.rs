//! Requests of devices and to stores: the check of their ranges, the runtime that runs them, and further attempts.

use std::io;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Makes the runtime of a store's client.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

/// Returns the time after which requests to a server fail, if the variable `EXTANT_IO_TIMEOUT` has one.
///
/// # Errors
/// The variable has another text.
pub fn io_timeout() -> io::Result<Option<Duration>> {
    let text = std::env::var_os("EXTANT_IO_TIMEOUT").filter(|text| !text.is_empty());
    text.map(|text| extant_nbd::Options::parse_io_timeout(&text.to_string_lossy()))
        .transpose()
}

/// Attempts of a request that ends without an answer, besides those that the store's client makes.
pub const ATTEMPTS: u32 = 4;
/// Time before the first of these attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns whether the connection was lost while the body of an answer was read. The store's client repeats all earlier failures
/// itself, and its error then describes the attempts.
fn ended_early(error: &object_store::Error) -> bool {
    let object_store::Error::Generic { source, .. } = error else {
        return false;
    };
    let first: &(dyn std::error::Error + 'static) = &**source;
    let mut chain = std::iter::successors(Some(first), |error| error.source());
    !source.to_string().contains("Error performing")
        && chain.any(|error| error.is::<object_store::client::HttpError>())
}

/// Repeats a request that ends in the middle of its answer.
pub fn repeat<T>(
    runtime: &Runtime,
    request: impl AsyncFn() -> object_store::Result<T>,
) -> object_store::Result<T> {
    let mut pause = PAUSE;
    for _ in 0..ATTEMPTS {
        match runtime.block_on(request()) {
            Err(error) if ended_early(&error) => std::thread::sleep(pause),
            answered => return answered,
        }
        pause *= 3;
    }
    runtime.block_on(request())
}

/// Checks that a range is within an image of `size` bytes.
pub fn check_range(size: u64, offset: u64, len: u64, what: &str) -> io::Result<()> {
    if offset.checked_add(len).is_some_and(|end| end <= size) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("{what} of {len} bytes at {offset}: past the end of the image"),
    ))
}
