//! The server's side of the socket: one thread per client, because clients are few.

use super::{Command, Fragments, LONGEST, MOST_BYTES, Reply, bad, directory};
use crate::mount::{Freeze, Shared};
use extant::Credentials;
use extant::blockdev::{BlockDevice, Snapshot};
use extant::unstable::Node;

use lockmeter::{Condvar, Mutex, lock_class};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use std::ffi::OsString;
use std::fs::{DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

lock_class!(
    /// Clients of the control socket.
    pub(crate) Clients = "control clients"
);

/// Time limit for a client to read its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The socket of a running mount. [`Server::end`] ends it and answers the clients that wait for the end.
pub struct Server {
    /// The open directory of the socket, because a confined process cannot open it.
    dir: OwnedFd,
    name: OsString,
    /// Inode of the socket with that name, while this server owns it.
    inode: u64,
    inner: Arc<Inner>,
    accepting: Option<JoinHandle<()>>,
}

struct Inner {
    state: Mutex<ServerState, Clients>,
    ended: Condvar,
}

struct ServerState {
    /// The mount, until it has ended.
    shared: Option<Arc<Shared>>,
    /// Result of the mount, once it has ended.
    end: Option<Result<(), String>>,
    clients: Vec<(UnixStream, JoinHandle<()>)>,
    /// The snapshot that connections hold.
    snapshot: Weak<Snapshot>,
}

/// Resources of a connection. They are released with the connection, so a client that is gone leaves nothing behind.
#[derive(Default)]
struct HeldSnapshot {
    frozen: Option<Freeze>,
    snapshot: Option<Arc<Snapshot>>,
}

/// Opens the directory of a socket: made if missing, writable only by its owner, and locked, so that only one server
/// at a time checks the owner of a path and changes the path.
fn own_directory(socket: &Path) -> io::Result<OwnedFd> {
    let fallback = directory();
    let dir = socket.parent().unwrap_or(&fallback);
    match DirBuilder::new().recursive(false).mode(0o700).create(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    let meta = dir.symlink_metadata()?;
    let owned = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
    if !owned || meta.mode() & 0o022 != 0 {
        let why = format!("{}: not a directory of this user alone", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let dir = rustix::fs::open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::flock(&dir, FlockOperation::LockExclusive)?;
    Ok(dir)
}

impl Server {
    /// Listens at a path in [`directory`], which is made if it is missing; replaces the socket of a server that has
    /// ended.
    pub(crate) fn start(path: &Path, shared: Arc<Shared>) -> io::Result<Self> {
        let dir = own_directory(path)?;
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        match std::fs::remove_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let inode = path.symlink_metadata()?.ino();
        let inner = Arc::new(Inner {
            state: Mutex::new(ServerState {
                shared: Some(shared),
                end: None,
                clients: Vec::new(),
                snapshot: Weak::new(),
            }),
            ended: Condvar::new(),
        });
        let theirs = Arc::clone(&inner);
        let accepting = thread::Builder::new()
            .name("control".into())
            .spawn(move || accept(&listener, &theirs))?;
        rustix::fs::flock(&dir, FlockOperation::Unlock)?;
        Ok(Self {
            dir,
            name: name.into(),
            inode,
            inner,
            accepting: Some(accepting),
        })
    }

    /// Ends the socket with the mount: answers every waiting client, and removes the path.
    pub fn end(mut self, how: Result<(), String>) {
        self.finish(how);
    }

    /// Returns the directory of the socket, which is changed at the end.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Removes the path if it still belongs to this server. A new mount may already have reused the device number of
    /// the ended mount, and with it the path.
    fn remove_path(&self) {
        if rustix::fs::flock(&self.dir, FlockOperation::LockExclusive).is_err() {
            return;
        }
        let found = rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| found.st_ino == self.inode) {
            let _ = rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty());
        }
        let _ = rustix::fs::flock(&self.dir, FlockOperation::Unlock);
    }

    fn finish(&mut self, how: Result<(), String>) {
        let Some(accepting) = self.accepting.take() else {
            return;
        };
        // The path is removed first, so that a late client finds no socket rather than one without a server.
        self.remove_path();
        // Dropping the state closes the image, which other programs can open from then on.
        let shared = self.inner.state.lock().shared.take();
        drop(shared);
        let clients = {
            let mut state = self.inner.state.lock();
            state.end = Some(how);
            std::mem::take(&mut state.clients)
        };
        self.inner.ended.notify_all();
        for (stream, thread) in clients {
            // Waiting clients have been answered by then; other connections are read to their end.
            let _ = stream.shutdown(Shutdown::Read);
            let _ = thread.join();
        }
        // The listening thread ends at the next client or with the process, and nothing depends on it.
        drop(accepting);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.finish(Err("the server ended early".into()));
    }
}

fn accept(listener: &UnixListener, inner: &Arc<Inner>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            return;
        };
        // A client that stops reading its answer must not delay the end of the mount.
        if stream.set_write_timeout(Some(PATIENCE)).is_err() {
            continue;
        }
        // The directory already keeps other users out; this check also works if its permissions are opened.
        let me = rustix::process::geteuid();
        let peer = rustix::net::sockopt::socket_peercred(&stream);
        if !peer.is_ok_and(|peer| peer.uid == me || peer.uid.is_root()) {
            continue;
        }
        let Ok(copy) = stream.try_clone() else {
            continue;
        };
        let mut state = inner.state.lock();
        if state.end.is_some() {
            return;
        }
        state.clients.retain(|(_, thread)| !thread.is_finished());
        let theirs = Arc::clone(inner);
        let serving = thread::Builder::new().name("control client".into());
        if let Ok(thread) = serving.spawn(move || serve(stream, &theirs)) {
            state.clients.push((copy, thread));
        }
    }
}

