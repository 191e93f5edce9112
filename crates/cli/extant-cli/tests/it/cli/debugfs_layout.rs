//! Requests of debugfs: read-only ones in its layout, and the fields that image builds set.

use crate::cli::called::{ScriptDir, told};
use std::process::Output;

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Requests whose answer equals that of debugfs exactly.
const SAME: &[&str] = &[
    "stat /etc/motd",
    "stat <12>",
    "stat /etc/link",
    "stat /etc/null",
    "stat /etc/pipe",
    "stat /large",
    "stat /sparse",
    "stat <8>",
    "stat <7>",
    "stat /many",
    "stat /etc/labelled",
    "ls",
    "ls /etc",
    "ls -l",
    "ls -l /etc",
    "ls -p",
    "ls -p /many",
    "ls -d /etc",
    "dump_extents /large",
    "ex /sparse",
    "ex -l /sparse",
    "ex -n /sparse",
    "extents /etc",
    "blocks /large",
    "features",
    "testi <12>",
    "testi <500>",
    "testb 100",
    "testb 1 3",
    "ffb",
    "ffb 3",
    "ffi",
    "imap /etc/motd",
    "bmap /large 3",
    "bmap /sparse 1",
    "dx_hash foo",
    "dx_hash -h tea foo",
    "dx_hash -h half_md4 -s 11111111-2222-3333-4444-555555555555 foo",
    "icheck 5000 1",
    "ncheck 12 13",
    "ea_list /etc/labelled",
    "ea_list /etc/motd",
    "ea_get /etc/labelled user.a",
    "ea_get -x /etc/labelled user.a",
    "filefrag /large",
    "dirsearch / etc",
    "idump /etc/motd",
    "bd 1",
    "pwd",
    "params",
    "supported_features",
    "stats -h",
];

/// Values of attributes are text or digits as debugfs decides, with its escapes.
#[test]
fn values_of_attributes_are_shown_as_by_debugfs() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let text = "abcdefghijklmnopqrstuvwxyz";
    let mut values: Vec<Vec<u8>> = (0..=255u8)
        .map(|byte| [text.as_bytes(), &[byte], b"abc"].concat())
        .collect();
    for len in [0usize, 1, 7, 8, 9, 16, 17, 39, 40, 100] {
        for odd in [0, 1, 2, 3, 4, 5, 6, 12, 13] {
            values.push((0..len).map(|n| if n < odd { 1 } else { b'x' }).collect());
        }
    }
    // A file for each value, so that each program runs once.
    let (mut set, mut shown) = (String::new(), String::new());
    for (n, value) in values.iter().enumerate() {
        std::fs::write(place.image(&format!("tree/{n}")), "").unwrap();
        std::fs::write(place.image(&format!("value{n}")), value).unwrap();
        set += &format!("ea_set -f value{n} /{n} user.v\n");
        shown += &format!("ea_get /{n} user.v\nea_list /{n}\n");
    }
    std::fs::write(place.image("set"), set).unwrap();
    std::fs::write(place.image("shown"), shown).unwrap();
    let made =
        place.theirs("mke2fs -Fq -t ext4 -N 1000 -d tree d.img 16M; debugfs -w -f set d.img");
    assert!(made.status.success(), "{}", told(&made));
    let show = "debugfs -f shown d.img 2>/dev/null";
    let (ours, theirs) = (place.ours(show).stdout, place.theirs(show).stdout);
    let of_each = |out: &[u8]| -> Vec<String> {
        let out = String::from_utf8_lossy(out);
        out.split("ea_get /").map(str::to_owned).collect()
    };
    let (ours, theirs) = (of_each(&ours), of_each(&theirs));
    assert_eq!(theirs.len(), values.len() + 1);
    assert!(theirs.iter().any(|shown| shown.contains("user.v (40)")));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}

