//! Names, modes and sizes as people read them.

use extant::FileType;

pub use extant_terminal::numbers::{count, human, rate};

/// A path for people: control characters and bytes that are not UTF-8 are escaped, so that no name can
/// write to the terminal.
pub fn show(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                out.extend(c.escape_default())
            } else {
                out.push(c)
            }
        }
        for b in chunk.invalid() {
            out.push_str(&format!("\\x{b:02x}"));
        }
    }
    out
}

/// The letter of a type, as `ls -l` shows it.
pub fn type_letter(kind: FileType) -> char {
    match kind {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    }
}

/// The name of a type.
pub fn type_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// `drwxr-xr-x`.
pub fn mode(kind: FileType, mode: u32) -> String {
    let mut out = String::from(type_letter(kind));
    for (shift, special, set, unset) in [
        (6, 0o4000, 's', 'S'),
        (3, 0o2000, 's', 'S'),
        (0, 0o1000, 't', 'T'),
    ] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_names() {
        assert_eq!(mode(FileType::Directory, 0o041_777), "drwxrwxrwt");
        assert_eq!(mode(FileType::Regular, 0o104_644), "-rwSr--r--");
        assert_eq!(show(b"a\x1b[2J\xffb"), "a\\u{1b}[2J\\xffb");
    }
}
