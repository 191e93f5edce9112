//! Images on web servers, object stores and Ceph clusters, and NBD servers with TLS: the program `extant-remote` serves one as an NBD export of this
//! process.
//!
//! That program has the network, TLS and the credentials. This process talks to it over one connection of a socket in a directory
//! that nobody else can enter; the name of the socket is gone once the connection stands. The program ends with the connection.

use crate::messages::advised::advised;
use anyhow::{Context, Result, anyhow, bail};
use blockdev::Access;
use extant_nbd::{NbdDevice, NbdUrl, Options};
use extant_terminal::output;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

/// Name of the program, and of the variable with its path.
const PROGRAM: &str = "extant-remote";
const VARIABLE: &str = "EXTANT_REMOTE";
/// A line of the program that is longer is cut.
const MAX_LINE: usize = 1000;

/// Makes an image of objects or of a Ceph cluster, zeros all of it. One of this size that exists is left unchanged; one of a Ceph cluster that
/// is shorter becomes longer.
pub fn make(image: &Path, size: u64) -> Result<()> {
    let address = image.to_str().context("the address of a store is text")?;
    connect(&with_size(address, size), Access::ReadWrite).map(drop)
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

/// Starts the program for an image, and connects to it.
pub fn connect(address: &str, access: Access) -> Result<NbdDevice> {
    let dir = tempfile::Builder::new()
        .prefix("extant-remote-")
        .tempdir()
        .context("a directory for a socket")?;
    let socket = dir.path().join("nbd");
    let path = socket
        .to_str()
        .context("the path of the temporary directory is not UTF-8")?;
    let program = program();
    let mut command = Command::new(&program);
    command.arg("serve");
    if access == Access::ReadOnly {
        command.arg("--read-only");
    }
    let child = command
        .args([path, address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Ctrl-C is for this process, which ends the connection after its last write.
        .process_group(0)
        .spawn();
    let mut child = child.map_err(|error| match error.kind() {
        ErrorKind::NotFound => advised(
            format_args!("{address}: needs the program {PROGRAM}, which is not installed"),
            format_args!("install it beside extant, or name its path in {VARIABLE}"),
        ),
        _ => anyhow!("{}: {error}", program.display()),
    })?;
    let out = child.stdout.take().context("the output of a program")?;
    let mut out = BufReader::new(out);
    match line(&mut out).as_deref() {
        Some("ready") => {}
        other => {
            let why = other.unwrap_or("error: it ended without a message");
            let why = why.strip_prefix("error: ").unwrap_or(why);
            let _ = child.wait();
            if why.starts_with(address) {
                bail!("{why}");
            }
            bail!("{address}: {PROGRAM}: {why}");
        }
    }
    // If this process ends before the connection stands, the end of its standard input ends the program.
    let export = export_of(address);
    let url = NbdUrl::parse(&format!("nbd+unix:///{export}?socket={}", escaped(path)))?;
    let options = Options {
        // A store may be slow, and its own limits are shorter.
        timeout: Duration::from_secs(600),
        reconnect: Duration::ZERO,
        ..Options::default()
    };
    let device = NbdDevice::connect(&url, &options).with_context(|| address.to_owned())?;
    std::thread::spawn(move || {
        report(out);
        let _ = child.wait();
    });
    Ok(device)
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

/// Escapes the characters of a path that end it in an address.
fn escaped(path: &str) -> String {
    let mut text = String::new();
    for c in path.chars() {
        match c {
            '%' => text.push_str("%25"),
            '&' => text.push_str("%26"),
            c => text.push(c),
        }
    }
    text
}

#[test]
fn a_size_is_added_to_the_address() {
    assert_eq!(
        with_size("s3://b/x?cache=1M", 4096),
        "s3://b/x?cache=1M&size=4096"
    );
}
