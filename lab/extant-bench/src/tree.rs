//! A tree of many small files to be moved, and its contents.

use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// Parameters of a generated tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Number of directories.
    pub dirs: usize,
    /// Number of files in each directory.
    pub files: usize,
    /// Bytes of each file.
    pub size: u64,
}

impl Shape {
    /// Makes the tree: directories `d<n>` in `top`, files `file.<n>` in each, filled with incompressible bytes without
    /// zero blocks. Calls `made` for every directory.
    ///
    /// ```
    /// use extant_bench::tree::Shape;
    /// let dir = tempfile::tempdir()?;
    /// Shape { dirs: 2, files: 3, size: 10 }.make(dir.path(), || Ok(()))?;
    /// assert_eq!(std::fs::read(dir.path().join("d1/file.2"))?.len(), 10);
    /// # Ok::<(), anyhow::Error>(())
    /// ```
    pub fn make(self, top: &Path, mut made: impl FnMut() -> Result<()>) -> Result<()> {
        let mut noise = Noise::new(0);
        let mut content = vec![0; usize::try_from(self.size).context("a file's size")?];
        for d in 0..self.dirs {
            let dir = top.join(format!("d{d}"));
            let context = || dir.display().to_string();
            std::fs::create_dir(&dir).with_context(context)?;
            for n in 0..self.files {
                noise.fill(&mut content);
                std::fs::write(dir.join(format!("file.{n}")), &content).with_context(context)?;
            }
            made()?;
        }
        Ok(())
    }
}

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled").
pub(crate) struct Noise(u64);

impl Noise {
    /// Makes one of many sequences, selected by `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ seed.rotate_left(32))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        // The upper half of a product, because its low bits are the worst.
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_differ_and_trees_do_not() {
        let shape = Shape {
            dirs: 2,
            files: 2,
            size: 1001,
        };
        let read = || {
            let dir = tempfile::tempdir().unwrap();
            shape.make(dir.path(), || Ok(())).unwrap();
            let file = |name| std::fs::read(dir.path().join(name)).unwrap();
            [file("d0/file.0"), file("d0/file.1"), file("d1/file.0")]
        };
        let one = read();
        assert!(one[0] != one[1] && one[0] != one[2] && one[0].len() == 1001);
        assert_eq!(one, read());
    }
}
