//! `lsattr`, `chattr` and `e4defrag` on files of the host and of `IMAGE:/PATH`; versions.

use crate::cli::called::{ScriptDir, clean, told};
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
        "chattr -fV +F h/f",
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
        let silent = (ours.stderr.is_empty(), theirs.stderr.is_empty());
        assert_eq!(silent.0, silent.1, "{script}: {}", told(&ours));
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

/// Paths in an image are listed and changed as on a mount of it. `%` is the image.
#[test]
fn attributes_in_images_are_those_of_a_mount() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    if !root() || !needs::have(&["lsattr", "chattr", "losetup"]) {
        return;
    }
    let made = place.theirs(
        "mkdir -p m t/d/sub t/.h; echo a >t/f; echo b >t/d/g; ln -s f t/l; ln -s d t/dl; mkfifo t/p; echo c >t/.h/i; \
         mke2fs -q -t ext4 -d t i.img 16M; mount -o loop i.img m || exit 77; umount m",
    );
    if made.status.code() == Some(77) {
        needs::ignored("no loop mounts here");
        return;
    }
    for script in [
        "lsattr %/",
        "lsattr %/f %/d %/none",
        "lsattr -a %/d",
        "lsattr -d %/d %/.h",
        "lsattr -R %/",
        "lsattr -Ra %/",
        "lsattr -Rd %/d",
        "lsattr -l %/d",
        "lsattr -vl %/d",
        "lsattr %/l",
        "lsattr %/dl",
        "lsattr -d %/p",
        "chattr +d %/f",
        "chattr +D %/f %/d",
        "chattr -V +A %/f",
        "chattr -R +S %/d",
        "chattr -RV +S %/d",
        "chattr =ed %/f",
        "chattr +d %/none %/f",
        "chattr -f +d %/none",
        "chattr -fR +A %/l %/d",
        "chattr +d %/l",
        "chattr +m %/f",
        "chattr -V +m %/f",
        "chattr +C %/f",
        "chattr -fV +C %/f %/d",
        "chattr -V +T %/f",
        "chattr -fR +d %/none %/d",
        "chattr +q %/f",
        "chattr +a-d %/f",
        "chattr -d+S %/f",
        "chattr -V -p 0 %/f",
        "chattr -V +d -v 7 %/f",
    ] {
        let mounted = script.replace('%', "m");
        let theirs = place.theirs(&format!(
            "cp i.img k.img; mount -o loop k.img m; code=0; {{ {mounted}; }} || code=$?; lsattr -Ra m; umount m; exit $code"
        ));
        let in_image = script.replace('%', "j.img:");
        let ours = place.ours(&format!(
            "cp i.img j.img; code=0; {{ {in_image}; }} || code=$?; lsattr -Ra j.img:/; exit $code"
        ));
        let sorted = |text: String| {
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let lines = text.lines().map(words);
            // The parent of a mount's root is a directory of the host.
            let mut lines: Vec<String> = lines.filter(|line| !line.ends_with(" /..")).collect();
            lines.sort();
            lines
        };
        let text = |out: &std::process::Output| String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(
            sorted(text(&ours)),
            sorted(text(&theirs).replace("m//", "/").replace("m/", "/")),
            "{script}: {}",
            told(&ours)
        );
        assert_eq!(
            ours.status.code(),
            theirs.status.code(),
            "{script}: {}",
            told(&ours)
        );
        let silent = (ours.stderr.is_empty(), theirs.stderr.is_empty());
        assert_eq!(silent.0, silent.1, "{script}: {}", told(&ours));
    }
}

/// Makes an image with the files `f` and `g`, and the directory `d` with the file `h`.
fn small_image(place: &ScriptDir, name: &str, kind: &str) {
    let made = place.theirs(&format!(
        "mkdir -p s/d; echo a >s/f; echo b >s/g; echo c >s/d/h; mke2fs -Fq -t {kind} -d s {name} 16M"
    ));
    assert!(made.status.success(), "{}", told(&made));
}

/// The number of an inode means that inode, and not the directory that the search for paths begins at.
#[test]
fn attributes_are_those_of_a_numbered_inode() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    small_image(&place, "d.img", "ext4");
    let number = |path: &str| {
        let stat = place.theirs(&format!("debugfs -R 'stat {path}' d.img 2>/dev/null"));
        let text = told(&stat);
        let mut words = text.split_whitespace().skip_while(|word| *word != "Inode:");
        words.nth(1).unwrap().to_owned()
    };
    let (f, d) = (number("/f"), number("/d"));
    let flags = |path: &str| {
        let listed = place.ours(&format!("lsattr -d 'd.img:{path}'"));
        assert!(listed.status.success(), "{path}: {}", told(&listed));
        let text = told(&listed);
        text.split_whitespace().next().unwrap().to_owned()
    };
    let plain = "--------------e-------";
    let listed = place.ours(&format!("lsattr 'd.img:<{f}>'"));
    assert_eq!(told(&listed), format!("{plain} <{f}>\n"));
    for end in ["", "/", "//"] {
        let listed = place.ours(&format!("lsattr 'd.img:<{d}>{end}'"));
        let path = format!("<{d}>{}h", if end.is_empty() { "/" } else { end });
        assert_eq!(told(&listed), format!("{plain} {path}\n"));
    }
    let changed = place.ours(&format!(
        "chattr -R +i 'd.img:<{f}>'; chattr -R +A 'd.img:<{d}>/'"
    ));
    assert!(changed.status.success(), "{}", told(&changed));
    for (path, wanted) in [
        ("/", plain),
        ("/g", plain),
        ("/f", "----i---------e-------"),
        ("/d", "-------A------e-------"),
        ("/d/h", "-------A------e-------"),
    ] {
        assert_eq!(flags(path), wanted, "{path}");
    }
}

