//! Volumes over a connection that fails again and again: cut connections are replaced under a mount, and programs do not notice. What
//! they synced is there after an error of the server has ended the mount.

use super::relay::relay;
use super::remote_faults::{check, databases, qemu_nbd, wait_for_records};
use super::support::{Mounted, Transport, assert_clean, extant, isolated, place};
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Cut connections of a round, after which the server fails a request.
const CUTS_OF_ROUND: u64 = 20;

/// Waits until the count reaches a number.
fn wait_for(count: &AtomicU64, most: u64, what: &str) {
    let start = Instant::now();
    while count.load(Ordering::SeqCst) < most {
        let now = count.load(Ordering::SeqCst);
        assert!(
            start.elapsed() < Duration::from_secs(200),
            "{now} of {most} {what}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// EXTANT_DISCONNECTS is the number of connections that are cut, 20 if it is not set.
#[test]
fn what_was_synced_over_a_connection_that_fails_survives() {
    needs::tools!("qemu-nbd", "e2fsck");
    isolated(|| {
        needs::program("extant-remote", "extant-remote");
        let wanted = std::env::var("EXTANT_DISCONNECTS");
        let wanted: u64 = wanted.map_or(CUTS_OF_ROUND, |n| n.parse().unwrap());
        let place = place();
        let path = |name: &str| place.path().join(name);
        let image = path("image");
        fs::File::create(&image)
            .unwrap()
            .set_len(128 << 20)
            .unwrap();
        let _server = qemu_nbd(&image, &path("server"));
        let faults = relay(&path("relay"), &path("server"));
        let address = format!("nbd+unix:///disk?socket={}", path("relay").display());
        extant(["mkfs", &address, "-q", "-O", "^mmp"]);
        let dir = path("mnt");
        let (mut rounds, mut records) = (0, 0);
        while faults.cuts.load(Ordering::SeqCst) < wanted {
            let words = ["--io-timeout", "60"];
            let mounted = Mounted::on_with(address.as_ref(), &dir, Transport::Classic, &words);
            let durable = databases(mounted, |mounted, durable| {
                let before = faults.cuts.load(Ordering::SeqCst);
                let most = wanted.min(before + CUTS_OF_ROUND);
                faults.on.store(true, Ordering::SeqCst);
                wait_for(&faults.cuts, most, "cut connections");
                faults.on.store(false, Ordering::SeqCst);
                // Nothing has failed until now: the programs still make records durable.
                let counts = durable.each_ref().map(|n| n.load(Ordering::SeqCst));
                wait_for_records(durable, counts.into_iter().max().unwrap_or(0) + 1);
                let before = faults.errors.load(Ordering::SeqCst);
                faults.fails_next.store(true, Ordering::SeqCst);
                wait_for(&faults.errors, before + 1, "errors");
                // Each program gets an error at its next write, and ends.
                mounted.kill_when_stopped();
            });
            records += durable.iter().sum::<u64>();
            let again = Mounted::on(address.as_ref(), &dir, Transport::Classic);
            check(&again, durable);
            again.terminate();
            assert_clean(&image);
            rounds += 1;
        }
        let count = |count: &AtomicU64| count.load(Ordering::SeqCst);
        let (cuts, errors) = (count(&faults.cuts), count(&faults.errors));
        let (delays, reorders) = (count(&faults.delays), count(&faults.reorders));
        println!(
            "{rounds} rounds: {cuts} connections cut, {errors} errors, {delays} delays, {reorders} reordered replies; {records} \
             records were durable"
        );
        assert!(cuts >= wanted && errors == rounds, "{cuts} {errors}");
        assert!(
            delays >= wanted / 2 && reorders >= wanted / 2,
            "{delays} {reorders}"
        );
    });
}
