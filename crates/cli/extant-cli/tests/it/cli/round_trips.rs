//! Requests that commands send to a server. Each is at most one round trip, so these budgets bound what distance costs.

use crate::cli::remote::wait_until;
use crate::cli::support::Scratch;
use extant_nbd::{NbdDevice, NbdUrl, Options};
use needs::servers::Server;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

/// Server of an empty disk, which logs each request.
struct Logged {
    _server: Server,
    log: PathBuf,
    seen: usize,
    address: String,
}

impl Logged {
    fn start(s: &Scratch) -> Self {
        let (socket, log) = (s.host("socket"), s.host("log"));
        let child = Command::new("nbdkit")
            .args(["-f", "-e", "disk", "-U"])
            .arg(&socket)
            .args(["--filter=log", "memory", "512M"])
            .arg(format!("logfile={}", log.display()))
            .spawn()
            .unwrap();
        let address = format!("nbd+unix:///disk?socket={}", socket.display());
        let server = Self {
            _server: Server(child),
            log,
            seen: 0,
            address,
        };
        wait_until(|| UnixStream::connect(&socket).is_ok());
        server
    }

    /// Asserts that the requests since the last call are at least one and at most `most`, and that `flushes` of them at most are flushes.
    fn within(&mut self, what: &str, most: usize, flushes: usize) {
        let text = fs::read_to_string(&self.log).unwrap();
        let kinds = ["Read", "Write", "Flush", "Zero", "Trim", "Extents"];
        let kind = |line: &str| {
            let kind = line.split(' ').nth(3).unwrap_or_default();
            kinds.into_iter().find(|k| *k == kind)
        };
        let all: Vec<&str> = text.lines().filter_map(kind).collect();
        let new = &all[self.seen..];
        self.seen = all.len();
        let count = |kind| new.iter().filter(|k| **k == kind).count();
        let counts = kinds.map(|kind| (kind, count(kind)));
        println!("{what}: {} requests, {counts:?}", new.len());
        assert!((1..=most).contains(&new.len()), "{what}: {counts:?}");
        assert!(count("Flush") <= flushes, "{what}: {counts:?}");
    }
}

/// Each budget is the measured count and a quarter more.
#[test]
fn requests_to_a_server_stay_within_a_budget() {
    needs::tools!("nbdkit");
    let s = Scratch::empty();
    for dir in 0..60 {
        fs::create_dir_all(s.host(&format!("tree/{dir}"))).unwrap();
        for file in 0..50 {
            fs::write(s.host(&format!("tree/{dir}/{file}")), format!("{file}\n")).unwrap();
        }
    }
    let mut server = Logged::start(&s);
    let address = server.address.clone();
    s.ok(&["mkfs", &address, "-q", "--from", "@tree"]);
    server.within("mkfs from 3,000 files", 100, 3);
    s.ok(&["check", &address]);
    server.within("check", 300, 0);
    s.ok(&["ls", "-R", &address]);
    server.within("ls -R", 350, 0);
    s.ok(&["import", &address, "@tree", "--to", "/again"]);
    server.within("import of 3,000 files", 4_000, 13);
    s.ok(&["export", &format!("{address}:/again"), "@out"]);
    server.within("export of 3,000 files", 4_300, 0);
    s.ok(&["rm", "-r", &format!("{address}:/again")]);
    server.within("rm -r of 3,000 files", 550, 15);

    let url = NbdUrl::parse(&address).unwrap();
    let device = Arc::new(NbdDevice::connect(&url, &Options::default()).unwrap());
    let volume = extant::VolumeOptions::new().open_device(device).unwrap();
    for file in 0..10_000 {
        volume.create_new_file(format!("/new{file}")).unwrap();
    }
    volume.close().unwrap();
    server.within("10,000 creates", 400, 15);
}
