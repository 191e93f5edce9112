//! Images on NBD servers: every command accepts their addresses, and each error is one line.

use crate::cli::support::Scratch;
use extant_nbd::{NbdDevice, NbdUrl};
use needs::servers::Server;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Waits until a condition holds, for at most two minutes. Asks every 20 ms.
pub fn wait_until(mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Serves a file as the export `disk`; returns its address.
pub fn serve(s: &Scratch, file: &str, more: &[&str]) -> (Server, String) {
    let socket: PathBuf = s.host(&format!("{file}.socket"));
    let child = Command::new("qemu-nbd")
        .args(["-f", "raw", "-t", "-x", "disk", "-e", "8", "-k"])
        .arg(&socket)
        .args(more)
        .arg(s.host(file))
        .spawn()
        .unwrap();
    let server = Server(child);
    wait_until(|| UnixStream::connect(&socket).is_ok());
    (
        server,
        format!("nbd+unix:///disk?socket={}", socket.display()),
    )
}

fn empty(s: &Scratch, file: &str, bytes: u64) {
    let file = std::fs::File::create(s.host(file)).unwrap();
    file.set_len(bytes).unwrap();
}

#[test]
fn commands_work_on_an_export() {
    needs::tools!("qemu-nbd", "e2fsck");
    let s = Scratch::empty();
    empty(&s, "disk", 64 << 20);
    let (server, url) = serve(&s, "disk", &[]);
    std::fs::create_dir(s.host("tree")).unwrap();
    for n in 0..40u8 {
        std::fs::write(s.host(&format!("tree/f{n}")), vec![n; usize::from(n) * 900]).unwrap();
    }
    s.ok(&["mkfs", &url, "--label", "far", "-q"]);
    s.ok(&["import", &url, "@tree", "--to", "/tree"]);
    assert_eq!(s.ok(&["ls", &format!("{url}:/tree")]).lines().count(), 40);
    std::fs::write(s.host("one"), "one\n").unwrap();
    s.ok(&["cp", "@one", &format!("{url}:/one")]);
    assert_eq!(s.ok(&["cat", &format!("{url}:/one")]), "one\n");
    s.ok(&["mv", &format!("{url}:/one"), &format!("{url}:/two")]);
    s.ok(&["rm", &format!("{url}:/tree/f7")]);
    assert!(s.ok(&["info", &url]).contains("far"));
    s.ok(&["check", &url]);
    s.ok(&["tune", &url, "-L", "farther"]);
    s.ok(&["repair", "-p", &url]);
    s.ok(&["mkfs", &url, "--force", "--undo", "@undo", "-q"]);
    s.ok(&["undo", "@undo", &url]);
    assert!(s.ok(&["info", &url]).contains("farther"));
    s.ok(&["export", &format!("{url}:/tree"), "@out"]);
    assert_eq!(
        std::fs::read(s.host("out/f39")).unwrap(),
        vec![39; 39 * 900]
    );
    drop(server);
    let out = Command::new("e2fsck")
        .arg("-fn")
        .arg(s.host("disk"))
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stdout)
    );
    assert_eq!(s.ok(&["cat", "@disk:/two"]), "one\n");
    assert!(s.ok(&["info", "@disk"]).contains("farther"));
}

#[test]
fn a_part_of_an_export_is_an_image() {
    needs::tools!("qemu-nbd");
    let s = Scratch::empty();
    s.ok(&["disk", "@disk", "--ext4", "root=:32M"]);
    let (_server, url) = serve(&s, "disk", &[]);
    let part = format!("{url}@p1");
    std::fs::write(s.host("f"), "in a part\n").unwrap();
    s.ok(&["cp", "@f", &format!("{part}:/f")]);
    assert_eq!(s.ok(&["cat", &format!("{part}:/f")]), "in a part\n");
    s.ok(&["check", &part]);
}

