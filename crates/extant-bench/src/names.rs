//! Names that count up in place: making one costs next to nothing beside the operation that is measured.

/// The names of a task, `<prefix>.<task>.<n>`.
pub(crate) struct Names {
    text: String,
    prefix: usize,
    next: usize,
}

impl Names {
    /// The names of a task from the first on.
    pub(crate) fn new(prefix: &str, task: usize) -> Self {
        Self::from(prefix, task, 0)
    }

    /// The names of a task from the n-th on.
    pub(crate) fn from(prefix: &str, task: usize, next: usize) -> Self {
        let text = format!("{prefix}.{task}.");
        Self {
            prefix: text.len(),
            text,
            next,
        }
    }

    pub(crate) fn next(&mut self) -> &str {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut n = self.next;
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        self.next += 1;
        self.text.truncate(self.prefix);
        self.text
            .extend(digits[at..].iter().map(|&d| char::from(d)));
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_up() {
        let mut names = Names::new("file.mdtest", 7);
        let all: Vec<String> = (0..101).map(|_| names.next().to_string()).collect();
        assert_eq!(
            (all[0].as_str(), all[10].as_str(), all[100].as_str()),
            ("file.mdtest.7.0", "file.mdtest.7.10", "file.mdtest.7.100")
        );
    }
}
