//! The writer of an image: a process of a machine, as text in a claim.

use std::fs;
use std::process;

/// Returns the text for this process: `HOST BOOT PID START`.
pub fn this() -> String {
    let read = |path| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .replace(' ', "_")
    };
    let pid = process::id();
    let start = start_of(pid).unwrap_or_default();
    format!(
        "{} {} {pid} {start}",
        read("/proc/sys/kernel/hostname"),
        read("/proc/sys/kernel/random/boot_id"),
    )
}

/// Returns the time at which a process was started, in ticks since the boot; `None` if the process does not exist.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the process comes before, in parentheses, and may contain any character.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Returns the number of the process of a holder.
pub fn pid(text: &str) -> Option<u32> {
    text.split(' ').nth(2)?.parse().ok()
}

/// Whether a holder still runs.
#[derive(Debug, PartialEq, Eq)]
pub enum Life {
    Runs,
    Ended,
    /// The holder is on another machine.
    Elsewhere,
}

/// Returns whether the holder of this text still runs.
pub fn life(text: &str) -> Life {
    let fields: Vec<&str> = text.split(' ').collect();
    let &[_, _, pid, start] = fields.as_slice() else {
        return Life::Elsewhere;
    };
    if !is_of_this_boot(text) {
        return Life::Elsewhere;
    }
    let running = pid.parse().ok().and_then(start_of);
    match running {
        Some(time) if start.parse() == Ok(time) => Life::Runs,
        _ => Life::Ended,
    }
}

/// Returns whether the holder was started after the last boot of this machine.
pub fn is_of_this_boot(text: &str) -> bool {
    let own = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    !own.trim().is_empty() && text.split(' ').nth(1) == Some(own.trim())
}

/// Returns the holder for a message.
pub fn shown(text: &str) -> String {
    let mut fields = text.split(' ');
    let host: String = fields
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control())
        .take(64)
        .collect();
    let pid: String = fields
        .nth(1)
        .unwrap_or_default()
        .chars()
        .filter(char::is_ascii_digit)
        .take(10)
        .collect();
    format!("process {pid} on '{host}'")
}

#[test]
fn a_process_that_ended_is_known() {
    assert_eq!(life(&this()), Life::Runs);
    let mut child = process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let own = process::id().to_string();
    let other = this().replace(&format!(" {own} "), &format!(" {pid} "));
    assert_eq!(life(&other), Life::Ended);
    assert!(is_of_this_boot(&this()) && !is_of_this_boot("box b 1 2") && !is_of_this_boot(""));
    assert_eq!(life("box b 1 2"), Life::Elsewhere);
    assert_eq!(life("x"), Life::Elsewhere);
}
