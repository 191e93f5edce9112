//! Exchange of undo files between Extant and e2fsprogs.

use crate::cli::called::{ScriptDir, clean, told};
use crate::cli::support::root;

/// Runs a script with e2fsprogs. Panics if the script fails.
#[track_caller]
fn theirs(place: &ScriptDir, script: &str) {
    let out = place.theirs(&format!("set -e; {script}"));
    assert!(out.status.success(), "{script}: {}", told(&out));
}

/// Runs a script with Extant. Panics if the script fails.
#[track_caller]
fn ours(place: &ScriptDir, script: &str) {
    let out = place.ours(&format!("set -e; {script}"));
    assert!(out.status.success(), "{script}: {}", told(&out));
}

const CHANGES: [&str; 10] = [
    "tune2fs -z undo -L new -U random i.img",
    "tune2fs -z undo -O ^has_journal i.img",
    "truncate -s 48M i.img; cp i.img old; resize2fs -z undo i.img",
    "resize2fs -z undo i.img 20M",
    "debugfs -w -R 'clri <12>' i.img; cp i.img old; code=0; e2fsck -fy -z undo i.img || code=$?; [ $code = 1 ]",
    "debugfs -w -z undo -R 'clri <12>' i.img",
    "mke2fs -q -F -t ext2 -b 4096 -z undo i.img",
    "mke2fs -q -F -t ext4 -d tree -z undo i.img 24M",
    "tune2fs -L new i.img; cp i.img a; tune2fs -z redo -L newer i.img; cp i.img old; e2undo -z undo redo i.img; rm redo; cmp i.img a",
    "code=0; e2fsck -fyD -z undo i.img || code=$?; [ $code -le 1 ]; [ -e undo ] || tune2fs -z undo -L x i.img",
];

/// Returns the script that makes an image. Every second image has no metadata checksums.
fn make(nth: usize) -> String {
    let features = ["", "-O ^metadata_csum"][nth % 2];
    format!("rm -f i.img undo; mke2fs -q -t ext4 {features} -d tree i.img 32M; cp i.img old")
}

#[test]
fn extant_applies_undo_files_of_e2fsprogs() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    for (nth, change) in CHANGES.iter().enumerate() {
        theirs(&place, &format!("{}; {change}", make(nth)));
        // resize2fs truncates the file, so that a backup superblock after the new end is lost.
        let judge = if change.ends_with("20M") {
            "e2fsck -fn i.img >/dev/null"
        } else {
            "cmp i.img old"
        };
        ours(
            &place,
            &format!("truncate -r old i.img; e2undo -n undo i.img; e2undo undo i.img; {judge}"),
        );
    }
    theirs(
        &place,
        &format!("{}; tune2fs -z undo -O ^has_journal i.img", make(0)),
    );
    for options in ["-nv", "-v"] {
        let script =
            format!("cp i.img j.img; e2undo {options} undo j.img 2>/dev/null | grep Replayed");
        assert_eq!(told(&place.ours(&script)), told(&place.theirs(&script)));
    }
    let header = "e2undo -h undo i.img";
    assert_eq!(told(&place.ours(header)), told(&place.theirs(header)));
}

#[test]
fn one_undo_file_covers_all_steps_of_a_command() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    for change in [
        "resize2fs -S 16 -z undo i.img 20M",
        "e2fsck -fy -E bmap2extent,discard -z undo i.img",
        "e2fsck -fyD -z undo i.img",
        "mke2fs -q -F -t ext4 -O quota,project -E root_selinux=a_label -z undo i.img",
        "printf 'mkdir new\nsif <11> mode 040700\nssv volume_name steps\n' | debugfs -w -z undo -f - i.img",
        "extant mkfs -q --force --from tree --size 30M --undo undo i.img",
    ] {
        theirs(&place, &make(0));
        ours(&place, change);
        // The file keeps the bytes that no structure replaces.
        ours(
            &place,
            "! cmp -s i.img old; extant undo undo i.img; cmp i.img old",
        );
    }
    // A failed change can be reverted, too; no change leaves no undo file.
    let failed = place.ours("debugfs -w -z undo2 -R 'mkdir lost+found' i.img");
    assert!(!failed.status.success());
    ours(
        &place,
        "[ ! -e undo2 ] || { extant undo undo2 i.img; }; cmp i.img old",
    );
    ours(&place, "e2fsck -p -z undo3 i.img; [ ! -e undo3 ]");
}