/// Values in inodes are those that debugfs reads. A value that does not have its hash is not shown.
#[test]
fn values_in_inodes_are_those_of_debugfs() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = "seq 1000 1300 | head -c 1000 >value; mke2fs -Fq -t ext4 -b 1024 -O ea_inode -d tree d.img 16M; \
                debugfs -w -R 'ea_set -f value /etc/motd user.note' d.img; debugfs -w -R 'ea_set /etc/motd user.short x' d.img; \
                for n in 39 40; do debugfs -w -R \"ea_set /etc/motd user.$n $(head -c $n value | tr '\\n' x)\" d.img; done; \
                debugfs -R 'stat /etc/motd' d.img | grep -q 'user.note (1000)'";
    let made = place.theirs(made);
    assert!(made.status.success(), "{}", told(&made));
    for request in [
        "ea_list /etc/motd",
        "stat /etc/motd",
        "ea_get /etc/motd user.note",
        "ea_get -x /etc/motd user.note",
        "ea_get -f out /etc/motd user.note",
    ] {
        let script = format!("debugfs -R '{request}' d.img 2>/dev/null");
        let (ours, theirs) = (place.ours(&script), place.theirs(&script));
        assert_eq!(text(&ours), text(&theirs), "{request}");
        if request.contains("out") {
            let same = place.theirs("cmp out value; rm out");
            assert!(same.status.success(), "{}", told(&same));
        }
    }
    let inode = "i=$(for i in $(seq 12 40); do debugfs -R \"stat <$i>\" d.img 2>/dev/null | \
                 grep -q 'Flags: 0x280000' && echo $i; done | head -n 1)";
    let broken = place.theirs(&format!(
        "{inode}; debugfs -w -R \"sif <$i> atime 7\" d.img"
    ));
    assert!(broken.status.success(), "{}", told(&broken));
    let ours = place.ours("debugfs -R 'ea_get /etc/motd user.note' d.img");
    let said = told(&ours);
    assert!(
        said.contains("checksum of value") && !said.contains("1000"),
        "{said}"
    );
}

#[test]
fn answers_are_those_of_debugfs() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = "mkdir tree/many; for i in $(seq 300); do : >tree/many/name-$i; done; ln -s motd tree/etc/link; mkfifo tree/etc/pipe; \
                for i in $(seq 0 3 900); do echo x | dd of=tree/sparse bs=1k seek=$i conv=notrunc 2>/dev/null; done; echo x >tree/etc/labelled; \
                IMAGE; \
                for r in 'ea_set /etc/labelled user.a value' 'ea_set /etc/labelled security.selinux label' 'cd etc' ; do echo \"$r\"; done >cmds; \
                echo 'mknod null c 1 3' >>cmds; debugfs -w -f cmds d.img >/dev/null 2>&1";
    for image in [
        "mke2fs -Fq -t ext4 -b 1024 -d tree d.img 32M",
        "mke2fs -Fq -t ext2 -b 1024 -I 128 -d tree d.img 16M",
    ] {
        let made = place.theirs(&format!(
            "rm -rf tree/many tree/etc/link tree/etc/pipe; {}",
            made.replace("IMAGE", image)
        ));
        assert!(made.status.success(), "{}", told(&made));
        for request in SAME {
            let script = format!("debugfs -R '{request}' d.img");
            let (theirs, ours) = (place.theirs(&script), place.ours(&script));
            assert_eq!(
                text(&ours),
                text(&theirs),
                "{image}: {request}: {}",
                told(&ours)
            );
        }
    }
    // Several requests, and the words that scripts look for when a path is missing.
    let script = "printf 'stat /none\\nls -p /etc\\ncat /etc/motd\\nquit\\n' >asks; debugfs -f asks d.img || :";
    let (theirs, ours) = (place.theirs(script), place.ours(script));
    assert_eq!(text(&ours), text(&theirs), "{}", told(&ours));
    assert!(
        told(&ours).contains("/none: File not found by ext2_lookup"),
        "{}",
        told(&ours)
    );
}

