//! The state that all threads of a session share, and the handling of a request, which both transports use.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::answer::Answer;
use crate::decode::{self, Body, Dialect};
use crate::handler::Handler;
use crate::mount::{Connection, MountPoint};
use crate::request::Operation;
use crate::wire::InHeader;

/// State that all threads read, and none writes while the session runs, except on failure.
pub(crate) struct Shared {
    handler: Arc<dyn Handler>,
    dialect: Dialect,
    place: MountPoint,
    failure: Mutex<Option<io::Error>>,
    failed: AtomicBool,
    threads: Arc<Threads>,
}

/// Counter of the session's threads, separate from their shared state: when it is zero, no thread holds the handler.
#[derive(Default)]
struct Threads {
    alive: Mutex<usize>,
    all_gone: Condvar,
}

impl Shared {
    pub(crate) fn new(
        handler: Arc<dyn Handler>,
        dialect: Dialect,
        connection: &Connection,
    ) -> Arc<Self> {
        Arc::new(Self {
            handler,
            dialect,
            place: connection.place().clone(),
            failure: Mutex::new(None),
            failed: AtomicBool::new(false),
            threads: Arc::default(),
        })
    }

    /// Runs a request: returns `None` if no caller waits for an answer, else the length of the answer in `buffer`, or
    /// the error that is the answer.
    pub(crate) fn serve(
        &self,
        header: &InHeader,
        body: Body<'_>,
        buffer: &mut [u8],
    ) -> Option<Result<usize, Errno>> {
        let result = self.carry_out(header, body, buffer);
        decode::is_answered(header.opcode).then_some(result)
    }

    fn carry_out(
        &self,
        header: &InHeader,
        body: Body<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        let request = decode::request(header, body, self.dialect)?;
        match request.operation {
            // An interrupted request runs to its end: the kernel waits for it, as it does for a disk.
            Operation::Interrupt { .. } => return Ok(0),
            Operation::Destroy => {
                self.handler.unmounting();
                return Ok(0);
            }
            Operation::Unknown(_) => return Err(Errno::NOSYS),
            _ => {}
        }
        if self.failed.load(Ordering::Relaxed) {
            return Err(Errno::IO);
        }
        let mut answer = Answer::for_operation(buffer, header.opcode);
        match catch_unwind(AssertUnwindSafe(|| {
            self.handler.handle(&request, &mut answer)
        })) {
            Ok(Ok(())) => answer.finish(),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                self.fail(io::Error::other("a request's handler panicked"));
                Err(Errno::IO)
            }
        }
    }

    /// Ends the session with an error. The connection is aborted, so that no caller waits for an answer for ever.
    pub(crate) fn fail(&self, error: io::Error) {
        self.failure.lock().get_or_insert(error);
        if !self.failed.swap(true, Ordering::Relaxed) {
            self.place.abort();
        }
    }

    pub(crate) fn place(&self) -> &MountPoint {
        &self.place
    }

    /// Starts a thread of the session.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let alive = Alive::new(self);
        std::thread::Builder::new().name(name).spawn(move || {
            let _alive = alive;
            run();
        })?;
        Ok(())
    }

    /// Waits until all threads are gone.
    pub(crate) fn wait(&self) {
        let mut alive = self.threads.alive.lock();
        while *alive > 0 {
            self.threads.all_gone.wait(&mut alive);
        }
    }

    pub(crate) fn destroy(&self) -> io::Result<()> {
        self.handler.destroy();
        self.failure.lock().take().map_or(Ok(()), Err)
    }
}

/// A thread that is counted until it ends, even by a panic.
struct Alive {
    shared: Option<Arc<Shared>>,
    threads: Arc<Threads>,
}

impl Alive {
    fn new(shared: &Arc<Shared>) -> Self {
        *shared.threads.alive.lock() += 1;
        Self {
            shared: Some(Arc::clone(shared)),
            threads: Arc::clone(&shared.threads),
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take()
            && std::thread::panicking()
        {
            shared.fail(io::Error::other("a thread of the transport panicked"));
        }
        let mut alive = self.threads.alive.lock();
        *alive -= 1;
        if *alive == 0 {
            self.threads.all_gone.notify_all();
        }
    }
}

/// Returns an error as encoded in answers: the kernel accepts -511 to -1.
pub(crate) fn error_code(error: Errno) -> i32 {
    match error.raw_os_error() {
        code @ 1..=511 => -code,
        _ => -Errno::IO.raw_os_error(),
    }
}
