//! `e2fsck -C FD`: the progress, in the lines of e2fsck.

use crate::cli::called::{ScriptDir, clean, told};
use crate::cli::support::Scratch;
use extant_testing::common::copy_image;

/// A step: its pass, the work done, and the total.
type Step = (u8, u64, u64);

/// Returns the steps that a script wrote to the file `steps` for an image. Steps ascend within a pass, and each pass
/// has one total. As in e2fsck, a pass is reported from 0 or more up to the total, after the earlier passes.
#[track_caller]
fn steps(place: &ScriptDir, image: &str) -> Vec<Step> {
    let text = std::fs::read_to_string(place.image("steps")).unwrap();
    let steps: Vec<Step> = text
        .lines()
        .map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            assert_eq!(words[3..], [image], "{line}");
            let number = |i: usize| words[i].parse().unwrap();
            (number(0) as u8, number(1), number(2))
        })
        .collect();
    assert!(
        steps.is_sorted_by_key(|(pass, done, _)| (*pass, *done)),
        "{text}"
    );
    for (pass, done, total) in &steps {
        let first = steps.iter().find(|(p, ..)| p == pass).unwrap();
        assert!(done <= total && *total == first.2, "{text}");
    }
    steps
}

#[track_caller]
fn all_ended(steps: &[Step]) {
    for pass in [1, 2, 3, 5] {
        let last = steps.iter().rfind(|(p, ..)| *p == pass).unwrap();
        assert!(last.1 == last.2 && last.2 > 0, "{steps:?}");
    }
    let ends = steps
        .iter()
        .filter(|(pass, done, total)| *pass == 5 && done == total);
    assert_eq!(ends.count(), 1, "{steps:?}");
}

#[test]
fn checks_and_repairs_say_how_far_they_are() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let Some(s) = Scratch::filled() else { return };
    copy_image(&s.image, place.image("good.img"));
    s.debugfs_write("set_inode_field /etc/motd links_count 7");
    copy_image(&s.image, place.image("bad.img"));
    // Only this repair starts a check: the primary superblock is lost.
    let lost = "cp bad.img lost.img; dd if=/dev/zero of=lost.img bs=1024 seek=1 count=1 conv=notrunc status=none";
    assert!(place.theirs(lost).status.success());
    for (options, image, code) in [
        ("-fn", "good.img", 0),
        ("-fn", "bad.img", 4),
        ("-fp", "good.img", 0),
        ("-fp", "bad.img", 1),
        ("-fa", "bad.img", 1),
        ("-fy", "bad.img", 1),
        ("-fy", "lost.img", 1),
    ] {
        let script = format!("cp {image} x.img; e2fsck {options} -C 3 x.img 3>steps");
        let ours = place.ours(&script);
        assert_eq!(ours.status.code(), Some(code), "{script}: {}", told(&ours));
        all_ended(&steps(&place, "x.img"));
        if !options.contains('n') {
            clean(&place.image("x.img"));
        }
    }
    // The lines of e2fsck for the same image have the same form.
    let theirs = place.theirs("cp bad.img x.img; e2fsck -fy -C 3 x.img 3>steps || :");
    assert!(theirs.status.success(), "{}", told(&theirs));
    let text = std::fs::read_to_string(place.image("steps")).unwrap();
    assert!(
        text.lines()
            .all(|line| line.ends_with(" x.img") && line.split(' ').count() == 4)
    );
    // As in e2fsck, an image that is not checked has no progress, and descriptor 0 means a bar on the terminal.
    for script in [
        "e2fsck -p -C 3 good.img 3>steps",
        "cp bad.img x.img; e2fsck -fy -C 0 x.img 3>steps || :",
    ] {
        let ours = place.ours(script);
        assert!(ours.status.success(), "{script}: {}", told(&ours));
        assert_eq!(steps(&place, "x.img"), []);
    }
    let closed = place.ours("e2fsck -fy -C 9 x.img");
    assert_eq!(closed.status.code(), Some(8), "{}", told(&closed));
    assert!(
        told(&closed).contains("--progress-fd 9"),
        "{}",
        told(&closed)
    );
}

#[test]
fn an_undo_file_that_cannot_be_made_is_not_a_volume_that_was_mended() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = place.theirs("mke2fs -q -t ext4 x.img 8M");
    assert!(made.status.success(), "{}", told(&made));
    let ours = place.ours("e2fsck -fy -z missing/undo x.img");
    assert_eq!(ours.status.code(), Some(8), "{}", told(&ours));
}

/// A repair that fails does not write the last line, so that no reader takes it for the end of a repair.
#[test]
fn a_repair_that_fails_does_not_come_to_its_end() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let Some(s) = Scratch::filled() else { return };
    s.debugfs_write("set_inode_field /etc/motd links_count 7");
    copy_image(&s.image, place.image("x.img"));
    // No file may grow, which the repair meets when it saves the old bytes: after the check.
    let ours = place.ours("trap '' XFSZ; ulimit -f 0; exec e2fsck -fy -C 3 x.img 3>&1 >/dev/null");
    assert_eq!(ours.status.code(), Some(8), "{}", told(&ours));
    std::fs::write(place.image("steps"), &ours.stdout).unwrap();
    let steps = steps(&place, "x.img");
    assert!(steps.iter().any(|step| step.0 == 3), "{steps:?}");
    assert!(
        !steps
            .iter()
            .any(|(pass, done, total)| *pass == 5 && done == total),
        "{steps:?}"
    );
}
