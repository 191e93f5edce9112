//! `--io-timeout`: a server that is silent, gone or absent fails a command in time, or never, and Ctrl-C ends the wait.

use crate::cli::remote::{serve, wait_until};
use crate::cli::support::{Ran, Scratch};
use needs::servers::Server;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// The command under test, under a name.
fn called(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
    let program = needs::program("extant-remote", "extant-remote");
    command.arg0(name).env("EXTANT_REMOTE", program);
    command
}

/// Returns whether a command handles SIGINT, which would end it at once before.
fn has_handler(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:\t"));
    u64::from_str_radix(caught.unwrap(), 16).unwrap() & 1 << 1 != 0
}

/// Starts a command without waiting for its end.
fn start(args: &[&str]) -> Child {
    called("extant")
        .args(args)
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

/// A server that does not answer, or is not there: a command fails in the time of the user, and Ctrl-C ends a wait for ever.
fn fails_in_time_or_by_ctrl_c(url: &str) {
    let began = Instant::now();
    let (ran, took) = end(start(&["ls", url, "--io-timeout", "3"]), began);
    assert_eq!(
        (ran.code, ran.stderr.lines().count()),
        (Some(1), 1),
        "{}",
        ran.stderr
    );
    is_between(took, 3, 60);
    let began = Instant::now();
    let child = start(&["ls", url, "--io-timeout", "never"]);
    wait_until(|| has_handler(&child));
    std::thread::sleep(Duration::from_secs(1));
    signal(&child, Signal::INT);
    let (ran, took) = end(child, began);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(130), "error: interrupted\n")
    );
    is_between(took, 1, 60);
}

/// Serves a new volume of 128 MiB.
fn disk(s: &Scratch) -> (Server, String) {
    File::create(s.host("disk"))
        .unwrap()
        .set_len(128 << 20)
        .unwrap();
    let (server, url) = serve(s, "disk", &[]);
    s.ok(&["mkfs", &url, "-q", "-O", "^mmp"]);
    (server, url)
}

#[test]
fn a_silent_server_fails_a_command_in_time() {
    needs::tools!("qemu-nbd");
    let s = Scratch::empty();
    let (server, url) = disk(&s);
    signal(&server.0, Signal::STOP);
    fails_in_time_or_by_ctrl_c(&url);
    // The variable is the option of programs without one.
    for (name, option, code) in [
        ("extant", "ls", 1),
        ("dumpe2fs", "-h", 1),
        ("e2fsck", "-p", 8),
    ] {
        let began = Instant::now();
        let mut command = called(name);
        let out = command.args([option, &url]);
        let ran = Ran::of(out.env("EXTANT_IO_TIMEOUT", "4").output().unwrap());
        assert_eq!(ran.code, Some(code), "{name}");
        assert!(ran.stderr.contains("no reply in 4 s"), "{}", ran.stderr);
        // A command that looked at the image seven times would wait for 28 s.
        is_between(began.elapsed(), 4, 25);
    }
    // A user ends the wait in the middle, too.
    signal(&server.0, Signal::CONT);
    let child = importing(&s, &url, "never");
    signal(&server.0, Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    let began = Instant::now();
    signal(&child, Signal::INT);
    let (ran, took) = end(child, began);
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    is_between(took, 0, 60);
    // The command waits for a server that continues after more than the usual time.
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
    let (server, url) = disk(&s);
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
    is_between(took, 2, 60);
    // A command waits more than the usual 8 seconds for a server that restarts.
    let (server, url) = serve(&s, "disk", &[]);
    let child = importing(&s, &url, "never");
    drop(server);
    std::thread::sleep(Duration::from_secs(10));
    let (server, url) = serve(&s, "disk", &[]);
    let (ran, _) = end(child, Instant::now());
    let note = "no answer from the server for 5 s: still waiting, and Ctrl-C ends it";
    assert_eq!(
        (ran.code, ran.stderr),
        (Some(0), format!("note: {url}: {note}\n"))
    );
    s.ok(&["check", &url]);
    drop(server);
}

/// A server that is not there at the start is an error at once, unless the user has set a time.
#[test]
fn a_server_that_is_absent_is_waited_for() {
    needs::tools!("qemu-nbd");
    let s = Scratch::empty();
    let (server, url) = disk(&s);
    drop(server);
    let (ran, took) = end(start(&["ls", &url]), Instant::now());
    assert_eq!(
        (ran.code, ran.stderr),
        (Some(1), format!("error: {url}: Connection refused\n"))
    );
    is_between(took, 0, 20);
    fails_in_time_or_by_ctrl_c(&url);
    let child = start(&["ls", &url, "--io-timeout", "never"]);
    std::thread::sleep(Duration::from_secs(3));
    let (_server, url) = serve(&s, "disk", &[]);
    let (ran, _) = end(child, Instant::now());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    // An answer of the server ends the wait.
    let wrong = url.replace("/disk?", "/other?");
    let began = Instant::now();
    let (ran, took) = end(start(&["ls", &wrong, "--io-timeout", "never"]), began);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("does not exist"), "{}", ran.stderr);
    is_between(took, 0, 20);
}

#[test]
fn a_web_server_that_is_silent_or_absent_fails_a_command_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/disk", listener.local_addr().unwrap());
    fails_in_time_or_by_ctrl_c(&url);
    drop(listener);
    fails_in_time_or_by_ctrl_c(&url);
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
    is_between(began.elapsed(), 0, 60);
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
