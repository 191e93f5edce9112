//! Images on web servers, object stores and Ceph clusters, and NBD servers with TLS: the program `extant-remote` serves one as an NBD export of this
//! process.
//!
//! That program has the network, TLS and the credentials. This process talks to it over a pair of sockets, of which one
//! is the program's standard input, so that a killed process leaves no file behind. The program ends with the connection.

use crate::format::show::ShowPath;
use crate::image::io_timeout;
use crate::messages::advised::advised;
use anyhow::{Context, Result, anyhow, bail};
use blockdev::Access;
use extant_nbd::{NbdDevice, NbdUrl, Options};
use extant_terminal::{interrupt, output};
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Name of the program, and of the variable with its path.
const PROGRAM: &str = "extant-remote";
const VARIABLE: &str = "EXTANT_REMOTE";
/// Name of a socket for the program that stands for its standard input.
const STANDARD_INPUT: &str = "-";
/// Longest time for a reply of the program, unless the user sets another one.
const LONGEST: Duration = Duration::from_secs(600);
/// Longest time for a reply of an NBD server after the end of a mount.
pub(super) const NBD_AT_END: Duration = Duration::from_secs(15);
/// Time that the program has to report an error after the time of the user.
const MARGIN: Duration = Duration::from_secs(1);
/// Time that the program has to report why it serves nothing.
const LAST_LINE: Duration = Duration::from_secs(2);
/// A line of the program that is longer is cut.
const MAX_LINE: usize = 1000;

/// Makes an image of objects or of a Ceph cluster, zeros all of it. One of this size that exists is left unchanged, and a shorter one
/// becomes longer.
pub fn make(image: &Path, size: u64) -> Result<()> {
    let address = image.to_str().context("the address of a store is text")?;
    // The user gave the size elsewhere.
    connect_as(address, &with_size(address, size), Access::ReadWrite).map(drop)
}

/// Adds the size of an image to its address, so that opening it for writing makes it.
fn with_size(address: &str, size: u64) -> String {
    let mark = if address.contains('?') { '&' } else { '?' };
    format!("{address}{mark}size={size}")
}

/// Returns the path of the program: in the directory of the running program, or a name that the system looks for in `PATH`.
fn program() -> PathBuf {
    let named = std::env::var_os(VARIABLE).filter(|program| !program.is_empty());
    if let Some(program) = named {
        return program.into();
    }
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join(PROGRAM)));
    beside
        .filter(|program| program.is_file())
        .unwrap_or_else(|| PROGRAM.into())
}

/// Returns the name of the export in the address of an NBD server. The program exports other images without a name.
fn export_of(address: &str) -> &str {
    let place = address.strip_prefix("nbds://").unwrap_or("");
    let place = place.split('?').next().unwrap_or("");
    place.split_once('/').map_or("", |(_, export)| export)
}

/// Returns the longest time for a reply after the end of a mount. A store that is only slow gets all data.
fn at_end(address: &str) -> Duration {
    if address.starts_with("nbd") {
        NBD_AT_END
    } else {
        LONGEST
    }
}

/// Starts the program for an image, and connects to it.
pub fn connect(address: &str, access: Access) -> Result<NbdDevice> {
    connect_as(address, address, access)
}

/// Starts the program, with a connection as its standard input.
fn start(name: &str, address: &str, access: Access) -> Result<(UnixStream, Child)> {
    let (connection, of_program) = UnixStream::pair().context("a socket for a program")?;
    let program = program();
    let mut command = Command::new(&program);
    command.arg("serve");
    if access == Access::ReadOnly {
        command.arg("--read-only");
    }
    command
        .args([STANDARD_INPUT, address])
        .envs(io_timeout::text().map(|text| (io_timeout::VARIABLE, text)))
        .stdin(OwnedFd::from(of_program))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Ctrl-C is for this process, which ends the connection after its last write.
        .process_group(0);
    let child = command.spawn();
    // The command has the socket of the program, whose end this process would not notice otherwise.
    drop(command);
    let child = child.map_err(|error| match error.kind() {
        ErrorKind::NotFound => advised(
            format_args!("{name}: needs the program {PROGRAM}, which is not installed"),
            format_args!("install it next to extant, or name its path in {VARIABLE}"),
        ),
        _ => anyhow!("{}: {error}", program.shown()),
    })?;
    Ok((connection, child))
}

