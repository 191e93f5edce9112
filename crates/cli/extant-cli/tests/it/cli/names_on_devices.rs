//! The names of e2fsprogs on block devices, and on devices that Linux has mounted: the same results as e2fsprogs.

use crate::cli::called::{ScriptDir, clean, told};
use crate::cli::interrupted::Loop;
use crate::cli::support::root;
use std::process::Output;

fn place() -> Option<ScriptDir> {
    let place = ScriptDir::new()?;
    if !root() || !needs::have(&["losetup", "tune2fs", "resize2fs", "e2label"]) {
        return None;
    }
    Some(place)
}

fn code(out: &Output) -> Option<i32> {
    out.status.code()
}

#[test]
fn a_device_is_changed_as_e2fsprogs_changes_it() {
    let Some(place) = place() else { return };
    let image = place.image("i.img");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let device = Loop::over(&image.display().to_string());
    for command in [
        "e2fsck -fp DEV",
        "e2fsck -fy DEV",
        "tune2fs -L data DEV",
        "tune2fs -U random DEV",
        "tune2fs -O ^has_journal DEV",
        "tune2fs -O ^metadata_csum DEV",
        "e2label DEV data",
        "resize2fs -f DEV 40M",
        "e2fsck -fyD DEV",
    ] {
        let script = format!("/usr/sbin/mke2fs -q -F -t ext4 -d tree DEV; {command}");
        let script = script.replace("DEV", &device.0);
        let (theirs, ours) = (place.theirs(&script), place.ours(&script));
        assert_eq!(code(&ours), code(&theirs), "{command}: {}", told(&ours));
        let clean = place.theirs(&format!("e2fsck -fn {}", device.0));
        assert!(clean.status.success(), "{command}: {}", told(&clean));
    }
    let grown = place.ours(&format!(
        "/usr/sbin/mke2fs -q -F -t ext4 {0} 32M; resize2fs {0}",
        device.0
    ));
    assert!(grown.status.success(), "{}", told(&grown));
    // The undo record was on the device, and no file remains.
    let name = device.0.trim_start_matches('/').replace('/', "-");
    let left = std::path::Path::new("/var/lib/extant").join(format!("{name}.extant-undo"));
    assert!(!left.exists());
    drop(device);
    clean(&image);
}

#[test]
fn a_volume_that_linux_has_mounted_is_changed() {
    let Some(place) = place() else { return };
    let image = place.image("i.img");
    let made = place.theirs("truncate -s 64M i.img; mke2fs -q -t ext4 i.img; mkdir m");
    assert!(made.status.success(), "{}", told(&made));
    let device = Loop::over(&image.display().to_string());
    let dev = &device.0;
    let mounted = place.theirs(&format!("mount {dev} m"));
    if !mounted.status.success() {
        needs::ignored("no loop mounts here");
        return;
    }
    let theirs_list = |fields: &str| {
        let listed = place.theirs(&format!(
            "dumpe2fs -h {dev} 2>/dev/null | grep -E '{fields}'"
        ));
        told(&listed)
    };
    let fields = "volume name|Maximum mount|Errors|Reserved block count|Default mount|Reserved blocks uid|Filesystem UUID|Check interval|RAID stride";
    let script = "tune2fs -L lab DEV; tune2fs -c 5 -m 3 -e remount-ro -o discard -u 7 -i 10d DEV; tune2fs -E stride=4 DEV; e2label DEV data; e2label DEV";
    let run = |out: Output| {
        assert!(out.status.success(), "{}", told(&out));
        told(&out)
    };
    let said = run(place.ours(&script.replace("DEV", dev)));
    assert!(said.ends_with("data\n"), "{said}");
    let ours = theirs_list(fields);
    assert!(ours.contains("data") && ours.contains("Remount"), "{ours}");
    run(place.theirs(&format!(
        "tune2fs -c 9 -m 1 -e continue -o ^discard -u 0 -i 0 -E stride=0 {dev}"
    )));
    run(place.theirs(&script.replace("DEV", dev)));
    assert_eq!(ours, theirs_list(fields), "ours left");
    let uuid = "11111111-2222-3333-4444-555555555555";
    let asked = place.ours(&format!("tune2fs -U {uuid} {dev}"));
    let may = place.theirs(&format!("tune2fs -U {uuid} {dev}"));
    assert_eq!(code(&asked), code(&may), "{}", told(&asked));
    // A change beyond the superblock is refused before anything is written.
    let refused = place.ours(&format!("tune2fs -O ^has_journal -L no {dev}"));
    assert_eq!(code(&refused), Some(1));
    assert!(
        told(&refused).contains("unmount it first"),
        "{}",
        told(&refused)
    );
    assert_eq!(told(&place.ours(&format!("e2label {dev}"))), "data\n");
    // The kernel grows the volume; a shrink is refused.
    let asked = place.ours(&format!("resize2fs -P {dev}"));
    assert!(
        told(&asked).starts_with("Estimated minimum size"),
        "{}",
        told(&asked)
    );
    let grow = format!("truncate -s 128M i.img; losetup -c {dev}; resize2fs {dev}");
    let grown = place.ours(&grow);
    let told_all = told(&grown);
    // Without CAP_SYS_RESOURCE the kernel refuses both programs.
    let is_refused = told_all.contains("permission denied to resize");
    assert!(grown.status.success() || is_refused, "{told_all}");
    assert!(told_all.contains("is mounted on"), "{told_all}");
    assert_eq!(told_all.contains("blocks long"), grown.status.success());
    let shrunk = place.ours(&format!("resize2fs {dev} 20M"));
    assert!(
        told(&shrunk).contains("On-line shrinking not supported"),
        "{}",
        told(&shrunk)
    );
    run(place.theirs("umount m"));
    drop(device);
    clean(&image);
}

