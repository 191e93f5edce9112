//! The program `extant-remote`: one image as an NBD export, for one client.
#![forbid(unsafe_code)]

use blockdev::BlockDevice;
use extant_nbd::{NbdDevice, NbdUrl, Options};
use extant_remote::{BeforeClaim, Image, Tunnel, end_now, io_timeout, runtime, serve, snapshot};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

const USAGE: &str = "usage: extant-remote serve [--read-only] SOCKET ADDRESS
       extant-remote snapshot ADDRESS NAME

serve waits for one client at the socket, and ends when the client does. If SOCKET is -, standard input is the connection. It writes the line 'ready' to
standard output when clients may connect, and errors after that as lines of their own.
snapshot keeps the present state of an image: ADDRESS@NAME opens it.

Credentials come from the environment and the files of the store's own tools.";

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(report_panic));
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

/// Name of a socket that stands for standard input.
const STANDARD_INPUT: &str = "-";
/// Longest time to finish requests of a client that has ended, if requests may wait for a server for long.
const LONGEST_END: Duration = Duration::from_secs(60);

/// Writes a line for the program that started this one, or for the user.
fn say(line: &str) {
    // A reader that is gone needs no line.
    let _ = writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush());
}

/// Reports a panic, without the place in the source. Only that of the main thread ends this process.
fn report_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    let words: Vec<&str> = text.unwrap_or("panic").split_whitespace().collect();
    let line = format!("internal error: {}", words.join(" "));
    if std::thread::current().name() == Some("main") {
        // The program that started this one shows no other output.
        say(&format!("error: {line}"));
    } else {
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Socket of a listener; dropping it removes the name.
struct Name(PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Progress of opening an image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// Nothing is lost if this process ends.
    Waits,
    /// The image is being claimed, and the claim must be released.
    Claims,
    Opened,
}

/// Ends this process if the caller ends while an image is being opened, because a silent server may be waited for without end.
struct CallerWatch(Arc<Mutex<Opening>>);

impl CallerWatch {
    /// Begins to watch standard input, if it is the connection to the caller.
    fn start(socket: &str) -> io::Result<Self> {
        let watch = Self(Arc::new(Mutex::new(Opening::Waits)));
        let shared = Self(Arc::clone(&watch.0));
        if socket == STANDARD_INPUT {
            let wait = move || {
                if wait_for_end_of_stdin() {
                    shared.caller_ended();
                }
            };
            Builder::new().spawn(wait)?;
        }
        Ok(watch)
    }

    fn state(&self) -> MutexGuard<'_, Opening> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn caller_ended(&self) {
        // The lock is held to the end, so that no claim begins.
        let state = self.state();
        if *state == Opening::Waits {
            end_now(1);
        }
        drop(state);
        // Once the image is open, the thread that reads requests finds the end of the connection, and the claim is released.
        std::thread::sleep(LONGEST_END);
        if *self.state() == Opening::Claims {
            end_now(1);
        }
    }

    /// Returns a function that must be called before the image is claimed.
    fn before_claim(&self) -> BeforeClaim {
        let shared = Self(Arc::clone(&self.0));
        BeforeClaim::new(move || *shared.state() = Opening::Claims)
    }

    /// Ends the watch: from now on, the thread that reads requests finds the end of the connection.
    fn end(&self) {
        *self.state() = Opening::Opened;
    }
}

/// Waits until the other end of standard input is closed. Returns false if the system cannot tell.
fn wait_for_end_of_stdin() -> bool {
    let stdin = io::stdin();
    loop {
        // The system reports this end although no event is asked for.
        let mut polled = [PollFd::new(&stdin, PollFlags::empty())];
        match poll(&mut polled, None) {
            Err(Errno::INTR) => {}
            Ok(_) => return polled[0].revents().contains(PollFlags::HUP),
            Err(_) => return false,
        }
    }
}

fn export(socket: &str, address: &str, read_only: bool) -> io::Result<()> {
    let watch = CallerWatch::start(socket)?;
    if Tunnel::is_address(address) {
        if let Some(device) = Tunnel::device(address)? {
            watch.end();
            return export_device(socket, &device, 16);
        }
        let tunnel = Tunnel::open(address, runtime()?)?;
        watch.end();
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
        watch.end();
        return export_device(socket, &device, 16);
    }
    let image = Image::open_noting(address, read_only, watch.before_claim())?;
    watch.end();
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
            let end = move || {
                std::thread::sleep(LONGEST_END);
                // The requests have ended, and the claim of the image is being released.
                if !served.load(Ordering::Relaxed) {
                    end_now(1);
                }
            };
            // Without a thread, the end takes as long as the server does.
            let _ = Builder::new().spawn(end);
        }
    };
    let done = serve(client, device, threads, &complain, &ended);
    served.store(true, Ordering::Relaxed);
    done
}

/// Waits for the client. `None` if the caller is gone before it connects, which closes its end of standard input.
fn client(socket: &Path) -> io::Result<Option<UnixStream>> {
    if socket == Path::new(STANDARD_INPUT) {
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
    let wait_for_caller = move || {
        let mut byte = [0];
        while io::Read::read(&mut io::stdin(), &mut byte).is_ok_and(|n| n > 0) {}
        let _ = gone.send(None);
    };
    Builder::new().spawn(wait_for_caller)?;
    let accept = move || {
        let _ = ended.send(Some(listener.accept()));
    };
    Builder::new().spawn(accept)?;
    let accepted = first.recv().ok().flatten();
    drop(name);
    accepted
        .map(|accepted| accepted.map(|(stream, _)| stream))
        .transpose()
}
