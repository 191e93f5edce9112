//! Images of a Ceph cluster that scripts/ceph-mini.sh runs. `make test-remote` starts it, and names its directory in `EXTANT_CEPH`.

use crate::support::Served;
use blockdev::{BlockDevice, conformance};
use needs::ceph::{self, Ceph};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Makes an image without contents, and returns the address.
fn image(ceph: &Ceph, name: &str, size: &str) -> String {
    let name = ceph.image_name(name);
    ceph.ok(&format!("rbd create --size {size} {name}"));
    format!("rbd:{name}?conf={}", ceph.conf())
}

fn start(address: &str) -> Result<Served, String> {
    let dir = tempfile::tempdir().unwrap();
    Served::start(dir.path(), address, &[])
}

fn refused(address: &str, why: &str) {
    let said = start(address).err().expect(why);
    assert!(said.contains(why) && said.lines().count() == 1, "{said}");
}

#[test]
fn an_image_of_a_pool_is_a_device() {
    let Some(ceph) = ceph::running() else { return };
    let address = image(&ceph, "conformance", "64M");
    let served = start(&address).unwrap();
    conformance::check(served.device(), 1).unwrap();
    served.device().write_at(5, b"kept").unwrap();
    served.end();
    let served = start(&format!("{address}&id=extant")).unwrap();
    let mut found = [0; 4];
    served.device().read_at(5, &mut found).unwrap();
    assert_eq!(&found, b"kept", "an orderly end writes everything");
    served.end();
    // Longer by the address, never shorter.
    let served = start(&format!("{address}&size=96M")).unwrap();
    assert_eq!(served.device().len(), 96 << 20);
    served.end();
    refused(
        &format!("{address}&size=32M"),
        "has 100663296 bytes already",
    );
    let name = ceph.image_name("conformance");
    assert!(ceph.ok(&format!("rbd info {name}")).contains("size 96 MiB"));
}

#[test]
fn the_library_tells_holes() {
    let Some(ceph) = ceph::running() else { return };
    let address = image(&ceph, "holes", "1G");
    let image = extant_remote::Image::open(&address, false).unwrap();
    let device = image.device();
    assert_eq!(device.next_data(0).unwrap(), None);
    device.write_at(500 << 20, b"x").unwrap();
    device.flush().unwrap();
    let data = device.next_data(0).unwrap().unwrap();
    assert!(
        data.contains(&(500 << 20)) && data.end - data.start <= 4 << 20,
        "{data:?}"
    );
    assert_eq!(device.next_data(data.end).unwrap(), None);
    device.discard(data.start, data.end - data.start).unwrap();
    device.extend(2 << 30).unwrap();
    assert_eq!(device.len(), 2 << 30);
    image.release().unwrap();
}

#[test]
fn snapshots_clones_and_namespaces_are_devices() {
    let Some(ceph) = ceph::running() else { return };
    let address = image(&ceph, "parent", "16M");
    let place = address.split('?').next().unwrap();
    let conf = ceph.conf();
    let served = start(&address).unwrap();
    served.device().write_at(0, b"old").unwrap();
    served.device().flush().unwrap();
    extant_remote::snapshot(&address, "monday").unwrap();
    let again = extant_remote::snapshot(&address, "monday")
        .unwrap_err()
        .to_string();
    assert!(again.contains("'monday' exists already"), "{again}");
    served.device().write_at(0, b"new").unwrap();
    served.device().flush().unwrap();
    let old = start(&format!("{place}@monday?conf={conf}")).unwrap();
    let mut found = [0; 3];
    old.device().read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"old");
    assert!(old.device().read_only());
    old.end();
    served.end();
    refused(
        &format!("{place}@friday?conf={conf}"),
        "no snapshot 'friday'",
    );
    let (parent, name) = (ceph.image_name("parent"), ceph.image_name("clone"));
    ceph.ok(&format!(
        "rbd clone --rbd-default-clone-format 2 {parent}@monday {name}"
    ));
    let clone = start(&format!("rbd:{name}?conf={conf}")).unwrap();
    clone.device().write_at(4096, b"own").unwrap();
    clone.device().read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"old");
    clone.end();
    let _ = ceph.run("rbd namespace create rbd/space");
    let inner = start(&format!("rbd:rbd/space/disk?conf={conf}&size=16M")).unwrap();
    inner.device().write_at(0, b"in").unwrap();
    inner.end();
    assert_eq!(ceph.ok("rbd ls rbd/space").trim(), "disk");
    ceph.ok("rbd rm rbd/space/disk");
}