/// The failed command names the command that reverts it, and the undo file is complete.
#[test]
fn a_change_that_fills_the_host_is_reverted_by_its_undo_file() {
    let Some(place) = ScriptDir::new().filter(|_| root()) else {
        return;
    };
    let full = "mkdir t; mount -t tmpfs -o size=1M none t; trap 'umount t' EXIT";
    for (change, code) in [("mke2fs -F -t ext4", 1), ("extant mkfs --force", 1)] {
        let undo = if change.starts_with("extant") {
            "--undo"
        } else {
            "-z"
        };
        let ours = place.ours(&format!(
            "set -e; rm -rf t; {full}; head -c 16M /dev/urandom >i.img; cp i.img old
             code=0; {change} {undo} t/undo i.img >/dev/null || code=$?; [ $code = {code} ]; ! cmp -s i.img old
             extant undo t/undo i.img; cmp i.img old"
        ));
        let said = told(&ours);
        assert!(ours.status.success(), "{change}: {said}");
        for part in [
            "undo file: No space left",
            "extant undo t/undo i.img takes back",
        ] {
            assert!(said.contains(part), "{change}: {said}");
        }
    }
}

#[test]
fn e2fsprogs_applies_undo_files_of_extant() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    for (nth, change) in CHANGES.iter().enumerate() {
        theirs(&place, &make(nth));
        ours(&place, change);
        ours(&place, "[ $(stat -c %a undo) = 600 ]");
        // e2undo does not change the length of the file.
        theirs(
            &place,
            "cp i.img copy; e2undo undo copy; truncate -r old copy; cmp copy old",
        );
        ours(&place, "e2undo undo i.img; cmp i.img old");
    }
}

#[test]
fn an_undo_file_applies_to_one_state_of_one_image() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    theirs(&place, &make(0));
    theirs(
        &place,
        "tune2fs -z undo -L new i.img; cp i.img changed; tune2fs -L newer i.img; cp i.img newer",
    );
    let refused = place.ours("e2undo undo i.img");
    let said = told(&refused);
    assert!(
        !refused.status.success() && said.contains("was changed since"),
        "{said}"
    );
    ours(&place, "cmp i.img newer; e2undo -f undo i.img");
    clean(&place.image("i.img"));
    // Test a damaged byte, and a truncated file.
    for damage in [
        "printf x | dd of=bad bs=1 seek=9 conv=notrunc 2>/dev/null",
        "truncate -s -1024 bad",
    ] {
        ours(&place, &format!("cp undo bad; {damage}; cp changed i.img"));
        let refused = place.ours("e2undo -f bad i.img");
        assert!(!refused.status.success(), "{damage}: {}", told(&refused));
        ours(&place, "cmp i.img changed");
    }
}

#[test]
fn the_undo_file_of_a_change_is_a_new_file() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    theirs(&place, &make(0));
    theirs(&place, "echo mine >undo");
    for (change, reason) in [
        ("tune2fs -z undo -L new i.img", "file exists"),
        ("resize2fs -z undo i.img 20M", "file exists"),
        ("e2fsck -fy -z undo i.img", "file exists"),
        ("mke2fs -q -F -z undo i.img", "file exists"),
        ("debugfs -w -z undo -R 'mkdir d' i.img", "file exists"),
        ("extant mkfs --force --undo undo i.img", "file exists"),
        ("extant mkfs --undo new new.qcow2 --size 8M", "omit --undo"),
    ] {
        let refused = place.ours(change);
        let said = told(&refused);
        assert!(
            !refused.status.success() && said.contains(reason),
            "{change}: {said}"
        );
        ours(
            &place,
            "cmp i.img old; [ $(cat undo) = mine ]; [ ! -e new ]",
        );
    }
}

/// Ctrl-C leaves an undo file that is complete.
#[test]
fn an_interrupted_command_is_reverted_by_its_undo_file() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    ours(
        &place,
        "mkdir big; for i in $(seq 24); do head -c 2M /dev/urandom >big/$i; done; \
         extant mkfs -q --from tree --size 96M i.img; cp i.img old",
    );
    // Some old bytes are in the undo file, and the rest of the image is still to be written.
    let script = "extant mkfs -q --force --from big --size 96M --undo undo i.img & \
                  until [ -s undo ] && ! cmp -s i.img old; do kill -0 $! || break; done; kill -INT $!; \
                  code=0; wait $! || code=$?; echo code $code";
    for _ in 0..20 {
        let out = place.ours(&format!("rm -f undo; cp old i.img; set -m; {script}"));
        if told(&out).contains("code 0") {
            continue;
        }
        assert!(told(&out).contains("code 130"), "{}", told(&out));
        assert!(
            told(&out).contains("extant undo undo i.img takes back"),
            "{}",
            told(&out)
        );
        ours(&place, "extant undo undo i.img; cmp i.img old");
        return;
    }
    panic!("no command was interrupted");
}

#[test]
fn a_pipe_is_not_an_undo_file() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    ours(&place, &format!("{}; mkfifo pipe", make(0)));
    for call in [
        "e2undo -h pipe",
        "e2undo -n pipe i.img",
        "e2undo pipe i.img",
    ] {
        let out = place.ours(call);
        assert!(!out.status.success(), "{call}");
        assert!(told(&out).contains("not a regular file"), "{}", told(&out));
    }
}
