//! Errors, sizes and rates, as extant-terminal reads and writes them.

use anyhow::{Context, Result, anyhow};
use extant_terminal::numbers::{human, rate, size};
use extant_terminal::output::one_line;
use std::io;

#[test]
fn causes_are_told_once_and_in_words() {
    let missing = io::Error::from_raw_os_error(2);
    let e: Result<()> = Err(missing).context("opening x: No such file or directory (os error 2)");
    let e = e.context("making y").unwrap_err();
    assert_eq!(
        one_line(&e),
        "making y: opening x: No such file or directory"
    );
    assert_eq!(one_line(&anyhow!("a (os error 13): b")), "a: b");
    assert_eq!(one_line(&anyhow!("a (os error x) b")), "a (os error x) b");
}

#[test]
fn numbers_are_read() {
    assert_eq!(size("8G").unwrap(), 8 << 30);
    assert_eq!(size("1.5M").unwrap(), 3 << 19);
    assert_eq!(size("4096").unwrap(), 4096);
    assert_eq!(size("64MiB").unwrap(), 64 << 20);
    assert_eq!(size("64MB").unwrap(), 64_000_000);
    assert_eq!(size("1.5GiB").unwrap(), 3 << 29);
    assert_eq!(size("2048s").unwrap(), 1 << 20);
    for bad in ["", "G", "-1", "5X", "1e30T"] {
        assert!(size(bad).is_err(), "{bad}");
    }
}

#[test]
fn numbers_are_written() {
    assert_eq!(human(1023), "1023");
    assert_eq!(human(4096), "4.0K");
    assert_eq!(human(1 << 40), "1.0T");
    assert_eq!(rate(1_250_000.0), "1.25 M");
}
