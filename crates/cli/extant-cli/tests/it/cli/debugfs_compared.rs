//! Requests of debugfs with unusual arguments, by both implementations: equal answers, and failures of ours where
//! debugfs reports an error.

use crate::cli::called::{ScriptDir, clean, told};

/// Images that the requests are asked of, by the options of mke2fs.
const IMAGES: [&str; 2] = [
    "-t ext4 -b 1024 d.img 32M",
    "-t ext2 -b 1024 -I 128 d.img 16M",
];

/// Requests with equal answers.
const SAME: &[&str] = &[
    "stat <1>",
    "stat /longlink",
    "stat \"/with blank\"",
    "stat etc/../etc/motd",
    "ls -ld /etc",
    "ls -c /etc",
    "ls -lc /etc",
    "ls -pc /many",
    "ls -cd /etc",
    "ls /etc -l",
    "ls -r /",
    "dump_extents -n -l /sparse",
    "dump_extents -nl /sparse",
    "dump_extents /hard",
    "htree_dump /many",
    "bmap /large 0x10",
    "bmap /large 010",
    "bmap /large 100000",
    "bd -f /large 3",
    "bd -f /etc/motd 5",
    "idump -b /large",
    "idump -b /link",
    "icheck 0 1 99999999",
    "ncheck 2",
    "ncheck <12> <13>",
    "ncheck -c 14 13 12",
    "ncheck 12 13 -c",
    "testb 100 5",
    "testb 100 0",
    "testi <16>",
    "ffb 0",
    "ffb 3 5000",
    "ffb 2 99999999",
    "ffi 2 040755",
    "ffi 0x2",
    "supported_features dir_index",
    "supported_features journal_64bit extents",
    "dx_hash -c foo",
    "dx_hash foo -h tea",
    "dirsearch / nothing",
    "ea_list /link",
    "ea_get -V /etc/motd user.a",
    "ea_get -xV /etc/motd user.a",
    "ea_get /etc/motd user.a -x",
    "ea_get -r /etc/motd user.a",
    "filefrag",
    "filefrag /",
    "filefrag -v /large",
    "filefrag -v /sparse",
    "filefrag -v /hard",
    "filefrag /link",
    "filefrag -dv /many",
    "filefrag /etc",
    "filefrag -r /etc",
    "filefrag -vr .",
    "filefrag <8>",
    "freefrag",
    "stats",
    "lsdel",
    "set_current_time 5",
    "cat /etc/motd",
];

/// Requests that debugfs answers with an error.
const FAILS: &[&str] = &[
    "stat",
    "stat <0>",
    "stat <99999>",
    "stat <x>",
    "stat 12",
    "stat /link/x",
    "stat -f /etc/motd",
    "ls -x",
    "ls /etc /many",
    "ls /etc/motd",
    "dump_extents",
    "dump_extents /link",
    "htree_dump /etc",
    "htree_dump /large",
    "bmap /large",
    "bmap /large x",
    "bmap /large 4294967295",
    "bmap /large 4294967296",
    "bd",
    "bd x",
    "bd 99999999",
    "idump <99999>",
    "idump -b -e /etc/motd",
    "icheck",
    "icheck 5000 x",
    "ncheck",
    "ncheck 0",
    "ncheck 99999",
    "ncheck -x 12",
    "testb 0",
    "testb x",
    "testb 100 x",
    "testi <99999>",
    "ffb x",
    "ffb 1 2 3",
    "ffi /etc",
    "ffi 99999",
    "ffi 2 x",
    "blocks /nothing",
    "supported_features nothing",
    "dx_hash",
    "dx_hash foo bar",
    "dx_hash -x foo",
    "dirsearch /nothing x",
    "ea_get -f out /etc/motd user.none",
    "ea_get /etc/motd a",
    "filefrag /nothing",
    "filefrag -x /large",
    "stats -x",
    "stats x",
    "lq x",
    "logdump -b x",
    "logdump -x",
    "dump -x /etc/motd out",
    "dump /nothing out",
    "dump /etc/motd /nodir/out",
    "rdump /etc /nodir",
    "rdump /etc",
    "cat",
    "cat /nothing",
    "rm /etc/motd",
    "set_current_time x",
    "sif -x",
    "ssv -x",
    "set_bg -x",
    "sif",
];

