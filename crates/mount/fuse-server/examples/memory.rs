//! Mounts an empty file system in memory: `memory DIRECTORY [auto|uring|classic]`. The program ends with an unmount.

use std::sync::Arc;

use fuse_server::{MemoryFs, MountOptions, Session, Transport};

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(target) = arguments.next() else {
        eprintln!("usage: memory DIRECTORY [auto|uring|classic]");
        std::process::exit(2);
    };
    let transport = match arguments.next().as_deref() {
        None | Some("auto") => Transport::Auto,
        Some("uring") => Transport::Uring,
        Some("classic") => Transport::Classic,
        Some(other) => {
            eprintln!("there is no transport {other}");
            std::process::exit(2);
        }
    };
    let options = MountOptions {
        source: "memory".into(),
        subtype: Some("memory".into()),
        default_permissions: true,
        allow_other: rustix::process::geteuid().is_root(),
        ..MountOptions::default()
    };
    let connection = fuse_server::mount(target, &options)?;
    let session = Session::new(connection, Arc::new(MemoryFs::new()), transport, 0)?;
    eprintln!(
        "serving {} over {:?}",
        session.target().display(),
        session.transport()
    );
    session.run()
}
