//! Blocks of zeros become holes, whichever command brings them into an image, unless `--keep-zeros` is given.

use crate::cli::support::Scratch;
use std::process::Command;

/// Bytes with zeros at the start, in the middle and at the end, and single bytes between them.
fn content() -> Vec<u8> {
    let mut bytes = vec![0; 3 << 20];
    bytes[70_000..90_000].fill(1);
    bytes[(2 << 20) - 1] = 2;
    bytes[2_500_000] = 3;
    bytes.truncate((3 << 20) - 100);
    bytes
}

/// Returns the blocks of 512 bytes that a file of the image takes.
fn blocks(s: &Scratch, path: &str) -> u64 {
    let text = s.debugfs(&format!("stat {path}"));
    let count = text.split("Blockcount: ").nth(1).unwrap();
    count.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn all_commands_leave_blocks_of_zeros_out() {
    needs::tools!("tar", "cpio", "mksquashfs", "debugfs");
    let Some(s) = Scratch::ext4() else { return };
    std::fs::create_dir(s.host("tree")).unwrap();
    std::fs::write(s.host("tree/file"), content()).unwrap();
    std::fs::write(s.host("tree/zeros"), vec![0; 100_000]).unwrap();
    let script = "tar -cf tree.tar -C tree . && (cd tree && find . | cpio -o --quiet -H newc >../tree.cpio) && \
                  mksquashfs tree tree.sqfs -quiet -no-progress";
    let done = Command::new("sh")
        .args(["-c", script])
        .current_dir(s.dir.path())
        .output();
    assert!(done.unwrap().status.success());
    let sources = ["tree", "tree.tar", "tree.cpio", "tree.sqfs"];
    let mut taken = Vec::new();
    for source in sources {
        for (more, holes) in [(&[][..], true), (&["--keep-zeros"], false)] {
            let (made, to) = (format!("@{source}.img"), format!("/{source}-{holes}"));
            let from = format!("@{source}");
            let mut line = vec!["mkfs", "-q", "-F", &made, "--size", "32M", "-b", "1024"];
            line.extend(["--from", &from]);
            line.extend(more);
            s.ok(&line);
            let other = Scratch {
                dir: tempfile::tempdir().unwrap(),
                image: s.host(&format!("{source}.img")),
            };
            let mut line = vec!["import", "%", &from, "--to", &to];
            line.extend(more);
            let ran = s.run(&line);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            for name in ["file", "zeros"] {
                let of_mkfs = blocks(&other, &format!("/{name}"));
                let of_import = blocks(&s, &format!("{to}/{name}"));
                assert_eq!(of_import, of_mkfs, "{source}, {name}, holes: {holes}");
                // mksquashfs stores no zeros.
                if holes || source != "tree.sqfs" {
                    taken.push((holes, of_import));
                }
            }
            let read = s.run(&["cat", &format!(":{to}/file")]).stdout;
            assert!(read == content(), "{source}, holes: {holes}");
        }
    }
    assert!(
        taken
            .iter()
            .all(|(holes, n)| if *holes { *n < 60 } else { *n > 190 }),
        "{taken:?}"
    );
    s.clean();
}

#[test]
fn copies_leave_blocks_of_zeros_out() {
    needs::tools!("debugfs");
    let Some(s) = Scratch::ext4() else { return };
    std::fs::write(s.host("file"), content()).unwrap();
    s.ok(&["cp", "@file", ":/holes"]);
    s.ok(&["cp", "--keep-zeros", "@file", ":/whole"]);
    // A file that is overwritten has nothing of its old content.
    s.ok(&["cp", "--keep-zeros", "@file", ":/again"]);
    s.ok(&["cp", "@file", ":/again"]);
    assert!(blocks(&s, "/holes") < 60 && blocks(&s, "/again") < 60);
    assert!(blocks(&s, "/whole") > 6000);
    for name in ["holes", "whole", "again"] {
        assert!(s.run(&["cat", &format!(":/{name}")]).stdout == content());
        s.ok(&["cp", &format!(":/{name}"), "@out"]);
        assert!(std::fs::read(s.host("out")).unwrap() == content());
    }
    s.clean();
}
