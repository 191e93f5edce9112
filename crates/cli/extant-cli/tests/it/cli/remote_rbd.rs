//! Images of a Ceph cluster, through the program `extant-remote`.

use crate::cli::remote_objects::{fails, ok, tree};
use crate::cli::support::Scratch;
use needs::ceph::{self, Ceph};
use std::path::Path;
use std::process::Command;

/// Judges the image of the cluster by e2fsck.
pub fn judge(ceph: &Ceph, name: &str, dir: &Path) {
    let file = dir.join("exported");
    ceph.ok(&format!(
        "rbd export --no-progress {name} {}",
        file.display()
    ));
    let out = Command::new("e2fsck")
        .arg("-fn")
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn commands_work_on_an_image_of_a_cluster() {
    let Some(ceph) = ceph::running() else { return };
    let s = Scratch::empty();
    let name = ceph.image_name("commands");
    let conf = ceph.conf();
    let url = format!("rbd:{name}?conf={conf}&id=extant");
    fails(&["info", &url], "no image 'commands-");
    ok(&["mkfs", &url, "--size", "64M", "-L", "far", "-q"]);
    assert!(
        !ok(&["info", &url]).contains(" mmp"),
        "the lock keeps writers apart"
    );
    ok(&["import", &url, &tree(&s), "--to", "/tree"]);
    assert_eq!(ok(&["ls", &format!("{url}:/tree")]).lines().count(), 60);
    ok(&["check", &url]);
    ok(&["mv", &format!("{url}:/tree/f8"), &format!("{url}:/eight")]);
    ok(&["rm", &format!("{url}:/tree/f7")]);
    ok(&["repair", "-p", &url]);
    ok(&["tune", &url, "-L", "farther"]);
    ok(&["trim", &url]);
    judge(&ceph, &name, s.dir.path());
    ok(&["resize", &url, "96M"]);
    assert!(ceph.ok(&format!("rbd info {name}")).contains("size 96 MiB"));
    judge(&ceph, &name, s.dir.path());
    fails(
        &["mkfs", &url, "--size", "32M", "-q", "--force"],
        "has 100663296 bytes already",
    );
    // A snapshot is only read, and stays as it was.
    ceph.ok(&format!("rbd snap create --no-progress {name}@old"));
    ok(&["rm", "-r", &format!("{url}:/tree")]);
    let old = format!("rbd:{name}@old?conf={conf}");
    let out = s.host("out");
    ok(&["export", &format!("{old}:/tree"), out.to_str().unwrap()]);
    assert_eq!(std::fs::read(out.join("f59")).unwrap(), vec![59; 59 * 9000]);
    fails(&["rm", &format!("{old}:/tree/f1")], "read-only");
    fails(
        &["ls", &format!("rbd:{name}@new?conf={conf}:/")],
        "no snapshot 'new'",
    );
    fails(
        &["ls", &format!("{url}&key=secret:/")],
        "unknown field 'key=secret'",
    );
}

#[test]
fn parts_and_copies_are_on_a_cluster() {
    let Some(ceph) = ceph::running() else { return };
    let s = Scratch::empty();
    let (name, conf) = (ceph.image_name("parts"), ceph.conf());
    s.ok(&["disk", "@disk", "--ext4", "root=:32M"]);
    ceph.ok(&format!(
        "rbd import --no-progress {} {name}",
        s.host("disk").display()
    ));
    let part = format!("rbd:{name}?conf={conf}@p1");
    std::fs::write(s.host("f"), "in a part\n").unwrap();
    ok(&["cp", s.host("f").to_str().unwrap(), &format!("{part}:/f")]);
    assert_eq!(ok(&["cat", &format!("{part}:/f")]), "in a part\n");
    ok(&["check", &part]);
    // A copy of an image, and of what differs.
    s.ok(&["mkfs", "@image", "--size", "32M", "-q"]);
    let image = s.host("image");
    let copy = ceph.image_name("copy");
    let to = format!("rbd:{copy}?conf={conf}");
    ok(&["push", image.to_str().unwrap(), &to]);
    s.ok(&["cp", "@f", "@image:/f"]);
    ok(&["push", image.to_str().unwrap(), &to]);
    assert_eq!(ok(&["cat", &format!("{to}:/f")]), "in a part\n");
    judge(&ceph, &copy, s.dir.path());
}