#[test]
fn the_index_of_a_directory_is_shown_with_its_names() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = "mkdir tree/many; for i in $(seq 900); do : >tree/many/a-rather-long-name-$i; done; \
                mke2fs -Fq -t ext4 -b 1024 -N 3000 -d tree d.img 32M; e2fsck -fyD d.img >/dev/null 2>&1 || :";
    let made = place.theirs(made);
    assert!(made.status.success(), "{}", told(&made));
    // Without checksums, which e2fsck verifies.
    let script =
        "debugfs -R 'htree_dump /many' d.img | grep -v -i checksum | sed 's/ *$//' | grep -v '^$'";
    let (theirs, ours) = (place.theirs(script), place.ours(script));
    assert_eq!(text(&ours), text(&theirs));
    assert!(text(&ours).lines().count() > 900);
}

/// The requests that OpenEmbedded's wic and similar tools run after mke2fs -d.
const BUILD: &[&str] = &[
    "ea_get -f got /etc/fstab security.selinux",
    "sif /etc/fstab mtime 0x6553f100\nsif /etc/fstab mtime_extra 0",
    "sif /etc/fstab crtime 0x6553f100",
    "sif /etc/fstab crtime @1700000000",
    "sif /etc/fstab ctime_extra 0",
    "sif /etc/fstab atime 1700000000",
    "sif /etc/fstab mtime 20200102",
    "ssv wtime 0x6553f100",
    "ssv mkfs_time 0x6553f100",
    "ssv mtime 0",
    "ssv first_error_time 0",
    "ssv lastcheck 0x6553f100",
    "ssv kbytes_written 0",
    "sif /etc/fstab size 3",
    "sif /etc/fstab links_count 3",
    "sif /etc/fstab dtime 5",
    "sif /etc/fstab block[2] 77",
    "clri /etc/fstab",
    "freei /etc/fstab",
    "seti <500>",
    "freeb 5000 3",
    "setb 5000 3",
    "set_bg 1 free_blocks_count 7\nset_bg 1 checksum calc",
    "set_block_group 0 flags 4\nset_bg 0 checksum calc",
    "zap_block -p 0x55 -o 100 -l 20 9000",
    "zap_block -f /large 3",
    "copy_inode /etc/fstab /etc/motd",
    "dirty",
    "features +dir_index",
    "fallocate /etc/fstab 1 2",
    "punch /large 3 5",
    "write /dev/null /etc/empty",
    "sif /etc/fstab version 0x100000009",
    "sif /etc/fstab version_hi 9",
    "sif /etc/fstab uid_hi 1",
    "sif /etc/fstab gid_lo 7",
    "sif /etc/fstab mtime_lo 20200102",
    "sif /etc/fstab mtime_lo 5",
    "sif /etc/fstab checksum calc",
];

#[test]
fn fields_are_set_as_debugfs_sets_them() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = "echo new >fstab; printf 'system_u:object_r:etc_t:s0' >label; mke2fs -Fq -t ext4 -b 1024 -d tree i.img 32M; \
                printf 'cd etc\\nwrite fstab fstab\\nea_set -f label fstab security.selinux\\n' | debugfs -w i.img >/dev/null 2>&1";
    let made = place.theirs(made);
    assert!(made.status.success(), "{}", told(&made));
    let seen = "for r in 'stat /etc/fstab' 'stat /etc/motd' 'stat <500>' 'testi <500>' 'testb 5000 3' 'stat /large' 'ls -p /' 'ls -p /etc' 'bd 9000'; do \
                debugfs -c -R \"$r\" IMAGE 2>/dev/null || :; done; dumpe2fs IMAGE 2>/dev/null || :";
    for requests in BUILD {
        let mut both = Vec::new();
        for ours in [true, false] {
            let image = if ours { "w.img" } else { "k.img" };
            std::fs::write(place.image("script"), format!("{requests}\n")).unwrap();
            let script = format!(
                "rm -f got; cp i.img {image}; E2FSPROGS_FAKE_TIME=1600000000 debugfs -w -f script {image}"
            );
            let out = if ours {
                place.ours(&script)
            } else {
                place.theirs(&script)
            };
            assert!(
                out.status.success(),
                "{requests}, ours: {ours}: {}",
                told(&out)
            );
            let seen = place.theirs(&seen.replace("IMAGE", image));
            let got = std::fs::read(place.image("got")).unwrap_or_default();
            both.push((kept(&told(&seen)), got));
        }
        let [ours, theirs] = [&both[0].0, &both[1].0];
        let differ: Vec<_> = ours.iter().zip(theirs).filter(|(a, b)| a != b).collect();
        assert!(
            differ.is_empty() && ours.len() == theirs.len(),
            "{requests}: ours left: {differ:?}"
        );
        assert_eq!(both[0].1, both[1].1, "{requests}");
    }
    assert_eq!(
        std::fs::read(place.image("label")).unwrap(),
        b"system_u:object_r:etc_t:s0"
    );
}