/// A volume that another process writes to is not opened, not even for reading.
#[test]
fn one_writer_has_an_export() {
    needs::tools!("qemu-nbd");
    let s = Scratch::empty();
    empty(&s, "disk", 32 << 20);
    let (_server, url) = serve(&s, "disk", &["--shared=4"]);
    s.ok(&["mkfs", &url, "-q"]);
    // Others wait twice the interval of looks, which is 5 s at the least.
    s.ok(&["tune", &url, "-E", "mmp_update_interval=1"]);
    let far = NbdUrl::parse(&url).unwrap();
    let device = NbdDevice::connect(&far, &Default::default()).unwrap();
    let volume = extant::VolumeOptions::new().open_device(Arc::new(device));
    let volume = volume.unwrap();
    volume.write("/first", b"1").unwrap();
    let (mkdir, list) = std::thread::scope(|scope| {
        let list = scope.spawn(|| s.fails(&["ls", &format!("{url}:/")]));
        (
            s.fails(&["mkdir", &format!("{url}:/d")]),
            list.join().unwrap(),
        )
    });
    for said in [mkdir, list] {
        assert!(said.contains("in use by a mount on '"), "{said}");
        assert!(said.contains("clear_mmp"), "{said}");
    }
    volume.close().unwrap();
    s.ok(&["mkdir", &format!("{url}:/d")]);
    s.ok(&["tune", &url, "-E", "clear_mmp"]);
    s.ok(&["check", &url]);
}

#[test]
fn what_is_wrong_with_a_server_is_said() {
    needs::tools!("qemu-nbd");
    let s = Scratch::empty();
    s.ok(&["mkfs", "@disk", "--size", "32M", "-q"]);
    let before = std::fs::read(s.host("disk")).unwrap();
    let (server, url) = serve(&s, "disk", &["--read-only"]);
    s.ok(&["ls", &format!("{url}:/")]);
    let wrong = [
        (vec!["mkfs", "-q", "--force", &url], "read-only"),
        (vec!["tune", &url, "-L", "x"], "read-only"),
    ];
    for (args, why) in wrong {
        let said = s.fails(&args);
        assert!(
            said.contains(why) && said.lines().count() <= 2,
            "{args:?}: {said}"
        );
    }
    let other = url.replace("///disk", "///other");
    let said = s.fails(&["info", &other]);
    assert!(said.contains("disk") && said.contains("other"), "{said}");
    drop(server);
    for nowhere in ["nbd://127.0.0.1:1/disk", &url, "nbd://"] {
        let said = s.fails(&["info", nowhere]);
        assert!(said.lines().count() <= 2, "{nowhere}: {said}");
    }
    assert_eq!(
        s.fails(&["mkfs", &url, "-q"]),
        format!("error: {url}: Connection refused")
    );
    // Shorter than the volume in it.
    std::fs::write(s.host("short"), &before[..16 << 20]).unwrap();
    let (_server, short) = serve(&s, "short", &[]);
    s.fails(&["ls", &format!("{short}:/")]);
    for (args, why) in [
        (
            vec!["repair", "-n", &short],
            "the server has 16777216 bytes of a volume of 33554432: make the image on the server as long",
        ),
        (
            vec!["mkfs", &short, "-q", "--force", "--size", "32M"],
            "has 16777216 bytes, and the file system would have 33554432: leave out --size, or make the device larger",
        ),
        (
            vec!["disk", &short, "--ext4", "root=:1M"],
            "extant disk makes a file, and extant push copies it to a server",
        ),
        (
            vec!["mkfs", "ssh://host/disk", "--size", "1M"],
            "ssh://host/disk: images have no such address (try nbd://,",
        ),
        (
            vec!["ls", "tcp://127.0.0.1:10809/disk"],
            "images have no such address",
        ),
    ] {
        let said = s.run(&args).stderr;
        assert!(
            said.contains(why) && said.lines().count() == 1,
            "{args:?}: {said}"
        );
    }
    assert!(std::fs::read(s.host("disk")).unwrap() == before);
}
