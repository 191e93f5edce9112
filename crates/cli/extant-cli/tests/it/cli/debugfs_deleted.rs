//! Requests of `debugfs` about deleted files, free blocks, quota, MMP and the journal, compared with debugfs and e2fsck.

use crate::cli::called::{ScriptDir, clean, told};

fn made(script: &str) -> Option<ScriptDir> {
    let place = ScriptDir::new()?;
    let out = place.theirs(&format!("set -e; {script}"));
    assert!(out.status.success(), "{}", told(&out));
    Some(place)
}

/// Runs a request on `i.img` with both programs, and returns the output. Panics if the outputs differ.
#[track_caller]
fn same(place: &ScriptDir, request: &str) -> String {
    let line = format!("debugfs -R '{request}' i.img 2>/dev/null");
    let (ours, theirs) = (place.ours(&line), place.theirs(&line));
    assert_eq!(ours.stdout, theirs.stdout, "{request}: {}", told(&ours));
    String::from_utf8_lossy(&ours.stdout).into_owned()
}

#[test]
fn deleted_files_are_listed_and_restored() {
    // Remove the files with debugfs, because it does not clear their mappings.
    let Some(place) = made(
        "head -c 300000 /dev/urandom >big; printf hello >small; mke2fs -q -t ext2 -b 1024 i.img 8M; \
         printf 'write big big\nwrite small small\nmkdir dir\nrm big\nrm small\n' >cmds; debugfs -w -f cmds i.img >/dev/null 2>&1; \
         e2fsck -fn i.img >/dev/null 2>&1 || e2fsck -fy i.img >/dev/null || :",
    ) else {
        return;
    };
    let listed = same(&place, "lsdel");
    assert!(listed.ends_with("2 deleted inodes found.\n"), "{listed}");
    assert!(same(&place, "dump_unused").contains("\nhello"));
    // If the new name exists, the inode stays deleted. An inode in use is not restored.
    let refused = place.ours(
        "printf 'undel <13> dir\\nundel <11> again\\nundel 13 again\\n' >cmds; debugfs -w -f cmds i.img",
    );
    let said = told(&refused);
    for part in [
        "undel: /dir: ",
        "Inode is not marked as deleted",
        "not an inode number: write it as <12>",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(same(&place, "lsdel").ends_with("2 deleted inodes found.\n"));
    clean(&place.image("i.img"));
    let ours = place.ours(
        "set -e; printf 'undel <13> dir/small\\nundel <12>\\nln <12> dir/big\\nsif <12> links_count 1\\n' >cmds; debugfs -w -f cmds i.img; \
         debugfs -R 'cat dir/big' i.img | cmp - big; debugfs -R 'cat dir/small' i.img | cmp - small",
    );
    assert!(ours.status.success(), "{}", told(&ours));
    clean(&place.image("i.img"));
    assert!(same(&place, "lsdel").ends_with("0 deleted inodes found.\n"));
    // e2fsck removes the name of a killed file, and finds no other error.
    let killed = place.ours("debugfs -w -R 'kill_file dir/small' i.img");
    assert!(killed.status.success(), "{}", told(&killed));
    assert!(same(&place, "lsdel").ends_with("1 deleted inodes found.\n"));
    let mended = told(&place.theirs("e2fsck -fy i.img"));
    assert!(mended.contains("small"), "{mended}");
    assert!(!mended.contains("count wrong"), "{mended}");
}

#[test]
fn blocks_of_killed_files_in_clusters_are_counted() {
    let Some(place) = made(
        "head -c 50000 /dev/urandom >big; mke2fs -q -t ext4 -O bigalloc,^resize_inode -b 1024 -C 16384 i.img 8M; \
         debugfs -w -R 'write big big' i.img >/dev/null 2>&1",
    ) else {
        return;
    };
    let killed = place.ours("debugfs -w -R 'kill_file big' i.img");
    assert!(killed.status.success(), "{}", told(&killed));
    let mended = told(&place.theirs("e2fsck -fy i.img"));
    assert!(mended.contains("big"), "{mended}");
    assert!(!mended.contains("count wrong"), "{mended}");
}

#[test]
fn a_file_is_not_restored_if_its_blocks_are_in_use() {
    let Some(place) = made(
        "head -c 2000 /dev/urandom >one; mke2fs -q -t ext2 -b 1024 i.img 1M; \
         printf 'write one one\nmkdir d\nrm one\n' >cmds; debugfs -w -f cmds i.img >/dev/null 2>&1; \
         e2fsck -fy i.img >/dev/null || :; debugfs -R 'blocks <12>' i.img >blocks 2>/dev/null; \
         for b in $(cat blocks); do echo \"setb $b\"; done >cmds; debugfs -w -f cmds i.img >/dev/null 2>&1",
    ) else {
        return;
    };
    let refused = place.ours("cp i.img before; debugfs -w -R 'undel <12> one' i.img");
    assert!(
        told(&refused).contains("is in use again"),
        "{}",
        told(&refused)
    );
    assert!(place.ours("cmp i.img before").status.success());
}

#[test]
fn quota_and_mmp_are_shown() {
    let Some(place) = made("mke2fs -q -t ext4 -O quota,mmp,project -d tree i.img 16M") else {
        return;
    };
    for kind in ["user", "group"] {
        assert!(same(&place, &format!("list_quota {kind}")).contains("\n         0 "));
        same(&place, &format!("get_quota {kind} 0"));
    }
    let shown = same(&place, "dump_mmp");
    assert!(shown.contains("magic: 0x4d4d50"), "{shown}");
    let without = place.ours("mke2fs -Fq -t ext2 j.img 1M; debugfs -R 'list_quota user' j.img || debugfs -R dump_mmp j.img");
    let said = told(&without);
    assert!(
        said.contains("quota feature not enabled") && said.contains("MMP: not active"),
        "{said}"
    );
}

#[test]
fn transactions_are_composed_and_replayed() {
    let Some(place) = made(
        "head -c 3072 /dev/urandom >three; printf '\\300\\073\\071\\230' >magic; head -c 1020 /dev/zero >>magic; \
         mke2fs -q -t ext4 -b 1024 i.img 16M",
    ) else {
        return;
    };
    let ours = place.ours(
        "set -e; printf 'jo\njw -b 9000,9001,9002 three\njw -b 9003 magic\njw -r 9001\njw -c -b 9004 three\njc\n' >cmds; debugfs -w -f cmds i.img; cp i.img j.img; \
         debugfs -w -R jr j.img; debugfs -R 'bd 9000' j.img >/dev/null",
    );
    assert!(ours.status.success(), "{}", told(&ours));
    // e2fsck replays the transactions with the same result.
    let judged = place.theirs(
        "e2fsck -fy i.img >/dev/null; [ $? -le 1 ] || exit 1; for i in i.img j.img; do \
         dd if=$i bs=1024 skip=9000 count=1 2>/dev/null; dd if=$i bs=1024 skip=9002 count=1 2>/dev/null; dd if=$i bs=1024 skip=9003 count=1 2>/dev/null; \
         dd if=$i bs=1024 skip=9001 count=1 2>/dev/null; dd if=$i bs=1024 skip=9004 count=1 2>/dev/null; done >got; \
         for i in 1 2; do head -c 1024 three; tail -c 1024 three; cat magic; head -c 2048 /dev/zero; done | cmp - got",
    );
    assert!(judged.status.success(), "{}", told(&judged));
    for (requests, why) in [
        ("jw -b 9000 three", "Journal not open."),
        ("jo\njo", "Journal is already open."),
        ("jo\njr", "Please close the journal"),
        ("jo -c", "keeps its checksums"),
        (
            "jo\njw -b 9000,9001,9002,9003 three\njc",
            "the file ends before block 9003",
        ),
        ("jo\njw -b 99999999 three\njc", "there is no block 99999999"),
    ] {
        let refused = place.ours(&format!(
            "cp i.img before; printf '{requests}\n' >cmds; debugfs -w -f cmds i.img; code=$?; cmp i.img before && exit $code"
        ));
        let said = told(&refused);
        assert!(
            refused.status.code() == Some(1) && said.contains(why),
            "{requests}: {said}"
        );
    }
}

#[test]
fn e2fsck_reads_the_device_first() {
    let Some(place) = made("mke2fs -q -t ext4 i.img 16M; : >none; echo 5 >some") else {
        return;
    };
    let ours = place.ours("e2fsck -c -k -y i.img && e2fsck -l none -fy i.img");
    assert!(ours.status.success(), "{}", told(&ours));
    let refused = place.ours("e2fsck -l some -fy i.img");
    assert_eq!(refused.status.code(), Some(16), "{}", told(&refused));
}
