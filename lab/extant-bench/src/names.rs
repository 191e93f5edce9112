//! Names with a counter that is incremented in place, so that making a name costs next to nothing compared with the
//! measured operation.

/// The names of a task, `<prefix>.<task>.<n>`.
pub(crate) struct Names {
    text: Vec<u8>,
    /// Position of the number.
    prefix: usize,
    started: bool,
}

impl Names {
    /// Returns the names of a task from the first on.
    pub(crate) fn new(prefix: &str, task: usize) -> Self {
        Self::from(prefix, task, 0)
    }

    /// Returns the names of a task from the n-th on.
    pub(crate) fn from(prefix: &str, task: usize, next: usize) -> Self {
        let prefix = format!("{prefix}.{task}.");
        Self {
            text: format!("{prefix}{next}").into_bytes(),
            prefix: prefix.len(),
            started: false,
        }
    }

    pub(crate) fn next(&mut self) -> &str {
        if std::mem::replace(&mut self.started, true) {
            self.count();
        }
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// Increments the number.
    fn count(&mut self) {
        for digit in self.text[self.prefix..].iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
        self.text.insert(self.prefix, b'1');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_up() {
        let mut names = Names::new("file.mdtest", 7);
        for n in 0..1011 {
            assert_eq!(names.next(), format!("file.mdtest.7.{n}"));
        }
        assert_eq!(Names::from("a", 0, 99).next(), "a.0.99");
    }
}