#[test]
fn a_journal_is_replayed_before_a_change() {
    let Some(place) = place() else { return };
    let made = place.theirs("truncate -s 32M i.img; mke2fs -q -t ext4 i.img; mkdir m");
    assert!(made.status.success(), "{}", told(&made));
    let image = place.image("i.img");
    let device = Loop::over(&image.display().to_string());
    let script = format!(
        "mount {0} m || exit 77; mkdir m/a; sync -f m; exec 9>m/gone; echo x >&9; rm m/gone; mkdir m/b; sync -f m; \
         cp --sparse=always i.img pending.img; exec 9>&-; umount m",
        device.0
    );
    let pending = place.theirs(&script);
    if code(&pending) == Some(77) {
        needs::ignored("no loop mounts here");
        return;
    }
    assert!(pending.status.success(), "{}", told(&pending));
    for change in [
        "tune2fs -L lab p.img",
        "tune2fs -m 1 p.img",
        "tune2fs -O ^has_journal p.img",
        "e2label p.img lab",
        "e2fsck -p p.img",
        "e2fsck -y p.img",
        "e2fsck -fp p.img",
        "e2fsck -fy -E journal_only p.img",
    ] {
        let script = format!("cp --sparse=always pending.img p.img; {change}");
        let (theirs, ours) = (place.theirs(&script), place.ours(&script));
        assert_eq!(code(&ours), code(&theirs), "{change}: {}", told(&ours));
        clean(&place.image("p.img"));
        let names = place.theirs("debugfs -R 'ls -p /' p.img 2>/dev/null");
        assert!(told(&names).contains("/b//"), "{change}: {}", told(&names));
    }
}

/// Creates `i.img` with 16 MiB, and fills the volume to its last block.
fn full(place: &ScriptDir) {
    let made = place.theirs(
        "truncate -s 16M i.img; mke2fs -q -F -t ext4 -m 0 -d tree i.img; mkdir m; mount -o loop i.img m; \
         echo 0 >/sys/fs/ext4/$(basename $(findmnt -no SOURCE m))/reserved_clusters; cp /dev/zero m/full 2>/dev/null || :; sync -f m; echo one >one; i=0; while cp one m/$i 2>/dev/null; do i=$((i+1)); done; umount m",
    );
    assert!(made.status.success(), "{}", told(&made));
}

#[test]
fn a_change_of_a_full_device_saves_old_bytes_in_the_journal() {
    let Some(place) = place() else { return };
    full(&place);
    let image = place.image("i.img");
    let device = Loop::over(&image.display().to_string());
    for command in [
        "tune2fs -U random",
        "tune2fs -O ^metadata_csum",
        "e2fsck -fyD",
    ] {
        let ours = place.ours(&format!("{command} {}", device.0));
        assert!(code(&ours) < Some(2), "{command}: {}", told(&ours));
        let clean = place.theirs(&format!("e2fsck -fn {}", device.0));
        assert!(clean.status.success(), "{command}: {}", told(&clean));
    }
    drop(device);
    // The undo record is in the journal, but the log is empty.
    let found = place.theirs(
        "debugfs -R 'dump <8> journal' i.img 2>/dev/null; grep -q EXTUNDO journal && dumpe2fs -h i.img 2>/dev/null | grep 'Journal start'",
    );
    let text = told(&found);
    assert!(text.contains("Journal start:            0"), "{text}");
    clean(&image);
}

#[test]
fn an_image_on_a_full_host_can_be_changed() {
    let Some(place) = place() else { return };
    let script = "set -e; mkdir t; mount -t tmpfs -o size=24M none t; trap 'umount t' EXIT; mke2fs -q -F -t ext4 -d tree i.img 16M; \
                  cat i.img >t/i.img; cp /dev/zero t/full 2>/dev/null || :; \
                  tune2fs -U random t/i.img; ls t; e2fsck -fn t/i.img";
    let ours = place.ours(script);
    assert!(ours.status.success(), "{}", told(&ours));
    let text = told(&ours);
    assert!(
        text.contains("full\ni.img\n") && !text.contains("extant-undo"),
        "{text}"
    );
}
