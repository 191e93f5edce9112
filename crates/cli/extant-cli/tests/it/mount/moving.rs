//! Files of a mount are defragmented, and the volume grows, while programs use it.

use super::support::{EXTANT, Mounted, assert_clean, extant, image, over_each, place, run, script};
use std::os::unix::fs::symlink;
use std::process::Command;

/// Writes files backwards, so that no block follows its neighbour; one has a hole and preallocated blocks.
const SCATTER: &str = "
    mkdir -p dir; : >dir/empty; ln -s a dir/link
    for n in $(seq 119 -1 0); do
        head -c 4096 /dev/urandom | dd of=dir/a bs=4096 seek=$n conv=notrunc,fsync iflag=fullblock status=none
        test $n -ge 40 || head -c 4096 /dev/urandom | dd of=b bs=4096 seek=$n conv=notrunc,fsync iflag=fullblock status=none
    done
    truncate -s 4M b; fallocate -n -o 5M -l 1M b; cat dir/a b | sha256sum >sums";

#[test]
fn files_move_while_programs_write_them() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "64M", &["-b", "4096"]);
        let mounted = Mounted::new(&image, transport, &[]);
        let dir = mounted.dir();
        script(dir, SCATTER);
        let json = |args: &[&str]| -> serde_json::Value {
            let path = dir.to_str().unwrap();
            let all = args.iter().copied().chain(["--json", path]);
            serde_json::from_str(&extant(all)).unwrap()
        };
        let counted = json(&["defrag", "-c"]);
        let extents = counted["before"]["extents"].as_u64().unwrap();
        assert!(extents > 100, "{counted}");
        assert!(counted["after"].is_null());
        // A program continues writing to a file that is being moved.
        let said = script(
            dir,
            &format!(
                "head -c 300000 /dev/urandom >log
                 (for n in $(seq 60); do
                      dd if=sums of=log bs=16 count=1 seek=$((n * 97)) conv=notrunc,fsync status=none
                      head -c 1000 sums >>log; done) & writer=$!
                 {EXTANT} defrag . ; wait $writer; {EXTANT} defrag log"
            ),
        );
        assert!(said.contains("files moved"), "{said}");
        let counted = json(&["defrag", "-n"]);
        let (now, least) = (&counted["before"]["extents"], &counted["before"]["least"]);
        assert_eq!(now, least, "{counted}");
        script(dir, "cat dir/a b | sha256sum | cmp - sums");
        let log = std::fs::read(dir.join("log")).unwrap();
        mounted.unmount();
        let at = format!("{}:/log", image.display());
        let read = Command::new(EXTANT).args(["cat", &at]).output().unwrap();
        assert!(read.stdout == log);
        assert_clean(&image);
    });
}

#[test]
fn e4defrag_says_what_scripts_read() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "64M", &["-b", "4096"]);
        let mounted = Mounted::new(&image, transport, &[]);
        script(mounted.dir(), SCATTER);
        let called = place.path().join("e4defrag");
        symlink(EXTANT, &called).unwrap();
        let e4defrag = |words: &str| {
            let mut command = Command::new(&called);
            run(command.args(words.split(' ')).current_dir(mounted.dir()))
        };
        let said = e4defrag("-c dir/a");
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines[0],
            "<File>                                         now/best       size/ext"
        );
        assert!(lines[1].starts_with("dir/a "), "{said}");
        assert!(lines[1].ends_with("/1              4 KB"), "{said}");
        assert_eq!(lines[1][40..50].trim(), "120", "{said}");
        let score = |said: &str| -> u32 {
            let mut lines = said.lines();
            let line = lines.find(|l| l.contains("Fragmentation score")).unwrap();
            line.rsplit('\t').next().unwrap().parse().unwrap()
        };
        // 119 of 120 blocks start avoidable extents.
        assert_eq!(score(&said), 100, "{said}");
        assert!(said.contains(" This file (dir/a) needs defragmentation.\n Done.\n"));
        let said = e4defrag("-v dir");
        assert!(said.contains("ext4 defragmentation for directory(dir)"));
        assert!(
            said.contains("/dir/a:\t100%  extents: 120 -> 1\t[ OK ]"),
            "{said}"
        );
        let sums = "\tSuccess:\t\t\t[ 1/4 ]\n\tFailure:\t\t\t[ 3/4 ]\n";
        assert!(said.contains(sums), "{said}");
        let said = e4defrag("-c .");
        assert!(said.starts_with("<Fragmented files>") && said.contains("\n1. "));
        let said = e4defrag("b");
        assert!(said.ends_with(" Success:\t\t\t[1/1]\n"), "{said}");
        assert_eq!(score(&e4defrag("-c .")), 0);
        script(mounted.dir(), "cat dir/a b | sha256sum | cmp - sums");
        // Paths outside of our mounts are refused.
        let out = Command::new(&called).arg("/proc").output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        mounted.unmount();
    });
}

