//! The first request: the negotiation between kernel and server.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::classic::answer;
use crate::decode::{self, Dialect};
use crate::handler::{InitFlags, KernelOffer, Wants};
use crate::wire::{self, InitIn, InitInExt, InitOut, opcode};

/// The kernel's INIT, which waits for its answer.
pub(crate) struct Pending {
    unique: u64,
    pub offer: KernelOffer,
}

/// The result of INIT.
pub(crate) struct Agreement {
    pub dialect: Dialect,
    /// Longest data of a request or an answer.
    pub payload: usize,
    out: InitOut,
}

const MIN_WRITE: u32 = 4096;
const MAX_WRITE: u32 = 1 << 20;

/// Reads INIT. Answers a kernel of a later major version with the supported one, so that it asks again.
pub(crate) fn receive(device: &OwnedFd) -> io::Result<Pending> {
    // The smallest buffer that the kernel accepts.
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = match rustix::io::read(device, &mut buffer) {
            Ok(length) => length,
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            Err(Errno::NODEV | Errno::CONNABORTED) => {
                return Err(io::Error::new(
                    io::ErrorKind::NotConnected,
                    "unmounted before it was served",
                ));
            }
            Err(error) => return Err(error.into()),
        };
        let (unique, init, offer) = parse(&buffer[..length])?;
        if init.major > wire::MAJOR {
            answer(device, unique, Ok(version_only().as_bytes()));
            continue;
        }
        if init.major < wire::MAJOR || init.minor < wire::OLDEST_MINOR {
            answer(device, unique, Err(Errno::PROTO));
            let message = format!(
                "the kernel's FUSE protocol {}.{} is older than {}.{}",
                init.major,
                init.minor,
                wire::MAJOR,
                wire::OLDEST_MINOR
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        return Ok(Pending { unique, offer });
    }
}

fn version_only() -> InitOut {
    InitOut {
        major: wire::MAJOR,
        minor: wire::MINOR,
        ..InitOut::read_from_bytes(&[0; size_of::<InitOut>()]).unwrap_or_else(|_| unreachable!())
    }
}

fn parse(message: &[u8]) -> io::Result<(u64, InitIn, KernelOffer)> {
    let broken = || io::Error::other("the kernel's first message is not INIT");
    let (header, body) = decode::header(message).map_err(|_| broken())?;
    if header.opcode != opcode::INIT {
        return Err(broken());
    }
    let (init, rest) = InitIn::read_from_prefix(body).map_err(|_| broken())?;
    let mut flags = u64::from(init.flags);
    if flags & InitFlags::INIT_EXT.bits() != 0
        && let Ok((more, _)) = InitInExt::read_from_prefix(rest)
    {
        flags |= u64::from(more.flags2) << 32;
    }
    let flags = InitFlags::from_bits_truncate(flags);
    let offer = KernelOffer {
        minor: init.minor,
        max_readahead: init.max_readahead,
        flags,
    };
    Ok((header.unique, init, offer))
}

impl Pending {
    /// Computes the agreement from the kernel's offer and the handler's wishes.
    pub(crate) fn agree(&self, wants: &Wants, uring: bool) -> Agreement {
        let page = u32::try_from(rustix::param::page_size()).unwrap_or(MIN_WRITE);
        let max_write = wants
            .max_write
            .clamp(MIN_WRITE, MAX_WRITE)
            .next_multiple_of(page);
        let pages = max_write / page;
        let ours = InitFlags::INIT_EXT
            | InitFlags::MAX_PAGES
            | InitFlags::BIG_WRITES
            | InitFlags::SETXATTR_EXT;
        let mut flags = (wants.flags | ours) & self.offer.flags;
        flags.set(
            InitFlags::OVER_IO_URING,
            uring && self.offer.flags.contains(InitFlags::OVER_IO_URING),
        );
        let out = InitOut {
            minor: self.offer.minor.min(wire::MINOR),
            max_readahead: wants.max_readahead.min(self.offer.max_readahead),
            // The halves of the flags.
            flags: flags.bits() as u32,
            flags2: (flags.bits() >> 32) as u32,
            max_background: wants.max_background.max(1),
            congestion_threshold: wants
                .congestion_threshold
                .clamp(1, wants.max_background.max(1)),
            max_write,
            time_gran: wants.time_granularity.max(1),
            max_pages: u16::try_from(pages).unwrap_or(u16::MAX),
            ..version_only()
        };
        let dialect = Dialect {
            setxattr_ext: flags.contains(InitFlags::SETXATTR_EXT),
        };
        // The kernel requires room for 8 KiB even for short writes; without MAX_PAGES reads have up to 32 pages.
        let payload = (max_write as usize).max(32 * page as usize);
        Agreement {
            dialect,
            payload,
            out,
        }
    }

    pub(crate) fn confirm(&self, device: &OwnedFd, agreement: &Agreement) {
        answer(device, self.unique, Ok(agreement.out.as_bytes()));
    }

    pub(crate) fn refuse(&self, device: &OwnedFd) {
        answer(device, self.unique, Err(Errno::PROTO));
    }
}
