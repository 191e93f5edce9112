//! The program `extant-remote`: one image as an NBD export, for one client.
#![forbid(unsafe_code)]

use blockdev::BlockDevice;
use extant_nbd::{NbdDevice, NbdUrl, Options};
use extant_remote::{Image, Tunnel, end_now, io_timeout, runtime, serve, snapshot};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const USAGE: &str = "usage: extant-remote serve [--read-only] SOCKET ADDRESS
       extant-remote snapshot ADDRESS NAME

serve waits for one client at the socket, and ends when the client does. If SOCKET is -, standard input is the connection. It writes the line 'ready' to
standard output when clients may connect, and errors after that as lines of their own.
snapshot keeps the present state of an image: ADDRESS@NAME opens it.

Credentials come from the environment and the files of the store's own tools.";

fn main() -> ExitCode {
    // The program that started this one shows no other output.
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.to_string();
        let words: Vec<&str> = text.split_whitespace().collect();
        say(&format!("error: {}", words.join(" ")));
    }));
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["serve", "--read-only", socket, address] => export(socket, address, true),
        ["serve", socket, address] => export(socket, address, false),
        ["snapshot", address, name] => snapshot(address, name),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        ["--version" | "-V"] => {
            println!("extant-remote {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let status = match done {
        Ok(()) => 0,
        Err(error) => {
            say(&format!("error: {error}"));
            1
        }
    };
    end_now(status)
}

/// Longest time to finish requests of a client that has ended, if requests may wait for a server for long.
const LONGEST_END: Duration = Duration::from_secs(60);

/// Writes a line for the program that started this one, or for the user.
fn say(line: &str) {
    // A reader that is gone needs no line.
    let _ = writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush());
}

/// Socket of a listener; dropping it removes the name.
struct Name(PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Ends this process if the caller ends while an image is being opened, because a silent server may be waited for without end.
struct CallerWatch(Arc<AtomicBool>);

impl CallerWatch {
    fn start() -> Self {
        let opened = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&opened);
        std::thread::spawn(move || {
            let stdin = io::stdin();
            loop {
                // The end of the connection, or of a pipe, is reported unasked.
                let mut polled = [PollFd::new(&stdin, PollFlags::empty())];
                match poll(&mut polled, None) {
                    Err(Errno::INTR) => {}
                    Ok(_) if polled[0].revents().contains(PollFlags::HUP) => break,
                    _ => return,
                }
            }
            if !of_thread.load(Ordering::Relaxed) {
                end_now(1);
            }
        });
        Self(opened)
    }
}

impl Drop for CallerWatch {
    /// From now on the end of the caller is seen by whoever reads its requests.
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn export(socket: &str, address: &str, read_only: bool) -> io::Result<()> {
    let watch = CallerWatch::start();
    if Tunnel::is_address(address) {
        if let Some(device) = Tunnel::device(address)? {
            drop(watch);
            return export_device(socket, &device, 16);
        }
        let tunnel = Tunnel::open(address, runtime()?)?;
        drop(watch);
        let client = client(Path::new(socket))?;
        return client.map_or(Ok(()), |client| tunnel.serve(client));
    }
    if ["nbd://", "nbd+unix://"]
        .iter()
        .any(|scheme| address.starts_with(scheme))
    {
        let options = Options {
            read_only,
            io_timeout: io_timeout()?,
            ..Options::default()
        };
        let device = NbdDevice::connect(&NbdUrl::parse(address)?, &options)?;
        drop(watch);
        return export_device(socket, &device, 16);
    }
    let image = Image::open(address, read_only)?;
    drop(watch);
    let served = export_device(socket, image.device(), image.requests());
    // Another client may write from now on, even if this one broke the protocol.
    let released = image.release();
    served.and(released)
}

/// Serves a device to the client of a socket, with `threads` requests at once.
fn export_device(socket: &str, device: &dyn BlockDevice, threads: usize) -> io::Result<()> {
    let complain = |error: &io::Error| say(&format!("error: {error}"));
    let client = client(Path::new(socket))?;
    let Some(client) = client else {
        return Ok(());
    };
    let may_wait_long = io_timeout()?.is_some();
    let served = Arc::new(AtomicBool::new(false));
    let ended = || {
        if may_wait_long {
            let served = Arc::clone(&served);
            std::thread::spawn(move || {
                std::thread::sleep(LONGEST_END);
                // The requests have ended, and the claim of the image is being released.
                if !served.load(Ordering::Relaxed) {
                    end_now(1);
                }
            });
        }
    };
    let done = serve(client, device, threads, &complain, &ended);
    served.store(true, Ordering::Relaxed);
    done
}

/// Waits for the client. `None` if the caller is gone before it connects, which closes its end of standard input.
fn client(socket: &Path) -> io::Result<Option<UnixStream>> {
    if socket == Path::new("-") {
        let connection = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        say("ready");
        return Ok(Some(connection));
    }
    let listener = UnixListener::bind(socket)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", socket.display())))?;
    let name = Name(socket.to_owned());
    say("ready");
    let (ended, first) = std::sync::mpsc::channel();
    let gone = ended.clone();
    std::thread::spawn(move || {
        let mut byte = [0];
        while io::Read::read(&mut io::stdin(), &mut byte).is_ok_and(|n| n > 0) {}
        let _ = gone.send(None);
    });
    std::thread::spawn(move || {
        let _ = ended.send(Some(listener.accept()));
    });
    let accepted = first.recv().ok().flatten();
    drop(name);
    accepted
        .map(|accepted| accepted.map(|(stream, _)| stream))
        .transpose()
}
