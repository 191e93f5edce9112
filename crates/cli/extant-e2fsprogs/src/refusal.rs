//! Refusals of calls.

use extant_terminal::output::one_line;

/// Refusal of a call: a line, and the exit code.
#[derive(Debug)]
pub struct Refusal(pub String, pub u8);

/// Exit code of most tools when they refuse a call.
pub const REFUSED: u8 = 1;

pub fn refuse(line: impl Into<String>) -> Refusal {
    Refusal(line.into(), REFUSED)
}

impl From<String> for Refusal {
    fn from(line: String) -> Self {
        refuse(line)
    }
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        refuse(one_line(&error))
    }
}
