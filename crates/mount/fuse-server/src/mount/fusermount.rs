//! Mounting through `fusermount3`, which is set-user-id root: it opens the device, mounts, and passes the device on
//! through the socket whose number is in `_FUSE_COMMFD`.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSliceMut, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use super::MountOptions;

/// The names of version 3 and version 2, which are equivalent here.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

pub(super) fn mount(target: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // The socket is the helper's standard input, which needs no clearing of close-on-exec.
    let mut child = start(
        &["-o".as_ref(), joined(options)?.as_os_str()],
        target,
        |command| {
            command
                .env("_FUSE_COMMFD", "0")
                .stdin(Stdio::from(theirs.try_clone()?));
            Ok(())
        },
    )?;
    drop(theirs);
    let device = receive(&ours);
    let complaint = complaint(&mut child)?;
    match (device, complaint) {
        (Ok(Some(device)), None) => Ok(device),
        (Err(error), None) => Err(error),
        (_, Some(complaint)) => Err(complaint),
        (Ok(None), None) => Err(io::Error::other("it passed no device on")),
    }
}

pub(super) fn unmount(target: &Path, flags: &[&OsStr]) -> io::Result<()> {
    let mut arguments = vec![OsStr::new("-u")];
    arguments.extend(flags);
    let mut child = start(&arguments, target, |command| {
        command.stdin(Stdio::null());
        Ok(())
    })?;
    complaint(&mut child)?.map_or(Ok(()), Err)
}

fn start(
    arguments: &[&OsStr],
    target: &Path,
    set_up: impl Fn(&mut Command) -> io::Result<()>,
) -> io::Result<Child> {
    let mut result = Err(Errno::NOENT.into());
    for helper in HELPERS {
        let mut command = Command::new(helper);
        set_up(&mut command)?;
        command
            .args(arguments)
            .arg("--")
            .arg(target)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        result = command.spawn();
        if !matches!(&result, Err(error) if error.kind() == io::ErrorKind::NotFound) {
            break;
        }
    }
    result.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(error.kind(), "it is not installed"),
        _ => error,
    })
}

/// Waits for the helper; returns its error message if it failed.
fn complaint(child: &mut Child) -> io::Result<Option<io::Error>> {
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // Ignore output that is not text.
        let _ = stderr.read_to_string(&mut said);
    }
    let status = child.wait()?;
    if status.success() {
        return Ok(None);
    }
    let said = said.trim();
    Ok(Some(match said {
        "" => io::Error::other(status.to_string()),
        said => io::Error::new(io::ErrorKind::PermissionDenied, said.to_owned()),
    }))
}

fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        match recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => break,
        }
    }
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// Joins all options into one argument; escapes commas and backslashes.
fn joined(options: &MountOptions) -> io::Result<OsString> {
    let source = options.source.to_str().ok_or(Errno::INVAL)?;
    let mut words = vec![format!("fsname={}", escaped(source))];
    if let Some(subtype) = &options.subtype {
        words.push(format!("subtype={}", escaped(subtype)));
    }
    // nosuid and nodev are omitted, because the helper always sets them for a user.
    let flags = [
        (options.read_only, "ro"),
        (options.noexec, "noexec"),
        (options.noatime, "noatime"),
        (options.nodiratime, "nodiratime"),
        (options.sync, "sync"),
        (options.dirsync, "dirsync"),
    ];
    words.extend(
        flags
            .into_iter()
            .filter(|(wanted, _)| *wanted)
            .map(|(_, word)| word.to_owned()),
    );
    words.extend(options.for_fuse());
    Ok(words.join(",").into())
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace(',', "\\,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_a_source_end_no_option() {
        let options = MountOptions {
            source: "a,b\\".into(),
            read_only: true,
            ..MountOptions::default()
        };
        assert_eq!(joined(&options).unwrap(), r"fsname=a\,b\\,ro");
    }
}
