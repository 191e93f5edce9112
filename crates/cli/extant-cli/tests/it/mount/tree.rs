//! The contents of a directory, as text to compare.

use super::support::{Kernel, Mounted, script};
use std::path::Path;

/// Describes every file with all attributes in stat, its extended attributes, and a checksum of its contents. Omits
/// the size of directories, which depends on when their blocks were last formatted.
pub fn describe(dir: &Path) -> String {
    script(
        dir,
        "find . -name lost+found -prune -o -type d -printf '%P %y %m %U %G %T@ %C@ %n\\n' \
           -o -printf '%P %y %m %U %G %s %T@ %C@ %n %l\\n' | LC_ALL=C sort
         find . -name lost+found -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum
         getfattr -Rhd -m - . 2>/dev/null | grep -v '^$' || true",
    )
}

/// Unmounts, and compares with the tree that the kernel's ext4 shows.
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
