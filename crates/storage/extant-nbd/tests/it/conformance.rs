//! Servers written by others: a device over each keeps the promises of a block device.

use blockdev::{BlockDevice, conformance};
use extant_nbd::{NbdDevice, NbdUrl, Options};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

const LEN: u64 = 16 << 20;

/// Server of one export; ends with this.
struct Server {
    child: Child,
    dir: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Server {
    /// Starts a server that `command` describes for a folder with a `disk` and a place for the socket `s`.
    fn start(name: &str, command: impl FnOnce(&Path) -> Command) -> Self {
        let dir = std::env::temp_dir().join(format!("extant-nbd-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let disk = std::fs::File::create(dir.join("disk")).unwrap();
        disk.set_len(LEN).unwrap();
        let child = command(&dir).spawn().unwrap();
        let server = Self { child, dir };
        for _ in 0..500 {
            if server.dir.join("s").exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn connect(&self, export: &str) -> NbdDevice {
        self.connect_by(export, &Options::default())
    }

    fn connect_by(&self, export: &str, options: &Options) -> NbdDevice {
        let socket = self.dir.join("s");
        let url = format!("nbd+unix:///{export}?socket={}", socket.display());
        let url = NbdUrl::parse(&url).unwrap();
        // A socket exists before its server listens, and nbd-server ends after one connection.
        loop {
            match NbdDevice::connect(&url, options) {
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => std::thread::yield_now(),
                done => return done.unwrap(),
            }
        }
    }
}

fn conforms(name: &str, export: &str, align: u64, command: impl FnOnce(&Path) -> Command) {
    conforms_over(name, export, align, 1, command);
}

/// Checks a device over as many connections as the server allows, at most four; returns how many.
fn conforms_over(
    name: &str,
    export: &str,
    align: u64,
    connections: usize,
    command: impl FnOnce(&Path) -> Command,
) -> usize {
    let server = Server::start(name, command);
    let options = Options {
        connections,
        ..Options::default()
    };
    let device = server.connect_by(export, &options);
    assert!(device.len() >= LEN, "{name}");
    conformance::check(&device, align).unwrap_or_else(|e| panic!("{name}: {e}"));
    device.connections()
}

/// nbdkit with more arguments, the plugin last.
fn nbdkit(dir: &Path, more: &[&str]) -> Command {
    let mut command = Command::new("nbdkit");
    command.args(["-f", "-U"]).arg(dir.join("s")).args(more);
    command
}

#[test]
fn qemu_nbd() {
    needs::tools!("qemu-nbd", "qemu-img");
    let qemu = |dir: &Path, format: &str, disk: &str| {
        let mut command = Command::new("qemu-nbd");
        command.args(["-t", "-x", "disk", "-e", "8", "-f", format, "-k"]);
        command.arg(dir.join("s")).arg(dir.join(disk));
        command
    };
    conforms("qemu-raw", "disk", 1, |dir| qemu(dir, "raw", "disk"));
    conforms("qemu-qcow2", "disk", 1, |dir| {
        let made = Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2"])
            .arg(dir.join("disk.qcow2"))
            .arg(LEN.to_string())
            .status();
        assert!(made.unwrap().success());
        qemu(dir, "qcow2", "disk.qcow2")
    });
}

#[test]
fn qemu_storage_daemon() {
    needs::tools!("qemu-storage-daemon");
    conforms("qsd", "disk", 1, |dir| {
        let (socket, disk) = (dir.join("s"), dir.join("disk"));
        let mut command = Command::new("qemu-storage-daemon");
        command.arg("--blockdev").arg(format!(
            "driver=file,node-name=disk,discard=unmap,filename={}",
            disk.display()
        ));
        let server = format!("addr.type=unix,addr.path={}", socket.display());
        command.arg("--nbd-server").arg(server);
        let export = "type=nbd,id=e,node-name=disk,name=disk,writable=on";
        command.args(["--export", export]);
        command
    });
}

#[test]
fn nbdkit_and_its_filters() {
    needs::tools!("nbdkit");
    conforms("memory", "", 1, |dir| nbdkit(dir, &["memory", "16M"]));
    conforms("file", "", 1, |dir| {
        let mut command = nbdkit(dir, &["file"]);
        command.arg(dir.join("disk"));
        command
    });
    // Servers that flush every write, that are slow, that have a layer above the disk, and that lack write-zeroes.
    let filters: [&[&str]; 4] = [
        &["--filter=fua", "memory", "16M", "fuamode=force"],
        &[
            "--filter=delay",
            "memory",
            "16M",
            "wdelay=1ms",
            "rdelay=1ms",
        ],
        &["--filter=cow", "memory", "16M"],
        &["--filter=nozero", "memory", "16M"],
    ];
    for (nr, filter) in filters.into_iter().enumerate() {
        conforms(&format!("filter-{nr}"), "", 1, |dir| nbdkit(dir, filter));
    }
    // A server that accepts only whole blocks.
    let blocks = [
        "--filter=blocksize-policy",
        "memory",
        "16M",
        "blocksize-minimum=4096",
        "blocksize-error-policy=error",
    ];
    conforms("blocks", "", 4096, |dir| nbdkit(dir, &blocks));
}

#[test]
fn nbd_server() {
    needs::tools!("nbd-server");
    conforms("nbd-server", "disk", 1, |dir| {
        let text = format!(
            "[generic]\nunixsock = {}\n[disk]\nexportname = {}\nflush = true\ntrim = true\n",
            dir.join("s").display(),
            dir.join("disk").display()
        );
        std::fs::write(dir.join("config"), text).unwrap();
        let mut command = Command::new("nbd-server");
        command.arg("-d").arg("-C").arg(dir.join("config"));
        command.arg("-p").arg(dir.join("pid"));
        command
    });
}

/// A server that allows several connections gets them; another one is used over one.
#[test]
fn several_connections() {
    needs::tools!("nbdkit", "qemu-nbd", "qemu-storage-daemon");
    let over = |name: &str, export: &str, command: &dyn Fn(&Path) -> Command| {
        conforms_over(name, export, 1, 4, command)
    };
    let qemu = |dir: &Path, clients: &str| {
        let mut command = Command::new("qemu-nbd");
        command.args(["-t", "-x", "disk", "-f", "raw", "-e", clients, "-k"]);
        command.arg(dir.join("s")).arg(dir.join("disk"));
        command
    };
    assert_eq!(over("multi-qemu", "disk", &|dir| qemu(dir, "8")), 4);
    assert_eq!(over("multi-qemu-one", "disk", &|dir| qemu(dir, "1")), 1);
    let memory = |dir: &Path| nbdkit(dir, &["memory", "16M"]);
    assert_eq!(over("multi-memory", "", &memory), 4);
    let file = |dir: &Path| {
        let mut command = nbdkit(dir, &["file"]);
        command.arg(dir.join("disk"));
        command
    };
    assert_eq!(over("multi-file", "", &file), 4);
    let one = [
        "--filter=multi-conn",
        "memory",
        "16M",
        "multi-conn-mode=disable",
    ];
    assert_eq!(over("multi-off", "", &|dir| nbdkit(dir, &one)), 1);
}

/// An error of the server fails what depends on the request, and not the connection.
#[test]
fn errors_of_a_server_are_errors_of_requests() {
    needs::tools!("nbdkit");
    let error = [
        "--filter=error",
        "memory",
        "16M",
        "error=ENOSPC",
        "error-pwrite-rate=100%",
    ];
    let server = Server::start("errors", |dir| nbdkit(dir, &error));
    let device = server.connect("");
    device.write_at(0, &[1; 4096]).unwrap();
    for _ in 0..3 {
        let error = device.flush().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        device.read_at(0, &mut [0; 4096]).unwrap();
    }
}
