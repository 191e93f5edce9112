//! The output of commands about mounts.

use super::support::{EXTANT, assert_clean, image, isolated, place, run};
use std::process::{Command, Stdio};

/// Opening an image, and writing its remaining data, may take long: a terminal shows the current wait.
#[test]
fn waiting_is_shown_on_terminals() {
    needs::tools!("script");
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let dir = place.path().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        let (name, dir) = (image.display(), dir.display());
        let seen = |words: &str, after: &str| {
            run(Command::new("script")
                .args(["-qec", &format!("{EXTANT} {words}"), "/dev/null"])
                .env("TERM", "xterm")
                .env("EXTANT_PROGRESS", after)
                .stdin(Stdio::null()))
        };
        for (words, shown) in [
            (format!("mount {name} {dir}"), format!("{name}: opening")),
            (format!("sync {dir}"), format!("{dir}: writing")),
            (format!("umount {dir}"), format!("{name}: writing")),
        ] {
            let text = seen(&words, "0");
            assert!(text.contains(&shown), "{words}: {text}");
        }
        for words in ["mount", "sync", "umount"] {
            let image = if words == "mount" {
                image.to_str().unwrap()
            } else {
                ""
            };
            assert_eq!(
                seen(&format!("{words} {image} {dir}"), "3600"),
                "",
                "{words}"
            );
        }
        assert_clean(&image);
    });
}