#[test]
fn a_new_file_gets_the_time_and_label_that_are_said() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let script = "echo new >fstab; printf 'system_u:object_r:etc_t:s0' >label; mke2fs -Fq -t ext4 -d tree i.img 32M; \
                  printf 'set_current_time 0x6553f100\ncd etc\nwrite fstab fstab\nea_set -f label fstab security.selinux\ncat fstab\n' >script; \
                  debugfs -w -f script i.img; /usr/sbin/debugfs -R 'stat /etc/fstab' i.img; /usr/sbin/debugfs -R 'cat /etc/fstab' i.img";
    let out = place.ours(script);
    let text = told(&out);
    assert!(out.status.success(), "{text}");
    assert!(text.contains(" mtime: 0x6553f100:00000000"), "{text}");
    assert!(
        text.contains("security.selinux (26) = \"system_u:object_r:etc_t:s0\""),
        "{text}"
    );
    assert_eq!(text.matches("\nnew\n").count(), 2, "{text}");
}

/// Returns the lines that both programs must share: without checksums, change times and mount counts.
fn kept(text: &str) -> Vec<String> {
    let left_out = [
        "hecksum",
        "csum",
        "Last write time",
        "Lifetime writes",
        " ctime:",
        "Generation:",
        "Last mount time",
        "Mount count",
        "Journal",
    ];
    let lines = text
        .lines()
        .filter(|line| !left_out.iter().any(|word| line.contains(word)));
    lines.map(str::to_owned).collect()
}

#[test]
fn what_is_not_done_is_refused_by_name() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = place.ours("mke2fs -Fq -t ext4 -d tree d.img 16M");
    assert!(made.status.success(), "{}", told(&made));
    let before = std::fs::read(place.image("d.img")).unwrap();
    for (request, line) in [
        ("undel <12> x", "Inode is not marked as deleted"),
        ("smmp seq 1", "smmp is not supported: tune2fs"),
        ("extent_open /large", "extent_open is not supported"),
        ("jo -f journal", "opens the journal of the image"),
        ("ssv nothing 5", "invalid field specifier: nothing"),
        (
            "sif /etc/motd nothing 5",
            "invalid field specifier: nothing",
        ),
        ("mkdir", "mkdir: wrong number of words"),
    ] {
        std::fs::write(place.image("cmds"), request).unwrap();
        let out = place.ours("debugfs -w -f cmds d.img");
        assert_eq!(out.status.code(), Some(1), "{request}");
        assert!(told(&out).contains(line), "{request}: {}", told(&out));
        assert!(
            std::fs::read(place.image("d.img")).unwrap() == before,
            "{request}"
        );
    }
    let out = place.ours("debugfs -R 'mkdir x' d.img");
    assert!(
        told(&out).contains("mkdir: Filesystem opened read/only"),
        "{}",
        told(&out)
    );
    assert!(std::fs::read(place.image("d.img")).unwrap() == before);
}
