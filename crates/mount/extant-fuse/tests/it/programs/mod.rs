//! Programs over a mount whose device is recorded: each notes the kernel's acknowledgements and their times. For every
//! fsync and fdatasync that returned, the device must have had a flush that began after the last write of the file's
//! data and ended before the return. Then power failures are simulated at random moments, and everything acknowledged
//! must be present.
//!
//! `make torture-programs` runs until 1,000,000 fsyncs have been acknowledged; EXTANT_FSYNCS sets another number.

use crate::it::common;
mod mount;
mod mounted_target;
mod session;
mod sqlite;
mod witness;
mod works;

use session::{Counts, Session};
use std::time::{Duration, Instant};

/// Duration of the short form.
const SHORT: Duration = Duration::from_secs(10);

#[test]
fn what_programs_were_told_is_so() {
    mount::isolated(|| {
        // Files are recognized by their permission bits.
        rustix::process::umask(rustix::fs::Mode::empty());
        needs::tools!("mke2fs", "e2fsck", "sqlite3");
        let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
        let long = common::torture().then_some(1_000_000);
        let wanted = number("EXTANT_FSYNCS").or(long).unwrap_or(u64::MAX);
        let first = number("EXTANT_SEED").unwrap_or(1);
        let start = Instant::now();
        let mut all = Counts::default();
        let mut seed = first;
        while all.fsyncs < wanted && (wanted < u64::MAX || start.elapsed() < SHORT) {
            all += Session::run(seed);
            if common::torture() {
                eprintln!("{:.0?}, to seed {seed}: {all}", start.elapsed());
            }
            seed += 1;
        }
        eprintln!("seeds {first} to {}: {all}", seed - 1);
        assert_eq!(all.uncovered, 0, "fsyncs returned without a flush");
        assert!(
            all.fsyncs > 100 && all.cuts > 20 && all.databases > 0,
            "{all}"
        );
    });
}