#[test]
fn a_second_writer_is_refused_and_a_dead_one_is_fenced() {
    let Some(ceph) = ceph::running() else { return };
    let address = image(&ceph, "lock", "16M");
    let first = start(&address).unwrap();
    first.device().write_at(0, b"kept").unwrap();
    first.device().flush().unwrap();
    let owner = format!("in use by process {} on '", first.id());
    refused(&address, &owner);
    let mut found = [0; 4];
    // A reader needs no lock.
    let image = extant_remote::Image::open(&address, true).unwrap();
    image.device().read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"kept");
    first.device().write_at(0, b"lost").unwrap();
    first.kill();
    let second = start(&address).unwrap();
    second.device().read_at(0, &mut found).unwrap();
    assert!([b"kept", b"lost"].contains(&&found));
    assert!(
        ceph.ok("ceph osd blocklist ls").contains("127.0.0.1"),
        "the dead writer is fenced"
    );
    second.device().write_at(0, b"next").unwrap();
    second.device().flush().unwrap();
    second.end();
}

/// A writer whose lock was broken gets errors, and changes nothing.
#[test]
fn a_writer_without_its_lock_writes_nothing() {
    let Some(ceph) = ceph::running() else { return };
    let address = image(&ceph, "fenced", "16M");
    let name = ceph.image_name("fenced");
    let old = start(&address).unwrap();
    old.device().write_at(0, b"old").unwrap();
    old.device().flush().unwrap();
    // The note is about another process, as if it came from another machine.
    let lock = ceph.ok(&format!("rbd lock ls {name}"));
    let line = lock.lines().last().unwrap();
    let mut fields = line.split_whitespace();
    let (client, cookie) = (
        fields.next().unwrap(),
        line.split("  ").nth(1).unwrap().trim(),
    );
    let out = Command::new("rbd")
        .args(["lock", "rm", &name, cookie, client])
        .env("CEPH_CONF", ceph.conf())
        .output()
        .unwrap();
    assert!(out.status.success(), "{lock}: {out:?}");
    let new = start(&address).unwrap();
    new.device().write_at(0, b"new").unwrap();
    new.device().flush().unwrap();
    let _ = old.device().write_at(0, b"bad");
    assert!(old.device().flush().is_err());
    let mut found = [0; 3];
    new.device().read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"new");
    new.end();
    old.kill();
}

/// A lock of another program, which would give it away, is left alone.
#[test]
fn a_lock_of_another_program_is_respected() {
    let Some(ceph) = ceph::running() else { return };
    let address = image(&ceph, "foreign", "64M");
    let name = ceph.image_name("foreign");
    let mut bench = Command::new("rbd")
        .args(["bench", "--io-type", "write", "--io-total", "1T", &name])
        .env("CEPH_CONF", ceph.conf())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while ceph.ok(&format!("rbd lock ls {name}")).is_empty() {}
    let said = start(&address).err();
    bench.kill().unwrap();
    bench.wait().unwrap();
    let said = said.unwrap();
    assert!(
        said.contains("in use by the client at 127.0.0.1:"),
        "{said}"
    );
}

