//! Images on web servers and object stores, through the program `extant-remote`.

use crate::cli::remote::wait_until;
use crate::cli::support::{Ran, Scratch};
use needs::servers::{Server, free_port};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;

/// Runs the command with the program that serves addresses.
fn run(args: &[&str]) -> Ran {
    let program = needs::program("extant-remote", "extant-remote");
    let out = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(args)
        .env("EXTANT_REMOTE", program)
        .output();
    Ran::of(out.unwrap())
}

pub fn ok(args: &[&str]) -> String {
    let ran = run(args);
    assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
    assert_eq!(ran.stderr, "", "{args:?}");
    ran.text()
}

pub fn fails(args: &[&str], why: &str) {
    let ran = run(args);
    assert_eq!(ran.code, Some(1), "{args:?}");
    let is_one_line = ran.stderr.lines().count() == 1;
    assert!(
        ran.stderr.contains(why) && is_one_line,
        "{args:?}: {}",
        ran.stderr
    );
}

#[test]
fn an_empty_extant_remote_variable_is_ignored() {
    let program = needs::program("extant-remote", "extant-remote");
    let s = Scratch::empty();
    let command = s.host("extant");
    std::fs::copy(env!("CARGO_BIN_EXE_extant"), &command).unwrap();
    std::os::unix::fs::symlink(program, s.host("extant-remote")).unwrap();
    let url = format!("file+objects://{}", s.host("store").display());
    let out = Command::new(command)
        .args(["mkfs", &url, "--size", "16M", "-q"])
        .env("EXTANT_REMOTE", "")
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
}

/// A command that is killed while its program still connects leaves no file behind.
#[test]
fn a_command_killed_while_connecting_leaves_nothing() {
    let s = Scratch::empty();
    let (program, started) = (s.host("program"), s.host("started"));
    let text = format!("#!/bin/sh\ntouch '{}'\nread -r line\n", started.display());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let temporary = s.host("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(["ls", "https://host/image:/"])
        .env("EXTANT_REMOTE", &program)
        .env("TMPDIR", &temporary)
        .spawn()
        .unwrap();
    wait_until(|| started.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let left: Vec<_> = std::fs::read_dir(&temporary).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Fills a directory with files.
pub fn tree(s: &Scratch) -> String {
    std::fs::create_dir(s.host("tree")).unwrap();
    for n in 0..60_u8 {
        let name = s.host(&format!("tree/f{n}"));
        std::fs::write(name, vec![n; usize::from(n) * 9000]).unwrap();
    }
    s.host("tree").to_str().unwrap().to_owned()
}

#[test]
fn commands_work_on_encrypted_objects() {
    needs::tools!("e2fsck");
    let s = Scratch::empty();
    std::fs::write(s.host("key"), "0f".repeat(32)).unwrap();
    let place = format!("file+objects://{}", s.host("store").display());
    let url = format!("{place}?key-file={}", s.host("key").display());
    let tree = tree(&s);
    ok(&[
        "mkfs",
        &format!("{url}&compress"),
        "--size",
        "32M",
        "-q",
        "--from",
        &tree,
    ]);
    fails(&["info", &place], "the image is encrypted");
    ok(&["tune", &url, "-L", "far"]);
    ok(&["resize", &url, "48M"]);
    ok(&["check", &url]);
    let copy = s.host("copy.img").to_str().unwrap().to_owned();
    ok(&["pull", &url, &copy]);
    let judged = Command::new("e2fsck")
        .args(["-fn", &copy])
        .output()
        .unwrap();
    assert!(judged.status.success(), "{judged:?}");
    ok(&[
        "cp",
        &format!("{copy}:/f59"),
        &s.host("f59").display().to_string(),
    ]);
    assert_eq!(std::fs::read(s.host("f59")).unwrap(), [59; 59 * 9000]);
}

#[test]
fn commands_work_on_objects() {
    needs::tools!("e2fsck");
    let s = Scratch::empty();
    let url = format!("file+objects://{}", s.host("store").display());
    fails(&["info", &url], "no image here");
    assert!(!s.host("store").exists(), "left by a command that reads");
    ok(&["mkfs", &url, "--size", "64M", "-L", "far", "-q"]);
    ok(&["import", &url, &tree(&s), "--to", "/tree"]);
    assert_eq!(ok(&["ls", &format!("{url}:/tree")]).lines().count(), 60);
    assert!(ok(&["info", &url]).contains("far"));
    ok(&["check", &url]);
    ok(&["rm", &format!("{url}:/tree/f7")]);
    ok(&["repair", "-p", &url]);
    ok(&["tune", &url, "-L", "farther"]);
    ok(&["trim", &url]);
    let out = s.host("out");
    ok(&["export", &format!("{url}:/tree"), out.to_str().unwrap()]);
    assert_eq!(std::fs::read(out.join("f59")).unwrap(), vec![59; 59 * 9000]);
    // Whole bytes, for a judge of the format.
    let image = extant_bytes(&url);
    std::fs::write(s.host("disk"), image).unwrap();
    let judged = Command::new("e2fsck")
        .arg("-fn")
        .arg(s.host("disk"))
        .output();
    let judged = judged.unwrap();
    assert!(
        judged.status.success(),
        "{}",
        String::from_utf8_lossy(&judged.stdout)
    );
    fails(
        &["mkfs", &url, "--size", "32M", "-q", "--force"],
        "has 67108864 bytes, and cannot be made smaller",
    );
    fails(&["info", "file+objects://x"], "not a directory");
    fails(&["info", &format!("{url}?x=1")], "unknown field 'x=1'");
    fails(&["ls", &format!("{url}@old:/")], "no snapshot 'old'");
}

/// Returns the bytes of an image of objects.
fn extant_bytes(url: &str) -> Vec<u8> {
    use blockdev::BlockDevice;
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nbd");
    let mut child = Command::new(needs::program("extant-remote", "extant-remote"))
        .args(["serve", "--read-only"])
        .arg(&socket)
        .arg(url)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = child.stdout.as_mut().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    let nbd = format!("nbd+unix:///?socket={}", socket.display());
    let nbd = extant_nbd::NbdUrl::parse(&nbd).unwrap();
    let device = extant_nbd::NbdDevice::connect(&nbd, &Default::default()).unwrap();
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    drop(device);
    child.wait().unwrap();
    bytes
}

/// Serves files of the scratch directory by ranges; returns the address.
pub fn web(s: &Scratch) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let root = s.dir.path().to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let root = root.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                while let Some((path, from, to)) = request(&mut reader) {
                    let file = std::fs::File::open(root.join(&path[1..]));
                    let (head, part) = match file {
                        Err(_) => ("404 x".to_owned(), Vec::new()),
                        Ok(file) => {
                            let len = file.metadata().unwrap().len() as usize;
                            let mut part = vec![0; to.min(len - 1) + 1 - from];
                            file.read_exact_at(&mut part, from as u64).unwrap();
                            let to = from + part.len() - 1;
                            let range = format!("bytes {from}-{to}/{len}");
                            let head = format!("206 x\r\nETag: \"1\"\r\nContent-Range: {range}");
                            (head, part)
                        }
                    };
                    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", part.len());
                    if stream
                        .write_all(&[head.as_bytes(), &part].concat())
                        .is_err()
                    {
                        break;
                    }
                }
            });
        }
    });
    url
}

