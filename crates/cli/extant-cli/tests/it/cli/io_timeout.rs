//! `--io-timeout`: a server that is silent or gone fails a command in time, or never, and Ctrl-C ends the wait.

use crate::cli::remote::{serve, wait_until};
use crate::cli::support::{Ran, Scratch};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Starts a command without waiting for its end.
fn start(args: &[&str]) -> Child {
    let program = needs::program("extant-remote", "extant-remote");
    Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(args)
        .env("EXTANT_REMOTE", program)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end of a command, and returns the time that it took.
fn end(child: Child, began: Instant) -> (Ran, Duration) {
    let ran = Ran::of(child.wait_with_output().unwrap());
    (ran, began.elapsed())
}

fn is_between(took: Duration, least: u64, most: u64) {
    let (least, most) = (Duration::from_secs(least), Duration::from_secs(most));
    assert!((least..most).contains(&took), "{took:?}");
}

/// A volume on a server, and a command that has begun to write to it: an import that waits for its input.
fn importing(s: &Scratch, url: &str, time: &str) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(["cp", "-", &format!("{url}:/f"), "--io-timeout", time])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .current_dir(s.dir.path())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    std::thread::spawn(move || {
        // The input ends after the server is gone. The command may end before it has read all.
        for _ in 0..50 {
            if input.write_all(&[1; 1 << 20]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    // The time until the volume is open.
    std::thread::sleep(Duration::from_millis(1500));
    child
}

#[test]
fn a_silent_server_fails_a_command_in_time() {
    needs::tools!("qemu-nbd");
    let s = Scratch::empty();
    File::create(s.host("disk"))
        .unwrap()
        .set_len(128 << 20)
        .unwrap();
    let (server, url) = serve(&s, "disk", &[]);
    s.ok(&["mkfs", &url, "-q", "-O", "^mmp"]);
    signal(&server.0, Signal::STOP);
    let began = Instant::now();
    let (ran, took) = end(start(&["ls", &url, "--io-timeout", "3"]), began);
    assert_eq!(
        (ran.code, ran.stderr.lines().count()),
        (Some(1), 1),
        "{}",
        ran.stderr
    );
    is_between(took, 3, 10);
    // The variable is the option of commands without one.
    let began = Instant::now();
    let child = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(["ls", &url])
        .env("EXTANT_IO_TIMEOUT", "2")
        .output();
    assert_eq!(child.unwrap().status.code(), Some(1));
    is_between(began.elapsed(), 2, 8);
    // A user ends the wait, at the start and in the middle.
    let began = Instant::now();
    let child = start(&["ls", &url, "--io-timeout", "never"]);
    std::thread::sleep(Duration::from_secs(1));
    signal(&child, Signal::INT);
    let (ran, took) = end(child, began);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(130), "error: interrupted\n")
    );
    is_between(took, 1, 10);
    signal(&server.0, Signal::CONT);
    let child = importing(&s, &url, "never");
    signal(&server.0, Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    let began = Instant::now();
    signal(&child, Signal::INT);
    let (ran, took) = end(child, began);
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    is_between(took, 0, 15);
    // A server that goes on after longer than the usual time is waited for.
    signal(&server.0, Signal::CONT);
    s.ok(&["check", &url]);
    signal(&server.0, Signal::STOP);
    let child = start(&["ls", &url, "--io-timeout", "never"]);
    std::thread::sleep(Duration::from_secs(3));
    signal(&server.0, Signal::CONT);
    let (ran, _) = end(child, Instant::now());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_server_that_is_gone_fails_a_command_in_time() {
    needs::tools!("qemu-nbd");
    let s = Scratch::empty();
    File::create(s.host("disk"))
        .unwrap()
        .set_len(128 << 20)
        .unwrap();
    let (server, url) = serve(&s, "disk", &[]);
    s.ok(&["mkfs", &url, "-q", "-O", "^mmp"]);
    let child = importing(&s, &url, "3");
    let began = Instant::now();
    drop(server);
    let (ran, took) = end(child, began);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("there was no other for 3 s"),
        "{}",
        ran.stderr
    );
    is_between(took, 2, 12);
    // A command waits longer than the usual 8 seconds for a server that comes back.
    let (server, url) = serve(&s, "disk", &[]);
    let child = importing(&s, &url, "never");
    drop(server);
    std::thread::sleep(Duration::from_secs(10));
    let (server, url) = serve(&s, "disk", &[]);
    let (ran, _) = end(child, Instant::now());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    s.ok(&["check", &url]);
    drop(server);
}

#[test]
fn a_silent_web_server_fails_a_command_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/disk", listener.local_addr().unwrap());
    let began = Instant::now();
    let (ran, took) = end(start(&["ls", &url, "--io-timeout", "3"]), began);
    assert_eq!(
        (ran.code, ran.stderr.lines().count()),
        (Some(1), 1),
        "{}",
        ran.stderr
    );
    is_between(took, 3, 12);
    let began = Instant::now();
    let child = start(&["ls", &url, "--io-timeout", "never"]);
    std::thread::sleep(Duration::from_secs(1));
    signal(&child, Signal::INT);
    let (ran, took) = end(child, began);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(130), "error: interrupted\n")
    );
    is_between(took, 1, 10);
    drop(listener);
}

/// Returns whether a program serves the image of an address. One that has ended has no command line.
fn is_served(url: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|p| fs::read_to_string(p.path().join("cmdline")).ok());
    lines.any(|line| line.contains("\0serve\0") && line.contains(url))
}

#[test]
fn a_killed_command_leaves_no_program_behind() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/disk", listener.local_addr().unwrap());
    let mut child = start(&["ls", &url, "--io-timeout", "never"]);
    // The program waits for the reply to its first request.
    let _silent = listener.accept().unwrap();
    assert!(is_served(&url));
    child.kill().unwrap();
    child.wait().unwrap();
    let began = Instant::now();
    wait_until(|| !is_served(&url));
    is_between(began.elapsed(), 0, 2);
}

#[test]
fn wrong_times_are_refused() {
    let s = Scratch::empty();
    for time in ["0", "x", "-1", ""] {
        let ran = s.run(&["ls", "disk.img", &format!("--io-timeout={time}")]);
        let said = &ran.stderr;
        assert_eq!(ran.code, Some(2), "{said}");
        assert!(
            said.contains("is not a number of seconds (try 60 or never)"),
            "{said}"
        );
    }
}
