//! Options of e2fsck in scripts.

use crate::cli::called::{ScriptDir, clean, told};

#[test]
fn options_are_taken_on_a_clean_image() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = place.theirs("mke2fs -q -t ext4 -b 4096 -d tree k.img 256M");
    assert!(made.status.success(), "{}", told(&made));
    for options in [
        "-E discard",
        "-E nodiscard",
        "-E journal_only",
        "-E fixes_only",
        "-E unshare_blocks",
        "-E bmap2extent",
        "-E optimize_extents",
        "-E no_optimize_extents,readahead_kb=64",
        "-E inode_count_fullmap",
        "-E fragcheck",
        "-E clear_all_uninit_bits",
        "-b 32768",
        "-b 32768 -B 4096",
    ] {
        let script = format!("cp --sparse=always k.img i.img; e2fsck -fy {options} i.img");
        let (theirs, ours) = (place.theirs(&script), place.ours(&script));
        let codes = [&theirs, &ours].map(|out| out.status.code().unwrap_or(99));
        assert!(
            codes[0] <= 1 && codes[1] <= 1,
            "{options}: {codes:?} {}",
            told(&ours)
        );
        clean(&place.image("i.img"));
    }
    for (script, code) in [
        ("e2fsck -fy -b 5 k.img", 8),
        ("e2fsck -fy -B 4096 k.img", 0),
        ("e2fsck -fy -B 2048 k.img", 0),
        ("e2fsck -fy -E fsync k.img", 16),
        ("e2fsck -n -E journal_only k.img", 0),
        ("e2fsck -n -E journal_only none.img", 8),
        ("e2fsck -E journal_only k.img </dev/null", 8),
        ("e2fsck -fn -E unshare_blocks k.img", 0),
        ("e2fsck -fp -E unshare_blocks k.img", 0),
    ] {
        let ours = place.ours(script);
        if !script.contains("fsync") && !script.contains("-b 5") {
            let theirs = place.theirs(script);
            assert_eq!(
                theirs.status.code(),
                Some(code),
                "{script}: {}",
                told(&theirs)
            );
        }
        assert_eq!(ours.status.code(), Some(code), "{script}: {}", told(&ours));
    }
}