/// Makes `d.img` with files of all kinds, attributes, a hashed directory and deleted files.
fn make(place: &ScriptDir, options: &str) {
    let script = format!(
        "rm -rf tree/many tree/etc/pipe tree/hard tree/longlink; mkdir tree/many; \
         for i in $(seq 300); do : >tree/many/a-rather-long-name-$i; done; mkfifo tree/etc/pipe; ln tree/etc/motd tree/hard; \
         ln -s $(seq -s x 100 | head -c 100) tree/longlink; echo x >'tree/with blank'; rm -f tree/sparse; \
         for i in $(seq 0 3 900); do echo x | dd of=tree/sparse bs=1k seek=$i conv=notrunc 2>/dev/null; done; \
         mke2fs -Fq -N 1000 -d tree {options} 2>/dev/null; e2fsck -fyD d.img >/dev/null 2>&1 || :; echo small >small; \
         printf 'ea_set /etc/motd user.a value\\nwrite small /etc/gone\\nrm /etc/gone\\nfallocate /hard 10 20\\nsetb 9000 3\\n\
         setb 9010 70\\n' >cmds; debugfs -w -f cmds d.img >/dev/null 2>&1"
    );
    let made = place.theirs(&script);
    assert!(made.status.success(), "{}", told(&made));
}

/// Returns the answers of requests in a file, each with its echo.
fn answers(out: &std::process::Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.split("debugfs: ").map(str::to_owned).collect()
}

