//! Mounts that leave the image unchanged.

use super::support::{EXTANT, Mounted, assert_clean, extant, image, over_each, place, script};
use std::path::Path;
use std::process::Command;

fn sum(image: &Path) -> Vec<u8> {
    std::fs::read(image).unwrap()
}

#[test]
fn changes_are_thrown_away() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let before = sum(&image);
        let mounted = Mounted::with(&image, transport, &["--scratch"], &[]);
        let text = script(
            mounted.dir(),
            "mkdir d; head -c 1000000 /dev/zero >d/f; sync -f .; wc -c <d/f",
        );
        assert_eq!(text, "1000000\n");
        mounted.unmount();
        assert!(sum(&image) == before, "the image has changed");
    });
}

#[test]
fn changes_are_kept_and_applied() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let before = sum(&image);
        let overlay = place.path().join("changes");
        let keep = ["--scratch", "--keep", overlay.to_str().unwrap()];
        let mounted = Mounted::with(&image, transport, &keep, &[]);
        script(mounted.dir(), "echo one >a; mkdir d");
        mounted.unmount();
        let mounted = Mounted::with(&image, transport, &keep, &[]);
        assert_eq!(script(mounted.dir(), "cat a; echo two >d/b"), "one\n");
        mounted.unmount();
        assert!(sum(&image) == before, "the image has changed");
        extant([Path::new("apply"), &overlay, &image]);
        assert_clean(&image);
        assert_eq!(
            extant(["cat", &format!("{}:/d/b", image.display())]),
            "two\n"
        );
        // Read-only mounts exclude changes.
        let out = Command::new(EXTANT)
            .args(["mount", "--scratch", "-o", "ro"])
            .args([&image, &place.path().to_path_buf()])
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(1));
    });
}