/// Connects to the image of an address, which errors and notes call `name`.
fn connect_as(name: &str, address: &str, access: Access) -> Result<NbdDevice> {
    let (connection, mut child) = start(name, address, access)?;
    let out = child.stdout.take().context("the output of a program")?;
    let started = first_line(name, BufReader::new(out));
    let (first, out) = match started {
        Ok(started) => started,
        Err(error) => {
            // The program ends with its connection, and releases an image that it has claimed.
            drop(connection);
            // Without a thread, the program is waited for by nobody.
            let _ = Builder::new().spawn(move || child.wait());
            return Err(error);
        }
    };
    match first.as_deref() {
        Some("ready") => {}
        other => {
            let why = other.unwrap_or("error: it ended without a message");
            let why = why.strip_prefix("error: ").unwrap_or(why);
            let _ = child.wait();
            match why.strip_prefix(address) {
                Some(why) => bail!("{name}{why}"),
                None => bail!("{name}: {PROGRAM}: {why}"),
            }
        }
    }
    // The address of a connection that is there already only names the export.
    let export = export_of(address);
    let url = NbdUrl::parse(&format!("nbd+unix:///{export}?socket={STANDARD_INPUT}"))?;
    let connection = Mutex::new(Some(connection));
    let options = Options {
        dial: Some(Arc::new(move |_| {
            let connection = connection
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            connection.ok_or_else(|| ErrorKind::NotConnected.into())
        })),
        // A store may be slow, and its own limits are shorter. The program reports an error of the server itself if it can.
        timeout: io_timeout::get().map_or(LONGEST, |time| time.saturating_add(MARGIN)),
        reconnect: Duration::ZERO,
        io_timeout: None,
        ..io_timeout::options(name, at_end(address))
    };
    let device = NbdDevice::connect(&url, &options);
    // The program ends when nothing has its connection any more.
    drop(options);
    report_output(name, device, child, out)
}

/// Reports what the program writes while it serves. If there is no connection, the line of the program is the error, because only the
/// program has the answer of the server.
fn report_output(
    name: &str,
    device: io::Result<NbdDevice>,
    mut child: Child,
    mut out: BufReader<ChildStdout>,
) -> Result<NbdDevice> {
    let (last, lines) = sync_channel(1);
    let serves = device.is_ok();
    let read = move || {
        if serves {
            report(out);
        } else {
            // The caller may have given up.
            let _ = last.send(line(&mut out));
        }
        let _ = child.wait();
    };
    // Without a thread, nothing is reported.
    let _ = Builder::new().spawn(read);
    device.or_else(|error| {
        interrupt::check()?;
        let line = lines.recv_timeout(LAST_LINE).ok().flatten();
        match line
            .as_deref()
            .and_then(|line| line.strip_prefix("error: "))
        {
            Some(why) => bail!("{name}: {PROGRAM}: {why}"),
            None => Err(error).context(name.to_owned()),
        }
    })
}

/// Reads the first line on another thread, so that a user can end the wait for a server that is silent. The program ends with
/// the connection.
fn first_line(
    name: &str,
    mut out: BufReader<ChildStdout>,
) -> Result<(Option<String>, BufReader<ChildStdout>)> {
    let began = Instant::now();
    let (sender, first) = sync_channel(1);
    let read = move || {
        let first = line(&mut out);
        // No line is needed if the user ended the wait.
        let _ = sender.send((first, out));
    };
    Builder::new()
        .spawn(read)
        .context("cannot start a thread")?;
    loop {
        match first.recv_timeout(Duration::from_millis(50)) {
            Ok(read) => return Ok(read),
            Err(RecvTimeoutError::Timeout) => {
                interrupt::check()?;
                io_timeout::note_wait(name, began.elapsed());
            }
            Err(RecvTimeoutError::Disconnected) => bail!("{PROGRAM}: its output ended"),
        }
    }
}

/// Reads a line without its end; `None` at the end of the output.
fn line(out: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut line = Vec::new();
    let read = out.read_until(b'\n', &mut line).ok()?;
    let text = String::from_utf8_lossy(&line);
    let plain = text.trim_end().chars().filter(|c| !c.is_control());
    (read > 0).then(|| plain.take(MAX_LINE).collect())
}

/// Reports what the program writes while it serves.
fn report(mut out: BufReader<ChildStdout>) {
    while let Some(line) = line(&mut out) {
        output::complain(format_args!(
            "{}",
            line.strip_prefix("error: ").unwrap_or(&line)
        ));
    }
}

#[test]
fn a_size_is_added_to_the_address() {
    assert_eq!(
        with_size("s3://b/x?cache=1M", 4096),
        "s3://b/x?cache=1M&size=4096"
    );
}