#[test]
fn requests_with_unusual_arguments_are_answered_as_by_debugfs() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let mut wrong = Vec::new();
    for options in IMAGES {
        make(&place, options);
        std::fs::write(place.image("asks"), SAME.join("\n") + "\n").unwrap();
        let script = "debugfs -f asks d.img";
        let (theirs, ours) = (place.theirs(script), place.ours(script));
        let (of_theirs, of_ours) = (answers(&theirs), answers(&ours));
        assert_eq!(of_theirs.len(), of_ours.len(), "{}", told(&ours));
        for (theirs, ours) in of_theirs.iter().zip(&of_ours) {
            if theirs != ours {
                wrong.push(format!("{options}: {theirs}\n{ours}"));
            }
        }
        // The only requests without an answer: ext2 has no trees of extents.
        let extents = SAME.iter().filter(|line| line.starts_with("dump_extents"));
        let expected: Vec<String> = extents
            .filter(|_| options.contains("-t ext2"))
            .filter_map(|request| request.rsplit(' ').next())
            .map(|file| format!("debugfs: dump_extents: {file}: does not uses extent block maps"))
            .collect();
        let failures = String::from_utf8_lossy(&ours.stderr).into_owned();
        let unexpected = failures
            .lines()
            .filter(|line| !expected.iter().any(|is| is == line));
        wrong.extend(unexpected.map(|line| format!("{options}: {line}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Fields that debugfs lists and we do not, or by another type: those of the Hurd, halves of times, and others.
const OTHER_FIELDS: &[&str] = &[
    "atime[_hi|_lo]",
    "ctime[_hi|_lo]",
    "mtime[_hi|_lo]",
    "crtime[_hi|_lo]",
    "translator",
    "frag",
    "fsize",
    "author",
    "bmap[]",
    "checksum[_hi|_lo]",
    "log_cluster_size",
    "overhead_clusters",
    "encrypt_algos[4]",
    "encoding",
];

#[test]
fn the_fields_that_can_be_set_are_listed() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    make(&place, IMAGES[0]);
    let name = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    for (request, long, target) in [
        ("set_bg", "set_block_group", "0 "),
        ("sif", "set_inode_field", "/etc/motd "),
        ("ssv", "set_super_value", ""),
    ] {
        let script = format!("debugfs -R '{request} -l' d.img 2>/dev/null");
        let (theirs, ours) = (place.theirs(&script), place.ours(&script));
        let again = place.ours(&format!("debugfs -R '{long} -l' d.img"));
        assert_eq!(ours.stdout, again.stdout);
        let ours = String::from_utf8(ours.stdout).unwrap();
        let theirs = String::from_utf8(theirs.stdout).unwrap();
        let missing = theirs.lines().filter(|line| {
            !ours.lines().any(|own| own == *line) && !OTHER_FIELDS.contains(&&*name(line))
        });
        assert_eq!(missing.collect::<Vec<_>>(), [""; 0], "{request}: {ours}");
        assert_eq!(ours.lines().next(), theirs.lines().next());
        let names = ours.lines().skip(1).map(name);
        let lines = names.map(|name| {
            let name = name.replace("[_hi|_lo]", "");
            let name = if name.starts_with("block[") {
                name
            } else {
                name.split('[').next().unwrap().to_owned()
            };
            format!("{request} {target}{name} 0\n")
        });
        std::fs::write(place.image("asks"), lines.collect::<String>()).unwrap();
        let set = place.ours("cp d.img e.img; debugfs -w -f asks e.img");
        assert!(!told(&set).contains("invalid field"), "{}", told(&set));
    }
}

#[test]
fn requests_that_fail_in_debugfs_fail() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    make(&place, IMAGES[0]);
    let before = std::fs::read(place.image("d.img")).unwrap();
    let mut wrong = Vec::new();
    for request in FAILS {
        std::fs::write(place.image("ask"), format!("{request}\n")).unwrap();
        let (theirs, ours) = (
            place.theirs("debugfs -f ask d.img; rm -f out"),
            place.ours("debugfs -R \"$(cat ask)\" d.img"),
        );
        let (error, code) = (String::from_utf8_lossy(&theirs.stderr), ours.status.code());
        // debugfs says nothing about inode 0.
        let fails = error.lines().count() > 1 || request.contains("<0>");
        if !fails || code != Some(1) || !ours.stdout.is_empty() {
            wrong.push(format!("{request}: {error}\n{code:?} {}", told(&ours)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(std::fs::read(place.image("d.img")).unwrap() == before);
    assert!(!place.image("out").exists());
}

/// Requests that are refused by name, before anything is done.
#[test]
fn options_of_requests_without_an_equivalent_are_refused() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    make(&place, IMAGES[0]);
    let before = std::fs::read(place.image("d.img")).unwrap();
    for (request, said) in [
        (
            "bmap -a /large 500",
            "bmap: -a and a physical block are not supported",
        ),
        (
            "bmap /large 500 9000",
            "bmap: -a and a physical block are not supported",
        ),
        ("bd -x 100", "bd: -x is not supported"),
        ("idump -x /etc/motd", "idump: -x is not supported"),
        ("freefrag -c 64", "freefrag: -c is not supported"),
        ("dx_hash -c -e utf8 foo", "dx_hash: -e is not supported"),
        ("ea_get -C /etc/motd user.a", "ea_get: -C is not supported"),
        ("logdump -O", "logdump: -O is not supported"),
        ("logdump out", "logdump: an output file is not supported"),
    ] {
        let ours = place.ours(&format!("debugfs -w -R '{request}' d.img"));
        assert_eq!(ours.status.code(), Some(1), "{request}: {}", told(&ours));
        assert!(told(&ours).contains(said), "{request}: {}", told(&ours));
    }
    assert!(std::fs::read(place.image("d.img")).unwrap() == before);
}

/// A damaged image may have a directory below itself: its files are listed once.
#[test]
fn a_directory_below_itself_is_listed_once() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    make(&place, IMAGES[0]);
    let linked = place.theirs("debugfs -w -R 'ln /etc /etc/again' d.img 2>&1");
    assert!(linked.status.success(), "{}", told(&linked));
    let ours = place.ours("timeout 60 debugfs -R 'filefrag -r /' d.img");
    let listed = String::from_utf8_lossy(&ours.stdout).into_owned();
    assert!(ours.status.success(), "{}", told(&ours));
    let lines = |name: &str| listed.lines().filter(|line| line.contains(name)).count();
    assert_eq!((lines("/etc/again:"), lines("/motd:")), (1, 1), "{listed}");
}

/// Journals with transactions to replay, with transactions from before, and without.
#[test]
fn journals_are_listed_as_by_debugfs() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    make(&place, IMAGES[0]);
    std::fs::write(place.image("three"), [7; 3072]).unwrap();
    std::fs::write(place.image("one"), [8; 1024]).unwrap();
    let long = "jo\njw -b 9000,9001,9002 three\njw -b 9000 -r 9003,9004 one\njc\n";
    let logged = |script: &str| format!("printf '{script}' >log; debugfs -w -f log d.img");
    let replayed = "debugfs -w -R jr d.img".to_owned();
    let short = logged("jo\njw -b 9000 one\njc\n");
    for made in [":".to_owned(), logged(long), replayed, short] {
        let done = place.theirs(&format!("({made}) >/dev/null 2>&1"));
        assert!(done.status.success(), "{made}: {}", told(&done));
        for options in ["", "-a", "-b 9000", "-b 9003", "-a -b 9000"] {
            let script = format!("debugfs -R 'logdump {options}' d.img 2>/dev/null");
            let (theirs, ours) = (place.theirs(&script), place.ours(&script));
            assert_eq!(told(&ours), told(&theirs), "{made}: {options}");
        }
    }
}

/// A destination of `rdump` must exist, and `dump` follows links and writes regular files.
#[test]
fn files_are_dumped_as_by_debugfs() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    make(&place, IMAGES[0]);
    for script in [
        "mkdir to; debugfs -R 'rdump /etc/motd /link to' d.img; ls to; rm -r to",
        "echo longer than before >out; debugfs -R 'dump /etc/motd out' d.img; cat out; rm out",
        "umask 022; debugfs -R 'dump -p /etc/motd out' d.img; stat -c '%a %u %Y %F' out; cat out; rm out",
        "debugfs -R 'rdump /etc none' d.img; ls -d none",
        "debugfs -R 'ls' -R 'cat /etc/motd' d.img",
    ] {
        let script = format!("({script}) 2>/dev/null");
        let (theirs, ours) = (place.theirs(&script), place.ours(&script));
        let [theirs, ours] =
            [&theirs.stdout, &ours.stdout].map(|out| String::from_utf8_lossy(out).into_owned());
        assert_eq!(ours, theirs, "{script}");
    }
    let out = place.ours("debugfs none.img </dev/null");
    assert_eq!(out.status.code(), Some(1), "{}", told(&out));
    clean(&place.image("d.img"));
}
