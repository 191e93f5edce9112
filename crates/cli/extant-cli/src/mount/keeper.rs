//! The keeper of a mount: a small process that mounts and unmounts for the server, because the server may do neither
//! once it has confined itself. The keeper never sees a byte of the image.
//!
//! Server and keeper talk over a pair of sockets; the keeper's end is its standard input. The server sends a request
//! of [`REQUEST`] bytes. The keeper replies with an error number of the system or 0, the length of a text, and the
//! text, which is empty on success. A successful reply to a request to mount carries the descriptor of the new mount.
//! The keeper exits when the server does.

use anyhow::{Context, Result};
use fuse_server::{Connection, MountPoint, Unmount, Unmounting};
use lockmeter::{Mutex, lock_class};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

lock_class!(
    /// The connection to the keeper of a mount.
    Line = "mount keeper"
);

/// Length of a request: the action, whether read-only, and the block size (0: not as a block device). Only mounting
/// uses the latter two.
const REQUEST: usize = 6;
const MOUNT: u8 = b'm';
const UNUSED: u8 = b'u';
const DETACHED: u8 = b'd';
const ABORTED: u8 = b'a';
/// Longest text of a reply.
const LONGEST: usize = 4096;

/// The server's end.
#[derive(Debug)]
pub struct Keeper {
    line: Mutex<UnixStream, Line>,
}

/// Options of a mount.
#[derive(Clone, Copy, Debug)]
pub struct KeeperOptions {
    /// Mount read-only.
    pub read_only: bool,
    /// Block size, if the image is a block device that the kernel is to hold.
    pub block_device: Option<u32>,
}

impl Keeper {
    /// Starts the keeper of a mount of `image` on `dir` with the words after `-o`.
    pub fn start(image: &Path, dir: &Path, options: &[String]) -> Result<Self> {
        let (ours, theirs) = UnixStream::pair().context("a pair of sockets")?;
        let program = std::env::current_exe().context("this program's own path")?;
        let mut words: Vec<OsString> = vec!["keep-mount".into()];
        words.extend(options.iter().map(|list| format!("-o{list}").into()));
        words.extend(["--".into(), image.into(), dir.into()]);
        Command::new(program)
            .args(words)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // Replies contain all errors. Without stderr, a reader of the server's errors does not wait for the
            // keeper.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting the keeper of the mount")?;
        Ok(Self {
            line: Mutex::new(ours),
        })
    }

    /// Asks the keeper to mount.
    pub fn mount(self: &Arc<Self>, dir: &Path, how: KeeperOptions) -> io::Result<Connection> {
        let device = self.ask(MOUNT, how)?.ok_or(io::ErrorKind::InvalidData)?;
        Connection::received(device, dir, Arc::clone(self) as _)
    }

    fn ask(&self, what: u8, how: KeeperOptions) -> io::Result<Option<OwnedFd>> {
        let mut request = [0; REQUEST];
        request[0] = what;
        request[1] = how.read_only.into();
        request[2..].copy_from_slice(&how.block_device.unwrap_or(0).to_le_bytes());
        let mut line = self.line.lock();
        line.write_all(&request)?;
        let mut head = [0; 8];
        let device = receive(&line, &mut head)?;
        let [a, b, c, d, e, f, g, h] = head;
        let number = i32::from_le_bytes([a, b, c, d]);
        let length = u32::from_le_bytes([e, f, g, h]) as usize;
        let mut text = vec![0; length.min(LONGEST)];
        line.read_exact(&mut text)?;
        match (number, text.as_slice()) {
            (0, b"") => Ok(device),
            (0, text) => Err(io::Error::other(String::from_utf8_lossy(text).into_owned())),
            (number, _) => Err(io::Error::from_raw_os_error(number)),
        }
    }
}

impl Unmount for Keeper {
    fn unmount(&self, how: Unmounting) -> io::Result<()> {
        let what = match how {
            Unmounting::Unused => UNUSED,
            Unmounting::Detached => DETACHED,
            Unmounting::Aborted => ABORTED,
        };
        let how = KeeperOptions {
            read_only: false,
            block_device: None,
        };
        self.ask(what, how).map(drop)
    }
}

/// Reads the head of a reply, and the descriptor that came with it, if any.
fn receive(line: &UnixStream, head: &mut [u8; 8]) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let got = loop {
        match recvmsg(line, &mut [IoSliceMut::new(head)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    if got.bytes != head.len() {
        let gone = "the keeper of the mount went away";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, gone));
    }
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

fn send(
    line: &UnixStream,
    done: &io::Result<()>,
    device: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let (number, text) = match done {
        Ok(()) => (0, String::new()),
        Err(e) => (e.raw_os_error().unwrap_or(0), e.to_string()),
    };
    let text = text.as_bytes();
    let text = &text[..text.len().min(LONGEST)];
    let mut head = [0; 8];
    head[..4].copy_from_slice(&number.to_le_bytes());
    // The text is never longer than LONGEST.
    head[4..].copy_from_slice(&(text.len() as u32).to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = device.into_iter().collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    sendmsg(
        line,
        &[IoSlice::new(&head)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    (&*line).write_all(text)
}

/// Runs the keeper, on standard input, with a function that mounts: executes the server's requests until the server closes its end.
pub fn run(mount: impl Fn(KeeperOptions) -> io::Result<Connection>) -> Result<()> {
    // Signals of the terminal are for the server, which sends the keeper the resulting requests.
    let _ = rustix::process::setsid();
    let input = std::io::stdin();
    let mut line = UnixStream::from(input.as_fd().try_clone_to_owned()?);
    let mut place: Option<MountPoint> = None;
    let mut request = [0; REQUEST];
    while line.read_exact(&mut request).is_ok() {
        let [what, read_only, size @ ..] = request;
        let size = u32::from_le_bytes(size);
        let how = match what {
            MOUNT => {
                let how = KeeperOptions {
                    read_only: read_only != 0,
                    block_device: (size != 0).then_some(size),
                };
                match mount(how) {
                    Ok(connection) => {
                        send(&line, &Ok(()), Some(connection.as_fd()))?;
                        place = Some(connection.leave());
                    }
                    Err(error) => send(&line, &Err(error), None)?,
                }
                continue;
            }
            UNUSED => Unmounting::Unused,
            DETACHED => Unmounting::Detached,
            _ => Unmounting::Aborted,
        };
        let done = place.as_ref().map_or(Ok(()), |place| place.unmount(how));
        send(&line, &done, None)?;
    }
    Ok(())
}
