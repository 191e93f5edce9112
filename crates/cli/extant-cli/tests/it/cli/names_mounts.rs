//! `fuse2fs` with the options in common use, and `e2undo`.

use crate::cli::called::{ScriptDir, clean, told};

fn has_fuse() -> bool {
    let there = std::path::Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !there {
        needs::ignored("it takes root and /dev/fuse");
    }
    there
}

#[test]
fn fuse2fs_takes_the_options_of_its_callers() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    if !has_fuse() {
        return;
    }
    let made = place.theirs(
        "mkdir m; mke2fs -q -t ext4 -d tree i.img 32M; (head -c 1048576 /dev/zero; cat i.img) >off.img",
    );
    assert!(made.status.success(), "{}", told(&made));
    for options in [
        "-o ro i.img",
        "-o ro,offset=1048576 off.img",
        "-o offset=1048576 off.img",
        "-o lockfile=lock i.img",
        "-o cache_size=32M i.img",
        "-o direct,noblkdev i.img",
        "-o fakeroot i.img",
        "-o '' i.img",
    ] {
        let script = format!(
            "fuse2fs {options} m; cat m/etc/motd; ls lock 2>/dev/null || :; umount m; \
             for i in $(seq 100); do [ -e lock ] || break; sleep 0.05; done; ls lock 2>/dev/null || :"
        );
        let ours = place.ours(&script);
        let lock = if options.contains("lockfile") {
            "lock\n"
        } else {
            ""
        };
        assert_eq!(told(&ours), format!("welcome\n{lock}"), "{options}");
        assert!(ours.status.success(), "{options}");
    }
    clean(&place.image("i.img"));
    let refused = place.ours("fuse2fs -o nonsense i.img m");
    assert_eq!(refused.status.code(), Some(1));
    assert!(told(&refused).contains("nonsense"), "{}", told(&refused));
}

#[test]
fn e2undo_takes_back_what_an_undo_file_holds() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let script = "mke2fs -q -t ext4 i.img 32M; cksum i.img; tune2fs -z undo -U random i.img; e2undo -h undo | grep -c keys; e2undo -n undo i.img; \
                  e2undo undo i.img >/dev/null; cksum i.img; e2undo -v undo none || echo failed";
    let ours = place.ours(script);
    let text = told(&ours);
    let sums: Vec<&str> = text
        .lines()
        .filter(|line| line.ends_with(" i.img"))
        .collect();
    assert!(sums.len() == 2 && sums[0] == sums[1], "{text}");
    assert!(
        text.contains("\n1\n") && text.contains("failed\n"),
        "{text}"
    );
}