/// df shows the new size at once; programs that write meanwhile see no errors; the kernel's ext4 mounts the result.
#[test]
fn a_mount_grows_while_programs_write() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "64M", &["-b", "4096"]);
        let mounted = Mounted::new(&image, transport, &[]);
        let dir = mounted.dir().to_str().unwrap().to_owned();
        let name = image.to_str().unwrap();
        let text = script(
            mounted.dir(),
            &format!(
                "df -k . | tail -n 1 | awk '{{ print $2 }}'
                 (for n in $(seq 100); do head -c 200000 /dev/urandom >f$n; sha256sum f$n >>sums; done) & writer=$!
                 {EXTANT} resize {dir} +64M; {EXTANT} resize {name} 400M
                 df -k . | tail -n 1 | awk '{{ print $2 }}'
                 wait $writer; fallocate -l 250M big; sha256sum --quiet -c sums"
            ),
        );
        let lines: Vec<&str> = text.lines().collect();
        let [old, _, said, new] = lines[..] else {
            panic!("{text}")
        };
        assert!(
            said.contains("resized: from ") && said.contains("to 102400 blocks of 4096 bytes"),
            "{text}"
        );
        let (old, new): (u64, u64) = (old.parse().unwrap(), new.parse().unwrap());
        assert!(old < 64 << 10 && new > 370 << 10, "{text}");
        let smaller = Command::new(EXTANT).args(["resize", &dir, "-10M"]).output();
        let smaller = smaller.unwrap();
        assert!(!smaller.status.success());
        assert!(String::from_utf8_lossy(&smaller.stderr).contains("becomes larger only"));
        // The server writes, so that an undo file would be empty.
        let undo = place.path().join("undo");
        let named = place.path().join("resize2fs");
        std::os::unix::fs::symlink(EXTANT, &named).unwrap();
        let larger = Command::new(named)
            .arg("-z")
            .arg(&undo)
            .arg(&image)
            .arg("500M")
            .output();
        let larger = larger.unwrap();
        assert!(String::from_utf8_lossy(&larger.stderr).contains("umount it first"));
        assert!(!larger.status.success() && !undo.exists());
        mounted.unmount();
        assert_eq!(std::fs::metadata(&image).unwrap().len(), 400 << 20);
        let kernel = place.path().join("kernel");
        std::fs::create_dir(&kernel).unwrap();
        let mut mount = Command::new("mount");
        let mount = mount.args(["-o", "loop,ro"]).arg(&image).arg(&kernel);
        if mount.status().is_ok_and(|status| status.success()) {
            let checked = Command::new("bash")
                .args([
                    "-euc",
                    "sha256sum --quiet -c sums; test $(stat -c %s big) = 262144000",
                ])
                .current_dir(&kernel)
                .status();
            run(Command::new("umount").arg(&kernel));
            assert!(checked.unwrap().success());
        }
    });
}
