//! Requests that commands send to a server. Each is at most one round trip, so these budgets bound what distance costs.

use crate::cli::remote::wait_until;
use crate::cli::support::{Scratch, printed};
use crate::mount::support::{Mounted, Transport, isolated};
use extant_nbd::{NbdDevice, NbdUrl, Options};
use needs::servers::Server;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

/// Kinds of requests.
const KINDS: [&str; 6] = ["Read", "Write", "Flush", "Zero", "Trim", "Extents"];

/// Server of an empty disk, which logs each request.
struct Logged {
    _server: Server,
    log: PathBuf,
    seen: usize,
    address: String,
}

impl Logged {
    /// Starts the server, with these arguments of nbdkit, too.
    fn start(s: &Scratch, more: &[&str]) -> Self {
        let (socket, log) = (s.host("socket"), s.host("log"));
        let child = Command::new("nbdkit")
            .args(["-f", "-e", "disk", "-U"])
            .arg(&socket)
            .args(["--filter=log", "--filter=delay", "memory", "512M"])
            .args(more)
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

    /// Returns the kinds of all requests.
    fn requests(&self) -> Vec<&'static str> {
        let text = fs::read_to_string(&self.log).unwrap();
        let kind = |line: &str| {
            let kind = line.split(' ').nth(3).unwrap_or_default();
            KINDS.into_iter().find(|k| *k == kind)
        };
        text.lines().filter_map(kind).collect()
    }

    /// Asserts that the requests since the last call are at least one and at most `most`, and that `flushes` of them at most are flushes.
    fn within(&mut self, what: &str, most: usize, flushes: usize) {
        let all = self.requests();
        let new = &all[self.seen..];
        self.seen = all.len();
        let count = |kind| new.iter().filter(|k| **k == kind).count();
        let counts = KINDS.map(|kind| (kind, count(kind)));
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
    let mut server = Logged::start(&s, &[]);
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

/// Runs git on a repository of the test's own.
fn git(dir: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@b"])
        .args(["-c", "core.checkStat=minimal", "-c", "safe.directory=*"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null");
    String::from_utf8(printed(&mut git)).unwrap()
}

/// A mount whose caches are empty looks at the names and inodes of a repository over a server that delays each request by 1 ms.
#[test]
fn git_status_on_a_cold_mount_stays_within_a_budget() {
    needs::tools!("nbdkit", "git");
    isolated(|| {
        let s = Scratch::empty();
        let tree = s.host("tree");
        for dir in 0..60 {
            fs::create_dir_all(tree.join(dir.to_string())).unwrap();
            for file in 0..50 {
                let text = format!("{dir} {file}\n").repeat(100);
                fs::write(tree.join(format!("{dir}/{file}")), text).unwrap();
            }
        }
        git(&tree, &["init", "-q"]);
        git(&tree, &["add", "."]);
        git(&tree, &["commit", "-q", "-m", "first"]);
        git(&tree, &["gc", "-q"]);
        let delays = ["delay-read=1ms", "delay-write=1ms"];
        let mut server = Logged::start(&s, &delays);
        let address = server.address.clone();
        s.ok(&["mkfs", &address, "-q", "-O", "^mmp", "--from", "@tree"]);
        let dir = s.host("mnt");
        let mount = || Mounted::on(address.as_ref(), &dir, Transport::Classic);
        // The index has the inodes of the tree on the host.
        let mounted = mount();
        git(mounted.dir(), &["status"]);
        mounted.terminate();
        let mounted = mount();
        server.seen = server.requests().len();
        let began = Instant::now();
        assert_eq!(git(mounted.dir(), &["status", "--porcelain"]), "");
        println!("git status: {} ms", began.elapsed().as_millis());
        server.within("git status", 350, 0);
        mounted.terminate();
    });
}
