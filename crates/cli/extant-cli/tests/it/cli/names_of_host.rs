//! `lsattr`, `chattr` and `e4defrag` on files of the host and of `IMAGE:/PATH`; versions.

use crate::cli::called::{ScriptDir, told};
use crate::cli::support::root;

#[test]
fn attributes_of_host_files_are_listed_and_changed() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    if !needs::have(&["lsattr", "chattr"]) {
        return;
    }
    let made = place.theirs(
        "mkdir -p h/s; echo x >h/f; echo x >h/.dot; echo x >h/s/g; chattr +d h/f && lsattr -d h",
    );
    if !made.status.success() {
        needs::ignored("files here have no flags");
        return;
    }
    for script in [
        "lsattr h/f",
        "lsattr -d h",
        "lsattr -l h/f",
        "lsattr -v h/f | grep -c .",
        "lsattr h | sort",
        "lsattr -a h | sort",
        "lsattr -R h | sort",
        "lsattr none",
        "lsattr /proc/self/status",
        "chattr +A -d h/f; lsattr h/f",
        "chattr =d h/f; lsattr h/f",
        "chattr -R +S h; lsattr -R h | sort; chattr -R -S h; lsattr -d h",
        "chattr -V +A h/f",
        "chattr +D h/f; lsattr h/f",
        "chattr +i none",
        "chattr +q h/f",
        "chattr h/f",
        "chattr +d -d h/f",
        "chattr -f +d none",
        "chattr -f +d none h/f",
        "chattr +d none h/f; lsattr h/f",
        "chattr",
        "chattr +d",
        "chattr -x h/f",
        "chattr -d+S h/f",
        "chattr +d =S h/f",
        "chattr +m h/f; lsattr h/f",
        "chattr -v x h/f",
        "chattr -p x h/f",
        "chattr -p",
        "lsattr -a h",
        "lsattr -laR h",
        "lsattr -x h",
        "lsattr none h/f",
        "mkdir k; ln -s f k/l; mkfifo k/p; lsattr k; rm -r k",
        "ln -s f h/l; code=0; lsattr h/l || code=$?; rm h/l; exit $code",
    ] {
        let (theirs, ours) = (place.theirs(script), place.ours(script));
        assert_eq!(
            ours.status.code(),
            theirs.status.code(),
            "{script}: {}",
            told(&ours)
        );
        assert_eq!(ours.stdout, theirs.stdout, "{script}: {}", told(&ours));
    }
    // A link in a tree is no failure, unlike with chattr 1.47.0, which changes the others, too.
    let linked = "ln -s f h/l; code=0; chattr -R +d h 2>/dev/null || code=$?; lsattr h/s/g; rm h/l; exit $code";
    let (theirs, ours) = (place.theirs(linked), place.ours(linked));
    assert_eq!(
        (theirs.status.code(), ours.status.code()),
        (Some(1), Some(0))
    );
    assert_eq!(ours.stdout, theirs.stdout);
    if root() {
        let script = "chattr +i h/f; rm -f h/f || echo kept; lsattr h/f; chattr -i h/f; lsattr h/f";
        let (theirs, ours) = (place.theirs(script), place.ours(script));
        assert_eq!(told(&ours), told(&theirs));
    }
    // Paths of both kinds in one call.
    let mixed = place.ours("mke2fs -Fq -t ext4 -d tree d.img 16M; chattr +A -d h/f d.img:/etc/motd; lsattr h/f d.img:/etc/motd");
    let text = told(&mixed);
    assert!(mixed.status.success(), "{text}");
    assert_eq!(text.matches("-------A").count(), 2, "{text}");
    assert!(
        text.contains(" h/f\n") && text.contains(" /etc/motd\n"),
        "{text}"
    );
}

#[test]
fn e4defrag_moves_files_that_linux_has_mounted() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    if !root() || !needs::have(&["losetup", "filefrag"]) {
        return;
    }
    // Two files that grow alternately, block by block.
    let script = "truncate -s 64M i.img; mke2fs -Fq -t ext4 -b 1024 i.img; mkdir m; mount -o loop,nodelalloc i.img m || exit 77; \
                  for i in $(seq 60); do head -c 1024 /dev/urandom >>m/a; head -c 1024 /dev/urandom >>m/b; sync -f m; done; \
                  truncate -s 1M m/a; echo end >>m/a; sync -f m; cksum <m/a";
    let before = place.theirs(script);
    if before.status.code() == Some(77) {
        needs::ignored("no loop mounts here");
        return;
    }
    assert!(before.status.success(), "{}", told(&before));
    let (ours, theirs) = (
        place.ours("e4defrag -c m/a"),
        place.theirs("e4defrag -c m/a"),
    );
    // The listing of the files is that of e4defrag, and operands that are no files are refused.
    let listing = |text: String| {
        let lines = text.lines().filter(|line| !line.starts_with("e4defrag "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(listing(told(&ours)), listing(told(&theirs)));
    for operand in ["m/link", "m/fifo", "m/none"] {
        let script =
            format!("ln -sf a m/link; [ -p m/fifo ] || mkfifo m/fifo; e4defrag -c {operand}");
        let (theirs, ours) = (place.theirs(&script), place.ours(&script));
        let codes = (theirs.status.code(), ours.status.code());
        assert_eq!(codes, (Some(1), Some(1)), "{operand}: {}", told(&ours));
    }
    let done = place.ours("e4defrag -v m/a");
    let after =
        place.theirs("cksum <m/a; umount m; e2fsck -fn i.img >/dev/null 2>&1 && echo clean");
    assert!(
        done.status.success() && told(&done).contains("[ OK ]"),
        "{}",
        told(&done)
    );
    let (before, after) = (told(&before), told(&after));
    assert_eq!(after, format!("{before}clean\n"), "{}", told(&done));
    // The count of extents is that of e4defrag.
    let counted = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(" Total/best extents"))
            .unwrap()
            .to_owned();
        line.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(
        counted(&told(&ours)),
        counted(&told(&theirs)),
        "{}",
        told(&ours)
    );
    let line = told(&done);
    let line = line.lines().find(|line| line.contains("extents:")).unwrap();
    let mut numbers = line.split("extents: ").nth(1).unwrap().split(" -> ");
    let mut next = || {
        numbers
            .next()
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .parse::<u32>()
            .unwrap()
    };
    assert!(next() > 10 && next() < 5, "{line}");
}

#[test]
fn versions_are_told_as_e2fsprogs_tells_them() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    // fsarchiver parses a version like this: the first number after the name of the tool.
    for name in [
        "mke2fs",
        "mkfs.ext4",
        "e2fsck",
        "fsck.ext4",
        "dumpe2fs",
        "debugfs",
    ] {
        let (theirs, ours) = (
            place.theirs(&format!("{name} -V")),
            place.ours(&format!("{name} -V")),
        );
        assert_eq!(ours.status.code(), Some(0), "{name}");
        let number = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            (
                words[0].to_owned(),
                words[1].split('.').next().map(str::to_owned),
            )
        };
        assert_eq!(number(&told(&ours)), number(&told(&theirs)), "{name}");
        let said = told(&ours);
        assert!(
            said.starts_with(|c: char| c.is_ascii_lowercase())
                && said.contains(" 1.47.0 (5-Feb-2023)\n"),
            "{said}"
        );
    }
}
