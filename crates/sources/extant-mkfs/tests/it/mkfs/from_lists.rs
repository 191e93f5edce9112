//! File systems made from manifests and device tables: those that bsdtar writes, each rule, and bad ones.

use crate::it::mkfs::compare::{assert_equal, snapshot};
use crate::it::mkfs::from_tree::make_tree;
use crate::it::mkfs::support::{Image, options, output, run, scratch};
use extant_mkfs::{self as mkfs, DeviceTable, Manifest, MkfsOptions, Source, TreeSource};
use std::fs;
use std::path::Path;

fn from(sources: Vec<Source>) -> Image {
    Image::write(&mkfs::prepare_from(&options(), sources).unwrap())
}

fn manifest(dir: &Path, text: &str) -> Source {
    let path = dir.join("list");
    fs::write(&path, text).unwrap();
    Source::Other(Box::new(Manifest::new(path, dir)))
}

fn table(dir: &Path, text: &str) -> mkfs::Result<Source> {
    let path = dir.join("table");
    fs::write(&path, text).unwrap();
    Ok(Source::Table(DeviceTable::open(path)?))
}

/// Compares debugfs' output for a path: type, mode, owner, size.
#[track_caller]
fn stat(image: &Image, path: &str, wanted: &[&str]) {
    let Some(text) = image.debugfs(&format!("stat {path}")) else {
        return;
    };
    let words: Vec<_> = text.split_whitespace().collect();
    let text = words.join(" ");
    for want in wanted {
        assert!(text.contains(want), "{path}: {want}: {text}");
    }
}

#[test]
fn bsdtars_manifests_keep_what_they_can() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    make_tree(&tree);
    let list = dir.path().join("list");
    let script = "!all,type,mode,uid,gid,link,device,time,size";
    let (to, from_dir) = (list.to_str().unwrap(), tree.to_str().unwrap());
    let bsdtar = [
        "-C",
        from_dir,
        "--format=mtree",
        "--options",
        script,
        "-cf",
        to,
        ".",
    ];
    if !needs::have(&["bsdtar"]) {
        return;
    }
    run("bsdtar", &bsdtar);
    let image = from(vec![Source::Other(Box::new(Manifest::new(&list, &tree)))]);
    image.check("mtree");
    let Some(mount) = image.mount() else { return };
    let mut expected = snapshot(&tree);
    let mut found = snapshot(&mount.at);
    for e in expected.values_mut().chain(found.values_mut()) {
        e.times = [(0, 0), e.times[1], (0, 0)];
        e.xattrs.clear();
        // Links become separate files.
        (e.links, e.same_as) = (1, "".into());
        if let Some((_, holes)) = &mut e.data {
            holes.clear();
        }
    }
    assert_equal(expected, found, |e| e.links = 1);
}

#[test]
fn every_rule_of_a_manifest() {
    let dir = scratch();
    fs::write(dir.path().join("data"), "content").unwrap();
    fs::create_dir(dir.path().join("bin")).unwrap();
    fs::write(dir.path().join("bin/tool"), "tool").unwrap();
    let text = r"#mtree v2.0
# a comment
/set type=file uid=5 gid=6 mode=0640 uname=nobody
.               type=dir mode=0755 uname=root uid=0
    etc         type=dir mode=0711
        motd    contents=data size=7 time=100.5
        sp\040\141ce contents=data \
                mode=4755 md5digest=0
        ..
    missing     optional
    link        type=link link=etc/\163p\040ace
    pipe        type=fifo nlink=1
/unset uid gid uname
    null        type=char device=native,1,3
    disk        type=block device=linux,0x103,70000
    sock        type=socket gname=wheel
./bin/tool      time=7
./empty/below   size=0
./deep          type=dir uid=8
";
    let image = from(vec![manifest(dir.path(), text)]);
    image.check("rules");
    stat(
        &image,
        "/etc",
        &["Type: directory", "Mode: 0711", "User: 5 Group: 6"],
    );
    stat(
        &image,
        "/etc/motd",
        &[
            "Mode: 0640",
            "User: 5",
            "Size: 7",
            "mtime: 0x00000064:00000014",
        ],
    );
    stat(&image, "\"/etc/sp ace\"", &["Mode: 04755", "Size: 7"]);
    stat(&image, "/link", &["Type: symlink", "\"etc/sp ace\""]);
    stat(&image, "/pipe", &["Type: FIFO"]);
    stat(
        &image,
        "/null",
        &["Type: character special", "User: 0 Group: 0", "01:03"],
    );
    stat(&image, "/disk", &["Type: block special", "259:70000"]);
    stat(&image, "/sock", &["Type: socket"]);
    stat(&image, "/bin/tool", &["Size: 4", "mtime: 0x00000007"]);
    stat(&image, "/empty/below", &["Size: 0"]);
    stat(&image, "/deep", &["User: 8"]);
    let missing = image.debugfs("stat /missing");
    assert!(missing.is_none_or(|t| !t.contains("Inode:")));
    assert_eq!((image.report.files, image.report.specials), (4, 4));
}

