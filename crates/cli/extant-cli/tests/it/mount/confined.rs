//! The privileges that the server of a mount drops.

use super::support::{Mounted, image, over_each, place, script};
use extant_fuse::control::{Client, Command, Reply, socket_of};
use std::path::Path;

/// Tries system calls that a server does not need, and returns the results.
fn trespass(dir: &Path) -> String {
    let mounted = fuse_server::mounted_at(dir).unwrap().unwrap();
    let mut client = Client::connect(&socket_of(mounted.device)).unwrap();
    match client.ask(Command::Trespass).unwrap() {
        Reply::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

/// Every call is refused, and the mount continues.
#[test]
fn a_server_opens_connects_to_and_runs_nothing() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let text = trespass(mounted.dir());
        assert_eq!(text.lines().count(), 8, "{text}");
        for line in text.lines() {
            assert!(line.ends_with(": PermissionDenied"), "{text}");
        }
        script(
            mounted.dir(),
            "mkdir d; for i in $(seq 50); do echo $i >d/$i & done; wait; sync -f .; cat d/* >/dev/null; rm -r d",
        );
        mounted.unmount();
    });
}

/// The control of the test above: without the sandbox root may make nearly all of these calls.
#[test]
fn a_server_without_a_sandbox_may_do_what_its_user_may() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::with(&image, transport, &["--no-sandbox"], &[]);
        let text = trespass(mounted.dir());
        for what in [
            "read a file",
            "make a file",
            "list a directory",
            "listen",
            "run a program",
        ] {
            assert!(text.contains(&format!("{what}: done")), "{text}");
        }
        assert!(text.contains("connect: ConnectionRefused"), "{text}");
        mounted.unmount();
    });
}

/// The server has the descriptors that serving needs, and none of those that the mounting process had open.
#[test]
fn a_server_has_no_descriptors_of_who_called_it() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let secret = place.path().join("secret");
        std::fs::write(&secret, "of somebody else").unwrap();
        let open = std::fs::File::open(&secret).unwrap();
        let mounted = Mounted::with_descriptor(&image, transport, &open);
        let status = super::support::status(mounted.dir());
        let fds = std::fs::read_dir(format!("/proc/{}/fd", status["process"])).unwrap();
        for fd in fds {
            let target = std::fs::read_link(fd.unwrap().path()).unwrap_or_default();
            assert_ne!(target, secret);
        }
        mounted.unmount();
    });
}