/// Serves a client until it disconnects.
fn serve(stream: UnixStream, inner: &Inner) {
    let Ok(mut answers) = stream.try_clone() else {
        return;
    };
    let mut lines = BufReader::new(stream);
    let mut held = HeldSnapshot::default();
    let mut line = String::new();
    let mut bytes = Vec::new();
    loop {
        line.clear();
        match lines.by_ref().take(LONGEST).read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        bytes.clear();
        let reply = match serde_json::from_str(&line) {
            Ok(Command::Read { offset, len }) => held.read(offset, len, &mut bytes),
            Ok(command) => inner.answer(command, &mut held),
            Err(e) => Reply::Failed(format!("not understood: {e}")),
        };
        let sent = send(&mut answers, &reply).and_then(|()| answers.write_all(&bytes));
        if sent.is_err() {
            return;
        }
    }
}

fn send(stream: &mut UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply).map_err(|e| bad(e.to_string()))?;
    line.push(b'\n');
    stream.write_all(&line)
}

impl HeldSnapshot {
    /// Reads bytes of the snapshot, which follow the line of the answer.
    fn read(&self, offset: u64, len: u32, bytes: &mut Vec<u8>) -> Reply {
        let Some(snapshot) = &self.snapshot else {
            return Reply::Failed("this connection has no snapshot".into());
        };
        if len > MOST_BYTES {
            return Reply::Failed(format!("at most {MOST_BYTES} bytes at once"));
        }
        bytes.resize(len as usize, 0);
        match snapshot.read_at(offset, bytes) {
            Ok(()) => Reply::Bytes(len),
            Err(e) => {
                bytes.clear();
                Reply::Failed(e.to_string())
            }
        }
    }
}

impl Inner {
    /// Takes a snapshot, or joins the existing one.
    fn snapshot(&self, shared: &Shared, join: bool, held: &mut HeldSnapshot) -> Reply {
        // Drop the old snapshot first, because it may prevent the new one.
        held.snapshot = None;
        let there = self.state.lock().snapshot.upgrade();
        let taken = match (join, there) {
            (true, Some(there)) => there,
            (true, None) => return Reply::Failed("there is no snapshot".into()),
            // Without the lock of the state, because a snapshot may take as long as a sync.
            (false, _) => match shared.snapshot() {
                Ok(taken) => Arc::new(taken),
                Err(e) => return Reply::Failed(e.to_string()),
            },
        };
        self.state.lock().snapshot = Arc::downgrade(&taken);
        let len = taken.len();
        held.snapshot = Some(taken);
        Reply::Snapshot(len)
    }

