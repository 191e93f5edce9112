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

/// A mount shows the changes of commands over the same overlay, and commands those of a mount.
#[test]
fn a_mount_and_commands_share_an_overlay() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let before = sum(&image);
        let overlay = place.path().join("changes");
        let words = ["--overlay", overlay.to_str().unwrap()];
        let of_mkdir = ["mkdir", &format!("{}:/made", image.display())];
        extant(of_mkdir.iter().chain(&words));
        let mounted = Mounted::with(&image, transport, &words, &[]);
        assert_eq!(
            script(mounted.dir(), "ls; echo one >a"),
            "lost+found\nmade\n"
        );
        mounted.unmount();
        let of_cat = ["cat", &format!("{}:/a", image.display())];
        assert_eq!(extant(of_cat.iter().chain(&words)), "one\n");
        let mounted = Mounted::with(&image, transport, &words, &["ro"]);
        assert_eq!(
            script(mounted.dir(), "cat a; ! touch b 2>/dev/null"),
            "one\n"
        );
        mounted.unmount();
        assert!(sum(&image) == before, "the image has changed");
    });
}

/// A mount of an address with a root hash verifies what programs read; scratch changes go over it.
#[test]
fn a_verified_image_is_mounted() {
    over_each(|transport| {
        let place = place();
        let (from, image) = (place.path().join("from"), place.path().join("golden.img"));
        std::fs::create_dir(&from).unwrap();
        std::fs::write(from.join("file"), vec![7; 300_000]).unwrap();
        std::fs::write(from.join("small"), "text").unwrap();
        let paths = [&image, &from].map(|path| path.to_str().unwrap());
        let made = [
            "mkfs", paths[0], "--from", paths[1], "--size", "8M", "--verity", "--json",
        ];
        let made: serde_json::Value = serde_json::from_str(&extant(made)).unwrap();
        let root = made["root_hash"].as_str().unwrap();
        let address = std::path::PathBuf::from(format!("{}@verity={root}", paths[0]));
        let bytes = sum(&image);
        let at = bytes.windows(4096).position(|w| w == [7; 4096]).unwrap();
        let broken = std::fs::File::options().write(true).open(&image).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&broken, &[6], at as u64 + 8_000).unwrap();
        let before = sum(&image);
        let mounted = Mounted::with(&address, transport, &["--scratch"], &[]);
        let text = script(
            mounted.dir(),
            "cat small; ! cat file >/dev/null 2>&1; echo new >added; cat added",
        );
        assert_eq!(text, "textnew\n");
        mounted.terminate();
        assert!(sum(&image) == before, "the image has changed");
    });
}