#[test]
fn bad_manifests_are_refused_with_their_line() {
    let dir = scratch();
    fs::write(dir.path().join("data"), "content").unwrap();
    for (line, what) in [
        ("x type=door", "type=door is not one of block, char, dir"),
        ("x type=dir mode=9", "mode=9 is not a number"),
        ("x type=dir mode=17777", "mode of more than"),
        ("x type=dir uid=-1", "uid=-1 is not a number"),
        ("x type=dir uid=4294967296", "more than 32 bits"),
        ("x type=dir uname=joe", "uname=joe without uid"),
        ("x type=dir time=x", "not a time"),
        ("x type=dir time=1.1000000000", "not a time"),
        ("x type=link", "without link="),
        ("x type=char", "without device="),
        ("x type=char device=native,1", "not a device"),
        ("x type=char device=native,5000,1", "not a device"),
        ("x type", "type has no value"),
        ("a\\qb type=dir", "escape"),
        ("nothere", "nothere: no such file"),
        ("x contents=data size=8", "has 7 bytes"),
        ("x contents=.", "not a regular file"),
    ] {
        let text = format!("#mtree\n\n{line}\n");
        let refused = mkfs::prepare_from(&options(), manifest(dir.path(), &text));
        let said = refused.err().expect(line).to_string();
        assert!(
            said.contains("list: line 3: ") && said.contains(what),
            "{said}"
        );
    }
    let text = "#mtree\n./a/../../b type=dir\n";
    assert!(mkfs::prepare_from(&options(), manifest(dir.path(), text)).is_err());
}

#[test]
fn device_tables_add_and_change() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("home/me")).unwrap();
    fs::create_dir_all(tree.join("dev")).unwrap();
    fs::write(tree.join("home/me/file"), "data").unwrap();
    fs::write(tree.join("home/me/.wh.x"), "").unwrap();
    fs::write(tree.join("su"), "su").unwrap();
    let text = "# <name> <type> <mode> <uid> <gid> <major> <minor> <start> <inc> <count>
/dev       d  755  0 0 - - - - -
/dev/null  c  666  0 0 1 3 0 0 -
/dev/tty   c  620  0 5 4 0 0 1 4
/dev/sda   b  640  0 6 8 0 1 1 2
/run/pipe  p  600  1 1 - - - - -
/home/me   r  -1   1000 1001 - - - - -
/su        f  4755 0 0 - - - - -
/none      F  4755 0 0 - - - - -
";
    assert!(DeviceTable::is_table(text.as_bytes()));
    let sources = vec![
        Source::Tree(TreeSource::new(&tree)),
        table(dir.path(), text).unwrap(),
    ];
    let options = MkfsOptions {
        uid: Some(7),
        gid: Some(8),
        ..options()
    };
    let image = Image::write(&mkfs::prepare_from(&options, sources).unwrap());
    image.check("table");
    stat(
        &image,
        "/dev/null",
        &["Type: character special", "Mode: 0666", "01:03"],
    );
    stat(&image, "/dev/tty3", &["Group: 5", "04:03"]);
    stat(&image, "/dev/sda2", &["Type: block special", "08:01"]);
    stat(&image, "/run/pipe", &["Type: FIFO", "User: 1"]);
    stat(&image, "/run", &["Type: directory", "Mode: 0755"]);
    stat(
        &image,
        "/home/me/file",
        &["User: 1000 Group: 1001", "Size: 4", "Mode: 0644"],
    );
    // A table is not a layer: such names of the tree are ordinary ones.
    stat(&image, "/home/me/.wh.x", &["User: 1000"]);
    stat(&image, "/home", &["User: 7 Group: 8"]);
    stat(&image, "/su", &["Mode: 04755", "User: 0"]);
    assert_eq!(image.report.specials, 8);
    for (line, what) in [
        (
            "/none f 644 0 0",
            "/none: the sources before the table have no such file (type F allows that)",
        ),
        (
            "/su c 644 0 0 1 1",
            "/su: the sources before the table have a file of this name",
        ),
        ("/../x d 644 0 0", ".."),
    ] {
        let sources = vec![
            Source::Tree(TreeSource::new(&tree)),
            table(dir.path(), &format!("# x\n{line}\n")).unwrap(),
        ];
        let said = mkfs::prepare_from(&options, sources)
            .err()
            .expect(line)
            .to_string();
        assert!(
            said.contains("table: line 2: ") && said.contains(what),
            "{said}"
        );
    }
    let said = table(dir.path(), "/x q 644 0 0\n")
        .err()
        .unwrap()
        .to_string();
    assert!(said.contains("line 1: q is not a type"), "{said}");
}

/// Permissions that an ACL says, too.
#[test]
fn a_table_changes_acls_with_the_mode() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "").unwrap();
    if output(
        "setfacl",
        &["-m", "u:7:rwx", tree.join("f").to_str().unwrap()],
    )
    .is_none()
    {
        return;
    }
    let sources = vec![
        Source::Tree(TreeSource::new(&tree)),
        table(dir.path(), "/f f 640 3 4\n").unwrap(),
    ];
    let image = from(sources);
    image.check("acl");
    let Some(mount) = image.mount() else { return };
    let acl = output("getfacl", &["-nc", mount.at.join("f").to_str().unwrap()]);
    if let Some(acl) = acl {
        assert!(
            acl.contains("mask::r--") && acl.contains("user:7:rwx"),
            "{acl}"
        );
    }
}
