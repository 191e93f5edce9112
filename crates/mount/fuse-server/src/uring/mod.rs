//! The io_uring transport: a queue per CPU, each served by threads that stay on that CPU.
//!
//! A request is put on the queue of its caller's CPU and runs there: no other CPU is woken, and no memory moves to
//! another CPU. Each thread has a separate ring with a single entry: it submits an answer and waits for the next
//! request in one system call. When a thread takes a request and no other thread of its queue waits, it starts a new
//! thread, which registers one more entry. So a handler that blocks (an fsync) delays only its own caller. Entries
//! cannot be withdrawn, so these threads stay until the end.
//!
//! A request that finds no free entry waits in the kernel until some entry of its queue is returned; a newly
//! registered entry does not help it. So a new thread lets another thread ask for the root's attributes from the same
//! CPU: when that is answered, the waiting request is fetched.
//!
//! Forgotten files and interrupts still arrive through `/dev/fuse`; a thread of the classic transport reads them.

mod ring;
mod self_request;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use zerocopy::{FromBytes, IntoBytes};

use crate::answer::Answer;
use crate::crew::Crew;
use crate::decode::{self, Body};
use crate::shared::{Shared, error_code};
use crate::wire::{InHeader, OutHeader};
use ring::{ActiveRing, Parts, Ring};

/// Largest number of threads of a queue, even if more requests block.
const LIMIT: usize = 128;
/// Delay that is longer than handlers that do not block.
const SOON: Duration = Duration::from_micros(500);

/// The rings of a session before their registration. Dropping them ends their threads.
pub(crate) struct Rings {
    gate: Arc<Gate>,
    queues: usize,
    reports: mpsc::Receiver<io::Result<()>>,
}

/// The gate at which threads with a ring wait.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum GateState {
    #[default]
    Closed,
    Open,
    /// The rings were abandoned.
    GivenUp,
}

impl Gate {
    fn set(&self, state: GateState) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }

    /// Waits at the gate; returns whether it was opened.
    fn pass(&self) -> bool {
        let mut state = self.state.lock();
        while *state == GateState::Closed {
            self.changed.wait(&mut state);
        }
        *state == GateState::Open
    }
}

impl Rings {
    /// Starts a thread with a ring for every possible CPU. When this returns, all threads have their rings.
    pub(crate) fn prepare(
        shared: &Arc<Shared>,
        device: &Arc<OwnedFd>,
        payload: usize,
    ) -> io::Result<Self> {
        let queues = possible_cpus()?;
        let gate = Arc::new(Gate::default());
        let (report, reports) = mpsc::channel();
        let rings = Self {
            gate: Arc::clone(&gate),
            queues: usize::from(queues),
            reports,
        };
        for id in 0..queues {
            let queue = Arc::new(Queue {
                shared: Arc::clone(shared),
                device: Arc::clone(device),
                id,
                payload,
                crew: CachePadded::new(Crew::new(LIMIT)),
            });
            queue.crew.join();
            let (gate, report) = (Arc::clone(&gate), report.clone());
            shared.spawn(format!("fuse-ring-{id}"), move || {
                queue.first(&gate, &report)
            })?;
        }
        rings.hear()?;
        Ok(rings)
    }

    /// Registers all rings with the kernel, which has agreed on them.
    pub(crate) fn register(self) -> io::Result<()> {
        self.gate.set(GateState::Open);
        self.hear()
    }

    /// Waits for the report of every queue.
    fn hear(&self) -> io::Result<()> {
        (0..self.queues).try_for_each(|_| {
            self.reports
                .recv()
                .unwrap_or_else(|_| Err(io::Error::other("a thread with a ring ended early")))
        })
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        if *state == GateState::Closed {
            *state = GateState::GivenUp;
            self.gate.changed.notify_all();
        }
    }
}

/// Returns the number of queues that the kernel expects: one for every CPU that could ever be plugged in.
fn possible_cpus() -> io::Result<u16> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count(list.trim())
        .ok_or_else(|| io::Error::other("the list of possible CPUs is not understood"))
}