    fn answer(&self, command: Command, held: &mut HeldSnapshot) -> Reply {
        let done = |r: extant::Result<()>| match r {
            Ok(()) => Reply::Done,
            Err(e) => Reply::Failed(e.to_string()),
        };
        if command == Command::WaitForEnd {
            return self.wait_for_end();
        }
        let Some(shared) = self.state.lock().shared.clone() else {
            return Reply::Failed("the mount has ended".into());
        };
        match command {
            Command::Status => match shared.status() {
                Ok(status) => Reply::Status(Box::new(status)),
                Err(e) => Reply::Failed(e.to_string()),
            },
            Command::Metrics => match shared.status() {
                Ok(status) => {
                    let locks = lockmeter::Snapshot::take().to_prometheus();
                    Reply::Text(status.to_prometheus() + &locks)
                }
                Err(e) => Reply::Failed(e.to_string()),
            },
            Command::Locks => Reply::Text(lockmeter::Snapshot::take().to_string()),
            Command::Profile => Reply::Text(lockmeter::profile::Table::take().to_string()),
            Command::MeterLocks(on) => {
                lockmeter::set_on(on);
                Reply::Done
            }
            Command::MeterProfile(on) => {
                lockmeter::profile::set_on(on);
                Reply::Done
            }
            Command::Sync => done(shared.volume.sync()),
            Command::Freeze if held.frozen.is_some() => Reply::Failed("frozen already".into()),
            Command::Freeze => match shared.freeze() {
                Ok(guard) => {
                    held.frozen = Some(guard);
                    Reply::Done
                }
                Err(e) => Reply::Failed(e.to_string()),
            },
            Command::Snapshot => self.snapshot(&shared, false, held),
            Command::JoinSnapshot => self.snapshot(&shared, true, held),
            Command::Read { offset, len } => held.read(offset, len, &mut Vec::new()),
            Command::Thaw => match held.frozen.take() {
                Some(_) => Reply::Done,
                None => Reply::Failed("not frozen by this connection".into()),
            },
            Command::Size => size(&shared),
            Command::Grow { bytes } => told(grow(&shared, bytes)),
            Command::Fragments { ino } => told(fragments(&shared, ino)),
            Command::Defragment {
                ino,
                generation,
                from,
            } => told(defragment(&shared, (ino, generation), from)),
            Command::ReadOnly => done(shared.begin_read_only()),
            Command::ReadWrite => match shared.volume.read_only() {
                Some(why) => Reply::Failed(why),
                None => {
                    shared.end_read_only();
                    Reply::Done
                }
            },
            Command::WaitForEnd => self.wait_for_end(),
            #[cfg(debug_assertions)]
            Command::Trespass => Reply::Text(trespass()),
        }
    }

    fn wait_for_end(&self) -> Reply {
        let mut state = self.state.lock();
        loop {
            match &state.end {
                Some(Ok(())) => return Reply::Done,
                Some(Err(why)) => return Reply::Failed(why.clone()),
                None => self.ended.wait(&mut state),
            }
        }
    }
}

fn told(answer: extant::Result<Reply>) -> Reply {
    answer.unwrap_or_else(|e| Reply::Failed(e.to_string()))
}

fn size(shared: &Shared) -> Reply {
    let geometry = shared.volume.geometry();
    Reply::Size {
        blocks: geometry.blocks_count,
        block_size: geometry.block_size,
    }
}

fn grow(shared: &Shared, bytes: Option<u64>) -> extant::Result<Reply> {
    shared.while_writable(|volume| volume.grow(bytes))?;
    Ok(size(shared))
}

fn fragments(shared: &Shared, ino: u32) -> extant::Result<Reply> {
    let node = Node::of_number(&shared.volume, ino)?;
    let found = node.fragmentation()?;
    Ok(Reply::Fragments(Fragments {
        extents: found.before,
        least: found.least,
        blocks: found.blocks,
        generation: node.generation(),
    }))
}

fn defragment(shared: &Shared, (ino, generation): (u32, u32), from: u64) -> extant::Result<Reply> {
    let (next, moved) = shared.while_writable(|volume| {
        let node = Node::of_number(volume, ino)?;
        if node.generation() != generation {
            return Err(extant::Error::StaleInode(ino));
        }
        node.defragment_from(&Credentials::root(), from)
    })?;
    Ok(Reply::Defragmented { next, moved })
}

