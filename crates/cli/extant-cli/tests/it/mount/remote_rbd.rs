//! Volumes on a Ceph cluster, mounted.

use super::kill::{check_database, database};
use super::support::{Mounted, Transport, extant, isolated, place};
use crate::cli::remote_rbd::judge;
use needs::ceph;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Four programs write like databases while an OSD is killed and comes back. Then the mount and its helper are killed. The next mount
/// breaks the dead lock and has all that was synced.
#[test]
fn what_was_synced_on_a_cluster_survives() {
    let Some(ceph) = ceph::running() else { return };
    isolated(|| {
        needs::program("extant-remote", "extant-remote");
        let rounds = if std::env::var_os("EXTANT_TORTURE").is_some() {
            10
        } else {
            1
        };
        for round in 0..rounds {
            let place = place();
            let name = format!("{}-{round}", ceph.image_name("mount"));
            let address = format!("rbd:{name}?conf={}", ceph.conf());
            extant(["mkfs", &address, "--size", "128M", "-q"]);
            let dir = place.path().join("mnt");
            let mounted = Mounted::on(address.as_ref(), &dir, Transport::Classic);
            let durable: [AtomicU64; 4] = Default::default();
            thread::scope(|s| {
                for (task, durable) in durable.iter().enumerate() {
                    let dir = mounted.dir().join(format!("task{task}"));
                    fs::create_dir(&dir).unwrap();
                    s.spawn(move || database(&dir, durable, task as u64).unwrap_err());
                }
                ceph.restart_osd(round % 3);
                // Work goes on after the loss.
                let before: Vec<u64> = durable.iter().map(|n| n.load(Ordering::SeqCst)).collect();
                let goes_on = |(n, before): (&AtomicU64, &u64)| n.load(Ordering::SeqCst) > *before;
                while !durable.iter().zip(&before).all(goes_on) {
                    thread::sleep(Duration::from_millis(5));
                }
                mounted.kill_with_helper();
            });
            let durable = durable.map(AtomicU64::into_inner);
            let again = Mounted::on(address.as_ref(), &dir, Transport::Classic);
            for (task, &durable) in durable.iter().enumerate() {
                check_database(&again.dir().join(format!("task{task}")), durable);
            }
            fs::write(again.dir().join("after"), "text").unwrap();
            again.terminate();
            judge(&ceph, &name, place.path());
            extant(["check", &address]);
        }
    });
}

/// A mount is the one writer: a second mount and a command are refused with the name of the first.
#[test]
fn a_mount_on_a_cluster_is_its_one_writer() {
    let Some(ceph) = ceph::running() else { return };
    isolated(|| {
        needs::program("extant-remote", "extant-remote");
        let place = place();
        let address = format!("rbd:{}?conf={}", ceph.image_name("one"), ceph.conf());
        extant(["mkfs", &address, "--size", "64M", "-q"]);
        let mounted = Mounted::on(
            address.as_ref(),
            &place.path().join("mnt"),
            Transport::Classic,
        );
        fs::write(mounted.dir().join("a"), "text").unwrap();
        let refused = std::process::Command::new(super::support::EXTANT)
            .args(["mkdir", &format!("{address}&timeout=20:/d")])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success());
        assert!(
            said.contains("in use by process ") && said.lines().count() == 1,
            "{said}"
        );
        mounted.terminate();
        assert_eq!(extant(["cat", &format!("{address}:/a")]), "text");
    });
}

/// Scratch mounts over an image and over a snapshot leave both as they are. The changes that one keeps are there for the next mount, and
/// are applied to the image.
#[test]
fn changes_over_a_cluster_are_kept_and_applied() {
    let Some(ceph) = ceph::running() else { return };
    isolated(|| {
        needs::program("extant-remote", "extant-remote");
        let place = place();
        let (name, conf) = (ceph.image_name("scratch"), ceph.conf());
        let address = format!("rbd:{name}?conf={conf}");
        extant(["mkfs", &address, "--size", "64M", "-q"]);
        fs::write(place.path().join("old"), "old").unwrap();
        let old = place.path().join("old");
        extant(["cp", old.to_str().unwrap(), &format!("{address}:/old")]);
        ceph.ok(&format!("rbd snap create --no-progress {name}@monday"));
        let export = || {
            let file = place.path().join("exported");
            ceph.ok(&format!(
                "rbd export --no-progress {name} {}",
                file.display()
            ));
            let bytes = fs::read(&file).unwrap();
            fs::remove_file(file).unwrap();
            bytes
        };
        let before = export();
        let dir = place.path().join("mnt");
        let overlay = place.path().join("changes");
        let keep = ["--scratch", "--keep", overlay.to_str().unwrap()];
        let mount = |address: &str, options: &[&str]| {
            let on = Mounted::on_with(address.as_ref(), &dir, Transport::Classic, options);
            assert_eq!(fs::read_to_string(on.dir().join("old")).unwrap(), "old");
            on
        };
        let snapshot = format!("rbd:{name}@monday?conf={conf}");
        for over in [&address, &snapshot] {
            let mounted = mount(over, &["--scratch"]);
            fs::write(mounted.dir().join("lost"), vec![7; 300_000]).unwrap();
            mounted.terminate();
            assert!(export() == before, "{over} has changed");
        }
        let mounted = mount(&address, &keep);
        fs::write(mounted.dir().join("kept"), vec![7; 300_000]).unwrap();
        mounted.terminate();
        let mounted = mount(&address, &keep);
        assert_eq!(fs::read(mounted.dir().join("kept")).unwrap(), [7; 300_000]);
        assert!(!mounted.dir().join("lost").exists());
        mounted.terminate();
        assert!(export() == before, "the image has changed");
        extant(["apply", overlay.to_str().unwrap(), &address]);
        judge(&ceph, &name, place.path());
        assert_eq!(extant(["cat", &format!("{address}:/kept")]).len(), 300_000);
        assert!(!extant(["ls", &format!("{snapshot}:/")]).contains("kept"));
    });
}
