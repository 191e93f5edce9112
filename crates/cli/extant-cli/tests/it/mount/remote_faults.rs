//! Volumes on servers that fail: what programs synced through a mount is there afterwards.

use super::kill::{check_database, database};
use super::random::Random;
use super::support::{EXTANT, Mounted, Transport, assert_clean, extant, isolated, place};
use needs::servers::{Server, Store, StoreKind};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Four programs write like databases through a mount, until `end` has ended it. Returns the numbers of their durable records.
pub fn databases(mounted: Mounted, end: impl FnOnce(Mounted, &[AtomicU64; 4])) -> [u64; 4] {
    let durable: [AtomicU64; 4] = Default::default();
    thread::scope(|s| {
        for (task, durable) in durable.iter().enumerate() {
            let dir = mounted.dir().join(format!("task{task}"));
            fs::create_dir_all(&dir).unwrap();
            s.spawn(move || database(&dir, durable, task as u64).unwrap_err());
        }
        end(mounted, &durable);
    });
    durable.map(AtomicU64::into_inner)
}

/// Waits until each program has made records durable.
pub fn wait_for_records(durable: &[AtomicU64; 4], count: u64) {
    let start = Instant::now();
    while durable.iter().any(|n| n.load(Ordering::SeqCst) < count) {
        assert!(start.elapsed() < Duration::from_secs(100), "{durable:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn check(mounted: &Mounted, durable: [u64; 4]) {
    for (task, durable) in durable.into_iter().enumerate() {
        let dir = mounted.dir().join(format!("task{task}"));
        check_database(&dir, durable);
        fs::remove_dir_all(dir).unwrap();
    }
}

fn rounds() -> u64 {
    match std::env::var_os("EXTANT_TORTURE") {
        Some(_) => 20,
        None => 2,
    }
}

pub fn qemu_nbd(image: &Path, socket: &Path) -> Server {
    let _ = fs::remove_file(socket);
    let child = Command::new("qemu-nbd")
        .args(["-f", "raw", "-t", "-x", "disk", "-k"])
        .args([socket, image])
        .spawn()
        .unwrap();
    let server = Server(child);
    let start = Instant::now();
    while !socket.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "no socket");
        thread::sleep(Duration::from_millis(5));
    }
    server
}

/// An NBD server is killed under a mount. The mount ends, and a mount over the next server has all synced records.
#[test]
fn what_was_synced_on_an_nbd_server_survives_its_end() {
    needs::tools!("qemu-nbd", "e2fsck");
    isolated(|| {
        let place = place();
        let (image, socket) = (place.path().join("image"), place.path().join("socket"));
        let file = fs::File::create(&image).unwrap();
        file.set_len(128 << 20).unwrap();
        let mut server = qemu_nbd(&image, &socket);
        let address = format!("nbd+unix:///disk?socket={}", socket.display());
        extant(["mkfs", &address, "-q"]);
        // Others wait for two intervals after a mount that was killed.
        extant(["tune", &address, "-E", "mmp_update_interval=1"]);
        let dir = place.path().join("mnt");
        for _ in 0..rounds() {
            let mounted = Mounted::on(address.as_ref(), &dir, Transport::Classic);
            let durable = databases(mounted, |mounted, durable| {
                wait_for_records(durable, 10);
                drop(server);
                mounted.kill();
            });
            server = qemu_nbd(&image, &socket);
            let again = Mounted::on(address.as_ref(), &dir, Transport::Classic);
            check(&again, durable);
            again.terminate();
            assert_clean(&image);
        }
        drop(server);
    });
}

/// Passes a direction of a connection on, and ends the connection after a number of bytes.
fn pass_on(from: &TcpStream, to: &TcpStream, mut most: usize) {
    let (mut reader, mut writer) = (from, to);
    let mut bytes = vec![0; 16 << 10];
    while most > 0 {
        let n = match reader.read(&mut bytes) {
            Ok(n) if n > 0 => n.min(most),
            _ => break,
        };
        if writer.write_all(&bytes[..n]).is_err() {
            break;
        }
        most -= n;
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// A way to a server that, while `fails` is set, answers every fifth connection with 503, and cuts all others somewhere: before a request has
/// arrived, or before its answer has.
fn faulty(port: u16, fails: &'static AtomicBool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut random = Random::new(7);
        for (n, client) in listener.incoming().flatten().enumerate() {
            let fails = fails.load(Ordering::SeqCst);
            let mut cut = |most: u64| {
                if fails {
                    random.below(most) as usize
                } else {
                    usize::MAX
                }
            };
            let (up, down) = if n % 2 == 0 {
                (cut(200_000), usize::MAX)
            } else {
                (usize::MAX, cut(4_000))
            };
            let busy = fails && n % 5 == 0;
            thread::spawn(move || {
                if busy {
                    let mut head = [0; 4096];
                    let _ = (&client).read(&mut head);
                    let _ = (&client).write_all(
                        b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                    );
                    return;
                }
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                thread::scope(|s| {
                    s.spawn(|| pass_on(&client, &server, up));
                    pass_on(&server, &client, down);
                });
            });
        }
    });
    own
}

#[test]
fn what_was_synced_on_a_faulty_s3_server_survives() {
    survives(StoreKind::Moto);
}

#[test]
fn what_was_synced_on_a_faulty_versitygw_survives() {
    survives(StoreKind::VersityGateway);
}

#[test]
fn what_was_synced_on_a_faulty_gs_server_survives() {
    survives(StoreKind::FakeGcs);
}

#[test]
fn what_was_synced_on_a_faulty_az_server_survives() {
    survives(StoreKind::Azurite);
}

/// A store answers with errors and loses connections under a mount, which is then killed with its helper. The next mount has all synced
/// records.
fn survives(kind: StoreKind) {
    needs::tools!("e2fsck");
    static FAILS: AtomicBool = AtomicBool::new(false);
    isolated(|| {
        needs::program("extant-remote", "extant-remote");
        let place = place();
        let Some(store) = Store::start(kind) else {
            return;
        };
        let envs = store.envs(faulty(store.port, &FAILS));
        let envs: Vec<_> = envs.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let run = |args: &[&str]| {
            let mut command = Command::new(EXTANT);
            let out = command.args(args).envs(envs.iter().copied()).output();
            let out = out.unwrap();
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{args:?}: {said}");
        };
        let address = &store.address("disk");
        run(&["mkfs", address, "--size", "64M", "-q"]);
        let dir = place.path().join("mnt");
        for round in 0..rounds() {
            FAILS.store(true, Ordering::SeqCst);
            let mounted = Mounted::on_env(address.as_ref(), &dir, &envs);
            let durable = databases(mounted, |mounted, durable| {
                wait_for_records(durable, 5);
                mounted.kill_with_helper();
            });
            FAILS.store(false, Ordering::SeqCst);
            let again = Mounted::on_env(address.as_ref(), &dir, &envs);
            check(&again, durable);
            again.terminate();
            let copy = place.path().join(format!("copy{round}"));
            run(&["pull", address, copy.to_str().unwrap()]);
            assert_clean(&copy);
        }
    });
}
