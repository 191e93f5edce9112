//! A further reader, ext4-view, which was written independently of this engine.

use crate::common::amount;
use crate::kernel::contents::make;
use crate::kernel::tree::{from_root, our_tree};
use extant_testing::mounted::{KINDS, image, open_file};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// ext4-view, written independently, sees the same.
#[test]
fn read_by_ext4_view() {
    needs::tools!("mke2fs");
    for (what, args) in KINDS
        .iter()
        // Features that ext4-view does not know.
        .filter(|(_, a)| {
            !["ext2", "meta_bg,^resize_inode", "128"]
                .iter()
                .any(|f| a.contains(f))
        })
    {
        let dir = needs::memory_dir();
        let path = image(&dir, args);
        let v = open_file(&path);
        make(&v, amount(400, 3_000));
        v.close().unwrap();
        let v = open_file(&path);
        let ours = our_tree(&v);
        v.close().unwrap();
        let view = ext4_view::Ext4::load(Box::new(std::fs::read(&path).unwrap()))
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let mut seen = 0;
        let mut todo = vec![PathBuf::new()];
        while let Some(dir) = todo.pop() {
            for entry in view
                .read_dir(from_root(&dir).as_os_str().as_bytes())
                .unwrap_or_else(|e| panic!("{what}: {dir:?}: {e}"))
            {
                let entry = entry.unwrap_or_else(|e| panic!("{what}: {dir:?}: {e}"));
                let name = entry.file_name();
                let name = OsStr::from_bytes(name.as_ref());
                if name == "." || name == ".." || name == "lost+found" {
                    continue;
                }
                let path = dir.join(name);
                let expected = ours
                    .get(&path)
                    .unwrap_or_else(|| panic!("{what}: {path:?} is not ours"));
                let at = from_root(&path).into_os_string().into_encoded_bytes();
                let meta = view.symlink_metadata(&at[..]).unwrap();
                assert_eq!(
                    u32::from(meta.mode()),
                    expected.mode & 0o7777,
                    "{what}: {path:?}: mode"
                );
                assert_eq!(
                    (meta.uid(), meta.gid()),
                    expected.owner,
                    "{what}: {path:?}: owner"
                );
                assert_eq!(meta.len(), expected.size, "{what}: {path:?}: size");
                if meta.is_dir() {
                    todo.push(path.clone());
                } else if meta.is_symlink() {
                    let target = view.read_link(&at[..]).unwrap();
                    assert_eq!(
                        AsRef::<[u8]>::as_ref(&target),
                        &expected.content[..],
                        "{what}: {path:?}: target"
                    );
                } else if meta.file_type().is_regular_file() && expected.size < 20_000_000 {
                    assert!(
                        view.read(&at[..]).unwrap() == expected.content,
                        "{what}: {path:?}: content"
                    );
                }
                seen += 1;
            }
        }
        assert_eq!(seen, ours.len() - 1, "{what}: names");
    }
}