/// Reads a request: its path and range.
fn request(reader: &mut impl BufRead) -> Option<(String, usize, usize)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let (mut from, mut to) = (0, usize::MAX);
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            return Some((path, from, to));
        }
        if let Some(range) = line.to_lowercase().strip_prefix("range: bytes=") {
            let (first, last) = range.trim().split_once('-')?;
            (from, to) = (first.parse().ok()?, last.parse().ok()?);
        }
    }
}

#[test]
fn commands_read_a_file_of_a_web_server() {
    let s = Scratch::empty();
    let tree = tree(&s);
    for file in ["disk", "disk.zst"] {
        s.ok(&["mkfs", &format!("@{file}"), "--from", "@tree", "-q"]);
    }
    let host = web(&s);
    for file in ["disk", "disk.zst"] {
        let url = format!("{host}/{file}");
        assert_eq!(ok(&["ls", &format!("{url}:/")]).lines().count(), 61);
        ok(&["check", &url]);
        let out = s.host(&format!("out-{file}"));
        ok(&["cp", &format!("{url}:/f59"), out.to_str().unwrap()]);
        let original = std::fs::read(format!("{tree}/f59")).unwrap();
        assert!(std::fs::read(out).unwrap() == original);
        fails(&["rm", &format!("{url}:/f1")], "read-only");
    }
    s.ok(&["disk", "@parts", "--ext4", "root=:32M"]);
    ok(&["ls", &format!("{host}/parts@p1:/")]);
    fails(&["ls", &format!("{host}/none:/")], "no such object");
    fails(&["ls", "http://127.0.0.1:1/x:/"], "refused");
    let ran = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(["ls", &format!("{host}/disk:/")])
        .env("EXTANT_REMOTE", "/no/such/program")
        .output();
    let said = Ran::of(ran.unwrap()).stderr;
    assert!(said.contains("needs the program extant-remote"), "{said}");
}

/// Makes an authority, and a certificate of this machine for servers.
fn certificates(s: &Scratch) -> String {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for line in [
        format!("req -x509 {key} -keyout ca-key.pem -out ca-cert.pem -subj /CN=ca -days 30"),
        format!(
            "req -new {key} -keyout server-key.pem -out csr -subj /CN=localhost -addext subjectAltName=DNS:localhost"
        ),
        "x509 -req -in csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -copy_extensions copy -days 30 -out server-cert.pem"
            .into(),
    ] {
        let made = Command::new("openssl")
            .args(line.split(' '))
            .current_dir(s.dir.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    s.dir.path().display().to_string()
}

#[test]
fn commands_work_over_tls() {
    needs::tools!("nbdkit", "openssl");
    let s = Scratch::empty();
    let pki = certificates(&s);
    let serve = |more: &[&str]| {
        let port = free_port();
        let mut command = Command::new("nbdkit");
        command
            .args(["-f", "-i", "127.0.0.1", "-p", &port.to_string()])
            .args(["-e", "disk", "--tls=require"])
            .arg(format!("--tls-certificates={pki}"))
            .args(more)
            .args(["memory", "64M"]);
        let url = format!("nbds://localhost:{port}/disk?tls-certificates={pki}");
        (Server::start(&mut command, port), port, url)
    };
    let (_server, port, url) = serve(&[]);
    ok(&["mkfs", &url, "-q", "-L", "far", "-O", "^mmp"]);
    assert!(ok(&["info", &url]).contains("far"));
    ok(&["check", &url]);
    fails(
        &["info", &format!("nbds://localhost:{port}/disk")],
        "invalid peer certificate",
    );
    fails(
        &["info", &format!("nbd://localhost:{port}/disk")],
        "the server wants TLS: use nbds://HOST/EXPORT",
    );
    // A refusal of the server is final, however long the user would wait.
    let (_server, _, url) = serve(&["--tls-verify-peer"]);
    for time in [&[][..], &["--io-timeout", "never"]] {
        let args = [&["info", &url], time].concat();
        fails(
            &args,
            "the server asks for a certificate: put client-cert.pem",
        );
    }
}