/// Returns the count of numbers in a list such as `0-3,8`.
fn count(list: &str) -> Option<u16> {
    list.split(',').try_fold(0u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// The requests of one CPU.
struct Queue {
    shared: Arc<Shared>,
    device: Arc<OwnedFd>,
    id: u16,
    payload: usize,
    crew: CachePadded<Crew>,
}

impl Queue {
    /// Runs the first thread of a queue. It reports twice: when it has a ring, and when the ring is registered.
    fn first(self: &Arc<Self>, gate: &Gate, report: &mpsc::Sender<io::Result<()>>) {
        self.stay();
        let mut ring = match Ring::new(&self.device, self.payload) {
            Ok(ring) => ring,
            Err(error) => return drop(report.send(Err(error))),
        };
        let _ = report.send(Ok(()));
        if !gate.pass() {
            return;
        }
        match ring.activate() {
            Ok(mut active) => match active.register(self.id) {
                Ok(()) => {
                    let _ = report.send(Ok(()));
                    self.work(&mut active);
                }
                Err(error) => drop(report.send(Err(error.into()))),
            },
            Err(error) => drop(report.send(Err(error))),
        }
    }

    /// Starts one more thread. If that fails, requests wait, which is not an error.
    fn grow(self: &Arc<Self>) {
        if !self.crew.join() {
            return;
        }
        let queue = Arc::clone(self);
        let started = self
            .shared
            .spawn(format!("fuse-ring-{}", self.id), move || {
                queue.stay();
                let _ = queue.one_more();
                queue.crew.leave();
            });
        if started.is_err() {
            self.crew.leave();
        }
    }

    fn one_more(self: &Arc<Self>) -> io::Result<()> {
        let mut ring = Ring::new(&self.device, self.payload)?;
        let mut active = ring.activate()?;
        active.register(self.id)?;
        self.send_self_request();
        self.work(&mut active);
        Ok(())
    }

    /// Sends a request through the queue after a delay, if a handler is still busy then. If no handler is busy, all of
    /// the queue's entries have been returned since, and no request waits. A separate thread sends the request,
    /// because it waits for the answer; the thread stays on the CPU of its parent. If this fails, a waiting request
    /// continues when another request is answered.
    fn send_self_request(self: &Arc<Self>) {
        let queue = Arc::clone(self);
        let _ = self.shared.spawn("fuse-self-req".to_owned(), move || {
            std::thread::sleep(SOON);
            if queue.crew.is_busy() {
                self_request::send(queue.shared.place());
            }
        });
    }

    /// Keeps this thread on the queue's CPU, if the process may use it.
    fn stay(&self) {
        let cpu = usize::from(self.id);
        if cpu < CpuSet::MAX_CPU && sched_getaffinity(None).is_ok_and(|allowed| allowed.is_set(cpu))
        {
            let mut set = CpuSet::new();
            set.set(cpu);
            // A thread on another CPU can also serve the queue, but more slowly.
            let _ = sched_setaffinity(None, &set);
        }
    }

    fn work(self: &Arc<Self>, active: &mut ActiveRing<'_>) {
        let mut desk = Desk {
            small: [0; Answer::SMALL],
            aside: Vec::new(),
        };
        loop {
            match active.wait() {
                Ok(()) => {}
                Err(Errno::INTR | Errno::AGAIN) => {
                    std::thread::yield_now();
                    active.again();
                    continue;
                }
                // Unmounted or aborted, or the request was cancelled by the abort that follows.
                Err(
                    Errno::NOTCONN
                    | Errno::CONNABORTED
                    | Errno::NODEV
                    | Errno::NOENT
                    | Errno::CANCELED,
                ) => return,
                Err(error) => return self.shared.fail(error.into()),
            }
            if self.crew.take() {
                self.grow();
            }
            desk.serve(&self.shared, &mut active.parts());
            active.commit(self.id);
            self.crew.done(usize::MAX);
        }
    }
}

/// The memory of a thread besides its ring's buffers. Request and answer share the payload buffer, so one of them is
/// elsewhere while the handler runs: the answer, unless it may be long; then the request, which is short.
struct Desk {
    small: [u8; Answer::SMALL],
    aside: Vec<u8>,
}

impl Desk {
    fn serve(&mut self, shared: &Shared, parts: &mut Parts<'_>) {
        let Parts { header, payload } = parts;
        let Ok((head, _)) = InHeader::read_from_prefix(&header.in_out) else {
            return;
        };
        let length = (header.entry.payload_sz as usize).min(payload.len());
        let result = if decode::answer_is_long(head.opcode) {
            self.aside.clear();
            self.aside.extend_from_slice(&payload[..length]);
            shared.serve(
                &head,
                Body::Split {
                    fixed: &header.op_in,
                    rest: &self.aside,
                },
                payload,
            )
        } else {
            let body = Body::Split {
                fixed: &header.op_in,
                rest: &payload[..length],
            };
            let result = shared.serve(&head, body, &mut self.small);
            if let Some(Ok(length)) = result {
                payload[..length].copy_from_slice(&self.small[..length]);
            }
            result
        };
        let (length, error) = match result.unwrap_or(Ok(0)) {
            Ok(length) => (length, 0),
            Err(error) => (0, error_code(error)),
        };
        // The payload is not longer than the buffer.
        let out = OutHeader {
            len: (size_of::<OutHeader>() + length) as u32,
            error,
            unique: head.unique,
        };
        header.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        header.entry.payload_sz = length as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-127"), Some(128));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
        assert_eq!(count("0-65535"), None);
    }
}