/// An OSD is killed and started again while four threads write and flush: no flushed write is lost.
#[test]
fn an_osd_is_lost_in_the_middle_of_writing() {
    let Some(ceph) = ceph::running() else { return };
    let address = image(&ceph, "osd", "64M");
    let served = start(&address).unwrap();
    let ends = AtomicBool::new(false);
    let synced: Vec<u8> = std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..4_u64)
            .map(|task| {
                let (device, ends) = (served.device(), &ends);
                scope.spawn(move || {
                    let mut round = 0_u8;
                    while !ends.load(SeqCst) && round < 250 {
                        round += 1;
                        for n in 0..8 {
                            let at = (task * 8 + n) << 20;
                            device.write_at(at, &[round; 9000]).unwrap();
                        }
                        device.flush().unwrap();
                    }
                    round
                })
            })
            .collect();
        ceph.restart_osd(1);
        ends.store(true, SeqCst);
        tasks.into_iter().map(|task| task.join().unwrap()).collect()
    });
    // The program has no time to write its cache.
    served.kill();
    let served = start(&address).unwrap();
    for (task, round) in (0..).zip(synced) {
        for n in 0..8 {
            let mut found = [0; 9000];
            served
                .device()
                .read_at((task * 8 + n) << 20, &mut found)
                .unwrap();
            assert_eq!(found, [round; 9000], "task {task}, place {n}");
        }
    }
    served.end();
}

/// Lets the cluster answer again when it is dropped.
struct Paused<'c>(&'c Ceph);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.run("ceph osd unset pause");
    }
}

/// A request that is not answered in time fails, nothing is written after it, and the program ends.
#[test]
fn a_cluster_that_stops_answering_ends_the_wait() {
    let Some(ceph) = ceph::running() else { return };
    let address = image(&ceph, "paused", "16M");
    let served = start(&format!("{address}&timeout=2")).unwrap();
    served.device().write_at(0, b"kept").unwrap();
    served.device().flush().unwrap();
    ceph.ok("ceph osd set pause");
    let paused = Paused(&ceph);
    let began = std::time::Instant::now();
    // The OSDs learn of the pause a little later.
    let write = || {
        let device = served.device();
        device
            .write_at(0, b"late")
            .and_then(|()| device.flush())
            .is_ok()
    };
    while write() {}
    assert!(
        !write(),
        "nothing is written after a request without an answer"
    );
    served.end();
    refused(
        &format!("{address}&timeout=2"),
        "did not answer within 2 seconds",
    );
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    drop(paused);
    let served = start(&address).unwrap();
    let mut found = [0; 4];
    served.device().read_at(0, &mut found).unwrap();
    assert!([b"kept", b"late"].contains(&&found));
    served.end();
}

#[test]
fn what_is_wrong_with_a_cluster_is_said_in_one_line() {
    let Some(ceph) = ceph::running() else { return };
    let conf = ceph.conf();
    let plain = image(&ceph, "plain", "16M");
    let name = ceph.image_name("plain");
    refused(
        &format!("rbd:rbd/none?conf={conf}"),
        "no image 'none' in the pool",
    );
    refused(&format!("rbd:none/disk?conf={conf}"), "no pool 'none'");
    refused(
        "rbd:rbd/x?conf=/no/such.conf",
        "/no/such.conf cannot be read",
    );
    refused(&format!("rbd:rbd/x?conf={conf}&id=nobody"), "no key for it");
    ceph.ok(&format!(
        "rbd feature disable {name} fast-diff object-map exclusive-lock"
    ));
    refused(&plain, "has no exclusive lock");
    // A cluster that does not exist ends the wait after the time of the address.
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(&conf).unwrap();
    let dead: Vec<&str> = text
        .lines()
        .map(|line| {
            if line.starts_with("mon host") {
                "mon host = 127.0.0.1:1"
            } else {
                line
            }
        })
        .collect();
    let dead_conf = dir.path().join("dead.conf");
    std::fs::write(&dead_conf, dead.join("\n") + "\n").unwrap();
    let began = std::time::Instant::now();
    refused(
        &format!("rbd:rbd/x?conf={}&timeout=2", dead_conf.display()),
        "did not answer within 2 seconds",
    );
    assert!(began.elapsed().as_secs() < 20);
}
