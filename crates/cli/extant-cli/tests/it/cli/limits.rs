//! Sizes at and beyond the limits of the format, and default sizes of images for few files.

use crate::cli::support::Scratch;

#[test]
fn sizes_beyond_a_limit_name_the_limit() {
    let Some(s) = Scratch::mke2fs("16M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let before = std::fs::read(&s.image).unwrap();
    for size in ["99999T", "17T", "16P"] {
        let said = s.fails(&["resize", "%", size]);
        assert!(
            said.contains("bytes are too many: fewer than 2^32 inodes fit")
                && said.contains("at most "),
            "{size}: {said}"
        );
    }
    for (size, part) in [
        ("9E", "sizes are below 8E"),
        ("16E", "sizes are below 8E"),
        ("99999999999999999999", "sizes are below 8E"),
    ] {
        let said = s.run(&["resize", "%", size]).stderr;
        assert!(said.contains(part), "{size}: {said}");
    }
    assert!(std::fs::read(&s.image).unwrap() == before);
    for (args, part) in [
        (&["-O", "^64bit"][..], "without the feature 64bit"),
        (&["-b", "4096"], "2^32 or more inodes"),
    ] {
        let mut line = vec!["mkfs", "@new.img", "--size", "99999T"];
        line.extend(args);
        let said = s.fails(&line);
        assert!(said.contains(part), "{args:?}: {said}");
        assert!(!s.host("new.img").exists());
    }
}

/// The message of a limit has the largest size.
#[test]
fn the_size_in_the_message_is_the_largest() {
    let Some(s) = Scratch::mke2fs("16M", &["-t", "ext2", "-b", "1024", "-O", "^resize_inode"])
    else {
        return;
    };
    let said = s.fails(&["resize", "-n", "%", "5T"]);
    let most = said.rsplit("at most ").next().unwrap();
    let most: u64 = most.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(most, u64::from(u32::MAX) * 1024, "{said}");
}

#[test]
fn default_sizes_are_near_the_least_ones() {
    let s = Scratch::empty();
    std::fs::create_dir(s.host("tree")).unwrap();
    std::fs::write(s.host("tree/file"), "one\n").unwrap();
    for block in [1024, 4096, 16384] {
        for inode in [128, 256, 1024, 4096, 16384] {
            for ratio in ["", "65536", "1048576"] {
                if inode > block {
                    continue;
                }
                let (b, i) = (block.to_string(), inode.to_string());
                let mut sizes = [0, 0];
                for (size, more) in sizes.iter_mut().zip([&[][..], &["--size", "min"]]) {
                    let mut line = vec!["mkfs", "-q", "-F", "%", "--from", "@tree"];
                    line.extend(["-b", &b, "-I", &i]);
                    line.extend(more);
                    if !ratio.is_empty() {
                        line.extend(["-i", ratio]);
                    }
                    s.ok(&line);
                    *size = s.image.metadata().unwrap().len();
                    s.clean();
                }
                let [usual, least] = sizes;
                assert!(
                    usual <= 4 * least,
                    "-b {block} -I {inode} -i {ratio}: {usual} bytes, and {least} are enough"
                );
            }
        }
    }
    let said = s.fails(&[
        "mkfs", "-F", "%", "--from", "@tree", "-b", "1024", "-I", "1024", "-i", "1024",
    ]);
    assert!(
        said.contains("more bytes per inode (-i) leave room"),
        "{said}"
    );
}