/// Contradictions end with the code of e2fsck, and name the same options. The order of the letters and
/// of a missing operand decides which error is reported.
#[test]
fn contradictions_end_like_those_of_e2fsck() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = place.theirs("mke2fs -q -t ext4 k.img 16M; : >list");
    assert!(made.status.success(), "{}", told(&made));
    let modes = ["-p", "-a", "-n", "-y"];
    let mut lines: Vec<String> = Vec::new();
    for first in modes {
        for second in modes {
            lines.push(format!("{first} {second} k.img"));
            lines.push(format!("{first} -f {second}"));
            lines.push(format!("-V {first} {second} k.img"));
            lines.push(format!("{first} -Q {second} k.img"));
            lines.push(format!("{first} {second} -Q k.img"));
            lines.push(format!("{first}f{} none.img", &second[1..]));
        }
        for change in [
            "-D",
            "-c",
            "-l list",
            "-L list",
            "-l none",
            "-c -l list",
            "-D -c",
            "-k",
        ] {
            lines.push(format!("{first} {change} k.img"));
            lines.push(format!("{change} {first}"));
            lines.push(format!("{change} {first} none.img"));
            lines.push(format!("{change} {first} -Q k.img"));
        }
    }
    let mut wrong = Vec::new();
    for line in lines {
        // A list of bad blocks that cannot be set is refused by its name.
        let refused = line.contains("-L") && !line.contains("-n");
        // e2fsck fails later at a list that does not exist.
        if refused || line.contains("-l none") && !line.contains("-n") {
            continue;
        }
        let script = format!("cp k.img i.img; e2fsck {}", line.replace("k.img", "i.img"));
        let (theirs, ours) = (place.theirs(&script), place.ours(&script));
        let said = [&theirs, &ours].map(|out| {
            let text = told(out).to_lowercase();
            let words = ["only one of", "incompatible", "both be used", "both used"];
            let contradicts = words.iter().any(|word| text.contains(word));
            (out.status.code(), contradicts)
        });
        if said[0] != said[1] {
            let (theirs, ours) = (told(&theirs), told(&ours));
            wrong.push(format!("{line}: {said:?}\n{theirs}{ours}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_lost_superblock_is_found_by_its_copy() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let script = "mke2fs -q -t ext4 -b 4096 -d tree i.img 256M; dd if=/dev/zero of=i.img bs=1k seek=1 count=1 conv=notrunc 2>/dev/null; \
                  e2fsck -fy -b 32768 -B 4096 i.img";
    let (theirs, ours) = (place.theirs(script), place.ours(script));
    assert_eq!(ours.status.code(), theirs.status.code(), "{}", told(&ours));
    clean(&place.image("i.img"));
    let read = place.theirs("debugfs -R 'cat /etc/motd' i.img");
    assert!(told(&read).contains("welcome"), "{}", told(&read));
}

#[test]
fn blocks_that_files_share_become_their_own() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    // Two files with the same blocks, as made by Android's tools.
    let made = "head -c 200000 /dev/urandom >tree/one; cp tree/one tree/two; mke2fs -q -t ext4 -b 4096 -O ^metadata_csum -d tree i.img 32M; \
                debugfs -R 'dump_extents /one' i.img 2>/dev/null | tail -n 1";
    let made = place.theirs(made);
    assert!(made.status.success(), "{}", told(&made));
    let shared = "block=$(debugfs -R 'stat /one' i.img 2>/dev/null | grep -o '^(0-48):[0-9]*' | cut -d: -f2); \
                  inode=$(debugfs -R 'stat /one' i.img 2>/dev/null | sed -n 's/^Inode: \\([0-9]*\\) .*/\\1/p'); \
                  debugfs -w -R \"sif /two block[5] $block\" i.img >/dev/null 2>&1; debugfs -w -R 'feature shared_blocks' i.img; \
                  cp i.img k.img; debugfs -R 'dump /two two' i.img; cmp two tree/one && echo same";
    let shared = place.theirs(shared);
    assert!(told(&shared).contains("same\n"), "{}", told(&shared));
    let checked = place.ours("e2fsck -fy -E unshare_blocks i.img");
    assert!(checked.status.code() <= Some(1), "{}", told(&checked));
    clean(&place.image("i.img"));
    let after = place.theirs(
        "debugfs -R 'dump /one one' i.img; debugfs -R 'dump /two two' i.img; cmp one tree/one && cmp two tree/two && echo same; \
         dumpe2fs -h i.img 2>/dev/null | grep features",
    );
    let text = told(&after);
    assert!(
        text.contains("same\n") && !text.contains("shared_blocks"),
        "{text}"
    );
}

#[test]
fn files_mapped_by_blocks_are_mapped_by_extents() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = "head -c 3000000 /dev/urandom >tree/big; mke2fs -q -t ext3 -b 1024 -d tree i.img 32M; tune2fs -O extent i.img >/dev/null; cp i.img k.img";
    let made = place.theirs(made);
    assert!(made.status.success(), "{}", told(&made));
    let ours = place.ours("e2fsck -fy -E bmap2extent i.img");
    let theirs = place.theirs("e2fsck -fy -E bmap2extent k.img");
    assert_eq!(ours.status.code(), theirs.status.code(), "{}", told(&ours));
    clean(&place.image("i.img"));
    let after = place.theirs(
        "debugfs -R 'stat /big' i.img 2>/dev/null | grep -E 'EXTENTS|Flags'; debugfs -R 'dump /big big' i.img; cmp big tree/big && echo same",
    );
    let text = told(&after);
    assert!(
        text.contains("EXTENTS") && text.contains("0x80000") && text.contains("same"),
        "{text}"
    );
}

#[test]
fn directories_without_room_for_checksums_keep_all_names() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = "mkdir tree/full; for i in $(seq 470); do : >tree/full/a-name-of-31-bytes-for-$i; done; \
                mke2fs -q -t ext4 -b 1024 -N 1000 -O ^metadata_csum -d tree i.img 32M; printf 'feature metadata_csum\nssv checksum_type 1\n' | debugfs -w i.img >/dev/null 2>&1";
    let made = place.theirs(made);
    assert!(made.status.success(), "{}", told(&made));
    for how in ["-fyD", "-fy", "-fp"] {
        let ours = place.ours(&format!("cp i.img w.img; e2fsck {how} w.img"));
        assert_eq!(ours.status.code(), Some(1), "{how}: {}", told(&ours));
        clean(&place.image("w.img"));
        let names = place.theirs(
            "debugfs -R 'ls -p /full' w.img 2>/dev/null | grep -c a-name; debugfs -R 'ls -p /lost+found' w.img 2>/dev/null | grep -c '#' || :",
        );
        assert_eq!(told(&names), "470\n0\n", "{how}");
    }
}

#[test]
fn a_volume_that_was_not_unmounted_is_marked_as_checked() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = place.theirs("mke2fs -q -t ext2 -d tree i.img 16M; printf 'ssv state 0\nssv mnt_count 9\nssv lastcheck @5\n' | debugfs -w i.img");
    assert!(made.status.success(), "{}", told(&made));
    let seen = "dumpe2fs -h w.img 2>/dev/null | grep -E 'state|^Mount count'; dumpe2fs -h w.img 2>/dev/null | grep -c 'Last checked: .* 1970' || :";
    for how in ["-p", "-y", "-fy"] {
        let script =
            format!("cp i.img w.img; e2fsck {how} w.img >/dev/null 2>&1 || echo code $?; {seen}");
        let (theirs, ours) = (place.theirs(&script), place.ours(&script));
        assert_eq!(told(&ours), told(&theirs), "{how}: ours left");
        assert!(told(&ours).contains("clean"), "{}", told(&ours));
    }
}
