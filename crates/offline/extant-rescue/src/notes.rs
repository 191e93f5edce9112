//! Notes and progress of a search.

/// Notes that are kept; the others are counted.
const NOTES: usize = 1000;

/// Missing parts of an image, with their replacements.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) kept: Vec<String>,
    pub(crate) more: u64,
}

impl Notes {
    pub(crate) fn add(&mut self, text: String) {
        if self.kept.len() < NOTES {
            self.kept.push(text)
        } else {
            self.more += 1
        }
    }
}

/// Told how many bytes of how many were looked at.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64);
