//! The content of a directory, as text to compare.

use super::support::{Kernel, Mounted, script};
use std::path::Path;

/// Every file with all that stat shows, its extended attributes, and a sum of its contents. The size of a directory
/// depends on when its blocks were last formatted, and is left out.
pub fn describe(dir: &Path) -> String {
    script(
        dir,
        "find . -name lost+found -prune -o -type d -printf '%P %y %m %U %G %T@ %C@ %n\\n' \
           -o -printf '%P %y %m %U %G %s %T@ %C@ %n %l\\n' | LC_ALL=C sort
         find . -name lost+found -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum
         getfattr -Rhd -m - . 2>/dev/null | grep -v '^$' || true",
    )
}

/// Unmounts, and finds the same through the kernel's ext4.
pub fn unmount_and_compare(mounted: Mounted) {
    let image = mounted.image().to_path_buf();
    let ours = describe(mounted.dir());
    mounted.unmount();
    let kernel = Kernel::new(&image, "ro");
    let theirs = describe(kernel.dir());
    if ours != theirs {
        let differ = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b);
        panic!("ours and the kernel's differ:\n{differ:?}");
    }
}
