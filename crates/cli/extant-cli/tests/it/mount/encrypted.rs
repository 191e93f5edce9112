//! Images with encrypted directories, made by the kernel, look the same as in the kernel without the key.

use super::support::{EXTANT, Kernel, Mounted, image, over_each, place, run, script};
use std::process::Command;

/// All attributes except access times: names, attributes, targets.
const LISTING: &str = "set -o pipefail; find . -name lost+found -prune -o -print0 | sort -z | xargs -0 stat -c '%N|%f|%u|%g|%h|%s|%Y'";

#[test]
fn encrypted_names_are_those_that_the_kernel_shows() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &["-O", "encrypt", "-b", "4096"]);
        {
            // A test key of the kernel: everything that is made is encrypted.
            let kernel = Kernel::new(&image, "test_dummy_encryption");
            script(
                kernel.dir(),
                "mkdir d d/e many; echo text >d/file; ln -s target d/link; mkfifo d/fifo
                 >d/e/$(printf 'long%.0s' $(seq 55)); ln -s $(printf 'way/%.0s' $(seq 60)) d/far
                 for i in $(seq 400); do >many/name-of-a-file-in-a-directory-with-an-index-$i; done",
            );
        }
        let (wanted, error) = {
            let kernel = Kernel::new(&image, "ro");
            let names = script(kernel.dir(), LISTING);
            let cat = "cat $(find d -type f -size 5c) 2>&1 | sed 's/.*: //' || true";
            (names, script(kernel.dir(), cat))
        };
        assert!(
            wanted.lines().count() > 400 && !wanted.contains("text"),
            "{wanted}"
        );
        assert!(error.contains("key"), "{error}");
        let mounted = Mounted::new(&image, transport, &["ro"]);
        let found = script(mounted.dir(), LISTING);
        assert!(found == wanted, "{found}\nand not\n{wanted}");
        let cat = "cat $(find d -type f -size 5c) 2>&1 | sed 's/.*: //' || true";
        assert_eq!(script(mounted.dir(), cat), error);
        mounted.unmount();
        // The command shows the same, and nothing is written.
        let listed = run(Command::new(EXTANT)
            .arg("ls")
            .arg(format!("{}:/many", image.display())));
        assert!(listed.lines().all(|name| wanted.contains(name)), "{listed}");
        let refused = Command::new(EXTANT)
            .args(["rm", &format!("{}:/d", image.display())])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(text.contains("encrypt"), "{text}");
    });
}