/// Messages name the image and the field, and the other operands are changed.
#[test]
fn messages_about_attributes_in_images_name_the_image() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    small_image(&place, "d.img", "ext4");
    small_image(&place, "b.img", "ext2");
    let mapping = "cannot change 'e': the mapping of a file stays while setting flags";
    for (script, wanted) in [
        ("chattr -e d.img:/f", format!("{mapping} on d.img:/f\n")),
        ("chattr +e b.img:/f", format!("{mapping} on b.img:/f\n")),
        ("chattr =e b.img:/f", format!("{mapping} on b.img:/f\n")),
        (
            "chattr -p 5 d.img:/f",
            " while setting project on d.img:/f\n".into(),
        ),
        (
            "chattr -v 5 d.img:/f",
            " while setting version on d.img:/f\n".into(),
        ),
        (
            "chattr +C d.img:/f",
            "Operation not supported while setting flags on d.img:/f\n".into(),
        ),
        (
            "chattr +d d.img:/none",
            "d.img:/none: no such file or directory".into(),
        ),
        (
            "chattr +d 'd.img:/none*'",
            "d.img:/none*: no name matches this pattern".into(),
        ),
        (
            "chattr +d 'd.img:<1000000>'",
            "d.img:<1000000>: there is no inode 1000000".into(),
        ),
        (
            "lsattr d.img:/none b.img:/none",
            "b.img:/none: no such file or directory".into(),
        ),
        (
            "lsattr none.img:/f",
            "none.img: no such file or directory".into(),
        ),
    ] {
        let failed = place.ours(script);
        assert_eq!(failed.status.code(), Some(1), "{script}: {}", told(&failed));
        assert!(
            told(&failed).contains(&wanted),
            "{script}: {}",
            told(&failed)
        );
    }
    // Setting a flag that all files of a volume have already does not change the mapping.
    let same = place.ours("chattr +e d.img:/f; chattr -e b.img:/f; chattr =d b.img:/f");
    assert_eq!((same.status.code(), told(&same)), (Some(0), String::new()));
    // If one match of a pattern fails, the other matches and the other operands are changed.
    let others = place.ours(
        "ln -s f s/e; mke2fs -Fq -t ext4 -d s p.img 16M; code=0; \
         chattr +d 'p.img:/[ef]' p.img:/none p.img:/g || code=$?; lsattr -d p.img:/f p.img:/g; exit $code",
    );
    let text = told(&others);
    assert_eq!(others.status.code(), Some(1), "{text}");
    assert_eq!(text.matches("------d-------e-------").count(), 2, "{text}");
    assert!(text.contains("while reading flags on p.img:/e\n"), "{text}");
    let listed = place.ours("code=0; lsattr 'p.img:/[ef]' || code=$?; exit $code");
    let text = told(&listed);
    assert_eq!(listed.status.code(), Some(1), "{text}");
    assert!(text.contains(" /f\n"), "{text}");
}

/// An interrupt ends a walk at once, and the image is closed.
#[test]
fn an_interrupt_ends_lsattr_and_chattr_of_a_tree_in_an_image() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    // The lines do not fit into a pipe, so that the programs wait for the reader until the signal has arrived.
    let made = place.theirs(
        "mkdir -p s/d; for i in $(seq 1000); do : >s/d/$(printf '%0200d' $i); done; \
         mke2fs -Fq -t ext4 -d s d.img 32M; mkfifo p",
    );
    assert!(made.status.success(), "{}", told(&made));
    for script in ["lsattr -R d.img:/", "chattr -RV +d d.img:/"] {
        let ended = place.ours(&format!(
            "{script} >p & exec 3<p; head -c 1 <&3 >first; kill -TERM $!; cat <&3 >rest; \
             code=0; wait $! || code=$?; wc -l <rest; exit $code"
        ));
        let text = told(&ended);
        assert_eq!(ended.status.code(), Some(130), "{script}: {text}");
        assert!(text.contains("interrupted\n"), "{script}: {text}");
        let lines: usize = String::from_utf8_lossy(&ended.stdout)
            .trim()
            .parse()
            .unwrap();
        assert!(lines < 1000, "{script}: {text}");
        clean(&place.image("d.img"));
    }
}

/// Names of images that begin with a dash, and a reader that goes away.
#[test]
fn odd_operands_and_readers_are_taken() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = place.ours("mke2fs -q -t ext4 ./-x.img 16M");
    assert!(made.status.success(), "{}", told(&made));
    for script in [
        "e2fsck -fn -- -x.img",
        "e2fsck -p -- -x.img",
        "resize2fs -P -- -x.img",
    ] {
        let ours = place.ours(script);
        assert!(ours.status.success(), "{script}: {}", told(&ours));
    }
    for script in [
        "tune2fs -l -- -x.img",
        "lsattr -R ./-x.img:/",
        "dumpe2fs -- -x.img",
    ] {
        // The code of a shell for a program that SIGPIPE has ended.
        let piped = place.ours(&format!(
            "{{ sleep 0.2; code=0; {script} || code=$?; echo $code >&2; }} | true"
        ));
        let code = told(&piped);
        let code = code.lines().last().unwrap_or_default();
        assert!(
            code == "141" && told(&piped).lines().count() <= 2,
            "{script}: {}",
            told(&piped)
        );
    }
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
