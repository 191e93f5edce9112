//! A ring with one entry, and the buffers through which the kernel passes requests.
#![allow(unsafe_code)] // The kernel reads and writes the entry's buffers while it has the entry.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use io_uring::types::Fixed;
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, opcode, squeue};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use zerocopy::IntoBytes;

use crate::wire::{URING_COMMIT_AND_FETCH, URING_REGISTER, UringCommand, UringHeader};

type Uring = IoUring<squeue::Entry128, cqueue::Entry>;

/// The device is the only registered file.
const DEVICE: Fixed = Fixed(0);

/// A ring and its buffers. Only the thread that made it may use it.
pub(super) struct Ring {
    uring: Uring,
    buffers: Buffers,
}

impl Ring {
    pub(super) fn new(device: &OwnedFd, payload: usize) -> io::Result<Self> {
        let buffers = Buffers::new(payload)?;
        // One thread submits and waits. The kernel works in this thread's context when it waits, without interrupting
        // it.
        let uring = Uring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(2)?;
        // For a registered file, the kernel skips the lookup and the reference count of every request.
        uring.submitter().register_files(&[device.as_raw_fd()])?;
        Ok(Self { uring, buffers })
    }

    pub(super) fn activate(&mut self) -> io::Result<ActiveRing<'_>> {
        let (mut submitter, submissions, completions) = self.uring.split();
        // Registers the ring's own descriptor. If the kernel refuses, the ring is slower.
        let _ = submitter.register_ring_fd();
        Ok(ActiveRing {
            submitter,
            submissions,
            completions,
            buffers: &mut self.buffers,
            last: None,
        })
    }
}

/// A ring in use. Either the kernel owns the entry, from [`register`](ActiveRing::register) or
/// [`commit`](ActiveRing::commit) to the end of [`wait`](ActiveRing::wait), or this thread owns it and may touch the
/// buffers.
pub(super) struct ActiveRing<'r> {
    submitter: Submitter<'r>,
    submissions: SubmissionQueue<'r, squeue::Entry128>,
    completions: CompletionQueue<'r, cqueue::Entry>,
    buffers: &'r mut Buffers,
    /// The last submitted entry.
    last: Option<squeue::Entry128>,
}

/// A request as delivered by the kernel, and the buffer for its answer.
pub(super) struct Parts<'a> {
    pub(super) header: &'a mut UringHeader,
    pub(super) payload: &'a mut [u8],
}

impl ActiveRing<'_> {
    /// Registers the entry with a queue; wait for a request after that. An error is the kernel's refusal.
    pub(super) fn register(&mut self, queue: u16) -> Result<(), Errno> {
        let vector = self.buffers.vector();
        let entry = command(URING_REGISTER, queue, 0, Some(&vector));
        self.push(entry);
        loop {
            match self.submitter.submit() {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(errno(&error)),
            }
        }
        // The kernel has read the vector. A refusal is immediate.
        self.completions.sync();
        match self.completions.next() {
            Some(completion) => {
                self.buffers.lent = false;
                Err(completed(&completion).err().unwrap_or(Errno::IO))
            }
            None => Ok(()),
        }
    }

    /// Waits for a request.
    pub(super) fn wait(&mut self) -> Result<(), Errno> {
        loop {
            self.completions.sync();
            if let Some(completion) = self.completions.next() {
                self.buffers.lent = false;
                return completed(&completion);
            }
            match self.submitter.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(errno(&error)),
            }
        }
    }

    /// Returns the request that [`wait`](ActiveRing::wait) returned for.
    pub(super) fn parts(&mut self) -> Parts<'_> {
        self.buffers.parts()
    }

    /// Submits the answer with the next [`wait`](ActiveRing::wait).
    pub(super) fn commit(&mut self, queue: u16) {
        let id = self.buffers.parts().header.entry.commit_id;
        self.push(command(URING_COMMIT_AND_FETCH, queue, id, None));
    }

    /// Submits again the entries that the kernel temporarily refused.
    pub(super) fn again(&mut self) {
        if let Some(entry) = self.last.take() {
            self.push(entry);
        }
    }

    fn push(&mut self, entry: squeue::Entry128) {
        self.buffers.lent = true;
        self.last = Some(entry.clone());
        // SAFETY: the buffers named by the entry are this ring's. They stay mapped while they are lent, and `parts`
        // returns no reference to them until the kernel has completed the entry. There is room: the queue holds two,
        // and every entry is submitted before the next one is made.
        let _ = unsafe { self.submissions.push(&entry) };
        self.submissions.sync();
    }
}

fn completed(completion: &cqueue::Entry) -> Result<(), Errno> {
    match completion.result() {
        0.. => Ok(()),
        code => Err(Errno::from_raw_os_error(-code)),
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The two buffers of an entry, as registering passes them: a vector of base and length.
type Vector = [[usize; 2]; 2];

fn command(
    operation: u32,
    queue: u16,
    commit_id: u64,
    vector: Option<&Vector>,
) -> squeue::Entry128 {
    let request = UringCommand {
        flags: 0,
        commit_id,
        qid: queue,
        padding: [0; 6],
    };
    let mut area = [0; 80];
    area[..size_of::<UringCommand>()].copy_from_slice(request.as_bytes());
    let address = vector.map(|vector| ptr::from_ref(vector).expose_provenance() as u64);
    let entry = opcode::UringCmd80::new(DEVICE, operation)
        .cmd(area)
        .addr(address)
        .build();
    match vector {
        Some(vector) => with_length(entry, vector.len() as u32),
        None => entry,
    }
}

/// Sets the field `len` of a submission, which the crate cannot set for this operation.
fn with_length(entry: squeue::Entry128, length: u32) -> squeue::Entry128 {
    const LENGTH_AT: usize = 24;
    // SAFETY: a submission is a structure of 128 bytes without padding or invalid values, laid out as the kernel
    // defines it; all of its bytes are initialised by `build`.
    unsafe {
        let mut bytes: [u8; 128] = std::mem::transmute(entry);
        bytes[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_ne_bytes());
        std::mem::transmute::<[u8; 128], squeue::Entry128>(bytes)
    }
}

/// An entry's buffers: a page with the header, then the payload. Only the used pages take memory.
struct Buffers {
    base: NonNull<u8>,
    payload: usize,
    /// Whether the kernel owns the buffers.
    lent: bool,
}

const HEADER_ROOM: usize = 4096;
const _: () = assert!(size_of::<UringHeader>() <= HEADER_ROOM);

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Buffers {}

impl Buffers {
    fn new(payload: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses does not touch existing mappings.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                HEADER_ROOM + payload,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self {
            base,
            payload,
            lent: false,
        })
    }

    fn vector(&self) -> Vector {
        let base = self.base.as_ptr().expose_provenance();
        [
            [base, size_of::<UringHeader>()],
            [base + HEADER_ROOM, self.payload],
        ]
    }

    fn parts(&mut self) -> Parts<'_> {
        assert!(!self.lent, "the kernel has these buffers");
        // SAFETY: the mapping covers both parts, which do not overlap, is page-aligned, and is initialized (with
        // zeroes at first). It is ours: not lent, and borrowed mutably. Any bytes are a valid header.
        unsafe {
            let header = self.base.cast::<UringHeader>().as_mut();
            let payload = self.base.add(HEADER_ROOM);
            Parts {
                header,
                payload: std::slice::from_raw_parts_mut(payload.as_ptr(), self.payload),
            }
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // Memory that the kernel might still write to is never unmapped.
        if !self.lent {
            // SAFETY: it was mapped with this length, and no reference to it outlives `self`.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), HEADER_ROOM + self.payload) };
        }
    }
}