/// Tries the calls that a server does not need, like an attacker would; returns the outcome of each.
#[cfg(debug_assertions)]
fn trespass() -> String {
    let victim = std::env::temp_dir().join(format!("extant-trespass-{}", std::process::id()));
    let new = victim.with_extension("new");
    let socket = UnixListener::bind(&victim).map(drop);
    let tried: [(&str, io::Result<()>); 8] = [
        ("read a file", std::fs::read("/etc/passwd").map(drop)),
        ("make a file", std::fs::write(&new, "")),
        ("list a directory", std::fs::read_dir("/").map(drop)),
        (
            "remove a file",
            std::fs::remove_file("/etc/extant-trespass"),
        ),
        ("listen", socket),
        (
            "connect",
            std::net::TcpStream::connect("127.0.0.1:1").map(drop),
        ),
        (
            "run a program",
            std::process::Command::new("/bin/true").status().map(drop),
        ),
        (
            "mount",
            rustix::mount::mount_bind("/", "/").map_err(Into::into),
        ),
    ];
    for made in [victim, new] {
        // A server in a sandbox has made neither, and may not remove files.
        let _ = std::fs::remove_file(made);
    }
    let line = |(what, done): (&str, io::Result<()>)| match done {
        Ok(()) => format!("{what}: done\n"),
        Err(e) => format!("{what}: {:?}\n", e.kind()),
    };
    tried.map(line).concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Client, Command};
    use std::time::Duration;

    fn shared(image: &str) -> Arc<Shared> {
        Arc::new(Shared::new(extant::doc_volume(), image.into()).unwrap())
    }

    /// The kernel reuses a device number as soon as its mount is gone, even while the mount's server still closes the
    /// image.
    #[test]
    fn a_server_that_ends_leaves_the_next_ones_socket() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("sockets");
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        let path = dir.join("0:1.sock");
        let old = Server::start(&path, shared("old")).unwrap();
        let mut waits = Client::connect(&path).unwrap();
        waits.send(Command::WaitForEnd).unwrap();
        let new = Server::start(&path, shared("new")).unwrap();
        // Until the old server has accepted its client.
        while old.inner.state.lock().clients.is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        old.end(Ok(()));
        waits.receive().unwrap();
        let status = Client::connect(&path).unwrap().status().unwrap();
        assert_eq!(status.image, "new");
        new.end(Ok(()));
        assert!(!path.exists());
    }

    #[test]
    fn a_snapshot_is_read_by_all_who_join_and_ends_with_them() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        let path = dir.path().join("socket");
        let mount = shared("disk.img");
        let volume = mount.volume.clone();
        let server = Server::start(&path, mount).unwrap();
        let connect = || Client::connect(&path).unwrap();
        let (mut first, mut second) = (connect(), connect());
        assert!(second.snapshot(true).is_err() && second.read_snapshot(0, &mut [0]).is_err());
        let len = first.snapshot(false).unwrap();
        assert_eq!(second.snapshot(true).unwrap(), len);
        assert!(connect().snapshot(false).is_err(), "one at a time");
        // The superblock and the descriptors. A snapshot may show new contents of a block that was free.
        let mut before = vec![0; 4096];
        first.read_snapshot(0, &mut before).unwrap();
        volume.create_dir("/new").unwrap();
        volume.sync().unwrap();
        volume.freeze().unwrap().thaw();
        let mut again = vec![0; 4096];
        second.read_snapshot(0, &mut again).unwrap();
        assert!(before == again);
        second.read_snapshot(0, &mut vec![0; 3 << 20]).unwrap();
        assert!(second.read_snapshot(len, &mut [0]).is_err());
        assert!(
            second
                .ask(Command::Read {
                    offset: 0,
                    len: MOST_BYTES + 1
                })
                .is_err()
        );
        drop((first, second));
        // The server soon notices that they are gone.
        let mut third = connect();
        let began = std::time::Instant::now();
        while third.snapshot(false).is_err() {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "nobody took it away"
            );
        }
        third.read_snapshot(0, &mut again).unwrap();
        assert!(before != again);
        // Neither the volume nor the end waits for a client with a snapshot.
        drop(volume);
        server.end(Ok(()));
        assert!(third.read_snapshot(0, &mut again).is_err());
    }

    #[test]
    fn who_waits_is_told_how_it_ended() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        let path = dir.path().join("socket");
        let server = Server::start(&path, shared("disk.img")).unwrap();
        let mut client = Client::connect(&path).unwrap();
        // Frozen by this connection, until it sends another command or ends.
        client.ask(Command::Freeze).unwrap();
        assert!(Client::connect(&path).unwrap().status().unwrap().frozen);
        client.ask(Command::Thaw).unwrap();
        assert!(client.ask(Command::Thaw).is_err());
        client.send(Command::WaitForEnd).unwrap();
        server.end(Err("the disk is gone".into()));
        assert_eq!(
            client.receive().unwrap_err().to_string(),
            "the disk is gone"
        );
    }
}
