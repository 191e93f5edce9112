//! The classic transport: threads that read requests from `/dev/fuse` and write answers to it.
//!
//! Each thread has a separate channel (a descriptor cloned from the connection's), so that the kernel keeps the
//! requests in progress in a separate list. The kernel distributes requests from one queue under one lock, so the
//! crew's counter costs little in comparison.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::answer::Answer;
use crate::crew::Crew;
use crate::decode::{self, Body};
use crate::ioctl::clone_channel;
use crate::shared::{Shared, error_code};
use crate::wire::{OutHeader, opcode};

/// Largest number of threads, even if more requests block.
const LIMIT: usize = 512;
/// Number of threads that may wait for requests beyond the initial number; further threads exit.
const SPARE: usize = 8;
/// With rings, the device only brings messages without answers: forgotten files. After such a message no thread reads
/// the device for this time, so that later messages come in one batch instead of waking a thread for every file.
const GATHER: Duration = Duration::from_millis(1);
/// Size of a batch (a thousand files) that needs a second thread.
const MANY: usize = 16 << 10;

pub(crate) struct Classic {
    shared: Arc<Shared>,
    device: Arc<OwnedFd>,
    /// Channels without a thread: for threads that start after the device can no longer be opened.
    channels: Mutex<Vec<Arc<OwnedFd>>>,
    crew: Crew,
    enough: usize,
    buffer_size: usize,
    beside_rings: bool,
}

impl Classic {
    /// Starts `threads` threads. `payload` is the longest data of a request or answer.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        device: &Arc<OwnedFd>,
        payload: usize,
        threads: usize,
        beside_rings: bool,
    ) -> io::Result<()> {
        let classic = Arc::new(Self {
            shared: Arc::clone(shared),
            device: Arc::clone(device),
            channels: Mutex::default(),
            crew: Crew::new(LIMIT),
            enough: if beside_rings {
                threads
            } else {
                threads + SPARE
            },
            // Room for the header and structure; an attribute with its name is longer than the smallest payload.
            buffer_size: payload.max(128 << 10) + 4096,
            beside_rings,
        });
        let threads = threads.max(1);
        let spare = if beside_rings { 0 } else { SPARE };
        let fresh: Option<Vec<_>> = (0..threads + spare)
            .map(|_| classic.new_channel())
            .collect();
        *classic.channels.lock() = fresh.unwrap_or_default();
        for _ in 0..threads {
            classic.grow()?;
        }
        Ok(())
    }

    fn grow(self: &Arc<Self>) -> io::Result<()> {
        if !self.crew.join() {
            return Ok(());
        }
        let classic = Arc::clone(self);
        let started = self.shared.spawn("fuse".to_owned(), move || {
            let spare = classic.work();
            if classic.crew.leave() && spare {
                // Without another thread, requests wait until one is done.
                let _ = classic.grow();
            }
        });
        if started.is_err() {
            self.crew.leave();
        }
        started
    }

    /// Opens a further channel. `None` if the device cannot be opened: by a user whose descriptor comes from
    /// `fusermount3`, or by a confined server.
    fn new_channel(&self) -> Option<Arc<OwnedFd>> {
        let fresh = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let fresh = fresh.ok()?;
        clone_channel(&fresh, self.device.as_fd()).ok()?;
        Some(Arc::new(fresh))
    }

    /// Returns a separate channel for a thread, or else the connection's.
    fn channel(&self) -> Arc<OwnedFd> {
        let spare = self.channels.lock().pop();
        spare
            .or_else(|| self.new_channel())
            .unwrap_or_else(|| Arc::clone(&self.device))
    }

    /// Returns a thread's channel when it exits, for the next thread.
    fn put_back(&self, channel: Arc<OwnedFd>) {
        if !Arc::ptr_eq(&channel, &self.device) {
            self.channels.lock().push(channel);
        }
    }

    /// Serves requests; returns true if the thread exits because enough others wait.
    fn work(self: &Arc<Self>) -> bool {
        let channel = self.channel();
        let mut input = vec![0; self.buffer_size];
        let mut output = vec![0; self.buffer_size];
        loop {
            let length = match rustix::io::read(&*channel, &mut input) {
                Ok(length) => length,
                // A signal, or the request was aborted while it was being read.
                Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
                // Unmounted, or aborted.
                Err(Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN) => return false,
                Err(error) => {
                    self.shared.fail(error.into());
                    return false;
                }
            };
            if self.crew.take() && (!self.beside_rings || length >= MANY) {
                // Without another thread, this one continues alone.
                let _ = self.grow();
            }
            let gather = self.serve(&channel, &input[..length], &mut output);
            if gather && self.beside_rings && length < MANY {
                std::thread::sleep(GATHER);
            }
            if self.crew.done(self.enough) {
                self.put_back(channel);
                return true;
            }
        }
    }

    /// Serves a message; returns true if no caller waits for its answer.
    fn serve(&self, channel: &OwnedFd, message: &[u8], output: &mut [u8]) -> bool {
        let Ok((header, body)) = decode::header(message) else {
            self.shared
                .fail(io::Error::other("the kernel's message is not a request"));
            return false;
        };
        if let Some(result) = self.shared.serve(&header, Body::Joined(body), output) {
            answer(
                channel,
                header.unique,
                result.map(|length| &output[..length]),
            );
        }
        matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET)
    }
}

/// Writes an answer. If the kernel refuses it, the request is over: it was aborted, or the kernel ended it with an
/// error because the answer is invalid.
pub(crate) fn answer(channel: &OwnedFd, unique: u64, result: Result<&[u8], Errno>) {
    let (error, payload) = match result {
        Ok(payload) => (0, payload),
        Err(error) => (error_code(error), &[][..]),
    };
    let length = size_of::<OutHeader>() + payload.len();
    // Payloads are no longer than the buffers, which have at most some megabytes.
    let header = OutHeader {
        len: length as u32,
        error,
        unique,
    };
    let _ = rustix::io::writev(
        channel,
        &[IoSlice::new(header.as_bytes()), IoSlice::new(payload)],
    );
}

const _: () = assert!(Answer::SMALL <= 4096);
